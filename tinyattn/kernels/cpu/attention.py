"""Scaled dot-product attention, a block of queries at a time: the Q x K array is never made.

For each head, and for each block of its queries,

    weights = softmax(scale * queries keys^T),  out = dropout(weights) values

and in backward, where the weights are computed again instead of being kept,

    dvalues += weights^T grad,  dscores = weights * (dweights - sum(weights * dweights)),
    dqueries = scale * dscores keys,  dkeys += scale * dscores^T queries.

Keys behind the limit of a sample are not looked at, which for padded batches saves their time too.
Arrays come in as (N, H, d), the samples one after another: the order in which projections
(B, N, H * d) lie in memory anyway, and packed sequences too. `starts` (B + 1,) say where each
sample begins and the last one ends. `@` between arrays is BLAS, also in a compiled function.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend import is_finite
from .. import reference
from ..packing import limits_in_samples, packed, padded
from ..reference import Drop
from ..threads import in_parts
from .compiler import hidden, inner, jit, ready
from .dropout import dropping, hash_of
from .rows import FAST_SUMS, MINUS_INF, ONE, ZERO, exp

BLOCK = 64  # queries


@inner(fastmath=FAST_SUMS)
def softmax_row(row, seen, step, use_mask):
    """exp(row - max) / sum in place, of what is seen."""
    if use_mask:
        for i in range(len(row)):
            row[i] = row[i] if seen[i * step] != 0 else MINUS_INF
    top = MINUS_INF
    for i in range(len(row)):
        top = max(top, row[i])
    if top == MINUS_INF:
        for i in range(len(row)):
            row[i] = ZERO
        return
    for i in range(len(row)):
        row[i] = exp(row[i] - top)
    total = np.float64(0)
    for i in range(len(row)):
        total += row[i]
    inverse = np.float32(1.0 / total)
    for i in range(len(row)):
        row[i] *= inverse


@inner
def softmax_block(scores, first_query, limits, mask, use_mask):
    """Each row over the keys it may see."""
    for j in range(len(scores)):
        row, query = scores[j], first_query + j
        n = min(limits[query % len(limits)], len(row))
        seen = mask[query % len(mask)]
        softmax_row(row[:n], seen, 0 if len(seen) == 1 else 1, use_mask)
        for i in range(n, len(row)):
            row[i] = ZERO


@inner
def drop_row(row, number, drop):
    """Dropout of a row whose first element is this number of (B, H, Q, K)."""
    factor, threshold, low, high = drop
    for i in range(len(row)):
        row[i] = row[i] * factor if hash_of(np.uint32(number + i), low, high) >= threshold else ZERO


@inner
def times(row, factors):
    for i in range(len(row)):
        row[i] *= factors[i]


@inner
def head_of(x, first, count, h, factor):
    """(count, d), packed, times a factor."""
    out = np.empty((count, x.shape[2]), x.dtype)
    for i in range(count):
        for c in range(x.shape[2]):
            out[i, c] = x[first + i, h, c] * factor
    return out


@inner
def put_head(block, factor, x, first, h):
    """The way back."""
    for i in range(len(block)):
        for c in range(block.shape[1]):
            x[first + i, h, c] = block[i, c] * factor


@inner
def add_block(block, total):
    for i in range(len(block)):
        for c in range(block.shape[1]):
            total[i, c] += block[i, c]


@inner
def most_of(limit, keys):
    """How many keys the query sees that sees most."""
    most = 0
    for i in range(len(limit)):
        most = max(most, min(limit[i], keys))
    return most


@jit
def attention_heads(
    q, k, v, starts, longest, limits, mask, use_mask, scale, drop, out, first, last
):  # fmt: skip
    """Heads first to last, counted through all samples, of q (R, H, d), k (S, H, d), v (S, H, e)
    -> out (R, H, e). starts, longest: of the queries and of the keys."""
    heads = out.shape[1]
    for head in range(first, last):
        b, h = head // heads, head % heads
        limit, seen = limits[b % len(limits)], mask[b % len(mask), h % mask.shape[1]]
        start, queries = starts[0][b], starts[0][b + 1] - starts[0][b]
        n = most_of(limit, starts[1][b + 1] - starts[1][b])
        keys = head_of(k, starts[1][b], n, h, ONE)
        values = head_of(v, starts[1][b], n, h, ONE)
        for q0 in range(0, queries, BLOCK):
            number = min(BLOCK, queries - q0)
            block = head_of(q, start + q0, number, h, scale)
            weights = block @ keys.T
            softmax_block(weights, q0, limit, seen, use_mask)
            if drop[1] > 0:
                for j in range(number):
                    drop_row(weights[j], (head * longest[0] + q0 + j) * longest[1], drop)
            put_head(weights @ values, ONE, out, start + q0, h)


@inner(fastmath=FAST_SUMS)
def dscores_row(weights, dweights):
    total = np.float64(0)
    for i in range(len(weights)):
        total += np.float64(weights[i]) * dweights[i]
    mean = np.float32(total)
    for i in range(len(weights)):
        dweights[i] = weights[i] * (dweights[i] - mean)


@jit
def attention_backward_heads(
    grad, q, k, v, starts, longest, limits, mask, use_mask, scale, drop, dq, dk, dv, first, last
):  # fmt: skip
    """The gradients of q, k and v; the rest as forward."""
    heads = grad.shape[1]
    for head in range(first, last):
        b, h = head // heads, head % heads
        limit, seen = limits[b % len(limits)], mask[b % len(mask), h % mask.shape[1]]
        start, queries = starts[0][b], starts[0][b + 1] - starts[0][b]
        key_start, n = starts[1][b], most_of(limit, starts[1][b + 1] - starts[1][b])
        keys = head_of(k, key_start, n, h, ONE)
        values = head_of(v, key_start, n, h, ONE)
        all_keys = starts[1][b + 1] - key_start
        kept = np.empty(n, np.float32)
        dkeys = np.zeros((all_keys, keys.shape[1]), np.float32)
        dvalues = np.zeros((all_keys, values.shape[1]), np.float32)
        for q0 in range(0, queries, BLOCK):
            number = min(BLOCK, queries - q0)
            block = head_of(q, start + q0, number, h, scale)
            dout = head_of(grad, start + q0, number, h, ONE)
            weights = block @ keys.T
            softmax_block(weights, q0, limit, seen, use_mask)
            dweights = dout @ values.T
            for j in range(number):
                if drop[1] > 0:
                    kept[:] = ONE
                    drop_row(kept, (head * longest[0] + q0 + j) * longest[1], drop)
                    times(dweights[j], kept)
                dscores_row(weights[j], dweights[j])
                if drop[1] > 0:
                    times(weights[j], kept)
            add_block(weights.T @ dout, dvalues)
            add_block(dweights.T @ block, dkeys)
            put_head(dweights @ keys, scale, dq, start + q0, h)
        put_head(dkeys, ONE, dk, key_start, h)
        put_head(dvalues, ONE, dv, key_start, h)


def computable(q: np.ndarray, k: np.ndarray, v: np.ndarray, drop: Drop) -> bool:
    return bool(q.dtype == np.float32 and drop.p < 1 and q.size and k.size and v.size)


def all_see_the_same(limits: Any, mask: Any) -> bool:
    """Whether all queries of a sample may see the same keys."""
    return mask is None and (limits is None or limits.shape[1] == 1)


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


def run(loop: Any, arrays: Any, samples: Any, limits: Any, mask: Any, scale: float, drop: Drop,
        results: Any, times: int) -> None:  # fmt: skip
    queries, keys = samples
    heads, width = arrays[0].shape[1:]
    pairs = float(queries.lengths @ keys.lengths)
    nanoseconds = times * heads * (2000 * len(queries.lengths) + pairs * (1 + width / 16))
    in_parts(
        len(queries.lengths) * heads, nanoseconds, loop, *map(ready, arrays),
        (queries.starts, keys.starts), (queries.longest, keys.longest), *hidden(limits, mask),
        np.float32(scale), dropping(*drop, np.dtype(np.float32)), *results,
    )  # fmt: skip


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
    run(attention_heads, (q, k, v), *settings, (out,), 1)
    return out, ()


def attention_backward(
    grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, samples: Any, limits: Any,
    mask: Any, scale: float, drop: Drop, saved: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    settings = (samples, limits, mask, scale, drop)
    if not computable(q, k, v, drop):
        return reference.attention_backward(grad, q, k, v, *settings, saved)
    if not all_see_the_same(limits, mask) and not all(map(is_finite, (grad, q, k, v))):
        if isinstance(saved, tuple):
            _, saved = reference.attention(q, k, v, *settings)
        exact = reference.attention_backward(grad, q, k, v, *settings, saved)
        clean = attention_backward(*map(finite, (grad, q, k, v)), *settings, ())
        queries, keys = touched(q, k, v, grad, samples, limits, mask)
        return tuple(map(np.where, (queries, keys, keys), exact, clean))
    gradients = tuple(np.empty(x.shape, x.dtype) for x in (q, k, v))
    run(attention_backward_heads, (grad, q, k, v), *settings, gradients, 3)
    return gradients
