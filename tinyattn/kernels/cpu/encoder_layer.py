"""A narrow pre-norm encoder layer in one kernel forward, and one backward.

Forward is three loops over the batch, of which each needs all of the one before:

    project_rows       norm, and the projections to queries, keys and values
    attention_heads    attention, the loop of `attention_forward.py`
    feed_forward_rows  what follows: projection, residual connection, norm, feed-forward network

The first and the last take positions a block at a time through linear layers, relu, dropout and
norm, while the block stays in the first-level cache; one by one, these would be ten operations that
each read and write all positions. Backward goes the same way back. What is kept for it: queries,
keys and values, attention's output with what it keeps itself, the sum after attention (`stream`),
the hidden layer, and the moments of both norms.

Weights are read again for every block, and their gradients added up over all of them, so both have
to stay in the cache too: this is for narrow layers. With wide ones the products are all that takes
time, and BLAS is best at those.

The parameters come as two arrays, `weights` of the matrices and `vectors` of the rest, each one
parameter after another, and so do their gradients: a kernel of thirty arrays would take longer to
compile, and longer to call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...threads import together
from .. import FLOAT32
from ..reference import drop_threshold, halves
from .attention import PIECE, heads_at_once, hiding, nanoseconds_of, samples_in
from .attention_backward import attention_backward_heads
from .attention_forward import attention_heads
from .compiler import inner, jit, ready, rows, rows_of_new
from .position_blocks import (
    ROWS,
    add_block,
    block_of,
    drop_block,
    linear_backward_block,
    linear_block,
    load,
    norm_again,
    norm_backward_block,
    norm_block,
    relu_backward_block,
    relu_block,
    store,
)
from .rows import ZERO
from .sharing import arrive, boards, claimed, leave, wait_for

# Gradients of weights are summed in groups of rows, at most so many, each of so many nanoseconds at
# least: as many for any number of threads, so that the sums do not depend on it.
GROUPS, GROUP = 8, 40_000
NUMBERS = 1024  # of gradients that a thread sums at once over all groups


@inner
def matrices(flat, shapes):
    """Four weights: of queries, keys and values together, after attention, into the hidden layer,
    out of it."""
    a = shapes[0][0] * shapes[0][1]
    b = a + shapes[1][0] * shapes[1][1]
    c = b + shapes[2][0] * shapes[2][1]
    return (
        flat[:a].reshape(shapes[0]), flat[a:b].reshape(shapes[1]), flat[b:c].reshape(shapes[2]),
        flat[c:].reshape(shapes[3]),
    )  # fmt: skip


@inner
def biases(flat, sizes):
    """In the same order. sizes: width, that of all heads together, that of the hidden layer."""
    width, wide, hidden = sizes
    a = 3 * wide
    b = a + width
    c = b + hidden
    return flat[:a], flat[a:b], flat[b:c], flat[c : c + width]


@inner
def norms(flat, sizes):
    """Weight and bias of the first norm, then of the second, which stand behind the biases."""
    width, wide, hidden = sizes
    a = 3 * wide + 2 * width + hidden
    b, c, d = a + width, a + 2 * width, a + 3 * width
    return flat[a:b], flat[b:c], flat[c:d], flat[d:]


@inner
def arrays_kept(kept, exact, sizes, heads, number):
    """attention's output (N, E), stream (N, D), hidden (N, H), attention's largest scores and sums
    (heads, N), the moments of the two norms (2, N, 2)."""
    width, wide, hidden = sizes
    a = number * wide
    b = a + number * width
    c = b + number * hidden
    d = heads * number
    return (
        kept[:a].reshape(number, wide), kept[a:b].reshape(number, width),
        kept[b:c].reshape(number, hidden), kept[c:].reshape(heads, number),
        exact[:d].reshape(heads, number), exact[d:].reshape(2, number, 2),
    )  # fmt: skip


@inner
def project_rows(x, weight, bias, norm, eps, moments, out, board, blocks):
    block, normed, result = block_of(x.shape[1]), block_of(x.shape[1]), block_of(len(bias))
    for number in claimed(board, blocks):
        start = number * ROWS
        count = min(ROWS, len(x) - start)
        load(x, start, count, block)
        norm_block(block, norm[0], norm[1], eps, moments[start : start + count], normed)
        linear_block(normed, weight, bias, result)
        store(result, start, count, out)


@inner
def feed_forward_rows(
    x, heads, weights, bias, norm, eps, factors, hashing, stream, moments, hidden, out, board,
    blocks,
):  # fmt: skip
    """weights and bias: after attention, into the hidden layer, out of it; factors and hashing (of
    dropout) behind each."""
    after, into, out_of = weights
    bias_after, bias_into, bias_out = bias
    attention, block, normed = block_of(len(after)), block_of(x.shape[1]), block_of(x.shape[1])
    result, dropped = block_of(x.shape[1]), block_of(x.shape[1])
    ahead, active = block_of(len(out_of)), block_of(len(out_of))
    for number in claimed(board, blocks):
        start = number * ROWS
        count = min(ROWS, len(x) - start)
        load(heads, start, count, attention)
        linear_block(attention, after, bias_after, result)
        drop_block(result, start, factors[0], hashing[0], dropped)
        load(x, start, count, block)
        add_block(dropped, block)
        store(block, start, count, stream)
        norm_block(block, norm[0], norm[1], eps, moments[start : start + count], normed)
        linear_block(normed, into, bias_into, ahead)
        relu_block(ahead)
        drop_block(ahead, start, factors[1], hashing[1], active)
        store(active, start, count, hidden)
        linear_block(active, out_of, bias_out, result)
        drop_block(result, start, factors[2], hashing[2], dropped)
        add_block(dropped, block)
        store(block, start, count, out)


@jit
def layer_parts(
    x, weights, vectors, sizes, shapes, starts, longest, limits, mask, scale, factors, hashing, eps,
    qkv, kept, exact, out, board, bell, finished, part,
):  # fmt: skip
    """x (N, D) -> out (N, D); qkv (N, 3 heads, d), kept and exact see `arrays_kept`.

    weights and vectors: as one array each, see `matrices` and `norms`; shapes: of the weights (in,
    out). starts, longest, limits, mask, scale: as attention's. factors (4,) and hashing (4, 3),
    which is threshold and seed: of dropout of attention's weights, behind attention, of the hidden
    layer, behind it. eps: of the two norms.
    """
    arrive(bell, part)
    number, heads = len(x), qkv.shape[1] // 3
    wide, blocks, count = sizes[1], (number + ROWS - 1) // ROWS, (len(starts) - 1) * heads
    into_heads, after, into, out_of = matrices(weights, shapes)
    bias_heads, bias_after, bias_into, bias_out = biases(vectors, sizes)
    norm = norms(vectors, sizes)
    mixed, stream, hidden, tops, sums, moments = arrays_kept(kept, exact, sizes, heads, number)
    project_rows(
        x, into_heads, bias_heads, norm[:2], eps[0], moments[0], qkv.reshape(number, 3 * wide),
        board[0], blocks,
    )  # fmt: skip
    wait_for(board[0], blocks)
    drop = (factors[0], hashing[0, 0], hashing[0, 1], hashing[0, 2])
    attention_heads(
        qkv, qkv, qkv, (0, heads, 2 * heads), (starts, starts), longest, limits, mask, scale, drop,
        None, mixed.reshape(number, heads, qkv.shape[2]), tops, sums, board[1], count,
    )  # fmt: skip
    wait_for(board[1], count)
    feed_forward_rows(
        x, mixed, (after, into, out_of), (bias_after, bias_into, bias_out), norm[2:], eps[1],
        factors[1:], hashing[1:], stream, moments[1], hidden, out, board[2], blocks,
    )  # fmt: skip
    leave(finished, part)


@inner
def feed_forward_backward_groups(
    grad, mixed, stream, hidden, weights, norm, factors, hashing, moments, dx, dmixed, dweights,
    dvectors, sizes, shapes, board, groups, height,
):  # fmt: skip
    """From groups of `height` rows: dx, what reaches x past attention; dmixed, what reaches
    attention's output; and their part of dweights (groups, all) and dvectors (groups, all)."""
    after, into, out_of = weights
    width, wide, inside = sizes
    attention, dattention = block_of(wide), block_of(wide)
    block, normed, dnormed = block_of(width), block_of(width), block_of(width)
    dblock, below = block_of(width), block_of(width)
    active, dactive, dahead = block_of(inside), block_of(inside), block_of(inside)
    for group in claimed(board, groups):
        dweights[group], dvectors[group] = ZERO, 0.0
        _, dafter, dinto, dout_of = matrices(dweights[group], shapes)
        _, dbias_after, dbias_into, dbias_out = biases(dvectors[group], sizes)
        dnorm = norms(dvectors[group], sizes)
        for start in range(group * height, min((group + 1) * height, len(grad)), ROWS):
            count = min(ROWS, len(grad) - start)
            load(grad, start, count, dblock)
            drop_block(dblock, start, factors[2], hashing[2], below)
            load(hidden, start, count, active)
            linear_backward_block(below, active, out_of, dactive, dout_of, dbias_out)
            relu_backward_block(dactive, active, factors[1], dahead)
            load(stream, start, count, block)
            of_rows = moments[start : start + count]
            norm_again(block, norm[0], norm[1], of_rows, normed)
            linear_backward_block(dahead, normed, into, dnormed, dinto, dbias_into)
            norm_backward_block(
                dnormed, block, norm[0], of_rows, below, dblock, dnorm[2], dnorm[3]
            )  # fmt: skip
            store(dblock, start, count, dx)
            drop_block(dblock, start, factors[0], hashing[0], below)
            load(mixed, start, count, attention)
            linear_backward_block(below, attention, after, dattention, dafter, dbias_after)
            store(dattention, start, count, dmixed)


