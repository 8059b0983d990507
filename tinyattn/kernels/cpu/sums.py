"""Sums over rows: a bias and its gradient, an embedding's gradient, squares; and running sums."""

from __future__ import annotations

import numpy as np

from .. import reference
from ..threads import parallel_for
from .compiler import jit, retrying
from .layout import as_input, as_rows, lines_along
from .row_functions import LANES, dot


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


@jit
def product_rows(x, out):
    lanes = np.empty(LANES)
    for i in range(len(x)):
        for lane in range(LANES):
            lanes[lane] = 1.0
        whole = x.shape[1] // LANES * LANES
        for j in range(0, whole, LANES):
            for lane in range(LANES):
                lanes[lane] *= x[i, j + lane]
        for j in range(whole, x.shape[1]):
            lanes[j - whole] *= x[i, j]
        total = 1.0
        for lane in range(LANES):
            total *= lanes[lane]
        out[i] = total


def multiply_rows(x: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32:
        return reference.multiply_rows(x)
    products = np.empty(len(x))
    product_rows(as_input(x), products)
    return products


@jit
def square_rows(x, totals):
    lanes = np.empty(LANES)
    for i in range(len(x)):
        totals[i] = dot(x[i], x[i], lanes)


def sum_squares(x: np.ndarray) -> np.ndarray:
    totals = np.zeros(len(x))
    square_rows(as_input(x), totals)
    return totals


@jit
def cumsum_lines(x, out, reverse):
    """Along the middle dimension, row by row, because rows become vector instructions."""
    n, width = x.shape[1:]
    totals = np.empty(width)
    for i in range(len(x)):
        for k in range(width):
            totals[k] = 0.0
        for step in range(n):
            j = n - 1 - step if reverse else step
            for k in range(width):
                totals[k] += x[i, j, k]
                out[i, j, k] = totals[k]


@jit
def cumsum_of_rows(x, out, reverse):
    """Along the last dimension; the running sum stays in a register."""
    n = x.shape[1]
    for i in range(len(x)):
        total = np.float64(0)
        for step in range(n):
            j = n - 1 - step if reverse else step
            total += x[i, j]
            out[i, j] = total


def cumsum(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    if x.size:
        *lines, width = lines_along(x.shape, axis)
        if width == 1:
            cumsum_of_rows(as_input(x).reshape(lines), out.reshape(lines), reverse)
        else:
            lines.append(width)
            cumsum_lines(as_input(x).reshape(lines), out.reshape(lines), reverse)
    return out
