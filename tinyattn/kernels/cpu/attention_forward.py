"""The loop of attention, forward; see `attention.py`."""

from __future__ import annotations

import numpy as np

from .attention_tiles import (
    add_odd,
    hide_columns,
    least_and_most,
    limits_of,
    pack,
    pack_tiles,
    place_of,
    sees,
    sees_any,
    without_odd,
)
from .compiler import inner, jit
from .dropout import hash_of
from .products import add_product, up_to
from .rows import LANES, MINUS_INF, ONE, ZERO, exp
from .sharing import arrive, claimed, leave

NAN = np.float32(np.nan)
# A tile of scores and what it is made from stay in the second-level cache.
QUERIES, KEYS = 256, 64


@inner(inline="always")
def drop_columns(weights, queries, start, keys, drop):
    """Dropout of weights (keys, queries); `start` is the number of the first, of (B, H, Q, K)."""
    factor, threshold, low, high = drop
    if threshold > 0:
        for i in range(len(weights)):
            row, first = weights[i], np.uint32(start + i)
            for j in range(queries):
                number = np.uint32(first + np.uint32(j) * np.uint32(keys))
                row[j] = row[j] * factor if hash_of(number, low, high) >= threshold else ZERO


@inner(inline="always")
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


@inner
def attention_heads(
    q, k, v, before, starts, longest, limits, mask, scale, drop, odd, out, tops, sums, board,
    count,
):  # fmt: skip
    """q (Q, H, d), k (K, H, d), v (K, H, e) -> out (Q, H, e), tops and sums (H, Q): the largest
    score of each query, and the sum of exp(score - largest).

    before: how many heads stand before the first one in q, in k and in v, which may be one array.
    starts: of the queries, and of the keys; longest: the most of them in a sample. drop: what
    `dropping` returns. odd: True if NaN or inf may stand where some queries look and others may
    not, else None. For what is None, odd or mask, no code is compiled. Heads are counted through
    all samples, `count` together.
    """
    before_q, before_k, before_v = before
    heads, d, e = out.shape[1], q.shape[2], v.shape[2]
    most_queries, most_keys = longest
    wide = min(QUERIES, up_to(most_queries, LANES))
    tall = min(KEYS, up_to(most_keys, 4))
    packed_k = np.zeros((up_to(most_keys, 4), up_to(d, 4)), np.float32)
    packed_v = np.zeros((up_to(most_keys, 4), up_to(e, 4)), np.float32)
    packed_q = np.zeros((1, up_to(d, 4), wide), np.float32)
    scores = np.zeros((tall, wide), np.float32)
    mixed = np.zeros((up_to(e, 4), wide), np.float32)
    top, higher, shift = np.zeros((3, wide), np.float32)
    total = np.empty(wide)
    room = np.empty(most_queries, np.int64)
    for head in claimed(board, count):
        b, h, start, queries, key_start, keys = place_of(head, heads, starts)
        limit = room[:queries]
        n = limits_of(limits, b, keys, limit)
        pack(k, before_k + h, key_start, n, ONE, packed_k)
        pack(v, before_v + h, key_start, n, ONE, packed_v)
        if odd is not None:
            without_odd(packed_v)
        for q0 in range(0, queries, wide):
            number = min(wide, queries - q0)
            columns = up_to(number, LANES)
            limit_here = limit[q0 : q0 + number]
            least, most = least_and_most(limit_here)
            pack_tiles(q, before_q + h, start + q0, number, scale, packed_q)
            top[:], total[:], mixed[:] = MINUS_INF, 0.0, ZERO
            for k0 in range(0, most, tall):
                height = min(tall, most - k0)
                padded = up_to(height, 4)
                scores[:padded] = ZERO
                add_product(packed_k[k0 : k0 + padded, :], packed_q[0], scores, columns)
                live = scores[:height]
                if mask is not None or k0 + height > least:
                    hide_columns(live, mask, b, h, q0, k0, limit_here)
                online_softmax(live, columns, top, total, mixed, higher, shift)
                first = (head * most_queries + q0) * most_keys + k0
                drop_columns(live, columns, first, most_keys, drop)
                scores[height:padded] = ZERO
                add_product(packed_v[k0 : k0 + padded, :].T, scores, mixed, columns)
                if odd is not None:
                    for i in range(height):
                        for j in range(number):
                            if sees(mask, b, h, q0 + j, k0 + i, limit[q0 + j]):
                                value = v[key_start + k0 + i, before_v + h]
                                add_odd(mixed[:e, j], value, scores[i, j])
            for j in range(number):
                row = start + q0 + j
                tops[h, row] = top[j] if top[j] > MINUS_INF else ZERO
                sums[h, row] = total[j]
                if total[j] != 0.0:
                    inverse = np.float32(1.0 / total[j])
                elif sees_any(mask, b, h, q0 + j, limit[q0 + j]):
                    inverse = sums[h, row] = NAN  # of nothing but -inf
                else:
                    inverse = ZERO
                for c in range(e):
                    out[row, h, c] = mixed[c, j] * inverse


@jit
def attention_loop(
    q, k, v, before, starts, longest, limits, mask, scale, drop, odd, out, tops, sums, board, count,
    bell, finished, part,
):  # fmt: skip
    arrive(bell, part)
    attention_heads(
        q, k, v, before, starts, longest, limits, mask, scale, drop, odd, out, tops, sums, board,
        count,
    )  # fmt: skip
    leave(finished, part)
