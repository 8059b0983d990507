"""What other versions of NumPy and other machines do differently, made here."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.base.checks import checked_dtype
from tinyattn.errors import DtypeError

LONG = np.array([3, 4], np.longlong)
# longlong has eight bytes as int64 has, but another object as its dtype; a longdouble of eight
# bytes, as on Windows, would be float64 in the same way.
PAIRS = {
    "tensor": lambda: ta.tensor(LONG),
    "as_tensor": lambda: ta.as_tensor(LONG),
    "from_numpy": lambda: ta.from_numpy(LONG),
    "from_numpy, shared": lambda: ta.from_numpy(LONG, copy=False),
    "from_dlpack, shared": lambda: ta.from_dlpack(LONG, copy=False),
    "a list": lambda: ta.tensor([LONG, LONG]),
    "a number in a list": lambda: ta.tensor([np.longlong(3)]),
    "zeros": lambda: ta.zeros(2, dtype=np.longlong),
    "full": lambda: ta.full((2,), np.longlong(3)),
    "to": lambda: ta.zeros(2).to(np.longlong),
    "sum": lambda: ta.arange(3).sum(dtype=np.longlong),
    "an array beside": lambda: ta.arange(2) + LONG,
    "a number beside": lambda: ta.arange(2) + np.longlong(3),
    "a number before": lambda: np.longlong(3) * ta.arange(2),
    "where": lambda: ta.where(ta.tensor([True, False]), LONG, LONG),
    "an op of a user": lambda: ta.op(lambda x: x.astype(np.longlong))(ta.arange(2)),
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_integers_of_one_size_have_one_dtype(make: Any) -> None:
    assert make().dtype is np.dtype(np.int64)


def test_numbers_of_one_size_have_one_dtype() -> None:
    for code in "?bBhHiIlLqQefd":
        dtype = np.dtype(code)
        assert checked_dtype(code) is np.dtype(dtype.str[1:])
    if np.dtype("g").itemsize == 8:
        assert checked_dtype("g") is np.dtype(np.float64)
        assert ta.tensor(np.ones(2, "g")).dtype is np.dtype(np.float64)


@pytest.mark.skipif(np.dtype("g").itemsize == 8, reason="longdouble is float64 here")
@pytest.mark.parametrize(
    "make",
    [
        lambda wide: ta.ones(2) + wide,
        lambda wide: ta.where(ta.tensor([True, False]), wide, ta.ones(2)),
        lambda wide: ta.op(lambda x: x + wide)(ta.ones(2)),
        lambda wide: ta.op(lambda x: x + 1j)(ta.ones(2)),
    ],
)
def test_wider_numbers_are_refused_wherever_they_come_from(make: Any) -> None:
    with pytest.raises(DtypeError, match=r"up to 64 bits, got (float|complex)|real numbers"):
        make(np.ones(2, np.longdouble))


def test_dlpack_on_numpy_2_0_which_takes_no_keywords(monkeypatch: pytest.MonkeyPatch) -> None:
    real = np.from_dlpack

    def of_numpy_2_0(x: Any, /, **options: Any) -> Any:
        if options:
            raise TypeError("from_dlpack() takes no keyword arguments")
        return real(x)

    monkeypatch.setattr(np, "from_dlpack", of_numpy_2_0)
    array = np.zeros(3, np.float32)
    shared, copied = ta.from_dlpack(array, copy=False), ta.from_dlpack(array)
    array[0] = 5
    assert shared.tolist() == [5, 0, 0]
    assert copied.tolist() == [0, 0, 0]


def test_functions_of_numpy_that_have_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = inspect.signature

    def of_old_numpy(function: Any, **options: Any) -> Any:
        if isinstance(function, np.ufunc):
            raise ValueError(f"callable {function!r} is not supported by signature")
        return signature(function, **options)

    monkeypatch.setattr(inspect, "signature", of_old_numpy)
    x, y = ta.tensor([1.0, 2.0]), ta.tensor([3.0, 1.0])
    np.testing.assert_array_equal(ta.op(np.exp)(x).numpy(), np.exp(x.numpy()))
    np.testing.assert_array_equal(ta.op(np.maximum)(x, y).numpy(), [3, 2])
    with pytest.raises(TypeError, match="takes"):
        ta.op(np.exp)(x, y, x)
    with pytest.raises(ValueError, match="signature"):
        ta.op(max)
