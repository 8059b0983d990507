"""The reverse of gather: elements are added along one dimension by index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiler import jit
from .layout import as_input


@jit
def scatter_lines(grad, index, width, out):
    """Along the middle of three dimensions; the last two are one here, `width` elements a row.

    The sums of one line of `out` are kept, because all of them would be a large array.
    """
    sums = np.empty(out.shape[1])
    for i in range(len(out)):
        for j in range(len(sums)):
            sums[j] = 0.0
        column = 0
        for j in range(index.shape[1]):
            sums[index[i, j] * width + column] += grad[i, j]
            column = column + 1 if column + 1 < width else 0
        for j in range(len(sums)):
            out[i, j] = sums[j]


def scatter_along(grad: np.ndarray, index: np.ndarray, axis: int, shape: tuple[int, ...]) -> Any:
    if not have_equal_lines(shape, index.shape, axis):
        return NotImplemented
    out = np.empty(shape, grad.dtype)
    count, width = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    places = as_input(index.astype(np.int64, copy=False)).reshape(count, -1)
    scatter_lines(as_input(grad).reshape(count, -1), places, width, out.reshape(count, -1))
    return out


def have_equal_lines(shape: tuple[int, ...], other: tuple[int, ...], axis: int) -> bool:
    """True if two shapes differ along `axis` at most, and nothing is empty."""
    ends = (slice(axis), slice(axis + 1, None))
    return all(shape[end] == other[end] for end in ends) and 0 not in shape + other
