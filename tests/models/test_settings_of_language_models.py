"""Settings of language models: each that says 0 or nothing, widths of heads, ends, GGUF's names."""

from __future__ import annotations

import copy
import itertools
import json
import re

import numpy as np
import pytest
from gguf_writer import llama_settings, write_llama
from test_causal import CONFIGS, LLAMA, ids_of, needs_tokenizers, random_model

import tinyattn as ta
from tinyattn.errors import CheckpointError
from tinyattn.models import CausalLM, causal_files

KINDS = [kind for kind in CONFIGS if kind != "gpt2"]

# Zero and nothing

EMPTY = (0, 0.0, False, "", [], {})
# What may be said so; a setting that is not here is refused with each of them.
FALSE, ZERO, NONE = "False", "0 0.0", "[]"
ALLOWED = {
    **dict.fromkeys(("attention_bias", "mlp_bias", "tie_word_embeddings"), FALSE),
    "use_sliding_window": FALSE,
    **dict.fromkeys((*causal_files.DROPOUTS, "initializer_range"), ZERO),
    "max_window_layers": "0",
    "eos_token_id": "0 []",
    **dict.fromkeys(("layer_types", "no_rope_layers"), NONE),
    **dict.fromkeys(("rope_parameters", "rope_scaling"), "{}"),
}
NOTES = causal_files.NOTES.split()
READ = [name for name in causal_files.KNOWN if name not in NOTES and name != "pad_token_id"]
READ += ["tie_word_embeddings", "initializer_range", "eos_token_id"]


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("kind", KINDS)
def test_zero_and_nothing_are_kept_or_refused_but_never_as_if_not_said(kind, name):
    for value in EMPTY:
        if repr(value) in ALLOWED.get(name, "").split():
            found = causal_files.checked_config(CONFIGS[kind] | {name: value})
            if name in ("rope_parameters", "rope_scaling"):  # which become rope_theta
                assert name not in found
            else:
                assert repr(found[name]) == repr(value)
        else:
            with pytest.raises(ValueError, match=name):
                causal_files.checked_config(CONFIGS[kind] | {name: value})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [{}, {"use_sliding_window": True}, {"use_sliding_window": False}])
def test_a_window_has_one_key_at_least_also_where_no_layer_has_it(kind, more):
    for wrong in EMPTY:
        with pytest.raises(ValueError, match=r"^sliding_window must be an integer >= 1, got "):
            causal_files.checked_config(CONFIGS[kind] | more | {"sliding_window": wrong})
    config = causal_files.checked_config(CONFIGS[kind] | more | {"sliding_window": 1})
    assert config["sliding_window"] == 1


# Heads


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [12, 10, 7])
def test_heads_with_a_width_of_their_own_need_not_fit_the_width_of_the_model(kind, width):
    """num_key_value_heads divide the heads, and neither of them the width."""
    for heads, shared, own in itertools.product((1, 4, 6), (1, 2, 3, 4, 5, 6), (2, 6)):
        sizes = {"hidden_size": width, "num_attention_heads": heads, "head_dim": own}
        config = CONFIGS[kind] | sizes | {"num_key_value_heads": shared}
        if heads % shared:
            said = rf"^num_key_value_heads {shared} must divide {heads}$"
            with pytest.raises(ValueError, match=said):
                causal_files.checked_config(config)
            continue
        config = causal_files.checked_config(config)
        assert (config["head_dim"], config["num_key_value_heads"]) == (own, shared)
    model = CausalLM(config | {"num_key_value_heads": 3})
    attention = model.encoder.layers[0].self_attn
    assert attention.W_q.weight.shape == (36, width)
    assert attention.W_k.weight.shape == attention.W_v.weight.shape == (18, width)
    assert attention.W_o.weight.shape == (width, 36)
    assert np.isfinite(model(ids_of(1, 4)).numpy()).all()


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "qwen3"])
def test_heads_without_a_width_of_their_own_divide_the_width_of_the_model(kind):
    names = {"heads": "n_head", "width": "n_embd"} if kind == "gpt2" else {}
    heads, width = names.get("heads", "num_attention_heads"), names.get("width", "hidden_size")
    base = {name: x for name, x in CONFIGS[kind].items() if name != "head_dim"}
    for number in (1, 2, 4, 8):
        config = base | {width: 16, heads: number}
        if kind != "gpt2":
            config["num_key_value_heads"] = 1
        assert causal_files.checked_config(config)["head_dim"] == 16 // number
    with pytest.raises(ValueError, match="the width 16 cannot be split into 3 heads"):
        causal_files.checked_config(base | {width: 16, heads: 3})


