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
keys). Arrays come in as (N, H, d), the samples one after another: the order in which projections
(B, N, H * d) lie in memory anyway, and packed sequences too. `starts` (B + 1,) say where each
sample begins and the last one ends. Packed copies of one head are padded with zeros to multiples of
four and of LANES, which is what `add_product` needs; zeros add nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...threads import in_parts
from .. import reference
from .compiler import hidden, jit, ready
from .dropout import dropping, hash_of
from .products import add_product, up_to
from .rows import LANES, MINUS_INF, ONE, ZERO, dot, exp

NAN = np.float32(np.nan)
# A tile of scores and what it is made from stay in the second-level cache.
FORWARD_QUERIES, FORWARD_KEYS = 256, 64
BACKWARD_QUERIES, BACKWARD_KEYS = 32, 256


@jit
def pack(x, h, first, count, factor, out):
    """out (count, d) = factor * one head of x, from row `first` on."""
    for i in range(count):
        for c in range(x.shape[2]):
            out[i, c] = x[first + i, h, c] * factor


@jit
def pack_tiles(x, h, first, count, factor, out):
    """out (tiles, d, width) = the same, transposed within each tile; zeros behind the last."""
    width = out.shape[2]
    for start in range(0, count, width):
        tile, length = out[start // width], min(width, count - start)
        for j in range(length):
            for c in range(x.shape[2]):
                tile[c, j] = x[first + start + j, h, c] * factor
        tile[:, length:] = ZERO


@jit
def unpack_tiles(tiles, h, first, count, out):
    """The way back."""
    width = tiles.shape[2]
    for start in range(0, count, width):
        tile = tiles[start // width]
        for j in range(min(width, count - start)):
            for c in range(out.shape[2]):
                out[first + start + j, h, c] = tile[c, j]


@jit
def limits_of(limits, b, keys, out):
    """How many keys each query of a sample sees; returns the most."""
    row = limits[b % limits.shape[0]]
    most = 0
    for j in range(len(out)):
        out[j] = min(row[j if len(row) > 1 else 0], keys)
        most = max(most, out[j])
    return most


@jit
def longest(starts):
    most = 0
    for b in range(len(starts) - 1):
        most = max(most, starts[b + 1] - starts[b])
    return most


@jit
def least_and_most(limit):
    least = most = limit[0]
    for j in range(1, len(limit)):
        least, most = min(least, limit[j]), max(most, limit[j])
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


@jit(inline="always")
def drop_columns(weights, queries, start, keys, drop):
    """Dropout of weights (keys, queries); `start` is the number of the first, of (B, H, Q, K)."""
    p, factor, threshold, low, high = drop
    if p > 0:
        for i in range(len(weights)):
            row, first = weights[i], np.uint32(start + i)
            for j in range(queries):
                number = np.uint32(first + np.uint32(j) * np.uint32(keys))
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
def blank_hidden(x, mask, use_mask, b, h, first_query, first_key, limit, keys):
    """Zeros where a query may not see a key, in x (queries, keys), whatever stands there."""
    for j in range(len(limit)):
        for i in range(keys):
            if not sees(mask, use_mask, b, h, first_query + j, first_key + i, limit[j]):
                x[j, i] = ZERO


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


@jit(inline="always")
def online_softmax(scores, columns, top, total, mixed, higher, shift):
    """exp(score - top) in place, where `top` becomes the largest score of each column so far.

    total (columns,) and mixed (e, columns), which belong to the old `top`, are scaled to the new
    one, and total grows by the new powers. `higher` and `shift` are scratch.
    """
    for j in range(columns):
        higher[j] = top[j]
    for i in range(len(scores)):
        row = scores[i]
        for j in range(columns):
            higher[j] = row[j] if row[j] > higher[j] else higher[j]
    for j in range(columns):
        # Without a key so far there is no maximum, and nothing to be shifted.
        shift[j] = higher[j] if higher[j] > MINUS_INF else ZERO
        top[j] = exp(top[j] - shift[j])
        total[j] *= top[j]
    for c in range(len(mixed)):
        row = mixed[c]
        for j in range(columns):
            row[j] *= top[j]
    for j in range(columns):
        top[j] = higher[j]
    for i in range(len(scores)):
        row = scores[i]
        for j in range(columns):
            row[j] = exp(row[j] - shift[j])
            total[j] += row[j]


@jit
def attention_heads(
    q, k, v, before, starts, hiding, scale, drop, odd, out, tops, sums, first_head, last_head
):
    """q (Q, H, d), k (K, H, d), v (K, H, e) -> out (Q, H, e), tops and sums (H, Q): the largest
    score of each query, and the sum of exp(score - largest).

    before: how many heads stand before the first one in q, in k and in v, which may be one array.
    starts: of the queries, and of the keys. hiding: limits, mask, whether there is a mask. drop: p
    and what `dropping` returns. odd: True if NaN or inf may stand where some queries look and
    others may not, else None, and then the code for it is not compiled. Heads are counted through
    all samples, and worked on from `first_head` to before `last_head`.
    """
    query_starts, key_starts = starts
    limits, mask, use_mask = hiding
    before_q, before_k, before_v = before
    heads, d, e = out.shape[1], q.shape[2], v.shape[2]
    most_queries, most_keys = longest(query_starts), longest(key_starts)
    wide = min(FORWARD_QUERIES, up_to(most_queries, LANES))
    tall = min(FORWARD_KEYS, up_to(most_keys, 4))
    packed_k = np.zeros((up_to(most_keys, 4), up_to(d, 4)), np.float32)
    packed_v = np.zeros(((most_keys + tall - 1) // tall, up_to(e, 4), tall), np.float32)
    packed_q = np.zeros((1, up_to(d, 4), wide), np.float32)
    scores = np.empty((tall, wide), np.float32)
    mixed = np.empty((up_to(e, 4), wide), np.float32)
    top, higher, shift = np.empty((3, wide), np.float32)
    total = np.empty(wide)
    room = np.empty(most_queries, np.int64)
    for head in range(first_head, last_head):
        b, h = head // heads, head % heads
        start, queries = query_starts[b], query_starts[b + 1] - query_starts[b]
        key_start, keys = key_starts[b], key_starts[b + 1] - key_starts[b]
        limit = room[:queries]
        n = limits_of(limits, b, keys, limit)
        pack(k, before_k + h, key_start, n, ONE, packed_k)
        packed_k[n : up_to(n, 4)] = ZERO
        pack_tiles(v, before_v + h, key_start, n, ONE, packed_v)
        if odd is not None:
            without_odd(packed_v)
        for q0 in range(0, queries, wide):
            count = min(wide, queries - q0)
            columns = up_to(count, LANES)
            limit_here = limit[q0 : q0 + count]
            least, most = least_and_most(limit_here)
            pack_tiles(q, before_q + h, start + q0, count, scale, packed_q)
            top[:], total[:], mixed[:] = MINUS_INF, 0.0, ZERO
            for k0 in range(0, most, tall):
                height = min(tall, most - k0)
                padded = up_to(height, 4)
                scores[:padded] = ZERO
                add_product(packed_k[k0 : k0 + padded], packed_q[0], scores, columns)
                live = scores[:height]
                if use_mask or k0 + height > least:
                    hide_columns(live, mask, use_mask, b, h, q0, k0, limit_here)
                online_softmax(live, columns, top, total, mixed, higher, shift)
                first = (head * most_queries + q0) * most_keys + k0
                drop_columns(live, columns, first, most_keys, drop)
                scores[height:padded] = ZERO
                add_product(packed_v[k0 // tall, :, :padded], scores, mixed, columns)
                if odd is not None:
                    for i in range(height):
                        for j in range(count):
                            if sees(mask, use_mask, b, h, q0 + j, k0 + i, limit[q0 + j]):
                                value = v[key_start + k0 + i, before_v + h]
                                add_odd(mixed[:e, j], value, scores[i, j])
            for j in range(count):
                row = start + q0 + j
                tops[h, row] = top[j] if top[j] > MINUS_INF else ZERO
                sums[h, row] = total[j]
                if total[j] != 0.0:
                    inverse = np.float32(1.0 / total[j])
                elif sees_any(mask, use_mask, b, h, q0 + j, limit[q0 + j]):
                    inverse = NAN  # of nothing but -inf
                else:
                    inverse = ZERO
                for c in range(e):
                    out[row, h, c] = mixed[c, j] * inverse


@jit(inline="always")
def softmax_backward_row(row, drow, length, top, total, whole, mean, drop, start, kept, parts):
    """From scores and gradients of weights (columns,) to weights and gradients of scores, in place.

    mean: of the gradients under the weights, sum(grad * out). Where the row is there as a `whole`
    it is computed from the row itself, and then cancels to the last digit.
    start: the number of the row's first element, of (B, H, Q, K). kept, parts: scratch.
    """
    columns = len(row)
    p, factor, threshold, low, high = drop
    inverse = np.float32(1.0 / total) if total != 0.0 else ZERO
    for i in range(columns):
        row[i] = exp(row[i] - top) * inverse
    row[length:] = ZERO
    if p > 0:
        for i in range(columns):
            number = np.uint32(start + i)
            kept[i] = factor if hash_of(number, low, high) >= threshold else ZERO
            drow[i] *= kept[i]
    if whole:
        mean = np.float32(dot(row, drow, parts))
    for i in range(columns):
        drow[i] = row[i] * (drow[i] - mean)
    if p > 0:
        for i in range(columns):
            row[i] *= kept[i]


@jit
def attention_backward_heads(
    grad, q, k, v, before, out, starts, hiding, scale, drop, odd, tops, sums, dq, dk, dv,
    first_head, last_head,
):  # fmt: skip
    """The gradients of q, k and v; all (N, H, d) but tops and sums, the rest as forward."""
    query_starts, key_starts = starts
    limits, mask, use_mask = hiding
    before_q, before_k, before_v = before
    heads, d, e = out.shape[1], q.shape[2], v.shape[2]
    most_queries, most_keys = longest(query_starts), longest(key_starts)
    tall = min(BACKWARD_QUERIES, up_to(most_queries, 4))
    wide = min(BACKWARD_KEYS, up_to(most_keys, LANES))
    blocks, tiles = (most_queries + tall - 1) // tall, (most_keys + wide - 1) // wide
    d4, e4, d16 = up_to(d, 4), up_to(e, 4), up_to(d, LANES)
    # Most arrays twice: once for the products that sum over their rows, once for the others.
    row_q = np.zeros((up_to(most_queries, 4), d4), np.float32)
    row_grad = np.zeros((up_to(most_queries, 4), e4), np.float32)
    row_k = np.zeros((up_to(most_keys, 4), d16), np.float32)
    column_q = np.zeros((blocks, d4, tall), np.float32)
    column_grad = np.zeros((blocks, e4, tall), np.float32)
    column_k = np.zeros((tiles, d4, wide), np.float32)
    column_v = np.zeros((tiles, e4, wide), np.float32)
    sum_q = np.empty((tall, d16), np.float32)
    sum_k = np.empty((tiles, d4, wide), np.float32)
    sum_v = np.empty((tiles, e4, wide), np.float32)
    weights = np.empty((tall, wide), np.float32)
    dscores = np.empty((tall, wide), np.float32)
    kept, parts = np.empty(wide, np.float32), np.empty(LANES)
    means = np.zeros(most_queries, np.float32)
    room = np.empty(most_queries, np.int64)
    for head in range(first_head, last_head):
        b, h = head // heads, head % heads
        start, queries = query_starts[b], query_starts[b + 1] - query_starts[b]
        key_start, keys = key_starts[b], key_starts[b + 1] - key_starts[b]
        limit = room[:queries]
        n = limits_of(limits, b, keys, limit)
        head_q, head_k, head_v = before_q + h, before_k + h, before_v + h
        pack(q, head_q, start, queries, scale, row_q)
        pack(grad, h, start, queries, ONE, row_grad)
        pack(k, head_k, key_start, n, ONE, row_k)
        row_k[n : up_to(n, 4)] = ZERO
        pack_tiles(q, head_q, start, queries, scale, column_q)
        pack_tiles(grad, h, start, queries, ONE, column_grad)
        pack_tiles(k, head_k, key_start, n, ONE, column_k)
        pack_tiles(v, head_v, key_start, n, ONE, column_v)
        if odd is not None:
            without_odd(row_k)
            without_odd(column_q)
            without_odd(column_grad)
        sum_k[:], sum_v[:] = ZERO, ZERO
        if tiles > 1:
            for j in range(queries):
                total = np.float64(0)
                for c in range(e):
                    total += np.float64(row_grad[j, c]) * out[start + j, h, c]
                means[j] = total
        for q0 in range(0, queries, tall):
            block, count = q0 // tall, min(tall, queries - q0)
            rows = up_to(count, 4)
            limit_here = limit[q0 : q0 + count]
            least, most = least_and_most(limit_here)
            sum_q[:] = ZERO
            for k0 in range(0, most, wide):
                tile, length = k0 // wide, min(wide, most - k0)
                columns, height = up_to(length, LANES), up_to(length, 4)
                weights[:rows, :columns], dscores[:rows, :columns] = ZERO, ZERO
                add_product(row_q[q0 : q0 + rows], column_k[tile], weights, columns)
                add_product(row_grad[q0 : q0 + rows], column_v[tile], dscores, columns)
                live = weights[:count, :length]
                if use_mask or k0 + length > least:
                    hide_rows(live, mask, use_mask, b, h, q0, k0, limit_here)
                if odd is not None:
                    blank_hidden(dscores, mask, use_mask, b, h, q0, k0, limit_here, length)
                for j in range(count):
                    query = q0 + j
                    softmax_backward_row(
                        weights[j, :columns], dscores[j, :columns], length,
                        tops[h, start + query], sums[h, start + query], tiles == 1, means[query],
                        drop, (head * most_queries + query) * most_keys + k0, kept, parts,
                    )  # fmt: skip
                if odd is not None:
                    blank_hidden(weights, mask, use_mask, b, h, q0, k0, limit_here, length)
                    blank_hidden(dscores, mask, use_mask, b, h, q0, k0, limit_here, length)
                weights[count:rows], dscores[count:rows] = ZERO, ZERO
                add_product(column_grad[block, :, :rows], weights, sum_v[tile], columns)
                add_product(column_q[block, :, :rows], dscores, sum_k[tile], columns)
                add_product(dscores[:rows, :height], row_k[k0 : k0 + height], sum_q, d16)
                if odd is not None:
                    for j in range(count):
                        row = start + q0 + j
                        for i in range(length):
                            if sees(mask, use_mask, b, h, q0 + j, k0 + i, limit[q0 + j]):
                                ds = dscores[j, i]
                                add_odd(sum_v[tile, :e, i], grad[row, h], weights[j, i])
                                add_odd(sum_k[tile, :d, i], q[row, head_q], ds * scale)
                                add_odd(sum_q[j, :d], k[key_start + k0 + i, head_k], ds)
            for j in range(count):
                for c in range(d):
                    dq[start + q0 + j, head_q, c] = sum_q[j, c] * scale
        unpack_tiles(sum_k, head_k, key_start, n, dk)
        unpack_tiles(sum_v, head_v, key_start, n, dv)
        dk[key_start + n : key_start + keys, head_k] = ZERO
        dv[key_start + n : key_start + keys, head_v] = ZERO


def rows_of_heads(x: np.ndarray) -> np.ndarray:
    """(B, H, N, d) -> (B * N, H, d) as the loops take it, a copy only if it does not lie so."""
    x = ready(x.swapaxes(1, 2))
    return x.reshape(-1, *x.shape[2:])


def starts_of(lengths: Any) -> np.ndarray:
    """Where samples of these lengths begin that lie one after another."""
    return ready(np.concatenate([[0], np.cumsum(lengths)]))


def odd_among(limits: Any, mask: Any, *arrays: np.ndarray) -> bool | None:
    """What the loops take as `odd`."""
    if mask is None and (limits is None or limits.shape[1] == 1):
        return None  # all queries of a sample see the same keys
    with np.errstate(all="ignore"):  # a sum is finite only if every element is
        finite = all(np.isfinite(float(array.sum())) for array in arrays)
    return None if finite else True


def forward(
    arrays: tuple[np.ndarray, ...], before: tuple[int, int, int], heads: int, starts: Any,
    limits: Any, mask: Any, scale: float, p: float, seed: int, odd: bool | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """out (Q, H, e), tops and sums from (q, k, v): `attention_heads`, on as many threads as pay."""
    q, _, v = arrays
    out = np.empty((len(q), heads, v.shape[2]), q.dtype)
    tops, sums = np.empty((heads, len(q)), q.dtype), np.empty((heads, len(q)))
    arguments = (
        *arrays, before, starts, hidden(limits, mask), q.dtype.type(scale),
        (p, *dropping(p, seed, q.dtype)), odd, out, tops, sums,
    )  # fmt: skip
    samples = len(starts[0]) - 1
    work = out.size * int(starts[1][-1]) / samples
    in_parts(samples * heads, work, partial(attention_heads, *arguments))
    return out, tops, sums


def backward(
    arrays: tuple[np.ndarray, ...], gradients: tuple[np.ndarray, ...],
    before: tuple[int, int, int], starts: Any, limits: Any, mask: Any, scale: float, p: float,
    seed: int, odd: bool | None, saved: tuple[np.ndarray, ...],
) -> None:  # fmt: skip
    """From (grad, q, k, v) the gradients of q, k and v, into the arrays that are given."""
    out, tops, sums = (ready(part) for part in saved)
    arguments = (
        *arrays, before, out, starts, hidden(limits, mask), out.dtype.type(scale),
        (p, *dropping(p, seed, out.dtype)), odd, tops, sums, *gradients,
    )  # fmt: skip
    samples = len(starts[0]) - 1
    work = 2 * out.size * int(starts[1][-1]) / samples
    in_parts(samples * out.shape[1], work, partial(attention_backward_heads, *arguments))


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Any, mask: Any, scale: float, p: float,
    seed: int,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """The output, and for backward itself and each query's maximum and sum."""
    if q.dtype != np.float32 or p >= 1 or not (q.size and k.size and v.size):
        return reference.attention(q, k, v, limits, mask, scale, p, seed)
    batch, heads, queries, _ = q.shape
    arrays = (rows_of_heads(q), rows_of_heads(k), rows_of_heads(v))
    starts = (starts_of([queries] * batch), starts_of([k.shape[2]] * batch))
    odd = odd_among(limits, mask, v)
    saved = forward(arrays, (0, 0, 0), heads, starts, limits, mask, scale, p, seed, odd)
    return saved[0].reshape(batch, queries, heads, -1).swapaxes(1, 2), saved


def attention_backward(
    grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Any, mask: Any,
    scale: float, p: float, seed: int, saved: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    if not isinstance(saved, tuple):
        return reference.attention_backward(grad, q, k, v, limits, mask, scale, p, seed, saved)
    batch = len(q)
    arrays = tuple(rows_of_heads(x) for x in (grad, q, k, v))
    starts = (starts_of([q.shape[2]] * batch), starts_of([k.shape[2]] * batch))
    gradients = tuple(np.empty(x.shape, x.dtype) for x in arrays[1:])
    odd = odd_among(limits, mask, grad, q, k, v)
    backward(arrays, gradients, (0, 0, 0), starts, limits, mask, scale, p, seed, odd, saved)
    dq, dk, dv = (x.reshape(batch, -1, *x.shape[1:]).swapaxes(1, 2) for x in gradients)
    return dq, dk, dv


def self_attention(
    qkv: np.ndarray, heads: int, lengths: Any, limits: Any, mask: Any, scale: float, p: float,
    seed: int,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """The same with queries, keys and values side by side, (B, N, 3 D) or packed (N, 3 D)."""
    if qkv.dtype != np.float32 or p >= 1 or not qkv.size:
        return reference.self_attention(qkv, heads, lengths, limits, mask, scale, p, seed)
    x, starts = heads_of_all(qkv, heads), starts_of_all(qkv, lengths)
    odd = odd_among(limits, mask, qkv)
    before = (0, heads, 2 * heads)
    saved = forward((x, x, x), before, heads, starts, limits, mask, scale, p, seed, odd)
    return saved[0].reshape(*qkv.shape[:-1], qkv.shape[-1] // 3), saved


def self_attention_backward(
    grad: np.ndarray, qkv: np.ndarray, heads: int, lengths: Any, limits: Any, mask: Any,
    scale: float, p: float, seed: int, saved: Any,
) -> np.ndarray:  # fmt: skip
    if not isinstance(saved, tuple):
        settings = (heads, lengths, limits, mask, scale, p, seed)
        return reference.self_attention_backward(grad, qkv, *settings, saved)
    x, starts = heads_of_all(qkv, heads), starts_of_all(qkv, lengths)
    dx = np.empty(x.shape, x.dtype)
    arrays = (ready(grad).reshape(-1, heads, x.shape[2]), x, x, x)
    odd = odd_among(limits, mask, grad, qkv)
    before = (0, heads, 2 * heads)
    backward(arrays, (dx, dx, dx), before, starts, limits, mask, scale, p, seed, odd, saved)
    return dx.reshape(qkv.shape)


def heads_of_all(qkv: np.ndarray, heads: int) -> np.ndarray:
    """(..., 3 D) -> (rows, 3 H, d)."""
    return ready(qkv).reshape(-1, 3 * heads, qkv.shape[-1] // (3 * heads))


def starts_of_all(qkv: np.ndarray, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where queries and keys of each sample begin: packed, if there are lengths."""
    starts = starts_of([qkv.shape[1]] * len(qkv) if lengths is None else lengths)
    return starts, starts
