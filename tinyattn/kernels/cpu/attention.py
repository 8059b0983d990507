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
from .compiler import FAST_SUMS, inner, jit, takes_formula
from .dropout import drop_arguments, is_kept
from .layout import as_input, visibility_arrays
from .not_finite import affected, cleaned, needs_formula
from .row_functions import LANES, MINUS_INF, ONE, ZERO, exp, largest, total_of

BLOCK = 64  # queries in a block at most
STEP = 8  # a block has a multiple of it, because a vector instruction computes 8 or 4 numbers


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


class Head(NamedTuple):
    """One head of one sample."""

    h: int
    number: int  # of the head, counted through all samples
    query_start: int  # where the rows of its queries begin
    queries: int  # how many there are
    key_start: int
    keys: int
    visible_end: int  # its queries see only keys before this one
    width: int  # queries in a block
    limits: np.ndarray  # (Q|1,)
    starts: np.ndarray  # (Q|1,)
    mask: np.ndarray  # (Q|1, K|1)
    bias: np.ndarray  # (Q|1, K|1)


@inner
def head_of(number, heads, rows, visibility, bias):
    """Neighbouring numbers are of different samples: a thread then has long and short ones."""
    batch = len(rows.query_offsets) - 1
    b, h = number % batch, number // batch
    queries = rows.query_offsets[b + 1] - rows.query_offsets[b]
    keys = rows.key_offsets[b + 1] - rows.key_offsets[b]
    limits = visibility.limits[b % len(visibility.limits)]
    starts = visibility.starts[b % len(visibility.starts)]
    mask = visibility.mask[b % len(visibility.mask), h % visibility.mask.shape[1]]
    bias = bias[b % len(bias), h % bias.shape[1]]
    query_start, key_start = rows.query_offsets[b], rows.key_offsets[b]
    end = visible_end(limits, np.int64(0), queries, keys)
    width = (min(BLOCK, rows.longest_queries, max(end, 1)) + STEP - 1) // STEP * STEP
    places = (query_start, queries, key_start, keys, end, width)
    return Head(h, b * heads + h, *places, limits, starts, mask, bias)


@inner
def visible_end(limits, first, last, keys):
    """The key before which all keys are that these queries see."""
    if len(limits) == 1:
        return min(limits[0], keys)
    end = np.int64(0)
    for j in range(first, last):
        end = max(end, min(limits[j], keys))
    return end


@inner
def visible_start(starts, first, last, end):
    """The first key that one of these queries sees, and at most `end`."""
    start = min(starts[0], end) if len(starts) == 1 else end
    for j in range(first, min(last, len(starts))):
        start = min(start, starts[j])
    return start


@inner
def take(x, h, start, count, width, factor):
    """Rows of head h, times a factor: (width, d), where zeros follow the first `count`."""
    out = np.empty((width, x.shape[2]), x.dtype)
    for i in range(count):
        for c in range(x.shape[2]):
            out[i, c] = x[start + i, h, c] * factor
    for i in range(count, width):
        for c in range(x.shape[2]):
            out[i, c] = ZERO
    return out


@inner
def put(block, x, h, start, count, factor):
    """The inverse of `take`: the first `count` rows of a block, times a factor, into rows of x."""
    for i in range(count):
        for c in range(block.shape[1]):
            x[start + i, h, c] = block[i, c] * factor


@inner
def add(block, total):
    for i in range(len(block)):
        for c in range(block.shape[1]):
            total[i, c] += block[i, c]


@inner
def add_to_scores(scores, bias, first, count, begin):
    """The scores (keys, block), plus the bias (Q|1, K|1) from query `first` and key `begin` on."""
    for j in range(count):
        row = min(first + j, len(bias) - 1)
        for i in range(len(scores)):
            scores[i, j] += bias[row, min(begin + i, bias.shape[1] - 1)]


@inner
def add_to_dbias(dscores, dbias, first, count, begin):
    """Add dscores, summed over queries or keys for which the bias has one number."""
    for j in range(count):
        row = min(first + j, len(dbias) - 1)
        for i in range(len(dscores)):
            dbias[row, min(begin + i, dbias.shape[1] - 1)] += dscores[i, j]


@inner
def apply_visibility(scores, first, begin, head, has_mask, counts):
    """Invisible scores become -inf; `counts` says how many keys each query sees at most.

    The scores are those of the keys from `begin` on.
    """
    keys, queries = scores.shape
    for j in range(queries):
        counts[j] = keys
    if len(head.limits) > 1:
        for j in range(queries):
            counts[j] = min(head.limits[min(first + j, len(head.limits) - 1)] - begin, keys)
        for i in range(keys):
            for j in range(queries):
                scores[i, j] = scores[i, j] if i < counts[j] else MINUS_INF
    if len(head.starts) > 1:
        for j in range(queries):
            start = head.starts[min(first + j, len(head.starts) - 1)] - begin
            for i in range(min(start, keys)):
                scores[i, j] = MINUS_INF
            counts[j] = counts[j] if start < counts[j] else 0
    if has_mask:
        mask = head.mask
        for j in range(queries):
            row, number = min(first + j, len(mask) - 1), 0
            start = head.starts[min(first + j, len(head.starts) - 1)] - begin
            for i in range(keys):
                key = min(begin + i, mask.shape[1] - 1)
                is_visible = mask[row, key] != 0 and i < counts[j] and i >= start
                number += is_visible
                scores[i, j] = scores[i, j] if is_visible else MINUS_INF
            counts[j] = number


