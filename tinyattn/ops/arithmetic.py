"""Arithmetic, comparisons, logic, and a choice between two: operators of Tensors.

`x * y` is `mul(x, y)`. One of the two may be a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.backend import Function, device_of, in_c_order, is_array, namespace
from ..base.checks import as_array, refuse_foreign
from ..engine.autograd import AnyTensor
from ..engine.op import op
from ..engine.promotion import promoted
from ..errors import DtypeError
from ..kernels import cpu_kernel, with_kernels
from ..kernels.compiled import FORMULAS_ONLY
from ..kernels.range_checks import check_divisor
from ..kernels.sums import is_large
from .arguments import Operand


@op(promote=True)
def add(x: AnyTensor, y: Operand) -> AnyTensor:
    """x + y, element by element."""
    return x + y


@add.vjp("x", "y")
def dxy(grad):
    return grad, grad


@op(promote=True)
def sub(x: AnyTensor, y: Operand) -> AnyTensor:
    """x - y, element by element."""
    return x - y


@sub.vjp("x")
def dx(grad):
    return grad


@sub.vjp("y")
def dy(grad):
    return -grad


@op(promote=True)
def mul(x: AnyTensor, y: Operand) -> AnyTensor:
    """x * y, element by element."""
    return x * y


@mul.vjp("x")
def dx(grad, y):
    return grad * y


@mul.vjp("y")
def dy(grad, x):
    return grad * x


@op(promote=True)
def div(x: AnyTensor, y: Operand) -> AnyTensor:
    """x / y, element by element."""
    return x / y


# A quotient is a float: 256 divides bytes, which cannot hold it.
div.spec.must_fit = False


@div.vjp("x")
def dx(grad, y):
    return grad / y


@div.vjp("y")
def dy(grad, y, out):
    return -grad * (out / y)


@op
def neg(x: AnyTensor) -> AnyTensor:
    """-x."""
    return -x


@neg.vjp("x")
def dx(grad):
    return -grad


@op(promote=True)
def remainder(x: AnyTensor, y: Operand) -> AnyTensor:
    """x - y floor(x / y), with the sign of y, as % in Python."""
    return whole_quotient(exact_remainder, x, y)


@remainder.vjp("x")
def dx(grad):
    return grad


@remainder.vjp("y")
def dy(grad, x, y):
    return -grad * floor_divide(x, y)


@op(promote=True, differentiable=False)
def floor_divide(x: AnyTensor, y: Operand) -> AnyTensor:
    """The largest integer that is not above x / y."""
    return whole_quotient(exact_quotient, x, y)


def whole_quotient(formula: Function, x: Any, y: Any) -> Any:
    """formula(x, y), after the divisor was checked. An x that is no array of floats becomes one if
    y is one, because the first array chooses the kernel."""
    check_divisor(x, y)
    if is_array(y) and y.dtype.kind == "f":
        if isinstance(x, (int, float, np.number)):
            x = namespace(y).full((), x, getattr(x, "dtype", y.dtype))
        elif is_array(x) and x.dtype.kind != "f":
            x = x.astype(np.result_type(x.dtype, y.dtype))
    return formula(x, y)


@with_kernels(cpu="elementwise.remainder", cuda="elementwise.remainder")
def exact_remainder(x: Any, y: Any) -> Any:
    return namespace_of_two(x, y).remainder(in_c_order(x), in_c_order(y))


@with_kernels(cpu="elementwise.floor_divide", cuda="elementwise.floor_divide")
def exact_quotient(x: Any, y: Any) -> Any:
    return namespace_of_two(x, y).floor_divide(in_c_order(x), in_c_order(y))


def namespace_of_two(x: Any, y: Any) -> Any:
    """The module of functions for two arguments, of which one may be a number."""
    return namespace(x if is_array(x) else y)


@op(promote=True)
def maximum(x: AnyTensor, y: Operand) -> AnyTensor:
    """The larger of two, element by element; if they tie, each gets half of the gradient."""
    return namespace_of_two(x, y).maximum(x, y)


@maximum.vjp("x")
def dx(grad, x, y):
    return share_of_gradient(grad, lt(x, y), eq(x, y))


@maximum.vjp("y")
def dy(grad, x, y):
    return share_of_gradient(grad, lt(y, x), eq(x, y))


@op(promote=True)
def minimum(x: AnyTensor, y: Operand) -> AnyTensor:
    """The smaller of two, element by element; if they tie, each gets half of the gradient."""
    return namespace_of_two(x, y).minimum(x, y)


@minimum.vjp("x")
def dx(grad, x, y):
    return share_of_gradient(grad, gt(x, y), eq(x, y))


@minimum.vjp("y")
def dy(grad, x, y):
    return share_of_gradient(grad, gt(y, x), eq(x, y))


def share_of_gradient(grad: Any, other_is_result: Any, are_equal: Any) -> Any:
    """The part of the gradient that one of the two arguments gets: none where the other one is the
    result, half where both are equal, all elsewhere."""
    return where(are_equal, grad * 0.5, where(other_is_result, 0.0, grad))


@op(promote=True)
def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where `condition` is True, else `y`; all three broadcast. At least one is a Tensor.

    A condition of numbers is True where they are not 0. ShapeError if the shapes do not agree.

    >>> ta.where(ta.tensor([True, False]), ta.tensor([1.0, 2.0]), 0.0)
    tensor([1., 0.])
    """
    for value in (x, y):
        if not hasattr(value, "dtype") and not isinstance(value, (int, float)):
            raise DtypeError(f"where takes tensors and numbers, got {value!r}")
    if not is_array(condition):
        refuse_foreign("where", [condition])
        condition = as_array(condition, None, device_of(x if is_array(x) else y))
    kernel = cpu_kernel("elementwise.where") if is_large(condition) and not FORMULAS_ONLY else None
    out = NotImplemented if kernel is None else kernel(condition, x, y)
    out = namespace(condition).where(condition, x, y) if out is NotImplemented else out
    return promoted(out, (x, y))


