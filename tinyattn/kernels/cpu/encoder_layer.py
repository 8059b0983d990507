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
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ...threads import together
from .. import FLOAT32
from ..reference import drop_threshold, halves
from .arrays import array_at, arrays_in, clear, doubles, size_of, viewed_as
from .attention import PIECE, heads_at_once, hiding, nanoseconds_of, samples_in
from .attention_backward import attention_backward_heads, room_backward
from .attention_forward import attention_heads, room_forward
from .compiler import inner, jit, ready, rows, rows_of_new
from .position_blocks import (
    ROWS,
    add_block,
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
from .sharing import arrive, boards, claimed, leave, wait_for

# Gradients of weights are summed in groups of rows, at most so many, each of so many nanoseconds at
# least: as many for any number of threads, so that the sums do not depend on it.
GROUPS, GROUP = 8, 40_000
# Of the four dropouts the first is that of attention's weights. NumPy's integers, since for each of
# Python's Numba would compile what they are given to once more.
AFTER_ATTENTION, IN_HIDDEN, BEHIND_HIDDEN = np.int64(1), np.int64(2), np.int64(3)
NUMBERS = 1024  # of gradients that a thread sums at once over all groups


class Places(NamedTuple):
    """Where each array begins in the flat one that holds it, but for those that come first."""

    # In weights, behind those of the projections to queries, keys and values.
    after: int
    into: int
    out_of: int
    # In vectors, behind the biases of the projections: the other biases, and the norms.
    bias_after: int
    bias_into: int
    bias_out_of: int
    norm_1: int
    norm_2: int
    # In kept, behind `stream`; and in exact, behind attention's sums.
    hidden: int
    tops: int
    moments_1: int
    moments_2: int


@inner
def shapes_of_project(sizes):
    """The shapes of what `project_rows` works with."""
    block = (ROWS, sizes[0])
    return block, block, (ROWS, 3 * sizes[1])  # block, normed, result


@inner
def project_rows(x, weights, vectors, sizes, at, eps, exact, qkv, room, board, blocks):
    number, (width, wide, _) = len(x), sizes
    x = array_at(x, 0, (number, width))
    weight, bias = array_at(weights, 0, (width, 3 * wide)), array_at(vectors, 0, (3 * wide,))
    norm, out = array_at(vectors, at.norm_1, (2, width)), array_at(qkv, 0, (number, 3 * wide))
    moments = array_at(exact, at.moments_1, (number, 2))
    block, normed, result = arrays_in(viewed_as(room, np.float32), shapes_of_project(sizes))
    for place in claimed(board, blocks):
        start = place * ROWS
        count = min(ROWS, number - start)
        load(x, start, count, block)
        norm_block(block, norm, eps, moments, start, count, normed)
        linear_block(normed, weight, bias, result)
        store(result, start, count, out)


@inner
def shapes_of_feed_forward(sizes):
    """Of `feed_forward_rows`."""
    width, wide, units = sizes
    block, hidden = (ROWS, width), (ROWS, units)
    return (
        (ROWS, wide), block, block,  # attention, block, normed
        block, block, hidden, hidden,  # result, dropped, ahead, active
    )  # fmt: skip


@inner
def feed_forward_rows(
    x, mixed, weights, vectors, sizes, at, eps, factors, hashing, kept, exact, out, room, board,
    blocks,
):  # fmt: skip
    """Weights are (in, out) here and in `project_rows`, and on the way back (out, in)."""
    number, (width, wide, units) = len(x), sizes
    x = array_at(x, 0, (number, width))
    after = array_at(weights, at.after, (wide, width))
    into = array_at(weights, at.into, (width, units))
    out_of = array_at(weights, at.out_of, (units, width))
    bias_after = array_at(vectors, at.bias_after, (width,))
    bias_into = array_at(vectors, at.bias_into, (units,))
    bias_out_of = array_at(vectors, at.bias_out_of, (width,))
    norm = array_at(vectors, at.norm_2, (2, width))
    attended, stream = array_at(mixed, 0, (number, wide)), array_at(kept, 0, (number, width))
    hidden = array_at(kept, at.hidden, (number, units))
    moments = array_at(exact, at.moments_2, (number, 2))
    attention, block, normed, result, dropped, ahead, active = arrays_in(
        viewed_as(room, np.float32), shapes_of_feed_forward(sizes)
    )
    for place in claimed(board, blocks):
        start = place * ROWS
        count = min(ROWS, number - start)
        load(attended, start, count, attention)
        linear_block(attention, after, bias_after, result)
        drop_block(result, start, factors, hashing, AFTER_ATTENTION, dropped)
        load(x, start, count, block)
        add_block(dropped, block)
        store(block, start, count, stream)
        norm_block(block, norm, eps, moments, start, count, normed)
        linear_block(normed, into, bias_into, ahead)
        relu_block(ahead)
        drop_block(ahead, start, factors, hashing, IN_HIDDEN, active)
        store(active, start, count, hidden)
        linear_block(active, out_of, bias_out_of, result)
        drop_block(result, start, factors, hashing, BEHIND_HIDDEN, dropped)
        add_block(dropped, block)
        store(block, start, count, out)


@jit
def layer_parts(
    x, weights, vectors, sizes, at, starts, longest, limits, mask, scale, factors, hashing, eps,
    qkv, mixed, kept, exact, out, board, bell, finished, part,
):  # fmt: skip
    """x (N, D) -> out (N, D); qkv (N, 3 heads, d), mixed (N, heads, d), which is what comes out of
    attention, and flat arrays: kept with stream (N, D), hidden (N, H) and attention's largest
    scores (heads, N); exact with attention's sums (heads, N) and the norms' moments (N, 2).

    weights (in, out) and vectors: of four linear layers and two norms, flat too. sizes: D, the
    width of all heads together, H. starts, longest, limits, mask, scale: as attention's. factors
    (4,) and hashing (4, 3), which is threshold and seed: of dropout of attention's weights, behind
    attention, of the hidden layer, behind it. eps: of the two norms.
    """
    arrive(bell, part)
    number, heads = len(x), mixed.shape[1]
    blocks, count = (number + ROWS - 1) // ROWS, (len(starts) - 1) * heads
    room = np.zeros(doubles(size_of(shapes_of_project(sizes))))
    project_rows(x, weights, vectors, sizes, at, eps[0], exact, qkv, room, board[0], blocks)
    wait_for(board[0], blocks)
    room = np.zeros(room_forward(longest, qkv.shape[2], qkv.shape[2]))
    tops, sums = array_at(kept, at.tops, (heads, number)), array_at(exact, 0, (heads, number))
    drop = (factors[0], hashing[0, 0], hashing[0, 1], hashing[0, 2])
    attention_heads(
        qkv, qkv, qkv, (0, heads, 2 * heads), (starts, starts), longest, limits, mask, scale, drop,
        None, mixed, tops, sums, room, board[1], count,
    )  # fmt: skip
    wait_for(board[1], count)
    room = np.zeros(doubles(size_of(shapes_of_feed_forward(sizes))))
    feed_forward_rows(
        x, mixed, weights, vectors, sizes, at, eps[1], factors, hashing, kept, exact, out, room,
        board[2], blocks,
    )  # fmt: skip
    leave(finished, part)


@inner
def shapes_of_feed_forward_backward(sizes):
    """Of `feed_forward_backward_groups`."""
    width, wide, units = sizes
    attention, block, hidden = (ROWS, wide), (ROWS, width), (ROWS, units)
    return (
        attention, attention,  # attention, dattention
        block, block, block, block, block,  # block, normed, dnormed, dblock, below
        hidden, hidden, hidden,  # active, dactive, dahead
    )  # fmt: skip


@inner
def feed_forward_backward_groups(
    grad, mixed, weights, vectors, sizes, at, factors, hashing, kept, exact, height, dx, dmixed,
    dweights, dvectors, room, board,
):  # fmt: skip
    """From groups of `height` rows: dx, what reaches x past attention; dmixed, what reaches
    attention's output; and their part of dweights (groups, all) and dvectors (groups, all)."""
    number, (width, wide, units) = len(grad), sizes
    grad = array_at(grad, 0, (number, width))
    after = array_at(weights, at.after, (width, wide))
    into = array_at(weights, at.into, (units, width))
    out_of = array_at(weights, at.out_of, (width, units))
    norm = array_at(vectors, at.norm_2, (2, width))
    attended, stream = array_at(mixed, 0, (number, wide)), array_at(kept, 0, (number, width))
    dattended = array_at(dmixed, 0, (number, wide))
    hidden = array_at(kept, at.hidden, (number, units))
    moments = array_at(exact, at.moments_2, (number, 2))
    attention, dattention, block, normed, dnormed, dblock, below, active, dactive, dahead = (
        arrays_in(viewed_as(room, np.float32), shapes_of_feed_forward_backward(sizes))
    )
    for group in claimed(board, len(dweights)):
        dweight, dvector = dweights[group], dvectors[group]
        clear(dweight, 0, len(dweight))
        clear(dvector, 0, len(dvector))
        dafter = array_at(dweight, at.after, (width, wide))
        dinto = array_at(dweight, at.into, (units, width))
        dout_of = array_at(dweight, at.out_of, (width, units))
        dbias_after = array_at(dvector, at.bias_after, (width,))
        dbias_into = array_at(dvector, at.bias_into, (units,))
        dbias_out_of = array_at(dvector, at.bias_out_of, (width,))
        dnorm = array_at(dvector, at.norm_2, (2, width))
        for start in range(group * height, min((group + 1) * height, number), ROWS):
            count = min(ROWS, number - start)
            load(grad, start, count, dblock)
            drop_block(dblock, start, factors, hashing, BEHIND_HIDDEN, below)
            load(hidden, start, count, active)
            linear_backward_block(below, active, out_of, dactive, dout_of, dbias_out_of)
            relu_backward_block(dactive, active, factors[IN_HIDDEN], dahead)
            load(stream, start, count, block)
            norm_again(block, norm, moments, start, count, normed)
            linear_backward_block(dahead, normed, into, dnormed, dinto, dbias_into)
            norm_backward_block(dnormed, block, norm, moments, start, count, below, dblock, dnorm)
            store(dblock, start, count, dx)
            drop_block(dblock, start, factors, hashing, AFTER_ATTENTION, below)
            load(attended, start, count, attention)
            linear_backward_block(below, attention, after, dattention, dafter, dbias_after)
            store(dattention, start, count, dattended)


@inner
def shapes_of_project_backward(sizes):
    """Of `project_backward_groups`."""
    block = (ROWS, sizes[0])
    return (
        block, block, block, block, block,  # block, normed, dnormed, dblock, below
        (ROWS, 3 * sizes[1]),  # dahead
    )  # fmt: skip


@inner
def project_backward_groups(
    x, dqkv, weights, vectors, sizes, at, exact, height, dx, dweights, dvectors, room, board
):
    """What reaches x through attention is added to dx; dweights and dvectors as above."""
    number, (width, wide, _) = len(x), sizes
    x = array_at(x, 0, (number, width))
    weight, norm = array_at(weights, 0, (3 * wide, width)), array_at(vectors, at.norm_1, (2, width))
    dout = array_at(dqkv, 0, (number, 3 * wide))
    moments = array_at(exact, at.moments_1, (number, 2))
    block, normed, dnormed, dblock, below, dahead = arrays_in(
        viewed_as(room, np.float32), shapes_of_project_backward(sizes)
    )
    for group in claimed(board, len(dweights)):
        dweight = array_at(dweights[group], 0, (3 * wide, width))
        dbias = array_at(dvectors[group], 0, (3 * wide,))
        dnorm = array_at(dvectors[group], at.norm_1, (2, width))
        for start in range(group * height, min((group + 1) * height, number), ROWS):
            count = min(ROWS, number - start)
            load(dout, start, count, dahead)
            load(x, start, count, block)
            load(dx, start, count, dblock)
            norm_again(block, norm, moments, start, count, normed)
            linear_backward_block(dahead, normed, weight, dnormed, dweight, dbias)
            norm_backward_block(dnormed, block, norm, moments, start, count, below, dblock, dnorm)
            store(dblock, start, count, dx)


@inner
def sum_of_groups(parts, out, board, spans):
    """out = the sum of parts (groups, numbers), always in the same order."""
    for span in claimed(board, spans):
        start, end = span * NUMBERS, min((span + 1) * NUMBERS, len(out))
        total = out[start:end]  # indices from 0 on become vector instructions
        clear(total, 0, len(total))
        for group in range(len(parts)):
            part = parts[group, start:end]
            for i in range(len(total)):
                total[i] += part[i]


@jit
def layer_backward_parts(
    grad, x, weights, vectors, sizes, at, starts, longest, limits, mask, scale, factors, hashing,
    qkv, mixed, kept, exact, height, dx, dmixed, dqkv, dweights, dvectors, dweight, board, bell,
    finished, part,
):  # fmt: skip
    """dx (N, D), dweight (all) and dvectors (groups, all), whose groups are still to be summed.

    dmixed as mixed, dqkv as qkv, and dweights (groups, all) are what lies between. height: the
    rows of a group; weights are (out, in). The rest as forward.
    """
    arrive(bell, part)
    number, heads, groups = len(x), mixed.shape[1], len(dweights)
    count = (len(starts) - 1) * heads
    room = np.zeros(doubles(size_of(shapes_of_feed_forward_backward(sizes))))
    feed_forward_backward_groups(
        grad, mixed, weights, vectors, sizes, at, factors, hashing, kept, exact, height, dx, dmixed,
        dweights, dvectors, room, board[0],
    )  # fmt: skip
    wait_for(board[0], groups)
    room = np.zeros(room_backward(longest, qkv.shape[2], qkv.shape[2], None))
    tops, sums = array_at(kept, at.tops, (heads, number)), array_at(exact, 0, (heads, number))
    drop = (factors[0], hashing[0, 0], hashing[0, 1], hashing[0, 2])
    attention_backward_heads(
        dmixed, qkv, qkv, qkv, (0, heads, 2 * heads), mixed, (starts, starts), longest, limits,
        mask, scale, drop, None, tops, sums, dqkv, dqkv, dqkv, room, board[1], count,
    )  # fmt: skip
    wait_for(board[1], count)
    room = np.zeros(doubles(size_of(shapes_of_project_backward(sizes))))
    project_backward_groups(
        x, dqkv, weights, vectors, sizes, at, exact, height, dx, dweights, dvectors, room, board[2]
    )
    wait_for(board[2], groups)
    sum_of_groups(dweights, dweight, board[3], (len(dweight) + NUMBERS - 1) // NUMBERS)
    leave(finished, part)


class Saved(NamedTuple):
    """What forward leaves to backward."""

    qkv: np.ndarray
    mixed: np.ndarray
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
    mixed = np.empty((number, heads, wide // heads), x.dtype)
    kept = np.empty(number * (width + hidden + heads), x.dtype)
    exact = np.empty(number * (heads + 4))
    vectors = vectors_of(parameters)
    q, k, v, *others = (parameters[i] for i in LINEAR)
    weights = [weight.T for weight in (np.concatenate((q, k, v)), *others)]
    around = surroundings(x, qkv, settings, scale)
    of_rows = number * nanoseconds_of_row(*sizes)
    blocks = -(-number // ROWS)
    at_once = max(1, int(PIECE * blocks / of_rows))
    board = boards(at_once, heads_at_once(around.heads, around.nanoseconds), at_once)
    together(
        blocks, of_rows + around.nanoseconds, layer_parts, flat,
        np.concatenate(weights, axis=None), vectors, sizes, places_of(sizes, heads, number),
        *around.arguments, settings.eps, qkv, mixed, kept, exact, rows_of_new(out), board,
    )  # fmt: skip
    return out, Saved(qkv, mixed, vectors, kept, exact)


def encoder_layer_backward(
    grad: np.ndarray, x: np.ndarray, parameters: Any, settings: Any, scale: float, saved: Saved
) -> list[Any]:
    """Gradients of x and the parameters."""
    qkv, mixed, vectors, kept, exact = saved
    sizes, number = sizes_of(parameters), len(qkv)
    weights = np.concatenate([parameters[i] for i in LINEAR], axis=None)
    around = surroundings(x, qkv, settings, scale)
    of_rows = 2 * number * nanoseconds_of_row(*sizes)
    groups = min(GROUPS, 1 << max(0, int(of_rows / GROUP).bit_length() - 1))
    height = -(-number // (groups * ROWS)) * ROWS
    dx = np.empty(x.shape, x.dtype)
    dmixed, dqkv, dweight = np.empty_like(mixed), np.empty_like(qkv), np.empty_like(weights)
    dweights, dvectors = np.empty((groups, len(weights)), x.dtype), np.empty((groups, len(vectors)))
    board = boards(1, heads_at_once(around.heads, 2 * around.nanoseconds), 1, 1)
    together(
        number, of_rows + 2 * around.nanoseconds, layer_backward_parts, rows(grad), rows(x),
        weights, vectors, sizes, places_of(sizes, settings.heads, number), *around.arguments, qkv,
        mixed, kept, exact, height, rows_of_new(dx), dmixed, dqkv, dweights, dvectors, dweight,
        board,
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


def nanoseconds_of_row(width: int, wide: int, hidden: int) -> float:
    """About how long forward takes for one position without attention."""
    return (4 * wide + 2 * hidden) * width / 48 + 120


@lru_cache(maxsize=16)
def places_of(sizes: tuple[int, int, int], heads: int, number: int) -> Places:
    """Of a layer of these sizes, and so many rows."""
    width, wide, hidden = sizes
    weights = (3 * wide * width, width * wide, hidden * width)
    vectors = (3 * wide, width, hidden, width, 2 * width)
    kept, exact = (number * width, number * hidden), (heads * number, 2 * number)
    return Places(
        *(end for lengths in (weights, vectors, kept, exact) for end in accumulate(lengths))
    )


@lru_cache(maxsize=16)
def drops_of(rates: Any, seeds: Any) -> tuple[np.ndarray, np.ndarray]:
    """factors and hashing: arrays, since so many numbers take longer to hand over."""
    factors = [1 / (1 - p) for p in rates]
    hashing = [(drop_threshold(p), *halves(seed)) for p, seed in zip(rates, seeds, strict=True)]
    return ready(np.array(factors, FLOAT32)), ready(np.array(hashing, np.uint32))
