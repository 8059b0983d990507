"""Lists and other sequences beside Tensors: their integers fit, and no gradient is lost in them."""

from __future__ import annotations

import array
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import leaf

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError


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


def test_an_own_op_loses_no_gradient_in_a_list_or_an_option() -> None:
    @ta.op
    def scaled(x: Any, w: Any, *, by: Any = 1.0) -> Any:
        return x * np.asarray(w) * np.asarray(by)

    x, w = leaf([1.0, 2.0]), leaf(3.0)
    for values in ([w, w], (1.0, w), [[w, 2.0]]):
        with pytest.raises(TypeError, match=r"scaled: w must be a Tensor, got .* with stack$"):
            scaled(x.detach(), values)
    for values in (w, [w], (1.0, [w])):
        with pytest.raises(TypeError, match=r"scaled: the option by holds a Tensor, which would"):
            scaled(x.detach(), 2.0, by=values)
    assert scaled(x.detach(), [1.0, 2.0], by=[1.0, 3.0]).tolist() == [1.0, 12.0]


def test_an_own_op_takes_tensors_without_a_gradient_in_a_list_and_an_option() -> None:
    """Such as an index and a mask."""

    @ta.op
    def rows(x: Any, index: Any, *, mask: Any = True) -> Any:
        return np.where(np.asarray(mask), x[tuple(map(np.asarray, index))], 0)

    x, mask = leaf([[1.0, 2.0], [3.0, 4.0]]), ta.tensor([True, False])
    index = [ta.tensor([1, 0]), ta.tensor([0, 1])]
    assert rows(x.detach(), index).tolist() == [3.0, 2.0]
    assert rows(x.detach(), tuple(index), mask=mask).tolist() == [3.0, 0.0]
    assert rows(x.detach(), index, mask=[mask[0], 1.0]).tolist() == [3.0, 2.0]
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
