"""Functions of Tensors where a formula turns into another one: small integers, halves, zeros,
numbers beside arrays, ties of shapes, and derivatives of second order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from common import leaf, signed

import tinyattn as ta

nan, inf = math.nan, math.inf


# Powers


@pytest.mark.parametrize("exponent", [2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, -5, -6, -7, -8])
def test_a_power_of_float16_is_rounded_once(exponent: int) -> None:
    x = np.linspace(0.4, 2.5, 300).astype(np.float16)
    right = (x.astype(np.float64) ** exponent).astype(np.float16)
    found = (ta.tensor(x) ** exponent).numpy()
    assert found.dtype == np.float16
    # A float32 may lie on the other side of the middle between two numbers of float16.
    assert (found != right).sum() <= 1
    np.testing.assert_allclose(found, right, rtol=1e-3)


def test_a_negative_power_of_a_small_number_does_not_overflow_on_its_way() -> None:
    x = ta.tensor([1e-6, 1e6, -1e6])
    np.testing.assert_allclose((x**-6).numpy(), [1e36, 1e-36, 1e-36], rtol=1e-5)
    assert (ta.tensor([1e6]) ** -8).item() == 0
    assert (ta.tensor([1e-6]) ** -8).item() == inf


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int64])
def test_a_fractional_power_of_integers_is_exact_in_float32(dtype: Any) -> None:
    x = np.array([3, 7, 100], dtype)
    for exponent in (-0.5, 0.5, -1.5, -2.0, 3.0):
        found = ta.tensor(x) ** exponent
        assert found.dtype == np.float32
        np.testing.assert_allclose(found.numpy(), x.astype(np.float64) ** exponent, rtol=1e-6)


def test_the_inverse_root_of_zeros_and_of_what_is_below_them() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        x = ta.tensor([0.0, -0.0, -inf, inf, -1.0, nan, 4.0], dtype=dtype)
        np.testing.assert_array_equal((x**-0.5).numpy(), [inf, inf, 0, 0, nan, nan, 0.5])
        np.testing.assert_array_equal((x[-1:] ** -0.5).numpy(), [0.5])
        assert (x[:0] ** -0.5).shape == (0,)


@pytest.mark.parametrize("exponent", [-1, -3])
def test_a_negative_integer_power_of_integers_is_refused(exponent: int) -> None:
    with pytest.raises(ValueError, match=r"[Ii]nteger"):
        ta.tensor([1, 2]) ** exponent


@pytest.mark.parametrize("base", [2.0, 0.5, 1, 3])
def test_the_gradient_of_a_power_of_a_positive_number(base: float) -> None:
    exponents = np.array([-2.0, -0.5, 0.0, 1.0, 2.5])
    y, grad = leaf(exponents), np.array([0.7, -1.3, 0.9, -0.6, 1.1])
    (found,) = ta.grad(base**y, y, ta.tensor(grad))
    np.testing.assert_allclose(found.numpy(), grad * base**exponents * math.log(base), rtol=1e-12)


def test_the_gradient_of_a_power_of_zero_and_of_a_negative_number() -> None:
    y = leaf([0.0, 1.0, 2.5])
    assert ta.grad(0.0**y, y, ta.tensor([0.7, -1.3, 0.9]).double())[0].tolist() == [0, 0, 0]
    below = leaf([-1.0])
    assert ta.grad(0.0**below, below)[0].tolist() == [-inf]
    even = leaf([2.0])
    assert np.isnan(ta.grad((-2.0) ** even, even)[0].item())


def test_a_power_of_zero_is_flat_in_every_order() -> None:
    x, y = leaf([0.0, 0.0]), leaf([2000.0, 3.0])
    (slope,) = ta.grad(x**y, y, ta.tensor([0.7, -1.3]).double(), create_graph=True)
    assert slope.tolist() == [0, 0]
    (curvature,) = ta.grad(slope, y, ta.tensor([0.9, -0.6]).double())
    assert curvature.tolist() == [0, 0]


# Quotients


def test_a_fraction_beside_integers_stays_a_fraction() -> None:
    whole = ta.tensor([2, 3])
    np.testing.assert_allclose((7.5 % whole).numpy(), [1.5, 1.5])
    np.testing.assert_allclose((-7.5 // whole).numpy(), [-4, -3])
    np.testing.assert_allclose((whole % 1.5).numpy(), [0.5, 0])
    np.testing.assert_allclose((whole // 1.5).numpy(), [1, 2])
    np.testing.assert_allclose((7 % ta.tensor([2.5, -2.0])).numpy(), [2, -1])
    np.testing.assert_allclose((whole // ta.tensor([0.75, -2.0])).numpy(), [2, -2])
    np.testing.assert_allclose((whole % ta.tensor([0.75, -2.0])).numpy(), [0.5, -1])
    for result in (7.5 % whole, -7.5 // whole, whole % 1.5, whole // ta.tensor([0.75, -2.0])):
        assert result.dtype == np.float32
    for result in (7 % whole, 7 // whole):
        assert result.dtype == np.int64


def test_a_number_beyond_float16_keeps_its_value_beside_one() -> None:
    seven = ta.tensor([7.0], dtype=np.float16)
    for found, right in ((70_001 % seven, 1), (70_001 // seven, 10_000)):
        assert found.dtype == np.float16
        assert found.tolist() == [right]
    assert (-70_001 % seven).tolist() == [6]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, -1.5, 7, -7, inf, -inf, nan])
def test_quotients_of_a_number_are_those_of_an_array_of_it(dtype: Any, number: float) -> None:
    y = ta.tensor([0.4, -0.4, 3.0, -3.0, 0.0, -0.0, inf, -inf, nan], dtype=dtype)
    x = ta.full((9,), float(number), dtype=dtype)
    np.testing.assert_array_equal((number % y).numpy(), (x % y).numpy(), strict=True)
    np.testing.assert_array_equal((number // y).numpy(), (x // y).numpy(), strict=True)


# Choices


@pytest.mark.parametrize("size", [3, 20_000])
@pytest.mark.parametrize("kind", [np.bool_, np.int64, np.float32, np.float64])
def test_a_condition_is_true_where_it_is_not_zero(size: int, kind: Any) -> None:
    numbers = np.resize(np.array([0, 1, 0, -2, 0.5]), size).astype(kind)
    x, y = leaf(np.linspace(1, 2, size)), leaf(np.linspace(-3, -4, size))
    grad = np.linspace(-1, 2, size)
    for condition in (ta.tensor(numbers), numbers):
        out = ta.where(condition, x, y)
        np.testing.assert_array_equal(out.numpy(), np.where(numbers != 0, x.numpy(), y.numpy()))
        found = ta.grad(out, (x, y), ta.tensor(grad))
        np.testing.assert_array_equal(found[0].numpy(), np.where(numbers != 0, grad, 0))
        np.testing.assert_array_equal(found[1].numpy(), np.where(numbers != 0, 0, grad))


def test_a_condition_may_be_a_list() -> None:
    x = ta.tensor([1.0, 2.0])
    assert ta.where([True, False], x, 0.0).tolist() == [1, 0]
    assert ta.where([0, 1], 7, x).tolist() == [1, 7]


def test_a_filling_tensor_gets_its_gradient() -> None:
    x, value = leaf([[1.0, 2.0], [3.0, 4.0]]), leaf([10.0, 20.0])
    mask, grad = np.array([[True, False], [True, True]]), np.array([[0.7, -1.3], [0.9, -0.6]])
    out = x.masked_fill(mask, value)
    assert out.tolist() == [[10, 2], [10, 20]]
    of_x, of_value = ta.grad(out, (x, value), ta.tensor(grad))
    np.testing.assert_allclose(of_x.numpy(), np.where(mask, 0, grad), rtol=1e-6)
    np.testing.assert_allclose(of_value.numpy(), np.where(mask, grad, 0).sum(0), rtol=1e-6)


def test_clamp_takes_one_limit_or_two_and_each_may_be_a_tensor() -> None:
    numbers = np.array([-2.0, 0.5, 3.0, nan])
    low, high = np.array([-1.0, 1.0, 1.0, 1.0]), np.array([0.0, 2.0, 2.0, 2.0])
    for lower, upper in (
        (low, None), (None, high), (low, high), (low, 2.0), (-1.0, high), (-1.0, None), (None, 2.0),
        (-1.0, 2.0),
    ):  # fmt: skip
        limits = [
            ta.tensor(limit) if isinstance(limit, np.ndarray) else limit for limit in (lower, upper)
        ]
        right = numbers if lower is None else np.maximum(numbers, lower)
        right = right if upper is None else np.minimum(right, upper)
        found = ta.tensor(numbers).clamp(*limits)
        np.testing.assert_array_equal(found.numpy(), right)


NUMBERS = [int, float, np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64])
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_limit_may_be_a_number_of_every_kind(kind: Any, dtype: Any) -> None:
    """It leaves the dtype of floats as it is, and so does an integer that of integers."""
    x = np.array([-3, 0, 1, 2, 3, 9]).astype(dtype)
    for low, high in ((1, None), (None, 2), (1, 2), (0, 0)):
        limits = [None if limit is None else kind(limit) for limit in (low, high)]
        tensor = leaf(x) if x.dtype.kind == "f" else ta.tensor(x)
        found = tensor.clamp(*limits)
        lowest, highest = -9 if low is None else low, 9 if high is None else high
        np.testing.assert_array_equal(found.detach().numpy(), np.clip(x, lowest, highest))
        if x.dtype.kind != "f":
            assert found.dtype == dtype or kind(0.5) == 0.5  # a float beside integers
            continue
        grad = np.array([0.5, -1.5, 2.0, -0.25, 3.0, 1.0]).astype(dtype)
        (slope,) = ta.grad(found, tensor, ta.tensor(grad))
        assert found.dtype == slope.dtype == dtype
        np.testing.assert_array_equal(slope.numpy(), grad * ((x >= lowest) & (x <= highest)))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("kind", [int, np.int8, np.uint8, np.int64, np.uint64])
@pytest.mark.parametrize("number", [0, 1, 99, 101])
def test_an_integer_of_numpy_is_an_integer_beside_integers(
    number: int, kind: Any, dtype: Any
) -> None:
    """Also one of 64 bits beside others of 64 bits, of which NumPy makes floats."""
    x, y = np.array([5, 3]).astype(dtype), kind(number)
    tensor, same = ta.tensor(x), dtype(number)
    for found, right in (
        (tensor + y, x + same), (y + tensor, same + x), (tensor * y, x * same),
        (tensor - y, x - same), (y - tensor, same - x), (ta.where(tensor > 4, tensor, y),
        np.where(x > 4, x, same)), (y % tensor, same % x), (y // tensor, same // x),
        (tensor.clamp(y), np.maximum(x, same)), (tensor.clamp(max=y), np.minimum(x, same)),
    ):  # fmt: skip
        assert found.dtype == dtype
        np.testing.assert_array_equal(found.numpy(), right)


@pytest.mark.parametrize("limit", ["1", [1.0], np.array(1.0), np.array([1.0]), 1j], ids=repr)
def test_a_limit_that_is_no_number_is_refused(limit: Any) -> None:
    for limits in ((limit, None), (None, limit), (0.0, limit), (limit, 2.0)):
        with pytest.raises(TypeError) as refused:
            ta.ones(3).clamp(*limits)
        assert str(refused.value) == f"clamp takes a number as a limit, got {limit!r}"


def test_the_gradient_of_clamp_goes_to_the_limit_that_holds() -> None:
    x, low, high = leaf([-2.0, 0.5, 3.0]), leaf([-1.0, -1.0, -1.0]), leaf([2.0, 2.0, 2.0])
    grad = ta.tensor([0.7, -1.3, 0.9]).double()
    for found, right in zip(
        ta.grad(x.clamp(low, high), (x, low, high), grad),
        ([0, -1.3, 0], [0.7, 0, 0], [0, 0, 0.9]),
        strict=True,
    ):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-7)
    (found,) = ta.grad(x.clamp(-1, 2), x, grad)
    np.testing.assert_allclose(found.numpy(), [0, -1.3, 0], rtol=1e-7)


# Each element: values and slopes against formulas of NumPy

SLOPES: dict[str, tuple[Any, Any]] = {
    "exp": (np.exp, np.exp),
    "expm1": (np.expm1, np.exp),
    "log": (np.log, lambda x: 1 / x),
    "log1p": (np.log1p, lambda x: 1 / (1 + x)),
    "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    "rsqrt": (lambda x: x**-0.5, lambda x: -0.5 * x**-1.5),
    "reciprocal": (lambda x: 1 / x, lambda x: -(x**-2)),
    "square": (np.square, lambda x: 2 * x),
    "sin": (np.sin, np.cos),
    "cos": (np.cos, lambda x: -np.sin(x)),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "abs": (np.abs, np.sign),
    "erf": (np.vectorize(math.erf), lambda x: 2 / math.sqrt(math.pi) * np.exp(-(x**2))),
    "clone": (np.copy, np.ones_like),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", SLOPES)
def test_values_and_slopes_of_each_element(name: str, dtype: Any, rng: Any) -> None:
    value, slope = SLOPES[name]
    numbers = signed(rng, 3, 4).astype(dtype)
    if name in ("log", "log1p", "sqrt", "rsqrt"):
        numbers = abs(numbers)
    grad = signed(rng, 3, 4).astype(dtype)
    x, tolerance = leaf(numbers), {np.float16: 2e-3, np.float32: 1e-6, np.float64: 1e-13}[dtype]
    out = getattr(x, name)()
    assert out.dtype == dtype
    wide = numbers.astype(np.float64)
    np.testing.assert_allclose(out.detach().numpy(), value(wide), rtol=tolerance)
    (found,) = ta.grad(out, x, ta.tensor(grad))
    assert found.dtype == dtype
    np.testing.assert_allclose(found.numpy(), grad * slope(wide), rtol=4 * tolerance)


# Einstein sums


def test_operands_of_einsum_may_come_as_one_list(rng: Any) -> None:
    x, y = signed(rng, 2, 3), signed(rng, 3, 4)
    for operands in ([ta.tensor(x), ta.tensor(y)], (ta.tensor(x), ta.tensor(y))):
        np.testing.assert_allclose(ta.einsum("ij,jk->ik", operands).numpy(), x @ y)
    np.testing.assert_array_equal(ta.einsum("ij->ji", [ta.tensor(x)]).numpy(), x.T)


def test_dots_of_einsum_have_letters_of_their_own(rng: Any) -> None:
    x, y = signed(rng, 5, 2, 3), signed(rng, 5, 3, 4)
    for equation in ("...ab,...bc->...ac", "...zb,...ba->...za", "...ab,...bc"):
        right = np.einsum(equation, x, y)
        np.testing.assert_allclose(ta.einsum(equation, *map(ta.tensor, (x, y))).numpy(), right)
    for shapes in (((2, 3), (5, 3, 4)), ((5, 2, 3), (3, 4)), ((6, 1, 2, 3), (5, 3, 4))):
        x, y = (signed(rng, *shape) for shape in shapes)
        found = ta.einsum("...ab,...bc->...ac", ta.tensor(x), ta.tensor(y))
        np.testing.assert_allclose(found.numpy(), x @ y)


def test_dots_of_einsum_where_the_letters_run_out() -> None:
    letters = "abcdefghijklmnopqrstuvwxy"
    many, table = ta.ones((1,) * 26), ta.arange(6).reshape(2, 3).float()
    assert ta.einsum(f"...{letters},...->...", many, table).equal(table)
    assert ta.einsum(f"...,...{letters}->...", table, many).equal(table)


@pytest.mark.parametrize("equation", ["iji->ij", "iij->ji", "jii->j", "iii->i", "iij,j->i", "ii"])
def test_diagonals_of_einsum(equation: str, rng: Any) -> None:
    shapes = [(3,) * len(part) for part in equation.partition("->")[0].split(",")]
    arrays = [signed(rng, *shape) for shape in shapes]
    tensors = [leaf(array) for array in arrays]
    out = ta.einsum(equation, *tensors)
    right = np.einsum(equation, *arrays)
    np.testing.assert_allclose(out.detach().numpy(), right, rtol=1e-13)
    grad = signed(rng, *right.shape)
    whole = (right * grad).sum()  # linear in each operand, so that each slope tells the whole
    for found, array in zip(ta.grad(out, tensors, ta.tensor(grad)), arrays, strict=True):
        assert (found.numpy() * array).sum() == pytest.approx(whole)
