"""The product of few rows with a large matrix of int8 numbers: memory limits it, and these are a
quarter of float32's bytes."""

from __future__ import annotations

import numpy as np

from .. import reference
from ..threads import parallel_for
from .compiler import FAST_SUMS, jit
from .layout import as_input

FEW = 8  # rows; for more, a copy of the matrix in float32 and BLAS are faster


@jit(fastmath=FAST_SUMS)
def int8_rows(x, numbers, scale, out, first, last):
    """Sums are of float32, as BLAS has them."""
    for i in range(first, last):
        row = numbers[i]
        for n in range(len(x)):
            total = np.float32(0)
            for j in range(len(row)):
                total += np.float32(row[j]) * x[n, j]
            out[n, i] = total * scale[i]


def int8_product(x: np.ndarray, numbers: np.ndarray, scale: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32 or len(x) > FEW:
        return reference.int8_product(x, numbers, scale)
    out = np.empty((len(x), len(numbers)), np.float32)
    arrays = as_input(x), as_input(numbers), as_input(scale), out
    parallel_for(len(numbers), 0.07 * numbers.size * len(x), int8_rows, *arrays)
    return out
