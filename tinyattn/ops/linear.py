"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

from .. import kernels
from ..autograd import TensorBase
from ..backend import Array
from ..errors import DtypeError, ShapeError
from ..kernels import in_order, matrix_product
from ..op import op
from .reduction import sum_to
from .shape import expand, permute, reshape

# Rules run on arrays or on Tensors. For arrays the array's own method saves the way through an op.


def swap(x: Any) -> Any:
    """The last two dimensions exchanged."""
    if not isinstance(x, TensorBase.full):
        return x.swapaxes(-1, -2)
    return permute(x, dims=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def rows(x: Any) -> Any:
    """All leading dimensions merged into one: (..., D) -> (N, D)."""
    if not isinstance(x, TensorBase.full):
        return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return reshape(x, target=(math.prod(x.shape[:-1]), x.shape[-1]))


@op
def matmul(x: Array, y: Array) -> Array:
    """Products of vectors, matrices and stacks of matrices, by NumPy's and PyTorch's rules."""
    two = type(x) is type(y) and x.ndim == y.ndim == 2
    if two and x.dtype is y.dtype and x.shape[1] == y.shape[0]:  # by far the most frequent
        return matrix_product(in_order(x), in_order(y))
    if not (hasattr(x, "dtype") and hasattr(y, "dtype")) or not x.ndim or not y.ndim:
        raise ShapeError("matmul takes arrays of at least one dimension; use * for numbers")
    inner = y.shape[-2] if y.ndim > 1 else y.shape[0]
    if x.shape[-1] != inner:
        raise ShapeError(
            f"matmul: the last dimension of {x.shape} must equal the "
            f"{'second last' if y.ndim > 1 else 'only'} dimension of {y.shape}"
        )
    if x.dtype != y.dtype:
        raise DtypeError(f"matmul takes one dtype, got {x.dtype} and {y.dtype}: use .to(dtype)")
    x, y = in_order(x), in_order(y)
    if x.ndim > 2 and y.ndim == 2:  # one large product is faster than a stack of small ones
        return matrix_product(rows(x), y).reshape(*x.shape[:-1], y.shape[-1])
    return matrix_product(x, y)


def times(x: Any, y: Any) -> Any:
    """x @ y in a derivative. Arrays go to BLAS as they lie: it takes a transpose without a copy."""
    return matmul(x, y) if isinstance(x, TensorBase) else matrix_product(x, y)


def as_matrices(grad: Any, shapes: list[tuple[int, ...]]) -> Any:
    """The gradient with the dimensions put back that a vector argument made disappear."""
    x_shape, y_shape = shapes
    shape = list(grad.shape)
    if len(y_shape) == 1:
        shape.append(1)
    if len(x_shape) == 1:
        shape.insert(len(shape) - 1, 1)
    return reshape(grad, target=tuple(shape))


@matmul.vjp("x")
def dx(grad, y, shapes):
    y = in_order(y)
    y = reshape(y, target=(*y.shape, 1)) if y.ndim == 1 else y
    product = times(as_matrices(in_order(grad), shapes), swap(y))
    if len(shapes[0]) > 1:
        return product
    return reshape(sum_to(product, target=(1, *shapes[0])), target=shapes[0])


@matmul.vjp("y")
def dy(grad, x, shapes):
    grad, x = as_matrices(in_order(grad), shapes), in_order(x)
    if x.ndim == 1:
        x = reshape(x, target=(1, *x.shape))
    if len(shapes[1]) <= 2:  # shared by the whole stack: one product sums over it as well
        product = times(swap(rows(x)), rows(grad))
    else:
        product = times(swap(x), grad)
    return product if len(shapes[1]) > 1 else reshape(product, target=shapes[1])


@op
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x @ weight.T + bias, for x (..., in), weight (out, in), bias (out,)."""
    out = matrix_product(rows(in_order(x)), in_order(weight).T)
    if bias is not None:
        kernels.add_bias(out, bias)
    return out.reshape(*x.shape[:-1], weight.shape[0])


@linear.vjp("x")
def dx(grad, weight):
    product = times(rows(in_order(grad)), in_order(weight))
    return reshape(product, target=(*grad.shape[:-1], weight.shape[1]))


@linear.vjp("weight")
def dweight(grad, x):
    return times(swap(rows(in_order(grad))), rows(in_order(x)))


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
