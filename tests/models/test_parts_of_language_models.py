"""Language models part by part: settings by layers, masks, caches, texts, and what is written."""

from __future__ import annotations

import importlib.util
import inspect
import json
import struct
import sys
from datetime import datetime

import numpy as np
import pytest
from common import assert_close, assert_equal
from gguf_writer import CHAT_TEMPLATE, gguf_bytes, llama_settings, write_llama
from test_causal import CONFIGS, LLAMA, ids_of, kinds, needs_jinja, needs_tokenizers, random_model

import tinyattn as ta
from tinyattn.errors import CheckpointError, MaskError, ShapeError
from tinyattn.generation import generate
from tinyattn.models import CausalLM, causal_files, gguf
from tinyattn.models.causal_files import turns_in, window_in
from tinyattn.models.chat import chat_prompt

HELLO = [{"role": "user", "content": "Hello"}]


def config_of(kind, **more):
    return CausalLM(CONFIGS[kind] | {"num_hidden_layers": 5} | more).config


# Settings


@pytest.mark.parametrize(
    ("more", "turns", "windows"),
    [
        ({}, [1, 1, 1, 0, 1], [None] * 5),
        ({"no_rope_layer_interval": 2}, [1, 0, 1, 0, 1], [None] * 5),
        ({"no_rope_layer_interval": 1}, [0] * 5, [None] * 5),
        (
            {"sliding_window": 3, "use_sliding_window": True},
            [1, 1, 1, 0, 1],
            [None, None, None, 3, None],
        ),
        ({"sliding_window": 3}, [1, 1, 1, 0, 1], [None] * 5),
        (
            {
                "sliding_window": 3,
                "use_sliding_window": True,
                "no_rope_layers": [0, 1, 1, 1, 0],
            },
            [0, 1, 1, 1, 0],
            [3, None, None, None, 3],
        ),
    ],
)
def test_layers_of_smollm3_that_do_not_turn_have_the_windows(more, turns, windows):
    config = config_of("smollm3", **{"no_rope_layers": []} | more)
    assert [turns_in(config, i) for i in range(5)] == [bool(x) for x in turns]
    assert [window_in(config, i) for i in range(5)] == windows


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_layers_of_other_families_turn_whatever_the_config_says_of_smollm3(kind):
    for more in ({}, {"no_rope_layers": [0] * 5}, {"no_rope_layer_interval": 1}):
        config = config_of(kind, **more)
        assert all(turns_in(config, i) for i in range(5))


@pytest.mark.parametrize(
    ("kind", "more", "windows"),
    [
        ("mistral", {"sliding_window": None}, [None] * 5),
        ("mistral", {"sliding_window": 4}, [4] * 5),
        ("mistral", {"sliding_window": 1}, [1] * 5),
        (
            "mistral",
            {"layer_types": [*["full_attention"] * 3, "sliding_attention", "full_attention"]},
            [None, None, None, 3, None],
        ),
        ("llama", {"sliding_window": 4, "use_sliding_window": True}, [None] * 5),
        ("qwen2", {"sliding_window": 4}, [None] * 5),
        ("qwen2", {"sliding_window": 4, "use_sliding_window": True}, [None] * 5),
        (
            "qwen2",
            {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 3},
            [None, None, None, 4, 4],
        ),
        (
            "qwen3",
            {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 0},
            [4] * 5,
        ),
        (
            "qwen2",
            {
                "sliding_window": 4,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", *["full_attention"] * 4],
            },
            [4, None, None, None, None],
        ),
    ],
)
def test_a_config_says_which_layers_have_a_window(kind, more, windows):
    config = config_of(kind, **more)
    assert [window_in(config, i) for i in range(5)] == windows
    assert [x.self_attn.window for x in CausalLM(config).encoder.layers] == windows


def test_twenty_eight_layers_have_no_window_where_a_config_does_not_say_it():
    config = config_of("qwen2", sliding_window=4, use_sliding_window=True, num_hidden_layers=29)
    assert [window_in(config, i) for i in (0, 27, 28)] == [None, None, 4]


