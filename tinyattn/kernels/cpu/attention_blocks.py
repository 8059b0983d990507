"""One block of queries of a head: what `tiled_attention.py` computes for it, step by step.

The scores of a block are a matrix of keys by queries (K, block). The inner loops go over queries,
which do not depend on each other, and so become vector instructions.

The first training step waits until all this is compiled. A function that has one caller is
`inlined`, because Numba compiles each other function once more by itself.
"""

from typing import NamedTuple

import numpy as np

from .compiler import FAST_SUMS, inlined, inner
from .dropout import is_kept
from .row_functions import MINUS_INF, ZERO, exp

BLOCK = 64  # queries in a block at most
STEP = 8  # a block has a multiple of it, because a vector instruction computes 8 or 4 numbers


class Rows(NamedTuple):
    """Which rows belong to which sample, see `visibility.Samples`."""

    query_offsets: np.ndarray  # (B + 1,)
    key_offsets: np.ndarray  # (B + 1,)
    longest_queries: int
    longest_keys: int


class Visible(NamedTuple):
    """Which keys a query sees, and what is added to their scores."""

    # (3, B|1, Q|1): the first key that a query sees; the key after the last one; and the largest of
    # the latter up to this query, because a block needs the keys of all its queries
    ranges: np.ndarray
    mask: np.ndarray  # (B|1, H|1, Q|1, K|1): 0 hides a key
    bias: np.ndarray  # (B|1, H|1, Q|1, K|1)
    has_mask: bool
    has_bias: bool


class Head(NamedTuple):
    """One head of one sample."""

    b: int
    h: int
    group: int  # the head of keys and values
    query_start: int  # where the rows of its queries begin
    queries: int  # how many there are
    key_start: int
    keys: int  # its queries see only keys before this one
    width: int  # queries in a block


class Block(NamedTuple):
    """Some queries of a head, and the keys that one of them may see."""

    b: int
    h: int
    first: int  # the number of the first query
    row: int  # where the rows of these queries begin
    length: int  # how many there are; queries of zeros follow, up to the width of the head
    begin: int  # the first key
    end: int  # the key after the last one


