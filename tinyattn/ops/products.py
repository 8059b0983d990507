"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

from ..base.backend import Array, in_c_order, is_tensor
from ..base.checks import check_one_dtype_and_device, require_float
from ..engine.autograd import AnyTensor
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from ..kernels import with_kernels
from ..kernels.matmul import matrix_product
from ..kernels.sums import sum_dtype
from .arguments import Operand, any_tensor, of_tensors
from .arithmetic import mul
from .shapes import expand, transpose, unsqueeze

# Rules run on arrays or on Tensors. Arrays go to BLAS without a copy, because it takes transposed
# matrices; Tensors go through ops, because these are recorded.


def swap(x: Any) -> Any:
    """x with its last two dimensions exchanged."""
    return transpose(x, -2, -1) if is_tensor(x) else x.swapaxes(-1, -2)


def rows(x: Any) -> Any:
    """All leading dimensions merged into one: (..., D) -> (N, D)."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def as_row(x: Any) -> Any:
    """Each vector as a matrix of one row: (..., K) -> (..., 1, K)."""
    return x.reshape(*x.shape[:-1], 1, x.shape[-1])


def as_column(x: Any) -> Any:
    """Each vector as a matrix of one column: (..., K) -> (..., K, 1)."""
    return x.reshape(*x.shape, 1)


@op(promote=True)
def matmul(x: AnyTensor, y: Operand) -> AnyTensor:
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
    return matrix_product(in_c_order(grad), swap(in_c_order(y)))


@matmul.vjp("y")
def dy(grad, x, shapes):
    if len(shapes[1]) == 1:
        grad = as_column(grad)
    if x.ndim == 1:
        grad, x = as_row(grad), as_row(x)
    grad, x = in_c_order(grad), in_c_order(x)
    if len(shapes[1]) > 2:
        return matrix_product(swap(x), grad)
    # All matrices of x used one y: one product sums over them too.
    gradient = matrix_product(swap(rows(x)), rows(grad))
    return gradient.reshape(shapes[1]) if len(shapes[1]) == 1 else gradient


@op
def linear(x: AnyTensor, weight: AnyTensor, bias: AnyTensor | None = None) -> AnyTensor:
    """x weight^T + bias: x (..., in), weight (out, in), bias (out,) -> (..., out).

    Raises ShapeError if the sizes do not agree, DtypeError and DeviceError if dtypes or devices
    differ.

    >>> F.linear(ta.tensor([1.0, 2.0]), weight=ta.tensor([[1.0, 1.0], [0.0, 3.0]]))
    tensor([3., 6.])
    """
    check_arrays(x, weight, bias)
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
    transposed = weight.T if weight.flags.f_contiguous else in_c_order(weight).T
    # On the CPU float16 is rounded when the bias is in it, because the product may overflow.
    out = matrix_product(rows(in_c_order(x)), transposed, rounded=bias is None)
    if bias is not None:
        out += bias.astype(out.dtype, copy=False)
    return out.astype(x.dtype, copy=False).reshape(*x.shape[:-1], weight.shape[0])


def check_arrays(x: Array, weight: Array, bias: Array | None) -> None:
    """One dtype of floats, and one device, for all arguments of `linear`."""
    kind, dtype = type(weight), weight.dtype
    alike = type(x) is kind and (bias is None or (type(bias) is kind and bias.dtype is dtype))
    if not alike or x.dtype is not dtype or dtype.kind != "f":
        require_float(x.dtype, "x")
        check_one_dtype_and_device("linear", x=x, weight=weight, bias=bias)


@linear.vjp("x")
def dx(grad, weight):
    gradient = matrix_product(rows(in_c_order(grad)), in_c_order(weight))
    return gradient.reshape(*grad.shape[:-1], weight.shape[1])


@linear.vjp("weight")
def dweight(grad, x):
    return matrix_product(swap(rows(in_c_order(grad))), rows(in_c_order(x)))


@linear.vjp("bias")
def dbias(grad):
    return sum_rows(rows(in_c_order(grad)))


@op
def int8_linear(x: AnyTensor, numbers: Any, scale: Any) -> AnyTensor:
    """x (..., in) times the transpose of numbers * scale, (out, in) int8 and (out,): (..., out)."""
    if not x.ndim or x.shape[-1] != numbers.shape[1]:
        raise ShapeError(f"this layer takes (..., {numbers.shape[1]}), got {x.shape}")
    out = int8_product(in_c_order(rows(x)), numbers, scale.astype(x.dtype, copy=False))
    return out.reshape(*x.shape[:-1], len(scale))


@int8_linear.vjp("x")
def dx(grad, numbers, scale):
    numbers, scale = (x._data if is_tensor(x) else x for x in (numbers, scale))
    weight = (numbers * scale[:, None]).astype(grad.dtype, copy=False)
    gradient = matrix_product(rows(in_c_order(grad)), weight)
    return gradient.reshape(*grad.shape[:-1], weight.shape[1])


@with_kernels(cpu="few_rows.int8_product")
def int8_product(x: Array, numbers: Array, scale: Array) -> Array:
    """x (N, in) times the transpose of numbers * scale: (N, out)."""
    return matrix_product(x, numbers.astype(x.dtype).T) * scale


@op
@with_kernels(cpu="sums.sum_rows", cuda="sums.sum_rows")
def sum_rows(x: AnyTensor) -> AnyTensor:
    """(N, D) -> (D,): the gradient of a bias."""
    return in_c_order(x).sum(axis=0, dtype=sum_dtype(x.dtype)).astype(x.dtype)


@sum_rows.vjp("x")
def dx(grad, shape):
    return expand(grad, shape)


# Made of the ops above


@of_tensors
def bmm(x: AnyTensor, other: AnyTensor) -> AnyTensor:
    """Products of two stacks of as many matrices: (B, N, K), (B, K, M) -> (B, N, M)."""
    shapes = x.shape, any_tensor(other, "other").shape
    if [len(shape) for shape in shapes] != [3, 3] or shapes[0][0] != shapes[1][0]:
        raise ShapeError(f"bmm takes (B, N, K) and (B, K, M), got {shapes[0]} and {shapes[1]}")
    return matmul(x, other)


@of_tensors
def dot(x: AnyTensor, other: AnyTensor) -> AnyTensor:
    """The sum of x_i y_i: two vectors (N,) -> a 0-d tensor."""
    if any_tensor(other, "other").shape != x.shape or x.ndim != 1:
        raise ShapeError(f"dot takes two vectors (N,), got {x.shape} and {other.shape}")
    return matmul(x, other)


@of_tensors
def outer(x: AnyTensor, other: AnyTensor) -> AnyTensor:
    """x_i y_j for all i and j: (N,), (M,) -> (N, M)."""
    if any_tensor(other, "other").ndim != 1 or x.ndim != 1:
        raise ShapeError(f"outer takes (N,) and (M,), got {x.shape} and {other.shape}")
    return mul(unsqueeze(x, 1), other)
