"""Scaled dot-product attention of one block of queries after another.

Forward. For each head of each sample, and for each block q of its queries,

    scores = scale * k q^T + bias^T              (K, block)
    weights = exp(scores - maximum) / sum        over the visible keys of each query
    out = dropout(weights)^T v                   (block, e)

Only maximum and 1 / sum of each query are kept, so memory grows with the length, not its square.
Only keys between the first and the last that a query of the block sees are computed.

Backward, with `grad` the gradient of `out`, computes the weights again, and then

    dweights = dropout(v grad^T)
    dscores = weights * (dweights - sum(weights * dweights))
    dq = scale * dscores^T k,   dk += scale * dscores q,   dv += dropout(weights) grad
    dbias += dscores^T

(Dao et al., "FlashAttention", 2022, which cuts keys into blocks too.) A block is a matrix of keys
by queries, because then the inner loop goes over queries, which do not depend on each other, and
becomes vector instructions. `@` between arrays is BLAS, in a compiled function too. BLAS rounds
products of other shapes differently. So all blocks of a sample have one width, where queries of
zeros fill up the last: padded samples then give the same bits as packed ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...base.random import NO_DROP, Drop
from ..packing import sum_heads
from ..threads import parallel_for
from ..visibility import Visibility
from .attention_blocks import (
    BLOCK,
    STEP,
    Head,
    add,
    add_to_dbias,
    add_to_scores,
    apply_visibility,
    block_of,
    drop_block,
    dscores_and_dropout,
    keep_mask,
    masked_scores,
    product_of,
    put,
    softmax_again,
    softmax_columns,
    take,
    visible_end,
)
from .compiler import inlined, jit, takes_formula
from .dropout import drop_arguments
from .layout import as_input, visibility_arrays
from .not_finite import affected, cleaned, needs_formula
from .row_functions import LANES, ONE, ZERO, exp, largest, total_of


class Inputs(NamedTuple):
    """The rows of all samples, one sample after another."""

    q: np.ndarray  # (R, H, d)
    k: np.ndarray  # (S, G, d)
    v: np.ndarray  # (S, G, e)
    bias: np.ndarray  # (B|1, H|1, Q|1, K|1)
    has_bias: bool


class Rows(NamedTuple):
    """Which rows belong to which sample, see `visibility.Samples`: queries, and keys."""

    query_offsets: np.ndarray  # (B + 1,)
    key_offsets: np.ndarray  # (B + 1,)
    longest_queries: int
    longest_keys: int


class Saved(NamedTuple):
    """What forward keeps of the softmax of each query."""

    maximum: np.ndarray  # (R, H)
    inverse: np.ndarray  # (R, H): 1 / sum(exp(scores - maximum)), or 0 where nothing is visible


@inlined
def head_of(number, inputs, rows, visibility):
    """Neighbouring numbers are of different samples: a thread then has long and short ones."""
    batch, heads = len(rows.query_offsets) - 1, inputs.q.shape[1]
    b, h = number % batch, number // batch
    group = h * inputs.k.shape[1] // heads
    queries = rows.query_offsets[b + 1] - rows.query_offsets[b]
    keys = rows.key_offsets[b + 1] - rows.key_offsets[b]
    limits = visibility.limits[b % len(visibility.limits)]
    starts = visibility.starts[b % len(visibility.starts)]
    mask = visibility.mask[b % len(visibility.mask), h % visibility.mask.shape[1]]
    bias = inputs.bias[b % len(inputs.bias), h % inputs.bias.shape[1]]
    query_start, key_start = rows.query_offsets[b], rows.key_offsets[b]
    end = visible_end(limits, np.int64(0), queries, keys)
    width = (min(BLOCK, rows.longest_queries, max(end, 1)) + STEP - 1) // STEP * STEP
    places = (query_start, queries, key_start, keys, end, width)
    has = (visibility.has_mask, inputs.has_bias)
    return Head(h, group, b * heads + h, *places, limits, starts, mask, bias, *has)


@jit
def attention_heads(inputs, rows, visibility, scale, drop, out, saved, first, last):
    """Fill out (R, H, e) and saved, for some of the B * H heads of all samples."""
    q, k, v, _, _ = inputs
    counts = np.empty(BLOCK, np.int64)
    maximum, inverse = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for number in range(first, last):
        head = head_of(number, inputs, rows, visibility)
        keys = take(k, head.group, head.key_start, head.visible_end, head.visible_end, ONE)
        values = take(v, head.group, head.key_start, head.visible_end, head.visible_end, ONE)
        for i in range(0, head.queries, head.width):
            block = block_of(head, i)
            queries = take(q, head.h, block.row, block.length, head.width, scale)
            weights = masked_scores(keys, queries, block, head, counts)
            softmax_columns(weights, counts, maximum, inverse)
            if drop.threshold > 0:
                kept = keep_mask(weights.shape, block, head, rows, drop)
                drop_block(weights, kept, drop.factor)
            products = weights.T @ values[block.begin : block.end]
            put(products, out, head.h, block.row, block.length, ONE)
            for j in range(block.length):
                saved.maximum[block.row + j, head.h] = maximum[j]
                saved.inverse[block.row + j, head.h] = inverse[j]


@jit
def attention_of_one_query(inputs, rows, visibility, scale, drop, out, saved, first, last):
    """As `attention_heads`, where each sample has one query, as in decoding with a cache: without
    the other queries of a block, and without copies of keys and values."""
    q, k, v, _, _ = inputs
    scores, counts = np.empty(rows.longest_keys, np.float32), np.empty(1, np.int64)
    lanes, sums = np.empty(LANES, np.float32), np.empty(LANES)
    total = np.empty(v.shape[2])  # in float64, because many small weights add up
    for number in range(first, last):
        head = head_of(number, inputs, rows, visibility)
        block = block_of(head, 0)
        h, row, first_key = head.h, head.query_start, head.key_start + block.begin
        weights = scores[: block.end - block.begin]
        column = weights.reshape(-1, 1)
        for i in range(len(weights)):
            weights[i] = product_of(q[row, h], k[first_key + i, head.group]) * scale
        if head.has_bias:
            add_to_scores(column, head.bias, 0, 1, block.begin)
        apply_visibility(column, 0, block.begin, head, counts)
        top = largest(weights, lanes) if counts[0] > 0 else ZERO
        for i in range(len(weights)):
            weights[i] = exp(weights[i] - top)
        inverse = np.float32(1.0 / total_of(weights, sums)) if counts[0] > 0 else ZERO
        saved.maximum[row, h], saved.inverse[row, h] = top, inverse
        if drop.threshold > 0:
            drop_block(column, keep_mask(column.shape, block, head, rows, drop), drop.factor)
        total[:] = 0.0
        for i in range(len(weights)):
            weight = weights[i] * inverse
            for c in range(len(total)):
                total[c] += weight * v[first_key + i, head.group, c]
        out[row, h] = total


@jit
def attention_backward_heads(
    grad, inputs, rows, visibility, scale, drop, saved, grads, first, last
):
    """Fill grads for some of the B * H heads of all samples: dq (R, H, d), dk (S, H, d),
    dv (S, H, e), and dbias (B * H, Q|1, K|1), which has zeros at the start."""
    dq, dk, dv, dbias = grads
    q, k, v, _, _ = inputs
    counts = np.empty(BLOCK, np.int64)
    maximum, inverse = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for number in range(first, last):
        head = head_of(number, inputs, rows, visibility)
        keys = take(k, head.group, head.key_start, head.visible_end, head.visible_end, ONE)
        values = take(v, head.group, head.key_start, head.visible_end, head.visible_end, ONE)
        dkeys = np.zeros((head.keys, keys.shape[1]), np.float32)
        dvalues = np.zeros((head.keys, values.shape[1]), np.float32)
        for i in range(0, head.queries, head.width):
            block = block_of(head, i)
            queries = take(q, head.h, block.row, block.length, head.width, scale)
            dout = take(grad, head.h, block.row, block.length, head.width, ONE)
            for j in range(head.width):
                exists = j < block.length
                maximum[j] = saved.maximum[block.row + j, head.h] if exists else ZERO
                inverse[j] = saved.inverse[block.row + j, head.h] if exists else ZERO
            weights = masked_scores(keys, queries, block, head, counts)
            softmax_again(weights, maximum, inverse)
            dweights = values[block.begin : block.end] @ dout.T
            dscores = dscores_and_dropout(weights, dweights, block, head, rows, drop)
            if head.has_bias:
                add_to_dbias(dscores, dbias[head.number], i, block.length, block.begin)
            add(weights @ dout, dvalues[block.begin :])
            add(dscores @ queries, dkeys[block.begin :])
            dqueries = dscores.T @ keys[block.begin : block.end]
            put(dqueries, dq, head.h, block.row, block.length, scale)
        put(dkeys, dk, head.h, head.key_start, head.keys, ONE)
        put(dvalues, dv, head.h, head.key_start, head.keys, ONE)


def is_compiled_for(q: np.ndarray, k: np.ndarray, v: np.ndarray, drop: Drop) -> bool:
    return bool(q.dtype == np.float32 and drop.p < 1 and q.size and k.size and v.size)


NO_BIAS = as_input(np.zeros((1, 1, 1, 1), np.float32))


def run(
    kernel: Any,
    before: Any,
    inputs: Any,
    visibility: Visibility,
    scale: float,
    drop: Drop,
    results: Any,
    products: int,
) -> None:
    """Call a kernel for all heads of all samples, on several threads if it pays.

    inputs: q, k, v, bias. before, results: the first arguments of the kernel, and the last.
    products: how many matrix products the kernel computes for each block.
    """
    queries, keys, limits, mask, starts, _ = visibility
    q, k, v, bias = inputs
    shift = NO_BIAS if bias is None else bias
    arguments = (
        Inputs(as_input(q), as_input(k), as_input(v), as_input(shift), bias is not None),
        Rows(queries.offsets, keys.offsets, queries.longest, keys.longest),
        visibility_arrays(limits, mask, starts),
        np.float32(scale),
        drop_arguments(drop.p, drop.seed, np.dtype(np.float32)),
    )
    batch, (_, heads, width) = len(queries.lengths), q.shape
    pairs = float(queries.lengths @ keys.lengths)
    nanoseconds = products * heads * (1000 * batch + pairs * (1 + width / 32))
    parallel_for(batch * heads, nanoseconds, kernel, *before, *arguments, *results)


def is_decoding(visibility: Visibility) -> bool:
    return visibility.queries.longest == 1 and visibility.queries.have_one_length


def forward(
    inputs: Any, visibility: Visibility, scale: float, drop: Drop, kernel: Any = None
) -> tuple[np.ndarray, Saved]:
    """The output of a kernel, and what it saves; without one, of that which suits the queries."""
    q, _, v, _ = inputs
    if kernel is None:
        kernel = attention_of_one_query if is_decoding(visibility) else attention_heads
    out = np.empty((*q.shape[:2], v.shape[2]), q.dtype)
    saved = Saved(*np.empty((2, *q.shape[:2]), q.dtype))
    run(kernel, (), inputs, visibility, scale, drop, (out, saved), 2)
    return out, saved


@takes_formula
def attention(
    formula: Callable[..., Any],
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    visibility: Visibility,
    scale: float,
    drop: Drop = NO_DROP,
    bias: Any = None,
) -> Any:
    """The output, and what backward needs of it."""
    options = visibility, scale, drop
    if not is_compiled_for(q, k, v, drop):
        return NotImplemented
    if needs_formula(visibility, bias, q, k, v):
        exact, _ = formula(q, k, v, *options, bias)
        out, _ = forward([*map(cleaned, (q, k, v, bias))], *options)
        queries, _ = affected(q, k, v, q, visibility, bias)
        return np.where(queries, exact, out), None
    return forward((q, k, v, bias), *options)


@takes_formula
def attention_backward(
    formula: Callable[..., Any],
    grad: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    visibility: Visibility,
    scale: float,
    drop: Drop,
    bias: Any,
    saved: Any,
) -> Any:
    """Gradients of q, k and v, and of the bias if there is one."""
    options = visibility, scale, drop
    if not is_compiled_for(q, k, v, drop):
        return NotImplemented
    if not needs_formula(visibility, bias, grad, q, k, v):
        return backward(grad, (q, k, v, bias), saved, *options)
    exact = formula(grad, q, k, v, *options, bias, None)
    clean = *map(cleaned, (q, k, v)), cleaned(bias)
    _, saved = forward(clean, *options)
    grads = backward(cleaned(grad), clean, saved, *options)
    queries, keys = affected(q, k, v, grad, visibility, bias)
    mixed = tuple(map(np.where, (queries, keys, keys), exact, grads))
    return mixed if bias is None else (*mixed, exact[3])


def backward(
    grad: np.ndarray, inputs: Any, saved: Any, visibility: Visibility, scale: float, drop: Drop
) -> tuple[np.ndarray, ...]:
    """Gradients of the inputs (q, k, v, bias), all of which are finite or see the same keys."""
    q, k, v, bias = inputs
    heads, groups = q.shape[1], k.shape[1]
    dq, dk, dv = (np.empty((len(x), heads, x.shape[2]), x.dtype) for x in (q, k, v))
    of_heads = len(visibility.queries.lengths) * heads
    dbias = np.zeros((1, 1, 1) if bias is None else (of_heads, *bias.shape[2:]), q.dtype)
    if is_decoding(visibility):  # blocks round its scores in another way
        _, saved = forward(inputs, visibility, scale, drop, attention_heads)
    saved = Saved(*map(as_input, saved))
    results = (saved, (dq, dk, dv, dbias))
    run(attention_backward_heads, (as_input(grad),), inputs, visibility, scale, drop, results, 5)
    if groups < heads:  # the gradient of a key is the sum over the heads that share it
        dk, dv = (sum_heads(x, groups) for x in (dk, dv))
    return (dq, dk, dv) if bias is None else (dq, dk, dv, dbias.reshape(-1, heads, *bias.shape[2:]))
