"""Sums that do not lose digits, for NumPy and CuPy arrays; and float16 as float32."""

import math
from typing import Any

import numpy as np

from ..base.backend import Array, in_c_order
from ..errors import ShapeError
from .compiled import FORMULAS_ONLY, cpu_kernel


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which numbers are added up, because in float32 2**24 + 1 is 2**24."""
    if dtype == np.float32:
        return np.dtype(np.float64)
    return np.dtype(np.float32) if dtype == np.float16 else np.dtype(dtype.type)


HALVES = 1 << 12  # numbers of float16 from which a kernel is faster than NumPy


def float32_of(x: Any) -> Any:
    """An array of float16 in float32; one of float32 as it is."""
    if type(x) is np.ndarray and x.dtype == np.float16 and x.size >= HALVES:
        kernel = cpu_kernel("float16.float32_of")
        if kernel is not None:
            return kernel(x)
    return x.astype(np.float32, copy=False)


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


def is_large(array: Array) -> bool:
    return type(array) is np.ndarray and array.size >= LARGE


def wide_sum(array: Array, axis: Any, keepdims: bool) -> Array:
    """The sum in `sum_dtype`, for float32 of many numbers by a kernel."""
    if is_large(array) and array.dtype == np.float32 and not FORMULAS_ONLY:
        kernel = cpu_kernel("sums.sum_large")
        if kernel is not None:
            return kernel(array, axis, keepdims)
    return array.sum(axis=axis, keepdims=keepdims, dtype=sum_dtype(array.dtype))


def reduce_sum(array: Array, axis: Any = None, keepdims: bool = False, mean: bool = False) -> Array:
    """Sum (or mean) over axes: NumPy's own of a few numbers that it adds in pairs, else added in
    `sum_dtype`."""
    array = in_c_order(array)
    if array.dtype.kind != "f":  # unsigned numbers too, whose differences may be negative
        return array.sum(axis=axis, keepdims=keepdims, dtype=np.int64)
    if mean:  # of nothing it is NaN; in `sum_dtype`, because the sum may overflow
        total = wide_sum(array, axis, keepdims)
        total = total / (array.size // total.size) if array.size else total * math.nan
    elif adds_in_pairs(array, axis) and not is_large(array):
        total = array.sum(axis=axis, keepdims=keepdims)
    else:
        total = wide_sum(array, axis, keepdims)
    return total if total.dtype == array.dtype else total.astype(array.dtype)


def sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Undo a broadcast: sum `array` over the axes that `shape` lacks or has as 1."""
    extra = array.ndim - len(shape)
    repeated = (i for i, n in enumerate(shape, extra) if extra >= 0 and n != array.shape[i])
    axes = (*range(extra), *repeated)
    total = reduce_sum(array, axes, keepdims=True) if axes else array
    if extra < 0 or total.shape[extra:] != shape:
        raise ShapeError(f"an array of shape {array.shape} is no broadcast of shape {shape}")
    return total.reshape(shape)
