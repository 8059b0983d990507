"""Scaled dot-product attention in tiles; launches `tiled_attention.cu`.

Three cases are not computed in tiles: heads of more than 1,400 numbers (450 in float64), dropout
with p = 1, and a bias. For them the formula in `ops/attention.py` makes the array of all weights.
A window becomes a mask.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...base.backend import Array, namespace
from ...base.random import Drop
from ..packing import as_packed, padded, sum_heads
from ..visibility import AttentionOptions
from .launch import SCALARS, drop_arguments, function, real, visibility_arguments

# A block has 48 KiB of shared memory. It may ask for more, 64 KiB at least from compute capability
# 7.5 on; the tiles are the same on all of these devices. 1 KiB of it is for the variables that the
# kernels themselves declare.
WITHOUT_ASKING = 47 * 1024
MOST_MEMORY = 64 * 1024
OWN_VARIABLES = 1024
BLOCK = (128,)  # threads: four warps
LARGEST = "attention_backward_kv"  # the kernel that needs the most memory


class TileShape(NamedTuple):
    """How the tiled attention divides its work."""

    rows: int  # of each warp
    columns: int  # of a tile that are in shared memory at a time
    nbytes: int  # of shared memory for a block


@cache
def shared_memory(xp: Any, device: int) -> int:
    """For how many bytes a block of a kernel can ask on this device."""
    memory = xp.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"]
    return min(memory, MOST_MEMORY) - OWN_VARIABLES


@cache
def tile_shape(
    width: int, value_width: int, itemsize: int, memory: int, kernel: str = LARGEST
) -> TileShape | None:
    """The largest tiles of a kernel for which so much memory is enough; None if one row is too
    wide. Forward has queries in it; backward also their gradients, or keys and values."""
    own = width if kernel == "attention" else width + value_width
    weights = 2 if kernel == LARGEST else 1  # and their gradients
    for columns in (max(width, value_width), 64):
        for rows in (8, 4, 2, 1):
            tiles = min(width, columns) + 1 + min(value_width, columns) + 1
            numbers = 4 * rows * (own + 32 * weights) + 32 * tiles
            if numbers * itemsize <= memory:
                return TileShape(rows, columns, numbers * itemsize)
    return None


@cache
def tiled(
    xp: Any, device: int, kernel: str, width: int, value_width: int, dtype: np.dtype
) -> tuple[Any, Any]:
    """A kernel of `tiled_attention.cu` for heads of these widths, and the shape of its tiles.

    One for each device, because CuPy asks for shared memory on the current one only.
    """
    memory = shared_memory(xp, device)
    shape = tile_shape(width, value_width, real(dtype).itemsize, memory, kernel)
    assert shape is not None
    sizes = {"HEAD": width, "VALUE": value_width, "ROWS": shape.rows, "SLICE": shape.columns}
    defines = tuple(f"-D{name}={number}" for name, number in sizes.items())
    compiled = function(xp, "tiled_attention", kernel, SCALARS[dtype], defines)
    if shape.nbytes > WITHOUT_ASKING:
        compiled.max_dynamic_shared_size_bytes = shape.nbytes
    return compiled, shape


def run_tiled(kernel: str, length: int, q: Array, v: Array, *arguments: Any) -> None:
    """Launch a kernel that divides `length` rows of each head of q and v, (B, N, H, d)."""
    batch, _, heads, width = q.shape
    xp = namespace(q)
    device = xp.cuda.runtime.getDevice()
    compiled, shape = tiled(xp, device, kernel, width, v.shape[-1], q.dtype)
    grid = (batch * heads * -(-length // (4 * shape.rows)),)
    compiled(grid, BLOCK, arguments, shared_mem=shape.nbytes)


def has_tiles(q: Array, k: Array, v: Array, drop: Drop) -> bool:
    if drop.p >= 1 or not (q.size and k.size and v.size):
        return False
    xp = namespace(q)
    memory = shared_memory(xp, xp.cuda.runtime.getDevice())
    return tile_shape(q.shape[-1], v.shape[-1], real(q.dtype).itemsize, memory) is not None


def strided(array: Array) -> tuple[Any, int, int, int]:
    """(B, N, H, width), followed by its strides in numbers, all but the last. It is copied only if
    the numbers of a row are not neighbours, or a stride is negative."""
    sample, row, head, number = array.strides
    size = array.itemsize
    if (number != size and array.shape[3] > 1) or min(sample, row, head) < 0:
        return strided(array.copy(order="C"))
    return array, sample // size, row // size, head // size


def attention(q: Array, k: Array, v: Array, options: AttentionOptions, bias: Any = None) -> Any:
    """The output; and for backward the maximum and 1 / sum of each row of scores, (2, B * H * Q).

    Samples of one length are views (B, N, H, d) of the rows. Others are padded, because a block of
    the kernel works on one sample.
    """
    visibility, scale, drop = options
    if bias is not None or not has_tiles(q, k, v, drop):
        return NotImplemented
    q = padded(q, visibility.queries)
    k, v = padded(k, visibility.keys), padded(v, visibility.keys)
    xp = namespace(q)
    batch, queries, heads, _ = q.shape
    out = xp.empty((*q.shape[:3], v.shape[3]), q.dtype)
    saved = xp.empty((2, batch * heads * queries), real(q.dtype))
    _, keys, groups, _ = k.shape
    numbers = batch * heads, heads, groups, queries, keys, float(scale)
    settings = *numbers, *visibility_arguments(visibility, q), *drop_arguments(*drop)
    arrays = *strided(q), *strided(k), *strided(v)
    run_tiled("attention", queries, q, v, *arrays, out, saved, *settings)
    return as_packed(out, visibility.queries), saved


def attention_backward(
    grad: Array, q: Array, k: Array, v: Array, options: AttentionOptions, bias: Any, saved: Any
) -> Any:
    """Gradients of q, k, v, and of a bias; weights are computed again, from what forward saved."""
    visibility, scale, drop = options
    if bias is not None or not has_tiles(q, k, v, drop):
        return NotImplemented
    grad, q = padded(grad, visibility.queries), padded(q, visibility.queries)
    k, v = padded(k, visibility.keys), padded(v, visibility.keys)
    xp = namespace(q)
    batch, queries, heads, _ = q.shape
    row_sums = xp.empty(saved.shape, saved.dtype)  # from the first launch to the second
    dq, dk, dv = (xp.empty((*x.shape[:2], heads, x.shape[3]), x.dtype) for x in (q, k, v))
    _, keys, groups, _ = k.shape
    numbers = batch * heads, heads, groups, queries, keys, float(scale)
    settings = *numbers, *visibility_arguments(visibility, q), *drop_arguments(*drop)
    arrays = *strided(grad), *strided(q), *strided(k), *strided(v), saved, row_sums
    run_tiled("attention_backward_q", queries, q, v, *arrays, dq, *settings)
    run_tiled("attention_backward_kv", keys, q, v, *arrays, dk, dv, *settings)
    dk, dv = (as_packed(sum_heads(x, groups), visibility.keys) for x in (dk, dv))
    return as_packed(dq, visibility.queries), dk, dv
