"""Settings of language models: each that says 0 or nothing, widths of heads, rotations, ends."""

from __future__ import annotations

import copy
import itertools
import json

import numpy as np
import pytest
from common import assert_same
from gguf_writer import write_llama
from test_causal import CONFIGS, LLAMA, ids_of, needs_tokenizers, random_model

import tinyattn as ta
from tinyattn.errors import CheckpointError
from tinyattn.models import CausalLM, causal_files
from tinyattn.models.bert import ACTIVATIONS

KINDS = [kind for kind in CONFIGS if kind != "gpt2"]

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


@pytest.mark.parametrize("name", [*ACTIVATIONS, "silu", "swish"])
def test_an_activation_is_known_to_the_families_that_compute_it(name):
    for kind, config in CONFIGS.items():
        given = config | {IN_GPT2["hidden_act"] if kind == "gpt2" else "hidden_act": name}
        if (kind == "gpt2") == (name in ACTIVATIONS):
            assert causal_files.checked_config(given)["hidden_act"] == name
        else:
            with pytest.raises(ValueError, match=f"^hidden_act must be .* here, got '{name}'$"):
                causal_files.checked_config(given)


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


LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
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


@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
def test_the_base_within_a_rotation_counts_and_is_checked(name):
    for scaling in ({}, {"rope_type": "default"}, LINEAR):
        for wrong in (0, 0.5, False, True, -1.0, "7", [], {}, ""):
            with pytest.raises(ValueError, match=r"^rope_theta must be a number >= 1, got "):
                causal_files.checked_config(LLAMA | {name: scaling | {"rope_theta": wrong}})
        found = causal_files.checked_config(LLAMA | {name: scaling | {"rope_theta": 1}})
        assert found["rope_theta"] == 1


@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
def test_of_two_names_of_the_kind_of_a_rotation_rope_type_counts(name):
    """type is its older name, and counts alone too. Where one of them is plain, so is the other."""
    for both in (LINEAR | {"type": "yarn"}, LINEAR | {"type": "default"}, LINEAR):
        assert causal_files.checked_config(LLAMA | {name: both})["rope_scaling"] == both
    old = {"type": "linear", "factor": 2.0}
    config = causal_files.checked_config(LLAMA | {name: old})
    assert config["rope_scaling"] == old
    assert_same(
        causal_files.rotary_of(config).rates,
        causal_files.rotary_of(causal_files.checked_config(LLAMA | {name: LINEAR})).rates,
    )
    with pytest.raises(ValueError, match=r"^type must be 'default' here, got 'linear'$"):
        causal_files.checked_config(LLAMA | {name: {"rope_type": "default", "type": "linear"}})


@pytest.mark.parametrize("key", ["rope_type", "type"])
@pytest.mark.parametrize("kind", KINDS)
def test_yarn_begins_at_the_positions_of_the_model_where_it_does_not_say_others(kind, key):
    config, yarn = CONFIGS[kind] | {"max_position_embeddings": 64}, {key: "yarn", "factor": 4.0}
    rates = {}
    for said in (None, 8, 16, 64, 1024):
        own = {} if said is None else {"original_max_position_embeddings": said}
        checked = causal_files.checked_config(config | {"rope_scaling": yarn | own})
        assert checked["rope_scaling"] == yarn | own
        rotary = causal_files.rotary_of(checked)
        full = yarn | {"original_max_position_embeddings": said or 64}
        right = ta.nn.RotaryEmbedding(checked["head_dim"], checked["rope_theta"], full)
        assert_same(rotary.rates, right.rates)
        assert rotary.length == right.length
        rates[said] = rotary.rates.tobytes()
    assert rates[None] == rates[64]
    assert rates[64] != rates[1024]
    llama3 = {name: x for name, x in LLAMA3.items() if not name.startswith("original")}
    said = "original_max_position_embeddings of the rope scaling llama3 must be a number"
    with pytest.raises(ValueError, match=f"^{said}"):
        causal_files.checked_config(config | {"rope_scaling": llama3})


# Windows

TYPES = ["full_attention", "sliding_attention", "full_attention"]
LAYERS = {"num_hidden_layers": 3, "no_rope_layer_interval": 2}


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("switch", [False, True])
@pytest.mark.parametrize("window", [None, 1, 4])
def test_a_layer_has_a_window_only_where_the_switch_the_width_and_the_layer_say_so(
    window, switch, kind
):
    """Mistral has no switch. Llama and GPT-2 have no windows."""
    on = {"mistral": True, "llama": False, "gpt2": False}.get(kind, switch)
    for types, turned, first in itertools.product(
        (None, [], TYPES, TYPES[1:] + TYPES[1:2]), (None, [], [1, 0, 0]), (None, 0, 1, 3)
    ):
        said = {"layer_types": types, "no_rope_layers": turned, "max_window_layers": first}
        config = LAYERS | {
            "sliding_window": window,
            "model_type": kind,
            "use_sliding_window": switch,
        }
        config |= {name: x for name, x in said.items() if x is not None}
        for i in range(3):
            turns = kind != "smollm3" or (turned[i] == 1 if turned else i != 1)
            assert causal_files.turns_in(config, i) is turns
            usual = {"mistral": True, "smollm3": not turns}
            slides = usual.get(kind, i >= (28 if first is None else first))
            slides = types[i] == "sliding_attention" if types else slides
            assert causal_files.window_in(config, i) == (window if on and slides else None)


# Null

OF_NULL = {
    ("mistral", "sliding_window"): None,
    ("qwen3", "head_dim"): 4,
    ("smollm3", "rope_theta"): 1e4,
    ("smollm3", "tie_word_embeddings"): False,
    ("gpt2", "tie_word_embeddings"): False,
    ("gpt2", "rms_norm_eps"): 1e-6,
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_null_is_what_is_not_said_but_for_what_a_family_has_of_its_own(kind):
    """It has then what the others have."""
    names = {theirs: ours for ours, theirs in IN_GPT2.items()} if kind == "gpt2" else {}
    needed = "vocab_size hidden_size num_hidden_layers num_attention_heads max_position_embeddings"
    needed = {*needed.split(), "model_type"}
    config = CONFIGS[kind] | {"no_rope_layers": [], "hidden_size" if not names else "n_embd": 16}
    for name in sorted({names.get(x, x) for x in config} | {*READ} - {*names.values()}):
        theirs = IN_GPT2.get(name, name) if names else name
        less = {key: x for key, x in config.items() if key != theirs}
        if name in needed:
            with pytest.raises(ValueError, match=f"^{name} must be .*got None$"):
                causal_files.checked_config(less | {theirs: None})
        else:
            right = causal_files.checked_config(less)
            found = causal_files.checked_config(less | {theirs: None})
            if (kind, name) in OF_NULL:
                assert found.get(name) == OF_NULL[kind, name]
                right.pop(name), found.pop(name, None)
            elif (kind, name) == ("smollm3", "no_rope_layer_interval"):
                assert name not in found
                assert all(causal_files.turns_in(found, i) for i in range(2))
                right.pop(name)
            assert found == right, name


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


# Names in folders


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
    for name in ("dtype", "torch_dtype"):  # which is that of the tensors
        model.config[name] = "bfloat16"
        assert name not in causal_files.published_config(model.config)


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
