"""Sums over the rows of a matrix; launches `sums.cu`."""

from __future__ import annotations

from ...base.backend import Array, namespace
from .. import reference
from ..sums import in_c_order, sum_dtype
from .launch import SCALARS, WARP, function


def blocks_for(rows: int) -> int:
    """How many blocks share the rows of one column. With one block, the sum is a single launch."""
    return min(-(-rows // 1024), 64)


def end_sums(parts: Array, out: Array, second: Array | None = None) -> None:
    """Add the parts of several blocks: parts (1 or 2, blocks, D) -> out (D,), second (D,)."""
    number, columns = parts.shape[-2:]
    if number > 1:
        kernel = function(namespace(out), "sums", "end_sums", SCALARS[out.dtype])
        arrays = parts, out, 0 if second is None else second
        kernel((-(-len(parts) * columns // 128),), (128,), (*arrays, number, columns))


def sum_rows(x: Array) -> Array:
    if not x.size:
        return reference.sum_rows(x)
    xp = namespace(x)
    rows, columns = x.shape
    parts = xp.empty((1, blocks_for(rows), columns), sum_dtype(x.dtype))
    out = xp.empty(columns, x.dtype)
    kernel = function(xp, "sums", "begin_sums", SCALARS[x.dtype])
    grid = (-(-columns // WARP), parts.shape[1])
    kernel(grid, (WARP, WARP), (in_c_order(x), parts, out, rows, columns))
    end_sums(parts, out)
    return out
