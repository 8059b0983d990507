"""Functions of each element, and rows of tables: `cuda/elementwise.cu`, `cuda/embedding.cu`."""

from __future__ import annotations

import numpy as np

from ...backend import Array, namespace
from .. import reference
from .launch import SCALARS, WARP, by_elements, dropping, function, in_c_order


def erf(x: Array) -> Array:
    xp = namespace(x)
    out = xp.empty(x.shape, x.dtype)
    if x.size:
        kernel = function(xp, "elementwise", "erf_of", SCALARS[x.dtype])
        kernel(*by_elements(x.size), (in_c_order(x), out, x.size))
    return out


def relu_backward(grad: Array, out: Array) -> Array:
    xp = namespace(out)
    result = xp.empty(out.shape, out.dtype)
    if out.size:
        kernel = function(xp, "elementwise", "relu_backward", SCALARS[out.dtype])
        kernel(*by_elements(out.size), (in_c_order(grad), in_c_order(out), result, out.size))
    return result


def dropout(x: Array, p: float, seed: int) -> Array:
    if p >= 1 or not x.size:
        return reference.dropout(x, p, seed)
    xp = namespace(x)
    out = xp.empty(x.shape, x.dtype)
    kernel = function(xp, "elementwise", "dropout", SCALARS[x.dtype])
    kernel(*by_elements(x.size), (in_c_order(x), out, x.size, *dropping(p, seed)))
    return out


def take_rows(table: Array, ids: Array, faults: Array) -> Array:
    """table[ids], with a note in `faults` (2,) of an id that is no row."""
    xp = namespace(table)
    num_rows, width = table.shape
    out = xp.empty((*ids.shape, width), table.dtype)
    if out.size:
        kernel = function(xp, "embedding", "take_rows", SCALARS[table.dtype])
        ids = in_c_order(ids.astype(np.int64, copy=False))
        kernel(*by_elements(out.size), (in_c_order(table), ids, out, faults, ids.size, width,
               num_rows))  # fmt: skip
    return out


def scatter_rows(grad: Array, ids: Array, num_rows: int, skip: int | None) -> Array:
    xp = namespace(grad)
    width = grad.shape[-1]
    table = xp.zeros((num_rows, width), grad.dtype)
    if grad.size:
        kernel = function(xp, "embedding", "scatter_rows", SCALARS[grad.dtype])
        ids = in_c_order(ids.astype(np.int64, copy=False))
        threads = min(256, -(-width // WARP) * WARP)
        kernel((ids.size,), (threads,), (in_c_order(grad), ids, table, ids.size, width, num_rows,
               -1 if skip is None else skip))  # fmt: skip
    return table
