"""What happens to a block of positions on its way through an encoder layer, and on the way back.

Blocks are small enough to stay in the first-level cache. They are not quite filled at the end of an
array; the rows that are left over hold zeros, or what becomes of these, and are never stored.
"""

from __future__ import annotations

import numpy as np

from .compiler import inner
from .dropout import hash_of
from .layer_norm import moments_of, normalize, normalize_backward
from .products import add_product
from .rows import ZERO

ROWS = 16  # of a block


@inner(apart=True)
def block_of(columns):
    return np.zeros((ROWS, columns), np.float32)


@inner(apart=True)
def load(x, start, count, out):
    """out = rows of x, and zeros where there are no more."""
    for i in range(count):
        for j in range(x.shape[1]):
            out[i, j] = x[start + i, j]
    out[count:] = ZERO


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
def drop_block(x, start, factor, hashing, out):
    """out = dropout of x, whose first row is number `start` of all."""
    threshold, low, high = hashing[0], hashing[1], hashing[2]
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
def norm_block(x, weight, bias, eps, moments, out):
    """out = the norm of x, of whose first rows mean and 1 / std are kept: moments (count, 2)."""
    for i in range(len(moments)):
        mean, inv_std = moments_of(x[i], eps)
        moments[i, 0], moments[i, 1] = mean, inv_std
        normalize(x[i], mean, inv_std, weight, bias, out[i])


@inner(apart=True)
def norm_again(x, weight, bias, moments, out):
    for i in range(len(moments)):
        normalize(x[i], moments[i, 0], moments[i, 1], weight, bias, out[i])


@inner(apart=True)
def norm_backward_block(grad, x, weight, moments, scratch, dx, dweight, dbias):
    """What the block gives is added to dx, dweight and dbias."""
    for i in range(len(moments)):
        mean, inv_std = moments[i, 0], moments[i, 1]
        normalize_backward(grad[i], x[i], mean, inv_std, weight, scratch[i], dweight, dbias)
        for j in range(x.shape[1]):
            dx[i, j] += scratch[i, j]


@inner(apart=True)
def linear_block(x, weight, bias, out):
    """out = x weight + bias; weight (in, out)."""
    for i in range(len(out)):
        for j in range(len(bias)):
            out[i, j] = bias[j]
    add_product(x[: len(x), :], weight, out, len(bias))


@inner(apart=True)
def linear_backward_block(grad, x, weight, dx, dweight, dbias):
    """dx, from weight (out, in); what the block gives is added to dweight and dbias."""
    for i in range(len(grad)):
        for j in range(len(dbias)):
            dbias[j] += grad[i, j]
    dx[:] = ZERO
    add_product(grad[: len(grad), :], weight, dx, dx.shape[1])
    add_product(grad[: len(grad), :].T, x, dweight, dx.shape[1])
