"""Numbers at every door: what a dtype cannot hold is refused, and nothing is rounded too early."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.ops.order import first_in_order

BYTE, INT, FLAG = np.dtype(np.uint8), np.dtype(np.int64), np.dtype(np.bool_)
TENTH = 0.1  # in float32 it is another number


def zeros(dtype: np.dtype) -> ta.Tensor:
    return ta.zeros(2, dtype=dtype)


def written(dtype: np.dtype, value: Any, index: Any = 0) -> ta.Tensor:
    x = zeros(dtype)
    x[index] = value
    return x


def added(dtype: np.dtype, value: Any) -> ta.Tensor:
    x = zeros(dtype)
    x += value
    return x


def replaced(dtype: np.dtype, value: Any) -> ta.Tensor:
    x = zeros(dtype)
    x.data = [value, value]
    return x


# Every door: it gives a Tensor of this dtype with the number in it.
DOORS: dict[str, Callable[[np.dtype, Any], ta.Tensor]] = {
    "tensor": lambda dtype, value: ta.tensor(value, dtype),
    "tensor of a list": lambda dtype, value: ta.tensor([0, value], dtype=dtype),
    "tensor of an array": lambda dtype, value: ta.tensor(np.array([value]), dtype),
    "tensor of a NumPy number": lambda dtype, value: ta.tensor(np.array(value)[()], dtype),
    "Tensor": lambda dtype, value: ta.Tensor([[value]], dtype),
    "as_tensor": lambda dtype, value: ta.as_tensor([value], dtype),
    "full": lambda dtype, value: ta.full((2,), value, dtype),
    "full_like": lambda dtype, value: ta.full_like(zeros(dtype), value),
    "x[i] = v": written,
    "x[i] = [v]": lambda dtype, value: written(dtype, [value], [1]),
    "x[i] = array": lambda dtype, value: written(dtype, np.array(value)),
    "x.data = [v]": replaced,
    "masked_fill": lambda dtype, value: zeros(dtype).masked_fill([True, False], value),
    "pad": lambda dtype, value: F.pad(zeros(dtype), (0, 1), value=value),
}
# Doors through which a float beside integers makes floats: only integers can be refused.
OF_INTEGERS: dict[str, Callable[[np.dtype, Any], ta.Tensor]] = {
    "where": lambda dtype, value: ta.where([True, False], value, zeros(dtype)),
    "where, second": lambda dtype, value: ta.where([True, False], zeros(dtype), value),
    "clamp min": lambda dtype, value: zeros(dtype).clamp(min=value),
    "clamp max": lambda dtype, value: zeros(dtype).clamp(max=value),
    "maximum": lambda dtype, value: ta.maximum(zeros(dtype), value),
    "minimum": lambda dtype, value: ta.minimum(value, zeros(dtype)),
    "+": lambda dtype, value: zeros(dtype) + value,
    "+ of a NumPy number": lambda dtype, value: zeros(dtype) + np.int64(value),
    "- from the left": lambda dtype, value: value - zeros(dtype),
    "*": lambda dtype, value: zeros(dtype) * value,
    "//": lambda dtype, value: zeros(dtype) // value,
    "%": lambda dtype, value: zeros(dtype) % value,
    "+=": added,
    "randint": lambda dtype, value: ta.randint(min(value, 0), max(value, 0) + 1, (2,), dtype),
    "arange": lambda dtype, value: ta.arange(value, value + 1, dtype=dtype),
    "linspace": lambda dtype, value: ta.linspace(value, value, 2, dtype=dtype),
}


@pytest.mark.parametrize("value", [300, -1])
@pytest.mark.parametrize("door", [*DOORS, *OF_INTEGERS])
def test_an_integer_out_of_range_is_refused(door: str, value: int) -> None:
    with pytest.raises(DtypeError, match=rf"^{value}(\.0)? does not fit into a tensor of uint8"):
        (DOORS | OF_INTEGERS)[door](BYTE, value)


@pytest.mark.parametrize("dtype", [BYTE, INT, FLAG], ids=str)
@pytest.mark.parametrize("value", [1.5, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("door", DOORS)
def test_a_fraction_nan_and_inf_are_refused(door: str, value: float, dtype: np.dtype) -> None:
    with pytest.raises(DtypeError, match=rf"^{value} does not fit into a tensor of {dtype}"):
        DOORS[door](dtype, value)


@pytest.mark.parametrize("dtype", [BYTE, FLAG, np.dtype(np.float32)], ids=str)
@pytest.mark.parametrize(
    ("door", "value"),
    [
        (door, value)
        for door in DOORS
        for value in (1j, "text", b"text", None, 2**70)
        if (door, value) != ("pad", None)  # its default, which means 0
    ],
    ids=str,
)
def test_what_is_no_number_is_refused(door: str, value: Any, dtype: np.dtype) -> None:
    """An integer of more than 64 bits is none that NumPy has; write it as a float."""
    with pytest.raises(DtypeError, match=r"^tensors hold booleans, integers or floats up to 64"):
        DOORS[door](dtype, value)


@pytest.mark.parametrize("door", [*DOORS, *OF_INTEGERS])
def test_what_fits_is_held(door: str) -> None:
    """255 is the largest, and 1.0 and True are integers too."""
    for value in (255, 1):
        x = (DOORS | OF_INTEGERS)[door](BYTE, value)
        assert x.dtype == BYTE
        assert door in ("*", "//", "%", "minimum", "randint", "clamp max") or value in x.flatten()
    if door in DOORS:
        for value in (1.0, True, np.float32(1)):
            assert 1 in DOORS[door](BYTE, value).flatten()
            assert True in DOORS[door](FLAG, value).flatten()


def test_a_call_that_is_refused_changes_nothing() -> None:
    x = ta.tensor([1, 2], dtype=ta.uint8)
    before, version = x.data, x._version.changes
    for wrong in (
        lambda: x.__setitem__(0, 300),
        lambda: x.__iadd__(300),
        lambda: x.__imul__(x64()),
    ):
        with pytest.raises(DtypeError):
            wrong()
    x_of_int = ta.tensor([1, 2], dtype=ta.uint8)
    with pytest.raises(DtypeError, match="300 does not fit into a tensor of uint8"):
        x_of_int += ta.tensor([299, 0])
    assert x_of_int.tolist() == x.tolist() == [1, 2]
    assert x._version.changes == version
    assert before.base is x._data or before.base is x._data.base


def test_an_integer_buffer_takes_only_what_fits() -> None:
    module = nn.Module()
    module.register_buffer("x", ta.zeros(1, dtype=ta.int32))
    module.load_state_dict({"x": ta.tensor([7])})
    with pytest.raises(DtypeError, match="4294967303 does not fit into a tensor of int32"):
        module.load_state_dict({"x": ta.tensor([2**32 + 7])})
    assert module.x.tolist() == [7]


def test_only_a_conversion_of_a_tensor_wraps_and_cuts_off() -> None:
    assert ta.tensor([300, -1]).to(ta.uint8).tolist() == [44, 255]
    assert ta.tensor([1.9, -1.9]).long().tolist() == [1, -1]
    for value, dtype in ((1.5, ta.int64), (300, ta.uint8), (2, ta.bool)):
        with pytest.raises(DtypeError, match=f"{value} does not fit into a tensor of"):
            ta.as_tensor(ta.tensor([value]), dtype=dtype)
    x = ta.tensor([3.0], requires_grad=True)
    assert ta.as_tensor(x, dtype=ta.int64).tolist() == [3]
    assert ta.as_tensor(x, dtype=ta.float64).requires_grad
    assert ta.tensor([0.5, 0.0]).bool().tolist() == [True, False]


@pytest.mark.parametrize("data", [[2**63, -1], [[2**63], [-5]], (np.int64(-1), 2**63)])
def test_integers_that_no_integer_dtype_holds_together_are_refused(data: Any) -> None:
    """NumPy makes float64 of them, and 2**63 + 1 would be 2**63."""
    for make in (ta.tensor, ta.as_tensor, ta.Tensor):
        with pytest.raises(
            DtypeError, match=rf"holds both -[15] and {2**63}: give dtype=ta\.float"
        ):
            make(data)
    assert ta.tensor([2**63, -1], dtype=ta.float64).tolist() == [2.0**63, -1.0]
    assert ta.tensor([1e30, -1]).dtype == ta.tensor([2**63, 0.5]).dtype == np.float32
    assert ta.tensor([2**63]).tolist() == [2**63]


def test_a_value_that_does_not_fill_a_shape_is_refused() -> None:
    for make in (lambda v: ta.full((2,), v), lambda v: ta.full_like(ta.ones(2), v)):
        with pytest.raises(ShapeError, match=r"broadcasts to .* \(2,\), got shape \(3,\)"):
            make([1, 2, 3])
        assert make([1.0, 2.0]).tolist() == [1.0, 2.0]


def test_arithmetic_of_tensors_wraps_as_in_pytorch() -> None:
    x = ta.tensor([200, 1], dtype=ta.uint8)
    assert (x + x).tolist() == [144, 2]
    x += x
    assert x.tolist() == [144, 2]


def test_a_comparison_holds_nothing_and_is_exact() -> None:
    x = ta.tensor([0, 255], dtype=ta.uint8)
    assert (x == 300).tolist() == (x > 300).tolist() == [False, False]
    assert (x < 300).tolist() == (x > -1).tolist() == [True, True]
    for dtype, small, large in ((ta.float16, 1e-8, 7e4), (ta.float32, 1e-46, 1e39)):
        y = ta.tensor([0.0, math.inf], dtype=dtype)
        assert (y == small).tolist() == (y == large).tolist() == [False, False]
        assert (y >= small).tolist() == (y > large).tolist() == [False, True]
        assert (y <= large).tolist() == (y < small).tolist() == [True, False]
        assert (y != large).tolist() == [True, True]
        assert (-y == -small).tolist() == (-y == -large).tolist() == [False, False]
        assert (-y <= -small).tolist() == (-y < -large).tolist() == [False, True]
    for number in (0.1, 123456.7):  # in float32, as in PyTorch
        assert (ta.tensor([number]) == number).tolist() == [True]


@pytest.mark.parametrize("number", [1e5, -1e5, 1e-9, -1e-9])
def test_a_number_beyond_float16_counts_in_full(number: float) -> None:
    x = ta.tensor([0.5e2 / number], dtype=ta.float32).clamp(-6e4, 6e4).half()
    exact = float(x) * number
    assert (x * number).item() == (number * x).item() == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, "3", 1j, None])
def test_arange_and_linspace_take_finite_numbers(wrong: Any) -> None:
    for call in (
        lambda: ta.arange(0, 5, wrong),
        lambda: ta.linspace(0, wrong, 3),
        lambda: ta.linspace(wrong, 1, 3),
    ):
        with pytest.raises(TypeError, match="takes finite numbers, got"):
            call()


def test_logsumexp_of_more_numbers_than_float16_counts() -> None:
    total = ta.zeros(70_000, dtype=ta.float16).logsumexp(0)
    assert total.dtype == np.float16
    assert total.item() == float(np.float16(math.log(70_000)))


def test_float16_of_a_uniform_number_is_never_1() -> None:
    ta.manual_seed(0)
    assert ta.rand(100_000, dtype=ta.float16).amax().item() == 1 - 2**-11


def test_one_zero_among_integer_divisors_is_an_error() -> None:
    x = ta.tensor([7, 8])
    for divide in (lambda y: x // y, lambda y: x % y):
        with pytest.raises(ZeroDivisionError, match="integer was divided by 0"):
            divide(ta.tensor([2, 0]))
        assert divide(ta.tensor([2, 3])).ndim == 1


def test_a_number_without_dimensions_takes_dimension_0() -> None:
    x = ta.tensor(3.0)
    for dim in (0, -1, (0,), None):
        assert x.sum(dim).item() == x.mean(dim).item() == x.amax(dim).item() == 3.0


def test_integers_divide_to_float32() -> None:
    x = ta.tensor([1, 2])
    results = [x / 3, 3 / x, x / x, x * 0.1, x / ta.tensor(2.0), ta.where([True, False], 0.5, x)]
    assert {result.dtype for result in results} == {np.dtype(np.float32)}
    assert (x / ta.tensor(2.0, dtype=ta.float64)).dtype == np.float64


def test_a_number_beyond_the_integers_divides_them(torch: Any) -> None:
    """Nothing has to hold it, because the quotient is a float."""
    for t in (ta, torch):
        pixels = t.tensor([128, 255], dtype=t.uint8)
        assert (pixels / 256).tolist() == [0.5, 0.99609375]
        assert (pixels / -1).tolist() == [-128, -255]
        assert (1000 / pixels[:1]).tolist() == [7.8125]
    assert (2**70 / ta.tensor([2**20])).tolist() == [2.0**50]


def test_every_number_but_0_is_a_true_condition() -> None:
    assert ta.where(ta.tensor([-1.0, 0.0, 2.0]), 1, 0).tolist() == [1, 0, 1]


def test_a_boolean_is_no_index_of_a_list() -> None:
    assert ["a", "b"][ta.tensor(1)] == "b"
    for x in (ta.tensor(True), ta.tensor(1.0)):
        with pytest.raises(DtypeError, match="only an integer tensor can be an index"):
            ["a", "b"][x]


def test_a_filling_tensor_does_not_change_the_dtype() -> None:
    x = ta.tensor([1, 2])
    assert x.masked_fill([True, False], ta.tensor(7.0)).dtype == ta.int64
    assert x.masked_fill([True, False], ta.tensor(7.0)).tolist() == [7, 2]
    with pytest.raises(DtypeError, match=r"1.5 does not fit into a tensor of int64"):
        x.masked_fill([True, False], ta.tensor(1.5))


@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_keep_their_order_in_a_long_row(descending: bool) -> None:
    """NumPy's default sorts short rows by insertion, which is stable; longer ones not."""
    values = np.random.default_rng(0).integers(0, 5, 1000)
    order = np.argsort(-values if descending else values, kind="stable")
    for x in (ta.tensor(values), ta.tensor(values).float()):
        assert x.argsort(descending=descending).tolist() == order.tolist()
        assert x.sort(descending=descending).indices.tolist() == order.tolist()
        assert x.topk(700, largest=descending).indices.tolist() == order[:700].tolist()


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("kind", ["distinct", "equal", "NaN"])
def test_topk_of_many_is_the_beginning_of_the_order(kind: str, largest: bool) -> None:
    """Few of many are found without sorting all; the order is that of sorting all the same."""
    values = np.random.default_rng(1).standard_normal((3, 400), np.float32)
    if kind == "equal":
        values = np.round(values)
    elif kind == "NaN":
        values[1, ::50] = math.nan
    x = ta.tensor(values)
    order = x.argsort(descending=largest)[:, :20]
    found = x.topk(20, largest=largest)
    assert found.indices.tolist() == order.tolist()
    assert np.array_equal(found.values.numpy(), x.gather(1, order).numpy(), equal_nan=True)
    assert x.T.topk(20, 0, largest=largest).indices.T.tolist() == order.tolist()
    if kind == "distinct":
        assert first_in_order(values, 20, largest) is not None  # None would sort all


