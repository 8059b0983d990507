"""What happens to a block of positions on its way through an encoder layer, and on the way back.

Blocks are small enough to stay in the first-level cache. They are not quite filled at the end of an
array; the rows that are left over hold zeros, or what becomes of these, and are never stored.
"""

from __future__ import annotations

import numpy as np

from .arrays import clear, rows_at
from .compiler import inner
from .dropout import hash_of
from .layer_norm import moments_of, normalize, normalize_backward
from .products import add_product
from .rows import ZERO

ROWS = 16  # of a block


@inner(apart=True)
def load(x, start, count, out):
    """out = rows of x, and zeros where there are no more."""
    for i in range(count):
        for j in range(x.shape[1]):
            out[i, j] = x[start + i, j]
    clear(out, count, len(out))


@inner(apart=True)
def store(x, start, count, out):
    """The way back."""
    for i in range(count):
        for j in range(x.shape[1]):
            out[start + i, j] = x[i, j]


@inner(apart=True)
def add_block(x, out):
    for i in range(len(x)):
        for j in range(x.shape[1]):
            out[i, j] += x[i, j]


@inner(apart=True)
def drop_block(x, start, factors, hashing, place, out):
    """out = dropout of x, whose first row is number `start` of all; the dropout at that place of
    factors (4,) and hashing (4, 3)."""
    factor = factors[place]
    threshold, low, high = hashing[place, 0], hashing[place, 1], hashing[place, 2]
    columns = x.shape[1]
    for i in range(len(x)):
        first = np.uint32((start + i) * columns)
        if threshold > 0:
            for j in range(columns):
                kept = hash_of(np.uint32(first + np.uint32(j)), low, high) >= threshold
                out[i, j] = x[i, j] * factor if kept else ZERO
        else:
            for j in range(columns):
                out[i, j] = x[i, j]


@inner(apart=True)
def relu_block(x):
    for i in range(len(x)):
        for j in range(x.shape[1]):
            x[i, j] = ZERO if x[i, j] <= ZERO else x[i, j]


@inner(apart=True)
def relu_backward_block(grad, out, factor, result):
    """Of dropout(relu(x)), which is zero where either made it so."""
    for i in range(len(out)):
        for j in range(out.shape[1]):
            result[i, j] = ZERO if out[i, j] <= ZERO else grad[i, j] * factor


@inner(apart=True)
def norm_block(x, norm, eps, moments, start, count, out):
    """out = the norm of x, by norm (2, D), weight and bias. Mean and 1 / std of its first rows are
    kept in moments (N, 2), from `start` on."""
    for i in range(count):
        mean, inv_std = moments_of(x[i], eps)
        moments[start + i, 0], moments[start + i, 1] = mean, inv_std
        normalize(x[i], mean, inv_std, norm[0], norm[1], out[i])


@inner(apart=True)
def norm_again(x, norm, moments, start, count, out):
    for i in range(count):
        mean, inv_std = moments[start + i, 0], moments[start + i, 1]
        normalize(x[i], mean, inv_std, norm[0], norm[1], out[i])


@inner(apart=True)
def norm_backward_block(grad, x, norm, moments, start, count, scratch, dx, dnorm):
    """What the block gives is added to dx and dnorm (2, D)."""
    for i in range(count):
        mean, inv_std = moments[start + i, 0], moments[start + i, 1]
        row = scratch[i]
        normalize_backward(grad[i], x[i], mean, inv_std, norm[0], row, dnorm[0], dnorm[1])
        for j in range(x.shape[1]):
            dx[i, j] += row[j]


@inner(apart=True)
def linear_block(x, weight, bias, out):
    """out = x weight + bias; weight (in, out)."""
    for i in range(len(out)):
        for j in range(len(bias)):
            out[i, j] = bias[j]
    add_product(rows_at(x, 0, len(x)), weight, out, len(bias))


@inner(apart=True)
def linear_backward_block(grad, x, weight, dx, dweight, dbias):
    """dx, from weight (out, in); what the block gives is added to dweight and dbias."""
    for i in range(len(grad)):
        for j in range(len(dbias)):
            dbias[j] += grad[i, j]
    clear(dx, 0, len(dx))
    add_product(rows_at(grad, 0, len(grad)), weight, dx, dx.shape[1])
    add_product(rows_at(grad, 0, len(grad)).T, x, dweight, dx.shape[1])
