"""Sums over rows: a bias and its gradient, an embedding's gradient."""

from __future__ import annotations

import numpy as np

from .. import reference
from ..threads import parallel_for
from .compiler import jit, retrying
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


@retrying  # each chunk alone: a second try of all would add to the finished ones again
@jit
def add_to_rows(x, bias, first, last):
    x = x[first:last]
    for i in range(len(x)):
        for j in range(len(bias)):
            x[i, j] += bias[j]


def add_bias(x: np.ndarray, bias: np.ndarray) -> None:
    if bias.shape != x.shape[1:] or bias.dtype is not x.dtype or not x.flags.carray:
        return reference.add_bias(x, bias)
    parallel_for(len(x), 0.1 * x.size, add_to_rows, x, as_input(bias))


@jit
def sum_columns(x, totals):
    for i in range(len(x)):
        for j in range(x.shape[1]):
            totals[j] += x[i, j]


def sum_rows(x: np.ndarray) -> np.ndarray:
    totals = np.zeros(x.shape[1])
    sum_columns(as_input(x), totals)
    return totals.astype(x.dtype)
