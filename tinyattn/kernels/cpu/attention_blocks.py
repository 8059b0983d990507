"""One block of queries of a head: what `tiled_attention.py` computes for it, step by step.

The scores of a block are a matrix of keys by queries (K, block). The inner loops go over queries,
which do not depend on each other, and so become vector instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .compiler import FAST_SUMS, inlined, inner
from .dropout import is_kept
from .row_functions import MINUS_INF, ZERO, exp

BLOCK = 64  # queries in a block at most
STEP = 8  # a block has a multiple of it, because a vector instruction computes 8 or 4 numbers


class Head(NamedTuple):
    """One head of one sample."""

    h: int
    group: int  # the head of keys and values
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
    has_mask: bool
    has_bias: bool


class Block(NamedTuple):
    """Some queries of a head, and the keys that one of them may see."""

    first: int  # the number of the first query
    row: int  # where the rows of these queries begin
    length: int  # how many there are; queries of zeros follow, up to the width of the head
    begin: int  # the first key
    end: int  # the key after the last one


@inlined
def block_of(head, first):
    count = min(head.width, head.queries - first)
    end = visible_end(head.limits, first, first + count, head.keys)
    begin = visible_start(head.starts, first, first + count, end)
    return Block(first, head.query_start + first, count, begin, end)


@inlined
def masked_scores(keys, queries, block, head, counts):
    """keys queries^T + bias, (K, block), of the keys of the block; -inf where invisible.

    queries (block, d) are multiplied by the scale already. See `apply_visibility` for counts.
    """
    scores = keys[block.begin : block.end] @ queries.T
    if head.has_bias:
        add_to_scores(scores, head.bias, block.first, block.length, block.begin)
    apply_visibility(scores, block.first, block.begin, head, counts)
    return scores


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
def apply_visibility(scores, first, begin, head, counts):
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
    if head.has_mask:
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
def keep_mask(shape, block, head, rows, drop):
    """Which weights dropout keeps, by their numbers in (B, H, Q, K)."""
    first = head.number * rows.longest_queries + block.first
    kept = np.empty(shape, np.bool_)
    for i in range(shape[0]):
        for j in range(shape[1]):
            kept[i, j] = is_kept((first + j) * rows.longest_keys + i + block.begin, drop)
    return kept


@inner
def drop_block(block, kept, factor):
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            block[i, j] = block[i, j] * factor if kept[i, j] else ZERO


@inner
def dscores_and_dropout(weights, dweights, block, head, rows, drop):
    """The gradient of the scores, from that of what dropout leaves of the weights. The weights
    become what it leaves."""
    if drop.threshold == 0:
        return dscores_of(weights, dweights)
    kept = keep_mask(weights.shape, block, head, rows, drop)
    drop_block(dweights, kept, drop.factor)
    dscores = dscores_of(weights, dweights)
    drop_block(weights, kept, drop.factor)
    return dscores


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


@inner(fastmath=FAST_SUMS)
def product_of(x, y):
    total = ZERO
    for c in range(len(x)):
        total += x[c] * y[c]
    return total
