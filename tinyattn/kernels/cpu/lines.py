"""Along one dimension: running sums, elements by index, and their sums by index.

The loops see an array as (I, J, K), with this dimension in the middle. They go over lines of K
numbers, because these become vector instructions.
"""

import math
from typing import Any

import numpy as np

from .compiler import jit
from .layout import as_input


def as_lines(array: np.ndarray, dim: int) -> np.ndarray:
    """As (I, J, K), with dimension `dim` in the middle."""
    shape = array.shape
    return array.reshape(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))


@jit
def running_lines(x, out, reverse):
    n, totals = x.shape[1], np.empty(x.shape[2])
    for i in range(len(x)):
        totals[:] = 0.0
        for step in range(n):
            j = n - 1 - step if reverse else step
            for k in range(len(totals)):
                totals[k] += x[i, j, k]
                out[i, j, k] = totals[k]


def running_sum(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    running_lines(as_lines(as_input(x), axis), as_lines(out, axis), reverse)
    return out


@jit
def take_lines(x, index, out):
    for i in range(len(out)):
        for j in range(out.shape[1]):
            for k in range(out.shape[2]):
                out[i, j, k] = x[i, index[i, j, k], k]


def taken_along(x: np.ndarray, index: np.ndarray, dim: int) -> Any:
    if not differ_along(x.shape, index.shape, dim):
        return NotImplemented
    out = np.empty(index.shape, x.dtype)
    take_lines(as_lines(as_input(x), dim), index_lines(index, dim), as_lines(out, dim))
    return out


@jit
def add_lines(x, index, out):
    sums = np.empty(out.shape[1:])
    for i in range(len(x)):
        sums[:] = 0.0
        for j in range(x.shape[1]):
            for k in range(x.shape[2]):
                sums[index[i, j, k], k] += x[i, j, k]
        out[i] = sums


def added_along(x: np.ndarray, index: np.ndarray, dim: int, target: tuple[int, ...]) -> Any:
    is_sparse = 4 * index.shape[dim] < target[dim]  # most of a line would be zeros that are copied
    if is_sparse or not differ_along(target, index.shape, dim):
        return NotImplemented
    out = np.empty(target, x.dtype)
    add_lines(as_lines(as_input(x), dim), index_lines(index, dim), as_lines(out, dim))
    return out


def differ_along(shape: tuple[int, ...], other: tuple[int, ...], dim: int) -> bool:
    """True if two shapes are the same but for `dim`."""
    return shape[:dim] == other[:dim] and shape[dim + 1 :] == other[dim + 1 :]


def index_lines(index: np.ndarray, dim: int) -> np.ndarray:
    """Without a sign, because a loop would ask of each signed integer if it counts from the end."""
    return as_lines(as_input(index.astype(np.int64, copy=False)).view(np.uint64), dim)
