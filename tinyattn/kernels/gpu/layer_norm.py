"""Layer normalization; launches `layer_norm.cu`."""

from __future__ import annotations

from typing import Any

from ...base.backend import Array, namespace
from .. import reference
from ..sums import in_c_order, sum_dtype
from .launch import SCALARS, WARP, by_rows, function
from .sums import blocks_for, end_sums


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
    arrays = in_c_order(x), weight, bias, out, means, inv_stds
    kernel(*by_rows(rows, columns), (*arrays, rows, columns, float(eps)))
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
    blocks = blocks_for(rows)
    parts = xp.empty((2, blocks, columns), sum_dtype(x.dtype))
    dweight, dbias = xp.empty(columns, x.dtype), xp.empty(columns, x.dtype)
    kernel = function(xp, "layer_norm", "layer_norm_columns", scalar)
    arrays = grad, x, means, inv_stds, parts, dweight, dbias
    kernel((-(-columns // WARP), blocks), (WARP, WARP), (*arrays, rows, columns))
    end_sums(parts, dweight, dbias)
    return dx, None if weight is None else dweight, dbias
