"""Lists and other sequences beside Tensors: their integers fit, and no gradient is lost in them."""

from __future__ import annotations

import array
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from common import leaf

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError, InPlaceError


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_tensors_is_no_operand(kind: type) -> None:
    """Their gradients would be lost. PyTorch takes no list at all."""
    x, w = leaf([1.0, 2.0]), leaf(3.0)
    y = x * 1
    for values in (kind([w, w]), kind([2.0, w]), kind([kind([w, w])])):
        for call in (
            lambda v: y * v, lambda v: v - y, lambda v: y / v, lambda v: y**v,
            lambda v: ta.maximum(y, v), lambda v: v + w, lambda v: F.relu(v),
            lambda v: y.__setitem__(..., v), lambda v: x.detach().__setitem__(slice(2), v),
        ):  # fmt: skip
            with pytest.raises(TypeError, match=f"must be a Tensor, got {kind.__name__}.*stack$"):
                call(values)
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0], [1.0, 2.0])


SEQUENCES: dict[str, Callable[[int], Any]] = {
    "list": lambda first: [first, first + 1],
    "tuple": lambda first: (first, first + 1),
    "range": lambda first: range(first, first + 2),
    "deque": lambda first: deque([first, first + 1]),
    "array": lambda first: array.array("q", [first, first + 1]),
    "memoryview": lambda first: memoryview(array.array("q", [first, first + 1])),
}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_integers_in_a_sequence_do_not_wrap(kind: str) -> None:
    made = SEQUENCES[kind]
    for dtype, beyond in ((ta.int8, 300), (ta.int8, -130), (ta.uint8, -2), (ta.int32, 2**40)):
        for x in (ta.tensor([1, 2], dtype=dtype), ta.tensor(1, dtype=dtype)):
            for call in (lambda v, x=x: x * v, lambda v, x=x: ta.maximum(x, v)):
                with pytest.raises(DtypeError, match=f"{beyond} does not fit into a tensor of"):
                    call(made(beyond))
        x = ta.tensor([1, 2], dtype=dtype)
        assert (x * made(30)).tolist() == [30, 62]
        assert (x * made(30)).dtype == dtype
    assert (ta.tensor([1, 2], dtype=ta.int8) * [1.5, 2]).tolist() == [1.5, 4.0]
    assert (ta.tensor([1, 2], dtype=ta.int8) / [300, 4]).tolist() == pytest.approx([1 / 300, 0.5])


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_sequence_of_numbers_has_its_place_in_the_gradient(kind: str) -> None:
    x, exponents = leaf([2.0, 3.0]), SEQUENCES[kind](2)
    y = x**exponents
    if hasattr(exponents, "__setitem__"):
        with contextlib.suppress(TypeError):  # a tuple has no such method, a range neither
            exponents[0] = 7
    y.backward(ta.tensor([1.0, -1.0], dtype=ta.float64))
    assert x.grad.tolist() == [4.0, -27.0]


@ta.op
def scaled(x: Any, w: Any, *, by: Any = 1.0) -> Any:
    return x * first_number(w) * first_number(by)


@scaled.vjp("x")
def _(grad: Any, w: Any, by: Any) -> Any:
    return grad * first_number(w) * first_number(by)


def first_number(value: Any) -> Any:
    """The numbers in a list, a dict, or nested ones."""
    while isinstance(value, (list, tuple, dict, deque)):
        value = value["w"] if isinstance(value, dict) else value[0]
    assert not isinstance(value, ta.Tensor)
    return value


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda w: [w],
    "tuple": lambda w: (w, 1.0),
    "deque": lambda w: deque([w]),
    "dict": lambda w: {"w": w},
    "list of dicts": lambda w: [{"w": w}],
    "dict of lists": lambda w: {"w": [w, 2.0]},
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_an_own_op_loses_no_gradient_in_a_list_a_dict_or_an_option(holder: str) -> None:
    x, w = leaf([1.0, 2.0]), leaf(3.0)
    held = HOLDERS[holder](w)
    words = "holds a Tensor, which would get no gradient: make it an argument of its own, or pass"
    for of in (x, x.detach()):
        with pytest.raises(TypeError, match=f"scaled: w {words}"):
            scaled(of, held)
        with pytest.raises(TypeError, match=f"an option of scaled {words}"):
            scaled(of, 2.0, by=held)
        with pytest.raises(TypeError, match=f"an option of scaled {words}"):
            scaled(of, 2.0, by=w)
    with ta.no_grad():  # nothing is recorded
        assert scaled(x, held, by=held).tolist() == [9.0, 18.0]
        assert scaled(x, 2.0, by=w).tolist() == [6.0, 12.0]

    @ta.op(differentiable=False)
    def first(x: Any, ws: Any) -> Any:
        return first_number(ws)

    assert first(x, held).item() == 3.0


@pytest.mark.parametrize("is_option", [False, True])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_tensor_in_a_list_of_an_own_op_is_an_array_that_is_copied(
    holder: str, is_option: bool
) -> None:
    x, w = leaf([1.0, 2.0]), ta.tensor([2.0, 3.0], dtype=ta.float64)
    held = HOLDERS[holder](w)
    out = scaled(x, 1.0, by=held) if is_option else scaled(x, held)
    w[0] = 100.0
    out.backward(ta.tensor([1.0, -1.0], dtype=ta.float64))
    assert x.grad.tolist() == [2.0, -3.0]


