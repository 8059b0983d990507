"""Sums over rows and of each row, and an embedding's gradient."""

import math
from typing import Any

import numpy as np

from .compiler import FAST_SUMS, jit
from .layout import as_input, as_rows


@jit
def scatter_into(grad, ids, skip, places, sums, table):
    """Sums are kept for the rows that occur only, because a table of float64 may be large."""
    count = 0
    for i in range(len(ids)):
        row = ids[i]
        if row != skip:
            if places[row] < 0:
                places[row] = count
                count += 1
            place = places[row]
            for j in range(grad.shape[1]):
                sums[place, j] += grad[i, j]
    for row in range(len(places)):
        if places[row] >= 0:
            place = places[row]
            for j in range(grad.shape[1]):
                table[row, j] = sums[place, j]


def scatter_rows(grad: np.ndarray, ids: np.ndarray, num_rows: int, skip: int | None) -> np.ndarray:
    table = np.zeros((num_rows, grad.shape[-1]), grad.dtype)
    if grad.size:
        ids = as_input(ids.astype(np.int64, copy=False).reshape(-1))
        places = np.full(num_rows, -1)  # of the rows in `sums`
        sums = np.zeros((min(ids.size, num_rows), grad.shape[-1]))
        scatter_into(as_rows(grad), ids, -1 if skip is None else skip, places, sums, table)
    return table


@jit
def sum_columns(x, totals):
    for i in range(len(x)):
        for j in range(x.shape[1]):
            totals[j] += x[i, j]


def sum_rows(x: np.ndarray) -> np.ndarray:
    totals = np.zeros(x.shape[1])
    sum_columns(as_input(x), totals)
    return totals.astype(x.dtype)


@jit(fastmath=FAST_SUMS)
def total_rows(x, totals):
    for i in range(len(x)):
        total = np.float64(0)
        for j in range(x.shape[1]):
            total += np.float64(x[i, j])
        totals[i] = total


def sum_large(x: np.ndarray, axis: Any, keepdims: bool) -> Any:
    """The sum of float32 numbers in float64; by a kernel over all axes, or the first or the last
    of them."""
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    summed = {i % x.ndim for i in axes}
    kept = [i for i in range(x.ndim) if i not in summed]
    shape = [1 if i in summed else n for i, n in enumerate(x.shape)]
    totals = np.zeros(math.prod(shape))
    if kept == list(range(len(kept))):
        total_rows(as_input(x).reshape(totals.size, -1), totals)
    elif kept == list(range(len(summed), x.ndim)):
        sum_columns(as_input(x).reshape(-1, totals.size), totals)
    else:
        return x.sum(axis=axis, keepdims=keepdims, dtype=np.float64)
    return totals.reshape(shape if keepdims else [x.shape[i] for i in kept])


@jit(fastmath=FAST_SUMS)
def square_rows(x, totals):
    for i in range(len(x)):
        total = np.float64(0)
        for j in range(x.shape[1]):
            value = np.float64(x[i, j])
            total += value * value
        totals[i] = total


def sum_squares(x: np.ndarray) -> np.ndarray:
    totals = np.empty(len(x))
    square_rows(as_input(x), totals)
    return totals