@pytest.mark.parametrize("exponent", [-0.5, *range(-8, 9)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_ends_of_powers_are_those_of_the_c_library(exponent: float, dtype: type) -> None:
    info = np.finfo(dtype)
    ends = [0.0, -0.0, math.inf, 1.0, info.tiny, info.smallest_subnormal, info.max, 3.0, math.nan]
    if abs(exponent) > 1:
        ends.append(1.1 * float(info.max) ** (1 / abs(exponent)))  # whose power is just too large
    x = np.array([*ends, *(-value for value in ends)], dtype)
    with np.errstate(all="ignore"):
        expected = np.power(x, np.full(x.shape, exponent, dtype))
    found = (ta.tensor(x) ** exponent).numpy()
    assert found.dtype == dtype
    assert np.array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))
    np.testing.assert_allclose(found, expected, rtol=4 * info.eps, atol=info.smallest_subnormal)


@pytest.mark.parametrize("wrong", [-0.5, math.nan, math.inf])
def test_weights_that_cannot_be_drawn_from(wrong: float) -> None:
    for replacement in (False, True):
        with pytest.raises(ValueError, match="multinomial takes finite weights >= 0"):
            ta.tensor([1.0, wrong, 3.0]).multinomial(1, replacement)


def test_random_numbers_of_a_dtype_that_cannot_hold_them() -> None:
    assert set(ta.randint(0, 256, (2000,), dtype=ta.uint8).tolist()) == set(range(256))
    for low, high in ((0, 257), (-1, 3)):
        with pytest.raises(DtypeError, match="does not fit into a tensor of uint8"):
            ta.randint(low, high, (0,), dtype=ta.uint8)
    with pytest.raises(DtypeError, match="randn needs a floating dtype, got int64"):
        ta.randn(3, dtype=ta.int64)


