"""The kernels on a GPU: CUDA C++ in `cuda/*.cu`, compiled at run time and launched through CuPy.

A public function here is a door, like those of `cpu.py`: it brings arrays into C order, chooses how
many threads work on what, and launches. Each has its plain twin in `reference.py`, which also runs
for what a kernel does not take. Nothing here waits for the device.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import backend
from ..backend import Array, matrix_product, namespace, to_device
from . import reference
from .reference import drop_threshold
from .sums import wide

FOLDER = Path(__file__).parent / "cuda"
SCALARS = {np.dtype(np.float16): 16, np.dtype(np.float32): 32, np.dtype(np.float64): 64}
WARP = 32
MOST_THREADS = 1024
# More blocks than any device runs at once; beyond, a thread takes several elements.
MOST_BLOCKS = 65536
# A block may ask for this much shared memory on every device from compute capability 7.5 on.
SHARED_MEMORY = 64 * 1024
GRANTED = 48 * 1024  # without asking


@cache
def source(name: str) -> str:
    """A kernel's source, with what all of them share in front."""
    return "".join((FOLDER / f"{part}.cu").read_text() for part in ("common", name))


@cache
def function(xp: Any, name: str, kernel: str, scalar: int, defines: tuple[str, ...] = ()) -> Any:
    """One compiled kernel for one element type. CuPy keeps what it has compiled on disk."""
    options = ("--std=c++17", f"-DSCALAR={scalar}", *defines)
    return xp.RawModule(code=source(name), options=options).get_function(kernel)


def in_c_order(array: Array) -> Array:
    return array if array.flags.c_contiguous else array.copy(order="C")


