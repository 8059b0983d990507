"""Layer normalization and RMSNorm, as plain array code; see `reference.py`."""

from __future__ import annotations

from typing import Any

from ..base.backend import Array, namespace
from .sums import in_c_order, sum_dtype


def layer_norm(
    x: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """The normalized x, and the mean and 1 / sqrt(var + eps) of each row, in `sum_dtype`."""
    values = x.astype(sum_dtype(x.dtype), order="C")
    mean = values.mean(axis=-1, keepdims=True)
    centred = values - mean
    inv_std = 1 / namespace(x).sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)
    out = centred * inv_std
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return out.astype(x.dtype), mean, inv_std


def layer_norm_backward(
    grad: Any, x: Any, weight: Any, eps: float, saved: tuple[Array, Array] | None
) -> tuple[Any, Any, Any]:
    """With n the normalized x and g = grad * weight:

    dx = (g - mean(g) - n * mean(g * n)) / std, dweight = sum(grad * n), dbias = sum(grad).
    """
    grad, x = in_c_order(grad), in_c_order(x)
    if saved is None:  # on Tensors, because the saved arrays are not part of the graph
        x = x.to(sum_dtype(x.dtype))
        centred = x - x.mean(axis=-1, keepdims=True)
        inv_std = ((centred * centred).mean(axis=-1, keepdims=True) + eps) ** -0.5
    else:
        mean, inv_std = saved
        centred = x - mean  # in the wider dtype of the mean, because the two are close
    normal = centred * inv_std
    g = grad if weight is None else grad * weight
    slope = g - g.mean(axis=-1, keepdims=True) - normal * (g * normal).mean(axis=-1, keepdims=True)
    # The engine sums dweight and dbias over the leading dimensions and restores the dtype.
    return inv_std * slope, None if weight is None else grad * normal, grad


def rms_norm(x: Array, weight: Array | None, eps: float) -> tuple[Array, Array]:
    """x / sqrt(mean(x^2) + eps) * weight, and 1 / sqrt(...) of each row, in `sum_dtype`."""
    values = x.astype(sum_dtype(x.dtype), order="C")
    inverse = 1 / namespace(x).sqrt((values * values).mean(axis=-1, keepdims=True) + eps)
    normal = values * inverse
    return (normal if weight is None else normal * weight).astype(x.dtype), inverse


def rms_norm_backward(
    grad: Any, x: Any, weight: Any, eps: float, inverse: Array | None
) -> tuple[Any, Any]:
    """With n = x * inverse and g = grad * weight:

    dx = (g - n * mean(g * n)) * inverse, dweight = sum(grad * n).
    """
    grad, x = in_c_order(grad), in_c_order(x)
    if inverse is None:  # on Tensors, because the saved array is not part of the graph
        x = x.to(sum_dtype(x.dtype))
        inverse = ((x * x).mean(axis=-1, keepdims=True) + eps) ** -0.5
    normal = x * inverse
    g = grad if weight is None else grad * weight
    slope = g - normal * (g * normal).mean(axis=-1, keepdims=True)
    # The engine sums dweight over the leading dimensions and restores the dtype.
    return inverse * slope, None if weight is None else grad * normal
