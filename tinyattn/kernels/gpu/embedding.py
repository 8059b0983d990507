"""Rows of a table by their numbers, and their gradient; launches `embedding.cu`."""

from __future__ import annotations

import numpy as np

from ...base.backend import Array, namespace
from ..sums import in_c_order
from .launch import SCALARS, by_elements, function

CHUNK = 256  # positions, as in embedding.cu


def take_rows(table: Array, ids: Array, slot: Array) -> Array:
    """table[ids]: table (V, D), ids (...) -> (..., D). `slot`: see `range_checks.slot_for`."""
    xp = namespace(table)
    num_rows, width = table.shape
    out = xp.empty((*ids.shape, width), table.dtype)
    if out.size:
        kernel = function(xp, "embedding", "take_rows", SCALARS[table.dtype])
        ids = in_c_order(ids.astype(np.int64, copy=False))
        arrays = in_c_order(table), ids, out, slot
        kernel(*by_elements(out.size), (*arrays, ids.size, width, num_rows))
    return out


def scatter_rows(grad: Array, ids: Array, num_rows: int, skip: int | None) -> Array:
    xp = namespace(grad)
    width = grad.shape[-1]
    table = xp.zeros((num_rows, width), grad.dtype)
    if grad.size:
        ids = in_c_order(ids.astype(np.int64, copy=False))
        words = -(-ids.size // (64 * CHUNK))
        masks = xp.zeros((num_rows, words), np.int64)
        kernel = function(xp, "embedding", "mark_chunks", SCALARS[grad.dtype])
        kernel(*by_elements(ids.size), (ids, masks, ids.size, num_rows, words))
        kernel = function(xp, "embedding", "scatter_rows", SCALARS[grad.dtype])
        sizes = ids.size, width, num_rows, words, -1 if skip is None else skip
        kernel((ids.size,), (CHUNK,), (in_c_order(grad), ids, masks, table, *sizes))
    return table