@inner
def project_backward_groups(
    dqkv, x, weight, norm, moments, dx, dweights, dvectors, sizes, shapes, board, groups, height
):
    """What reaches x through attention is added to dx; dweights and dvectors as above."""
    width, wide, _ = sizes
    block, normed, dnormed = block_of(width), block_of(width), block_of(width)
    dblock, below, dahead = block_of(width), block_of(width), block_of(3 * wide)
    for group in claimed(board, groups):
        dweight, dbias = matrices(dweights[group], shapes)[0], biases(dvectors[group], sizes)[0]
        dnorm = norms(dvectors[group], sizes)
        for start in range(group * height, min((group + 1) * height, len(x)), ROWS):
            count = min(ROWS, len(x) - start)
            load(dqkv, start, count, dahead)
            load(x, start, count, block)
            load(dx, start, count, dblock)
            of_rows = moments[start : start + count]
            norm_again(block, norm[0], norm[1], of_rows, normed)
            linear_backward_block(dahead, normed, weight, dnormed, dweight, dbias)
            norm_backward_block(
                dnormed, block, norm[0], of_rows, below, dblock, dnorm[0], dnorm[1]
            )  # fmt: skip
            store(dblock, start, count, dx)


@inner
def sum_of_groups(parts, out, board, spans):
    """out = the sum of parts (groups, numbers), always in the same order."""
    for span in claimed(board, spans):
        start, end = span * NUMBERS, min((span + 1) * NUMBERS, len(out))
        out[start:end] = ZERO
        for group in range(len(parts)):
            for i in range(start, end):
                out[i] += parts[group, i]


