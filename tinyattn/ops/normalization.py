"""Layer normalization."""

from __future__ import annotations

from .. import kernels
from ..backend import Array
from ..op import op


@op
def layer_norm(x: Array, weight: Array | None, bias: Array | None, *, eps: float) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension, D.

    x (..., D), weight and bias (D,) or None; var is the biased variance (divided by D).
    """
    out, mean, inv_std = kernels.layer_norm(x, weight, bias, eps)
    return out, (mean, inv_std)


@layer_norm.vjp("x", "weight", "bias")
def _(grad, x, weight, eps, saved):
    return kernels.layer_norm_backward(grad, x, weight, eps, saved)
