"""What the tiles of attention are made of: packed copies of one head, and what a query may see."""

from __future__ import annotations

from .arrays import array_at, clear
from .compiler import inner
from .products import up_to
from .rows import MINUS_INF, ZERO


@inner
def place_of(head, heads, starts):
    """Sample, head in it, first row and number of its queries, first row and number of its keys."""
    query_starts, key_starts = starts
    b, h = head // heads, head % heads
    start, key_start = query_starts[b], key_starts[b]
    return b, h, start, query_starts[b + 1] - start, key_start, key_starts[b + 1] - key_start


@inner
def pack(x, h, first, count, factor, out):
    """out (count, d) = factor * one head of x, from row `first` on; zeros up to a multiple of 4."""
    for i in range(count):
        for c in range(x.shape[2]):
            out[i, c] = x[first + i, h, c] * factor
    clear(out, count, up_to(count, 4))


@inner
def pack_tiles(x, h, first, count, factor, out):
    """out (tiles, d, width) = the same, transposed within each tile; anything behind the last."""
    width = out.shape[2]
    for start in range(0, count, width):
        tile, length = out[start // width], min(width, count - start)
        for j in range(length):
            for c in range(x.shape[2]):
                tile[c, j] = x[first + start + j, h, c] * factor


@inner
def unpack_tiles(tiles, h, first, count, out):
    """The way back."""
    width = tiles.shape[2]
    for start in range(0, count, width):
        tile = tiles[start // width]
        for j in range(min(width, count - start)):
            for c in range(out.shape[2]):
                out[first + start + j, h, c] = tile[c, j]


@inner
def clear_head(x, h, first, last):
    """x[first:last, h] = 0."""
    for i in range(first, last):
        clear(array_at(x, (i * x.shape[1] + h) * x.shape[2], (x.shape[2],)), 0, x.shape[2])


@inner
def limits_of(limits, b, keys, out):
    """How many keys each query of a sample sees; returns the most."""
    row = limits[b % limits.shape[0]]
    most = 0
    for j in range(len(out)):
        out[j] = min(row[j if len(row) > 1 else 0], keys)
        most = max(most, out[j])
    return most


@inner
def least_and_most(limit):
    least = most = limit[0]
    for j in range(1, len(limit)):
        least, most = min(least, limit[j]), max(most, limit[j])
    return least, most


@inner
def hide_columns(scores, mask, b, h, first_query, first_key, limit):
    """-inf where a query may not see a key; scores (keys, queries)."""
    queries = len(limit)
    for i in range(len(scores)):
        row, key = scores[i], first_key + i
        for j in range(queries):
            row[j] = row[j] if key < limit[j] else MINUS_INF
        if mask is not None:
            seen = mask[b % mask.shape[0], h % mask.shape[1], :, key % mask.shape[3]]
            if len(seen) == 1:
                if seen[0] == 0:
                    row[:] = MINUS_INF
            else:
                for j in range(queries):
                    row[j] = row[j] if seen[first_query + j] != 0 else MINUS_INF


@inner
def hide_rows(scores, mask, b, h, first_query, first_key, limit):
    """-inf where a query may not see a key; scores (queries, keys)."""
    keys = scores.shape[1]
    for j in range(len(limit)):
        row = scores[j]
        row[max(0, limit[j] - first_key) :] = MINUS_INF
        if mask is not None:
            query = (first_query + j) % mask.shape[2]
            seen = mask[b % mask.shape[0], h % mask.shape[1], query]
            step = 1 if len(seen) > 1 else 0
            for i in range(keys):
                row[i] = row[i] if seen[(first_key + i) * step] != 0 else MINUS_INF


@inner
def sees(mask, b, h, query, key, limit):
    if key >= limit:
        return False
    if mask is None:
        return True
    seen = mask[b % mask.shape[0], h % mask.shape[1], query % mask.shape[2]]
    return seen[key % len(seen)] != 0


@inner
def sees_any(mask, b, h, query, limit):
    if mask is None:
        return limit > 0
    for key in range(limit):  # noqa: SIM110 (compiled, any() would take a list)
        if sees(mask, b, h, query, key, limit):
            return True
    return False


@inner
def blank_hidden(x, mask, b, h, first_query, first_key, limit, keys):
    """Zeros where a query may not see a key, in x (queries, keys), whatever stands there."""
    for j in range(len(limit)):
        for i in range(keys):
            if not sees(mask, b, h, first_query + j, first_key + i, limit[j]):
                x[j, i] = ZERO


@inner
def without_odd(x):
    """Zeros for NaN and inf, in place: even a weight of 0 would let a NaN through."""
    flat = x.reshape(-1)
    for i in range(len(flat)):
        flat[i] = flat[i] if flat[i] - flat[i] == ZERO else ZERO


@inner
def add_odd(total, row, weight):
    """total += weight * what `without_odd` took out of `row`."""
    for c in range(len(row)):
        if row[c] - row[c] != ZERO:
            total[c] += weight * row[c]