def test_what_families_have_where_a_config_does_not_say_it():
    said = ("rms_norm_eps", "rope_theta", "model_type", "tie_word_embeddings", "hidden_act")
    said += ("num_key_value_heads", "intermediate_size")
    sizes = {name: x for name, x in LLAMA.items() if name not in said}
    common = {"rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": False,
              "initializer_range": 0.02, "attention_dropout": 0.0, "resid_pdrop": 0.0,
              "embd_pdrop": 0.0, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
              "num_key_value_heads": 4, "intermediate_size": 64, "head_dim": 4}  # fmt: skip
    own = {
        "llama": {"sliding_window": None},
        "mistral": {"sliding_window": 4096},
        "qwen2": {"sliding_window": None},
        "qwen3": {"head_dim": 128},
        "smollm3": {"rope_theta": 2e6, "no_rope_layer_interval": 4, "tie_word_embeddings": True},
    }
    for kind, more in own.items():
        config = CausalLM(sizes | {"model_type": kind}).config
        assert (common | more).items() <= config.items(), kind
        assert "rope_scaling" not in config
    gpt2 = {k: x for k, x in CONFIGS["gpt2"].items() if k.startswith(("n_", "vocab", "model"))}
    usual = {"hidden_act": "gelu_new", "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
             "intermediate_size": 64, "embd_pdrop": 0.0, "head_dim": 4}  # fmt: skip
    config = CausalLM(gpt2).config
    assert usual.items() <= config.items()
    assert "rope_theta" not in config


@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
def test_a_plain_rotation_is_its_base_alone(name):
    for plain in ({"rope_type": "default"}, {"type": "default"}, {}):
        config = CausalLM(LLAMA | {name: plain | {"rope_theta": 500.0}}).config
        assert config["rope_theta"] == 500.0
        assert "rope_scaling" not in config
        assert "rope_parameters" not in config
    linear = {"rope_type": "linear", "factor": 2.0}
    config = CausalLM(LLAMA | {name: linear | {"rope_theta": 500.0}}).config
    assert config["rope_theta"] == 500.0
    assert config["rope_scaling"] == linear
    assert "rope_parameters" not in config
    assert CausalLM(LLAMA | {name: linear}).config["rope_theta"] == LLAMA["rope_theta"]
    assert CausalLM(config).config == config  # a config that is checked is checked again


@kinds
def test_a_saved_config_says_also_which_ids_there_are_not(kind, tmp_path):
    model = random_model(kind)
    model.float().save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    none = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    assert none.items() <= saved.items()
    assert saved["torch_dtype"] == "float32"
    assert ("n_embd" in saved) == (kind == "gpt2")
    assert ("hidden_size" in saved) == (kind != "gpt2")
    again = CausalLM.from_pretrained(tmp_path)
    assert model.config.items() <= again.config.items()
    assert CausalLM(CONFIGS[kind] | {"pad_token_id": 3}).config["pad_token_id"] == 3


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path):
    """Editors of Windows write one."""
    random_model("llama").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    CausalLM.from_pretrained(tmp_path)


def test_folders_within_folders_are_made(tmp_path):
    model = random_model("llama")
    model.save_pretrained(tmp_path / "a" / "b")
    CausalLM.from_pretrained(tmp_path / "a" / "b")
    ta.nn.LoRA.insert(model, ["W_q"])
    model.save_adapter(tmp_path / "c" / "d")
    random_model("llama").load_adapter(tmp_path / "c" / "d")


def test_ends_of_two_files_end_a_text(tmp_path):
    model = random_model("llama")
    model.config["eos_token_id"] = 3
    model.save_pretrained(tmp_path)
    assert CausalLM.from_pretrained(tmp_path).end_ids == [3]
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 3]}')
    again = CausalLM.from_pretrained(tmp_path)
    assert sorted(again.end_ids) == [3, 5]
    again.save_pretrained(tmp_path)
    assert (tmp_path / "generation_config.json").exists()
    model.save_pretrained(tmp_path)  # whose texts end at other ids
    assert not (tmp_path / "generation_config.json").exists()
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id must be a"):
        CausalLM.from_pretrained(tmp_path)


