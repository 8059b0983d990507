"""Products of few rows with a large matrix of floats, or of int8 numbers, a quarter of the bytes.

Memory limits them. BLAS reads several rows of the matrix at once, and memory then brought 13
gigabytes in a second, where it brought 25 for one row after the other.
"""

from __future__ import annotations

import numpy as np

from .. import reference
from ..threads import parallel_for
from .compiler import FAST_SUMS, jit
from .layout import as_input

FEW = 8  # rows; for more, a copy of int8 numbers as floats and BLAS are faster


@jit(fastmath=FAST_SUMS)
def dot_products(x, matrix, out, first, last):
    """out[n, i] = the sum of x[n, j] matrix[i, j], in the dtype of x, as BLAS has it."""
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
    nanoseconds = 0.1 * matrix.size * len(x)
    parallel_for(len(matrix), nanoseconds, dot_products, as_input(x), as_input(matrix), out)
    return out


def int8_product(x: np.ndarray, numbers: np.ndarray, scale: np.ndarray) -> np.ndarray:
    if len(x) > FEW:
        return reference.int8_product(x, numbers, scale)
    return few_rows_product(x, numbers) * scale