def real(dtype: np.dtype) -> np.dtype:
    """What kernels compute with: halves as float32."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def by_rows(rows: int, columns: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Grid and block for kernels that give a row to the threads of one `threadIdx.y`: a warp to a
    short row, several of which share a block; to a long one a block of its own."""
    if columns <= 1024:
        return (-(-rows // 4),), (WARP, 4)
    return (rows,), (min(MOST_THREADS, -(-columns // (8 * WARP)) * WARP), 1)


def by_elements(size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Grid and block for kernels in which any thread may take any element."""
    return (min(-(-size // 256), MOST_BLOCKS),), (256,)


def hidden(xp: Any, limits: Any, mask: Any) -> tuple[Any, ...]:
    """limits (B|1, Q|1) and mask (B|1, H|1, Q|1, K|1), with their strides in elements, as kernels
    take them: a stride of 0 repeats an entry."""
    found: list[Any] = []
    for array, dims, dtype in ((limits, 2, np.int64), (mask, 4, np.bool_)):
        if array is None:
            found += [0] * (1 + dims)
            continue
        array = in_c_order(to_device(array.astype(dtype, copy=False), "cuda"))
        strides = [s // array.itemsize if n > 1 else 0
                   for n, s in zip(array.shape, array.strides, strict=True)]  # fmt: skip
        found += [array, *strides]
    return tuple(found)


def four(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Any shape as (B, H, Q, K)."""
    if len(shape) == 4:
        return shape
    return 1, 1, math.prod(shape[:-1]), shape[-1]


def masked_softmax(x: Array, limits: Any, mask: Any) -> Array:
    if not x.size:
        return x.copy()
    xp = namespace(x)
    x, out = in_c_order(x), xp.empty(x.shape, x.dtype)
    batch, heads, queries, keys = four(x.shape)
    rows = batch * heads * queries
    kernel = function(xp, "softmax", "masked_softmax", SCALARS[x.dtype])
    kernel(*by_rows(rows, keys),
           (x, out, rows, heads, queries, keys, *hidden(xp, limits, mask)))  # fmt: skip
    return out


def masked_softmax_backward(grad: Array, out: Array, limits: Any, mask: Any) -> Array:
    xp = namespace(out)
    result = xp.empty(out.shape, out.dtype)
    if out.size:
        batch, heads, queries, keys = four(out.shape)
        rows = batch * heads * queries
        kernel = function(xp, "softmax", "masked_softmax_backward", SCALARS[out.dtype])
        kernel(*by_rows(rows, keys), (in_c_order(grad), in_c_order(out), result, rows, heads,
               queries, keys, *hidden(xp, limits, mask)))  # fmt: skip
    return result


def softmax_backward(grad: Array, out: Array) -> Array:
    return masked_softmax_backward(grad, out, None, None)


def log_softmax(x: Array) -> Array:
    if not x.size:
        return x.copy()
    xp = namespace(x)
    out = xp.empty(x.shape, x.dtype)
    rows, columns = x.size // x.shape[-1], x.shape[-1]
    kernel = function(xp, "softmax", "log_softmax", SCALARS[x.dtype])
    kernel(*by_rows(rows, columns), (in_c_order(x), out, rows, columns))
    return out


def log_softmax_backward(grad: Array, out: Array) -> Array:
    xp = namespace(out)
    result = xp.empty(out.shape, out.dtype)
    if out.size:
        rows, columns = out.size // out.shape[-1], out.shape[-1]
        kernel = function(xp, "softmax", "log_softmax_backward", SCALARS[out.dtype])
        kernel(*by_rows(rows, columns), (in_c_order(grad), in_c_order(out), result, rows, columns))
    return result


def cross_entropy(logits: Array, target: Array, ignore_index: int) -> tuple[Array, Array]:
    if not logits.size:
        return reference.cross_entropy(logits, target, ignore_index)
    xp = namespace(logits)
    rows, columns = logits.shape
    losses = xp.empty(rows, logits.dtype)
    log_sums = xp.empty((2, rows), wide(logits.dtype))
    kernel = function(xp, "softmax", "cross_entropy", SCALARS[logits.dtype])
    target = in_c_order(target.astype(np.int64, copy=False))
    kernel(*by_rows(rows, columns), (in_c_order(logits), target, losses, log_sums, rows, columns,
           ignore_index))  # fmt: skip
    return losses, log_sums


def cross_entropy_backward(
    grad: Array, logits: Array, target: Array, ignore_index: int, log_sums: Any
) -> Array:
    if not logits.size:
        return logits.copy()
    xp = namespace(logits)
    rows, columns = logits.shape
    result = xp.empty(logits.shape, logits.dtype)
    kernel = function(xp, "softmax", "cross_entropy_backward", SCALARS[logits.dtype])
    target = in_c_order(target.astype(np.int64, copy=False))
    kernel(*by_rows(rows, columns), (in_c_order(grad), in_c_order(logits), target,
           log_sums, result, rows, columns, ignore_index))  # fmt: skip
    return result


def layer_norm(x: Array, weight: Any, bias: Any, eps: float) -> tuple[Array, Array, Array]:
    if not x.size:
        return reference.layer_norm(x, weight, bias, eps)
    xp = namespace(x)
    columns = x.shape[-1]
    rows = x.size // columns
    out = xp.empty(x.shape, x.dtype)
    means, inv_stds = (xp.empty((*x.shape[:-1], 1), wide(x.dtype)) for _ in range(2))
    weight, bias = (0 if part is None else in_c_order(part) for part in (weight, bias))
    kernel = function(xp, "layer_norm", "layer_norm", SCALARS[x.dtype])
    kernel(*by_rows(rows, columns), (in_c_order(x), weight, bias, out, means, inv_stds, rows,
           columns, eps))  # fmt: skip
    return out, means, inv_stds


def layer_norm_backward(
    grad: Array, x: Array, weight: Any, eps: float, saved: Any
) -> tuple[Any, Any, Any]:
    if not x.size:
        return reference.layer_norm_backward(grad, x, weight, eps, saved)
    xp = namespace(x)
    scalar, columns = SCALARS[x.dtype], x.shape[-1]
    rows = x.size // columns
    grad, x = in_c_order(grad), in_c_order(x)
    means, inv_stds = saved
    dx = xp.empty(x.shape, x.dtype)
    factors = 0 if weight is None else in_c_order(weight)
    kernel = function(xp, "layer_norm", "layer_norm_backward", scalar)
    kernel(*by_rows(rows, columns), (grad, x, factors, means, inv_stds, dx, rows, columns))
    parts = groups(rows)
    sums = xp.empty((2, parts, columns), wide(x.dtype))
    kernel = function(xp, "layer_norm", "layer_norm_columns", scalar)
    kernel((-(-columns // WARP), parts), (WARP, 8),
           (grad, x, means, inv_stds, sums, rows, columns))  # fmt: skip
    both = end_sums(sums, x.dtype)
    return dx, None if weight is None else both[0], both[1]


def groups(rows: int) -> int:
    """How many blocks share the rows of a sum over rows, 8 of them at a time."""
    return min(-(-rows // 64), 64)


def end_sums(parts: Array, dtype: np.dtype) -> Array:
    """(count, parts, columns) -> (count, columns)."""
    xp = namespace(parts)
    count, number, columns = parts.shape
    out = xp.empty((count, columns), dtype)
    kernel = function(xp, "sums", "end_sums", SCALARS[dtype])
    kernel((-(-count * columns // 128),), (128,), (parts, out, count, number, columns))
    return out


def sum_rows(x: Array) -> Array:
    if not x.size:
        return reference.sum_rows(x)
    xp = namespace(x)
    rows, columns = x.shape
    parts = xp.empty((1, groups(rows), columns), wide(x.dtype))
    kernel = function(xp, "sums", "begin_sums", SCALARS[x.dtype])
    grid = (-(-columns // WARP), parts.shape[1])
    kernel(grid, (WARP, 8), (in_c_order(x), parts, rows, columns))
    return end_sums(parts, x.dtype).reshape(columns)


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


def dropping(p: float, seed: int) -> tuple[Any, ...]:
    """What kernels that drop elements take: p, when to drop, the seed, and for a captured step how
    often it has been replayed."""
    draws = 0 if backend.capture is None else backend.capture.draws
    return float(p), drop_threshold(p), seed, draws


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
           inner, out.shape[-1], int(transposed), *hidden(xp, limits, mask)))  # fmt: skip
    return out


def tile_rows(width: int, value_width: int, itemsize: int) -> tuple[int, int] | None:
    """How many rows a warp of the tiled attention takes, and the bytes of shared memory a block
    then needs in backward; None if even one row is too much."""
    for rows in (8, 4, 2, 1):
        tiles = (4 * rows + 32) * (width + value_width) + 64
        size = (tiles + 2 * 4 * rows * 32) * itemsize
        if size <= SHARED_MEMORY:
            return rows, size
    return None


def tiled(xp: Any, kernel: str, q: Array, v: Array) -> tuple[Any, int, int]:
    """A kernel of the tiled attention for these widths, its rows and its shared memory."""
    found = tile_rows(q.shape[-1], v.shape[-1], real(q.dtype).itemsize)
    assert found is not None
    rows, size = found
    defines = (f"-DHEAD={q.shape[-1]}", f"-DVALUE={v.shape[-1]}", f"-DROWS={rows}")
    compiled = function(xp, "attention", kernel, SCALARS[q.dtype], defines)
    if size > GRANTED:
        compiled.max_dynamic_shared_size_bytes = size
    return compiled, rows, size


def attention(
    q: Array, k: Array, v: Array, limits: Any, mask: Any, scale: float, p: float, seed: int
) -> tuple[Array, Any]:
    """The output, and for backward each row's maximum and 1 / sum.

    Where a row is too wide for a tile, and for p = 1, the reference runs, which keeps the weights.
    """
    fits = tile_rows(q.shape[-1], v.shape[-1], real(q.dtype).itemsize)
    if fits is None or p >= 1 or not (q.size and k.size and v.size):
        return reference.attention(q, k, v, limits, mask, scale, p, seed)
    xp = namespace(q)
    batch, heads, queries, _ = q.shape
    pairs, keys = batch * heads, k.shape[2]
    out = xp.empty((batch, heads, queries, v.shape[-1]), q.dtype)
    saved = xp.empty((2, pairs * queries), real(q.dtype))
    kernel, rows, size = tiled(xp, "attention", q, v)
    q, k, v = in_c_order(q), in_c_order(k), in_c_order(v)
    arguments = (q, k, v, out, saved, pairs, heads, queries, keys, float(scale),
                 *hidden(xp, limits, mask), *dropping(p, seed))  # fmt: skip
    kernel((pairs * -(-queries // (4 * rows)),), (128,), arguments, shared_mem=size)
    return out, (saved,)


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
    grad, q, k, v = (in_c_order(x) for x in (grad, q, k, v))
    inner = xp.empty((2, pairs * queries), real(q.dtype))  # from the first launch for the second
    dq, dk, dv = (xp.empty(x.shape, x.dtype) for x in (q, k, v))
    sizes = (pairs, heads, queries, keys, float(scale))
    rest = (*hidden(xp, limits, mask), *dropping(p, seed))
    for name, length, gradients in (("q", queries, (dq,)), ("kv", keys, (dk, dv))):
        kernel, rows, size = tiled(xp, f"attention_backward_{name}", q, v)
        arguments = (grad, q, k, v, statistics, inner, *gradients, *sizes, *rest)
        kernel((pairs * -(-length // (4 * rows)),), (128,), arguments, shared_mem=size)
    return dq, dk, dv


def visible_keys(limits: Any, mask: Any, batch: int, keys: int) -> Array:
    """(B, H|1, K): which keys any query may see."""
    some = limits if mask is None else mask
    xp = namespace(some)
    heads = 1 if mask is None else mask.shape[1]
    queries = max(1 if limits is None else limits.shape[1], 1 if mask is None else mask.shape[2])
    out = xp.empty((batch, heads, keys), np.bool_)
    if out.size:
        kernel = function(xp, "checks", "visible_keys", 32)
        kernel((-(-out.size // 128),), (128,),
               (out, out.size, heads, keys, queries, *hidden(xp, limits, mask)))  # fmt: skip
    return out


def check_range(numbers: Array, faults: Array, low: int, high: int, besides: int) -> None:
    """Note in `faults` (2,) the place of some number outside [low, high), and the number."""
    if numbers.size:
        xp = namespace(numbers)
        numbers = in_c_order(numbers.astype(np.int64, copy=False))
        kernel = function(xp, "checks", "check_range", 32)
        kernel(*by_elements(numbers.size), (numbers, faults, numbers.size, low, high, besides))