# Calls


def test_wrong_calls_say_what_came():
    model = random_model("llama")
    with pytest.raises(ShapeError, match=r"^a CausalLM takes ids \(B, N\), got shape \(3,\)$"):
        model([1, 2, 3])
    with pytest.raises(ShapeError, match=r"^this model has 32 positions, and the ids have 33$"):
        model(ids_of(1, 33))
    model(ids_of(1, 32))
    with pytest.raises(MaskError, match=r"^the mask is \(2, 4\) here, got shape \(2, 3\)"):
        model(ids_of(2, 4), np.ones((2, 3), bool))
    with pytest.raises(ShapeError, match=r"^ids: not a rectangular array"):
        model.next_scores()([[1], [2, 3]])
    with pytest.raises(MaskError, match=r"^the mask of prompts is \(B, P\), with an id in each"):
        model.next_scores([[True], [False]])
    with pytest.raises(ValueError, match=r'^quantize takes "int8", got \'int4\''):
        model.quantize("int4")


@pytest.mark.parametrize(
    ("kind", "more", "is_refused"),
    [
        ("mistral", {}, True),
        (
            "qwen2",
            {"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 1},
            True,
        ),
        ("qwen2", {"sliding_window": 3, "use_sliding_window": True}, False),
        ("llama", {}, False),
    ],
)
def test_a_gap_within_one_of_several_texts_is_refused_where_a_layer_has_a_window(
    kind, more, is_refused
):
    model, ids = CausalLM(CONFIGS[kind] | more).double(), ids_of(3, 5)
    mask = np.ones((3, 5), bool)
    model(ids, mask)
    mask[0, :2] = False  # padding at the left is no gap
    model(ids, mask)
    mask[1, 2] = False
    if not is_refused:
        model(ids, mask)
        return
    with pytest.raises(MaskError, match=r"between two parts of sample 1 too"):
        model(ids, mask)


@pytest.mark.parametrize(
    ("gaps", "first"), [([0], 0), ([3], 3), ([2, 3], 2), ([1, 3], 1), ([0, 1, 2, 3], 0)]
)
def test_the_first_text_with_a_gap_is_named(gaps, first):
    mask = np.ones((4, 5), bool)
    mask[gaps, 2] = False
    mask[::2, 0] = mask[1::2, -1] = False  # padding at the ends, in texts with a gap and without
    with pytest.raises(MaskError, match=rf"between two parts of sample {first} too$"):
        random_model("mistral")(ids_of(4, 5), mask)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_scores_of_ids_that_change_behind_what_was_forgotten(kind):
    model, ids = random_model(kind), ids_of(2, 45)
    scores = model.next_scores()
    scores(ids[:, :40])  # of 32 positions the first 16 are forgotten
    for common in (30, 17, 16, 9, 39):
        others = np.concatenate([ids[:, :common], ids_of(2, 45 - common, seed=common)], 1)
        expected = model(others[:, 16:])[:, -1].numpy()
        assert_close(scores(others).numpy(), expected, 1e-10)


# Texts


@needs_tokenizers
def test_a_text_has_256_more_ids_by_default(tmp_path):
    sizes = {"llama.context_length": 600}
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE, **sizes))
    for function in (CausalLM.generate_text, CausalLM.continued):
        assert inspect.signature(function).parameters["max_new_tokens"].default == 256
    if importlib.util.find_spec("jinja2"):
        assert model.chat().options == {"max_new_tokens": 256}
        assert model.chat(max_new_tokens=3).options == {"max_new_tokens": 3}


@needs_tokenizers
@needs_jinja
def test_an_option_that_is_changed_between_questions_is_checked(tmp_path):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE))
    chat = model.chat()
    chat.options["max_new_tokens"] = 0
    with pytest.raises(ShapeError, match=r"^max_new_tokens must be an integer >= 1, got 0"):
        chat.ask("Hello")
    assert chat.messages == []


