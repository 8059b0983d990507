"""The loop of attention, backward; see `attention.py`."""

from __future__ import annotations

import numpy as np

from .arrays import array_at, arrays_in, clear, doubles, rows_at, size_of, viewed_as
from .attention_tiles import (
    add_odd,
    blank_hidden,
    clear_head,
    hide_rows,
    least_and_most,
    limits_of,
    pack,
    pack_tiles,
    place_of,
    sees,
    unpack_tiles,
    without_odd,
)
from .compiler import inner, jit
from .dropout import hash_of
from .products import add_product, up_to
from .rows import LANES, ONE, ZERO, dot_in_any_order, exp
from .sharing import arrive, claimed, leave

# A tile of scores and what it is made from stay in the second-level cache.
QUERIES, KEYS = 32, 256


@inner
def softmax_backward_row(row, drow, length, top, total, whole, mean, drop, start, kept):
    """From scores and gradients of weights (columns,) to weights and gradients of scores, in place.

    mean: of the gradients under the weights, sum(grad * out). Where the row is there as a `whole`
    it is computed from the row itself, and then cancels to the last digit.
    start: the number of the row's first element, of (B, H, Q, K). kept: scratch.
    """
    columns = len(row)
    factor, threshold, low, high = drop
    inverse = np.float32(1.0 / total) if total != 0.0 else ZERO
    for i in range(columns):
        row[i] = exp(row[i] - top) * inverse
    clear(row, length, columns)  # here are keys that only other queries may see
    clear(drow, length, columns)
    if threshold > 0:
        for i in range(columns):
            number = np.uint32(start + i)
            kept[i] = factor if hash_of(number, low, high) >= threshold else ZERO
            drow[i] *= kept[i]
    if whole:
        mean = np.float32(dot_in_any_order(row, drow))
    for i in range(length):
        drow[i] = row[i] * (drow[i] - mean)
    if threshold > 0:
        for i in range(columns):
            row[i] *= kept[i]


@inner
def shapes_backward(longest, d, e, odd):
    """The shapes of what `attention_backward_heads` works with."""
    tall, wide = min(QUERIES, up_to(longest[0], 4)), min(KEYS, up_to(longest[1], LANES))
    tiles = (longest[1] + wide - 1) // wide
    queries, keys, d4, e4, d16 = (
        up_to(longest[0], 4), up_to(longest[1], 4), up_to(d, 4), up_to(e, 4), up_to(d, LANES)
    )  # fmt: skip
    clean = queries if odd is not None else 0
    return (
        # Most arrays twice: once for the products that sum over their rows, once for the others.
        (queries, d4), (queries, e4), (keys, d16),  # row_q, row_grad, row_k
        (tiles, d4, wide), (tiles, e4, wide),  # column_k, column_v
        (clean, d4), (clean, e4),  # clean_q, clean_grad
        (tall, d16), (tiles, d4, wide), (tiles, e4, wide),  # sum_q, sum_k, sum_v
        (tall, wide), (tall, wide),  # weights, dscores
        (wide,), (queries,),  # kept, means
    )  # fmt: skip


@inner
def room_backward(longest, d, e, odd):
    """How many float64 the room takes, which has to begin as zeros as forward: all these, and
    behind them each query's limit."""
    return doubles(size_of(shapes_backward(longest, d, e, odd))) + longest[0]


