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

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...backend import is_finite
from .. import reference
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
    q, k, v, before, starts, longest, limits, mask, use_mask, scale, drop, out, first, last
):  # fmt: skip
    """Heads first to last, counted through all samples, of q (Q, H, d), k (K, H, d), v (K, H, e)
    -> out (Q, H, e). before: how many heads stand before the first one in q, k and v, which may be
    one array. longest: of the queries and of the keys."""
    heads = out.shape[1]
    for head in range(first, last):
        b, h = head // heads, head % heads
        limit, seen = limits[b % len(limits)], mask[b % len(mask), h % mask.shape[1]]
        start, queries = starts[0][b], starts[0][b + 1] - starts[0][b]
        n = most_of(limit, starts[1][b + 1] - starts[1][b])
        keys = head_of(k, starts[1][b], n, before[1] + h, ONE)
        values = head_of(v, starts[1][b], n, before[2] + h, ONE)
        for q0 in range(0, queries, BLOCK):
            number = min(BLOCK, queries - q0)
            block = head_of(q, start + q0, number, before[0] + h, scale)
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
    grad, q, k, v, before, starts, longest, limits, mask, use_mask, scale, drop, dq, dk, dv,
    first, last,
):  # fmt: skip
    """The gradients of q, k and v; the rest as forward."""
    heads = grad.shape[1]
    for head in range(first, last):
        b, h = head // heads, head % heads
        limit, seen = limits[b % len(limits)], mask[b % len(mask), h % mask.shape[1]]
        start, queries = starts[0][b], starts[0][b + 1] - starts[0][b]
        key_start, n = starts[1][b], most_of(limit, starts[1][b + 1] - starts[1][b])
        keys = head_of(k, key_start, n, before[1] + h, ONE)
        values = head_of(v, key_start, n, before[2] + h, ONE)
        all_keys = starts[1][b + 1] - key_start
        kept = np.empty(n, np.float32)
        dkeys = np.zeros((all_keys, keys.shape[1]), np.float32)
        dvalues = np.zeros((all_keys, values.shape[1]), np.float32)
        for q0 in range(0, queries, BLOCK):
            number = min(BLOCK, queries - q0)
            block = head_of(q, start + q0, number, before[0] + h, scale)
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
            put_head(dweights @ keys, scale, dq, start + q0, before[0] + h)
        put_head(dkeys, ONE, dk, key_start, before[1] + h)
        put_head(dvalues, ONE, dv, key_start, before[2] + h)


def rows_of_heads(x: np.ndarray) -> np.ndarray:
    """(B, H, N, d) -> (B * N, H, d) as the loops take it, a copy only if it does not lie so."""
    x = ready(x.swapaxes(1, 2))
    return x.reshape(-1, *x.shape[2:])


class Samples(NamedTuple):
    """Samples that lie one after another."""

    lengths: np.ndarray
    starts: np.ndarray  # where each begins, and where the last one ends
    longest: int
    squares: float  # of the lengths, together


