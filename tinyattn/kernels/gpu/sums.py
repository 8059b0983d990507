"""Sums over the rows of a matrix; launches `sums.cu`."""

from typing import Any

from ...base.backend import Array, in_c_order, namespace
from ..sums import sum_dtype
from .launch import by_elements, run

COLUMNS, ROWS = 8, 128  # of a block, as in sums.cu
ONE_LAUNCH = 4096  # With more rows, several blocks share a column, and a second launch adds.
MOST_PARTS = 64


def column_sums(x: Array, other: Any = None, stats: Any = None) -> tuple[Any, Any]:
    """The sums of x (N, D) over its rows, and those of x times the normalized `other`, if given."""
    xp = namespace(x)
    rows, columns = x.shape
    blocks = min(-(-rows // ONE_LAUNCH), MOST_PARTS)
    count = 1 if other is None else 2
    parts = xp.empty((count, blocks, columns), sum_dtype(x.dtype)) if blocks > 1 else 0
    out = [xp.empty(columns, x.dtype) for _ in range(count)]
    second = out[1] if count == 2 else 0
    inputs = (in_c_order(x), 0, 0) if other is None else (in_c_order(x), other, stats)
    threads = (-(-columns // COLUMNS), blocks), (COLUMNS, ROWS)
    run("sums", "column_sums", x, threads, *inputs, parts, out[0], second, rows, columns)
    if blocks > 1:
        arguments = parts, out[0], second, blocks, columns
        run("sums", "end_sums", x, by_elements(count * columns), *arguments)
    return out[0], second


def sum_rows(x: Array) -> Array:
    return column_sums(x)[0] if x.size else NotImplemented
