"""Sums, means, variances, extremes.

Here `dim` is a tuple of checked dimensions, or None for all of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import kernels
from ..base.backend import Array, namespace
from ..engine.op import op
from ..errors import ShapeError
from ..kernels import in_c_order
from .elementwise import cast, div, equal, where
from .shape import expand, reshape

Dims = tuple[int, ...] | None


def reduced_shape(shape: tuple[int, ...], dim: Dims) -> tuple[int, ...]:
    """`shape` after a reduction with keepdim=True."""
    if dim is None:
        return (1,) * len(shape)
    return tuple(1 if i in dim else n for i, n in enumerate(shape))


def count(shape: tuple[int, ...], dim: Dims) -> int:
    return math.prod(shape if dim is None else (shape[i] for i in dim))


@op
def sum(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return kernels.reduce_sum(x, dim, keepdim)


@sum.vjp("x")
def dx(grad, shape, dim):
    return expand(reshape(grad, target=reduced_shape(shape, dim)), target=shape)


@op
def sum_to(x: Array, *, target: tuple[int, ...]) -> Array:
    """Sum over the dimensions in which `target` was broadcast to the shape of `x`."""
    return kernels.sum_to(x, target)


@sum_to.vjp("x")
def dx(grad, shape):
    return expand(grad, target=shape)


@op
def mean(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return kernels.reduce_sum(x, dim, keepdim, mean=True)


@mean.vjp("x")
def dx(grad, shape, dim):
    grad = reshape(div(grad, float(count(shape, dim))), target=reduced_shape(shape, dim))
    return expand(grad, target=shape)


@op
def cumsum(x: Array, *, dim: int, reverse: bool = False) -> Array:
    """The sum of each element and those before it along `dim`; with `reverse`, of those behind."""
    order = (slice(None),) * dim + (slice(None, None, -1 if reverse else 1),)
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
    total = namespace(x).cumsum(in_c_order(x[order]), axis=dim, dtype=kernels.sum_dtype(dtype))
    return total[order].astype(dtype)


@cumsum.vjp("x")
def dx(grad, dim, reverse):
    return cumsum(grad, dim=dim, reverse=not reverse)


def degrees_of_freedom(shape: tuple[int, ...], dim: Dims, correction: int) -> float:
    """n - correction, or 0 if that is negative: dividing by 0 gives NaN or inf, as in PyTorch."""
    number = count(shape, dim) - correction
    return float(number) if number > 0 else 0.0


@op
def var(x: Array, *, dim: Dims, keepdim: bool = False, correction: int = 1) -> Array:
    """Sum of squared distances from the mean, over n - correction."""
    values = x.astype(kernels.sum_dtype(x.dtype), order="C")
    centred = values - kernels.reduce_sum(values, dim, True, mean=True)
    total = (centred * centred).sum(axis=dim, keepdims=keepdim)
    degrees = degrees_of_freedom(x.shape, dim, correction)
    return namespace(x).divide(total, degrees).astype(x.dtype)


@var.vjp("x")
def dx(grad, x, shape, dim, correction):
    grad = reshape(grad, target=reduced_shape(shape, dim))
    return div(centred(x, dim), degrees_of_freedom(shape, dim, correction) / 2) * grad


@op
def std(x: Array, *, dim: Dims, keepdim: bool = False, correction: int = 1) -> Array:
    """The root of the variance."""
    values = x.astype(kernels.sum_dtype(x.dtype))
    variance = var(values, dim=dim, keepdim=keepdim, correction=correction)
    return namespace(x).sqrt(variance).astype(x.dtype)


@std.vjp("x")
def dx(grad, x, out, shape, dim, correction):
    grad, out = (reshape(a, target=reduced_shape(shape, dim)) for a in (grad, out))
    slope = over_length(div(centred(x, dim), degrees_of_freedom(shape, dim, correction)), out)
    return slope * grad


def centred(x: Any, dim: Dims) -> Any:
    """x less its mean, in `sum_dtype`, because it may be twice the largest number of the dtype."""
    x = cast(x, dtype=kernels.sum_dtype(x.dtype))
    return x - mean(x, dim=dim, keepdim=True)


def over_length(x: Any, length: Any) -> Any:
    """x / length, and 0 where the length is 0: the slope of a length, which has a kink there.

    Its own derivative there is NaN, as in PyTorch, because no number would be right.
    """
    return where(equal(length, 0), 0.0, div(x, length))


@op
def norm(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    """The root of the sum of squares. The gradient at 0 is 0, and its derivative there NaN."""
    return namespace(x).sqrt(kernels.reduce_sum(x * x, dim, keepdim))


@norm.vjp("x")
def dx(grad, x, out, shape, dim):
    grad, out = (reshape(a, target=reduced_shape(shape, dim)) for a in (grad, out))
    return grad * over_length(x, out)


@op
def max(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return x.max(axis=dim, keepdims=keepdim)


@op
def min(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return x.min(axis=dim, keepdims=keepdim)


@max.vjp("x")
@min.vjp("x")
def dx(grad, x, out, shape, dim):
    # Elements that tie share the gradient equally.
    ties = equal(x, reshape(out, target=reduced_shape(shape, dim)))
    grad = where(ties, reshape(grad, target=reduced_shape(shape, dim)), 0.0)
    return div(grad, sum(ties, dim=dim, keepdim=True))


@op(differentiable=False)
def argmax(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return x.argmax(axis=single_axis("argmax", dim), keepdims=keepdim)


@op(differentiable=False)
def argmin(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return x.argmin(axis=single_axis("argmin", dim), keepdims=keepdim)


def single_axis(name: str, dim: Dims) -> int | None:
    """The only dimension, or None for all elements."""
    if dim is not None and len(dim) != 1:
        raise ShapeError(f"{name} takes one dimension, or None for all elements, got {dim}")
    return None if dim is None else dim[0]


@op(differentiable=False)
def any(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return x.any(axis=dim, keepdims=keepdim)


@op(differentiable=False)
def all(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return x.all(axis=dim, keepdims=keepdim)