@needs_tokenizers
def test_wrong_options_of_a_text_are_refused(tmp_path):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    for stop in ([""], [3], ["a", ""], ["a", None], "a", 3, None, {"a": 1}):
        with pytest.raises(TypeError, match=r"^stop is a list of texts that are not empty, got "):
            model.generate_text("a", stop=stop)
    for stop in ([], (), ["a"], ("a",), {"a", "b"}):
        model.generate_text("a", stop=stop)
    with pytest.raises(ShapeError, match=r"^max_new_tokens must be an integer >= 1, got 0"):
        model.generate_text("a", 0)
    known = "^chat and generate_text take .* got an unexpected keyword argument 'top'"
    with pytest.raises(TypeError, match=known):
        model.generate_text("a", top=3)
    for name, wrong in (("temperature", -1), ("top_k", 0), ("top_p", 0.0)):
        with pytest.raises(ValueError, match=f"^{name} "):
            model.generate_text("a", **{"temperature": 1.0} | {name: wrong})


@needs_tokenizers
def test_the_last_letter_of_a_prompt_is_not_shown_again(tmp_path, monkeypatch):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    for prompt in ("X", "aXX", "é", "a "):
        queue = iter([*model.tokenizer.encode("One. XX").ids, 2])
        monkeypatch.setattr(
            "tinyattn.models.causal.generate",
            lambda scores, ids, *more, queue=queue, **options: ta.tensor([[*ids[0], next(queue)]]),
        )
        assert "".join(model.generate_text(prompt)) == "One. XX"


@needs_jinja
def test_a_template_may_ask_for_the_date():
    before = datetime.now().strftime("%Y-%m")
    found = chat_prompt("{{ strftime_now('%Y-%m') }}", HELLO)
    assert before <= found <= datetime.now().strftime("%Y-%m")


# GGUF


@needs_jinja
def test_the_words_of_a_template_are_those_of_the_file(tmp_path):
    template = "{{ bos_token }}|{{ eos_token }}"
    path, first = tmp_path / "m.gguf", {"tokenizer.ggml.bos_token_id": 1}
    model = CausalLM.from_gguf(write_llama(path, template=template, **first))
    assert model.special_words == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert model.chat_prompt(HELLO) == "<|im_start|>|<|im_end|>"
    model = CausalLM.from_gguf(write_llama(path, template=template))
    assert model.special_words == {"bos_token": None, "eos_token": "<|im_end|>"}
    assert model.chat_prompt(HELLO) == "|<|im_end|>"
    assert causal_files.gguf_words({}) == {"bos_token": None, "eos_token": None}


def test_tensors_that_a_file_misses_are_said_of_its_header(tmp_path):
    path = write_llama(tmp_path / "m.gguf", tensors={"output_norm.weight": None})
    said = r"m\.gguf: state does not fit header: missing output_norm\.weight, unexpected nothing"
    with pytest.raises(CheckpointError, match=said):
        CausalLM.from_gguf(path)


