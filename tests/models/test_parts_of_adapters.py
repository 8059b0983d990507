"""Adapters part by part: matrices, ranks, scales, dtypes, patterns, and what a refusal leaves."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from common import assert_close, assert_equal, rng_of
from test_adapters import changed, learned, random_encoder
from test_causal import ids_of, kinds, random_model

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError
from tinyattn.models import BertEncoder, MaskedLM, SequenceClassifier
from tinyattn.models.adapters import ADAPTER
from tinyattn.models.published import ENCODERS

DTYPES = ("float16", "float32", "float64")
JOINED = ("W_q", "W_k", "W_v")  # which are one matrix in the files of GPT-2
HEADS = {BertEncoder: (), MaskedLM: ("dense",), SequenceClassifier: ("dense", "out")}
MATRICES = (*JOINED, "W_o", "w_1", "w_2")


def loras_of(model):
    return {name: x for name, x in model.named_modules() if isinstance(x, nn.LoRA)}


def with_loras(model, options, layer=0):
    """The model with a LoRA of this (rank, scale) in each of these matrices of a layer."""
    attention, rng = model.encoder.layers[layer].self_attn, rng_of(7)
    model.requires_grad_(False)
    for name, (rank, scale) in options.items():
        lora = nn.LoRA(getattr(attention, name), rank, scale)
        lora.A.data = ta.tensor(rng.normal(size=lora.A.shape)).to(lora.A.dtype)
        lora.B.data = ta.tensor(rng.normal(size=lora.B.shape)).to(lora.B.dtype)
        setattr(attention, name, lora)
    return model


# Every matrix


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("new", HEADS)
def test_every_matrix_of_an_encoder_and_its_head_is_corrected(new, kind, tmp_path):
    model, again = (random_encoder(kind, new) for _ in range(2))
    names, ids = MATRICES + HEADS[new], 2 + ids_of(2, 6, vocab=38)
    learned(model, names).save_adapter(tmp_path)
    again.load_adapter(tmp_path)
    assert loras_of(again).keys() == loras_of(model).keys()
    assert len(loras_of(again)) == 2 * len(MATRICES) + len(HEADS[new])
    assert_close(again(ids).numpy(), model(ids).numpy(), 1e-12)
    for name, lora in loras_of(again).items():
        other = loras_of(model)[name]
        assert_equal(lora.A.numpy(), other.A.numpy())
        assert_equal(lora.B.numpy(), other.B.numpy())
        assert lora.scale == pytest.approx(0.7, rel=1e-12)
        assert lora.A.requires_grad
        assert lora.B.requires_grad


@kinds
def test_every_matrix_of_a_language_model_is_corrected(kind, tmp_path):
    names = (*MATRICES, *(() if kind == "gpt2" else ("w_3",)))
    model, again, ids = random_model(kind), random_model(kind), ids_of(2, 6)
    names += () if model.head is None else ("head",)
    learned(model, names).save_adapter(tmp_path)
    again.load_adapter(tmp_path)
    assert loras_of(again).keys() == loras_of(model).keys()
    assert_close(again(ids).numpy(), model(ids).numpy(), 1e-12)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("new", HEADS)
def test_a_correction_of_a_head_is_refused_by_a_model_without_it(new, kind, tmp_path):
    """That of a pooler alone is passed over, because PEFT's `all-linear` names it."""
    other = MaskedLM if new is SequenceClassifier else SequenceClassifier
    learned(random_encoder(kind, other), ("W_q", *HEADS[other])).save_adapter(tmp_path)
    model = random_encoder(kind, new)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: \S+ is no matrix of this mod"):
        model.load_adapter(tmp_path)
    assert not loras_of(model)


# Ranks and scales


@pytest.mark.parametrize(
    "options",
    [
        {"W_q": (2, 0.5)},
        {"W_q": (2, 0.5), "W_v": (3, 0.5)},
        {"W_k": (1, 2.0), "W_v": (4, 2.0)},
        {"W_q": (1, 0.5), "W_k": (2, 0.5), "W_v": (3, 0.5)},
        {"W_q": (2, 0.0), "W_k": (4, 0.0)},
    ],
)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_corrections_of_one_matrix_may_have_several_ranks(kind, options, tmp_path):
    model, ids = with_loras(random_model(kind), options), ids_of(2, 6)
    model.save_adapter(tmp_path)
    again = random_model(kind)
    again.load_adapter(tmp_path)
    assert_close(again(ids).numpy(), model(ids).numpy(), 1e-11)
    scales = {scale for _, scale in options.values()}
    assert {lora.scale for lora in loras_of(again).values()} == scales