@inlined
def head_of(number, heads, groups, rows, ranges):
    """Neighbouring numbers are of one sample, because two threads that write to its rows would wait
    for each other. The samples are the first, the last, the second, the last but one, and so on: of
    samples that are sorted by length each thread then has short and long ones."""
    batch = len(rows.query_offsets) - 1
    place, h = number // heads, number % heads
    b = batch - 1 - place // 2 if place % 2 else place // 2
    query_start, key_start = rows.query_offsets[b], rows.key_offsets[b]
    queries, keys = rows.query_offsets[b + 1] - query_start, rows.key_offsets[b + 1] - key_start
    keys = min(keys, ranges[2, b % ranges.shape[1], min(queries, ranges.shape[2]) - 1])
    width = (min(BLOCK, rows.longest_queries, max(keys, 1)) + STEP - 1) // STEP * STEP
    return Head(b, h, h * groups // heads, query_start, queries, key_start, keys, width)


@inlined
def block_of(head, first, ranges):
    """The block that begins with this query. Later queries never begin to see at an earlier key."""
    b, last = head.b % ranges.shape[1], ranges.shape[2] - 1
    length = min(head.width, head.queries - first)
    end = min(head.keys, ranges[2, b, min(first + length - 1, last)])
    begin = min(end, ranges[0, b, min(first, last)])
    return Block(head.b, head.h, first, head.query_start + first, length, begin, end)


@inner
def take(x, h, start, count, width, factor):
    """Rows of head h, times a factor: (width, d), where zeros follow the first `count`."""
    out = np.empty((width, x.shape[2]), np.float32)
    for i in range(width):
        row, times = start + min(i, count - 1), factor if i < count else ZERO
        for c in range(x.shape[2]):
            out[i, c] = x[row, h, c] * times
    return out


@inner
def add_rows(block, x, h, start, count, factor):
    """Add the first `count` rows of a block, times a factor, to rows of head h of x."""
    for i in range(count):
        for c in range(block.shape[1]):
            x[start + i, h, c] += block[i, c] * factor


@inlined
def product(x, y):
    """x y, by BLAS. Unlike `x @ y` it brings Numba nothing else to compile."""
    out = np.empty((x.shape[0], y.shape[1]), np.float32)
    np.dot(x, y, out)
    return out


@inlined
def finish_scores(scores, block, visible, maximum):
    """The scores (keys, queries) plus their bias, and -inf where invisible. `maximum` becomes where
    the search for the largest begins: at 0 for a query that sees no key, because -inf less -inf is
    NaN."""
    b, h, first_key, (keys, queries) = block.b, block.h, block.begin, scores.shape
    mask, bias, place = visible.mask, visible.bias, b % visible.ranges.shape[1]
    starts, limits = visible.ranges[0, place], visible.ranges[1, place]
    if len(limits) > 1:
        begins = starts[block.first : block.first + block.length]
        ends = limits[block.first : block.first + block.length]
        for i in range(keys):
            for j in range(len(ends)):
                is_visible = begins[j] <= first_key + i < ends[j]
                scores[i, j] = scores[i, j] if is_visible else MINUS_INF
    for j in range(queries):
        query = block.first + min(j, block.length - 1)
        start = max(starts[min(query, len(starts) - 1)] - first_key, 0)
        limit = min(limits[min(query, len(limits) - 1)] - first_key, keys)
        seen = limit - start
        if visible.has_bias:
            of_b, of_h, row = b % len(bias), h % bias.shape[1], min(query, bias.shape[2] - 1)
            for i in range(keys):
                scores[i, j] += bias[of_b, of_h, row, min(first_key + i, bias.shape[3] - 1)]
        if visible.has_mask:
            of_b, of_h, row = b % len(mask), h % mask.shape[1], min(query, mask.shape[2] - 1)
            seen = 0
            for i in range(start, limit):
                is_visible = mask[of_b, of_h, row, min(first_key + i, mask.shape[3] - 1)] != 0
                scores[i, j] = scores[i, j] if is_visible else MINUS_INF
                seen += is_visible
        maximum[j] = MINUS_INF if seen > 0 else ZERO


@inlined
def softmax_columns(scores, maximum, inverse, block, saved, is_backward):
    """exp(scores - maximum) / sum in place, for each query. Forward saves its maximum, and 1 / sum,
    or 0 where nothing is visible; with them, backward has the same weights to the last bit."""
    keys, queries = scores.shape
    for i in range(0 if is_backward else keys):
        for j in range(queries):
            maximum[j] = scores[i, j] if scores[i, j] > maximum[j] else maximum[j]
    for j in range(queries if is_backward else 0):
        maximum[j] = saved[0, block.row + j, block.h] if j < block.length else ZERO
        inverse[j] = saved[1, block.row + j, block.h] if j < block.length else ZERO
    for i in range(keys):
        for j in range(queries):
            scores[i, j] = exp(scores[i, j] - maximum[j])
    if not is_backward:
        total = np.empty(queries, np.float64)
        for j in range(queries):
            total[j] = 0.0
        for i in range(keys):
            for j in range(queries):
                total[j] += scores[i, j]
        for j in range(queries):
            inverse[j] = 0.0 if total[j] == 0.0 else 1.0 / total[j]
        for j in range(block.length):
            saved[0, block.row + j, block.h] = maximum[j]
            saved[1, block.row + j, block.h] = inverse[j]
    for i in range(keys):
        for j in range(queries):
            scores[i, j] *= inverse[j]


@inlined
def drop_weights(weights, kept, lost, block, heads, rows, drop):
    """The weights times `kept` where dropout keeps them, by their numbers in (B, H, Q, K), and
    times `lost` where it does not."""
    first = (block.b * heads + block.h) * rows.longest_queries + block.first
    for i in range(weights.shape[0]):
        for j in range(weights.shape[1]):
            number = (first + j) * rows.longest_keys + i + block.begin
            weights[i, j] *= kept if is_kept(number, drop) else lost


@inlined
def dscores_of(weights, dweights, drop):
    """weights * (dweights - sum(weights * dweights)), in the memory of dweights. Weights below 0
    are those that dropout drops. They become 0 at the end, and all others are times its factor."""
    keys, queries = weights.shape
    total = np.empty(queries, np.float64)
    for j in range(queries):
        total[j] = 0.0
    for i in range(keys):
        if drop.threshold > 0:
            for j in range(queries):
                dweights[i, j] *= ZERO if weights[i, j] < ZERO else drop.factor
        for j in range(queries):
            total[j] += np.float64(weights[i, j]) * dweights[i, j]
    for i in range(keys):
        for j in range(queries):
            dweights[i, j] = abs(weights[i, j]) * (dweights[i, j] - np.float32(total[j]))
        if drop.threshold > 0:
            for j in range(queries):
                weights[i, j] *= ZERO if weights[i, j] < ZERO else drop.factor
    return dweights


@inlined
def add_to_dbias(dscores, dbias, block):
    """Add dscores, summed over queries or keys for which the bias has one number."""
    for j in range(block.length):
        row = min(block.first + j, len(dbias) - 1)
        for i in range(len(dscores)):
            dbias[row, min(block.begin + i, dbias.shape[1] - 1)] += dscores[i, j]


@inner(fastmath=FAST_SUMS)
def product_of(x, y):
    total = ZERO
    for c in range(len(x)):
        total += x[c] * y[c]
    return total
