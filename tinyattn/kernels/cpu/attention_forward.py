"""The loop of attention, forward; see `attention.py`."""

from __future__ import annotations

import numpy as np

from .arrays import array_at, arrays_in, clear, doubles, rows_at, size_of, viewed_as
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


@inner
def drop_columns(weights, queries, start, keys, drop):
    """Dropout of weights (keys, queries); `start` is the number of the first, of (B, H, Q, K)."""
    factor, threshold, low, high = drop
    if threshold > 0:
        for i in range(len(weights)):
            row, first = weights[i], np.uint32(start + i)
            for j in range(queries):
                number = np.uint32(first + np.uint32(j) * np.uint32(keys))
                row[j] = row[j] * factor if hash_of(number, low, high) >= threshold else ZERO


@inner
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
def shapes_forward(longest, d, e):
    """The shapes of what `attention_heads` works with."""
    wide, tall = min(QUERIES, up_to(longest[0], LANES)), min(KEYS, up_to(longest[1], 4))
    keys, d4, e4 = up_to(longest[1], 4), up_to(d, 4), up_to(e, 4)
    return (
        (keys, d4), (keys, e4), (1, d4, wide),  # packed_k, packed_v, packed_q
        (tall, wide), (e4, wide),  # scores, mixed
        (wide,), (wide,), (wide,),  # top, higher, shift
    )  # fmt: skip


@inner
def room_forward(longest, d, e):
    """How many float64 the room of `attention_heads` takes: all these, and behind them the sum of
    each query's powers and its limit. It has to begin as zeros, of which those that fill up the
    packed arrays stay."""
    shapes = shapes_forward(longest, d, e)
    wide = shapes[3][1]  # of scores
    return doubles(size_of(shapes)) + wide + longest[0]


@inner
def attention_heads(
    q, k, v, before, starts, longest, limits, mask, scale, drop, odd, out, tops, sums, room, board,
    count,
):  # fmt: skip
    """q (Q, H, d), k (K, H, d), v (K, H, e) -> out (Q, H, e), tops and sums (H, Q): the largest
    score of each query, and the sum of exp(score - largest).

    before: how many heads stand before the first one in q, in k and in v, which may be one array.
    starts: of the queries, and of the keys; longest: the most of them in a sample. drop: what
    `dropping` returns. odd: True if NaN or inf may stand where some queries look and others may
    not, else None. For what is None, odd or mask, no code is compiled. room: what
    `room_forward` says. Heads are counted through all samples, `count` together.
    """
    before_q, before_k, before_v = before
    heads, d, e = out.shape[1], q.shape[2], v.shape[2]
    most_queries, most_keys = longest
    shapes = shapes_forward(longest, d, e)
    packed_k, packed_v, packed_q, scores, mixed, top, higher, shift = arrays_in(
        viewed_as(room, np.float32), shapes
    )
    tall, wide = scores.shape
    behind = doubles(size_of(shapes))
    total = array_at(room, behind, (wide,))
    limits_of_head = array_at(viewed_as(room, np.int64), behind + wide, (most_queries,))
    for head in claimed(board, count):
        b, h, start, queries, key_start, keys = place_of(head, heads, starts)
        limit = limits_of_head[:queries]
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
            top[:] = MINUS_INF
            clear(total, 0, wide)
            clear(mixed, 0, len(mixed))
            for k0 in range(0, most, tall):
                height = min(tall, most - k0)
                padded = up_to(height, 4)
                clear(scores, 0, padded)
                add_product(rows_at(packed_k, k0, padded), packed_q[0], scores, columns)
                live = scores[:height]
                if mask is not None or k0 + height > least:
                    hide_columns(live, mask, b, h, q0, k0, limit_here)
                online_softmax(live, columns, top, total, mixed, higher, shift)
                first = (head * most_queries + q0) * most_keys + k0
                drop_columns(live, columns, first, most_keys, drop)
                clear(scores, height, padded)
                add_product(rows_at(packed_v, k0, padded).T, scores, mixed, columns)
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
    room = np.zeros(room_forward(longest, q.shape[2], v.shape[2]))
    attention_heads(
        q, k, v, before, starts, longest, limits, mask, scale, drop, odd, out, tops, sums, room,
        board, count,
    )  # fmt: skip
    leave(finished, part)
