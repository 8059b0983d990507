"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

from .. import kernels
from ..base.backend import Array
from ..base.checks import refuse_foreign
from ..engine.autograd import TensorBase
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from ..kernels import in_order, matrix_product
from .shape import expand, permute, reshape

# Rules run on arrays or on Tensors. Arrays go to BLAS without a copy, because it takes transposed
# matrices; Tensors go through ops, because these are recorded.


def swap(x: Any) -> Any:
    """x with its last two dimensions exchanged."""
    if not isinstance(x, TensorBase.tensor_class):
        return x.swapaxes(-1, -2)
    return permute(x, dims=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def rows(x: Any) -> Any:
    """All leading dimensions merged into one: (..., D) -> (N, D)."""
    if x.ndim == 2:
        return x
    shape = (math.prod(x.shape[:-1]), x.shape[-1])
    return reshape(x, target=shape) if isinstance(x, TensorBase) else x.reshape(shape)


def multiply(x: Any, y: Any) -> Any:
    return matmul(x, y) if isinstance(x, TensorBase) else matrix_product(x, y)


def product(x: Any, y: Any) -> Any:
    """x @ y by NumPy's rules: a vector x is one row, a vector y one column."""
    if not (hasattr(x, "dtype") and hasattr(y, "dtype")) or not x.ndim or not y.ndim:
        raise ShapeError("matmul takes arrays of at least one dimension; use * for numbers")
    if x.ndim > 1 and y.ndim > 1:
        return matmul(x, y)
    check_product(x, y)
    matrix_x = reshape(x, target=(1, *x.shape)) if x.ndim == 1 else x
    matrix_y = reshape(y, target=(*y.shape, 1)) if y.ndim == 1 else y
    out = matmul(matrix_x, matrix_y)
    shape = list(out.shape)
    if y.ndim == 1:
        del shape[-1]
    if x.ndim == 1:
        del shape[len(out.shape) - 2]
    return reshape(out, target=tuple(shape))


def check_product(x: Array, y: Array) -> None:
    inner = y.shape[-2] if y.ndim > 1 else y.shape[0]
    if x.shape[-1] != inner:
        raise ShapeError(
            f"matmul: the last dimension of {x.shape} must equal the "
            f"{'second last' if y.ndim > 1 else 'only'} dimension of {y.shape}"
        )
    if x.dtype != y.dtype:
        refuse_foreign("matmul", [getattr(a, "_data", a) for a in (x, y)])
        raise DtypeError(f"matmul takes one dtype, got {x.dtype} and {y.dtype}: use .to(dtype)")


@op
def matmul(x: Array, y: Array) -> Array:
    """Products of matrices, and of stacks of matrices: (..., N, K), (..., K, M) -> (..., N, M)."""
    check_product(x, y)
    x, y = in_order(x), in_order(y)
    if x.ndim > 2 and y.ndim == 2:  # because one large product is faster than many small ones
        return matrix_product(rows(x), y).reshape(*x.shape[:-1], y.shape[-1])
    return matrix_product(x, y)


@matmul.vjp("x")
def dx(grad, y):
    return multiply(in_order(grad), swap(in_order(y)))


@matmul.vjp("y")
def dy(grad, x, shapes):
    grad, x = in_order(grad), in_order(x)
    if len(shapes[1]) == 2:  # all matrices of x used one y: one product sums over them too
        return multiply(swap(rows(x)), rows(grad))
    return multiply(swap(x), grad)


@op
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x @ weight.T + bias, for x (..., in), weight (out, in), bias (out,)."""
    # A weight in column order (models/bert.py) is not copied, because BLAS is faster with it.
    transposed = weight.T if weight.T.flags.c_contiguous else in_order(weight).T
    out = matrix_product(rows(in_order(x)), transposed)
    if bias is not None:
        kernels.add_bias(out, bias)
    return out.reshape(*x.shape[:-1], weight.shape[0])


@linear.vjp("x")
def dx(grad, weight):
    gradient = multiply(rows(in_order(grad)), in_order(weight))
    return reshape(gradient, target=(*grad.shape[:-1], weight.shape[1]))


@linear.vjp("weight")
def dweight(grad, x):
    return multiply(swap(rows(in_order(grad))), rows(in_order(x)))


@linear.vjp("bias")
def dbias(grad):
    return sum_rows(rows(in_order(grad)))


@op
def sum_rows(x: Array) -> Array:
    """(N, D) -> (D,): the gradient of a bias."""
    return kernels.sum_rows(x)


@sum_rows.vjp("x")
def dx(grad, shape):
    return expand(grad, target=shape)
