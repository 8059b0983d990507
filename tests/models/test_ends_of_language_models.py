"""Language models at the ends of what they take: settings, tokenizers, templates, and chats."""

from __future__ import annotations

import copy
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from gguf_writer import write_llama
from test_causal import CONFIGS, LLAMA, ids_of, kinds, needs_jinja, needs_tokenizers, random_model

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError, DtypeError, MaskError, ShapeError
from tinyattn.generation import generate
from tinyattn.models import CausalLM, causal_files
from tinyattn.models.chat import chat_prompt
from tinyattn.models.tokenizer_files import OPTIONS

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
@pytest.mark.parametrize("option", [*OPTIONS, "special"])
@pytest.mark.parametrize("said", [True, False, None, ...])
def test_each_option_of_an_added_token_is_as_it_is_said_and_else_off(option, said, tmp_path):
    """But a special word is special whatever is said of it."""
    from tokenizers import Tokenizer, models

    data = Tokenizer(models.BPE({"a": 0}, [])).to_str().encode()
    more = {} if said is ... else {option: said}
    token = {"content": "<x>"} | more
    for settings in ({"added_tokens_decoder": {"1": token}}, {"eos_token": token}):
        tokenizer = causal_files.folder_tokenizer(tmp_path, data, settings)
        (found,) = tokenizer.get_added_tokens_decoder().values()
        right = dict.fromkeys((*OPTIONS, "special"), False) | {option: bool(more.get(option))}
        right["special"] |= "eos_token" in settings
        assert {name: getattr(found, name) for name in right} == right
        assert found.content == "<x>"


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


# What a refusal leaves as it was


def contents_of(model):
    """All that a call which is refused may not change."""
    modules = {name: (type(x).__name__, x.training) for name, x in model.named_modules()}
    parameters = {
        name: (x.dtype, x.requires_grad, x.numpy().tobytes())
        for name, x in model.named_parameters()
    }
    return modules, parameters, model.state_dict().keys(), model.is_quantized


class Own(nn.Linear):
    """A Linear that computes in its own way."""

    def forward(self, x):
        return super().forward(x)


def spoil(model, wrong):
    """Put into a model what `quantize` refuses."""
    layer = model.encoder.layers[1]
    if wrong == "LoRA":
        nn.LoRA.insert(model, ["w_2"], rank=2)
    elif wrong == "own forward":
        layer.self_attn.W_o = Own(*layer.self_attn.W_o.weight.shape[::-1])
    elif wrong == "NaN in a layer":
        layer.feed_forward.w_2.weight.data = layer.feed_forward.w_2.weight * math.nan
    elif wrong == "NaN in the words":
        model.word.weight.data = model.word.weight * math.nan
    elif wrong == "float16":
        model.half()


WRONG = {
    "LoRA": (RuntimeError, "a model with a LoRA is not quantized: quantize it before LoRA.insert"),
    "own forward": (TypeError, "encoder.layers.1.self_attn.W_o: Own has a forward() of its own"),
    "NaN in a layer": (ValueError, "encoder.layers.1.feed_forward.w_2: a weight with numbers that"),
    "NaN in the words": (ValueError, "a weight with numbers that are not finite has no int8"),
    "float16": (DtypeError, ""),
}


@kinds
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_model_that_is_not_quantized_stays_as_it_was(wrong, is_tied, kind):
    model = CausalLM(CONFIGS[kind] | {"tie_word_embeddings": is_tied}).train()
    spoil(model, wrong)
    before, (error, said) = contents_of(model), WRONG[wrong]
    if wrong == "NaN in the words" and not is_tied:
        model.quantize()  # the table of words stays as it is
        return
    with pytest.raises(error, match=f"^{re.escape(said)}"):
        model.quantize()
    assert contents_of(model) == before
    assert (model.head is None) == is_tied


# Masks, windows and positions


@kinds
@pytest.mark.parametrize(
    "shape", [(1, 5), (2, 5), (4, 5), (3, 1), (3, 4), (3, 6), (1, 3, 5), (3, 5, 1), (3, 0)]
)
def test_a_mask_has_a_row_for_each_text_and_a_column_for_each_id(shape, kind):
    model, mask = random_model(kind), np.ones(shape, bool)
    said = rf"^the mask is \(3, 5\) here, got shape {re.escape(str(shape))}"
    with pytest.raises(MaskError, match=said):
        model(ids_of(3, 5), mask)
    cache = model.new_cache()
    model(ids_of(3, 4), np.ones((3, 4), bool), cache)
    with pytest.raises(MaskError, match=said):
        model(ids_of(3, 1), mask, cache)
    assert cache.length == 4


class Signs:
    """A tokenizer without a package: the id of a sign is its number after "!"."""

    def get_vocab_size(self):
        return 40

    def encode(self, text):
        return SimpleNamespace(ids=[ord(sign) - 33 for sign in text])

    def decode(self, ids):
        return "".join(chr(33 + i) for i in ids)


