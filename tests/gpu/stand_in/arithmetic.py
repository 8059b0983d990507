"""Arithmetic in which CuPy differs from NumPy. `test_stand_in.py` has the results of both."""

from __future__ import annotations

from typing import Any

import numpy as np


def floor_divide(x: Any, y: Any) -> Any:
    dtype = np.result_type(x, y)
    if dtype.kind == "f":
        return np.floor(x / y)
    return np.where(y == 0, 0, np.floor_divide(x, np.where(y == 0, 1, y))).astype(dtype)


def remainder(x: Any, y: Any) -> Any:
    dtype = np.result_type(x, y)
    if dtype.kind == "f":
        return x - np.floor(x / y) * y
    return np.where(y == 0, 0, np.remainder(x, np.where(y == 0, 1, y))).astype(dtype)


def power(x: Any, y: Any) -> Any:
    if np.result_type(x, y).kind not in "iu" or not np.any(np.less(y, 0)):
        return np.power(x, y)
    whole = np.where(np.abs(x) == 1, x, 0)  # 1 / x without its fraction
    return np.where(np.less(y, 0), np.power(whole, np.abs(y)), np.power(x, np.abs(y)))


def cast(array: np.ndarray, dtype: Any, order: Any = "K") -> np.ndarray:
    """array.astype: a float beyond the integers becomes the largest or the smallest of them."""
    dtype = np.dtype(dtype)
    if array.dtype.kind != "f" or dtype.kind not in "iu" or dtype.itemsize < 4:
        return array.astype(dtype, order=order)
    limits = np.iinfo(dtype)
    inside = (array >= limits.min) & (array < float(limits.max) + 1)
    out = np.where(inside, array, 0).astype(dtype, order=order)
    out[array >= float(limits.max) + 1] = limits.max
    out[array < limits.min] = limits.min
    return out
