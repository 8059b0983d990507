"""Int8 weights: what they are, what a model with them computes, and what is refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from common import assert_close, assert_equal, rng_of, signed
from test_causal import CONFIGS, both_dtypes, ids_of, kinds, random_model

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.generation import generate
from tinyattn.models import CausalLM
from tinyattn.models.int8 import quantize
from tinyattn.nn.int8 import Int8Linear

TOLERANCE = {np.float32: 2e-6, np.float64: 1e-13}


def weight_of(layer):
    """The floating numbers that an Int8Linear stands for."""
    return layer.numbers.numpy().astype(layer.scale.dtype) * layer.scale.numpy()[:, None]


@both_dtypes
def test_each_weight_differs_by_half_a_scale_at_most(dtype):
    weight = rng_of(0).normal(size=(30, 50))
    weight[1], weight[2, 3] = 0, 100
    layer = Int8Linear(ta.tensor(weight.astype(dtype)))
    assert (layer.numbers.dtype, layer.scale.dtype) == (np.int8, dtype)
    scale = layer.scale.numpy()
    assert_close(scale, abs(weight).max(1) / 127, TOLERANCE[dtype])
    distance = abs(weight_of(layer) - weight)
    assert (distance <= scale[:, None] * 0.50001).all()
    assert abs(layer.numbers.numpy()).max(1)[[0, 1, 2]].tolist() == [127, 0, 127]


def test_the_numbers_of_tiny_weights_keep_their_sign():
    """The scale of subnormal numbers is rounded to few digits, and 190 is no int8."""
    layer = Int8Linear(ta.tensor(np.array([[190], [-190]], np.float32) * np.float32(2.0**-149)))
    assert layer.numbers.tolist() == [[127], [-127]]


def test_the_numbers_lie_in_rows_as_the_kernel_reads_them():
    """A weight of a published model has column order; its numbers would be copied at each call."""
    weight = ta.tensor(np.asfortranarray(rng_of(5).normal(size=(6, 8)).astype(np.float32)))
    layer = Int8Linear(weight)
    assert not weight._data.flags.c_contiguous
    assert layer.numbers._data.flags.c_contiguous


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_what_changes_a_whole_model_leaves_it_in_its_mode_or_in_evaluation(
    before, is_tied, tmp_path
):
    """One with int8 weights does not learn; one with a LoRA does, and drops what it dropped."""

    config = CONFIGS["llama"] | {"attention_dropout": 0.5, "tie_word_embeddings": is_tied}

    def fresh():
        model = CausalLM(config).train(before)
        return model, lambda: {module.training for module in model.modules()}

    for change in (lambda model: model.quantize(), quantize):
        model, modes = fresh()
        change(model)
        assert modes() == {False}
        assert not any(parameter.requires_grad for parameter in model.parameters())
    model, modes = fresh()
    nn.LoRA.insert(model, ["W_q"], dropout=0.5)
    assert modes() == {before}
    model.save_adapter(tmp_path)
    nn.LoRA.merge_all(model)
    assert modes() == {before}
    for name in ("some", None, "some"):
        if name not in model.adapters.loras and name:
            model.load_adapter(tmp_path, name)
        model.set_adapter(name)
        assert modes() == {before}


@both_dtypes
@pytest.mark.parametrize("shape", [(50,), (1, 50), (2, 3, 50), (40, 50), (0, 50)])
def test_the_layer_is_a_linear_of_its_numbers(dtype, shape):
    linear = nn.Linear(50, 30).to(dtype)
    layer = Int8Linear(linear.weight, linear.bias)
    x = ta.tensor(signed(rng_of(1), *shape).astype(dtype))
    right = x.numpy() @ weight_of(layer).T + linear.bias.numpy()
    assert_close(layer(x).numpy(), right, 50 * TOLERANCE[dtype])
    assert layer(x).dtype == dtype
    assert repr(layer) == "Int8Linear(50, 30, bias=True)"


@kinds
@both_dtypes
def test_a_quantized_model_is_the_model_of_its_numbers(kind, dtype):
    model = random_model(kind, dtype)
    rounded, quantized = copy.deepcopy(model), copy.deepcopy(model).quantize()
    assert quantized.quantize("int8") is quantized
    layers = {n: m for n, m in quantized.named_modules() if isinstance(m, Int8Linear)}
    per_layer = 6 if kind == "gpt2" else 7
    assert len(layers) == 2 * per_layer + 1
    for name, module in rounded.named_modules():
        if name in layers:
            module.weight.data = ta.tensor(weight_of(layers[name]))
    ids = ids_of(2, 9)
    right = F.linear(rounded.hidden(ids), ta.tensor(weight_of(quantized.head))).numpy()
    assert_close(quantized(ids).numpy(), right, {np.float32: 2e-5, np.float64: 1e-12}[dtype])
    cache = quantized.new_cache()
    parts = [quantized(ids[:, i : i + 3], cache=cache).numpy() for i in (0, 3, 6)]
    assert_close(np.concatenate(parts, 1), right, {np.float32: 2e-5, np.float64: 1e-12}[dtype])
    exact = model(ids).numpy()
    assert 0 < abs(quantized(ids).numpy() - exact).max() < 0.1 * abs(exact).max()


def test_the_perplexity_of_its_own_texts_rises_by_less_than_a_hundredth_and_a_half():
    """A random model writes a text, which it then expects more than others."""
    model = random_model("llama", np.float32)
    with ta.no_grad():
        model.head.weight *= 2
    ta.manual_seed(0)
    texts = generate(model.next_scores(), ids_of(64, 1), 32, pad=-1, temperature=1.0)

    def perplexity():
        with ta.no_grad():
            scores = model(texts[:, :-1])
        return F.cross_entropy(scores.flatten(0, 1), texts[:, 1:].flatten()).exp().item()

    before = perplexity()
    assert before < 0.6 * 40  # the number of words
    model.quantize()
    assert model.is_quantized
    assert before / 1.015 < perplexity() < before * 1.015


def test_no_weight_learns_and_saving_as_a_model_of_floats_is_refused(tmp_path):
    """Gradients go through whole numbers since a LoRA beside them learns: see test_adapters.py."""
    model = random_model("gpt2", np.float32)
    assert not model.is_quantized
    model.quantize()
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model.training
    with pytest.raises(ta.errors.GraphError, match="requires"):
        model.train()(ids_of(1, 3)).sum().backward()
    with pytest.raises(RuntimeError, match="save before quantize"):
        model.save_pretrained(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@both_dtypes
@pytest.mark.parametrize("shape", [(50,), (1, 50), (2, 3, 50), (40, 50)])
def test_gradients_go_through_the_numbers(dtype, shape):
    linear = nn.Linear(50, 30).to(dtype)
    layer = Int8Linear(linear.weight, linear.bias)
    x = ta.tensor(signed(rng_of(1), *shape).astype(dtype), requires_grad=True)
    grad = signed(rng_of(2), *shape[:-1], 30).astype(dtype)
    layer(x).backward(ta.tensor(grad))
    assert_close(x.grad.numpy(), grad @ weight_of(layer), 50 * TOLERANCE[dtype])
    assert_close(layer.bias.grad.numpy(), grad.reshape(-1, 30).sum(0), 50 * TOLERANCE[dtype])
    assert layer.numbers.grad is None


def test_a_graph_holds_the_whole_numbers_and_no_floats():
    """Else the matrices of a model would be there as floats too, from forward to backward."""
    layer = Int8Linear(nn.Linear(500, 300).weight)
    x = ta.randn(4, 500).requires_grad_()
    held = layer(x).grad_fn.saved_values()
    assert sum(array.nbytes for array in held.values()) == 500 * 300 + 300 * 4


def test_a_state_dict_keeps_the_numbers(tmp_path):
    model = random_model("llama", np.float32).quantize()
    ta.save(model.state_dict(), tmp_path / "state.safetensors")
    again = random_model("llama", np.float32)
    with ta.no_grad():
        for parameter in again.parameters():
            parameter *= 2
    again.quantize().load_state_dict(ta.load(tmp_path / "state.safetensors"))
    assert_equal(again(ids_of(2, 5)).numpy(), model(ids_of(2, 5)).numpy())


def test_what_cannot_be_quantized_is_refused():
    with pytest.raises(ValueError, match="quantize takes \"int8\", got 'int4'"):
        random_model("llama").quantize("int4")
    with pytest.raises(DtypeError, match="float32 or float64, got float16"):
        random_model("llama").half().quantize()
    with pytest.raises(ValueError, match="not finite"):
        Int8Linear(ta.tensor([[1.0, np.nan]]))
    model = random_model("llama", np.float32)
    model.encoder.layers[-1].self_attn.W_o.weight._data[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"encoder\.layers\.\d+\.self_attn\.W_o: a weight with"):
        model.quantize()
    assert not any(isinstance(module, Int8Linear) for module in model.modules())
    assert all(x.requires_grad for x in model.train().parameters())
    layer = Int8Linear(ta.ones(3, 4))
    with pytest.raises(DtypeError, match="got float64 and a scale of float32"):
        layer(ta.ones(1, 4, dtype=ta.float64))
    with pytest.raises(ShapeError, match=r"takes \(\.\.\., 4\), got \(1, 3\)"):
        Int8Linear(ta.ones(3, 4))(ta.ones(1, 3))


def test_a_model_with_lora_is_refused_before_anything_changes():
    """Its adapted matrices stayed floats, and the model said that it was quantized."""
    model, ids = random_model("llama", np.float32), ids_of(2, 5)
    nn.LoRA.insert(model, ("W_q", "w_1"), rank=2)
    before = model(ids).numpy()
    with pytest.raises(RuntimeError, match="merge_all"):
        model.quantize()
    assert not model.is_quantized
    assert not any(isinstance(module, Int8Linear) for module in model.modules())
    assert_equal(model(ids).numpy(), before)
    nn.LoRA.merge_all(model)
    assert model.quantize().is_quantized
    nn.LoRA.insert(model, ("W_q", "w_1"), rank=2)
    # What the error advises is possible: merge_all takes no int8 weights.
    with pytest.raises(RuntimeError, match="if its weights are floating numbers, after nn"):
        model.quantize()


def test_a_linear_in_two_places_stays_one():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2] = model[0]
    quantize(model)
    assert isinstance(model[0], Int8Linear)
    assert model[2] is model[0]


class Named(nn.Linear):
    """A Linear with a name of its own, and the forward of all."""


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def test_a_kind_of_linear_without_a_forward_of_its_own_is_quantized():
    model = nn.Sequential(nn.Sequential(Named(4, 3)), nn.Tanh(), Named(3, 2, bias=False))
    x = ta.tensor(signed(rng_of(0), 5, 4).astype(np.float32))
    layers = [Int8Linear(linear.weight, linear.bias) for linear in (model[0][0], model[2])]
    right = layers[1](layers[0](x).tanh())
    quantize(model)
    assert [type(layer) for layer in (model[0][0], model[2])] == [Int8Linear, Int8Linear]
    assert_equal(model(x).numpy(), right.numpy())


NOT_FINITE = "a weight with numbers that are not finite has no int8 numbers"
DTYPE = "int8 takes float32 or float64, got {}: call .float()"
FORWARD = "Doubled has a forward() of its own, which int8 weights do not know"
REFUSED = {
    "nan": (lambda: filled(np.nan), ValueError, NOT_FINITE),
    "inf": (lambda: filled(-np.inf), ValueError, NOT_FINITE),
    "float16": (lambda: nn.Linear(4, 3).half(), DtypeError, DTYPE.format("float16")),
    "forward": (lambda: Doubled(4, 3), TypeError, FORWARD),
}


def filled(number):
    """A Linear with this number at one place, in the last row."""
    linear = nn.Linear(4, 3)
    linear.weight._data[2, 1] = number
    return linear


@pytest.mark.parametrize("place", ["0", "1.0", "1.2", "2"])
@pytest.mark.parametrize("kind", REFUSED)
def test_a_linear_that_is_refused_is_named_by_its_place_and_nothing_changes(kind, place):
    make, error, said = REFUSED[kind]
    inner = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4))
    model = nn.Sequential(nn.Linear(4, 4), inner, nn.Linear(4, 2))
    parent, name = (inner, place[2:]) if "." in place else (model, place)
    setattr(parent, name, make())
    before = list(model.modules())
    with pytest.raises(error) as caught:
        quantize(model)
    assert type(caught.value) is error
    assert str(caught.value) == f"{place}: {said}"
    assert all(x is y for x, y in zip(model.modules(), before, strict=True))
    assert all(x.requires_grad for x in model.parameters())
    assert all(x.training for x in model.modules())


@both_dtypes
def test_float16_comes_before_or_after_int8(dtype):
    """The scale keeps its digits, so the way back is exact."""
    linear = nn.Linear(50, 30).to(dtype)
    layer, x = Int8Linear(linear.weight, linear.bias), ta.tensor(signed(rng_of(1), 2, 50))
    numbers, scale = weight_of(layer), layer.scale.numpy().copy()
    layer.half()
    out = layer(x.half())
    right = x.half().double().numpy() @ numbers.T + linear.bias.double().numpy()
    assert out.dtype == np.float16
    assert_close(out.numpy(), right, 4e-3)
    assert_equal(layer.to(dtype).scale.numpy(), scale)
    with pytest.raises(DtypeError, match=r"got float16: call \.float\(\)"):
        Int8Linear(linear.half().weight)


@both_dtypes
def test_a_lora_of_int8_weights_takes_float16(dtype):
    """Its numbers have the dtype of the scale, until `half` is called after it."""
    linear, x = nn.Linear(50, 30).to(dtype), ta.tensor(signed(rng_of(1), 2, 50)).half()
    lora = nn.LoRA(Int8Linear(linear.weight, linear.bias).half(), rank=2)
    lora.B.data = ta.tensor(signed(rng_of(2), 30, 2)).to(dtype)
    correction = x.double().numpy() @ (lora.B @ lora.A).detach().double().numpy().T
    right = lora.linear(x).detach().double().numpy() + correction
    for layer in (lora, copy.deepcopy(lora).half()):
        out = layer(x)
        assert out.dtype == np.float16
        assert_close(out.detach().double().numpy(), right, 4e-3)
        out.backward(ta.tensor(signed(rng_of(3), 2, 30)).half())
        assert layer.A.grad.dtype == layer.A.dtype
        assert all(p.grad.abs().max() > 0 for p in (layer.A, layer.B))


@both_dtypes
def test_a_weight_and_an_input_of_another_dtype_are_refused(dtype):
    layer = Int8Linear(ta.ones(3, 4, dtype=dtype))
    for other in (np.float32, np.float64, np.int64, np.int8, np.bool_):
        x = ta.ones(1, 4, dtype=other)
        if other is dtype:
            assert layer(x).dtype == dtype
            continue
        with pytest.raises(DtypeError) as caught:
            layer(x)
        assert str(caught.value) == (
            "a layer with int8 weights computes in float32 or float64, the dtype of its scale, "
            f"got {np.dtype(other)} and a scale of {np.dtype(dtype)}"
        )
    for other in (np.float16, np.int64, np.int8, np.bool_):
        with pytest.raises(DtypeError) as caught:
            Int8Linear(ta.ones(3, 4, dtype=other))
        said = f"int8 takes float32 or float64, got {np.dtype(other)}: call .float()"
        assert str(caught.value) == said
    assert repr(layer) == "Int8Linear(4, 3, bias=False)"


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_noticed_in_each_row(row, number):
    weight = rng_of(0).normal(size=(3, 4))
    weight[row, 3 - row] = number
    with pytest.raises(ValueError, match=f"^{NOT_FINITE}$"):
        Int8Linear(ta.tensor(weight))


@pytest.mark.parametrize("after", [np.float16, np.float32, np.float64])
@both_dtypes
def test_the_scale_takes_every_dtype_of_the_model_but_float16(dtype, after):
    linear = nn.Linear(4, 3).to(dtype)
    model = nn.Sequential(Int8Linear(linear.weight, linear.bias)).to(after)
    layer, right = model[0], dtype if after is np.float16 else after
    assert (layer.numbers.dtype, layer.scale.dtype, layer.bias.dtype) == (np.int8, right, after)
    assert model(ta.ones(2, 4, dtype=after)).dtype == after


@pytest.mark.parametrize("is_tied", [True, False])
@kinds
def test_a_model_with_one_matrix_of_whole_numbers_is_quantized_and_not_saved(
    kind, is_tied, tmp_path
):
    """A file of floating numbers has no place for it, whichever it is."""
    whole = CausalLM(CONFIGS[kind] | {"tie_word_embeddings": is_tied})
    names = [name for name, part in whole.named_modules() if isinstance(part, nn.Linear)]
    assert ("head" in names) != is_tied
    for name in names[:: len(names) - 1] + names[1:-1:3]:  # the first, the last and some
        model = copy.deepcopy(whole)
        place, _, own = name.rpartition(".")
        parts = dict(model.named_modules())
        linear = parts[name]
        setattr(parts.get(place, model), own, Int8Linear(linear.weight, linear.bias))
        assert model.is_quantized
        with pytest.raises(RuntimeError, match=r"^int8 weights have no place in this format"):
            model.save_pretrained(tmp_path)
    assert not whole.is_quantized
    assert [*tmp_path.iterdir()] == []