@where.vjp("x")
def dx(grad, condition):
    return where(condition, grad, 0.0)


@where.vjp("y")
def dy(grad, condition):
    return where(condition, 0.0, grad)


@op
def cast(x: AnyTensor, dtype: np.dtype) -> AnyTensor:
    """`x` in another floating dtype; `Plan.in_shape_of` converts the gradient back."""
    return x.astype(dtype)


@cast.vjp("x")
def dx(grad):
    return grad


# The following ops have no gradient, because their results are booleans.


@op(differentiable=False)
def eq(x: AnyTensor, y: Operand) -> AnyTensor:
    """x == y, element by element."""
    return x == y


@op(differentiable=False)
def ne(x: AnyTensor, y: Operand) -> AnyTensor:
    """x != y, element by element."""
    return x != y


@op(differentiable=False)
def lt(x: AnyTensor, y: Operand) -> AnyTensor:
    """x < y, element by element."""
    return x < y


@op(differentiable=False)
def le(x: AnyTensor, y: Operand) -> AnyTensor:
    """x <= y, element by element."""
    return x <= y


@op(differentiable=False)
def gt(x: AnyTensor, y: Operand) -> AnyTensor:
    """x > y, element by element."""
    return x > y


@op(differentiable=False)
def ge(x: AnyTensor, y: Operand) -> AnyTensor:
    """x >= y, element by element."""
    return x >= y


@op(promote=True, differentiable=False)
def logical_and(x: AnyTensor, y: Operand) -> AnyTensor:
    """x & y, of booleans or of the bits of integers."""
    return x & y


@op(promote=True, differentiable=False)
def logical_or(x: AnyTensor, y: Operand) -> AnyTensor:
    """x | y, of booleans or of the bits of integers."""
    return x | y


@op(promote=True, differentiable=False)
def logical_xor(x: AnyTensor, y: Operand) -> AnyTensor:
    """x ^ y, of booleans or of the bits of integers."""
    return x ^ y


@op(differentiable=False)
def logical_not(x: AnyTensor) -> AnyTensor:
    """~x, of booleans or of the bits of integers."""
    return ~x
