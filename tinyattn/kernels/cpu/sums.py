"""Sums over rows: a bias and its gradient, an embedding's gradient."""

from __future__ import annotations

import numpy as np

from .. import reference
from ..threads import parallel_for
from .compiler import jit
from .layout import as_input, as_rows


@jit
def scatter_into(grad, ids, skip, table):
    for i in range(len(ids)):
        row = ids[i]
        if row != skip:
            for j in range(grad.shape[1]):
                table[row, j] += grad[i, j]


def scatter_rows(grad: np.ndarray, ids: np.ndarray, num_rows: int, skip: int | None) -> np.ndarray:
    table = np.zeros((num_rows, grad.shape[-1]))
    if grad.size:
        ids = as_input(ids.astype(np.int64, copy=False).reshape(-1))
        scatter_into(as_rows(grad), ids, -1 if skip is None else skip, table)
    return table.astype(grad.dtype)


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
