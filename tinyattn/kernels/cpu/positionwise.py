"""What an encoder layer does to each position by itself, a few positions at a time.

Between one attention and the next no position looks at another. So a block of rows goes through
linear layers, relu, dropout, residual connections and norm while it stays in the first-level cache,
and blocks are what threads share out; one by one, these would be ten operations that each read and
write all the rows. Forward keeps what backward needs: the sum after attention (`stream`), the
moments of its norm, and the hidden layer.

Weights are read again for every block, and their gradients added up over all of them, so both have
to stay in the cache too: this is for narrow layers. With wide ones the products are all that takes
time, and BLAS is best at those.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ...threads import in_parts
from .. import FLOAT32
from ..reference import drop_threshold, halves
from .compiler import inner, jit, ready, rows, rows_of_new
from .dropout import hash_of
from .layer_norm import moments_of, normalize, normalize_backward
from .products import add_product
from .rows import ZERO

ROWS = 16  # of a block
# Gradients of weights are summed in groups of rows, at most so many, each of so many nanoseconds at
# least: as many for any number of threads, so that the sums do not depend on it.
GROUPS, GROUP = 8, 40_000
ABSENT, NO_BIAS = ready(np.zeros((0, 0), FLOAT32)), ready(np.zeros(0, FLOAT32))


@inner
def block_of(columns):
    return np.zeros((ROWS, columns), np.float32)


@inner
def load(x, start, count, out):
    """out = rows of x, and zeros where there are no more."""
    for i in range(count):
        for j in range(x.shape[1]):
            out[i, j] = x[start + i, j]
    out[count:] = ZERO


@inner
def store(x, start, count, out):
    """The way back."""
    for i in range(count):
        for j in range(x.shape[1]):
            out[start + i, j] = x[i, j]


@inner
def add_rows(x, start, count, y, out):
    """Rows of out = those of x, plus a block."""
    for i in range(count):
        for j in range(y.shape[1]):
            out[start + i, j] = x[start + i, j] + y[i, j]


@inner
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


@inner
def relu_block(x):
    for i in range(len(x)):
        for j in range(x.shape[1]):
            x[i, j] = ZERO if x[i, j] <= ZERO else x[i, j]


@inner
def relu_backward_block(grad, out, factor, result):
    """Of dropout(relu(x)), which is zero where either made it so."""
    for i in range(len(out)):
        for j in range(out.shape[1]):
            result[i, j] = ZERO if out[i, j] <= ZERO else grad[i, j] * factor


@inner
def norm_block(x, start, count, weight, bias, eps, moments, out):
    """out = the norm of rows of x, of which mean and 1 / std are kept."""
    for i in range(count):
        row = x[start + i]
        mean, inv_std = moments_of(row, eps)
        moments[start + i, 0], moments[start + i, 1] = mean, inv_std
        normalize(row, mean, inv_std, weight, bias, out[i])


@inner
def norm_again(x, start, count, weight, bias, moments, out):
    for i in range(count):
        mean, inv_std = moments[start + i, 0], moments[start + i, 1]
        normalize(x[start + i], mean, inv_std, weight, bias, out[i])


@inner
def norm_backward_block(grad, x, start, count, weight, moments, scratch, dx, dweight, dbias):
    """What the block gives is added to dx, dweight and dbias."""
    for i in range(count):
        row, mean, inv_std = x[start + i], moments[start + i, 0], moments[start + i, 1]
        normalize_backward(grad[i], row, mean, inv_std, weight, scratch[i], dweight, dbias)
        for j in range(len(row)):
            dx[i, j] += scratch[i, j]


@inner
def linear_block(x, weight, bias, out):
    """out = x weight + bias; weight (in, out)."""
    for i in range(len(out)):
        for j in range(len(bias)):
            out[i, j] = bias[j]
    add_product(x[: len(x), :], weight, out, len(bias))


@inner
def linear_backward_block(grad, x, weight, dx, dweight, dbias):
    """dx, from weight (out, in); what the block gives is added to dweight and dbias."""
    for i in range(len(grad)):
        for j in range(len(dbias)):
            dbias[j] += grad[i, j]
    dx[:] = ZERO
    add_product(grad[: len(grad), :], weight, dx, dx.shape[1])
    add_product(grad[: len(grad), :].T, x, dweight, dx.shape[1])


@jit
def position_blocks(
    heads, x, stream, stream_read, weights, biases, norm, factors, hashing, moments, hidden, out,
    first, last,
):  # fmt: skip
    """Blocks `first` to before `last` of what `ops.positionwise.steps` computes.

    stream (N, D): what is normalized, x itself without heads; stream_read: the same, not to be
    written to. weights (in, out), biases, and of dropout factors (3,) and hashing (3, 3), which is
    threshold and seed: after attention, into the hidden layer, out of it. norm: weight, bias, eps.
    moments (N, 2).
    """
    norm_weight, norm_bias, eps = norm
    attended = len(heads) > 0
    after, into, out_of = weights
    width, inside = stream_read.shape[1], into.shape[1]
    attention = block_of(len(after))
    normed, result, dropped = block_of(width), block_of(width), block_of(width)
    ahead, active = block_of(inside), block_of(inside)
    for start in range(first * ROWS, min(last * ROWS, len(out)), ROWS):
        count = min(ROWS, len(out) - start)
        if attended:
            load(heads, start, count, attention)
            linear_block(attention, after, biases[0], result)
            drop_block(result, start, factors[0], hashing[0], dropped)
            add_rows(x, start, count, dropped, stream)
        norm_block(stream_read, start, count, norm_weight, norm_bias, eps, moments, normed)
        linear_block(normed, into, biases[1], ahead)
        if not attended:
            store(ahead, start, count, out)
            continue
        relu_block(ahead)
        drop_block(ahead, start, factors[1], hashing[1], active)
        store(active, start, count, hidden)
        linear_block(active, out_of, biases[2], result)
        drop_block(result, start, factors[2], hashing[2], dropped)
        add_rows(stream_read, start, count, dropped, out)


@jit
def position_backward_blocks(
    grad, heads, stream, weights, norm, factors, hashing, moments, hidden, height, dheads, dx,
    dweights, dsums, first, last,
):  # fmt: skip
    """The gradients, from groups of `height` rows; weights are (out, in).

    dweights: three arrays (groups, out, in). dsums (groups, 4 D + hidden), side by side: of the
    norm's weight and bias, and of the biases out of the hidden layer, after attention, and into the
    hidden layer.
    """
    norm_weight, norm_bias, _ = norm
    attended = len(heads) > 0
    after, into, out_of = weights
    width, inside = stream.shape[1], len(into)
    attention, dattention = block_of(after.shape[1]), block_of(after.shape[1])
    normed, dnormed, dstream, below = (
        block_of(width), block_of(width), block_of(width), block_of(width)
    )  # fmt: skip
    active, dactive, dahead = block_of(inside), block_of(inside), block_of(inside)
    for group in range(first, last):
        dafter, dinto, dout_of = dweights[0][group], dweights[1][group], dweights[2][group]
        sums = dsums[group]
        dnorm_weight, dnorm_bias = sums[:width], sums[width : 2 * width]
        dbias_out, dbias_after = sums[2 * width : 3 * width], sums[3 * width : 4 * width]
        dbias_into = sums[4 * width :]
        for start in range(group * height, min((group + 1) * height, len(grad)), ROWS):
            count = min(ROWS, len(grad) - start)
            if attended:
                load(grad, start, count, dstream)
                drop_block(dstream, start, factors[2], hashing[2], below)
                load(hidden, start, count, active)
                linear_backward_block(below, active, out_of, dactive, dout_of, dbias_out)
                relu_backward_block(dactive, active, factors[1], dahead)
            else:
                dstream[:] = ZERO
                load(grad, start, count, dahead)
            norm_again(stream, start, count, norm_weight, norm_bias, moments, normed)
            linear_backward_block(dahead, normed, into, dnormed, dinto, dbias_into)
            norm_backward_block(
                dnormed, stream, start, count, norm_weight, moments, below, dstream, dnorm_weight,
                dnorm_bias,
            )  # fmt: skip
            store(dstream, start, count, dx)
            if attended:
                drop_block(dstream, start, factors[0], hashing[0], below)
                load(heads, start, count, attention)
                linear_backward_block(below, attention, after, dattention, dafter, dbias_after)
                store(dattention, start, count, dheads)


def positionwise(
    x: np.ndarray, heads: Any, parameters: Any, eps: float, rates: Any, seeds: Any
) -> tuple[np.ndarray, Any]:
    """What `ops.positionwise.steps` computes, and what backward needs."""
    attended = heads is not None
    heads, weights, biases, norm = prepared(heads, parameters, eps)
    weights = tuple(np.array(weight.T, order="C") for weight in weights)
    inside = weights[1].shape[1]
    out = np.empty((*x.shape[:-1], x.shape[-1] if attended else inside), x.dtype)
    x = rows(x)
    number = len(x)
    stream = np.empty(x.shape if attended else (0, 0), x.dtype)
    stream_read = ready(stream) if attended else x
    hidden = np.empty((number if attended else 0, inside), x.dtype)
    moments = np.empty((number, 2))
    arguments = (
        heads, x, stream, stream_read, weights, biases, norm, *drops_of(rates, seeds), moments,
        hidden, rows_of_new(out),
    )  # fmt: skip
    in_parts(-(-number // ROWS), nanoseconds_of(number, weights), position_blocks, *arguments)
    return out, (stream, moments, hidden)


def positionwise_backward(
    grad: np.ndarray, x: np.ndarray, heads: Any, parameters: Any, eps: float, rates: Any,
    seeds: Any, saved: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Gradients of x, heads and the parameters."""
    stream, moments, hidden = (ready(part) for part in saved)
    attended = heads is not None
    dx, dheads = np.empty(x.shape, x.dtype), np.empty(heads.shape if attended else (0, 1), x.dtype)
    stream = stream if attended else rows(x)
    heads, weights, _, norm = prepared(heads, parameters, eps)
    weights = tuple(weight.copy() for weight in weights)  # to be of one type with other arrays
    number, width = stream.shape
    nanoseconds = 2 * nanoseconds_of(number, weights)
    groups = min(GROUPS, 1 << max(0, int(nanoseconds / GROUP).bit_length() - 1))
    height = -(-number // (groups * ROWS)) * ROWS
    dweights = tuple(np.zeros((groups, *weight.shape), x.dtype) for weight in weights)
    dsums = np.zeros((groups, 4 * width + len(weights[1])))
    arguments = (
        rows(grad), heads, stream, weights, norm, *drops_of(rates, seeds), moments, hidden, height,
        rows_of_new(dheads), rows_of_new(dx), dweights, dsums,
    )  # fmt: skip
    in_parts(groups, nanoseconds, position_backward_blocks, *arguments)
    weight_o, weight_1, weight_2 = (part.sum(axis=0) if part.size else None for part in dweights)
    sums = dsums.sum(axis=0).astype(x.dtype)
    norm_weight, norm_bias, bias_2, bias_o = (sums[i * width : (i + 1) * width] for i in range(4))
    return (
        dx, dheads if attended else None, weight_o, bias_o, norm_weight, norm_bias, weight_1,
        sums[4 * width :], weight_2, bias_2,
    )  # fmt: skip


def prepared(heads: Any, parameters: Any, eps: float) -> tuple[Any, ...]:
    """heads, weights, biases and norm as the loops take them."""
    weight_o, bias_o, norm_weight, norm_bias, weight_1, bias_1, weight_2, bias_2 = parameters
    return (
        ABSENT if heads is None else rows(heads),
        tuple(ABSENT if weight is None else weight for weight in (weight_o, weight_1, weight_2)),
        (vector(bias_o, weight_o), vector(bias_1, weight_1), vector(bias_2, weight_2)),
        (ready(norm_weight), vector(norm_bias, norm_weight), float(eps)),
    )


def vector(bias: Any, weight: Any) -> np.ndarray:
    """A bias; zeros where a weight has none."""
    if bias is not None:
        return ready(bias)
    return NO_BIAS if weight is None else ready(np.zeros(len(weight), weight.dtype))


@lru_cache(maxsize=16)
def drops_of(rates: Any, seeds: Any) -> tuple[np.ndarray, np.ndarray]:
    """factors and hashing: arrays, since so many numbers take longer to hand over."""
    factors = [1 / (1 - p) for p in rates]
    hashing = [(drop_threshold(p), *halves(seed)) for p, seed in zip(rates, seeds, strict=True)]
    return ready(np.array(factors, FLOAT32)), ready(np.array(hashing, np.uint32))


def nanoseconds_of(number: int, weights: tuple[np.ndarray, ...]) -> float:
    """About how long forward takes for so many rows."""
    multiplications = weights[0].size + weights[1].size + weights[2].size
    return number * (multiplications / 48 + 60)
