"""Scaled dot-product attention in tiles; launches `attention.cu`.

Three cases do not fit the tiles: heads of more than 1,400 numbers (450 in float64), dropout with
p = 1, and a bias. For them the functions at the end compute the array of all weights, as
`reference.py` does. A window becomes a mask, and shared heads of keys are repeated.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...backend import Array, namespace
from ..matmul import matrix_product
from ..packing import limits_in_samples, mask_with_starts, packed, padded, repeat_heads, sum_heads
from ..reference import Drop, Settings
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
    q: Array, k: Array, v: Array, settings: Settings, bias: Any = None
) -> tuple[Array, Array]:
    """The output; and for backward the maximum and 1 / sum of each row of scores, (2, B * H * Q).

    Samples of one length are views (B, H, N, d) of the rows. Others are padded, because a block of
    the kernel works on one sample.
    """
    samples, limits, mask, scale, drop, starts = settings
    if bias is not None or not fits_tiles(q, k, v, drop):
        return attention_with_weights(q, k, v, settings, bias)
    limits = limits_in_samples(samples, limits, q)
    mask = mask_with_starts(mask, starts, samples[1].longest)
    q, k, v = padded(q, samples[0]), padded(k, samples[1]), padded(v, samples[1])  # (B, H, N, d)
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
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
    grad: Array,
    q: Array,
    k: Array,
    v: Array,
    settings: Settings,
    saved: Array,
    bias: Any = None,
) -> tuple[Array, ...]:
    """Gradients of q, k, v, and of a bias; weights are computed again, from what forward saved."""
    samples, limits, mask, scale, drop, starts = settings
    if bias is not None or not fits_tiles(q, k, v, drop):
        grads = gradients_from_weights(grad, q, k, v, settings, saved)
        return grads[:3] if bias is None else grads
    limits = limits_in_samples(samples, limits, q)
    of_queries, of_keys = samples
    mask = mask_with_starts(mask, starts, of_keys.longest)
    groups = k.shape[1]
    grad, q = padded(grad, of_queries), padded(q, of_queries)  # (B, H, Q, d)
    k, v = (repeat_heads(padded(x, of_keys), q.shape[1]) for x in (k, v))  # (B, H, K, d)
    xp = namespace(q)
    batch, heads, queries, width = q.shape
    pairs, keys = batch * heads, k.shape[2]
    row_sums = xp.empty((2, pairs * queries), real(q.dtype))  # from the first launch to the second
    dq, dk, dv = (xp.empty((batch, x.shape[2], heads, x.shape[3]), x.dtype) for x in (q, k, v))
    given = (*strided(grad), *strided(q), *strided(k), *strided(v), saved, row_sums)
    numbers = (pairs, heads, queries, keys, float(scale), *visibility_arguments(limits, mask),
               *drop_arguments(*drop))  # fmt: skip
    for name, length, gradients in (("q", queries, (dq,)), ("kv", keys, (dk, dv))):
        kernel, shape = tiled(xp, f"attention_backward_{name}", width, v.shape[-1], q.dtype)
        grid = (pairs * -(-length // (4 * shape.rows)),)
        kernel(grid, (128,), (*given, *gradients, *numbers), shared_mem=shape.nbytes)
    dq, dk, dv = (x.swapaxes(1, 2) for x in (dq, dk, dv))
    dk, dv = sum_heads(dk, groups), sum_heads(dv, groups)
    return packed(dq, of_queries), packed(dk, of_keys), packed(dv, of_keys)


def attention_with_weights(
    q: Array, k: Array, v: Array, settings: Settings, bias: Any
) -> tuple[Array, Array]:
    """`attention` of the reference, from the kernels of this folder: they do not wait for the
    device, and a captured step drops other weights in each replay."""
    if q.dtype == np.float16:  # rounding the scores as well would cost digits
        q, k, v = (x.astype(np.float32) for x in (q, k, v))
        out, weights = attention_with_weights(q, k, v, settings, bias)
        return out.astype(np.float16), weights
    samples, limits, mask, scale, drop, starts = settings
    limits = limits_in_samples(samples, limits, q)
    mask = mask_with_starts(mask, starts, samples[1].longest)
    q = in_order(padded(q, samples[0]))  # (B, H, Q, d)
    k, v = (in_order(repeat_heads(padded(x, samples[1]), q.shape[1])) for x in (k, v))
    scores = matrix_product(q * q.dtype.type(scale), k.swapaxes(-1, -2))  # (B, H, Q, K)
    scores = scores if bias is None else scores + bias
    weights = masked_softmax(scores, limits, mask)
    dropped = dropout(weights, *drop) if drop.p else weights
    return packed(weighted_sum(dropped, v, limits, mask), samples[0]), weights


def gradients_from_weights(
    grad: Array, q: Array, k: Array, v: Array, settings: Settings, weights: Array
) -> tuple[Array, ...]:
    """`attention_backward` of the reference, from the kernels of this folder; with dbias."""
    if q.dtype == np.float16:
        grad, q, k, v = (x.astype(np.float32) for x in (grad, q, k, v))
    samples, limits, mask, scale, drop, starts = settings
    limits = limits_in_samples(samples, limits, q)
    of_queries, of_keys = samples
    mask = mask_with_starts(mask, starts, of_keys.longest)
    heads, groups = q.shape[1], k.shape[1]
    grad, q = (in_order(padded(x, of_queries)) for x in (grad, q))  # (B, H, Q, d)
    k, v = (in_order(repeat_heads(padded(x, of_keys), heads)) for x in (k, v))  # (B, H, K, d)
    dweights = matrix_product(grad, v.swapaxes(-1, -2))  # (B, H, Q, K)
    if drop.p:
        dweights = dropout(dweights, *drop)
    dbias = masked_softmax_backward(dweights, weights, limits, mask)
    dscores = dbias * q.dtype.type(scale)
    dropped = dropout(weights, *drop) if drop.p else weights
    dq = weighted_sum(dscores, k, limits, mask)
    dk = weighted_sum(dscores.swapaxes(-1, -2), q, limits, mask, transposed=True)
    dv = weighted_sum(dropped.swapaxes(-1, -2), grad, limits, mask, transposed=True)
    dk, dv = sum_heads(dk, groups), sum_heads(dv, groups)
    return packed(dq, of_queries), packed(dk, of_keys), packed(dv, of_keys), dbias
