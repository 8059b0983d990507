"""Attention in tiles, and sums with a mask: `cuda/attention.cu`, `cuda/weighted_sum.cu`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...backend import Array, namespace
from .. import reference
from ..matmul import matrix_product
from .launch import SCALARS, by_elements, dropping, function, hidden, in_c_order, real

# From compute capability 7.5 on a block may ask for 64 KiB of shared memory, and has 48 KiB without
# asking; 1 KiB of either is for what kernels declare themselves.
SHARED_MEMORY = 63 * 1024
GRANTED = 47 * 1024


def weighted_sum(
    weights: Array, values: Array, limits: Any, mask: Any, transposed: bool = False
) -> Array:
    if (limits is None and mask is None) or not weights.size or not values.size:
        return matrix_product(weights, values)
    xp = namespace(weights)
    batch, heads, rows, inner = weights.shape
    out = xp.empty((batch, heads, rows, values.shape[-1]), weights.dtype)
    weights = in_c_order(weights.swapaxes(-1, -2) if transposed else weights)
    kernel = function(xp, "weighted_sum", "weighted_sum", SCALARS[weights.dtype])
    kernel(*by_elements(out.size), (weights, in_c_order(values), out, batch * heads, heads, rows,
           inner, out.shape[-1], int(transposed), *hidden(limits, mask)))  # fmt: skip
    return out


@cache
def tile_shape(width: int, value_width: int, itemsize: int) -> tuple[int, int, int] | None:
    """How many rows a warp of the tiled attention takes, how many columns of a tile are in shared
    memory at a time, and the bytes of it that a block then needs in backward; None if even one row
    is too much."""
    for columns in (max(width, value_width), 64):
        for rows in (8, 4, 2, 1):
            tiles = min(width, columns) + 1 + min(value_width, columns) + 1
            numbers = 4 * rows * (width + value_width) + 32 * tiles + 2 * 4 * rows * 32
            if numbers * itemsize <= SHARED_MEMORY:
                return rows, columns, numbers * itemsize
    return None


@cache
def tiled(xp: Any, kernel: str, head: int, value: int, dtype: np.dtype) -> tuple[Any, int, int]:
    """A kernel of the tiled attention for these widths, its rows and its shared memory."""
    found = tile_shape(head, value, real(dtype).itemsize)
    assert found is not None
    rows, columns, size = found
    sizes = {"HEAD": head, "VALUE": value, "ROWS": rows, "SLICE": columns}
    defines = tuple(f"-D{name}={number}" for name, number in sizes.items())
    compiled = function(xp, "attention", kernel, SCALARS[dtype], defines)
    if size > GRANTED:
        compiled.max_dynamic_shared_size_bytes = size
    return compiled, rows, size


def attention(
    q: Array, k: Array, v: Array, limits: Any, mask: Any, scale: float, p: float, seed: int
) -> tuple[Array, Any]:
    """The output, and for backward each row's maximum and 1 / sum.

    Heads wider than 1,400 numbers (450 in float64) are too wide even for slices of a tile: for
    them, and for p = 1, the reference runs, which keeps the weights.
    """
    fits = tile_shape(q.shape[-1], v.shape[-1], real(q.dtype).itemsize)
    if fits is None or p >= 1 or not (q.size and k.size and v.size):
        return reference.attention(q, k, v, limits, mask, scale, p, seed)
    xp = namespace(q)
    batch, heads, queries, _ = q.shape
    pairs, keys = batch * heads, k.shape[2]
    out = xp.empty((batch, queries, heads, v.shape[-1]), q.dtype)
    saved = xp.empty((2, pairs * queries), real(q.dtype))
    kernel, rows, size = tiled(xp, "attention", q.shape[-1], v.shape[-1], q.dtype)
    arguments = (*strided(q), *strided(k), *strided(v), out, saved, pairs, heads, queries, keys,
                 float(scale), *hidden(limits, mask), *dropping(p, seed))  # fmt: skip
    kernel((pairs * -(-queries // (4 * rows)),), (128,), arguments, shared_mem=size)
    return out.swapaxes(1, 2), (saved,)


def strided(array: Array) -> tuple[Any, int, int, int]:
    """(B, H, N, width), with the strides of its first dimensions; copied only if a row is not in
    one piece, or something lies backwards."""
    rows_whole = array.shape[-1] == 1 or array.strides[-1] == array.itemsize
    if not rows_whole or min(array.strides) < 0:
        array = array.copy(order="C")
    sample, head, row = (stride // array.itemsize for stride in array.strides[:3])
    return array, sample, head, row


def attention_backward(
    grad: Array, q: Array, k: Array, v: Array, limits: Any, mask: Any, scale: float, p: float,
    seed: int, saved: Any,
) -> tuple[Array, Array, Array]:  # fmt: skip
    if not isinstance(saved, tuple):
        return reference.attention_backward(grad, q, k, v, limits, mask, scale, p, seed, saved)
    xp = namespace(q)
    (statistics,) = saved
    batch, heads, queries, _ = q.shape
    pairs, keys = batch * heads, k.shape[2]
    inner = xp.empty((2, pairs * queries), real(q.dtype))  # from the first launch for the second
    dq, dk, dv = (xp.empty((batch, x.shape[2], heads, x.shape[3]), x.dtype) for x in (q, k, v))
    given = (*strided(grad), *strided(q), *strided(k), *strided(v), statistics, inner)
    rest = (pairs, heads, queries, keys, float(scale), *hidden(limits, mask),
            *dropping(p, seed))  # fmt: skip
    for name, length, gradients in (("q", queries, (dq,)), ("kv", keys, (dk, dv))):
        widths = q.shape[-1], v.shape[-1]
        kernel, rows, size = tiled(xp, f"attention_backward_{name}", *widths, q.dtype)
        grid = (pairs * -(-length // (4 * rows)),)
        kernel(grid, (128,), (*given, *gradients, *rest), shared_mem=size)
    return dq.swapaxes(1, 2), dk.swapaxes(1, 2), dv.swapaxes(1, 2)


def self_attention(
    qkv: Array, heads: int, lengths: Any, limits: Any, mask: Any, scale: float, p: float, seed: int
) -> tuple[Array, Any]:
    """Packed samples are padded for it: a block of the kernel belongs to one sample anyway."""
    return reference.self_attention(
        qkv, heads, lengths, limits, mask, scale, p, seed, attend=attention
    )


def self_attention_backward(
    grad: Array, qkv: Array, heads: int, lengths: Any, limits: Any, mask: Any, scale: float,
    p: float, seed: int, saved: Any,
) -> Array:  # fmt: skip
    return reference.self_attention_backward(
        grad, qkv, heads, lengths, limits, mask, scale, p, seed, saved,
        attend_backward=attention_backward,
    )  # fmt: skip