WINDOW = {"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 0}


@kinds
@pytest.mark.parametrize("length", [1, 3, 4, 31])
def test_a_text_ends_with_the_positions_whatever_the_window(length, kind):
    model = CausalLM(CONFIGS[kind] | ({} if kind == "gpt2" else WINDOW)).eval()
    model.tokenizer = Signs()
    prompt = model.tokenizer.decode(ids_of(length))
    with ta.no_grad():
        whole = generate(
            lambda x: model(x)[:, -1], [model.tokenizer.encode(prompt).ids], 32, pad=-1
        )
        whole = model.tokenizer.decode(whole[0].tolist())[length:]
        for most in (2, 256):
            assert "".join(model.generate_text(prompt, most)) == whole[:most]


@kinds
@pytest.mark.parametrize("length", [0, 32, 33, 100])
def test_a_prompt_that_is_empty_or_leaves_no_position_is_refused(length, kind):
    model = CausalLM(CONFIGS[kind] | ({} if kind == "gpt2" else WINDOW))
    model.tokenizer = Signs()
    said = "a prompt has one id at least, and leaves one of the model's 32 positions free, got "
    with pytest.raises(ShapeError, match=f"^{said}{length} ids$"):
        model.generate_text("a" * length)


# Starting values, and names in a file


@pytest.mark.parametrize("layers", [1, 2, 3, 8])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_what_is_added_to_the_residual_stream_of_gpt2_starts_smaller_the_more_there_is(
    kind, layers
):
    ta.manual_seed(3)
    sizes = ("n_embd", "n_layer") if kind == "gpt2" else ("hidden_size", "num_hidden_layers")
    config = CONFIGS[kind] | dict(zip(sizes, (64, layers), strict=True))
    found = {}
    for name, x in CausalLM(config | {"initializer_range": 0.5}).named_parameters():
        if x.ndim == 2:
            found.setdefault(name.split(".")[-2], []).append(x.numpy().ravel())
    for name, parts in found.items():
        is_residual = kind == "gpt2" and name in ("W_o", "w_2")
        expected = 0.5 / math.sqrt(2 * layers) if is_residual else 0.5
        assert np.concatenate(parts).std() == pytest.approx(expected, rel=0.07), name


def published_shapes(kind, is_tied):
    """The names of transformers, and the shapes of its matrices."""
    shapes = {} if is_tied else {"lm_head.weight": (40, 16)}
    if kind == "gpt2":
        shapes |= {"transformer.wte.weight": (40, 16), "transformer.wpe.weight": (32, 16)}
        parts = {"ln_1": (16,), "attn.c_attn": (16, 48), "attn.c_proj": (16, 16), "ln_2": (16,),
                 "mlp.c_fc": (16, 64), "mlp.c_proj": (64, 16)}  # fmt: skip
        parts = {f"h.{i}.{name}": shape for i in range(2) for name, shape in parts.items()}
        for name, shape in (parts | {"ln_f": (16,)}).items():
            ends = {"weight": shape, "bias": shape[-1:]}
            shapes |= {f"transformer.{name}.{end}": x for end, x in ends.items()}
        return shapes
    shapes |= {"model.embed_tokens.weight": (40, 16), "model.norm.weight": (16,)}
    width = {"mistral": 6, "qwen3": 8}.get(kind, 4)
    matrices = {
        "self_attn.q_proj": (4 * width, 16), "self_attn.k_proj": (2 * width, 16),
        "self_attn.v_proj": (2 * width, 16), "self_attn.o_proj": (16, 4 * width),
        "mlp.gate_proj": (24, 16), "mlp.up_proj": (24, 16), "mlp.down_proj": (16, 24),
    }  # fmt: skip
    biased = {"qwen2": [*matrices][:3], "qwen3": [*matrices][:4], "smollm3": [*matrices][4:]}
    norms = {"input_layernorm": (16,), "post_attention_layernorm": (16,)}
    norms |= {f"self_attn.{x}_norm": (width,) for x in "qk"} if kind == "qwen3" else {}
    for i in range(2):
        weights = (matrices | norms).items()
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in weights}
        shapes |= {f"model.layers.{i}.{x}.bias": matrices[x][:1] for x in biased.get(kind, ())}
    return shapes


@kinds
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_file_has_the_names_and_the_shapes_of_transformers(is_tied, kind, tmp_path):
    model = CausalLM(CONFIGS[kind] | {"tie_word_embeddings": is_tied})
    model.save_pretrained(tmp_path)
    state = ta.load(tmp_path / "model.safetensors")
    assert {name: x.shape for name, x in state.items()} == published_shapes(kind, is_tied)
    assert {x.dtype.name for x in state.values()} == {"float32"}


# Tokenizers


@needs_tokenizers
def test_tokens_that_are_added_to_a_tokenizer_need_ids_of_the_model_too():
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.BPE({sign: i for i, sign in enumerate("abc")}, []))
    for more, words in (([], 3), (["<x>"], 4), (["a", "<x>"], 4), (["<y>", "<z>"], 6)):
        tokenizer.add_special_tokens(more) if "<y>" in more else tokenizer.add_tokens(more)
        for ids in (words, words + 1):
            model = CausalLM(LLAMA | {"vocab_size": ids})
            model.tokenizer = tokenizer
            assert model.tokenizer is tokenizer
        small = CausalLM(LLAMA | {"vocab_size": words - 1})
        said = f"^the tokenizer has {words} words, and this model {words - 1}$"
        with pytest.raises(ValueError, match=said):
            small.tokenizer = tokenizer
        with pytest.raises(ValueError, match="this model has no tokenizer"):
            _ = small.tokenizer


