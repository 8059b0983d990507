"""Matrix products, which are not ours: NumPy hands them to its BLAS, CuPy to cuBLAS."""

from __future__ import annotations

import numpy as np

from .. import backend
from ..backend import FLOAT16, Array
from . import threads

SPEED = {4: 48, 8: 24}  # multiplications in a nanosecond on one core, by the bytes of a number
# So few are never worth a second thread: what it makes lies in the cache of another core then, and
# the next operation waits for it.
LARGE = 1 << 21


def matrix_product(x: Array, y: Array) -> Array:
    """x @ y. NumPy has no fast float16 product, so that one is computed in float32."""
    if type(x) is not np.ndarray:
        return x @ y if backend.capture is None else backend.capture.matmul(x, y)
    if x.dtype is FLOAT16:
        return (x.astype(np.float32) @ y.astype(np.float32)).astype(np.float16)
    if x.ndim == y.ndim == 2 and x.size * y.shape[1] > LARGE and threads.awake():
        return divided_product(x, y)
    return x @ y


def divided_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x (N, K) @ y (K, M), its rows or columns divided among threads, whichever are more."""
    if x.dtype is not y.dtype or x.dtype.kind != "f":
        return x @ y
    out = np.empty((len(x), y.shape[1]), x.dtype)
    function = multiply_rows if len(x) >= y.shape[1] else multiply_columns
    nanoseconds = x.size * y.shape[1] / SPEED[x.itemsize]
    threads.in_parts(max(out.shape), nanoseconds, function, x, y, out)
    return out


# What the caller set with np.errstate does not reach other threads: nobody is warned of an inf.


@np.errstate(all="ignore")
def multiply_rows(x: np.ndarray, y: np.ndarray, out: np.ndarray, first: int, last: int) -> None:
    np.matmul(x[first:last], y, out=out[first:last])


@np.errstate(all="ignore")
def multiply_columns(x: np.ndarray, y: np.ndarray, out: np.ndarray, first: int, last: int) -> None:
    np.matmul(x, y[:, first:last], out=out[:, first:last])