# A number keeps its digits beside float64


def x64(*numbers: float, **options: Any) -> ta.Tensor:
    return ta.tensor(numbers or [2.0, 3.0], dtype=ta.float64, **options)


def changed(change: Callable[[ta.Tensor], Any]) -> ta.Tensor:
    x = x64()
    change(x)
    return x


def put(index: Any, value: Any) -> ta.Tensor:
    return changed(lambda x: x.__setitem__(index, value))


def stepped(optimizer: type, **options: Any) -> ta.Tensor:
    """One step from 0 with the gradient 1."""
    x = x64(0.0, requires_grad=True)
    x.grad = x64(1.0)
    optimizer([x], **options).step()
    return -x.detach()


LOGITS = x64(1.0, 2.0).reshape(1, 2)
# (what tinyattn computes, what NumPy's float64 gives)
BESIDE_FLOAT64: dict[str, tuple[Callable[[], ta.Tensor], Any]] = {
    "x[i] = v": (lambda: put(0, TENTH), [0.1, 3.0]),
    "x[i] = large": (lambda: put(0, 1e40), [1e40, 3.0]),
    "x[i] = list": (lambda: put(slice(None), [TENTH, 1e40]), [0.1, 1e40]),
    "x[i] = nested list": (lambda: put(slice(None), [[TENTH, 0.2]]), [0.1, 0.2]),
    "x[i] = NumPy number": (lambda: put(1, np.float64(TENTH)), [2.0, 0.1]),
    "x[mask] = v": (lambda: put([True, False], TENTH), [0.1, 3.0]),
    "x[...] = v": (lambda: put(..., TENTH), [0.1, 0.1]),
    "x.data = list": (lambda: changed(lambda x: setattr(x, "data", [TENTH, 1e40])), [0.1, 1e40]),
    "where": (lambda: ta.where([True, False], TENTH, x64()), [0.1, 3.0]),
    "where, second": (lambda: ta.where([True, False], x64(), TENTH), [2.0, 0.1]),
    "masked_fill": (lambda: x64().masked_fill([True, False], TENTH), [0.1, 3.0]),
    "clamp": (lambda: x64(0.0, 1.0).clamp(TENTH, 0.7), [0.1, 0.7]),
    "clamp by a Tensor": (lambda: x64(0.0, 1.0).clamp(x64(-1.0, -1.0), 0.7), [0.0, 0.7]),
    "maximum": (lambda: ta.maximum(x64(0.0), TENTH), [0.1]),
    "minimum": (lambda: ta.minimum(TENTH, x64(1.0)), [0.1]),
    "pad": (lambda: F.pad(x64(), (1, 0), value=TENTH), [0.1, 2.0, 3.0]),
    "full_like": (lambda: ta.full_like(x64(), TENTH), [0.1, 0.1]),
    "full": (lambda: ta.full((2,), TENTH, dtype=ta.float64), [0.1, 0.1]),
    "tensor": (lambda: ta.tensor(TENTH, dtype=ta.float64), 0.1),
    "as_tensor": (lambda: ta.as_tensor([TENTH], dtype=ta.float64), [0.1]),
    "arange": (lambda: ta.arange(0.1, 0.3, 0.1, dtype=ta.float64), np.arange(0.1, 0.3, 0.1)),
    "linspace": (lambda: ta.linspace(0.1, 0.7, 3, dtype=ta.float64), np.linspace(0.1, 0.7, 3)),
    "+": (lambda: x64() + TENTH, [2.1, 3.1]),
    "+ list": (lambda: x64().__add__([TENTH, 0.2]), [2.1, 3.2]),
    "- from the left": (lambda: TENTH - x64(), [0.1 - 2, 0.1 - 3]),
    "*": (lambda: x64() * TENTH, [2 * 0.1, 3 * 0.1]),
    "/": (lambda: x64() / TENTH, [2 / 0.1, 3 / 0.1]),
    "**": (lambda: x64() ** TENTH, np.array([2.0, 3.0]) ** 0.1),
    "** from the left": (lambda: TENTH ** x64(), 0.1 ** np.array([2.0, 3.0])),
    "%": (lambda: x64() % TENTH, np.array([2.0, 3.0]) % 0.1),
    "//": (lambda: x64() // TENTH, np.array([2.0, 3.0]) // 0.1),
    "+=": (lambda: changed(lambda x: x.__iadd__(TENTH)), [2.1, 3.1]),
    "*= list": (lambda: changed(lambda x: x.__imul__([TENTH, 1e40])), [2 * 0.1, 3 * 1e40]),
    "==": (lambda: (x64(TENTH) == TENTH).double(), [1.0]),
    "==, rounded": (lambda: (x64(float(np.float32(TENTH))) == TENTH).double(), [0.0]),
    "constant_": (lambda: nn.init.constant_(x64(), TENTH), [0.1, 0.1]),
    "Adam": (lambda: stepped(optim.Adam, lr=TENTH, eps=0.0), [0.1]),
    "SGD": (lambda: stepped(optim.SGD, lr=TENTH), [0.1]),
    "cross_entropy with a list": (
        lambda: F.cross_entropy(LOGITS, [[TENTH, 0.9]]),
        np.log1p(np.exp(-1.0)) + 0.1,
    ),
    "label_smoothing": (
        lambda: F.cross_entropy(LOGITS, [1], label_smoothing=TENTH),
        np.log1p(np.exp(-1.0)) + 0.05,
    ),
    "layer_norm's eps": (
        lambda: F.layer_norm(x64(-1.0, 1.0), 2, eps=TENTH),
        np.array([-1.0, 1.0]) / np.sqrt(1.1),
    ),
    "rms_norm's eps": (
        lambda: F.rms_norm(x64(-1.0, 1.0), 2, eps=TENTH),
        np.array([-1.0, 1.0]) / np.sqrt(1.1),
    ),
    "normalize's eps": (lambda: F.normalize(x64(0.01), dim=0, eps=TENTH), [0.01 / 0.1]),
    "normalize's eps of p=1": (
        lambda: F.normalize(x64(0.01, -0.01), p=1, dim=0, eps=TENTH),
        [0.01 / 0.1, -0.01 / 0.1],
    ),
    "dropout's scale": (
        lambda: F.dropout(x64(*[1.0] * 64), p=TENTH).amax().reshape(1),
        [1 / (1 - 0.1)],
    ),
}


@pytest.mark.parametrize("name", BESIDE_FLOAT64)
def test_beside_float64_no_number_is_rounded_to_float32(name: str) -> None:
    compute, expected = BESIDE_FLOAT64[name]
    found = compute()
    assert found.dtype == np.float64
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-15)


