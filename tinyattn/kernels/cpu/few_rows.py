"""Products of few rows with a large matrix: of floats, of float16, or of int8.

int8 numbers have a quarter of the bytes of float32, and float16 numbers half of them.
Their speed is the speed at which the matrix is read from memory. OpenBLAS reads several rows of it
at once, at 12 GB/s on an AMD EPYC (Zen 4). This kernel reads one row after the other, at 25 GB/s.
"""

from typing import Any

import numpy as np

from ..threads import parallel_for
from .compiler import FAST_SUMS, jit
from .float16 import bits_of, flushes_to_zero, numbers_of
from .layout import as_input

# With more rows of x, it is faster to copy the int8 numbers to floats and to call BLAS.
FEW = 8


@jit(fastmath=FAST_SUMS)
def dot_products(x, matrix, out, first, last):
    """out[n, i] = the sum of x[n, j] matrix[i, j] over j. It is in the dtype of x, as in BLAS."""
    width = x.shape[1]
    for i in range(first, last):
        row = matrix[i, :width]  # so no j is beyond its end: LLVM makes int8 a third faster
        for n in range(len(x)):
            total = x.dtype.type(0)
            for j in range(width):
                total += x.dtype.type(row[j]) * x[n, j]
            out[n, i] = total


@jit(fastmath=FAST_SUMS)
def dot_products_of_float16(x, bits, out, first, last):
    """The same with a matrix of float16: a row of it becomes float32 in the cache."""
    row = np.empty((1, bits.shape[1]), x.dtype)
    for i in range(first, last):
        numbers_of(bits[i], row[0], 0, bits.shape[1])
        dot_products(x, row, out[:, i : i + 1], 0, 1)


def few_rows_product(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """x (N, D) times the transpose of a matrix (E, D): (N, E), in the dtype of x.

    A matrix of float16 has an x of float32.
    """
    if matrix.dtype == np.float16 and flushes_to_zero():
        matrix = matrix.astype(x.dtype)
    is_half = matrix.dtype == np.float16
    matrix = bits_of(matrix) if is_half else as_input(matrix)
    function = dot_products_of_float16 if is_half else dot_products
    out = np.empty((len(x), len(matrix)), x.dtype)
    nanoseconds = 0.1 * matrix.size * len(x)  # about, for one thread
    parallel_for(len(matrix), nanoseconds, function, as_input(x), matrix, out)
    return out


def int8_product(x: np.ndarray, numbers: np.ndarray, scale: np.ndarray) -> Any:
    """x (N, D) times the transpose of numbers (E, D), each row times its scale (E,): (N, E)."""
    if len(x) > FEW:
        return NotImplemented
    return few_rows_product(x, numbers) * scale
