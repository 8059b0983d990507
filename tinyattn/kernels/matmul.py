"""Matrix products: the BLAS of NumPy computes them, or cuBLAS for CuPy, and a kernel of our own
those of few rows with a large matrix."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.backend import FLOAT16, Array, in_c_order, quiet
from . import blas
from .compiled import FORMULAS_ONLY, cpu_kernel
from .sums import float32_of
from .threads import parallel_for

# Rows of a chunk at least: BLAS copies the other operand once for each chunk, and with 64 rows a
# product takes up to twice as long.
ROWS = 256
MOST_CHUNKS = 16
WORK = 1 << 21  # multiplications in a chunk at least
# Below so much work, NumPy's product is as good as any. The work is one multiplication for each row
# of x and each number of y, and two more for each number of y, because y is read from memory.
SOME_WORK = 1 << 18
# For 1 to 6 rows of x, a kernel is faster than BLAS if y is large: so many numbers at least, by the
# rows of x. And y must be in column order (flags.fnc), as a transposed weight is.
LEAST_NUMBERS = {1: 100_000} | dict.fromkeys(range(2, 7), 1 << 18)
MOST_TERMS = 1 << 14  # of a sum in this kernel, because sums of more of them lose digits
# BLAS adds up a product of so little work one by one, and this loses digits from so many terms on.
LITTLE_WORK, PART = 1 << 20, 1 << 11
# BLAS copies its second matrix in parts first. For 8 to 48 rows of x, and y in column order, this
# takes as long as the product. So y comes first there, and x, which is smaller, is copied.
FEW_ROWS = range(8, 49)
SPEED = {4: 48, 8: 24}  # multiplications in a nanosecond on one core, by the bytes of a number


def matrix_product(x: Array, y: Array, rounded: bool = True) -> Array:
    """x @ y, also of Tensors. NumPy has no fast float16 product: it is computed in float32, and
    stays so with rounded=False."""
    if type(x) is not np.ndarray:
        return x @ y
    if x.dtype is FLOAT16:
        return float16_product(x, y, rounded)
    if x.ndim == y.ndim == 2 and (len(x) + 2) * y.size >= SOME_WORK:
        return large_product(x, y)
    return x @ y


def float16_product(x: np.ndarray, y: np.ndarray, rounded: bool) -> np.ndarray:
    """x @ y by way of float32. A kernel for few rows reads y in float16, half of the bytes."""
    x = float32_of(x)
    kernel = kernel_for_few_rows(x, y) if x.ndim == y.ndim == 2 else None
    out = matrix_product(x, float32_of(y)) if kernel is None else kernel(x, y.T)
    return out.astype(np.float16) if rounded else out


def large_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x @ y: in parts of long sums, by a kernel for few rows, as (y^T x^T)^T, or in chunks."""
    if x.dtype is not y.dtype or x.dtype.kind != "f" or x.itemsize not in SPEED:
        return x @ y  # of integers, which BLAS does not multiply
    if len(y) >= 2 * PART and x.size * y.shape[1] <= LITTLE_WORK:
        parts = [x[:, i : i + PART] @ y[i : i + PART] for i in range(0, len(y), PART)]
        return np.sum(parts, axis=0, dtype=np.float64).astype(x.dtype)
    if FORMULAS_ONLY:
        return x @ y
    if (kernel := kernel_for_few_rows(x, y)) is not None:
        return kernel(x, y.T)
    if y.flags.fnc and len(x) in FEW_ROWS and len(x) < y.shape[1]:
        return in_c_order(large_product(y.T, x.T).T)
    if x.size * y.shape[1] >= 2 * WORK and blas.limit_once():
        return divided_product(x, y)
    return x @ y


def kernel_for_few_rows(x: np.ndarray, y: np.ndarray) -> Callable[..., Any] | None:
    """The kernel for few rows, if x has few and y is so large that it is faster than BLAS."""
    is_large = y.flags.fnc and y.size >= LEAST_NUMBERS.get(len(x), np.inf)
    return cpu_kernel("few_rows.few_rows_product") if is_large and len(y) <= MOST_TERMS else None


def divided_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x (N, K) @ y (K, M), in chunks of rows if N >= M, else of columns.

    The chunks are the same for any number of threads, because BLAS rounds products of other shapes
    differently.
    """
    out = np.empty((len(x), y.shape[1]), x.dtype)
    work, length = x.size * y.shape[1], max(out.shape)
    chunks = max(1, min(MOST_CHUNKS, work // WORK, length // ROWS))
    chunks += chunks % 2 if chunks > 1 else 0  # so that two threads compute as many each
    height = -(-length // chunks)
    parallel_for(chunks, work / SPEED[x.itemsize], multiply_chunks, x, y, out, height)
    return out


# The caller's settings of NumPy do not reach other threads: nobody is warned of an inf.
@quiet
def multiply_chunks(
    x: np.ndarray, y: np.ndarray, out: np.ndarray, height: int, first: int, last: int
) -> None:
    """Some chunks of x @ y, of `height` rows, or columns where there are more columns than rows."""
    whole, has_rows = slice(None), len(x) >= y.shape[1]
    for chunk in range(first, last):
        part = slice(chunk * height, (chunk + 1) * height)
        rows, columns = (part, whole) if has_rows else (whole, part)
        np.matmul(x[rows], y[:, columns], out=out[rows, columns])
