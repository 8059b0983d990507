"""Layer normalization, RMSNorm, and vectors of length 1."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.backend import Array, namespace
from ..base.checks import check_number, check_one_dtype_and_device, listed, require_float
from ..engine.autograd import AnyTensor
from ..engine.op import op
from ..errors import ShapeError
from ..kernels import with_kernels
from ..kernels.sums import in_c_order, sum_dtype
from .arguments import float_tensor, widened
from .elementwise import abs, clamp, sqrt
from .reductions import sum


@op(saves=True)
def layer_norm(
    x: AnyTensor,
    normalized_shape: int | Sequence[int],
    weight: AnyTensor | None = None,
    bias: AnyTensor | None = None,
    eps: float = 1e-5,
) -> AnyTensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, `normalized_shape`.

    x (..., *normalized_shape) -> the same shape; weight and bias have the shape normalized_shape.
    The variance is biased (divided by n) and eps is added under the root, as in PyTorch. The
    Annotated Transformer divides by n - 1 and adds eps to the root: with few features the results
    differ, and with one they are NaN.
    Raises ShapeError if x does not end with normalized_shape.
    Source: Ba et al., "Layer Normalization", 2016.

    >>> F.layer_norm(ta.tensor([[-3.0, 3.0], [10.0, 10.0]]), 2)
    tensor([[-1.,  1.],
            [ 0.,  0.]])
    """
    sizes = normalized_sizes("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    rows, weight, bias = (merged(array, len(sizes)) for array in (x, weight, bias))
    out, mean, inv_std = normalized_rows(rows, weight, bias, check_number("eps", eps, 0))
    return split_again(out, sizes), (mean, inv_std)


@layer_norm.vjp("x", "weight", "bias")
def gradients(grad, x, normalized_shape, weight, eps, saved):
    sizes = x.shape[-np.size(normalized_shape) :]
    grad, x, weight = (merged(array, len(sizes)) for array in (grad, x, weight))
    dx, dweight, dbias = normalized_rows_backward(grad, x, weight, eps, saved)
    return split_again(dx, sizes), split_again(dweight, sizes), split_again(dbias, sizes)


@with_kernels(cpu="layer_norm.layer_norm", cuda="layer_norm.layer_norm")
def normalized_rows(
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


@with_kernels(cpu="layer_norm.layer_norm_backward", cuda="layer_norm.layer_norm_backward")
def normalized_rows_backward(
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


@op(saves=True)
def rms_norm(
    x: AnyTensor,
    normalized_shape: int | Sequence[int],
    weight: AnyTensor | None = None,
    eps: float | None = None,
) -> AnyTensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions, `normalized_shape`.

    x (..., *normalized_shape) -> the same shape; weight has the shape normalized_shape.
    eps: None for the epsilon of the dtype that it computes in, as in PyTorch: of float64 for
        float64, of float32 for float32 and float16.
    Raises ShapeError if x does not end with normalized_shape.
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    >>> F.rms_norm(ta.tensor([[1.0, 7.0]]), 2)
    tensor([[0.2, 1.4]])
    """
    sizes = normalized_sizes("rms_norm", x, normalized_shape, weight=weight)
    rows, weight = (merged(array, len(sizes)) for array in (x, weight))
    out, inverse = scaled_rows(rows, weight, epsilon_of(x.dtype, eps))
    return split_again(out, sizes), inverse


@rms_norm.vjp("x", "weight")
def gradients(grad, x, normalized_shape, weight, eps, saved):
    sizes, eps = x.shape[-np.size(normalized_shape) :], epsilon_of(x.dtype, eps)
    grad, x, weight = (merged(array, len(sizes)) for array in (grad, x, weight))
    dx, dweight = scaled_rows_backward(grad, x, weight, eps, saved)
    return split_again(dx, sizes), split_again(dweight, sizes)


def epsilon_of(dtype: np.dtype, eps: float | None) -> float:
    """eps, or that of the dtype in which the numbers are computed."""
    if eps is not None:
        return check_number("eps", eps, 0)
    return float(np.finfo(np.promote_types(dtype, np.float32)).eps)


@with_kernels(cpu="layer_norm.rms_norm", cuda="layer_norm.rms_norm")
def scaled_rows(x: Array, weight: Array | None, eps: float) -> tuple[Array, Array]:
    """x / sqrt(mean(x^2) + eps) * weight, and 1 / sqrt(...) of each row, in `sum_dtype`."""
    values = x.astype(sum_dtype(x.dtype), order="C")
    inverse = 1 / namespace(x).sqrt((values * values).mean(axis=-1, keepdims=True) + eps)
    normal = values * inverse
    return (normal if weight is None else normal * weight).astype(x.dtype), inverse


@with_kernels(cpu="layer_norm.rms_norm_backward", cuda="layer_norm.rms_norm_backward")
def scaled_rows_backward(
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


def normalized_sizes(
    function: str, x: Array, sizes: int | Sequence[int], **learned: Array | None
) -> tuple[int, ...]:
    """The sizes that are normalized: x ends with them, and weight and bias have them."""
    require_float(x.dtype, "x")
    sizes = (sizes,) if isinstance(sizes, (int, np.integer)) else tuple(listed(function, sizes))
    if not sizes or x.shape[-len(sizes) :] != sizes:
        raise ShapeError(f"{function} takes inputs that end with {sizes}, got shape {x.shape}")
    check_one_dtype_and_device(function, x=x, **learned)
    for name, value in learned.items():
        if value is not None and value.shape != sizes:
            raise ShapeError(f"{function}: {name} must have shape {sizes}, got {value.shape}")
    return sizes


def merged(x: Any, count: int) -> Any:
    """An array or a Tensor with its last `count` dimensions merged into one; None as it is."""
    if x is None or count == 1:
        return x
    return x.reshape(*x.shape[:-count], math.prod(x.shape[-count:]))


def split_again(x: Any, sizes: tuple[int, ...]) -> Any:
    """The inverse of `merged`."""
    return x if x is None or len(sizes) == 1 else x.reshape(*x.shape[:-1], *sizes)


def normalize(x: AnyTensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> AnyTensor:
    """x / max(norm, eps), with the norm (sum_i |x_i|^p)^(1/p) along `dim`.

    x (...) -> (...), of the same shape. eps: so that a row of zeros stays zeros.
    Raises IndexError if x has no such dimension, and ValueError for another p.
    Differs from PyTorch: p is 1 or 2.

    >>> F.normalize(ta.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6, 0.8],
            [0. , 0. ]])
    """
    x, eps = float_tensor(x, "x"), check_number("eps", eps, 0)
    if p not in (1, 2):
        raise ValueError(f"normalize takes p = 1 or 2, got {p!r}")
    # The limit is below the root, because the root has no slope at 0. It is no smaller than the
    # dtype's numbers, because float16 rounds 1e-12 to 0.
    limit = max(eps, float(np.finfo(x.dtype).smallest_subnormal)) ** p
    x, dtype = widened(x), x.dtype
    limit = max(limit, float(np.finfo(x.dtype).tiny))
    total = clamp(sum(abs(x) if p == 1 else x * x, dim, True), min=limit)
    return (x / (total if p == 1 else sqrt(total))).to(dtype)
