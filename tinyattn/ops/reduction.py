"""Sums, means, variances, extremes.

Here `dim` is a tuple of checked dimensions, or None for all of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import kernels
from ..base.backend import Array, is_array, namespace
from ..engine.op import op
from ..errors import ShapeError
from ..kernels import in_c_order
from .elementwise import cast, div, equal, where
from .shape import cat, expand, pieces, reshape

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
    return kernels.cumsum(x, dim, reverse)


@cumsum.vjp("x")
def dx(grad, dim, reverse):
    return cumsum(grad, dim=dim, reverse=not reverse)


def degrees_of_freedom(shape: tuple[int, ...], dim: Dims, correction: int) -> float:
    """n - correction, or 0 if that is negative: dividing by 0 gives NaN or inf, as in PyTorch."""
    number = count(shape, dim) - correction
    return float(number) if number > 0 else 0.0


# Below, arrays are changed in place, because memory that is used for the first time costs as much
# as the arithmetic. Tensors get new nodes.


@op
def var(x: Array, *, dim: Dims, keepdim: bool = False, correction: int = 1) -> Array:
    """Sum of squared distances from the mean, over n - correction."""
    return variance(x, dim, keepdim, correction).astype(x.dtype)


def variance(x: Array, dim: Dims, keepdim: bool, correction: int) -> Array:
    """In `sum_dtype`."""
    values = centred(in_c_order(x), dim)
    values *= values
    total = values.sum(axis=dim, keepdims=keepdim)
    return namespace(x).divide(total, degrees_of_freedom(x.shape, dim, correction))


@var.vjp("x")
def dx(grad, x, shape, dim, correction):
    grad = cast(reshape(grad, target=reduced_shape(shape, dim)), dtype=kernels.sum_dtype(x.dtype))
    return distances(x, dim, div(grad, degrees_of_freedom(shape, dim, correction) / 2))


def distances(x: Any, dim: Dims, factor: Any) -> Any:
    """(x - mean) * factor, an array or a Tensor, computed in `sum_dtype`."""
    if is_array(x) and x.size:
        return kernels.scaled_distances(x, kernels.wide_mean(in_c_order(x), dim), factor)
    return centred(x, dim) * factor


@op
def std(x: Array, *, dim: Dims, keepdim: bool = False, correction: int = 1) -> Array:
    """The root of the variance."""
    return namespace(x).sqrt(variance(x, dim, keepdim, correction)).astype(x.dtype)


@std.vjp("x")
def dx(grad, x, out, shape, dim, correction):
    wide = kernels.sum_dtype(x.dtype)
    grad, out = (
        cast(reshape(a, target=reduced_shape(shape, dim)), dtype=wide) for a in (grad, out)
    )
    factor = div(grad, degrees_of_freedom(shape, dim, correction))
    if is_array(x):
        return distances(x, dim, where(equal(out, 0), 0.0, div(factor, out)))
    return over_length(centred(x, dim), out, factor)


def centred(x: Any, dim: Dims) -> Any:
    """x less its mean, in new memory, and in `sum_dtype`, because it may be twice the largest
    number of the dtype."""
    x = cast(x, dtype=kernels.sum_dtype(x.dtype))
    x -= mean(x, dim=dim, keepdim=True)
    return x


def over_length(x: Any, length: Any, grad: Any) -> Any:
    """x / length * grad, and 0 where the length is 0: the slope of a length, which has a kink at 0.

    Its own derivative there is NaN, as in PyTorch, because no number would be right. An array x is
    changed in place.
    """
    grad, length = cast(grad, dtype=x.dtype), cast(length, dtype=x.dtype)
    if is_array(x):
        x *= where(equal(length, 0), 0.0, div(grad, length))
        return x
    return where(equal(length, 0), 0.0, div(x, length)) * grad


@op
def norm(x: Array, *, dim: Dims, keepdim: bool = False) -> Array:
    """The root of the sum of squares. The gradient at 0 is 0, and its derivative there NaN."""
    dims = tuple(range(x.ndim)) if dim is None else dim
    kept = [i for i in range(x.ndim) if i not in dims]
    rows = x.transpose(*kept, *dims).reshape(count(x.shape, tuple(kept)), count(x.shape, dim))
    lengths = namespace(x).sqrt(kernels.sum_squares(rows)).astype(x.dtype)
    return lengths.reshape(reduced_shape(x.shape, dim) if keepdim else [x.shape[i] for i in kept])


@norm.vjp("x")
def dx(grad, x, shape, dim):
    wide = cast(x, dtype=np.dtype(np.float64))
    length = norm(wide, dim=dim, keepdim=True)
    return over_length(wide, length, reshape(grad, target=reduced_shape(shape, dim)))


@op
def prod(x: Array, *, dim: int) -> Array:
    """The product along `dim`, whose size becomes 1."""
    lines = namespace(x).moveaxis(x, dim, -1)
    rows = lines.reshape(math.prod(lines.shape[:-1]), x.shape[dim])
    return kernels.multiply_rows(rows).astype(x.dtype).reshape(reduced_shape(x.shape, (dim,)))


@prod.vjp("x")
def dx(grad, x, dim):
    if not x.shape[dim]:
        return x * 0
    if type(x) is np.ndarray and x.dtype == np.float32:
        lines = np.moveaxis(x, dim, -1)
        products = kernels.multiply_rows(lines.reshape(-1, x.shape[dim]))
        sizes = np.abs(products)
        # So no x is 0, and no product has lost digits near the ends of float64.
        if ((sizes > 1e-250) & (sizes < 1e250)).all():
            return np.expand_dims(products.reshape(lines.shape[:-1]), dim) * grad / x
    # Nothing is divided by x here, so derivatives of every order are right at 0 too.
    levels = [cast(x, dtype=kernels.sum_dtype(x.dtype))]
    while levels[-1].shape[dim] > 1:
        first, second, rest = halves(levels[-1], dim)
        product = first * second
        levels.append(cat(product, rest, dim=dim) if rest.shape[dim] else product)
    for level in reversed(levels[:-1]):
        first, second, rest = halves(level, dim)
        of_product, of_rest = pieces(grad, [first.shape[dim], rest.shape[dim]], dim)
        grad = cat(of_product * second, of_product * first, of_rest, dim=dim)
    return grad


def halves(x: Any, dim: int) -> list[Any]:
    """Two halves along `dim`, and what is left over."""
    n = x.shape[dim]
    return pieces(x, [n // 2, n // 2, n % 2], dim)


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
    number = sum(cast(ties, dtype=np.promote_types(grad.dtype, np.float32)), dim=dim, keepdim=True)
    grad = where(ties, reshape(grad, target=reduced_shape(shape, dim)), 0.0)
    return div(grad, number)


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
