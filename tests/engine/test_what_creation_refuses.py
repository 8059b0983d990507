"""Functions that make tensors: each size, limit and dtype at its edge, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import Refused, all_differences

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.base.random import dropout_seed
from tinyattn.errors import DtypeError, ShapeError

FROM_NUMPY: Any = ta.from_numpy
FULL: Any = ta.full
SIZES_MAKERS: dict[str, Callable[[tuple[int, ...]], Any]] = {
    "zeros": lambda shape: ta.zeros(*shape),
    "zeros of one": lambda shape: ta.zeros(shape),
    "empty": lambda shape: ta.empty(list(shape)),
    "ones": lambda shape: ta.ones(*shape),
    "full": lambda shape: ta.full(shape, 2.0),
    "rand": lambda shape: ta.rand(*shape),
    "randn": lambda shape: ta.randn(*shape),
    "randint": lambda shape: ta.randint(0, 3, shape),
}


@pytest.mark.parametrize("name", SIZES_MAKERS)
def test_a_size_below_zero_is_refused_in_each_place(name: str) -> None:
    make = SIZES_MAKERS[name]
    shape: tuple[int, ...]
    for shape in ((-1,), (-1, 3), (3, -1), (2, 3, -4), (2, -1, 3), (0, -1)):
        with pytest.raises(ShapeError, match=f"^sizes must be >= 0, got {re.escape(str(shape))}$"):
            make(shape)
    for shape in ((0,), (0, 3), (3, 0), (1, 2, 3), (1,)):
        assert make(shape).shape == shape


PLACED = "{} does not fit into a tensor of {}: only x.to(dtype) of a Tensor wraps, and cuts"
HOLDS = " fractions off"


def placed(number: Any, dtype: str) -> str:
    return PLACED.format(number, dtype) + HOLDS


def table() -> list[Refused]:
    misaligned = np.frombuffer(b"\0" * 17, np.uint8)[1:].view(np.float64)
    swapped = np.zeros(2, np.dtype(np.float32).newbyteorder())
    native = "an array that is shared has native byte order and is aligned, got {}: pass copy=True"
    steps = "arange takes a step from start to end, got {}, {} and {}"
    whole = "randint draws from low to high - 1, got low={}, high={}"
    return [
        (lambda: ta.tensor([300, 1], "uint8"), DtypeError, placed(300, "uint8")),
        (lambda: ta.tensor([1, -1], "uint8"), DtypeError, placed(-1, "uint8")),
        (lambda: ta.tensor([1.0, 1.5], "int64"), DtypeError, placed(1.5, "int64")),
        (lambda: ta.tensor([1, 2], "bool"), DtypeError, placed(2, "bool")),
        (lambda: ta.as_tensor(ta.tensor([1, 300]), "uint8"), DtypeError, placed(300, "uint8")),
        (lambda: ta.as_tensor(ta.tensor([0.5]), "int32"), DtypeError, placed(0.5, "int32")),
        (lambda: ta.full((2,), 300, "uint8"), DtypeError, placed(300, "uint8")),
        (lambda: ta.full_like(ta.ones(2).long(), 0.5), DtypeError, placed(0.5, "int64")),
        (lambda: ta.arange(0, 2, 0.5, "int64"), DtypeError, placed(0.5, "int64")),
        (lambda: ta.arange(-1, 2, dtype="uint8"), DtypeError, placed(-1, "uint8")),
        (lambda: ta.arange(300, dtype="uint8"), DtypeError, placed(256, "uint8")),
        (lambda: ta.linspace(0, 1, 3, "int64"), DtypeError, placed(0.5, "int64")),
        (lambda: ta.randint(0, 257, (2,), "uint8"), DtypeError, placed(256, "uint8")),
        (lambda: ta.randint(-1, 2, (2,), "uint8"), DtypeError, placed(-1, "uint8")),
        (lambda: FROM_NUMPY([1.0]), TypeError, "from_numpy takes a NumPy array, got list"),
        (
            lambda: ta.from_dlpack([1.0]),
            TypeError,
            "from_dlpack takes an array with __dlpack__, got list",
        ),
        (lambda: ta.from_numpy(misaligned, False), DtypeError, native.format(misaligned.dtype.str)),
        (lambda: ta.from_numpy(swapped, False), DtypeError, native.format(swapped.dtype.str)),
        (lambda: ta.arange(0, 3, 0), ValueError, steps.format(0, 3, 0)),
        (lambda: ta.arange(3, 0), ValueError, steps.format(3, 0, 1)),
        (lambda: ta.arange(0, 3, -1), ValueError, steps.format(0, 3, -1)),
        (lambda: ta.arange(-1), ValueError, steps.format(0, -1, 1)),
        (lambda: ta.arange(np.inf), TypeError, "arange takes finite numbers, got inf"),
        (lambda: ta.arange(0, 1, np.nan), TypeError, "arange takes finite numbers, got nan"),
        (lambda: ta.arange("3"), TypeError, "arange takes finite numbers, got '3'"),  # type: ignore
        (lambda: ta.arange(True), TypeError, "arange takes finite numbers, got True"),
        (lambda: ta.linspace(-np.inf, 1, 3), TypeError, "linspace takes finite numbers, got -inf"),
        (lambda: ta.linspace(0, 1j, 3), TypeError, "linspace takes finite numbers, got 1j"),  # type: ignore
        (lambda: ta.linspace(0, 1, -1), ShapeError, "steps must be an integer >= 0, got -1"),
        (lambda: ta.linspace(0, 1, 2.0), ShapeError, "steps must be an integer >= 0, got 2.0"),  # type: ignore
        (lambda: ta.eye(-1), ShapeError, "sizes must be >= 0, got (-1, -1)"),
        (lambda: ta.eye(2, -1), ShapeError, "sizes must be >= 0, got (2, -1)"),
        (
            lambda: ta.randn(2, dtype="int64"),
            DtypeError,
            "randn needs a floating dtype, got int64: use .to(ta.float32)",
        ),
        (
            lambda: ta.rand(2, dtype="bool"),
            DtypeError,
            "rand needs a floating dtype, got bool: use .to(ta.float32)",
        ),
        (
            lambda: ta.randint(5),
            TypeError,
            "randint takes low, high and a size, got 0, 5 and None",
        ),
        (
            lambda: ta.randint(2, 5),
            TypeError,
            "randint takes low, high and a size, got 2, 5 and None",
        ),
        (
            lambda: ta.randint(0, 2.5, (2,)),
            TypeError,
            "randint takes low, high and a size, got 0, 2.5 and (2,)",
        ),
        (
            lambda: ta.randint(0.5, 2, (2,)),  # type: ignore[arg-type]
            TypeError,
            "randint takes low, high and a size, got 0.5, 2 and (2,)",
        ),
        (lambda: ta.randint(2, 2, (2,)), ValueError, whole.format(2, 2)),
        (lambda: ta.randint(0, (2,)), ValueError, whole.format(0, 0)),
        (lambda: ta.randint(5, 2, (2,)), ValueError, whole.format(5, 2)),
        (
            lambda: ta.randint(0, 2, (2,), "float32"),
            DtypeError,
            "randint makes integers, got float32",
        ),
        (lambda: ta.randperm(-1), ShapeError, "n must be an integer >= 0, got -1"),
        (
            lambda: F.one_hot([]),
            DtypeError,
            "one_hot takes integer ids, got float64",
        ),
        (
            lambda: F.one_hot(np.zeros(0, np.int64)),
            ShapeError,
            "one_hot of no ids needs num_classes, the size of the last dimension",
        ),
        (lambda: F.one_hot([1], 0), ShapeError, "num_classes must be an integer >= 1, got 0"),
        (
            lambda: F.one_hot([0, 3], 3),
            IndexError,
            "one_hot: id 3 is out of range for 3 classes",
        ),
        (lambda: F.one_hot([0, -1]), IndexError, "one_hot: id -1 is out of range for 1 classes"),
        (lambda: F.one_hot([-1]), IndexError, "one_hot: id -1 is out of range for 1 classes"),
    ]


def test_each_error_says_its_whole_text() -> None:
    assert not all_differences(table())


def test_numbers_up_to_each_edge() -> None:
    for found, numbers, dtype in (
        (ta.tensor([255, 0], "uint8"), [255, 0], np.uint8),
        (ta.as_tensor(ta.tensor([255.0, 0.0]), "uint8"), [255, 0], np.uint8),
        (ta.as_tensor(ta.tensor([0.1]), "float64"), [float(np.float32(0.1))], np.float64),
        (ta.arange(3), [0, 1, 2], np.int64),
        (ta.arange(0), [], np.int64),
        (ta.arange(2, 2), [], np.int64),
        (ta.arange(1, 4), [1, 2, 3], np.int64),
        (ta.arange(5, 0, -2), [5, 3, 1], np.int64),
        (ta.arange(0, 1, 0.25), [0, 0.25, 0.5, 0.75], np.float32),
        (ta.arange(2.0), [0, 1], np.float32),
        (ta.arange(0, 2.0), [0, 1], np.float32),
        (ta.arange(256, dtype="uint8")[-2:], [254, 255], np.uint8),
        (ta.linspace(1, 3, 5), [1, 1.5, 2, 2.5, 3], np.float32),
        (ta.linspace(3, 1, 2, "int64"), [3, 1], np.int64),
        (ta.linspace(3, 1, 1), [3], np.float32),
        (ta.linspace(3, 1, 0), [], np.float32),
        (ta.eye(2), [[1, 0], [0, 1]], np.float32),
        (ta.eye(1, 2, "int64"), [[1, 0]], np.int64),
        (ta.eye(0, 2), [], np.float32),
        (ta.full((2,), 3), [3, 3], np.int64),
        (ta.full((2,), 3.5), [3.5, 3.5], np.float32),
        (FULL((2, 2), ta.tensor([1, 2])), [[1, 2], [1, 2]], np.int64),
        (ta.randint(5, 6, (2,)), [5, 5], np.int64),
        (ta.randint(1, (2,)), [0, 0], np.int64),
        (ta.randint(1, size=(2,)), [0, 0], np.int64),
        (ta.randint(high=1, size=[2], dtype="uint8"), [0, 0], np.uint8),
        (ta.randperm(1), [0], np.int64),
        (ta.randperm(0), [], np.int64),
        (F.one_hot([2, 0]), [[0, 0, 1], [1, 0, 0]], np.int64),
        (F.one_hot([1], 4), [[0, 1, 0, 0]], np.int64),
        (F.one_hot([[1], [0]]), [[[0, 1]], [[1, 0]]], np.int64),
        (F.one_hot(np.zeros((2, 0), np.int64), 3), [[], []], np.int64),
    ):  # fmt: skip
        assert (found.tolist(), found.dtype, found.requires_grad) == (numbers, dtype, False)


def test_memory_is_shared_where_that_is_asked_for_and_else_copied() -> None:
    array = np.arange(3.0)
    for make, is_shared in (
        (ta.tensor, False),
        (ta.as_tensor, False),
        (ta.from_numpy, False),
        (ta.from_dlpack, False),
        (lambda a: ta.from_numpy(a, copy=True), False),
        (lambda a: ta.from_numpy(a, copy=False), True),
        (lambda a: ta.from_dlpack(a, copy=True), False),
        (lambda a: ta.from_dlpack(a, copy=False), True),
    ):  # fmt: skip
        assert np.shares_memory(make(array)._data, array) is is_shared
    x = ta.tensor(array)
    assert ta.as_tensor(x) is x
    assert ta.as_tensor(x, ta.float64, "cpu") is x
    assert ta.as_tensor(x, ta.float32).dtype == np.float32
    assert not np.shares_memory(ta.tensor(x)._data, x._data)


@pytest.mark.parametrize("mask", [[False, False], [True, False], np.ma.nomask], ids=str)
def test_a_masked_array_is_refused_by_all_that_make_a_tensor(mask: Any) -> None:
    array = np.ma.array([1.0, 2.0], mask=mask)
    text = "a masked array would lose its mask: pass .filled(value) and a mask"
    x = ta.ones(2)

    def replace() -> None:
        x.data = array

    assert not all_differences([
        (call, DtypeError, text)
        for call in (
            lambda: ta.tensor(array), lambda: ta.Tensor(array), lambda: ta.as_tensor(array),
            lambda: ta.from_numpy(array), lambda: ta.from_numpy(array, False), replace,
            lambda: FULL((2,), array), lambda: ta.tensor(array, "float64", "cpu", True),
        )
    ])  # fmt: skip
    assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_state_continues_after_any_number_of_draws(dtype: str) -> None:
    """Of 64 bits a float32 takes one half, and the other half is a part of the state."""
    draws: list[Callable[[], Any]] = [
        lambda: ta.rand(3, dtype=dtype), lambda: ta.rand(1, dtype=dtype),
        lambda: ta.randn(3, dtype=dtype), lambda: ta.randint(0, 9, (3,)),
        lambda: ta.randperm(5), lambda: ta.tensor(dropout_seed()),
    ]  # fmt: skip
    for number in range(4):
        ta.manual_seed(3)
        for _ in range(number):
            ta.rand(1, dtype=dtype)
        state = ta.get_rng_state()
        right = [draw().tolist() for draw in draws]
        ta.rand(5)
        ta.set_rng_state(state)
        assert [draw().tolist() for draw in draws] == right