@needs_tokenizers
@pytest.mark.parametrize("template", [None, "", "{{ bos_token }}é"])
@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"model_max_length": None, "padding_side": "left"},
        {"model_max_length": 0, "padding_side": "", "truncation_side": None},
    ],
    ids=len,
)
@pytest.mark.parametrize(
    "words", [{}, {"bos_token": None, "eos_token": "Ġa"}, {"pad_token": "é"}], ids=len
)
def test_the_settings_of_a_tokenizer_are_written_as_they_are(words, kept, template, tmp_path):
    """Nothing, zero and empty texts too: they are what was said, and not what was left out."""
    model = tokenized_model()
    model.special_words, model.kept_settings, model.chat_template = words, kept, template
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "tokenizer_config.json").read_text("utf-8"))
    own = {} if template is None else {"chat_template": template}
    assert written == {"tokenizer_class": "PreTrainedTokenizerFast"} | words | kept | own
    again = CausalLM.from_pretrained(tmp_path)
    assert (again.chat_template, again.kept_settings) == (template, kept)
    assert again.special_words == {name: x for name, x in words.items() if x is not None}


@needs_tokenizers
@pytest.mark.parametrize("template", [None, "", "new"])
@pytest.mark.parametrize("old", ["chat_template.jinja", "special_tokens_map.json", "both", "none"])
def test_settings_of_another_model_leave_its_folder(old, template, tmp_path):
    """A file that comes before the settings that are written."""
    names = ("chat_template.jinja", "special_tokens_map.json")
    for name in names if old == "both" else (old,):
        (tmp_path / name).write_text('{"eos_token": "b"}')
    model = tokenized_model()
    model.chat_template, model.special_words = template, {"bos_token": "Ġa"}
    model.save_pretrained(tmp_path)
    assert not any((tmp_path / name).exists() for name in names)
    again = CausalLM.from_pretrained(tmp_path)
    assert (again.chat_template, again.special_words) == (template, {"bos_token": "Ġa"})


@pytest.mark.parametrize("own", [[3], [3, 5], [5, 3], [], [3, 5, 7], [7]])
@pytest.mark.parametrize("theirs", [3, [3, 5], [5, 3], [9], [3, 9]])
def test_the_settings_of_generation_stay_where_they_say_the_same_ends(theirs, own, tmp_path):
    """Whatever their order; with other ends texts would end elsewhere."""
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": theirs}))
    model = CausalLM(LLAMA | {"eos_token_id": own})
    model.save_pretrained(tmp_path)
    assert path.exists() == ({*np.ravel(theirs)} <= {*own})
    assert {*CausalLM.from_pretrained(tmp_path).end_ids} == {*own}


@needs_tokenizers
@pytest.mark.parametrize(
    ("theirs", "stays"), [([1, 3], True), ([1], True), (1, True), ([3], False), ([1, 5], False)]
)
def test_the_word_of_a_tokenizer_is_one_of_the_ends_that_they_say(theirs, stays, tmp_path):
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": theirs}))
    model = tokenized_model()
    model.config["eos_token_id"], model.special_words = 3, {"eos_token": "Ġa"}
    assert model.end_ids == [3, 1]
    model.save_pretrained(tmp_path)
    assert path.exists() == stays
    assert {*CausalLM.from_pretrained(tmp_path).end_ids} == {1, 3}


@pytest.mark.parametrize("wrong", ['{"eos_token_id": "x"}', "{", "[]"])
def test_nothing_is_written_beside_settings_of_generation_that_are_damaged(wrong, tmp_path):
    (tmp_path / "generation_config.json").write_text(wrong)
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        CausalLM(LLAMA).save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["generation_config.json"]


@needs_tokenizers
@needs_jinja
def test_a_file_without_a_template_has_no_chats(tmp_path):
    """Of an empty one a prompt without words would come."""
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=None))
    assert model.chat_template is None
    for call in (model.chat, lambda: model.chat_prompt([])):
        with pytest.raises(ValueError, match=r"^this model has no template of a chat: write the"):
            call()


@needs_tokenizers
def test_a_tokenizer_of_ones_own_takes_the_place_of_the_one_before():
    model = tokenized_model()
    for used in (False, True):
        first, second = (tokenized_model().tokenizer for _ in range(2))
        model.tokenizer = first
        if used:
            assert model.tokenizer is first
        model.tokenizer = second
        assert model.tokenizer is second
        assert copy.deepcopy(model).tokenizer.get_vocab() == second.get_vocab()


def tokenized_model():
    """A small model with a tokenizer of three words."""
    from tokenizers import Tokenizer, models

    model = CausalLM(LLAMA)
    model.tokenizer = Tokenizer(models.BPE({"b": 0, "Ġa": 1, "é": 2}, []))
    return model