def test_a_number_of_numpy_in_a_list_keeps_its_dtype() -> None:
    for data in ([np.float64(TENTH)], [[0.2, np.float64(TENTH)]], (np.array(TENTH),)):
        x = ta.tensor(data)
        assert x.dtype == np.float64
        assert x.flatten()[-1].item() == TENTH
    assert ta.tensor([TENTH]).dtype == np.float32


def test_a_gradient_of_float64_is_not_rounded_to_float32() -> None:
    x = x64(2.0, requires_grad=True)
    (x * TENTH).backward(x64(TENTH))
    assert x.grad.item() == 0.1 * 0.1
    (grad,) = ta.grad(TENTH / x, x, x64(1.0))
    np.testing.assert_allclose(grad.item(), -0.1 / 4, rtol=1e-15)


# A float beyond the range becomes inf, whatever the user's settings of warnings are

LINEAR = nn.Linear(1, 1, bias=False)


def loads() -> ta.Tensor:
    LINEAR.load_state_dict({"weight": ta.tensor([[1e300]], dtype=ta.float64)})
    return LINEAR.weight


def h(value: float) -> ta.Tensor:
    return ta.tensor([value], dtype=ta.float16)


TO_INF: dict[str, Callable[[], ta.Tensor]] = {
    "tensor": lambda: ta.tensor([1e300]),
    "tensor of a number": lambda: ta.tensor(1e6, dtype=ta.float16),
    "tensor of an array": lambda: ta.tensor(np.array([1e300]), dtype=ta.float32),
    "full": lambda: ta.full((1,), 1e300),
    "x[i] = v": lambda: changed_32(lambda x: x.__setitem__(0, 1e300)),
    "x[i] = Tensor": lambda: changed_32(lambda x: x.__setitem__(..., x64(1e300))),
    "x += Tensor": lambda: changed_32(lambda x: x.__iadd__(x64(1e300))),
    "x.data = v": lambda: changed_32(lambda x: setattr(x, "data", [1e300])),
    "to": lambda: x64(1e300).to(ta.float32),
    "load_state_dict": loads,
    "constant_": lambda: nn.init.constant_(ta.zeros(1), 1e300),
    "masked_fill": lambda: ta.zeros(1).masked_fill([True], 1e300),
    "where": lambda: ta.where([True], 1e300, ta.zeros(1)),
    "pad": lambda: F.pad(ta.zeros(0), (1, 0), value=1e300),
    "linspace": lambda: ta.linspace(1e300, 1e300, 1),
    "an op that overflows": lambda: ta.tensor([1e38]) * 100,
    "a wider number": lambda: h(6e4) * 1e6,
    "a power": lambda: h(300.0) ** 2,
    "a Tensor of another dtype": lambda: ta.zeros(1) + ta.tensor(1e300, dtype=ta.float64),
    "exp": lambda: h(100.0).exp(),
    "sum": lambda: ta.full((4,), 3e38).sum(),
    "cross_entropy": lambda: F.cross_entropy(ta.tensor([[3e38, -3e38]]), [1]),
    "mse_loss": lambda: F.mse_loss(ta.tensor([3e38]), ta.tensor([0.0])),
    "norm": lambda: ta.full((4,), 3e38).norm(),
}