def test_a_file_is_read_without_the_package_of_other_types(tmp_path, monkeypatch):
    tensors = {x: (np.ones((2, 32)), x) for x in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")}
    (tmp_path / "m.gguf").write_bytes(gguf_bytes({}, tensors))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with gguf.opened(tmp_path / "m.gguf") as file:
        for name in tensors:
            assert np.allclose(file.array(name), 1, atol=0.1)
    (tmp_path / "m.gguf").write_bytes(gguf_bytes({}, {"x": (np.ones((1, 256)), 12)}))
    with pytest.raises(ImportError) as caught:
        gguf.opened(tmp_path / "m.gguf").__enter__()
    assert str(caught.value) == (
        "numbers of type 12 need the package gguf; F32, F16, BF16, Q8_0, Q4_0 and Q4_1 do not: "
        'in a clone of tinyattn, pip install -e ".[gguf]"'
    )


@pytest.mark.parametrize("texts", [1, 4])
def test_a_file_may_end_with_a_list_of_empty_texts(texts, tmp_path):
    content = gguf_bytes({"a" * (48 - 8 * texts): [""] * texts}, {})
    (tmp_path / "m.gguf").write_bytes(content)
    assert len(content) == 96
    with gguf.opened(tmp_path / "m.gguf") as file:
        assert list(file.settings.values()) == [[""] * texts]
        assert file.left == 0
    too_many = content.replace(struct.pack("<IQ", 8, texts), struct.pack("<IQ", 8, texts + 1))
    (tmp_path / "m.gguf").write_bytes(too_many)
    said = rf"it is cut short: {texts + 1} items do not fit in {8 * texts} bytes"
    with pytest.raises(CheckpointError, match=said):
        gguf.opened(tmp_path / "m.gguf").__enter__()


def test_a_file_that_is_cut_says_where(tmp_path):
    path, content = tmp_path / "m.gguf", gguf_bytes({}, {"x": (np.ones(16), "F32")})
    for cut, said in (
        (content[:-1], "it is cut short: its tensors end after it"),
        (content[:30], "it is cut short: 1 items do not fit in 6 bytes"),
        (content[:23], "it does not begin with GGUF"),
    ):
        path.write_bytes(cut)
        with pytest.raises(CheckpointError, match=f"m.gguf is damaged or no GGUF file: {said}$"):
            gguf.opened(path).__enter__()


def test_a_file_that_is_cut_while_it_is_read_is_refused(tmp_path):
    path, content = tmp_path / "m.gguf", gguf_bytes({}, {"x": (np.ones(2**18), "F32")})
    path.write_bytes(content)
    with gguf.opened(path) as file:
        path.write_bytes(content[:-4])
        with pytest.raises(ValueError, match=r"^it was cut short while it was read$"):
            file.array("x")


@needs_tokenizers
def test_words_and_their_types_are_as_many():
    settings = llama_settings(**{"tokenizer.ggml.token_type": [1] * 259})
    with pytest.raises(ValueError, match="shorter"):
        causal_files.gguf_tokenizer(settings)


@needs_tokenizers
def test_pieces_that_are_not_usual_are_not_joined():
    """As in llama.cpp: a piece of type 5 is not used."""
    pieces = ["<unk>", "<s>", "</s>", "a", "b", "c", "ab", "bc"]
    settings = {"tokens": pieces, "token_type": [2, 3, 3, 1, 1, 1, 5, 1], "model": "llama"}
    settings |= {"scores": [0.0] * 6 + [-1.0, -2.0], "add_space_prefix": False}
    tokenizer = causal_files.gguf_tokenizer(
        {f"tokenizer.ggml.{name}": x for name, x in settings.items()}
    )
    assert tokenizer.encode("abc").tokens == ["a", "bc"]
    assert tokenizer.encode("ab").tokens == ["a", "b"]


def test_one_random_number_is_drawn_for_each_text_and_step():
    def scores(ids):
        return ta.tensor([[0.5, 1.0, 0.0, -1.0]] * len(ids))

    ta.manual_seed(3)
    found = generate(scores, [[1], [2]], 6, pad=-1, temperature=1.0).tolist()
    ta.manual_seed(3)
    chances = ta.softmax(ta.tensor([[0.5, 1.0, 0.0, -1.0]] * 2).double(), dim=-1)
    steps = [chances.multinomial(1, replacement=True).numpy() for _ in range(5)]
    assert found == np.concatenate([[[1], [2]], *steps], 1).tolist()


def test_an_adapter_keeps_the_bits_of_its_corrections(tmp_path):
    model = random_model("llama")
    for lora in ta.nn.LoRA.insert(model, ["W_q"], rank=2):
        lora.B.data = lora.B.data + 0.25
    model.save_adapter(tmp_path)
    again, ids = random_model("llama"), ids_of(1, 4)
    again.load_adapter(tmp_path)
    assert_equal(again(ids).numpy(), model(ids).numpy())
