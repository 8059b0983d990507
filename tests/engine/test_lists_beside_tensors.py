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
            with pytest.raises(TypeError, match=r"(holds Tensors|must be a Tensor)"):
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


@ta.op(saves=True)
def keeping(x: Any, w: Any, *, by: Any = 1.0) -> Any:
    return x * first_number(w) * first_number(by), (first_number(w), first_number(by))


@keeping.vjp("x")
def _(grad: Any, saved: Any) -> Any:
    return grad * saved[0] * saved[1]


class Pair(NamedTuple):
    w: Any
    other: Any


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda w: [w],
    "tuple": lambda w: (w, 1.0),
    "deque": lambda w: deque([w]),
    "dict": lambda w: {"w": w},
    "list of dicts": lambda w: [{"w": w}],
    "dict of lists": lambda w: {"w": [w, 2.0]},
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_an_own_op_takes_no_tensor_in_a_list_a_dict_or_an_option(holder: str) -> None:
    """Its gradient would be lost, and a later change of its numbers would not be noticed."""
    x, w = leaf([1.0, 2.0]), leaf(3.0)
    words = "holds Tensors, which would get no gradient: make each an argument of its own, take"
    for of in (w, w.detach(), ta.tensor(1)):
        held = HOLDERS[holder](of)
        with pytest.raises(TypeError, match=f"scaled: w {words}"):
            scaled(x, held)
        for by in (of, held):
            with pytest.raises(TypeError, match=f"scaled: an option {words}"):
                scaled(x, 2.0, by=by)
    numbers = HOLDERS[holder](w.numpy())
    assert scaled(x, numbers, by=numbers).tolist() == [9.0, 18.0]


@pytest.mark.parametrize("is_option", [False, True])
@pytest.mark.parametrize("of", [scaled, keeping], ids=["used", "saved"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_what_a_list_holds_is_copied(holder: str, of: Any, is_option: bool) -> None:
    x, w = leaf([1.0, 2.0]), np.array([2.0, 3.0])
    held = HOLDERS[holder](w)
    out = of(x, 1.0, by=held) if is_option else of(x, held)
    w[0] = 100.0
    out.backward(ta.tensor([1.0, -1.0], dtype=ta.float64))
    assert x.grad.tolist() == [2.0, -3.0]


@pytest.mark.parametrize(
    "made", [lambda w: Pair(w, 1), lambda w: OrderedDict(w=w)], ids=["pair", "dict"]
)
def test_named_tuples_and_ordered_dicts_are_looked_into(made: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="scaled: w holds Tensors, which would get no gradient"):
        scaled(leaf([1.0, 2.0]), made(leaf(3.0)))


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