@jit
def layer_backward_parts(
    grad, x, weights, vectors, sizes, shapes, starts, longest, limits, mask, scale, factors,
    hashing, qkv, kept, exact, height, dx, dmixed, dqkv, dweights, dvectors, dweight, board,
    bell, finished, part,
):  # fmt: skip
    """dx (N, D), dweight (all) and dvectors (groups, all), whose groups are still to be summed.

    dmixed (N, heads, d), dqkv as qkv, and dweights (groups, all) are what lies between. height: the
    rows of a group; shapes: of weights (out, in). The rest as forward.
    """
    arrive(bell, part)
    number, heads, groups = len(x), qkv.shape[1] // 3, len(dweights)
    count = (len(starts) - 1) * heads
    into_heads, after, into, out_of = matrices(weights, shapes)
    norm = norms(vectors, sizes)
    mixed, stream, hidden, tops, sums, moments = arrays_kept(kept, exact, sizes, heads, number)
    feed_forward_backward_groups(
        grad, mixed, stream, hidden, (after, into, out_of), norm[2:], factors[1:], hashing[1:],
        moments[1], dx, dmixed.reshape(mixed.shape), dweights, dvectors, sizes, shapes, board[0],
        groups, height,
    )  # fmt: skip
    wait_for(board[0], groups)
    drop = (factors[0], hashing[0, 0], hashing[0, 1], hashing[0, 2])
    attention_backward_heads(
        dmixed, qkv, qkv, qkv, (0, heads, 2 * heads), mixed.reshape(number, heads, qkv.shape[2]),
        (starts, starts), longest, limits, mask, scale, drop, None, tops, sums, dqkv, dqkv, dqkv,
        board[1], count,
    )  # fmt: skip
    wait_for(board[1], count)
    project_backward_groups(
        dqkv.reshape(number, len(into_heads)), x, into_heads, norm[:2], moments[0], dx, dweights,
        dvectors, sizes, shapes, board[2], groups, height,
    )  # fmt: skip
    wait_for(board[2], groups)
    sum_of_groups(dweights, dweight, board[3], (len(dweight) + NUMBERS - 1) // NUMBERS)
    leave(finished, part)


class Saved(NamedTuple):
    """What forward leaves to backward."""

    qkv: np.ndarray
    vectors: np.ndarray
    kept: np.ndarray
    exact: np.ndarray


def encoder_layer(
    x: np.ndarray, parameters: Any, settings: Any, scale: float
) -> tuple[np.ndarray, Saved]:
    """What `ops.encoder_layer.steps` computes, and what backward needs."""
    flat, heads = rows(x), settings.heads
    width, wide, hidden = sizes = sizes_of(parameters)
    number = len(flat)
    out = np.empty(x.shape, x.dtype)
    qkv = np.empty((number, 3 * heads, wide // heads), x.dtype)
    kept = np.empty(number * (wide + width + hidden + heads), x.dtype)
    exact = np.empty(number * (heads + 4))
    vectors = vectors_of(parameters)
    q, k, v, *others = (parameters[i] for i in LINEAR)
    weights = [weight.T for weight in (np.concatenate((q, k, v)), *others)]
    shapes = tuple(weight.shape for weight in weights)
    around = surroundings(x, qkv, settings, scale)
    of_rows = number * nanoseconds_of_row(shapes)
    blocks = -(-number // ROWS)
    at_once = max(1, int(PIECE * blocks / of_rows))
    board = boards(at_once, heads_at_once(around.heads, around.nanoseconds), at_once)
    together(
        blocks, of_rows + around.nanoseconds, layer_parts, flat,
        np.concatenate(weights, axis=None), vectors, sizes, shapes, *around.arguments, settings.eps,
        qkv, kept, exact, rows_of_new(out), board,
    )  # fmt: skip
    return out, Saved(qkv, vectors, kept, exact)


def encoder_layer_backward(
    grad: np.ndarray, x: np.ndarray, parameters: Any, settings: Any, scale: float, saved: Saved
) -> list[Any]:
    """Gradients of x and the parameters."""
    qkv, vectors, kept, exact = saved
    width, wide, hidden = sizes = sizes_of(parameters)
    number = len(qkv)
    weights = np.concatenate([parameters[i] for i in LINEAR], axis=None)
    shapes = ((3 * wide, width), (width, wide), (hidden, width), (width, hidden))
    around = surroundings(x, qkv, settings, scale)
    of_rows = 2 * number * nanoseconds_of_row(shapes)
    groups = min(GROUPS, 1 << max(0, int(of_rows / GROUP).bit_length() - 1))
    height = -(-number // (groups * ROWS)) * ROWS
    dx = np.empty(x.shape, x.dtype)
    dmixed = np.empty((number, settings.heads, qkv.shape[2]), x.dtype)
    dqkv, dweight = np.empty_like(qkv), np.empty_like(weights)
    dweights, dvectors = np.empty((groups, len(weights)), x.dtype), np.empty((groups, len(vectors)))
    board = boards(1, heads_at_once(around.heads, 2 * around.nanoseconds), 1, 1)
    together(
        number, of_rows + 2 * around.nanoseconds, layer_backward_parts, rows(grad), rows(x),
        weights, vectors, sizes, shapes, *around.arguments, qkv, kept, exact, height,
        rows_of_new(dx), dmixed, dqkv, dweights, dvectors, dweight, board,
    )  # fmt: skip
    return [dx, *parted(dweight, dvectors.sum(axis=0).astype(x.dtype), parameters)]


# The parameters are pairs of weight and bias: of the first norm, of the projections to queries,
# keys and values, of the one after attention, of the second norm, and of the two layers of the
# feed-forward network.
NORMS, LINEAR = (0, 10), (2, 4, 6, 8, 12, 14)
# What stands in `vectors`, in order: biases, and the norms' weights and biases.
VECTORS = (*(i + 1 for i in LINEAR), *(j for i in NORMS for j in (i, i + 1)))


def sizes_of(parameters: Any) -> tuple[int, int, int]:
    """The width of x, that of all heads together, that of the hidden layer."""
    return len(parameters[0]), len(parameters[2]), len(parameters[12])


def vectors_of(parameters: Any) -> np.ndarray:
    """With zeros where there is no bias."""
    found = [parameters[i] for i in VECTORS]
    for place, vector in enumerate(found):
        if vector is None:
            weight = parameters[VECTORS[place] - 1]
            found[place] = np.zeros(len(weight), weight.dtype)
    return np.concatenate(found)


def parted(weights: np.ndarray, vectors: np.ndarray, parameters: Any) -> list[Any]:
    """Gradients of parameters out of those of all weights and all vectors."""
    found: list[Any] = [None] * len(parameters)
    end = 0
    for i in LINEAR:
        start, end = end, end + parameters[i].size
        found[i] = weights[start:end].reshape(parameters[i].shape)
    end = 0
    for i in VECTORS:
        start, end = end, end + len(parameters[i // 2 * 2])
        found[i] = vectors[start:end]
    return found


class Surroundings(NamedTuple):
    """What both loops take alike; how many heads there are in all samples together, and about how
    long attention takes forward."""

    arguments: tuple[Any, ...]
    heads: int
    nanoseconds: float


def surroundings(x: np.ndarray, qkv: np.ndarray, settings: Any, scale: float) -> Surroundings:
    heads, samples = settings.heads, samples_in(x, settings.lengths)
    arguments = (
        samples.starts, (samples.longest, samples.longest),
        *hiding(settings.limits, settings.mask), x.dtype.type(scale),
        *drops_of(settings.rates, settings.seeds),
    )  # fmt: skip
    nanoseconds = nanoseconds_of(samples, samples, heads, qkv.shape[2])
    return Surroundings(arguments, len(samples.lengths) * heads, nanoseconds)


def nanoseconds_of_row(shapes: Any) -> float:
    """About how long forward takes for one position without attention."""
    return sum(rows * columns for rows, columns in shapes) / 48 + 120


@lru_cache(maxsize=16)
def drops_of(rates: Any, seeds: Any) -> tuple[np.ndarray, np.ndarray]:
    """factors and hashing: arrays, since so many numbers take longer to hand over."""
    factors = [1 / (1 - p) for p in rates]
    hashing = [(drop_threshold(p), *halves(seed)) for p, seed in zip(rates, seeds, strict=True)]
    return ready(np.array(factors, FLOAT32)), ready(np.array(hashing, np.uint32))