@inner
def attention_backward_heads(
    grad, q, k, v, before, out, starts, longest, limits, mask, scale, drop, odd, tops, sums, dq, dk,
    dv, room, board, count,
):  # fmt: skip
    """The gradients of q, k and v; all (N, H, d) but tops and sums, the rest as forward."""
    before_q, before_k, before_v = before
    heads, d, e = out.shape[1], q.shape[2], v.shape[2]
    most_queries, most_keys = longest
    shapes = shapes_backward(longest, d, e, odd)
    (
        row_q, row_grad, row_k, column_k, column_v, clean_q, clean_grad, sum_q, sum_k, sum_v,
        weights, dscores, kept, means,
    ) = arrays_in(viewed_as(room, np.float32), shapes)  # fmt: skip
    limits_of_head = array_at(viewed_as(room, np.int64), doubles(size_of(shapes)), (most_queries,))
    tiles, _, wide = sum_k.shape
    tall, d16 = sum_q.shape
    if odd is None:
        clean_q, clean_grad = row_q, row_grad
    for head in claimed(board, count):
        b, h, start, queries, key_start, keys = place_of(head, heads, starts)
        limit = limits_of_head[:queries]
        n = limits_of(limits, b, keys, limit)
        head_q, head_k, head_v = before_q + h, before_k + h, before_v + h
        pack(q, head_q, start, queries, scale, row_q)
        pack(grad, h, start, queries, ONE, row_grad)
        pack(k, head_k, key_start, n, ONE, row_k)
        pack_tiles(k, head_k, key_start, n, ONE, column_k)
        pack_tiles(v, head_v, key_start, n, ONE, column_v)
        if odd is not None:
            pack(q, head_q, start, queries, scale, clean_q)
            pack(grad, h, start, queries, ONE, clean_grad)
            without_odd(row_k)
            without_odd(clean_q)
            without_odd(clean_grad)
        clear(sum_k, 0, tiles)
        clear(sum_v, 0, tiles)
        if tiles > 1:
            for j in range(queries):
                total = np.float64(0)
                for c in range(e):
                    total += np.float64(row_grad[j, c]) * out[start + j, h, c]
                means[j] = total
        for q0 in range(0, queries, tall):
            number = min(tall, queries - q0)
            rows = up_to(number, 4)
            limit_here = limit[q0 : q0 + number]
            least, most = least_and_most(limit_here)
            clear(sum_q, 0, tall)
            for k0 in range(0, most, wide):
                tile, length = k0 // wide, min(wide, most - k0)
                columns, height = up_to(length, LANES), up_to(length, 4)
                for of_values in range(2):  # a loop halves what is compiled
                    left, right, product = row_q, column_k, weights
                    if of_values:
                        left, right, product = row_grad, column_v, dscores
                    clear(product, 0, rows)
                    add_product(rows_at(left, q0, rows), right[tile], product, columns)
                live = weights[:number, :length]
                if mask is not None or k0 + length > least:
                    hide_rows(live, mask, b, h, q0, k0, limit_here)
                if odd is not None:
                    blank_hidden(dscores, mask, b, h, q0, k0, limit_here, length)
                for j in range(number):
                    query = q0 + j
                    weight_row = array_at(weights, j * wide, (columns,))
                    dscore_row = array_at(dscores, j * wide, (columns,))
                    softmax_backward_row(
                        weight_row, dscore_row, length, tops[h, start + query],
                        sums[h, start + query], tiles == 1, means[query], drop,
                        (head * most_queries + query) * most_keys + k0, kept,
                    )  # fmt: skip
                if odd is not None:
                    blank_hidden(weights, mask, b, h, q0, k0, limit_here, length)
                    blank_hidden(dscores, mask, b, h, q0, k0, limit_here, length)
                clear(weights, number, rows)
                clear(dscores, number, rows)
                for gradient in range(3):  # of keys, of values, of queries
                    left, right = rows_at(clean_q, q0, rows).T, dscores
                    product, run = sum_k[tile], columns
                    if gradient == 1:
                        left, right = rows_at(clean_grad, q0, rows).T, weights
                        product = sum_v[tile]
                    elif gradient == 2:
                        left = dscores[:rows, :height]
                        right = array_at(row_k, k0 * d16, (height, d16))
                        product, run = sum_q, d16
                    add_product(left, right, product, run)
                if odd is not None:
                    for j in range(number):
                        row = start + q0 + j
                        for i in range(length):
                            if sees(mask, b, h, q0 + j, k0 + i, limit[q0 + j]):
                                ds = dscores[j, i]
                                add_odd(sum_v[tile, :e, i], grad[row, h], weights[j, i])
                                add_odd(sum_k[tile, :d, i], q[row, head_q], ds * scale)
                                add_odd(sum_q[j, :d], k[key_start + k0 + i, head_k], ds)
            for j in range(number):
                for c in range(d):
                    dq[start + q0 + j, head_q, c] = sum_q[j, c] * scale
        unpack_tiles(sum_k, head_k, key_start, n, dk)
        unpack_tiles(sum_v, head_v, key_start, n, dv)
        clear_head(dk, head_k, key_start + n, key_start + keys)
        clear_head(dv, head_v, key_start + n, key_start + keys)


@jit
def attention_backward_loop(
    grad, q, k, v, before, out, starts, longest, limits, mask, scale, drop, odd, tops, sums, dq, dk,
    dv, board, count, bell, finished, part,
):  # fmt: skip
    arrive(bell, part)
    room = np.zeros(room_backward(longest, q.shape[2], v.shape[2], odd))
    attention_backward_heads(
        grad, q, k, v, before, out, starts, longest, limits, mask, scale, drop, odd, tops, sums, dq,
        dk, dv, room, board, count,
    )  # fmt: skip
    leave(finished, part)
