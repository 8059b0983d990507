"""Sums that do not lose digits, for NumPy and CuPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base.backend import Array
from ..errors import ShapeError
from .compiled import cpu_kernels


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which numbers are added up, because in float32 2**24 + 1 is 2**24."""
    if dtype == np.float32:
        return np.dtype(np.float64)
    return np.dtype(np.float32) if dtype == np.float16 else np.dtype(dtype.type)


def in_c_order(x: Any) -> Any:
    """An array in C order: kernels need it, and NumPy's other loops differ in the last digit."""
    if not hasattr(x, "flags"):
        return x
    flags = x.flags
    if flags.c_contiguous and (type(x) is not np.ndarray or flags.aligned):  # CuPy's always is
        return x
    return x.copy(order="C")


def adds_in_pairs(array: Array, axis: Any) -> bool:
    """True if the array's own sum is accurate.

    NumPy adds in pairs over all of a contiguous array and over its last axis. Over any other axis
    it adds one number after another.
    """
    if array.dtype == np.float16:
        return False
    return axis is None or axis == -1 or axis == (array.ndim - 1,) or array.dtype == np.float64


# From so many numbers on, a kernel is worth the import of Numba, which takes half a second.
LARGE = 1 << 14


def sum_large(array: Array, axis: Any, keepdims: bool) -> Any:
    """The sum of many numbers by a kernel, in float64; None where NumPy or CuPy is to add."""
    kernels = cpu_kernels() if array.dtype == np.float32 and type(array) is np.ndarray else None
    return None if kernels is None else kernels.sum_large(array, axis, keepdims)


def reduce_sum(array: Array, axis: Any = None, keepdims: bool = False, mean: bool = False) -> Array:
    """Sum (or mean) over axes: NumPy's own where it adds in pairs, else added in `sum_dtype`; of
    many numbers by a kernel."""
    array = in_c_order(array)
    if array.dtype.kind != "f":  # unsigned numbers too, whose differences may be negative
        return array.sum(axis=axis, keepdims=keepdims, dtype=np.int64)
    total = sum_large(array, axis, keepdims) if array.size >= LARGE else None
    if total is None:
        in_pairs = adds_in_pairs(array, axis) and not mean  # because its sum may overflow
        dtype = None if in_pairs else sum_dtype(array.dtype)
        total = array.sum(axis=axis, keepdims=keepdims, dtype=dtype)
    if mean:
        # Divided before it is rounded to the array's dtype. The mean of nothing is NaN.
        total = total / (array.size // total.size) if array.size else total * math.nan
    return total if total.dtype == array.dtype else total.astype(array.dtype)


def wide_mean(array: Array, axis: Any) -> Array:
    """The mean over axes, which stay as 1, not rounded to the array's dtype."""
    array = in_c_order(array)
    total = sum_large(array, axis, True) if array.size >= LARGE else None
    if total is None:
        total = array.sum(axis=axis, keepdims=True, dtype=sum_dtype(array.dtype))
    return total / (array.size / max(total.size, 1))


def sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Undo a broadcast: sum `array` over the axes that `shape` lacks or has as 1."""
    extra = array.ndim - len(shape)
    axes = (*range(extra), *(i for i, n in enumerate(shape, extra) if n == 1 != array.shape[i]))
    total = reduce_sum(array, axes, keepdims=True) if axes else array
    if extra < 0 or total.shape[extra:] != shape:
        raise ShapeError(f"an array of shape {array.shape} is no broadcast of shape {shape}")
    return total.reshape(shape)