@inner
def softmax_columns(scores, counts, maximum, inverse):
    """exp(scores - maximum) / sum in place, for each query; its maximum, and 1 / sum."""
    keys, queries = scores.shape
    total = np.zeros(queries)
    for j in range(queries):
        maximum[j] = MINUS_INF if counts[j] > 0 else ZERO
    for i in range(keys):
        for j in range(queries):
            maximum[j] = scores[i, j] if scores[i, j] > maximum[j] else maximum[j]
    for i in range(keys):
        for j in range(queries):
            scores[i, j] = exp(scores[i, j] - maximum[j])
        for j in range(queries):  # a loop of its own, because one with both would not be vectorized
            total[j] += scores[i, j]
    for j in range(queries):
        inverse[j] = 1.0 / total[j] if counts[j] > 0 else 0.0
    for i in range(keys):
        for j in range(queries):
            scores[i, j] *= inverse[j]


@inner
def softmax_again(scores, maximum, inverse):
    """The same weights, to the last bit."""
    for i in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            scores[i, j] = exp(scores[i, j] - maximum[j]) * inverse[j]


@inner
def keep_mask(shape, first, begin, longest_keys, drop):
    """Which weights dropout keeps; `first` is the number of the first query among all (B, H, Q),
    and `begin` that of the first key."""
    kept = np.empty(shape, np.bool_)
    for i in range(shape[0]):
        for j in range(shape[1]):
            kept[i, j] = is_kept((first + j) * longest_keys + i + begin, drop)
    return kept


@inner
def drop_block(block, kept, factor):
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            block[i, j] = block[i, j] * factor if kept[i, j] else ZERO


@inner
def dscores_of(weights, dweights):
    """weights * (dweights - sum(weights * dweights)), in the memory of dweights."""
    keys, queries = weights.shape
    total = np.zeros(queries)
    for i in range(keys):
        for j in range(queries):
            total[j] += np.float64(weights[i, j]) * dweights[i, j]
    for i in range(keys):
        for j in range(queries):
            dweights[i, j] = weights[i, j] * (dweights[i, j] - np.float32(total[j]))
    return dweights


@jit
def attention_heads(inputs, rows, visibility, scale, drop, out, saved, first, last):
    """Fill out (R, H, e) and saved, for some of the B * H heads of all samples."""
    q, k, v, bias, has_bias = inputs
    counts = np.empty(BLOCK, np.int64)
    maximum, inverse = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for number in range(first, last):
        head = head_of(number, q.shape[1], rows, visibility, bias)
        h, end, group = head.h, head.visible_end, head.h * k.shape[1] // q.shape[1]
        k_head = take(k, group, head.key_start, end, end, ONE)
        v_head = take(v, group, head.key_start, end, end, ONE)
        for i in range(0, head.queries, head.width):
            start, count = head.query_start + i, min(head.width, head.queries - i)
            end = visible_end(head.limits, i, i + count, head.keys)
            begin = visible_start(head.starts, i, i + count, end)
            weights = k_head[begin:end] @ take(q, h, start, count, head.width, scale).T
            if has_bias:
                add_to_scores(weights, head.bias, i, count, begin)
            apply_visibility(weights, i, begin, head, visibility.has_mask, counts)
            softmax_columns(weights, counts, maximum, inverse)
            if drop.threshold > 0:
                query = head.number * rows.longest_queries + i
                kept = keep_mask(weights.shape, query, begin, rows.longest_keys, drop)
                drop_block(weights, kept, drop.factor)
            put(weights.T @ v_head[begin:end], out, h, start, count, ONE)
            for j in range(count):
                saved.maximum[start + j, h] = maximum[j]
                saved.inverse[start + j, h] = inverse[j]


@inner(fastmath=FAST_SUMS)
def product_of(x, y):
    total = ZERO
    for c in range(len(x)):
        total += x[c] * y[c]
    return total


