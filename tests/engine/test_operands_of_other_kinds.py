"""Numbers, lists and arrays beside a Tensor, as operands, as indices, and as what `x.data` is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import assert_close, leaf, rng_of, signed
from messages import all_differences

import tinyattn as ta
from tinyattn.errors import DtypeError, InPlaceError

# Operands

WITH_A_SLOPE = ["+", "-", "*", "/", "%", "**"]
COMPARISONS = ["<", "<=", "==", "!=", ">", ">="]
LOGIC = ["&", "|", "^"]
# Each makes an operand of an array of two numbers.
OPERANDS: dict[str, Any] = {
    "a list": lambda array: array.tolist(),
    "a tuple": lambda array: tuple(array.tolist()),
    "nested lists": lambda array: [array.tolist(), array[::-1].tolist()],
    "an array": lambda array: array,
    "an array of rows": lambda array: np.stack([array, array[::-1]]),
    "what x.data is": lambda array: ta.tensor(array).data,
    "a number": lambda array: array[0].item(),
    "a number of NumPy": lambda array: array[0],
    "a 0-d array": lambda array: np.array(array[0]),
    "a tensor": ta.tensor,
    "a 0-d tensor": lambda array: ta.tensor(array[0]),
}


@pytest.mark.parametrize("flip", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("kind", OPERANDS)
@pytest.mark.parametrize("sign", [*WITH_A_SLOPE, "//", *COMPARISONS, *LOGIC])
def test_operators_take_each_operand_on_either_side(sign: str, kind: str, flip: bool) -> None:
    """With the values of NumPy, and with the slope that differences of them show."""
    if sign in LOGIC:
        values, array = np.array([5, 6]), np.array([3, 12])
    else:
        values, array = np.array([1.25, 2.5]), np.array([2.0, 0.75])
    other = OPERANDS[kind](array)
    plain = np.asarray(other)
    code = f"y {sign} x" if flip else f"x {sign} y"
    x = ta.tensor(values, requires_grad=sign in WITH_A_SLOPE)
    found = eval(code, {"x": x, "y": other})
    assert type(found) is ta.Tensor
    expected = eval(code, {"x": values, "y": plain})
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)
    assert found.dtype == (np.bool_ if sign in COMPARISONS else values.dtype)
    assert found.requires_grad == x.requires_grad
    if sign in WITH_A_SLOPE:
        cotangent, h = signed(rng_of(7), *found.shape), 1e-6
        (slope,) = ta.grad(found, x, ta.tensor(cotangent))
        up, down = (eval(code, {"x": values + step, "y": plain}) for step in (h, -h))
        expected = cotangent * (up - down) / (2 * h)
        assert_close(slope.numpy(), expected.reshape(-1, 2).sum(0), 1e-7)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("flip", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("kind", ["a list", "nested lists", "an array", "a tensor"])
@pytest.mark.parametrize("sign", WITH_A_SLOPE)
def test_an_operand_may_change_before_backward(
    sign: str, kind: str, flip: bool, dtype: Any
) -> None:
    """A graph has the numbers of the call, or says that they have changed."""
    array = np.array([2.0, 0.75], dtype)
    code = f"y {sign} x" if flip else f"x {sign} y"
    found: dict[bool, list[Any]] = {}
    for changes in (False, True):
        x, other = leaf(np.array([1.25, 2.5], dtype)), OPERANDS[kind](array.copy())
        out = eval(code, {"x": x, "y": other})
        cotangent = ta.tensor(signed(rng_of(8), *out.shape), dtype=dtype)
        if changes and kind == "nested lists":
            other[0][0] = 100.0
        elif changes:
            other[0] = 100.0
        try:
            (first,) = ta.grad(out, x, cotangent, create_graph=True)
            found[changes] = [first.tolist()]
            if first.requires_grad:
                found[changes] += [g.tolist() for g in ta.grad(first.sum(), x)]
        except InPlaceError:
            assert changes
            assert kind == "a tensor"
            return
    assert found[True] == found[False]


LISTS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "sum": (lambda x, dims: x.sum(dims), [0], [1]),
    "mean": (lambda x, dims: x.mean(dims), [0], [1]),
    "var": (lambda x, dims: x.var(dims), [0], [1]),
    "amax": (lambda x, dims: x.amax(dims), [0], [1]),
    "logsumexp": (lambda x, dims: x.logsumexp(dims), [0], [1]),
    "permute": (lambda x, dims: x.permute(dims), [1, 0], [0, 1]),
    "flip": (lambda x, dims: x.flip(dims), [0], [1]),
    "roll": (lambda x, shifts: x.roll(shifts, [0]), [1], [2]),
    "an index": (lambda x, index: x[index], [0, 2], [1, 1]),
    "setitem": (lambda x, index: ta.ops.setitem(x, 5.0, index), [0, 2], [1, 1]),
    "repeat": (lambda x, sizes: x.repeat(sizes), [2, 1], [1, 2]),
    "reshape": (lambda x, sizes: x.reshape(sizes), [9, 1], [1, 9]),
    "where": (lambda x, mask: ta.where(mask, x, 0.0), [True, False, True], [False, True, True]),
    "an op of a user": (ta.op(lambda x, dims: x.sum(tuple(dims))), [0], [1]),
}
LISTS["an op of a user"][0].vjp("x")(
    lambda grad, shape, dims: ta.ops.expand(
        grad.reshape([1 if i in dims else n for i, n in enumerate(shape)]), shape
    )
)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_dimensions_sizes_or_places_may_change_before_backward(name: str) -> None:
    """Of a square matrix, where the gradient for other dimensions has the same shape."""
    function, given, later = LISTS[name]
    found = []
    for changes in (False, True):
        numbers, x = [*given], leaf(signed(rng_of(9), 3, 3).round(3))
        out = function(x, numbers)
        if changes:
            numbers[:] = later
        cotangent = ta.tensor(signed(rng_of(10), *out.shape))
        found.append([g.tolist() for g in ta.grad(out, x, cotangent)])
    assert found[0] == found[1]


def test_an_op_of_a_user_gets_a_list_as_it_was_given() -> None:
    seen: list[Any] = []

    @ta.op(promote=True)
    def moved(x, dims):
        return x + sum(dims)

    @moved.vjp("x")
    def dx(grad, dims):
        seen.append(dims)
        return grad

    for dims in ([0, 1], (0, 1)):
        moved(leaf([1.0]), dims).backward(ta.ones(1, dtype=np.float64))
        assert seen.pop() == dims


@pytest.mark.parametrize("kind", ["a list", "a tuple", "nested lists", "an array"])
def test_products_of_matrices_take_arrays_on_either_side(kind: str) -> None:
    array = np.array([2.0, 2.5])
    other = OPERANDS[kind](array)
    x = leaf(np.array([[1.0, 3.0], [-2.0, 0.5]]))
    if kind == "an array":
        assert (x @ other).tolist() == (x.numpy() @ array).tolist()
        assert (other @ x).tolist() == (array @ x.numpy()).tolist()
        return
    for call in (lambda: x @ other, lambda: other @ x):  # a list has no precision of its own
        with pytest.raises((DtypeError, ValueError, TypeError)):
            call()


BINARY = [
    np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.power, np.matmul,
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal, np.bitwise_and,
    np.bitwise_or, np.bitwise_xor,
]  # fmt: skip
INTEGERS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)


@pytest.mark.parametrize("function", BINARY, ids=lambda function: function.__name__)
def test_functions_of_operators_take_no_option_and_no_other_form(function: Any) -> None:
    """A mask or a dtype that is passed over in silence would give other numbers."""
    kind = np.int64 if function in INTEGERS else np.float64
    array, x = np.array([1, 2], kind), ta.tensor(np.array([3, 4], kind))
    found = function(array, x)
    assert type(found) is ta.Tensor
    np.testing.assert_array_equal(found.numpy(), function(array, x.numpy()))
    options: list[dict[str, Any]] = [
        {"dtype": array.dtype}, {"casting": "same_kind"}, {"order": "C"}, {"subok": True},
    ]  # fmt: skip
    if function is not np.matmul:
        options += [{"where": np.array([True, False])}, {"where": True}]
    for option in options:
        with pytest.raises(TypeError, match="does not take a Tensor, because the result would"):
            function(array, x, **option)
    for second in (array, x):  # `x + y` does not call a function of NumPy
        with pytest.raises(TypeError, match="does not take a Tensor"):
            function(x, second)
    with pytest.raises(TypeError, match="an array takes no Tensor: write array"):
        function(array, x, out=np.zeros(2))
    with pytest.raises(TypeError, match="an array takes no Tensor: write array"):
        function(array, array, out=x)
    if function is not np.matmul:
        for call in (
            lambda: function.outer(array, x), lambda: function.reduce(x),
            lambda: function.accumulate(x), lambda: function.reduceat(x, [0]),
            lambda: function.at(array.copy(), [0], x),
        ):  # fmt: skip
            with pytest.raises(TypeError, match="does not take a Tensor"):
                call()
    assert x.tolist() == [3, 4]
    assert array.tolist() == [1, 2]


# Indices

KINDS = "an index is made of integers, slices or masks of one dimension or more, got"
MASKED = "a masked array would lose its mask: pass .filled(value) and a mask"
BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "a masked array": (np.ma.array([0, 1], mask=[True, False]), DtypeError, MASKED),
    "a masked array, nothing hidden": (np.ma.array([0, 1]), DtypeError, MASKED),
    "a masked mask": (np.ma.array([True, False], mask=[True, False]), DtypeError, MASKED),
    "floats": (np.array([0.0, 1.0]), DtypeError, f"{KINDS} float64"),
    "floats of 32 bits": (np.zeros(2, np.float32), DtypeError, f"{KINDS} float32"),
    "no floats": (np.zeros(0), DtypeError, f"{KINDS} float64"),
    "rows of floats": (np.zeros((2, 2)), DtypeError, f"{KINDS} float64"),
    "complex numbers": (np.array([1j]), DtypeError, f"{KINDS} complex128"),
    "texts": (np.array(["a"]), DtypeError, f"{KINDS} <U1"),
    "objects": (np.array([None]), DtypeError, f"{KINDS} object"),
    "times": (np.zeros(1, "datetime64[s]"), DtypeError, f"{KINDS} datetime64[s]"),
    "a 0-d array": (np.array(1.0), IndexError, f"{KINDS} float"),
    "a 0-d mask": (np.array(True), DtypeError, f"{KINDS} bool"),
    "a float of NumPy": (np.float64(1), DtypeError, f"{KINDS} float64"),
    "a float": (1.0, IndexError, f"{KINDS} float"),
    "a list of floats": ([0.0, 1.0], DtypeError, f"{KINDS} float64"),
    "a tensor of floats": (ta.tensor([1.0]), DtypeError, f"{KINDS} float32"),
    "a text": ("a", IndexError, f"{KINDS} str"),
    "a dict": ({}, IndexError, f"{KINDS} dict"),
    "a truth": (True, DtypeError, f"{KINDS} bool"),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("kind", BAD)
def test_an_index_that_is_none_is_refused_everywhere(kind: str, recorded: bool) -> None:
    """Alone and in a tuple, where it is read, written, and written while that is recorded."""
    index, error, text = BAD[kind]
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    x = ta.tensor(values)
    if recorded:
        x = leaf(values) * 1.0

    def write(index: Any) -> None:
        x[index] = 5.0

    def add(index: Any) -> None:
        x[index] += 5.0

    assert not all_differences([
        (call, error, text)
        for place in (index, (index, 0), (0, index), (..., index), (index, None), (slice(1), index))
        for call in (lambda p=place: x[p], lambda p=place: write(p), lambda p=place: add(p))
    ])  # fmt: skip
    assert x.tolist() == values.tolist()


# What x.data is

CHANGES = """
    c += 1 | c *= c | c -= d | c[0] = 5 | c[c > 1] = 0 | c[::-1] -= 1 | c.T[0] += 1 | c.sort()
    c.fill(3) | c[...] = d | np.add(c, 1, out=c) | np.add(c, 1, c) | np.exp(c, out=c)
    np.negative(c, c) | np.subtract(1, c, out=c) | np.multiply(c, 2, out=c, where=c > 0)
    np.multiply(d, 2, out=c, where=d > 0) | np.add.at(c, ([0, 0], [1, 1]), 1)
    np.add.accumulate(c, out=c) | np.add.reduce(d, axis=0, out=c[0]) | d.sum(0, out=c[1])
    np.negative.at(c, ([0, 1], [1, 1])) | np.square.at(c, ([0], [0])) | c.partition(0)
    np.divmod(d, 2.0, out=(c, d)) | np.modf(c, out=(d, c)) | np.clip(d, 0, 1, out=c)
    np.matmul(d, d, out=c) | np.copyto(c, 5.0) | np.put(c, [0], 9) | np.fill_diagonal(c, 7)
    np.maximum(c, d, out=c) | np.cumsum(d, axis=0, out=c) | np.place(c, c > 0, [8])
"""
CHANGE = [code.strip() for code in CHANGES.replace("\n", "|").split("|") if code.strip()]


@pytest.mark.parametrize("code", CHANGE)
def test_a_copy_of_data_is_changed_as_any_array_and_data_never(code: str) -> None:
    numbers = np.array([[1.5, -2.0], [3.0, 0.25]])
    x = ta.tensor(numbers)
    names: dict[str, Any] = {"np": np, "c": x.data.copy(), "d": numbers[::-1].copy()}
    plain: dict[str, Any] = {"np": np, "c": numbers.copy(), "d": numbers[::-1].copy()}
    copied = names["c"]
    exec(code, names)
    exec(code, plain)
    assert np.shares_memory(names["c"], copied)
    for name in "cd":
        np.testing.assert_array_equal(np.asarray(names[name]), plain[name])
    assert (plain["c"] != numbers).any()
    np.testing.assert_array_equal(x.numpy(), numbers)
    with pytest.raises((InPlaceError, ValueError), match=r"read-only|not writeable"):
        exec(code, {"np": np, "c": x.data, "d": numbers[::-1].copy()})
    np.testing.assert_array_equal(x.numpy(), numbers)
