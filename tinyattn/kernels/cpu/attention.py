"""Scaled dot-product attention of one block of queries after another.

Forward. For each head of each sample, and for each block q of its queries,

    scores = scale * q k^T                       (block, K)
    weights = exp(scores - maximum) / sum        over the visible keys of each row
    out = dropout(weights) v                     (block, e)

Only maximum and 1 / sum of each row are kept, so memory grows with the length, not its square.

Backward, with `grad` the gradient of `out`, computes the weights again, and then

    dweights = dropout(grad v^T)
    dscores = weights * (dweights - sum(weights * dweights))
    dq = scale * dscores k,   dk += scale * dscores^T q,   dv += dropout(weights)^T grad

(Dao et al., "FlashAttention", 2022, which cuts keys into blocks too.) `@` between arrays is BLAS,
in a compiled function too. BLAS rounds products of other shapes differently. So all blocks of a
sample have one height, where rows of zeros fill up the last: padded samples then give the same bits
as packed ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...backend import is_finite
from .. import reference
from ..packing import limits_in_samples, packed, padded
from ..reference import Drop
from ..threads import parallel_for
from .compiler import FAST_SUMS, inner, jit
from .dropout import dropping, stays
from .layout import as_input, as_visible
from .row_functions import LANES, MINUS_INF, ONE, ZERO, exp, largest

BLOCK = 64  # queries in a block at most
LEAST = 16  # and at least, if there are so many: products of fewer rows are slow


class Inputs(NamedTuple):
    """The rows of all samples, one sample after another."""

    q: np.ndarray  # (R, H, d)
    k: np.ndarray  # (S, H, d)
    v: np.ndarray  # (S, H, e)


class Rows(NamedTuple):
    """Which rows belong to which sample, see `packing.Samples`: queries, and keys."""

    query_starts: np.ndarray  # (B + 1,)
    key_starts: np.ndarray  # (B + 1,)
    longest_queries: int
    longest_keys: int


class Sums(NamedTuple):
    """What forward keeps of each row of scores."""

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
    visible: int  # how many first keys its queries see at most
    height: int  # of a block of queries
    limits: np.ndarray  # (Q|1,)
    mask: np.ndarray  # (Q|1, K|1)


@inner
def head_of(number, heads, rows, visible):
    """Neighbouring numbers are of different samples: a thread then has long and short ones."""
    batch = len(rows.query_starts) - 1
    b, h = number % batch, number // batch
    queries = rows.query_starts[b + 1] - rows.query_starts[b]
    keys = rows.key_starts[b + 1] - rows.key_starts[b]
    limits = visible.limits[b % len(visible.limits)]
    n = most_visible(limits, 0, queries, keys)
    height = min(BLOCK, rows.longest_queries, max(n, LEAST))
    mask = visible.mask[b % len(visible.mask), h % visible.mask.shape[1]]
    return Head(
        h, b * heads + h, rows.query_starts[b], queries, rows.key_starts[b], keys, n, height,
        limits, mask,
    )  # fmt: skip


@inner
def most_visible(limits, first, last, keys):
    """How many keys one of these queries sees at most."""
    if len(limits) == 1:
        return min(limits[0], keys)
    most = np.int64(0)
    for i in range(first, last):
        most = max(most, min(limits[i], keys))
    return most


@inner
def take(x, h, start, count, height, factor):
    """Rows of head h, times a factor: (height, d), where zeros follow the first `count`."""
    out = np.empty((height, x.shape[2]), x.dtype)
    for i in range(count):
        for c in range(x.shape[2]):
            out[i, c] = x[start + i, h, c] * factor
    for i in range(count, height):
        clear(out[i], 0)
    return out


@inner
def put(block, x, h, start, count, factor):
    """The way back."""
    for i in range(count):
        for c in range(block.shape[1]):
            x[start + i, h, c] = block[i, c] * factor


@inner
def add(block, total):
    for i in range(len(block)):
        for c in range(block.shape[1]):
            total[i, c] += block[i, c]


@inner
def clear(row, start):
    for i in range(start, len(row)):
        row[i] = ZERO


@inner
def visible_row(scores, j, query, head, has_mask):
    """The scores that this query sees; zeros take the place of those behind its limit, and -inf of
    those that the mask excludes. The second value says whether one is left."""
    n = min(head.limits[query % len(head.limits)], scores.shape[1])
    clear(scores[j], n)
    row = scores[j, :n]
    number = n
    if has_mask:
        mask = head.mask[query % len(head.mask)]
        step = 0 if len(mask) == 1 else 1
        number = 0
        for i in range(n):
            is_visible = mask[i * step] != 0
            number += is_visible
            row[i] = row[i] if is_visible else MINUS_INF
    return row, number > 0


@inner(fastmath=FAST_SUMS)
def softmax_row(row, lanes):
    """exp(row - maximum) / sum in place; the maximum, and 1 / sum."""
    maximum = largest(row, lanes)
    for i in range(len(row)):
        row[i] = exp(row[i] - maximum)
    total = np.float64(0)
    for i in range(len(row)):
        total += row[i]
    inverse = np.float32(1.0 / total)
    for i in range(len(row)):
        row[i] *= inverse
    return maximum, inverse


@inner
def softmax_again(row, maximum, inverse):
    """The same weights, to the last bit."""
    for i in range(len(row)):
        row[i] = exp(row[i] - maximum) * inverse


@inner
def drop_row(row, number, drop):
    """Dropout of a row whose first element is this number of (B, H, Q, K)."""
    for i in range(len(row)):
        row[i] = row[i] * drop.factor if stays(number + i, drop) else ZERO


@inner(fastmath=FAST_SUMS)
def dscores_row(weights, dweights):
    """weights * (dweights - sum(weights * dweights)), in place of dweights."""
    total = np.float64(0)
    for i in range(len(weights)):
        total += np.float64(weights[i]) * dweights[i]
    mean = np.float32(total)
    for i in range(len(weights)):
        dweights[i] = weights[i] * (dweights[i] - mean)


@inner
def multiply(row, factors):
    for i in range(len(row)):
        row[i] *= factors[i]


@jit
def attention_heads(inputs, rows, visible, scale, drop, out, sums, first, last):
    """Fill out (R, H, e) and sums, for some of the B * H heads of all samples."""
    q, k, v = inputs
    lanes = np.empty(LANES, np.float32)
    for number in range(first, last):
        head = head_of(number, q.shape[1], rows, visible)
        h, n, height = head.h, head.visible, head.height
        k_head = take(k, h, head.key_start, n, n, ONE)
        v_head = take(v, h, head.key_start, n, n, ONE)
        for i in range(0, head.queries, height):
            start, count = head.query_start + i, min(height, head.queries - i)
            n = most_visible(head.limits, i, i + count, head.keys)
            weights = take(q, h, start, count, height, scale) @ k_head[:n].T
            for j in range(count):
                row, is_any_visible = visible_row(weights, j, i + j, head, visible.has_mask)
                maximum = inverse = ZERO
                if is_any_visible:
                    maximum, inverse = softmax_row(row, lanes)
                else:
                    clear(row, 0)
                sums.maximum[start + j, h], sums.inverse[start + j, h] = maximum, inverse
                if drop.threshold > 0:
                    query = head.number * rows.longest_queries + i + j
                    drop_row(row, query * rows.longest_keys, drop)
            for j in range(count, height):
                clear(weights[j], 0)
            put(weights @ v_head[:n], out, h, start, count, ONE)


@jit
def attention_backward_heads(grad, inputs, rows, visible, scale, drop, sums, grads, first, last):
    """Fill grads (dq, dk, dv), for some of the B * H heads of all samples."""
    q, k, v = inputs
    dq, dk, dv = grads
    factors = np.empty(rows.longest_keys, np.float32)
    for number in range(first, last):
        head = head_of(number, q.shape[1], rows, visible)
        h, n, height = head.h, head.visible, head.height
        k_head = take(k, h, head.key_start, n, n, ONE)
        v_head = take(v, h, head.key_start, n, n, ONE)
        dk_head = np.zeros((head.keys, q.shape[2]), np.float32)
        dv_head = np.zeros((head.keys, v.shape[2]), np.float32)
        for i in range(0, head.queries, height):
            start, count = head.query_start + i, min(height, head.queries - i)
            n = most_visible(head.limits, i, i + count, head.keys)
            q_block = take(q, h, start, count, height, scale)
            dout = take(grad, h, start, count, height, ONE)
            weights = q_block @ k_head[:n].T
            dweights = dout @ v_head[:n].T  # and then dscores
            for j in range(count):
                row, _ = visible_row(weights, j, i + j, head, visible.has_mask)
                drow = dweights[j, : len(row)]
                softmax_again(row, sums.maximum[start + j, h], sums.inverse[start + j, h])
                if drop.threshold > 0:
                    for c in range(len(row)):
                        factors[c] = ONE
                    query = head.number * rows.longest_queries + i + j
                    drop_row(factors[: len(row)], query * rows.longest_keys, drop)
                    multiply(drow, factors)
                    dscores_row(row, drow)
                    multiply(row, factors)
                else:
                    dscores_row(row, drow)
                clear(dweights[j], len(row))
            for j in range(count, height):
                clear(weights[j], 0)
                clear(dweights[j], 0)
            add(weights.T @ dout, dv_head)
            add(dweights.T @ q_block, dk_head)
            put(dweights @ k_head[:n], dq, h, start, count, scale)
        put(dk_head, dk, h, head.key_start, head.keys, ONE)
        put(dv_head, dv, h, head.key_start, head.keys, ONE)


def computable(q: np.ndarray, k: np.ndarray, v: np.ndarray, drop: Drop) -> bool:
    return bool(q.dtype == np.float32 and drop.p < 1 and q.size and k.size and v.size)


def all_see_the_same(limits: Any, mask: Any) -> bool:
    """Whether all queries of a sample see the same keys."""
    return mask is None and (limits is None or limits.shape[1] == 1)


def run(kernel: Any, before: Any, inputs: Any, samples: Any, limits: Any, mask: Any, scale: float,
        drop: Drop, results: Any, cost: int) -> None:  # fmt: skip
    """The kernel over all heads of all samples; `cost` is the number of its products."""
    queries, keys = samples
    heads, width = inputs[0].shape[1:]
    pairs = float(queries.lengths @ keys.lengths)
    nanoseconds = cost * heads * (1000 * len(queries.lengths) + pairs * (1 + width / 32))
    parallel_for(
        len(queries.lengths) * heads,
        nanoseconds,
        kernel,
        *before,
        Inputs(*map(as_input, inputs)),
        Rows(queries.starts, keys.starts, queries.longest, keys.longest),
        as_visible(limits, mask),
        np.float32(scale),
        dropping(*drop, np.dtype(np.float32)),
        *results,
    )


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, samples: Any, limits: Any, mask: Any,
    scale: float, drop: Drop,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """The output, and what backward needs of it."""
    settings = (samples, limits, mask, scale, drop)
    if not computable(q, k, v, drop):
        return reference.attention(q, k, v, *settings)
    if not all_see_the_same(limits, mask) and not all(map(is_finite, (q, k, v))):
        exact, weights = reference.attention(q, k, v, *settings)
        out, _ = attention(*map(finite, (q, k, v)), *settings)
        queries, _ = touched(q, k, v, q, samples, limits, mask)
        return np.where(queries, exact, out), weights
    out = np.empty((*q.shape[:2], v.shape[2]), q.dtype)
    sums = Sums(*np.empty((2, *q.shape[:2]), q.dtype))
    run(attention_heads, (), (q, k, v), *settings, (out, sums), 2)
    return out, sums


def attention_backward(
    grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, samples: Any, limits: Any,
    mask: Any, scale: float, drop: Drop, saved: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    settings = (samples, limits, mask, scale, drop)
    if not computable(q, k, v, drop):
        return reference.attention_backward(grad, q, k, v, *settings, saved)
    if not all_see_the_same(limits, mask) and not all(map(is_finite, (grad, q, k, v))):
        _, weights = reference.attention(q, k, v, *settings)
        exact = reference.attention_backward(grad, q, k, v, *settings, weights)
        _, sums = attention(*map(finite, (q, k, v)), *settings)
        clean = attention_backward(*map(finite, (grad, q, k, v)), *settings, sums)
        queries, keys = touched(q, k, v, grad, samples, limits, mask)
        return tuple(map(np.where, (queries, keys, keys), exact, clean))
    grads = tuple(np.empty(x.shape, x.dtype) for x in (q, k, v))
    sums = Sums(*map(as_input, saved))
    run(attention_backward_heads, (as_input(grad),), (q, k, v), *settings, (sums, grads), 5)
    return grads


# Where queries see different keys, a block has keys that some of its rows do not see. Zero times
# NaN is NaN. So NaN and inf are taken out, and the queries and keys that they concern are computed
# by the reference.


def finite(x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), x, x.dtype.type(0))


def touched(
    q: Any, k: Any, v: Any, grad: Any, samples: Any, limits: Any, mask: Any
) -> tuple[Any, Any]:
    """Which queries (R, H, 1) are NaN or inf or see such, and which keys (S, H, 1) these see."""
    queries, keys = samples
    limits = limits_in_samples(samples, limits, q)
    bad_q, bad_grad = (~np.isfinite(padded(x, queries)).all(axis=-1) for x in (q, grad))
    bad_k, bad_v = (~np.isfinite(padded(x, keys)).all(axis=-1) for x in (k, v))
    shape = (*bad_q.shape, bad_k.shape[2])
    visible = np.broadcast_to(reference.visible_keys(shape, limits, mask), shape)
    bad = (visible & (bad_k | bad_v)[:, :, None]).any(axis=-1) | bad_q | bad_grad  # (B, H, Q)
    reached = (visible & bad[..., None]).any(axis=-2)  # (B, H, K)
    return packed(bad[..., None], queries), packed(reached[..., None], keys)