@pytest.mark.parametrize(
    "options",
    [
        {"W_q": (2, 1.0), "W_k": (4, 0.5)},
        {"W_k": (1, 3.0), "W_v": (3, 1.0)},
        {"W_q": (2, 1.0), "W_v": (2, 0.5)},
        {"W_q": (2, 1.0), "W_k": (2, 1.0), "W_v": (2, 0.0)},
        {"W_q": (2, 1.0), "W_k": (2, 3.0), "W_v": (2, 1.0)},
        {"W_q": (2, 3.0), "W_k": (2, 1.0), "W_v": (2, 1.0)},
    ],
)
def test_corrections_of_one_matrix_have_one_scale(options, tmp_path):
    model = with_loras(random_model("gpt2"), options, layer=1)
    said = r"^transformer\.h\.1\.attn\.c_attn is one matrix in a file, so its LoRAs have one scale$"
    with pytest.raises(ValueError, match=said):
        model.save_adapter(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    model, ids = with_loras(random_model("llama"), options, layer=1), ids_of(2, 6)
    model.save_adapter(tmp_path)  # three matrices there
    again = random_model("llama")
    again.load_adapter(tmp_path)
    assert_close(again(ids).numpy(), model(ids).numpy(), 1e-11)


# Dtypes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("names", [("W_q",), ("W_k", "W_v"), JOINED, MATRICES])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2"])
def test_a_file_has_the_dtype_of_the_corrections(kind, names, dtype, tmp_path):
    model = learned(random_model(kind).to(dtype), names)
    model.save_adapter(tmp_path)
    state = ta.load(tmp_path / ADAPTER)
    assert {x.dtype.name for x in state.values()} == {dtype}
    again = random_model(kind).to(dtype)
    again.load_adapter(tmp_path)
    again.save_adapter(tmp_path / "twice")
    twice = ta.load(tmp_path / "twice" / ADAPTER)
    assert {x.dtype.name for x in twice.values()} == {dtype}


@pytest.mark.parametrize("of_file", DTYPES)
@pytest.mark.parametrize("of_model", DTYPES)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_an_adapter_that_is_active_has_the_dtype_of_the_model(kind, of_model, of_file, tmp_path):
    learned(random_model(kind).to(of_file)).save_adapter(tmp_path)
    model = random_model(kind).to(of_model)
    for name in ("a", "b"):
        model.load_adapter(tmp_path, name)
        assert {x.dtype.name for x in model.parameters()} == {of_model}
    assert model(ids_of(1, 4)).dtype == of_model
    for then in (*DTYPES, of_model):  # the one that waits is changed as it becomes active
        model.to(then)
        for name in ("a", None, "b"):
            model.set_adapter(name)
            assert {x.dtype.name for x in model.parameters()} == {then}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_adapter_of_int8_weights_has_the_dtype_of_the_other_parameters(dtype, tmp_path):
    learned(random_model("llama")).save_adapter(tmp_path)
    model = random_model("llama", np.dtype(dtype)).quantize()
    model.load_adapter(tmp_path)
    assert {x.dtype.name for x in model.parameters()} == {dtype}
    assert model(ids_of(1, 4)).dtype == dtype


def test_an_adapter_that_is_active_is_on_the_device_of_the_model(tmp_path, cuda):
    learned(random_model("llama", np.float32)).save_adapter(tmp_path)
    model = random_model("llama", np.float32).to("cuda")
    for name in ("a", "b"):
        model.load_adapter(tmp_path, name)
        assert {x.device for x in model.parameters()} == {model.word.weight.device}
    model.cpu().set_adapter("a")  # which waited
    assert {str(x.device) for x in model.parameters()} == {"cpu"}


# What a refusal leaves


def settings(**changes):
    return lambda folder: changed(folder, **changes)


def without_tensors(folder):
    (folder / ADAPTER).unlink()


def without_settings(folder):
    (folder / "adapter_config.json").unlink()


def damaged(folder):
    (folder / "adapter_config.json").write_text("{")


def not_finite(folder):
    state = ta.load(folder / ADAPTER)
    ta.save(state | {key: x * np.nan for key, x in [*state.items()][-1:]}, folder / ADAPTER)


def of_other_layers(folder):
    state = ta.load(folder / ADAPTER)
    ta.save({key.replace("layers.1", "layers.7"): x for key, x in state.items()}, folder / ADAPTER)


def alone(folder):
    ta.save(dict([*ta.load(folder / ADAPTER).items()][1:]), folder / ADAPTER)


SPOILED = {
    "no tensors": (without_tensors, FileNotFoundError),
    "no settings": (without_settings, FileNotFoundError),
    "damaged": (damaged, CheckpointError),
    "not finite": (not_finite, CheckpointError),
    "other layers": (of_other_layers, CheckpointError),
    "A or B alone": (alone, CheckpointError),
    "DoRA": (settings(use_dora=True), CheckpointError),
    "rank": (settings(r=5), CheckpointError),
    "scale": (settings(lora_alpha=-1), CheckpointError),
    "dropout": (settings(lora_dropout=2), CheckpointError),
}


def state_of(model):
    own = model.adapters
    parameters = {
        name: (id(x), x.requires_grad, x.numpy().tobytes()) for name, x in model.named_parameters()
    }
    modules = {name: (id(x), x.training) for name, x in model.named_modules()}
    loras = {name: {place: id(x) for place, x in y.items()} for name, y in own.loras.items()}
    return parameters, modules, loras, own.active, sorted(own.linears)


@pytest.mark.parametrize("active", ["first", "second", None])
@pytest.mark.parametrize("name", ["first", "third"])
@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_folder_that_is_refused_leaves_all_adapters_as_they_were(spoiled, name, active, tmp_path):
    learned(random_model("llama"), ("W_q",)).save_adapter(tmp_path / "good")
    learned(random_model("llama"), ("W_q", "w_2"), seed=2).save_adapter(tmp_path / "bad")
    spoil, error = SPOILED[spoiled]
    spoil(tmp_path / "bad")
    model = random_model("llama").train()
    for one in ("first", "second"):
        model.load_adapter(tmp_path / "good", one)
    model.set_adapter(active)
    before = state_of(model)
    with pytest.raises(error):
        model.load_adapter(tmp_path / "bad", name)
    assert state_of(model) == before


@pytest.mark.parametrize("active", ["first", None])
def test_an_unknown_name_leaves_the_adapter_that_is_active(active, tmp_path):
    learned(random_model("llama"), ("W_q",)).save_adapter(tmp_path)
    model = random_model("llama")
    model.load_adapter(tmp_path, "first")
    model.set_adapter(active)
    before = state_of(model)
    for wrong in ("third", "", 3):
        with pytest.raises(ValueError, match=rf"^the adapters are \['first'\], got {wrong!r}$"):
            model.set_adapter(wrong)
    assert state_of(model) == before


def test_a_folder_for_a_model_with_a_lora_of_its_own_changes_nothing(tmp_path):
    learned(random_model("llama"), ("W_q", "W_v")).save_adapter(tmp_path)
    model = learned(random_model("llama"), ("W_v",))
    before = state_of(model)
    said = r"W_v must be a Linear, which LoRA adapts, got LoRA"
    with pytest.raises(CheckpointError, match=said):
        model.load_adapter(tmp_path)
    assert state_of(model) == before


# Settings by a pattern


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("q_proj", ["0.self_attn.W_q", "1.self_attn.W_q"]),
        ("self_attn.q_proj", ["0.self_attn.W_q", "1.self_attn.W_q"]),
        ("layers.1.self_attn.q_proj", ["1.self_attn.W_q"]),
        ("model.layers.0.mlp.down_proj", ["0.feed_forward.w_2"]),
        ("q_proj|down_proj", ["0.feed_forward.w_2", "0.self_attn.W_q", "1.feed_forward.w_2",
                              "1.self_attn.W_q"]),
        (r"1\..*", ["1.feed_forward.w_2", "1.self_attn.W_q"]),
        ("proj", []),
        ("q_pro", []),
        ("q", []),
    ],
)  # fmt: skip
def test_a_pattern_is_the_end_of_a_name(pattern, places, tmp_path):
    """As in PEFT: the whole name, or what stands after a dot."""
    learned(random_model("llama"), ("W_q", "w_2"), rank=3, scale=1.0).save_adapter(tmp_path)
    model = random_model("llama")
    model.load_adapter(changed(tmp_path, alpha_pattern={pattern: 6}))
    for name, lora in loras_of(model).items():
        assert lora.scale == (2.0 if name.removeprefix("encoder.layers.") in places else 1.0), name