@jit
def attention_of_one_query(inputs, rows, visibility, scale, drop, out, saved, first, last):
    """As `attention_heads`, where each sample has one query, as in decoding with a cache: without
    the other queries of a block, and without copies of keys and values."""
    q, k, v, bias, has_bias = inputs
    scores, counts = np.empty(rows.longest_keys, np.float32), np.empty(1, np.int64)
    lanes, sums = np.empty(LANES, np.float32), np.empty(LANES)
    total = np.empty(v.shape[2])  # in float64, because many small weights add up
    for number in range(first, last):
        head = head_of(number, q.shape[1], rows, visibility, bias)
        h, row, end = head.h, head.query_start, head.visible_end
        group, begin = h * k.shape[1] // q.shape[1], visible_start(head.starts, 0, 1, end)
        weights, first_key = scores[: end - begin], head.key_start + begin
        block = weights.reshape(-1, 1)
        for i in range(len(weights)):
            weights[i] = product_of(q[row, h], k[first_key + i, group]) * scale
        if has_bias:
            add_to_scores(block, head.bias, 0, 1, begin)
        apply_visibility(block, 0, begin, head, visibility.has_mask, counts)
        top = largest(weights, lanes) if counts[0] > 0 else ZERO
        for i in range(len(weights)):
            weights[i] = exp(weights[i] - top)
        inverse = np.float32(1.0 / total_of(weights, sums)) if counts[0] > 0 else ZERO
        saved.maximum[row, h], saved.inverse[row, h] = top, inverse
        if drop.threshold > 0:
            kept = keep_mask(block.shape, head.number, begin, rows.longest_keys, drop)
            drop_block(block, kept, drop.factor)
        total[:] = 0.0
        for i in range(len(weights)):
            weight = weights[i] * inverse
            for c in range(len(total)):
                total[c] += weight * v[first_key + i, group, c]
        out[row, h] = total


@jit
def attention_backward_heads(
    grad, inputs, rows, visibility, scale, drop, saved, grads, first, last
):
    """Fill grads for some of the B * H heads of all samples: dq (R, H, d), dk (S, H, d),
    dv (S, H, e), and dbias (B * H, Q|1, K|1), which has zeros at the start."""
    q, k, v, bias, has_bias = inputs
    dq, dk, dv, dbias = grads
    counts = np.empty(BLOCK, np.int64)
    maximum, inverse = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for number in range(first, last):
        head = head_of(number, q.shape[1], rows, visibility, bias)
        h, end, group = head.h, head.visible_end, head.h * k.shape[1] // q.shape[1]
        k_head = take(k, group, head.key_start, end, end, ONE)
        v_head = take(v, group, head.key_start, end, end, ONE)
        dk_head = np.zeros((head.keys, q.shape[2]), np.float32)
        dv_head = np.zeros((head.keys, v.shape[2]), np.float32)
        for i in range(0, head.queries, head.width):
            start, count = head.query_start + i, min(head.width, head.queries - i)
            end = visible_end(head.limits, i, i + count, head.keys)
            begin = visible_start(head.starts, i, i + count, end)
            for j in range(head.width):
                maximum[j] = saved.maximum[start + j, h] if j < count else ZERO
                inverse[j] = saved.inverse[start + j, h] if j < count else ZERO
            q_block = take(q, h, start, count, head.width, scale)
            dout = take(grad, h, start, count, head.width, ONE)
            weights = k_head[begin:end] @ q_block.T
            if has_bias:
                add_to_scores(weights, head.bias, i, count, begin)
            apply_visibility(weights, i, begin, head, visibility.has_mask, counts)
            softmax_again(weights, maximum, inverse)
            dweights = v_head[begin:end] @ dout.T
            if drop.threshold > 0:
                query = head.number * rows.longest_queries + i
                kept = keep_mask(weights.shape, query, begin, rows.longest_keys, drop)
                drop_block(dweights, kept, drop.factor)
                dscores = dscores_of(weights, dweights)
                drop_block(weights, kept, drop.factor)
            else:
                dscores = dscores_of(weights, dweights)
            if has_bias:
                add_to_dbias(dscores, dbias[head.number], i, count, begin)
            add(weights @ dout, dv_head[begin:])
            add(dscores @ q_block, dk_head[begin:])
            put(dscores.T @ k_head[begin:end], dq, h, start, count, scale)
        put(dk_head, dk, h, head.key_start, head.keys, ONE)
        put(dv_head, dv, h, head.key_start, head.keys, ONE)


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
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: Any,
    visibility: Visibility,
    scale: float,
    drop: Drop,
    kernel: Any = None,
) -> tuple[np.ndarray, Saved]:
    """The output of a kernel, and what it saves; without one, of that which suits the queries."""
    if kernel is None:
        kernel = attention_of_one_query if is_decoding(visibility) else attention_heads
    out = np.empty((*q.shape[:2], v.shape[2]), q.dtype)
    saved = Saved(*np.empty((2, *q.shape[:2]), q.dtype))
    run(kernel, (), (q, k, v, bias), visibility, scale, drop, (out, saved), 2)
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
        out, _ = forward(*map(cleaned, (q, k, v, bias)), *options)
        queries, _ = affected(q, k, v, q, visibility, bias)
        return np.where(queries, exact, out), None
    return forward(q, k, v, bias, *options)


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
    _, saved = forward(*clean, *options)
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
        _, saved = forward(*inputs, visibility, scale, drop, attention_heads)
    saved = Saved(*map(as_input, saved))
    results = (saved, (dq, dk, dv, dbias))
    run(attention_backward_heads, (as_input(grad),), inputs, visibility, scale, drop, results, 5)
    if groups < heads:  # the gradient of a key is the sum over the heads that share it
        dk, dv = (sum_heads(x, groups) for x in (dk, dv))
    return (dq, dk, dv) if bias is None else (dq, dk, dv, dbias.reshape(-1, heads, *bias.shape[2:]))
