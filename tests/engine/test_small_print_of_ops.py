"""What single lines promise of ops: defaults, names, what is saved, views, dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.engine import rules
from tinyattn.errors import DtypeError, GraphError, InPlaceError


def leaf(*numbers: float) -> ta.Tensor:
    return ta.tensor(numbers, requires_grad=True)


def scaled_op() -> Any:
    @ta.op
    def scaled(x, factor=2.0, shift=0.0):
        return x * factor + shift

    @scaled.vjp("x")
    def dx(grad, factor):
        return grad * factor

    return scaled


def test_an_argument_that_is_left_out_has_its_default_in_the_rule_too() -> None:
    scaled = scaled_op()
    for arguments, options, factor in (
        ((), {}, 2.0),
        ((3.0,), {}, 3.0),
        ((3.0, 1.0), {}, 3.0),
        ((), {"factor": 4.0}, 4.0),
        ((), {"shift": 1.0}, 2.0),
    ):
        x = leaf(0.5, -2.0)
        scaled(x, *arguments, **options).backward(ta.tensor([1.0, -10.0]))
        assert x.grad.tolist() == [factor, -10 * factor]
    with pytest.raises(TypeError, match=r"^scaled\(\) takes 3 arguments but 4 were given$"):
        scaled(leaf(0.5), 1.0, 1.0, 1.0)


def test_names_that_numpy_and_pytorch_give_an_argument_are_taken_by_the_library_alone() -> None:
    x = ta.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert x.sum(axis=0, keepdims=True).tolist() == [[4.0, 7.0]]
    assert F.softmax(input=x, axis=0).tolist() == F.softmax(x, 0).tolist()
    assert ta.ops.mul(x, other=2.0).tolist() == [[2.0, 4.0], [6.0, 10.0]]
    with pytest.raises(TypeError, match=r"^scaled\(\) got an unexpected argument 'other'$"):
        scaled_op()(x, other=2.0)
    with pytest.raises(TypeError, match="got 'dim' and 'axis', names of one argument"):
        x.sum(dim=0, axis=0)


def test_a_function_of_floats_takes_integers_as_float32() -> None:
    x = ta.tensor([1, 4, 9])
    assert x.sqrt().dtype == x.exp().dtype == np.float32
    assert x.sqrt().tolist() == [1.0, 2.0, 3.0]
    assert x.double().sqrt().dtype == np.float64


def test_the_arguments_of_functions_without_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of NumPy before 2.4."""

    def none(function: Any) -> Any:
        raise ValueError("no signature found")

    monkeypatch.setattr("tinyattn.engine.rules.inspect.signature", none)
    assert [name for name, _ in rules.parameters_of(np.sin)] == ["x"]
    assert [name for name, _ in rules.parameters_of(np.add)] == ["x1", "x2"]
    with pytest.raises(ValueError, match="no signature found"):
        rules.parameters_of(len)


def test_saved_values_have_the_names_that_the_rules_ask_for() -> None:
    x = leaf(0.5, -2.0)
    assert list(x.exp().grad_fn.saved_values()) == ["out"]
    assert list((x * x.detach()).grad_fn.saved_values()) == ["y"]
    assert list(scaled_op()(x).grad_fn.saved_values()) == ["factor"]


def test_what_a_forward_saves_may_be_a_view_of_any_argument() -> None:
    """So a change of any argument refuses the graph."""

    @ta.op(saves=True)
    def crossed(x, y):
        return x * y[::-1], y[::-1]

    @crossed.vjp("x")
    def dx(grad, saved):
        return grad * saved

    x, y = leaf(0.5, -2.0), ta.tensor([3.0, 4.0])
    crossed(x, y).backward(ta.tensor([1.0, -1.0]))
    assert x.grad.tolist() == [4.0, -3.0]
    out = crossed(x, y)
    y[0] = 5.0
    with pytest.raises(InPlaceError, match="an array that crossed needs"):
        out.backward(ta.tensor([1.0, -1.0]))


def test_what_no_rule_needs_may_be_changed_before_backward() -> None:
    """The bias of a LayerNorm, although other values are saved there."""
    x, weight, bias = leaf(0.5, -2.0, 3.0), leaf(1.0, 2.0, 3.0), leaf(0.1, 0.2, 0.3)
    out = F.layer_norm(x, 3, weight, bias)
    with ta.no_grad():
        bias[...] = 7.0
    out.backward(ta.tensor([1.0, -2.0, 3.0]))
    assert bias.grad.tolist() == [1.0, -2.0, 3.0]