@ta.op(saves=True)
def keeping(x: Any, w: Any, *, by: Any = 1.0) -> Any:
    return x * first_number(w) * first_number(by), (first_number(w), first_number(by))


@keeping.vjp("x")
def _(grad: Any, saved: Any) -> Any:
    return grad * saved[0] * saved[1]


@pytest.mark.parametrize("is_option", [False, True])
@pytest.mark.parametrize("made", [ta.tensor, np.array], ids=["Tensor", "array"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_what_a_forward_saves_is_copied(holder: str, made: Any, is_option: bool) -> None:
    x, w = leaf([1.0, 2.0]), made([2.0, 3.0])
    held = HOLDERS[holder](w)
    out = keeping(x, 1.0, by=held) if is_option else keeping(x, held)
    w[0] = 100.0
    out.backward(ta.tensor([1.0, -1.0], dtype=ta.float64))
    assert x.grad.tolist() == [2.0, -3.0]


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_forward_cannot_write_to_a_tensor_in_a_list(holder: str) -> None:
    @ta.op(differentiable=False)
    def ordered(x: Any, ws: Any) -> Any:
        first_number(ws).sort()
        return x > first_number(ws)

    a, b = ta.tensor([5.0, 2.0], dtype=ta.float64), leaf([1.0, 1.0])
    y = a * b
    ordered(y, HOLDERS[holder](a))
    y.backward(ta.tensor([1.0, -1.0], dtype=ta.float64))
    assert a.tolist() == [5.0, 2.0]
    assert b.grad.tolist() == [5.0, -2.0]


@pytest.mark.parametrize("holder", HOLDERS)
def test_tensors_in_a_list_alone_make_a_tensor(holder: str) -> None:
    @ta.op(differentiable=False)
    def first(ws: Any, *, by: Any = 1.0) -> Any:
        return first_number(ws) * first_number(by)

    held = HOLDERS[holder](ta.tensor([2.0, 3.0]))
    assert type(first(held)) is ta.Tensor
    assert type(first(np.ones(2), by=held)) is ta.Tensor
    assert type(first([np.ones(2)])) is np.ndarray


def test_weights_of_several_shapes_in_a_list_are_no_operand() -> None:
    @ta.op(promote=True)
    def linear(x: Any, parts: Any) -> Any:
        return x @ parts[0] + parts[1]

    assert linear(ta.ones(3, 2), [ta.ones(2, 4), ta.zeros(4)]).tolist() == [[2.0] * 4] * 3


class Pair(NamedTuple):
    w: Any
    other: Any


@pytest.mark.parametrize(
    "made", [lambda w: Pair(w, 1), lambda w: OrderedDict(w=w)], ids=["pair", "dict"]
)
def test_named_tuples_and_ordered_dicts_are_looked_into(made: Callable[[Any], Any]) -> None:
    @ta.op
    def times(x: Any, ws: Any) -> Any:
        return x * (ws.w if isinstance(ws, Pair) else ws["w"])

    x, w = ta.ones(2), leaf([2.0, 3.0])
    with pytest.raises(TypeError, match="times: ws holds a Tensor, which would get no gradient"):
        times(x, made(w))
    assert times(x, made(w.detach())).tolist() == [2.0, 3.0]


def test_a_list_of_the_caller_is_the_one_that_a_forward_gets() -> None:
    @ta.op
    def noted(x: Any, seen: Any) -> Any:
        seen.append(1)
        return x * 1

    seen: list[int] = []
    noted(ta.ones(2), seen)
    assert seen == [1]


def test_an_option_of_an_own_op_is_read_only_in_its_forward() -> None:
    @ta.op
    def grown(x: Any, *, by: Any) -> Any:
        by += 1
        return x * by

    by = np.ones(2)
    with pytest.raises(InPlaceError, match="grown writes to an argument, which its caller needs"):
        grown(ta.ones(2), by=by)
    assert by.tolist() == [1.0, 1.0]


def test_an_own_op_takes_an_index_and_a_mask_as_tensors() -> None:
    @ta.op
    def rows(x: Any, index: Any, *, mask: Any = True) -> Any:
        return np.where(mask, x[tuple(index)], 0)

    x, mask = leaf([[1.0, 2.0], [3.0, 4.0]]), ta.tensor([True, False])
    index = [ta.tensor([1, 0]), ta.tensor([0, 1])]
    assert rows(x.detach(), index).tolist() == [3.0, 2.0]
    assert rows(x.detach(), tuple(index), mask=mask).tolist() == [3.0, 0.0]
    with pytest.raises(TypeError, match="mul: y must be a Tensor, got list"):
        x * [ta.tensor(1), ta.tensor(2)]  # an operand is no index


def test_integers_of_a_list_do_not_wrap_in_an_own_op_either() -> None:
    @ta.op(promote=True)
    def brighter(x: Any, by: Any) -> Any:
        return x + by

    x = ta.tensor([1, 2, 3], dtype=ta.uint8)
    for by in ([300, 1, 1], (-5, 1, 1), [2**40, 1, 1], 300):
        with pytest.raises(DtypeError, match="does not fit into a tensor of uint8"):
            brighter(x, by)
    assert brighter(x, [7, 0, 1]).tolist() == [8, 2, 4]
    assert brighter(x, [7, 0, 1]).dtype == ta.uint8
