"""Along one dimension: running sums, products, elements by index, their sums by index, and
distances from a mean.

The loops see an array as (I, J, K), with this dimension in the middle. They go over lines of K
numbers, because these become vector instructions. Where K is 1, a loop over k would cost more than
the number itself, so there is none.
"""

import math
from typing import Any

import numpy as np

from .compiler import FAST_SUMS, jit
from .layout import as_input, as_rows
from .sums import sum_large


def as_lines(array: np.ndarray, dim: int) -> np.ndarray:
    """As (I, J, K), with dimension `dim` in the middle."""
    shape = array.shape
    return array.reshape(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))


@jit
def running_lines(x, out, reverse):
    n, totals = x.shape[1], np.empty(x.shape[2])
    for i in range(len(x)):
        totals[:] = total = np.float64(0)
        for step in range(n):
            j = n - 1 - step if reverse else step
            if len(totals) == 1:
                total += x[i, j, 0]
                out[i, j, 0] = total
            else:
                for k in range(len(totals)):
                    totals[k] += x[i, j, k]
                    out[i, j, k] = totals[k]


def running_sum(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    running_lines(as_lines(as_input(x), axis), as_lines(out, axis), reverse)
    return out


@jit(fastmath=FAST_SUMS)
def multiply_rows(x, out):
    for i in range(len(x)):
        product = np.float64(1)
        for j in range(x.shape[1]):
            product *= np.float64(x[i, j])
        out[i] = product


def products(x: np.ndarray, dim: int) -> Any:
    """Along the last dimension. The formula computes it where a product is 0, infinite or NaN."""
    if x.dtype != np.float32 or dim % x.ndim != x.ndim - 1 or not x.size:
        return NotImplemented
    out = np.empty((*x.shape[:-1], 1))
    multiply_rows(as_rows(x), out.reshape(-1))
    return out if out.all() and np.isfinite(out).all() else NotImplemented


@jit
def take_lines(x, index, out):
    for i in range(len(out)):
        for j in range(out.shape[1]):
            if out.shape[2] == 1:
                out[i, j, 0] = x[i, index[i, j, 0], 0]
            else:
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
    """`out` is (I, N K): N lines of K numbers, one after the other."""
    width, sums = x.shape[2], np.empty(out.shape[1])
    for i in range(len(x)):
        sums[:] = 0.0
        for j in range(x.shape[1]):
            if width == 1:
                sums[index[i, j, 0]] += x[i, j, 0]
            else:
                for k in range(width):
                    sums[index[i, j, k] * width + k] += x[i, j, k]
        for place in range(len(sums)):
            out[i, place] = sums[place]


def added_along(x: np.ndarray, index: np.ndarray, dim: int, target: tuple[int, ...]) -> Any:
    # Of lines of several numbers most would be zeros that are copied.
    is_sparse = dim < x.ndim - 1 and 4 * index.shape[dim] < target[dim]
    if is_sparse or not differ_along(target, index.shape, dim):
        return NotImplemented
    out = np.empty(target, x.dtype)
    flat = out.reshape(math.prod(target[:dim]), math.prod(target[dim:]))
    add_lines(as_lines(as_input(x), dim), index_lines(index, dim), flat)
    return out


@jit
def distance_lines(x, centre, factor, out):
    for i in range(len(x)):
        for j in range(x.shape[1]):
            if x.shape[2] == 1:
                out[i, j, 0] = (x[i, j, 0] - centre[i, 0]) * factor[i, 0]
            else:
                for k in range(x.shape[2]):
                    out[i, j, k] = (x[i, j, k] - centre[i, k]) * factor[i, k]


def scaled_distances(x: np.ndarray, factor: np.ndarray, dim: Any) -> Any:
    """Of float32 and the mean in float64, along one dimension or all."""
    if x.dtype != np.float32 or not (dim is None or isinstance(dim, int)) or 0 in (x.size, x.ndim):
        return NotImplemented
    total, out = sum_large(x, dim, True), np.empty(x.shape, x.dtype)
    dim, shape = (0, (x.size,)) if dim is None else (dim % x.ndim, x.shape)
    x, out_lines = (as_lines(array.reshape(shape), dim) for array in (as_input(x), out))
    centre, factor = (as_input(a).reshape(x.shape[::2]) for a in (total / shape[dim], factor))
    distance_lines(x, centre, factor, out_lines)
    return out


def differ_along(shape: tuple[int, ...], other: tuple[int, ...], dim: int) -> bool:
    """True if two shapes are the same but for `dim`."""
    return shape[:dim] == other[:dim] and shape[dim + 1 :] == other[dim + 1 :]


def index_lines(index: np.ndarray, dim: int) -> np.ndarray:
    """Without a sign, because a loop would ask of each signed integer if it counts from the end."""
    return as_lines(as_input(index.astype(np.int64, copy=False)).view(np.uint64), dim)
