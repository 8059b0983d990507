"""Sums, means, variances, extremes.

`dim` is a tuple of checked dimensions here, or None for all of them.
"""

from __future__ import annotations

import math
from typing import Any

from .. import kernels
from ..backend import Array, namespace
from ..op import op
from .elementwise import div, equal, where
from .shape import expand, reshape

Dims = tuple[int, ...] | None


def kept(shape: tuple[int, ...], dim: Dims) -> tuple[int, ...]:
    """`shape` after a reduction that keeps its dimensions."""
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
    return expand(reshape(grad, target=kept(shape, dim)), target=shape)


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
    grad = reshape(grad, target=kept(shape, dim))
    return expand(div(grad, count(shape, dim)), target=shape)


@op
def var(x: Array, *, dim: Dims, keepdim: bool = False, correction: int = 1) -> Array:
    """Sum of squared distances from the mean, over n - correction."""
    wide = x.astype(kernels.wide(x.dtype), order="C")
    centred = wide - kernels.reduce_sum(wide, dim, True, mean=True)
    total = (centred * centred).sum(axis=dim, keepdims=keepdim)
    degrees = count(x.shape, dim) - correction
    # No degrees of freedom gives NaN (0/0) or inf, as in PyTorch.
    return namespace(x).divide(total, max_zero(degrees)).astype(x.dtype)


@op
def std(x: Array, *, dim: Dims, keepdim: bool = False, correction: int = 1) -> Array:
    """The root of the variance."""
    wide_x = x.astype(kernels.wide(x.dtype))
    return (
        namespace(x)
        .sqrt(var(wide_x, dim=dim, keepdim=keepdim, correction=correction))
        .astype(x.dtype)
    )


@std.vjp("x")
def dx(grad, x, out, shape, dim, correction):
    grad, out = (reshape(a, target=kept(shape, dim)) for a in (grad, out))
    slope = where(equal(out, 0), 0.0, div(grad, out))
    centred = x - mean(x, dim=dim, keepdim=True)
    return div(slope, max_zero(count(shape, dim) - correction)) * centred


def max_zero(number: int) -> float:
    return float(number) if number > 0 else 0.0


@var.vjp("x")
def dx(grad, x, shape, dim, correction):
    grad = reshape(grad, target=kept(shape, dim))
    centred = x - mean(x, dim=dim, keepdim=True)
    return div(grad * 2, max_zero(count(shape, dim) - correction)) * centred


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
    ties = equal(x, reshape(out, target=kept(shape, dim)))
    grad = where(ties, reshape(grad, target=kept(shape, dim)), 0.0)
    return div(grad, sum(ties, dim=dim, keepdim=True))


@op(differentiable=False)
def argmax(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return along_one(x.argmax, dim, keepdim)


@op(differentiable=False)
def argmin(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return along_one(x.argmin, dim, keepdim)


def along_one(method: Any, dim: Dims, keepdim: bool) -> Array:
    """`method` over one dimension, or over the flattened array."""
    return method(axis=dim[0] if dim else None, keepdims=keepdim)


@op(differentiable=False)
def any(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return x.any(axis=dim, keepdims=keepdim)


@op(differentiable=False)
def all(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    return x.all(axis=dim, keepdims=keepdim)
