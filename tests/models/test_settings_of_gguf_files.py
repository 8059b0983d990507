"""Settings of GGUF files: their names, their ends, their scalings, and divisors of rotations."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from gguf_writer import llama_settings
from test_settings_of_language_models import LLAMA3

from tinyattn.models import causal_files

OF_LLAMA = {
    "embedding_length": ("hidden_size", 24),
    "block_count": ("num_hidden_layers", 3),
    "attention.head_count": ("num_attention_heads", 6),
    "attention.head_count_kv": ("num_key_value_heads", 2),
    "feed_forward_length": ("intermediate_size", 40),
    "context_length": ("max_position_embeddings", 50),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", 0.125),
    "rope.freq_base": ("rope_theta", 7.0),
    "vocab_size": ("vocab_size", 33),
}
WIDTHS = ("rope.dimension_count", "attention.key_length", "attention.value_length")


def header(kind="llama", **more):
    settings = {f"{kind}.{name}": value for name, (_, value) in OF_LLAMA.items()}
    return {"general.architecture": kind} | settings | more


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("is_tied", [True, False])
def test_every_setting_of_a_gguf_file_has_its_place_in_the_config(kind, is_tied):
    notes = {"general.name": "a", "general.file_type": 3, "other.block_count": 9}
    notes |= {"tokenizer.ggml.tokens": ["a"] * 5, "quantize.imatrix.file": "b"}
    config = causal_files.gguf_config(header(kind) | notes, is_tied)
    right = dict(OF_LLAMA.values())
    right |= {"model_type": kind, "tie_word_embeddings": is_tied, "eos_token_id": []}
    right |= {"head_dim": 128 if kind == "qwen3" else 4, "hidden_act": "silu"}
    assert right.items() <= config.items()
    assert "rope_scaling" not in config
    assert "bos_token_id" not in config
    del notes["tokenizer.ggml.tokens"]
    for name in OF_LLAMA:
        less = {key: x for key, x in (header(kind) | notes).items() if key != f"{kind}.{name}"}
        theirs = {"feed_forward_length": 96, "attention.head_count_kv": 6, "rope.freq_base": 1e4,
                  "attention.layer_norm_rms_epsilon": 1e-6}  # fmt: skip
        if name in theirs:
            assert causal_files.gguf_config(less, is_tied)[OF_LLAMA[name][0]] == theirs[name]
        else:
            with pytest.raises(ValueError, match=f"^{OF_LLAMA[name][0]} must be an integer >= 1"):
                causal_files.gguf_config(less, is_tied)


def test_a_gguf_file_that_does_not_say_how_many_words_it_has_is_counted():
    settings = header(**{"tokenizer.ggml.tokens": ["a"] * 21})
    assert causal_files.gguf_config(settings, True)["vocab_size"] == 33
    del settings["llama.vocab_size"]
    assert causal_files.gguf_config(settings, True)["vocab_size"] == 21


@pytest.mark.parametrize("names", [x for n in (1, 2, 3) for x in itertools.combinations(WIDTHS, n)])
def test_each_name_of_the_width_of_heads_counts_and_all_say_the_same(names):
    given = {f"llama.{name}": 8 for name in names}
    assert causal_files.gguf_config(header(**given), True)["head_dim"] == 8
    for name in names[1:]:
        for value in (6, 10):
            with pytest.raises(ValueError, match="another setting says") as caught:
                causal_files.gguf_config(header(**given | {f"llama.{name}": value}), True)
            key = f"llama.{name}"
            if name == names[1] and len(names) == 3:
                assert str(caught.value) == f"{key} is {value}, and another setting says 8"


def test_a_setting_of_a_gguf_file_that_is_unknown_is_refused():
    names = ("expert_count", "rope.scaling.strange", "attention.sliding_window", "", "strange_size")
    for name in (*names, "rope.vocab_size", "general.name"):
        for value in (0, 2.0, "a"):
            with pytest.raises(ValueError, match="is unknown here") as caught:
                causal_files.gguf_config(header(**{f"llama.{name}": value}), True)
            said = f"the setting llama.{name} is unknown here, with the value {value!r}"
            assert str(caught.value) == said


@pytest.mark.parametrize("kind", [None, "gpt2", "mistral", "smollm3", "LLAMA", 3])
def test_other_architectures_of_gguf_files_are_named(kind):
    said = r'^general\.architecture must be "llama", "qwen2" or "qwen3", got '
    with pytest.raises(ValueError, match=said) as caught:
        causal_files.gguf_config(header() | {"general.architecture": kind}, True)
    assert str(caught.value).endswith(f"got {kind!r}")


NAMES = ("eos", "eot", "eom")


@pytest.mark.parametrize("said", [x for n in range(4) for x in itertools.combinations(NAMES, n)])
def test_every_end_that_a_gguf_file_names_ends_a_text(said):
    """Ids begin with 0, whichever of them it is."""
    for ids in itertools.permutations((0, 5, 7), len(said)):
        given = dict(zip(said, ids, strict=True)) | {"bos": 0, "padding": 9, "unknown": 8}
        settings = header(**{f"tokenizer.ggml.{name}_token_id": i for name, i in given.items()})
        config = causal_files.gguf_config(settings, True)
        assert config["eos_token_id"] == list(ids)
        assert config["bos_token_id"] == 0


SCALINGS = [
    ({"type": "none"}, None),
    ({"factor": 2.0}, None),
    ({"type": "none", "factor": 2.0}, None),
    ({"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 2.0}),
    (
        {"type": "yarn", "factor": 4.0, "original_context_length": 16, "attn_factor": 0.5},
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "attention_factor": 0.5,
        },
    ),
]


@pytest.mark.parametrize(("given", "right"), SCALINGS)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_the_scaling_of_a_gguf_file_has_the_names_of_configs(kind, given, right):
    settings = header(kind, **{f"{kind}.rope.scaling.{name}": x for name, x in given.items()})
    assert causal_files.gguf_config(settings, True).get("rope_scaling") == right


RATES = 5e5 ** (-np.arange(0, 16, 2) / 16)
PART = np.clip((8192 * RATES / (2 * np.pi) - 1) / (4 - 1), 0, 1)
DIVISORS = 1 / (PART + (1 - PART) / 32)  # of Llama 3.1, for heads of a width of 16


def with_divisors(divisors, **scaling):
    """The scaling in the config of a GGUF file with such divisors."""
    sizes = {"rope.dimension_count": 16, "rope.freq_base": 5e5}
    sizes |= {f"rope.scaling.{name}": x for name, x in scaling.items()}
    settings = header(**{f"llama.{name}": x for name, x in sizes.items()})
    return causal_files.gguf_config(settings, True, np.float32(divisors))["rope_scaling"]


@pytest.mark.parametrize("at", range(8))
def test_each_divisor_of_a_rotation_is_that_of_llama_3(at):
    """Fast rotations and slow ones alike, within what float32 rounds."""
    for factor, is_right in ((1.0, True), (1 + 1e-6, True), (1.001, False), (0.999, False)):
        divisors = DIVISORS.copy()
        divisors[at] *= factor
        if is_right:
            found = with_divisors(divisors)
            assert found.pop("factor") == pytest.approx(32, rel=1e-5)
            assert found | {"factor": 32.0} == LLAMA3
            continue
        with pytest.raises(ValueError, match=r"^rope_freqs\.weight is another scaling than ") as e:
            with_divisors(divisors)
        said = LLAMA3 | {"factor": float(np.float32(divisors).max())}
        order = ("rope_type", "low_freq_factor", "high_freq_factor")
        order += ("original_max_position_embeddings", "factor")
        assert str(e.value).endswith(f" than { {name: said[name] for name in order} }")


@pytest.mark.parametrize("count", [1, 4, 7, 9, 16])
def test_there_is_a_divisor_for_each_rotation(count):
    for divisors in (np.resize(DIVISORS, count), np.resize(DIVISORS, (2, 8)), np.ones(count)):
        with pytest.raises(ValueError, match=r"^rope_freqs\.weight is another scaling than "):
            with_divisors(divisors)


def test_divisors_beside_a_scaling_that_a_gguf_file_says_are_those_of_that_scaling():
    linear = {"rope_type": "linear", "factor": 2.0}
    assert with_divisors(np.full(8, 2.0), type="linear", factor=2.0) == linear
    for divisors in (DIVISORS, np.full(8, 4.0), np.ones(8)):
        said = rf"^rope_freqs\.weight is another scaling than {re.escape(str(linear))}$"
        with pytest.raises(ValueError, match=said):
            with_divisors(divisors, type="linear", factor=2.0)
    assert with_divisors(DIVISORS, type="none") == LLAMA3


@pytest.mark.parametrize("ids", [None, 0, 1, 2, 259, 260, -1])
def test_words_of_special_ids_are_found_by_their_ids(ids):
    for name, other in (("bos_token", "eos_token"), ("eos_token", "bos_token")):
        settings = llama_settings(**{"tokenizer.ggml.eos_token_id": None})
        words = dict(enumerate(settings["tokenizer.ggml.tokens"]))
        settings |= {} if ids is None else {f"tokenizer.ggml.{name}_id": ids}
        found = causal_files.gguf_words(settings)
        assert found == {name: words.get(ids), other: None}