# Rotation


@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("plain", [{}, {"rope_type": "default"}, {"type": "default"}], ids=str)
def test_a_plain_rotation_has_no_numbers_of_a_scaling(name, plain):
    for key in ("factor", "low_freq_factor", "original_max_position_embeddings", "strange"):
        with pytest.raises(ValueError, match=f"^the setting '{key}' is unknown here, with the val"):
            causal_files.checked_config(LLAMA | {name: plain | {key: 2.0}})
    given = plain | {"partial_rotary_factor": 1, "rope_theta": 7.0}
    config = causal_files.checked_config(LLAMA | {name: given})
    assert config["rope_theta"] == 7.0
    assert "rope_scaling" not in config
    for wrong in (0, 0.5, 2, True):
        said = f"^partial_rotary_factor must be 1 here, got {wrong}"
        with pytest.raises(ValueError, match=said):
            causal_files.checked_config(LLAMA | {name: plain | {"partial_rotary_factor": wrong}})


LINEAR = {"rope_type": "linear", "factor": 2.0}
ROTATIONS = [
    None,
    {},
    {"rope_theta": 7.0},
    {"rope_type": "default"},
    {"rope_type": "default", "rope_theta": 8.0},
    LINEAR,
    LINEAR | {"rope_theta": 9.0},
    {"type": "linear", "factor": 4.0},
]


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_rotations_rope_scaling_counts_alone_and_says_what_it_leaves_out(kind):
    """It is empty, and then the other counts. What it does not say is not taken from the other."""
    base = {name: x for name, x in CONFIGS[kind].items() if not name.startswith("rope_")}
    for first, second in itertools.product(ROTATIONS, repeat=2):
        both = {"rope_scaling": first, "rope_parameters": second}
        for theta in ({}, {"rope_theta": 50.0}):
            said = copy.deepcopy(both)
            found = causal_files.checked_config(base | theta | said)
            winner = {**(first or second or {})}
            usual = theta.get("rope_theta", 2e6 if kind == "smollm3" else 1e4)
            assert found["rope_theta"] == winner.pop("rope_theta", usual)
            scaling = winner if "linear" in winner.values() else None
            assert found.get("rope_scaling") == scaling
            assert "rope_parameters" not in found
            assert said == both  # what the caller gave


# Ends

ENDS = [
    (None, []),
    ([], []),
    (0, [0]),
    ([0], [0]),
    (3, [3]),
    ([0, 3], [0, 3]),
    ([3, 0], [3, 0]),
    ([2, 1, 0], [2, 1, 0]),
]


@pytest.mark.parametrize(("said", "ends"), ENDS)
def test_the_ids_that_end_a_text_are_those_that_are_said(said, ends, tmp_path):
    for config in CONFIGS.values():
        model = CausalLM(config | {"eos_token_id": said})
        assert model.end_ids == ends
    model.save_pretrained(tmp_path)
    assert CausalLM.from_pretrained(tmp_path).end_ids == ends


