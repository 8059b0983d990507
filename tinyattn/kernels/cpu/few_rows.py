"""Products of few rows with a large matrix of floats, or of int8 numbers, a quarter of the bytes.

Their speed is the speed at which the matrix is read from memory. OpenBLAS reads several rows of it
at once, at 12 GB/s on an AMD EPYC (Zen 4). This kernel reads one row after the other, at 25 GB/s.
"""

from __future__ import annotations

import numpy as np

from .. import reference
from ..threads import parallel_for
from .compiler import FAST_SUMS, jit
from .layout import as_input

# With more rows of x, it is faster to copy the int8 numbers to floats and to call BLAS.
FEW = 8


@jit(fastmath=FAST_SUMS)
def dot_products(x, matrix, out, first, last):
    """out[n, i] = the sum of x[n, j] matrix[i, j] over j. It is in the dtype of x, as in BLAS."""
    for i in range(first, last):
        row = matrix[i]
        for n in range(len(x)):
            total = x.dtype.type(0)
            for j in range(len(row)):
                total += x.dtype.type(row[j]) * x[n, j]
            out[n, i] = total


def few_rows_product(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """x (N, D) times the transpose of a matrix (E, D): (N, E)."""
    out = np.empty((len(x), len(matrix)), x.dtype)
    nanoseconds = 0.1 * matrix.size * len(x)  # about, for one thread
    parallel_for(len(matrix), nanoseconds, dot_products, as_input(x), as_input(matrix), out)
    return out


def int8_product(x: np.ndarray, numbers: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """x (N, D) times the transpose of numbers (E, D), each row times its scale (E,): (N, E)."""
    if len(x) > FEW:
        return reference.int8_product(x, numbers, scale)
    return few_rows_product(x, numbers) * scale
