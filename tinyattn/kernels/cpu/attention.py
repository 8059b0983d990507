"""Scaled dot-product attention, tile by tile: the Q x K array is never made.

Forward walks over the keys of a block of queries and keeps for each query the largest score so far,
the sum of exp(score - largest), and the output that belongs to them; when a tile brings a larger
score, both are scaled down to it ("online softmax": Milakov and Gimelshein, 2018). Only the largest
score and the sum are kept for backward, which computes the weights of a tile again from them (Dao
et al., "FlashAttention", 2022). With D = sum(grad * out) of a query,

    dvalues = weights^T grad,  dscores = weights * (grad values^T - D),
    dqueries = scale * dscores keys,  dkeys = scale * dscores^T queries.

Keys behind the limit of a sample are not looked at, which for padded batches saves their time too.

Forward holds scores as (keys, queries): maximum and sum of a query then run down a column, and all
columns are done at once by vector instructions. Backward, which needs neither, holds (queries,
keys). Arrays come in as (B, N, H, d), the order in which projections of (B, N, H * d) lie in memory
anyway. Packed copies of one head are padded with zeros to multiples of four and of LANES, which is
what `add_product` needs; zeros add nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import reference
from .compiler import hidden, jit, ready
from .dropout import dropping, hash_of
from .products import LANES, add_product, up_to
from .rows import LANES as PARTS
from .rows import MINUS_INF, ONE, ZERO, dot, exp

NAN = np.float32(np.nan)
# A tile of scores and what it is made from stay in the second-level cache.
FORWARD_QUERIES, FORWARD_KEYS = 256, 64
BACKWARD_QUERIES, BACKWARD_KEYS = 32, 256


@jit
def pack(x, b, h, count, factor, out):
    """out (count, d) = factor * one head of x."""
    for i in range(count):
        for c in range(x.shape[3]):
            out[i, c] = x[b, i, h, c] * factor


@jit
def pack_tiles(x, b, h, first, count, factor, out):
    """out (tiles, d, width) = factor * one head of x, transposed within each tile, from row
    `first` on; zeros behind the last."""
    width = out.shape[2]
    for i in range(count):
        tile, j = out[i // width], i % width
        for c in range(x.shape[3]):
            tile[c, j] = x[b, first + i, h, c] * factor
    if count % width:
        out[count // width, :, count % width :] = ZERO


@jit
def limits_of(limits, b, first, keys, out):
    """How many keys each query sees, from query `first` on; returns the least and the most."""
    least, most = keys, 0
    for j in range(len(out)):
        n = min(limits[b % limits.shape[0], (first + j) % limits.shape[1]], keys)
        out[j] = n
        least, most = min(least, n), max(most, n)
    return least, most


@jit
def hide_columns(scores, mask, use_mask, b, h, first_query, first_key, limit):
    """-inf where a query may not see a key; scores (keys, queries)."""
    queries = len(limit)
    for i in range(len(scores)):
        row, key = scores[i], first_key + i
        for j in range(queries):
            row[j] = row[j] if key < limit[j] else MINUS_INF
        if use_mask:
            seen = mask[b % mask.shape[0], h % mask.shape[1], :, key % mask.shape[3]]
            if len(seen) == 1:
                if seen[0] == 0:
                    row[:] = MINUS_INF
            else:
                for j in range(queries):
                    row[j] = row[j] if seen[first_query + j] != 0 else MINUS_INF


@jit
def hide_rows(scores, mask, use_mask, b, h, first_query, first_key, limit):
    """-inf where a query may not see a key; scores (queries, keys)."""
    keys = scores.shape[1]
    for j in range(len(limit)):
        row = scores[j]
        row[max(0, limit[j] - first_key) :] = MINUS_INF
        if use_mask:
            query = (first_query + j) % mask.shape[2]
            seen = mask[b % mask.shape[0], h % mask.shape[1], query]
            step = 1 if len(seen) > 1 else 0
            for i in range(keys):
                row[i] = row[i] if seen[(first_key + i) * step] != 0 else MINUS_INF


@jit
def drop_columns(weights, queries, start, keys, factor, threshold, low, high):
    """Dropout of weights (keys, queries); `start` is the number of the first, of (B, H, Q, K)."""
    for i in range(len(weights)):
        row = weights[i]
        for j in range(queries):
            number = np.uint32(start + np.uint32(i) + np.uint32(j) * np.uint32(keys))
            row[j] = row[j] * factor if hash_of(number, low, high) >= threshold else ZERO


@jit
def sees(mask, use_mask, b, h, query, key, limit):
    if key >= limit:
        return False
    if not use_mask:
        return True
    seen = mask[b % mask.shape[0], h % mask.shape[1], query % mask.shape[2]]
    return seen[key % len(seen)] != 0


@jit
def sees_any(mask, use_mask, b, h, query, limit):
    for key in range(limit):  # noqa: SIM110 (compiled, any() would take a list)
        if sees(mask, use_mask, b, h, query, key, limit):
            return True
    return False


@jit
def without_odd(x):
    """Zeros for NaN and inf, in place: even a weight of 0 would let a NaN through."""
    flat = x.reshape(-1)
    for i in range(len(flat)):
        flat[i] = flat[i] if flat[i] - flat[i] == ZERO else ZERO


@jit
def add_odd(total, row, weight):
    """total += weight * what `without_odd` took out of `row`."""
    for c in range(len(row)):
        if row[c] - row[c] != ZERO:
            total[c] += weight * row[c]


@jit
def attention_heads(
    q, k, v, limits, mask, use_mask, scale, p, factor, threshold, low, high, odd, out, tops, sums
):
    """q (B, Q, H, d), k (B, K, H, d), v (B, K, H, e) -> out (B, Q, H, e), tops and sums (B, H, Q):
    the largest score of each query, and the sum of exp(score - largest)."""
    batch, queries, heads, d = q.shape
    keys, e = v.shape[1], v.shape[3]
    wide = min(FORWARD_QUERIES, up_to(queries, LANES))
    tall = min(FORWARD_KEYS, up_to(keys, 4))
    packed_k = np.zeros((up_to(keys, 4), up_to(d, 4)), np.float32)
    packed_v = np.zeros(((keys + tall - 1) // tall, up_to(e, 4), tall), np.float32)
    packed_q = np.zeros((1, up_to(d, 4), wide), np.float32)
    scores = np.empty((tall, wide), np.float32)
    mixed = np.empty((up_to(e, 4), wide), np.float32)
    top, higher, shift = np.empty((3, wide), np.float32)
    total = np.empty(wide)
    limit = np.empty(queries, np.int64)
    for b in range(batch):
        _, n = limits_of(limits, b, 0, keys, limit)
        for h in range(heads):
            pack(k, b, h, n, ONE, packed_k)
            packed_k[n : up_to(n, 4)] = ZERO
            pack_tiles(v, b, h, 0, n, ONE, packed_v)
            if odd:
                without_odd(packed_v)
            for q0 in range(0, queries, wide):
                count = min(wide, queries - q0)
                columns = up_to(count, LANES)
                least, most = limits_of(limits, b, q0, keys, limit[q0 : q0 + count])
                pack_tiles(q, b, h, q0, count, scale, packed_q)
                top[:], total[:], mixed[:] = MINUS_INF, 0.0, ZERO
                for k0 in range(0, most, tall):
                    height = min(tall, most - k0)
                    padded = up_to(height, 4)
                    scores[:padded] = ZERO
                    add_product(packed_k[k0 : k0 + padded], packed_q[0], scores, columns)
                    live = scores[:height]
                    if use_mask or k0 + height > least:
                        seen = limit[q0 : q0 + count]
                        hide_columns(live, mask, use_mask, b, h, q0, k0, seen)
                    higher[:] = top
                    for i in range(height):
                        row = live[i]
                        for j in range(columns):
                            higher[j] = row[j] if row[j] > higher[j] else higher[j]
                    for j in range(columns):
                        # Without a key so far there is no maximum, and nothing to be shifted.
                        shift[j] = higher[j] if higher[j] > MINUS_INF else ZERO
                        top[j] = exp(top[j] - shift[j])
                        total[j] *= top[j]
                    if k0 > 0:
                        for c in range(e):
                            row = mixed[c]
                            for j in range(columns):
                                row[j] *= top[j]
                    top[:] = higher
                    for i in range(height):
                        row = live[i]
                        for j in range(columns):
                            row[j] = exp(row[j] - shift[j])
                            total[j] += row[j]
                    if p > 0:
                        start = np.uint32(((b * heads + h) * queries + q0) * keys + k0)
                        drop_columns(live, columns, start, keys, factor, threshold, low, high)
                    scores[height:padded] = ZERO
                    add_product(packed_v[k0 // tall, :, :padded], scores, mixed, columns)
                    if odd:
                        for i in range(height):
                            for j in range(count):
                                query, key = q0 + j, k0 + i
                                if sees(mask, use_mask, b, h, query, key, limit[query]):
                                    add_odd(mixed[:e, j], v[b, key, h], scores[i, j])
                for j in range(count):
                    tops[b, h, q0 + j] = top[j] if top[j] > MINUS_INF else ZERO
                    sums[b, h, q0 + j] = total[j]
                    if total[j] != 0.0:
                        inverse = np.float32(1.0 / total[j])
                    elif sees_any(mask, use_mask, b, h, q0 + j, limit[q0 + j]):
                        inverse = NAN  # of nothing but -inf
                    else:
                        inverse = ZERO
                    for c in range(e):
                        out[b, q0 + j, h, c] = mixed[c, j] * inverse


@jit
def attention_backward_heads(
    grad, q, k, v, out, limits, mask, use_mask, scale, p, factor, threshold, low, high, odd, tops,
    sums, dq, dk, dv,
):  # fmt: skip
    """The gradients of q, k and v; everything (B, N, H, d) but tops and sums (B, H, Q)."""
    batch, queries, heads, d = q.shape
    keys, e = v.shape[1], v.shape[3]
    tall = min(BACKWARD_QUERIES, up_to(queries, 4))
    wide = min(BACKWARD_KEYS, up_to(keys, LANES))
    blocks, tiles = (queries + tall - 1) // tall, (keys + wide - 1) // wide
    d4, e4, d16 = up_to(d, 4), up_to(e, 4), up_to(d, LANES)
    # Each array twice, once for the products in which its rows are summed over, once for others.
    row_q = np.zeros((up_to(queries, 4), d4), np.float32)
    row_grad = np.zeros((up_to(queries, 4), e4), np.float32)
    row_k = np.zeros((up_to(keys, 4), d16), np.float32)
    column_q = np.zeros((blocks, d4, tall), np.float32)
    column_grad = np.zeros((blocks, e4, tall), np.float32)
    column_k = np.zeros((tiles, d4, wide), np.float32)
    column_v = np.zeros((tiles, e4, wide), np.float32)
    sum_k = np.empty((tiles, d4, wide), np.float32)
    sum_v = np.empty((tiles, e4, wide), np.float32)
    sum_q = np.empty((tall, d16), np.float32)
    weights = np.empty((tall, wide), np.float32)
    dscores = np.empty((tall, wide), np.float32)
    inner = np.zeros(queries, np.float32)
    kept = np.empty(wide, np.float32)
    parts = np.empty(PARTS)
    limit = np.empty(queries, np.int64)
    for b in range(batch):
        _, n = limits_of(limits, b, 0, keys, limit)
        dk[b, n:], dv[b, n:] = ZERO, ZERO
        for h in range(heads):
            pack(q, b, h, queries, scale, row_q)
            pack(grad, b, h, queries, ONE, row_grad)
            pack(k, b, h, n, ONE, row_k)
            row_k[n : up_to(n, 4)] = ZERO
            pack_tiles(q, b, h, 0, queries, scale, column_q)
            pack_tiles(grad, b, h, 0, queries, ONE, column_grad)
            pack_tiles(k, b, h, 0, n, ONE, column_k)
            pack_tiles(v, b, h, 0, n, ONE, column_v)
            if odd:
                without_odd(row_k)
                without_odd(column_q)
                without_odd(column_grad)
            sum_k[:], sum_v[:] = ZERO, ZERO
            for j in range(queries):
                total = np.float64(0)
                for c in range(e):
                    total += np.float64(row_grad[j, c]) * out[b, j, h, c]
                inner[j] = total
            for q0 in range(0, queries, tall):
                count = min(tall, queries - q0)
                rows = up_to(count, 4)
                seen = limit[q0 : q0 + count]
                least, most = limits_of(limits, b, q0, keys, seen)
                sum_q[:] = ZERO
                for k0 in range(0, most, wide):
                    tile = k0 // wide
                    length = min(wide, most - k0)
                    columns = up_to(length, LANES)
                    weights[:rows, :columns] = ZERO
                    dscores[:rows, :columns] = ZERO
                    add_product(row_q[q0 : q0 + rows], column_k[tile], weights, columns)
                    add_product(row_grad[q0 : q0 + rows], column_v[tile], dscores, columns)
                    if use_mask or k0 + length > least:
                        live = weights[:count, :length]
                        hide_rows(live, mask, use_mask, b, h, q0, k0, seen)
                    for j in range(count):
                        row, drow = weights[j], dscores[j]
                        shift, total = tops[b, h, q0 + j], sums[b, h, q0 + j]
                        inverse = np.float32(1.0 / total) if total != 0.0 else ZERO
                        for i in range(length):
                            row[i] = exp(row[i] - shift) * inverse
                        row[length:columns] = ZERO
                        if p > 0:
                            start = np.uint32(((b * heads + h) * queries + q0 + j) * keys + k0)
                            for i in range(columns):
                                number = np.uint32(start + np.uint32(i))
                                kept[i] = (
                                    factor if hash_of(number, low, high) >= threshold else ZERO
                                )
                                drow[i] *= kept[i]
                        if odd:
                            for i in range(length):
                                if not sees(mask, use_mask, b, h, q0 + j, k0 + i, seen[j]):
                                    row[i], drow[i] = ZERO, ZERO
                        # Over one tile the mean is at hand, and cancels to the last digit.
                        mean = inner[q0 + j]
                        if tiles == 1:
                            mean = np.float32(dot(row[:columns], drow[:columns], parts))
                        for i in range(columns):
                            drow[i] = row[i] * (drow[i] - mean)
                        if p > 0:
                            for i in range(columns):
                                row[i] *= kept[i]
                        if odd:
                            for i in range(length):
                                if not sees(mask, use_mask, b, h, q0 + j, k0 + i, seen[j]):
                                    drow[i] = ZERO
                    weights[count:rows], dscores[count:rows] = ZERO, ZERO
                    block = q0 // tall
                    add_product(column_grad[block, :, :rows], weights, sum_v[tile], columns)
                    add_product(column_q[block, :, :rows], dscores, sum_k[tile], columns)
                    height = up_to(length, 4)
                    add_product(dscores[:rows, :height], row_k[k0 : k0 + height], sum_q, d16)
                    if odd:
                        for j in range(count):
                            query = q0 + j
                            for i in range(length):
                                key = k0 + i
                                if sees(mask, use_mask, b, h, query, key, seen[j]):
                                    w, ds = weights[j, i], dscores[j, i]
                                    add_odd(sum_v[tile, :e, i], grad[b, query, h], w)
                                    add_odd(sum_k[tile, :d, i], q[b, query, h], ds * scale)
                                    add_odd(sum_q[j, :d], k[b, key, h], ds)
                for j in range(count):
                    for c in range(d):
                        dq[b, q0 + j, h, c] = sum_q[j, c] * scale
            for i in range(n):
                for c in range(d):
                    dk[b, i, h, c] = sum_k[i // wide, c, i % wide]
                for c in range(e):
                    dv[b, i, h, c] = sum_v[i // wide, c, i % wide]


def heads_inside(x: np.ndarray) -> np.ndarray:
    """(B, H, N, d) -> (B, N, H, d) as the loops take it, a copy only if it does not lie so."""
    return ready(x.swapaxes(1, 2))


def differs_by_query(limits: Any, mask: Any) -> bool:
    return mask is not None or (limits is not None and limits.shape[1] > 1)


def finite(*arrays: np.ndarray) -> bool:
    with np.errstate(all="ignore"):  # a sum is finite only if every element is
        return all(np.isfinite(float(array.sum())) for array in arrays)


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Any, mask: Any, scale: float, p: float,
    seed: int,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """The output, and for backward itself and each query's maximum and sum."""
    if q.dtype != np.float32 or p >= 1 or not (q.size and k.size and v.size):
        return reference.attention(q, k, v, limits, mask, scale, p, seed)
    batch, heads, queries, _ = q.shape
    out = np.empty((batch, queries, heads, v.shape[-1]), q.dtype)
    tops = np.empty((batch, heads, queries), q.dtype)
    sums = np.empty((batch, heads, queries))
    attention_heads(
        heads_inside(q), heads_inside(k), heads_inside(v), *hidden(limits, mask),
        q.dtype.type(scale), p, *dropping(p, seed, q.dtype),
        differs_by_query(limits, mask) and not finite(v), out, tops, sums,
    )  # fmt: skip
    return out.swapaxes(1, 2), (out, tops, sums)


def attention_backward(
    grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Any, mask: Any,
    scale: float, p: float, seed: int, saved: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    if not isinstance(saved, tuple):
        return reference.attention_backward(grad, q, k, v, limits, mask, scale, p, seed, saved)
    odd = differs_by_query(limits, mask) and not finite(grad, q, k, v)
    out, tops, sums = (ready(part) for part in saved)
    grad, q, k, v = (heads_inside(x) for x in (grad, q, k, v))
    dq, dk, dv = (np.empty(x.shape, x.dtype) for x in (q, k, v))
    attention_backward_heads(
        grad, q, k, v, out, *hidden(limits, mask), q.dtype.type(scale), p,
        *dropping(p, seed, q.dtype), odd, tops, sums, dq, dk, dv,
    )  # fmt: skip
    return dq.swapaxes(1, 2), dk.swapaxes(1, 2), dv.swapaxes(1, 2)
