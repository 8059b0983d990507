"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

from .. import kernels
from ..base.backend import Array
from ..base.checks import check_one_dtype, require_float
from ..engine.autograd import TensorBase
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from ..kernels import in_c_order, matrix_product
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


def as_row(x: Any) -> Any:
    """Each vector as a matrix of one row: (..., K) -> (..., 1, K)."""
    return reshape(x, target=(*x.shape[:-1], 1, x.shape[-1]))


def as_column(x: Any) -> Any:
    """Each vector as a matrix of one column: (..., K) -> (..., K, 1)."""
    return reshape(x, target=(*x.shape, 1))


def product(x: Any, y: Any) -> Any:
    """The matrix product of two arrays, or of two Tensors."""
    return matmul(x, y) if isinstance(x, TensorBase) else matrix_product(x, y)


@op
def matmul(x: Array, y: Array) -> Array:
    """x @ y by NumPy's rules: (..., N, K), (..., K, M) -> (..., N, M).

    The leading dimensions broadcast. A vector x (K,) is one row and a vector y (K,) one column; the
    result lacks the dimension N or M then.
    """
    check_product(x, y)
    if y.ndim == 1:
        return matmul(x, as_column(y))[..., 0]
    if x.ndim == 1:
        return matmul(as_row(x), y)[..., 0, :]
    x = in_c_order(x)
    if not (y.ndim == 2 and y.T.flags.c_contiguous):  # BLAS takes the transpose of a matrix
        y = in_c_order(y)
    if x.ndim > 2 and y.ndim == 2:  # because one large product is faster than many small ones
        return matrix_product(rows(x), y).reshape(*x.shape[:-1], y.shape[-1])
    return matrix_product(x, y)


def check_product(x: Any, y: Any) -> None:
    if not getattr(x, "ndim", 0) or not getattr(y, "ndim", 0):
        raise ShapeError("matmul takes arrays of at least one dimension; use * for numbers")
    if x.shape[-1] != y.shape[max(y.ndim - 2, 0)]:
        raise ShapeError(
            f"matmul: the last dimension of {x.shape} must equal the "
            f"{'second last' if y.ndim > 1 else 'only'} dimension of {y.shape}"
        )
    if x.dtype != y.dtype:
        raise DtypeError(f"matmul takes one dtype, got {x.dtype} and {y.dtype}: use .to(dtype)")


# The rules restore the dimensions that out lacks because x or y was a vector.


@matmul.vjp("x")
def dx(grad, y):
    if y.ndim == 1:
        grad, y = as_column(grad), as_column(y)
    if grad.ndim < y.ndim:  # x was a vector
        grad = as_row(grad)
    return product(in_c_order(grad), swap(in_c_order(y)))


@matmul.vjp("y")
def dy(grad, x, shapes):
    if len(shapes[1]) == 1:
        grad = as_column(grad)
    if x.ndim == 1:
        grad, x = as_row(grad), as_row(x)
    grad, x = in_c_order(grad), in_c_order(x)
    if len(shapes[1]) > 2:
        return product(swap(x), grad)
    # All matrices of x used one y: one product sums over them too.
    gradient = product(swap(rows(x)), rows(grad))
    return reshape(gradient, target=shapes[1]) if len(shapes[1]) == 1 else gradient


@op
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x weight^T + bias: x (..., in), weight (out, in), bias (out,) -> (..., out).

    Raises ShapeError if the sizes do not agree, DtypeError and DeviceError if dtypes or devices
    differ.

    >>> F.linear(ta.tensor([1.0, 2.0]), weight=ta.tensor([[1.0, 1.0], [0.0, 3.0]]))
    tensor([3., 6.])
    """
    require_float(x.dtype, "x")
    check_one_dtype("linear", x=x, weight=weight, bias=bias)
    if weight.ndim != 2:
        raise ShapeError(f"linear: weight is (out, in), got shape {weight.shape}")
    if not x.ndim or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: weight {weight.shape} takes inputs whose last dimension is "
            f"{weight.shape[1]}, got shape {x.shape}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"linear: bias must have shape {weight.shape[:1]}, got {bias.shape}")
    # A weight in column order (models/bert.py) is not copied, because BLAS is faster with it.
    transposed = weight.T if weight.T.flags.c_contiguous else in_c_order(weight).T
    # On the CPU float16 is rounded when the bias is in it, because the product may overflow.
    out = matrix_product(rows(in_c_order(x)), transposed, rounded=bias is None)
    if bias is not None:
        kernels.add_bias(out, bias.astype(out.dtype, copy=False))
    return out.reshape(*x.shape[:-1], weight.shape[0]).astype(x.dtype, copy=False)


@linear.vjp("x")
def dx(grad, weight):
    gradient = product(rows(in_c_order(grad)), in_c_order(weight))
    return reshape(gradient, target=(*grad.shape[:-1], weight.shape[1]))


@linear.vjp("weight")
def dweight(grad, x):
    return product(swap(rows(in_c_order(grad))), rows(in_c_order(x)))


@linear.vjp("bias")
def dbias(grad):
    return sum_rows(rows(in_c_order(grad)))


@op
def sum_rows(x: Array) -> Array:
    """(N, D) -> (D,): the gradient of a bias."""
    return kernels.sum_rows(x)


@sum_rows.vjp("x")
def dx(grad, shape):
    return expand(grad, target=shape)