def test_the_first_of_several_patterns_counts(tmp_path):
    learned(random_model("llama"), ("W_q",), rank=3, scale=1.0).save_adapter(tmp_path)
    patterns = {"k_proj": 30, "layers.1.self_attn.q_proj": 6, "q_proj": 12}
    model = random_model("llama")
    model.load_adapter(changed(tmp_path, alpha_pattern=patterns))
    assert [lora.scale for lora in loras_of(model).values()] == [4.0, 2.0]


# Between models


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("reader", HEADS)
@pytest.mark.parametrize("writer", HEADS)
def test_an_adapter_of_an_encoder_is_read_by_models_with_any_head(writer, reader, kind, tmp_path):
    learned(random_encoder(kind, writer), MATRICES).save_adapter(tmp_path)
    model, ids = random_encoder(kind, reader), 2 + ids_of(2, 6, vocab=38)
    model.load_adapter(tmp_path)
    right = learned(random_encoder(kind, reader), MATRICES)
    assert loras_of(model).keys() == loras_of(right).keys()
    assert_close(model(ids).numpy(), right(ids).numpy(), 1e-12)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("new", HEADS)
def test_the_settings_of_an_adapter_of_an_encoder_name_its_matrices(new, kind, tmp_path):
    model = learned(random_encoder(kind, new), ("W_q",), rank=2, scale=3.0, dropout=0.25)
    model.save_adapter(tmp_path)
    prefix = "" if new is BertEncoder else kind.removeprefix("xlm-") + "."
    name = "encoder.layer.{}.attention.self.query"
    name = "transformer.layer.{}.attention.q_lin" if kind == "distilbert" else name
    names = [prefix + name.format(i) for i in range(2)]
    assert json.loads((tmp_path / "adapter_config.json").read_text()) == {
        "peft_type": "LORA", "task_type": None, "base_model_name_or_path": None, "r": 2,
        "lora_alpha": 6.0, "rank_pattern": {}, "alpha_pattern": {}, "lora_dropout": 0.25,
        "target_modules": names, "fan_in_fan_out": False, "bias": "none", "inference_mode": True,
    }  # fmt: skip
    ends = {"A": (2, 16), "B": (16, 2)}
    assert {key: x.shape for key, x in ta.load(tmp_path / ADAPTER).items()} == {
        f"base_model.model.{name}.lora_{x}.weight": ends[x] for name in names for x in "AB"
    }


