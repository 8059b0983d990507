"""Numbers near the ends of float16 and float32, and rows of 70,000, against float64.

The `extremes` of a row of the table try numbers near the largest, near the smallest, and many of
them. The result and the gradient are those of float64, rounded once more: a step between that
overflows, loses its digits or rounds a count to inf would show.
"""

from __future__ import annotations

import functools
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from formulas import reference
from op_table import ROWS, OpRow
from op_table.extremes import MANY, NUMBERS, Extreme, signs

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import optim
from tinyattn.base.backend import quietly
from tinyattn.engine.autograd import wrap
from tinyattn.engine.op import registry

Array = np.ndarray
DTYPES = ["float16", "float32"]
# They move elements, or stand in the graph only with others of the table.
WITHOUT_ARITHMETIC = {
    *("transfer", "pack", "unpack", "putitem", "setitem", "diagonal", "triangle"),
    *("rotate_pairs", "weighted_sum"),
}
EACH = [(row, extreme) for row in ROWS for extreme in row.extremes]
each = pytest.mark.parametrize(
    ("row", "extreme"), EACH, ids=[f"{row.name}-{extreme.arguments}" for row, extreme in EACH]
)


def function_of(row: OpRow, extreme: Extreme) -> Callable[..., ta.Tensor]:
    return functools.partial(extreme.function or row.function, **extreme.options)


def arrays_of(extreme: Extreme, rng: np.random.Generator, dtype: str) -> list[Array]:
    words = extreme.arguments.split(",")
    return [NUMBERS[word](rng, np.finfo(dtype)).astype(dtype) for word in words]


def results(function: Callable[..., Any], arrays: list[Array], cotangent: Any) -> list[Array]:
    """The value, and the gradient of each argument."""
    tensors = [wrap(array.copy()).requires_grad_() for array in arrays]
    out = function(*tensors)
    grads = ta.grad(out, tensors, wrap(cotangent(out.shape).astype(out.dtype)), allow_unused=True)
    assert {g.dtype for g in grads if g is not None} <= {arrays[0].dtype}
    return [out.numpy(), *(g.numpy() for g in grads if g is not None)]


def assert_rounded(actual: Array, exact: Array, rtol: float, of_largest: bool) -> None:
    """Equal but for roundings: of numbers below the smallest normal one, in its last place."""
    info = np.finfo(actual.dtype)
    assert actual.shape == exact.shape
    size = np.abs(exact).max(initial=0.0) if of_largest else np.abs(exact)
    allowed = rtol * float(info.eps) * np.minimum(size, float(info.max))
    allowed = allowed + float(info.smallest_subnormal)
    limited = np.clip(exact, -float(info.max), float(info.max))  # beyond, inf is right too
    error = np.abs(np.clip(actual.astype(np.float64), -float(info.max), float(info.max)) - limited)
    wrong = ~(error <= allowed)
    assert not wrong.any(), f"{actual[wrong][:4]} should be {exact[wrong][:4]}"


@pytest.mark.parametrize("dtype", DTYPES)
@each
def test_as_in_float64(row: OpRow, extreme: Extreme, dtype: str) -> None:
    rng = np.random.default_rng(zlib.crc32(extreme.arguments.encode()))
    function, arrays = function_of(row, extreme), arrays_of(extreme, rng, dtype)
    seed = int(rng.integers(1 << 30))

    def cotangent(shape: tuple[int, ...]) -> Array:
        return signs(np.random.default_rng(seed), *shape).astype(dtype)

    found = results(function, arrays, cotangent)
    exact = results(function, [x.astype(np.float64) for x in arrays], cotangent)
    for actual, right in zip(found, exact, strict=True):
        assert actual.dtype == dtype
        rtol = extreme.rtol_of_half if dtype == "float16" else extreme.rtol
        assert_rounded(actual, right, rtol, extreme.of_largest)


def test_every_operation_has_extremes() -> None:
    reached: set[str] = set()
    for row, extreme in EACH:
        arrays = arrays_of(extreme, np.random.default_rng(0), "float32")
        nodes = [function_of(row, extreme)(*(wrap(x).requires_grad_() for x in arrays)).grad_fn]
        while nodes:
            node = nodes.pop()
            if node is not None and node.plan is not None:
                reached.add(node.name)
                nodes += node.parents
    with_a_derivative = {name for name, op in registry.items() if op.spec.rules}
    missing = with_a_derivative - WITHOUT_ARITHMETIC - reached
    assert missing == set(), "add extremes= to their rows in tests/gradients/op_table"


