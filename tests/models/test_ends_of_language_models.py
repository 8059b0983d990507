"""Language models at the ends of what they take: settings, tokenizers, templates, and chats."""

from __future__ import annotations

import json

import pytest
from gguf_writer import write_llama
from test_causal import CONFIGS, LLAMA, kinds, needs_jinja, needs_tokenizers, random_model

import tinyattn as ta
from tinyattn.errors import ShapeError
from tinyattn.models import CausalLM
from tinyattn.models.chat import chat_prompt

HELLO = [{"role": "user", "content": "Hello"}]


def test_zeros_are_taken_where_numbers_begin_at_zero():
    names = ("initializer_range", "attention_dropout", "resid_pdrop", "embd_pdrop")
    config = CausalLM(LLAMA | dict.fromkeys(names, 0)).config
    assert [config[name] for name in names] == [0] * 4
    assert CausalLM(LLAMA | {"rope_theta": 1}).config["rope_theta"] == 1
    assert CausalLM(LLAMA | {"max_window_layers": 0}).config["max_window_layers"] == 0
    assert CausalLM(LLAMA | {"eos_token_id": None}).end_ids == []
    assert CausalLM(LLAMA | {"eos_token_id": [4, 2]}).end_ids == [4, 2]


@kinds
def test_a_model_that_does_not_fit_its_config_is_not_written(kind, tmp_path):
    model = random_model(kind)
    model.config["vocab_size"] = 41
    with pytest.raises(ShapeError, match=r"^its config: .*word\.weight has shape \(41, 16\)"):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    ta.nn.LoRA.insert(model, ["W_o"])
    with pytest.raises(RuntimeError, match=r"^LoRA has no place in this format: call nn\.LoRA"):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_with_an_adapter_takes_no_model(tmp_path):
    model = random_model("llama")
    ta.nn.LoRA.insert(model, ["W_o"])
    model.save_adapter(tmp_path)
    with pytest.raises(FileExistsError, match="has an adapter, which would count twice"):
        random_model("llama").save_pretrained(tmp_path)
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


@needs_tokenizers
def test_a_tokenizer_has_as_many_words_as_the_model_has_ids_at_most(tmp_path):
    tokenizer = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf")).tokenizer
    words = tokenizer.get_vocab_size()
    model = CausalLM(LLAMA | {"vocab_size": words})
    model.tokenizer = tokenizer
    assert model.tokenizer is tokenizer
    small = CausalLM(LLAMA | {"vocab_size": words - 1})
    said = rf"^the tokenizer has {words} words, and this model {words - 1}$"
    with pytest.raises(ValueError, match=said):
        small.tokenizer = tokenizer
    with pytest.raises(TypeError, match=r"^a tokenizer is of the package tokenizers, got str"):
        small.tokenizer = "a"
    with pytest.raises(ValueError, match="this model has no tokenizer, because no file with one"):
        _ = small.tokenizer


@needs_tokenizers
def test_tokens_are_added_in_the_order_of_their_ids(tmp_path):
    CausalLM.from_gguf(write_llama(tmp_path / "m.gguf")).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    added = {"1000": {"content": "<c>"}, "262": {"content": "<b>", "special": True}}
    added |= {"99": {"content": "<a>", "lstrip": True}}
    more = {"mask_token": {"content": "<mask>"}, "extra_special_tokens": {"image": "<image>"}}
    path.write_text(json.dumps({"added_tokens_decoder": added} | more))
    tokenizer = CausalLM.from_pretrained(tmp_path).tokenizer
    words = ("<a>", "<b>", "<c>", "<mask>", "<image>")
    assert [tokenizer.token_to_id(word) for word in words] == [260, 261, 262, 263, 264]
    found = tokenizer.get_added_tokens_decoder()
    assert [found[i].special for i in range(260, 265)] == [False, True, False, True, True]
    assert [found[i].lstrip for i in range(260, 265)] == [True, False, False, False, False]


@needs_tokenizers
@needs_jinja
def test_a_template_of_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    CausalLM.from_gguf(write_llama(tmp_path / "m.gguf")).save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes("\ufeffé{{ messages[0].content }}".encode())
    assert CausalLM.from_pretrained(tmp_path).chat_prompt(HELLO) == "éHello"


@needs_jinja
def test_lines_of_a_template_that_hold_a_mark_alone_leave_no_line():
    template = "a\n  {% if true %}\nb\n  {% endif %}\nc"
    assert chat_prompt(template, HELLO) == "a\nb\nc"


def test_what_is_no_chat_is_said():
    for messages, error, said in (
        (3, TypeError, "^a chat takes a list, got int"),
        ([{"role": "user"}], ValueError, '^a message is {"role": ..., "content": ...}, got {'),
        ([3], ValueError, '^a message is {"role": ..., "content": ...}, got 3'),
        ([HELLO[0] | {"role": "me"}], ValueError, "^a role must be \"system\", .*got 'me'"),
        ([HELLO[0] | {"content": 3}], ValueError, "^the content of a message is a text, got 3"),
    ):
        with pytest.raises(error, match=said):
            chat_prompt("a", messages)
    with pytest.raises(ValueError, match="this model has no template of a chat: write the text"):
        chat_prompt(None, HELLO)


@needs_tokenizers
@needs_jinja
def test_a_chat_that_fills_the_room_exactly_leaves_nothing_out(tmp_path):
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=template))
    rules = {"role": "system", "content": "xx"}
    chat = model.chat([rules], max_new_tokens=4)
    assert chat.dropped == 0
    list(chat.ask("y" * 58))  # of 64 positions 4 are for the answer
    assert chat.dropped == 0
    assert [m["role"] for m in chat.messages] == ["system", "user", "assistant"]
    assert chat.messages[0] == rules
    with pytest.raises(
        ShapeError, match=r"^the last message has 61 ids .* has 64 positions, of which 4 are"
    ):
        chat.ask("y" * 59)
    dropped, ids = chat.newest([rules, rules, {"role": "user", "content": "y" * 58}])
    assert (dropped, len(ids)) == (1, 60)  # the first of them stays


@kinds
def test_a_new_model_begins_with_the_deviation_of_its_config(kind):
    ta.manual_seed(3)
    biases = {} if kind == "gpt2" else {"attention_bias": True, "mlp_bias": True}
    model = CausalLM(CONFIGS[kind] | {"initializer_range": 0.5} | biases)
    for name, x in model.named_parameters():
        if name.endswith("bias"):
            assert not x.numpy().any(), name
        elif x.ndim == 2:
            is_less = kind == "gpt2" and name.endswith(("W_o.weight", "w_2.weight"))
            assert 0.8 < x.std().item() / (0.25 if is_less else 0.5) < 1.2, name
        else:
            assert (x.numpy() == 1).all(), name
