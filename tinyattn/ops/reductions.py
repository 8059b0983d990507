"""Sums, means, variances, lengths and products over one dimension, several, or all.

NumPy's names `axis` and `keepdims` work too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base import checks
from ..base.backend import Array, converted, in_c_order, is_array, namespace
from ..base.checks import Dims, DTypeLike
from ..engine.autograd import AnyTensor
from ..engine.op import op
from ..kernels import sums, with_kernels
from ..kernels.sums import sum_dtype
from .arguments import of_tensors
from .arithmetic import cast, div, eq, mul, where
from .elementwise import abs
from .shapes import concatenate, expand, pieces, reshape, squeeze


def reduced_shape(shape: tuple[int, ...], dim: Dims) -> tuple[int, ...]:
    """`shape` after a reduction over `dim` with keepdim=True."""
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    if dim is None or not dims or not shape:
        return (1,) * len(shape)
    reduced = {i % len(shape) for i in dims}
    return tuple(1 if i in reduced else n for i, n in enumerate(shape))


def with_ones(x: Any, shape: tuple[int, ...], dim: Dims) -> Any:
    """The result of a reduction of `shape` over `dim`, with keepdim=True."""
    return reshape(x, reduced_shape(shape, dim))


def count(shape: tuple[int, ...], dim: Dims) -> int:
    """How many elements a reduction of `shape` over `dim` makes one of."""
    return math.prod(n for n, m in zip(shape, reduced_shape(shape, dim), strict=True) if m == 1)


def in_dtype(x: Array, dtype: DTypeLike) -> Array:
    """The array in this dtype; as it is if none is asked for."""
    return x if dtype is None else converted(x, checks.checked_dtype(dtype))


@op
def sum(
    x: AnyTensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
    **numpy_names: Dims,
) -> AnyTensor:
    """Sum over one dimension, several, or all, in `dtype`."""
    total = sums.reduce_sum(in_dtype(x, dtype), checks.dims_of(x, dim, keepdim), bool(keepdim))
    return in_dtype(total, dtype)


@sum.vjp("x")
def dx(grad, shape, dim):
    return expand(with_ones(grad, shape, dim), shape)


@op
def mean(x: AnyTensor, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> AnyTensor:
    """Mean over one dimension, several, or all."""
    checks.require_float(x.dtype, "mean")
    return sums.reduce_sum(x, checks.dims_of(x, dim, keepdim), bool(keepdim), mean=True)


@mean.vjp("x")
def dx(grad, shape, dim):
    return expand(with_ones(div(grad, float(count(shape, dim))), shape, dim), shape)


# Below, arrays are changed in place, because memory that is used for the first time costs as much
# as the arithmetic. Tensors get new nodes.


@op
def var(
    x: AnyTensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: int | None = None,
    **numpy_names: Dims,
) -> AnyTensor:
    """Variance: the squares are divided by n - 1 as in PyTorch, or by n if not `unbiased`.

    correction: an integer to subtract from n instead.
    """
    checks.require_float(x.dtype, "var")
    degrees = degrees_of_freedom(x.shape, dim, unbiased, correction)
    return variance(x, dim, keepdim, degrees).astype(x.dtype)


@var.vjp("x")
def dx(grad, x, shape, dim, unbiased, correction):
    degrees = degrees_of_freedom(shape, dim, unbiased, correction)
    grad = cast(with_ones(grad, shape, dim), sum_dtype(x.dtype))
    return scaled_distances(x, div(grad, degrees / 2), dim)


@op
def std(
    x: AnyTensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: int | None = None,
    **numpy_names: Dims,
) -> AnyTensor:
    """The root of `var`; its gradient is 0 if the root is 0, as in PyTorch."""
    checks.require_float(x.dtype, "std")
    degrees = degrees_of_freedom(x.shape, dim, unbiased, correction)
    return namespace(x).sqrt(variance(x, dim, keepdim, degrees)).astype(x.dtype)


@std.vjp("x")
def dx(grad, x, out, shape, dim, unbiased, correction):
    grad, out = (cast(with_ones(a, shape, dim), sum_dtype(x.dtype)) for a in (grad, out))
    factor = div(grad, degrees_of_freedom(shape, dim, unbiased, correction))
    if is_array(x):
        return scaled_distances(x, over_length(factor, out), dim)
    return over_length(centred(x, dim), out) * factor


def over_length(x: Any, length: Any) -> Any:
    """x / length, and 0 where the length is 0, because a length has a kink there.

    A recorded rule divides what has the length, so that its own derivative at 0 is NaN, because no
    number would be right. PyTorch gives NaN for a norm, and 0 for a std. A rule on arrays divides
    the gradient, which is smaller.
    """
    return where(eq(length, 0), 0.0, div(x, length))


def degrees_of_freedom(
    shape: tuple[int, ...], dim: Dims, unbiased: bool, correction: int | None
) -> float:
    """n - correction, or 0 if that is negative: dividing by 0 gives NaN or inf, as in PyTorch."""
    if correction is None:
        correction = int(unbiased)
    number = count(shape, dim) - checks.check_size("correction", correction, 0)
    return float(number) if number > 0 else 0.0


def variance(x: Array, dim: Dims, keepdim: bool, degrees: float) -> Array:
    """In `sum_dtype`."""
    values = centred(in_c_order(x), dim)
    if x.dtype == np.float64:  # so that equal numbers give 0, though their mean is rounded
        values -= mean(values, dim, True)
    values *= values
    total = values.sum(axis=checks.dims_of(x, dim, keepdim), keepdims=bool(keepdim))
    return namespace(x).divide(total, degrees)


def centred(x: Any, dim: Dims) -> Any:
    """x - mean(x), in new memory and in `sum_dtype`, because a difference may be twice the largest
    number of the dtype."""
    x = cast(x, sum_dtype(x.dtype))
    x -= mean(x, dim, True)
    return x


@with_kernels(cpu="lines.scaled_distances")
def scaled_distances(x: Any, factor: Any, dim: Dims) -> Any:
    """(x - mean(x)) * factor, for a factor that has the size 1 along `dim`."""
    distances = centred(x, dim)
    distances *= factor
    return distances


@of_tensors
def norm(
    x: AnyTensor, p: float | str = "fro", dim: Dims = None, keepdim: bool = False
) -> AnyTensor:
    """The length of vectors: p=2 (or "fro") sqrt(sum(x * x)), p=1 sum(|x|), p=inf max(|x|).

    The gradient is 0 at 0, and derivatives of second order are NaN there, as in PyTorch: for
    those of the square write (x * x).sum(). Differs from PyTorch: another p is a ValueError.
    """
    checks.require_float(x.dtype, "norm")
    if p == math.inf:
        return abs(x).amax(dim, keepdim)
    if p == 1:
        return sum(abs(x), dim, keepdim)
    if p not in ("fro", 2):
        raise ValueError(f'norm takes p=1, 2, float("inf") or "fro" (as 2), got {p!r}')
    return euclidean_norm(x, dim, keepdim)


@op
def euclidean_norm(x: AnyTensor, dim: Dims = None, keepdim: bool = False) -> AnyTensor:
    """The root of the sum of squares. The gradient at 0 is 0, and its derivative there NaN."""
    dims = checks.dims_of(x, dim, keepdim) or tuple(range(x.ndim))
    kept = [i for i in range(x.ndim) if i not in dims]
    sizes = [x.shape[i] for i in kept]
    rows = x.transpose(*kept, *dims).reshape(math.prod(sizes), math.prod(x.shape[i] for i in dims))
    lengths = namespace(x).sqrt(sum_squares(rows)).astype(x.dtype)
    return lengths.reshape(reduced_shape(x.shape, dims) if keepdim else sizes)


@euclidean_norm.vjp("x")
def dx(grad, x, shape, dim):
    wide, grad = cast(x, np.dtype(np.float64)), with_ones(grad, shape, dim)
    length = euclidean_norm(wide, dim, True)
    if is_array(x):
        wide *= over_length(grad, length)
        return wide
    return over_length(wide, length) * grad


@with_kernels(cpu="sums.sum_squares")
def sum_squares(x: Array) -> Array:
    """(N, D) -> (N,), in float64, because a float16 overflows at 256."""
    squares = x.astype(np.float64, order="C")
    squares *= squares
    return squares.sum(axis=-1)


@op
def cumsum(x: AnyTensor, dim: int, *, dtype: DTypeLike = None, reverse: bool = False) -> AnyTensor:
    """out_i = x_0 + ... + x_i along `dim`, in `dtype`; float32 is added up in float64.

    reverse: from the end, out_i = x_i + ... + x_n.
    """
    if not x.ndim:
        return cumsum(x.reshape(1), dim, dtype=dtype).reshape(())
    return in_dtype(running_sum(in_dtype(x, dtype), checks.one_dim(x, dim), reverse), dtype)


@cumsum.vjp("x")
def dx(grad, dim, reverse):
    return cumsum(grad, dim, reverse=not reverse)


@with_kernels(cpu="lines.running_sum")
def running_sum(x: Array, axis: int, reverse: bool) -> Array:
    order = (slice(None),) * axis + (slice(None, None, -1 if reverse else 1),)
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
    total = namespace(x).cumsum(in_c_order(x[order]), axis=axis, dtype=sum_dtype(dtype))
    return total[order].astype(dtype)


@of_tensors
def prod(
    x: AnyTensor, dim: int | None = None, keepdim: bool = False, *, dtype: DTypeLike = None
) -> AnyTensor:
    """The product over one dimension, or over all, in `dtype`."""
    checks.check_keepdim(keepdim)
    if dtype is not None:
        return prod(x.to(dtype), dim, keepdim).to(dtype)
    x = x if x.dtype.kind == "f" else x.to(np.int64)
    if dim is None or not x.ndim:
        return reshape(product_along(reshape(x, -1), 0), (1,) * x.ndim if keepdim else ())
    product = product_along(x, checks.one_dim(x, dim))
    return product if keepdim else squeeze(product, dim)


@op
def product_along(x: AnyTensor, dim: int) -> AnyTensor:
    """The product along `dim`, whose size becomes 1; that of no numbers is 1."""
    return products(x, dim).astype(x.dtype)


@product_along.vjp("x")
def dx(grad, x, dim):
    if is_array(x) and x.dtype == np.float32:  # whose products have room in float64
        product = products(x, dim)
        size = namespace(x).abs(product)
        if ((size > 1e-250) & (size < 1e250)).all():  # so no x is 0
            return product / x * grad
    levels = product_by_halves(x, dim)
    for level in reversed(levels[:-1]):
        n = level.shape[dim]
        first, second, _ = pieces(level, [n // 2, n // 2, n % 2], dim)
        of_product, of_rest = pieces(grad, [n // 2, n % 2], dim)
        grad = concatenate(mul(of_product, second), mul(of_product, first), of_rest, dim=dim)
    return grad if x.shape[dim] else x * 0


@with_kernels(cpu="lines.products")
def products(x: Array, dim: int) -> Array:
    return product_by_halves(x, dim)[-1] if x.shape[dim] else x.sum(dim, keepdims=True) + 1


def product_by_halves(x: Any, dim: int) -> list[Any]:
    """x, then one half of it times the other half, and so on until one number is left.

    In `sum_dtype`, because a part may overflow where the whole does not. Nothing is divided by x,
    so derivatives of every order are right at 0 too.
    """
    levels = [cast(x, sum_dtype(x.dtype))]
    while (n := levels[-1].shape[dim]) > 1:
        first, second, rest = pieces(levels[-1], [n // 2, n // 2, n % 2], dim)
        levels.append(concatenate(mul(first, second), rest, dim=dim))
    return levels


@op(differentiable=False)
def any(x: AnyTensor, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> AnyTensor:
    """True where any element along `dim` is not 0. Differs from PyTorch: of uint8 too."""
    return x.any(axis=checks.dims_of(x, dim, keepdim), keepdims=bool(keepdim))


@op(differentiable=False)
def all(x: AnyTensor, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> AnyTensor:
    """True where all elements along `dim` are not 0. Differs from PyTorch: of uint8 too."""
    return x.all(axis=checks.dims_of(x, dim, keepdim), keepdims=bool(keepdim))