# Optimizers

WEIGHT, GRAD = [0.5, -2.0, 1e-3, 3e4, 0.01], [1e-6, 2e4, -1e-3, -2e-2, 2e4]
OPTIMIZERS: dict[str, Callable[[list[ta.Tensor]], Any]] = {
    "SGD": lambda w: optim.SGD(w, lr=0.1),
    "SGD, small rate": lambda w: optim.SGD(w, lr=1e-6),
    "SGD, decay": lambda w: optim.SGD(w, lr=1.0, weight_decay=1e-6),
    "SGD, momentum": lambda w: optim.SGD(w, lr=1e-6, momentum=0.9),
    "SGD, dampening": lambda w: optim.SGD(w, lr=1e-3, momentum=0.5, dampening=1e-6),
    "SGD, nesterov": lambda w: optim.SGD(
        w, lr=1e-6, momentum=0.9, nesterov=True, weight_decay=1e-7
    ),
    "Adam": lambda w: optim.Adam(w, lr=0.1),
    "Adam, decay": lambda w: optim.Adam(w, lr=0.1, weight_decay=1e-6),
    "AdamW": lambda w: optim.AdamW(w, lr=1e-3, weight_decay=1e-5),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_as_in_float64(name: str, dtype: str) -> None:
    """Three steps, each from the weights that the last one has rounded."""

    def trained(kind: str, starts: list[Array] | None) -> list[Array]:
        w = ta.tensor(np.array(WEIGHT, dtype), kind, requires_grad=True)
        optimizer, after = OPTIMIZERS[name]([w]), []
        for step in range(3):
            if starts is not None and step:
                with ta.no_grad():
                    w[...] = starts[step - 1]
            w.grad = ta.tensor(np.array(GRAD, dtype), kind) * (step + 1)
            optimizer.step()
            after.append(w.numpy())
        return after

    found = trained(dtype, None)
    for actual, exact in zip(found, trained("float64", found), strict=True):
        assert_rounded(actual, exact, 2.0, False)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_with_infinite_gradients_is_the_same_under_every_setting(name: str) -> None:
    """A warning that is an error would end the step in the middle."""

    def stepped() -> bytes:
        w = ta.tensor([1.0, 2.0], requires_grad=True)
        optimizer = OPTIMIZERS[name]([w])
        for value in (np.inf, -np.inf):
            w.grad = ta.tensor([value, 1.0])
            optimizer.step()
        return w.numpy().tobytes()

    results = []
    for action, setting in (("ignore", "warn"), ("error", "warn"), ("ignore", "raise")):
        with warnings.catch_warnings(), np.errstate(all=setting):
            warnings.simplefilter(action)
            results.append(stepped())
    assert len(set(results)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_norm", [1e-7, 1.0, 1e3])
def test_clipped_gradients_as_in_float64(max_norm: float, dtype: str) -> None:
    """The factor is smaller than the numbers of the dtype."""
    large = float(np.finfo(dtype).max) * 0.9
    w = ta.zeros(MANY, dtype=dtype, requires_grad=True)
    w.grad = ta.full((MANY,), large, dtype=dtype)
    norm = optim.clip_grad_norm_([w], max_norm)
    exact = np.full(MANY, max_norm / (norm + 1e-6)) * float(w.grad.dtype.type(large))
    assert norm == pytest.approx(large * MANY**0.5, rel=1e-3)
    assert w.grad.dtype == dtype
    assert_rounded(w.grad.numpy(), exact, 2.0, False)


# Derivatives of second order

KINKS: dict[str, Callable[[ta.Tensor], ta.Tensor]] = {
    "norm": lambda x: x.norm() ** 2,
    "norm along a dimension": lambda x: (x.norm(dim=0, keepdim=True) ** 2).sum(),
    "std": lambda x: x.std() ** 2,
}


@pytest.mark.parametrize("name", KINKS)
def test_a_length_has_no_second_derivative_at_0(name: str) -> None:
    """The first is 0 there. The second of its square would be 2, and 0 would be a wrong number."""
    x = ta.zeros(3, requires_grad=True)
    (grad,) = ta.grad(KINKS[name](x), x, create_graph=True)
    assert grad.tolist() == [0.0, 0.0, 0.0]
    (second,) = ta.grad(grad, x, ta.tensor([1.0, -2.0, 0.5]))
    assert np.isnan(second.numpy()).all()


@pytest.mark.parametrize("name", KINKS)
def test_the_second_derivative_of_a_squared_length_elsewhere(name: str) -> None:
    x = ta.tensor([1.0, -2.0, 4.0], dtype=ta.float64, requires_grad=True)
    (grad,) = ta.grad(KINKS[name](x), x, create_graph=True)
    pulled = np.array([1.0, -2.0, 0.5])
    (second,) = ta.grad(grad, x, ta.tensor(pulled))
    exact = pulled - pulled.mean() if name == "std" else 2 * pulled
    np.testing.assert_allclose(second.numpy(), exact, rtol=1e-13)


CURVED: dict[str, Callable[..., ta.Tensor]] = {
    **{name: getattr(F, name) for name in ("tanh", "sigmoid", "softplus", "gelu")},
    "gelu by tanh": functools.partial(F.gelu, approximate="tanh"),
    "erf": ta.erf,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CURVED)
def test_second_derivatives_as_in_float64(name: str, dtype: str) -> None:
    # 1 - sigmoid(2 u) has the digits of 1, and the second derivative multiplies it by u'^2 x.
    rtol = 64.0 if name == "gelu by tanh" else 16.0
    array = np.linspace(-4, 4, 33).astype(dtype)
    pulled = signs(np.random.default_rng(5), 33)
    found = []
    for kind in (dtype, "float64"):
        x = ta.tensor(array, kind, requires_grad=True)
        out = CURVED[name](x)
        (grad,) = ta.grad(out, x, ta.ones_like(out), create_graph=True)
        assert grad.dtype == kind
        found.append(ta.grad(grad, x, ta.tensor(pulled.astype(dtype), kind))[0].numpy())
    assert_rounded(found[0], found[1], rtol, True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_formula_of_gelu_tanhs_gradient_at_the_ends(dtype: str) -> None:
    """Kernels of Numba need not be there, and the formula is what the others are compared with."""
    x = np.array([99.0, 101.0, 1e30, np.finfo(dtype).max], dtype)
    for sign, expected in ((1, [1, 1, 1, 1]), (-1, [0, 0, 0, 0])):
        found = quietly(reference.gelu_tanh_backward, np.ones_like(x), sign * x)
        np.testing.assert_array_equal(found, expected)


ROUNDED_ONCE: dict[str, Callable[[ta.Tensor], ta.Tensor]] = {
    **{name: getattr(F, name) for name in ("gelu", "sigmoid", "silu", "softplus", "tanh")},
    **{name: getattr(ta, name) for name in ("cos", "erf", "exp", "expm1", "log", "log1p", "sin")},
    "gelu tanh": lambda x: F.gelu(x, "tanh"),
}


@pytest.mark.parametrize("name", ROUNDED_ONCE)
def test_a_value_in_float16_is_rounded_once(name: str) -> None:
    """For every finite float16: each step of a formula in float16 would add to the error."""
    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x)]
    with np.errstate(all="ignore"):
        found, exact = (ROUNDED_ONCE[name](ta.tensor(a)).numpy() for a in (x, x.astype(float)))
    assert found.dtype == np.float16
    is_number = np.abs(exact) < np.finfo(np.float16).max
    found, exact = found[is_number], exact[is_number]
    spacing = np.spacing(np.abs(exact).astype(np.float16)).astype(float)
    assert (np.abs(found - exact) <= 0.501 * spacing).all()


def test_the_slope_of_a_sigmoid_in_float16_has_the_digits_of_its_result() -> None:
    x = ta.tensor([6.0, -6.0, 3.0], dtype=ta.float16, requires_grad=True)
    x.sigmoid().backward(ta.tensor([1.0, -1.0, 1.0], dtype=ta.float16))
    exact = np.array([1.0, -1.0, 1.0]) / (2 + 2 * np.cosh([6.0, 6.0, 3.0]))
    np.testing.assert_allclose(x.grad.numpy(), exact, rtol=0.013)  # as PyTorch's


def test_the_slope_of_tanh_in_float16_is_rounded_once() -> None:
    """From the output, which is a float16 too."""
    x = ta.tensor(np.linspace(0.5, 4, 20), dtype=ta.float16, requires_grad=True)
    out = x.tanh()
    out.sum().backward()
    exact = 1 - out.numpy().astype(np.float64) ** 2
    np.testing.assert_array_equal(x.grad.numpy(), exact.astype(np.float16))
