"""Layer normalization and RMSNorm; launches `layer_norm.cu`."""

from typing import Any

from ...base.backend import Array, in_c_order, namespace
from ..sums import sum_dtype
from .launch import as_matrix, by_rows, real, run
from .sums import column_sums


def layer_norm(x: Array, weight: Any, bias: Any, eps: float) -> Any:
    if not x.size:
        return NotImplemented
    means = namespace(x).empty((*x.shape[:-1], 1), sum_dtype(x.dtype))
    out, inv_stds = normalized(x, weight, bias, means, eps)
    return out, means, inv_stds


def rms_norm(x: Array, weight: Any, eps: float) -> Any:
    return normalized(x, weight, None, None, eps) if x.size else NotImplemented


def normalized(x: Array, weight: Any, bias: Any, means: Any, eps: float) -> tuple[Array, Array]:
    """The normalized x, and 1 / std of each row. Without an array for the means: RMSNorm."""
    xp, sizes = namespace(x), as_matrix(x.shape)
    out, inv_stds = xp.empty(x.shape, x.dtype), xp.empty((*x.shape[:-1], 1), sum_dtype(x.dtype))
    arrays = in_c_order(x), *map(or_null, (weight, bias)), out, or_null(means), inv_stds
    run("layer_norm", "layer_norm", x, by_rows(*sizes), *arrays, *sizes, float(eps))
    return out, inv_stds


def or_null(array: Any) -> Any:
    return 0 if array is None else in_c_order(array)


def layer_norm_backward(grad: Array, x: Array, weight: Any, eps: float, saved: Any) -> Any:
    return gradients(grad, x, weight, *saved) if x.size else NotImplemented


def rms_norm_backward(grad: Array, x: Array, weight: Any, eps: float, inverse: Any) -> Any:
    return gradients(grad, x, weight, None, inverse)[:2] if x.size else NotImplemented


def gradients(grad: Array, x: Array, weight: Any, means: Any, inv_stds: Array) -> tuple[Any, ...]:
    """dx, dweight and dbias; dweight is None without a weight."""
    xp, sizes = namespace(x), as_matrix(x.shape)
    grad, x = in_c_order(grad), in_c_order(x)
    dx, stats = xp.empty(x.shape, x.dtype), xp.empty((3, sizes[0]), real(x.dtype))
    arrays = grad, x, or_null(weight), or_null(means), inv_stds, stats, dx
    run("layer_norm", "layer_norm_backward", x, by_rows(*sizes), *arrays, *sizes)
    if weight is None and means is None:
        return dx, None, None
    dbias, dweight = column_sums(grad.reshape(sizes), x, stats)
    return dx, None if weight is None else dweight, dbias
