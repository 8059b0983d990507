"""Layer normalization, and sums over rows: `cuda/layer_norm.cu`, `cuda/sums.cu`."""

from __future__ import annotations

from typing import Any

from ...backend import Array, namespace
from .. import reference
from ..sums import sum_dtype
from .launch import SCALARS, WARP, by_rows, function, in_c_order


def layer_norm(x: Array, weight: Any, bias: Any, eps: float) -> tuple[Array, Array, Array]:
    if not x.size:
        return reference.layer_norm(x, weight, bias, eps)
    xp = namespace(x)
    columns = x.shape[-1]
    rows = x.size // columns
    out = xp.empty(x.shape, x.dtype)
    means, inv_stds = (xp.empty((*x.shape[:-1], 1), sum_dtype(x.dtype)) for _ in range(2))
    weight, bias = (0 if part is None else in_c_order(part) for part in (weight, bias))
    kernel = function(xp, "layer_norm", "layer_norm", SCALARS[x.dtype])
    kernel(*by_rows(rows, columns), (in_c_order(x), weight, bias, out, means, inv_stds, rows,
           columns, float(eps)))  # fmt: skip
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
    sums = xp.empty((2, parts, columns), sum_dtype(x.dtype))
    dweight, dbias = xp.empty(columns, x.dtype), xp.empty(columns, x.dtype)
    kernel = function(xp, "layer_norm", "layer_norm_columns", scalar)
    kernel((-(-columns // WARP), parts), (WARP, WARP),
           (grad, x, means, inv_stds, sums, dweight, dbias, rows, columns))  # fmt: skip
    end_sums(sums, dweight, dbias)
    return dx, None if weight is None else dweight, dbias


def groups(rows: int) -> int:
    """How many blocks share the rows of a sum over rows. With one, the sum is a single launch."""
    return min(-(-rows // 1024), 64)


def end_sums(parts: Array, out: Array, second: Any) -> None:
    """Add up what several blocks have: parts (1 or 2, blocks, columns)."""
    number, columns = parts.shape[-2:]
    if number > 1:
        kernel = function(namespace(out), "sums", "end_sums", SCALARS[out.dtype])
        kernel((-(-len(parts) * columns // 128),), (128,), (parts, out, second, number, columns))


def sum_rows(x: Array) -> Array:
    if not x.size:
        return reference.sum_rows(x)
    xp = namespace(x)
    rows, columns = x.shape
    parts = xp.empty((1, groups(rows), columns), sum_dtype(x.dtype))
    out = xp.empty(columns, x.dtype)
    kernel = function(xp, "sums", "begin_sums", SCALARS[x.dtype])
    grid = (-(-columns // WARP), parts.shape[1])
    kernel(grid, (WARP, WARP), (in_c_order(x), parts, out, rows, columns))
    end_sums(parts, out, 0)
    return out