def test_a_result_whose_memory_is_no_argument_s_is_no_view() -> None:
    """`base` of an array may also be an array that the forward has made."""

    @ta.op
    def doubled(x):
        return (2 * x.reshape(-1)).reshape(x.shape)

    @doubled.vjp("x")
    def dx(grad, out):
        return grad * 2 + 0 * out

    x = leaf(0.5, -2.0)
    y = doubled(x)
    with ta.no_grad():
        x[0] = 7.0
    y.backward(ta.tensor([1.0, -1.0]))
    assert x.grad.tolist() == [2.0, -2.0]
    assert y.tolist() == [1.0, -4.0]


def test_a_view_of_a_view_shares_its_version() -> None:
    weight, memory = leaf(1.0, 2.0), ta.arange(6, dtype=ta.float32)
    part = memory[2:]
    out = weight * part[1:3]
    part[2:3][0] = 9.0
    assert memory.tolist() == [0.0, 1.0, 2.0, 3.0, 9.0, 5.0]
    with pytest.raises(InPlaceError, match="an array that mul needs"):
        out.backward(ta.tensor([1.0, -1.0]))


def test_limits_beyond_the_range_of_float16_leave_the_dtype_as_it_is() -> None:
    x = ta.tensor([0.5, -2.0, ta.inf], dtype=ta.float16).clamp(-1e5, 1e5)
    assert (x.dtype, x.tolist()) == (np.float16, [0.5, -2.0, ta.inf])


@pytest.mark.parametrize("name", ["gelu", "silu", "softplus", "relu"])
def test_activations_of_float16_are_computed_in_float32(name: str) -> None:
    x = ta.tensor(np.linspace(-3, 3, 25), dtype=ta.float16)
    found, wide = getattr(F, name)(x), getattr(F, name)(x.to(ta.float32))
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found.numpy(), wide.numpy().astype(np.float16))


ASKED = ["int8", "uint8", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", ASKED)
def test_a_reduction_has_the_dtype_that_is_asked_for(dtype: str) -> None:
    for given in ASKED:
        x = ta.tensor([[1, 2], [3, 1]], dtype=given)
        for found, right in (
            (x.sum(dtype=dtype), 7),
            (x.sum(0, dtype=dtype), [4, 3]),
            (x.prod(dtype=dtype), 6),
            (x.prod(0, dtype=dtype), [3, 2]),
            (x.prod(1, True, dtype=dtype), [[2], [3]]),
            (x.cumsum(0, dtype=dtype), [[1, 2], [4, 3]]),
        ):
            assert (found.dtype, found.tolist()) == (np.dtype(dtype), right)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "norm", "amax", "amin", "logsumexp"])
def test_no_dimensions_are_all_dimensions(name: str, keepdim: bool) -> None:
    values = np.array([[1.0, -2.0, 4.0], [3.0, 0.5, 2.0]])
    options: dict[str, Any] = {"keepdim": keepdim}
    results = []
    for dim in (None, (), [], (0, 1), (-1, 0)):
        x = ta.tensor(values, requires_grad=True)
        whole = (0, 1) if dim is None and name in ("amax", "amin", "logsumexp") else dim
        out = getattr(x, name)(dim=whole, **options)
        assert out.shape == ((1, 1) if keepdim else ())
        out.backward(ta.full(out.shape, -2.0, dtype=ta.float64))
        results.append((out.item(), x.grad.numpy()))
    for value, slope in results[1:]:
        np.testing.assert_allclose(value, results[0][0], rtol=1e-15)
        np.testing.assert_allclose(slope, results[0][1], rtol=1e-14)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_error_of_a_gradient_names_the_place_of_its_argument(place: int) -> None:
    @ta.op
    def added(x, y, z):
        return x + y + z

    added.vjp("x", "y", "z")(lambda grad: tuple(None if i == place else grad for i in range(3)))
    said = f"^a derivative rule of added returned None instead of a gradient for argument {place}: "
    with pytest.raises(GraphError, match=said):
        added(leaf(1.0), leaf(1.0), leaf(1.0)).backward(ta.tensor([-1.0]))


def test_every_array_is_compared_with_the_first_though_one_is_left_out() -> None:
    x, wide = ta.ones(2, 3), ta.ones(3, dtype=ta.float64)
    with pytest.raises(DtypeError, match=r"^layer_norm: x is float32, bias is float64: "):
        F.layer_norm(x, 3, None, wide)


@pytest.mark.parametrize("old", [1.0, -2.0])
def test_zeros_are_written_through_each_kind_of_view(old: float) -> None:
    """A zero that is written counts as well as another number."""
    for view in (
        lambda x: x.T,
        lambda x: x.reshape(4),
        lambda x: x[1:],
        lambda x: x.T[0],
    ):
        w, weight = leaf(0.0), ta.full((2, 2), old) * leaf(1.0)
        right = weight.numpy()
        view(right)[...] = 0
        part = view(weight)
        part *= w
        assert weight.tolist() == right.tolist()