@pytest.mark.parametrize(("said", "ends"), ENDS)
def test_the_ids_of_the_settings_of_generation_end_a_text_too(said, ends, tmp_path):
    """They come first. A folder without that file, or without ids in it, is as its config says."""
    config = LLAMA | {"eos_token_id": said}
    assert causal_files.with_end_ids(config, tmp_path) == config
    for more, first in ((None, []), ([], []), (0, [0]), ([0, 5], [0, 5]), ([5, 5], [5])):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": more}))
        found = causal_files.with_end_ids(config, tmp_path)
        assert causal_files.stops_of(found) == [*first, *(i for i in ends if i not in first)]
        assert config == LLAMA | {"eos_token_id": said}


@pytest.mark.parametrize("wrong", [0.0, True, False, "0", [None], [0, "1"], [0, 1.0], {}, [[0]]])
def test_what_is_no_id_ends_no_text(wrong, tmp_path):
    with pytest.raises(ValueError, match=r"^eos_token_id must be a token id, got "):
        causal_files.checked_config(LLAMA | {"eos_token_id": wrong})
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": wrong}))
    said = r"generation_config\.json: eos_token_id must be a token id, got "
    with pytest.raises(CheckpointError, match=said):
        causal_files.with_end_ids(LLAMA, tmp_path)


@needs_tokenizers
@pytest.mark.parametrize("ends", [[0], [2], [0, 2], [259, 0]])
def test_each_of_the_ends_ends_a_text(ends, tmp_path, monkeypatch):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    model.special_words, model.config["eos_token_id"] = {}, ends if len(ends) > 1 else ends[0]
    for end in ends:
        queue = iter([*model.tokenizer.encode("xyz").ids, end])
        monkeypatch.setattr(
            "tinyattn.models.causal.generate",
            lambda scores, ids, *more, queue=queue, **options: ta.tensor([[*ids[0], next(queue)]]),
        )
        assert "".join(model.generate_text("a")) == "xyz"


# Names in GGUF files

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
        with pytest.raises(ValueError, match="another setting says") as caught:
            causal_files.gguf_config(header(**given | {f"llama.{name}": 6}), True)
        key, value, other = f"llama.{name}", 6, 8
        if name == names[1] and len(names) == 3:
            assert str(caught.value) == f"{key} is {value}, and another setting says {other}"


def test_a_setting_of_a_gguf_file_that_is_unknown_is_refused():
    for name in ("expert_count", "rope.scaling.strange", "attention.sliding_window", ""):
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
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip


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


# Names in folders

IN_GPT2 = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function",
    "attention_dropout": "attn_pdrop",
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_is_written_under_the_names_of_its_family(kind, tmp_path):
    model = random_model(kind)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    names = IN_GPT2 if kind == "gpt2" else {}
    for name, value in model.config.items():
        assert saved[names.get(name, name)] == value
    assert set(names).isdisjoint(saved)
    if kind != "gpt2":
        assert set(IN_GPT2.values()).isdisjoint(saved)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"added_tokens_decoder": []}, "added_tokens_decoder must be an object, got "),
        ({"added_tokens_decoder": {"3": "a"}}, "token 3 must be an object, got 'a'"),
        ({"added_tokens_decoder": {"3": {}}}, "the content of a token must be a string, got None"),
        ({"mask_token": {"content": 3}}, "the content of a token must be a string, got 3"),
        ({"bos_token": 3}, "the content of a token must be a string, got 3"),
        ({"additional_special_tokens": "a"}, "additional_special_tokens must be a list, got 'a'"),
        ({"extra_special_tokens": [[]]}, "the content of a token must be a string, got "),
    ],
)
@needs_tokenizers
def test_what_is_no_token_of_the_settings_is_named(settings, said, tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    data = Tokenizer(BPE({"a": 0}, [])).to_str().encode()
    with pytest.raises(CheckpointError) as caught:
        causal_files.folder_tokenizer(tmp_path, data, settings)
    assert str(caught.value).startswith(f"{tmp_path / 'tokenizer_config.json'}: {said}")