def test_what_peft_names_pooler_is_read_where_it_is_and_passed_over_elsewhere(tmp_path):
    learned(random_encoder("bert", SequenceClassifier), ("W_q", "dense")).save_adapter(tmp_path)
    for new, number in ((SequenceClassifier, 3), (BertEncoder, 2), (MaskedLM, 2)):
        model = random_encoder("bert", new)
        model.load_adapter(tmp_path)
        assert len(loras_of(model)) == number


@pytest.mark.parametrize("mode", [True, False])
def test_loading_an_adapter_draws_no_number_and_keeps_the_mode(mode, tmp_path):
    learned(random_model("llama"), dropout=0.5).save_adapter(tmp_path)
    model, before = random_model("llama").train(mode), ta.get_rng_state()
    model.load_adapter(tmp_path, "a")
    assert ta.get_rng_state() == before
    assert {x.training for x in model.modules()} == {mode}
    model.set_adapter(None)
    model.train(not mode).set_adapter("a")  # which waited in the other mode
    assert {x.training for x in model.modules()} == {not mode}
    assert {x.dropout.p for x in loras_of(model).values()} == {0.5}


# What learned beside the corrections


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_each_parameter_that_may_have_learned_is_named(kind, tmp_path):
    """Vectors too, and the weights beneath a LoRA: an adapter has no place for them."""
    plain = random_encoder(kind, MaskedLM) if kind == "bert" else random_model(kind)
    model = learned(plain, ("W_q", "w_2"))
    others = {n: x for n, x in model.named_parameters() if not n.endswith((".A", ".B"))}
    assert not any(x.requires_grad for x in others.values())
    for name, x in others.items():
        x.requires_grad_(True)
        with pytest.raises(ValueError, match=rf"^{re.escape(name)} may have learned too"):
            model.save_adapter(tmp_path / "new")
        x.requires_grad_(False)
    first, *_, last = others
    for name in (last, first):
        others[name].requires_grad_(True)
    with pytest.raises(ValueError, match=rf"^{re.escape(first)} may have learned too"):
        model.save_adapter(tmp_path / "new")
    assert not (tmp_path / "new").exists()
