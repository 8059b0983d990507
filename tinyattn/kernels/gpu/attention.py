"""Scaled dot-product attention in tiles; launches `attention.cu`.

Two cases do not fit the tiles: heads of more than 1,400 numbers (450 in float64), and dropout with
p = 1. For them the functions at the end compute the array of all weights, as `reference.py` does.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...backend import Array, namespace
from ..matmul import matrix_product
from ..packing import Samples, limits_in_samples, packed, padded
from ..reference import Drop
from ..sums import in_order
from .elementwise import dropout
from .launch import SCALARS, drop_arguments, function, real, visibility_arguments
from .softmax import masked_softmax, masked_softmax_backward
from .weighted_sum import weighted_sum

# From compute capability 7.5 on a block has 48 KiB of shared memory, and may ask for 64 KiB. 1 KiB
# of it is for the variables that the kernels themselves declare.
WITHOUT_ASKING = 47 * 1024
SHARED_MEMORY = 63 * 1024


class TileShape(NamedTuple):
    """How the tiled attention divides its work."""

    rows: int  # of each warp
    columns: int  # of a tile that are in shared memory at a time
    nbytes: int  # of shared memory for a block, which backward needs


@cache
def tile_shape(width: int, value_width: int, itemsize: int) -> TileShape | None:
    """The largest tiles that fit into shared memory; None if even one row is too wide."""
    for columns in (max(width, value_width), 64):
        for rows in (8, 4, 2, 1):
            tiles = min(width, columns) + 1 + min(value_width, columns) + 1
            numbers = 4 * rows * (width + value_width) + 32 * tiles + 2 * 4 * rows * 32
            if numbers * itemsize <= SHARED_MEMORY:
                return TileShape(rows, columns, numbers * itemsize)
    return None


@cache
def tiled(xp: Any, kernel: str, width: int, value_width: int, dtype: np.dtype) -> tuple[Any, Any]:
    """A kernel of `attention.cu` for heads of these widths, and the shape of its tiles."""
    shape = tile_shape(width, value_width, real(dtype).itemsize)
    assert shape is not None
    sizes = {"HEAD": width, "VALUE": value_width, "ROWS": shape.rows, "SLICE": shape.columns}
    defines = tuple(f"-D{name}={number}" for name, number in sizes.items())
    compiled = function(xp, "attention", kernel, SCALARS[dtype], defines)
    if shape.nbytes > WITHOUT_ASKING:
        compiled.max_dynamic_shared_size_bytes = shape.nbytes
    return compiled, shape


def fits_tiles(q: Array, k: Array, v: Array, drop: Drop) -> bool:
    if drop.p >= 1 or not (q.size and k.size and v.size):
        return False
    return tile_shape(q.shape[-1], v.shape[-1], real(q.dtype).itemsize) is not None


def strided(array: Array) -> tuple[Any, int, int, int]:
    """(B, H, N, width), followed by its strides in numbers, all but the last. It is copied only if
    the numbers of a row are not neighbours, or a stride is negative."""
    neighbours = array.shape[-1] == 1 or array.strides[-1] == array.itemsize
    if not neighbours or min(array.strides) < 0:
        array = array.copy(order="C")
    sample, head, row = (stride // array.itemsize for stride in array.strides[:3])
    return array, sample, head, row


def attention(
    q: Array, k: Array, v: Array, samples: tuple[Samples, Samples], limits: Any, mask: Any,
    scale: float, drop: Drop,
) -> tuple[Array, Array]:  # fmt: skip
    """The output; and for backward the maximum and 1 / sum of each row of scores, (2, B * H * Q).

    Samples of one length are views (B, H, N, d) of the rows. Others are padded, because a block of
    the kernel works on one sample.
    """
    if not fits_tiles(q, k, v, drop):
        return attention_with_weights(q, k, v, samples, limits, mask, scale, drop)
    limits = limits_in_samples(samples, limits, q)
    q, k, v = padded(q, samples[0]), padded(k, samples[1]), padded(v, samples[1])  # (B, H, N, d)
    xp = namespace(q)
    batch, heads, queries, width = q.shape
    pairs, keys = batch * heads, k.shape[2]
    out = xp.empty((batch, queries, heads, v.shape[-1]), q.dtype)
    saved = xp.empty((2, pairs * queries), real(q.dtype))
    kernel, shape = tiled(xp, "attention", width, v.shape[-1], q.dtype)
    arguments = (*strided(q), *strided(k), *strided(v), out, saved, pairs, heads, queries, keys,
                 float(scale), *visibility_arguments(limits, mask),
                 *drop_arguments(*drop))  # fmt: skip
    grid = (pairs * -(-queries // (4 * shape.rows)),)
    kernel(grid, (128,), arguments, shared_mem=shape.nbytes)
    return packed(out.swapaxes(1, 2), samples[0]), saved


def attention_backward(
    grad: Array, q: Array, k: Array, v: Array, samples: tuple[Samples, Samples], limits: Any,
    mask: Any, scale: float, drop: Drop, saved: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Gradients of q, k and v; the weights are computed again, from what forward saved."""
    if not fits_tiles(q, k, v, drop):
        return gradients_from_weights(grad, q, k, v, samples, limits, mask, scale, drop, saved)
    limits = limits_in_samples(samples, limits, q)
    of_queries, of_keys = samples
    grad, q = padded(grad, of_queries), padded(q, of_queries)  # (B, H, Q, d)
    k, v = padded(k, of_keys), padded(v, of_keys)  # (B, H, K, d)
    xp = namespace(q)
    batch, heads, queries, width = q.shape
    pairs, keys = batch * heads, k.shape[2]
    row_sums = xp.empty((2, pairs * queries), real(q.dtype))  # from the first launch to the second
    dq, dk, dv = (xp.empty((batch, x.shape[2], heads, x.shape[3]), x.dtype) for x in (q, k, v))
    given = (*strided(grad), *strided(q), *strided(k), *strided(v), saved, row_sums)
    settings = (pairs, heads, queries, keys, float(scale), *visibility_arguments(limits, mask),
                *drop_arguments(*drop))  # fmt: skip
    for name, length, gradients in (("q", queries, (dq,)), ("kv", keys, (dk, dv))):
        kernel, shape = tiled(xp, f"attention_backward_{name}", width, v.shape[-1], q.dtype)
        grid = (pairs * -(-length // (4 * shape.rows)),)
        kernel(grid, (128,), (*given, *gradients, *settings), shared_mem=shape.nbytes)
    dq, dk, dv = (x.swapaxes(1, 2) for x in (dq, dk, dv))
    return packed(dq, of_queries), packed(dk, of_keys), packed(dv, of_keys)


def attention_with_weights(
    q: Array, k: Array, v: Array, samples: tuple[Samples, Samples], limits: Any, mask: Any,
    scale: float, drop: Drop,
) -> tuple[Array, Array]:  # fmt: skip
    """`attention` of the reference, from the kernels of this folder: they do not wait for the
    device, and a captured step drops other weights in each replay."""
    if q.dtype == np.float16:  # rounding the scores as well would cost digits
        q, k, v = (x.astype(np.float32) for x in (q, k, v))
        out, weights = attention_with_weights(q, k, v, samples, limits, mask, scale, drop)
        return out.astype(np.float16), weights
    limits = limits_in_samples(samples, limits, q)
    q = in_order(padded(q, samples[0]))  # (B, H, Q, d)
    k, v = (in_order(padded(x, samples[1])) for x in (k, v))  # (B, H, K, d)
    scores = matrix_product(q * q.dtype.type(scale), k.swapaxes(-1, -2))  # (B, H, Q, K)
    weights = masked_softmax(scores, limits, mask)
    dropped = dropout(weights, *drop) if drop.p else weights
    return packed(weighted_sum(dropped, v, limits, mask), samples[0]), weights


def gradients_from_weights(
    grad: Array, q: Array, k: Array, v: Array, samples: tuple[Samples, Samples], limits: Any,
    mask: Any, scale: float, drop: Drop, weights: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """`attention_backward` of the reference, from the kernels of this folder."""
    if q.dtype == np.float16:
        grad, q, k, v = (x.astype(np.float32) for x in (grad, q, k, v))
    limits = limits_in_samples(samples, limits, q)
    of_queries, of_keys = samples
    grad, q = (in_order(padded(x, of_queries)) for x in (grad, q))  # (B, H, Q, d)
    k, v = (in_order(padded(x, of_keys)) for x in (k, v))  # (B, H, K, d)
    dweights = matrix_product(grad, v.swapaxes(-1, -2))  # (B, H, Q, K)
    if drop.p:
        dweights = dropout(dweights, *drop)
    dscores = masked_softmax_backward(dweights, weights, limits, mask) * q.dtype.type(scale)
    dropped = dropout(weights, *drop) if drop.p else weights
    dq = weighted_sum(dscores, k, limits, mask)
    dk = weighted_sum(dscores.swapaxes(-1, -2), q, limits, mask, transposed=True)
    dv = weighted_sum(dropped.swapaxes(-1, -2), grad, limits, mask, transposed=True)
    return packed(dq, of_queries), packed(dk, of_keys), packed(dv, of_keys)