@lru_cache(maxsize=64)
def samples_of(lengths: tuple[int, ...]) -> Samples:
    """Of these lengths; kept, since all layers of a step ask for the same, forward and backward."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    squares = float(sum(length * length for length in lengths))
    return Samples(np.array(lengths, np.int64), ready(starts), max(lengths, default=0), squares)


def safe(limits: Any, mask: Any, *arrays: np.ndarray) -> bool:
    """Whether no NaN or inf may stand where some queries look and others may not."""
    if mask is None and (limits is None or limits.shape[1] == 1):
        return True  # all queries of a sample see the same keys
    return all(map(is_finite, arrays))


def finite(x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), x, x.dtype.type(0))


def touched(q: Any, k: Any, v: Any, grad: Any, limits: Any, mask: Any) -> tuple[Any, Any]:
    """Which queries (B, H, Q, 1) are NaN or inf or see such, and which keys these see."""
    shape = (*q.shape[:3], k.shape[2])
    seen = np.broadcast_to(reference.visible(shape, limits, mask), shape)
    odd_q, odd_k, odd_v, odd_grad = (~np.isfinite(x).all(axis=-1) for x in (q, k, v, grad))
    queries = (seen & (odd_k | odd_v)[:, :, None]).any(axis=-1) | odd_q | odd_grad
    return queries[..., None], (seen & queries[..., None]).any(axis=-2)[..., None]


def run(
    loop: Any,
    arrays: Any,
    before: Any,
    samples: Any,
    limits: Any,
    mask: Any,
    scale: float,
    p: float,
    seed: int,
    results: Any,
    heads: int,
    width: int,
    times: int,
) -> None:
    queries, keys = samples
    pairs = queries.squares if queries is keys else float(queries.lengths @ keys.lengths)
    nanoseconds = times * heads * (2000 * len(queries.lengths) + pairs * (1 + width / 16))
    in_parts(
        len(queries.lengths) * heads,
        nanoseconds,
        loop,
        *arrays,
        before,
        (queries.starts, keys.starts),
        (queries.longest, keys.longest),
        *hidden(limits, mask),
        np.float32(scale),
        dropping(p, seed, np.dtype(np.float32)),
        *results,
    )


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Any, mask: Any, scale: float, p: float,
    seed: int,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """The output; True says that backward is here too."""
    settings = (limits, mask, scale, p, seed)
    if q.dtype != np.float32 or p >= 1 or not (q.size and k.size and v.size):
        return reference.attention(q, k, v, *settings)
    if not safe(limits, mask, q, k, v):
        exact, weights = reference.attention(q, k, v, *settings)
        out, _ = attention(*map(finite, (q, k, v)), *settings)
        queries, _ = touched(q, k, v, q, limits, mask)
        return np.where(queries, exact, out), weights
    batch, heads, queries, _ = q.shape
    arrays = (rows_of_heads(q), rows_of_heads(k), rows_of_heads(v))
    samples = (samples_of((queries,) * batch), samples_of((k.shape[2],) * batch))
    out = np.empty((batch, queries, heads, v.shape[3]), q.dtype)
    run(
        attention_heads,
        arrays,
        (0, 0, 0),
        samples,
        limits,
        mask,
        scale,
        p,
        seed,
        (out.reshape(-1, *out.shape[2:]),),
        heads,
        v.shape[3],
        1,
    )
    return out.swapaxes(1, 2), ()


def attention_backward(
    grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Any, mask: Any,
    scale: float, p: float, seed: int, saved: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    settings = (limits, mask, scale, p, seed)
    if q.dtype != np.float32 or p >= 1 or not (q.size and k.size and v.size):
        return reference.attention_backward(grad, q, k, v, *settings, saved)
    if not safe(limits, mask, grad, q, k, v):
        if isinstance(saved, tuple):
            _, saved = reference.attention(q, k, v, *settings)
        exact = reference.attention_backward(grad, q, k, v, *settings, saved)
        clean = attention_backward(*map(finite, (grad, q, k, v)), *settings, ())
        queries, keys = touched(q, k, v, grad, limits, mask)
        return tuple(map(np.where, (queries, keys, keys), exact, clean))
    batch, heads = q.shape[:2]
    arrays = tuple(rows_of_heads(x) for x in (grad, q, k, v))
    samples = (samples_of((q.shape[2],) * batch), samples_of((k.shape[2],) * batch))
    gradients = tuple(np.empty(x.shape, x.dtype) for x in arrays[1:])
    run(
        attention_backward_heads,
        arrays,
        (0, 0, 0),
        samples,
        limits,
        mask,
        scale,
        p,
        seed,
        gradients,
        heads,
        v.shape[3],
        3,
    )
    dq, dk, dv = (x.reshape(batch, -1, *x.shape[1:]).swapaxes(1, 2) for x in gradients)
    return dq, dk, dv


def self_attention(
    qkv: np.ndarray, heads: int, lengths: Any, limits: Any, mask: Any, scale: float, p: float,
    seed: int,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """The same with queries, keys and values side by side, (B, N, 3 D) or packed (N, 3 D)."""
    if qkv.dtype != np.float32 or p >= 1 or not qkv.size or not safe(limits, mask, qkv):
        settings = (heads, lengths, limits, mask, scale, p, seed)
        return reference.self_attention(qkv, *settings, attention)
    x, samples = heads_of_all(qkv, heads), (samples_in(qkv, lengths),) * 2
    out = np.empty((*qkv.shape[:-1], qkv.shape[-1] // 3), qkv.dtype)
    run(
        attention_heads,
        (x, x, x),
        (0, heads, 2 * heads),
        samples,
        limits,
        mask,
        scale,
        p,
        seed,
        (out.reshape(-1, heads, x.shape[2]),),
        heads,
        x.shape[2],
        1,
    )
    return out, ()


def self_attention_backward(
    grad: np.ndarray, qkv: np.ndarray, heads: int, lengths: Any, limits: Any, mask: Any,
    scale: float, p: float, seed: int, saved: Any,
) -> np.ndarray:  # fmt: skip
    settings = (heads, lengths, limits, mask, scale, p, seed)
    if qkv.dtype != np.float32 or p >= 1 or not qkv.size or not safe(limits, mask, grad, qkv):
        return reference.self_attention_backward(grad, qkv, *settings, saved, attention_backward)
    x, samples = heads_of_all(qkv, heads), (samples_in(qkv, lengths),) * 2
    dqkv = np.empty(qkv.shape, qkv.dtype)
    dx = dqkv.reshape(x.shape)
    run(
        attention_backward_heads,
        (ready(grad).reshape(-1, heads, x.shape[2]), x, x, x),
        (0, heads, 2 * heads),
        samples,
        limits,
        mask,
        scale,
        p,
        seed,
        (dx, dx, dx),
        heads,
        x.shape[2],
        3,
    )
    return dqkv


def heads_of_all(qkv: np.ndarray, heads: int) -> np.ndarray:
    """(..., 3 D) -> (rows, 3 H, d)."""
    return ready(qkv).reshape(-1, 3 * heads, qkv.shape[-1] // (3 * heads))


def samples_in(x: np.ndarray, lengths: Any) -> Samples:
    """Those of (B, N, D), or packed ones of these lengths."""
    return samples_of((x.shape[1],) * len(x) if lengths is None else tuple(lengths.tolist()))