def changed_32(change: Callable[[ta.Tensor], Any]) -> ta.Tensor:
    x = ta.zeros(1)
    change(x)
    return x


@pytest.mark.parametrize("setting", ["default", "-W error", "errstate"])
@pytest.mark.parametrize("door", TO_INF)
def test_a_float_beyond_the_range_is_inf_under_every_setting(door: str, setting: str) -> None:
    with warnings.catch_warnings(), np.errstate(all="raise" if setting == "errstate" else "warn"):
        warnings.simplefilter("error" if setting == "-W error" else "ignore")
        before = np.geterr()
        x = TO_INF[door]()
        assert np.geterr() == before
    assert np.isinf(x.numpy()).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, n: ta.maximum(x, n),
        lambda x, n: ta.minimum(x, n),
        lambda x, n: ta.where(x > 200, x, n),
        lambda x, n: x + n,
        lambda x, n: x // n,
        lambda x, n: operator.iadd(x, n),
    ],
)
@pytest.mark.parametrize("number", [300, -1, 2**40])
def test_a_0d_tensor_of_integers_must_fit_as_a_number_must(call, number):
    for one in (number, ta.tensor(number), np.array(number)):
        x = ta.tensor([100, 7], dtype=ta.uint8)
        with pytest.raises(DtypeError, match=f"{number} does not fit into a tensor of uint8"):
            call(x, one)
        assert x.tolist() == [100, 7]
    fits = call(ta.tensor([100, 7], dtype=ta.uint8), ta.tensor(50))
    assert fits.equal(call(ta.tensor([100, 7], dtype=ta.uint8), 50))
    assert fits.dtype == ta.uint8


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
@pytest.mark.parametrize("dims", [0, 1, 2])
def test_the_gradient_of_an_index_that_counts_from_the_end(dtype: Any, dims: int) -> None:
    """300 rows do not fit into a byte, and the kernels read and write where they are told."""
    index = np.array([2, 0, 2, 127], dtype)
    if np.issubdtype(dtype, np.signedinteger):
        index = np.append(index, dtype(-1))
    shape = [2, 3, 4]
    shape[dims] = 300
    x = ta.tensor(np.zeros(shape, np.float32), requires_grad=True)
    places = (slice(None),) * dims + (index,)
    out = x[places] if dims else x[index]
    grad = np.random.default_rng(dims).standard_normal(out.shape).astype(np.float32)
    out.backward(ta.tensor(grad))
    exact = np.zeros(shape)
    np.add.at(exact, places, grad)
    np.testing.assert_allclose(x.grad.numpy(), exact, rtol=1e-6)


def test_the_eps_of_rms_norm_is_that_of_float32_for_float16() -> None:
    """Beside the mean of these squares, 2.5e-6, the eps of float16, 1e-3, would be all."""
    x = ta.tensor(np.array([[1e-3, -2e-3]], np.float16))
    right = F.rms_norm(x.double(), 2, eps=float(np.finfo(np.float32).eps))
    np.testing.assert_allclose(F.rms_norm(x, 2).numpy(), right.numpy(), rtol=2e-3)
