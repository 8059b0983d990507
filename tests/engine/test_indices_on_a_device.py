"""Indices, ids and counts on the host or on the device, and which of two values stays there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import assert_close, assert_same, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DeviceError, MaskError

ROWS = signed(rng_of(0), 5, 3).astype(np.float32)


def table_on_device() -> ta.Tensor:
    return ta.tensor(ROWS, device="cuda", requires_grad=True)


def moved(array: Any) -> ta.Tensor:
    return ta.tensor(array, device="cuda")


IDS: dict[str, Callable[[Any], Any]] = {
    "a list": lambda cuda: [[4, 0], [4, 2]],
    "an array of NumPy": lambda cuda: np.array([[4, 0], [4, 2]], np.int16),
    "an array of the device": lambda cuda: cuda.asarray(np.array([[4, 0], [4, 2]])),
    "a tensor of the device": lambda cuda: moved([[4, 0], [4, 2]]),
}


@pytest.mark.parametrize("name", IDS)
def test_the_rows_of_ids_from_anywhere(name: str, cuda: Any) -> None:
    weight, cotangent = table_on_device(), signed(rng_of(1), 2, 2, 3).astype(np.float32)
    out = F.embedding(IDS[name](cuda), weight)
    out.backward(moved(cotangent))
    expected = np.zeros_like(ROWS)
    np.add.at(expected, np.array([[4, 0], [4, 2]]), cotangent)
    assert out.device == weight.grad.device == "cuda"
    assert_same(out.numpy(), ROWS[[[4, 0], [4, 2]]])
    assert_close(weight.grad.numpy(), expected, 1e-6)


@pytest.mark.parametrize("ids", [[0, 5], np.array([5, 0])])
def test_ids_of_the_host_are_looked_at_at_once(ids: Any, cuda: Any) -> None:
    """The device need not be waited for."""
    with pytest.raises(IndexError) as caught:
        F.embedding(ids, table_on_device())
    assert str(caught.value) == "token id 5 is out of range: the embedding has 5 rows (0 to 4)"


def test_a_tensor_of_ids_must_be_where_the_table_is(cuda: Any) -> None:
    for ids, weight, here, there in (
        (ta.tensor([0]), table_on_device(), "cpu", "cuda"),
        (moved([0]), ta.tensor(ROWS), "cuda", "cpu"),
    ):
        with pytest.raises(DeviceError) as caught:
            F.embedding(ids, weight)
        assert str(caught.value) == (
            f"embedding: ids is on {here}, weight on {there}: move one with .to(device)"
        )


WRITES: dict[str, tuple[Any, Callable[[Any], Any], tuple[int, ...]]] = {
    "rows": ([1, 1, 4, 1], lambda place: place, (4, 3)),
    "rows and a column": ([1, 1, 4, 1], lambda place: (place, 2), (4,)),
    "columns": ([0, 0, 2, 0], lambda place: (slice(None), place), (5, 4)),
    "one row for all": ([1, 1, 4, 1], lambda place: place, (3,)),
    "one value for each row": ([1, 1, 4, 1], lambda place: place, (4, 1)),
    "a table of rows": ([[1, 1], [4, 1]], lambda place: place, (2, 2, 3)),
    "places": ([1, 1, 4, 1], lambda place: (place, [0, 0, 1, 0]), (4,)),
    "one number": ([1, 1, 4, 1], lambda place: place, ()),
    "a slice": ([], lambda place: slice(1, 3), (2, 3)),
}


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("name", WRITES)
def test_the_last_of_several_values_stays_and_alone_has_a_gradient(
    name: str, where: str, cuda: Any
) -> None:
    numbers, index, shape = WRITES[name]
    place = numbers if where == "host" else moved(np.array(numbers, np.int64))
    values = np.asarray(signed(rng_of(1), *shape), np.float32)
    cotangent = signed(rng_of(2), 5, 3).astype(np.float32)
    expected = ROWS.copy()
    expected[index(numbers)] = values
    stays = np.full(ROWS.shape, -1)
    stays[index(numbers)] = np.arange(values.size).reshape(shape)
    of_values = np.zeros(values.size)
    np.add.at(of_values, stays[stays >= 0], cotangent[stays >= 0])

    start, value = table_on_device(), ta.tensor(values, device="cuda", requires_grad=True)
    x = start * 1
    x[index(place)] = value
    x.backward(moved(cotangent))
    assert_same(x.detach().numpy(), expected)
    assert_same(start.grad.numpy(), np.where(stays < 0, cotangent, 0).astype(np.float32))
    assert_close(value.grad.numpy(), of_values.reshape(shape), 1e-6)


@pytest.mark.parametrize("kind", ["a list", "an array", "a tensor", "a number"])
def test_counts_of_repetitions_may_be_on_the_device(kind: str, cuda: Any) -> None:
    counts = {
        "a list": [2, 0, 1, 1, 3],
        "an array": cuda.asarray(np.array([2, 0, 1, 1, 3])),
        "a tensor": moved([2, 0, 1, 1, 3]),
        "a number": moved(2),
    }[kind]
    expected = np.repeat(ROWS, 2 if kind == "a number" else [2, 0, 1, 1, 3], 0)
    out = table_on_device().repeat_interleave(counts, 0)
    assert out.device == "cuda"
    assert_same(out.detach().numpy(), expected)
    assert_same(ta.tensor(ROWS).repeat_interleave(counts, 0).numpy(), expected)


def test_lengths_of_the_device_are_not_waited_for(cuda: Any) -> None:
    """So the error of one that is too large comes when the result is read."""
    weights = F.masked_softmax(moved(ROWS[None]), valid_lens=moved([4]))
    with pytest.raises(MaskError, match="between 0 and the number of keys, 3, got 4"):
        weights.numpy()


def test_a_diagonal_of_the_device_is_a_view(cuda: Any) -> None:
    x = moved(ROWS)
    diagonal = x.diagonal(-1)
    diagonal[...] = 7.0
    expected = ROWS.copy()
    expected[[1, 2, 3], [0, 1, 2]] = 7
    assert_same(x.numpy(), expected)
    assert_same(diagonal.numpy(), np.full(3, 7, np.float32))


def test_a_diagonal_can_be_written_to_as_its_tensor() -> None:
    x = ta.tensor(ROWS)
    x.diagonal()[...] = 7.0
    assert_same(x.numpy().diagonal(), np.full(3, 7, np.float32))
    shown = x.numpy()
    shown.flags.writeable = False
    assert not ta.ops.diagonal(shown).flags.writeable
    assert ta.ops.diagonal(x.numpy().copy()).flags.writeable


@pytest.mark.parametrize(("here", "there"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_gradient_comes_back_from_the_other_device(here: str, there: str, cuda: Any) -> None:
    """And so do gradients of it, of any order."""
    x = ta.tensor([1.5, -2.0], device=here, requires_grad=True)
    cube = (x.to(there) ** 3).to(here).to(there)
    (slope,) = ta.grad(cube, [x], ta.tensor([1.0, -3.0], device=there), create_graph=True)
    assert slope.device == here
    assert_close(slope.detach().numpy(), [3 * 2.25, -9 * 4.0], 1e-6)
    slope.backward(ta.tensor([2.0, 5.0], device=here))
    assert x.grad.device == here
    assert_close(x.grad.numpy(), [2 * 6 * 1.5, 5 * -18 * -2.0], 1e-6)
