"""Arithmetic and functions of each element, each with its derivatives beneath it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import kernels
from ..base.backend import Array, Function, device_of, is_array, namespace
from ..engine.op import op
from ..engine.promotion import promoted
from ..errors import DtypeError
from ..kernels import fast, in_c_order
from ..kernels.float16 import in_float32
from ..kernels.range_checks import check_divisor, check_exponent


@op(promote=True)
def add(x: Array, y: Array) -> Array:
    return x + y


@add.vjp("x", "y")
def dxy(grad):
    return grad, grad


@op(promote=True)
def sub(x: Array, y: Array) -> Array:
    return x - y


@sub.vjp("x")
def dx(grad):
    return grad


@sub.vjp("y")
def dy(grad):
    return -grad


@op(promote=True)
def mul(x: Array, y: Array) -> Array:
    return x * y


@mul.vjp("x")
def dx(grad, y):
    return grad * y


@mul.vjp("y")
def dy(grad, x):
    return grad * x


@op(promote=True)
def div(x: Array, y: Array) -> Array:
    return x / y


@div.vjp("x")
def dx(grad, y):
    return grad / y


@div.vjp("y")
def dy(grad, y, out):
    return -grad * (out / y)


@op
def neg(x: Array) -> Array:
    return -x


@neg.vjp("x")
def dx(grad):
    return -grad


# Of other exponents NumPy's own power is as fast (1 and 2), or products lose too many digits.
PRODUCTS = {*range(3, 9), *range(-8, -1)}


@op(promote=True)
def pow(x: Array, y: Array) -> Array:
    """x to the power y, element by element."""
    if "cuda" in (device_of(x), device_of(y)):
        check_exponent(x, y)
    if isinstance(y, (int, float)) and y in PRODUCTS:
        return integer_power(x, int(y))
    if isinstance(y, float) and y == -0.5 and type(x) is np.ndarray and x.dtype.kind == "f":
        return inverse_root(x)
    return in_c_order(x) ** in_c_order(y)


@fast("inverse_root")
@in_float32
def inverse_root(x: Array) -> Array:
    """x ** -0.5 by a root, because NumPy's power takes ten times as long."""
    xp = namespace(x)
    power = 1 / xp.sqrt(x)
    power = xp.where(x == 0, x.dtype.type(math.inf), power)  # that of -0.0 too
    return xp.where(x == -math.inf, x.dtype.type(0), power)


def integer_power(x: Array, n: int) -> Array:
    """x ** n by products, because NumPy's power takes 60 times as long."""
    if x.dtype == np.float16:  # because each product would be rounded to three digits
        return integer_power(x.astype(np.float32), n).astype(np.float16)
    if n < 0 and x.dtype.kind == "f":  # 1 / x first, because x ** 8 may be inf
        return integer_power(1 / x, -n)
    if n < 2:
        return x**n if n < 1 else x
    half = integer_power(x, n // 2)
    power = half * half
    if n % 2:
        power *= x
    return power


@pow.vjp("x")
def dx(grad, x, y):
    # At y = 0 the power is constant; at x = 0 too, but y * x**(y-1) would be 0 * inf there.
    if isinstance(y, (int, float)):
        return grad * (y * pow(x, y - 1)) if y != 0 else grad * 0
    return grad * where(equal(y, 0), 0.0, y * pow(x, y - 1))


@pow.vjp("y")
def dy(grad, x, y, out):
    # At x = 0 and y >= 0 the power does not change with y, but out * log(x) would be 0 * -inf.
    if isinstance(x, (int, float)):
        if x == 0:
            return grad * where(greater_equal(y, 0), 0.0, -math.inf * out)
        return grad * out * (math.log(x) if x > 0 else math.nan)
    flat = logical_and(equal(x, 0), greater_equal(y, 0))
    # In float64, because the sum over a broadcast exponent may be much smaller than its terms.
    base = cast(where(flat, 1.0, x), dtype=np.dtype(np.float64))
    return grad * where(flat, 0.0, pow(base, y) * log(base))


@op(floats=True)
def exp(x: Array) -> Array:
    """e to the power of each element."""
    return namespace(x).exp(in_c_order(x))


@exp.vjp("x")
def dx(grad, out):
    return grad * out


@op(floats=True)
def log(x: Array) -> Array:
    """The natural logarithm of each element."""
    return namespace(x).log(in_c_order(x))


@log.vjp("x")
def dx(grad, x):
    return grad / x


@op(floats=True)
@fast("log1p")
def log1p(x: Array) -> Array:
    """log(1 + x); near 0 exact, because 1 + x would round x away."""
    return namespace(x).log1p(in_c_order(x))


@log1p.vjp("x")
def dx(grad, x):
    return grad / (x + 1)


@op(floats=True)
@fast("expm1")
def expm1(x: Array) -> Array:
    """exp(x) - 1; near 0 exact."""
    return namespace(x).expm1(in_c_order(x))


@expm1.vjp("x")
def dx(grad, x):
    return grad * exp(x)


@op(floats=True)
def sqrt(x: Array) -> Array:
    """The square root of each element."""
    return namespace(x).sqrt(x)


@sqrt.vjp("x")
def dx(grad, out):
    return grad * 0.5 / out


@op(floats=True)
def sin(x: Array) -> Array:
    """The sine of each element, in radians."""
    return namespace(x).sin(in_c_order(x))


@sin.vjp("x")
def dx(grad, x):
    return grad * cos(x)


@op(floats=True)
def cos(x: Array) -> Array:
    """The cosine of each element, in radians."""
    return namespace(x).cos(in_c_order(x))


@cos.vjp("x")
def dx(grad, x):
    return -grad * sin(x)


@op(floats=True)
def tanh(x: Array) -> Array:
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x)) of each element, the hyperbolic tangent.

    >>> F.tanh(ta.tensor([-100.0, 0.0, 100.0]))
    tensor([-1.,  0.,  1.])
    """
    return namespace(x).tanh(in_c_order(x))


@tanh.vjp("x")
@in_float32
def dx(grad, out):
    return grad * (1 - out * out)


@op
def abs(x: Array) -> Array:
    """|x|; the gradient at 0 is 0."""
    return namespace(x).abs(x)


@abs.vjp("x")
def dx(grad, x):
    return grad * sign(x)


@op(promote=True)
def maximum(x: Array, y: Array) -> Array:
    return namespace(x if hasattr(x, "dtype") else y).maximum(x, y)


@maximum.vjp("x")
def dx(grad, x, y):
    return share_of_gradient(grad, less(x, y), equal(x, y))


@maximum.vjp("y")
def dy(grad, x, y):
    return share_of_gradient(grad, less(y, x), equal(x, y))


@op(promote=True)
def minimum(x: Array, y: Array) -> Array:
    return namespace(x if hasattr(x, "dtype") else y).minimum(x, y)


@minimum.vjp("x")
def dx(grad, x, y):
    return share_of_gradient(grad, greater(x, y), equal(x, y))


@minimum.vjp("y")
def dy(grad, x, y):
    return share_of_gradient(grad, greater(y, x), equal(x, y))


def share_of_gradient(grad: Any, other_is_result: Any, are_equal: Any) -> Any:
    """The part of the gradient that one of the two arguments gets: none where the other one is the
    result, half where both are equal, all elsewhere."""
    return where(are_equal, grad * 0.5, where(other_is_result, 0.0, grad))


@op
def clamp(x: Array, *, min: float | None, max: float | None) -> Array:
    return promoted(namespace(x).clip(x, min, max), (x,))


@clamp.vjp("x")
def dx(grad, x, min, max):
    inside = greater_equal(x, -math.inf if min is None else min)
    inside = logical_and(inside, less_equal(x, math.inf if max is None else max))
    return where(inside, grad, 0.0)


@op(promote=True)
def where(condition: Array, x: Array, y: Array) -> Array:
    """`x` where `condition` is True, else `y`."""
    for value in (x, y):
        if not hasattr(value, "dtype") and not isinstance(value, (int, float)):
            raise DtypeError(f"where takes tensors and numbers, got {value!r}")
    return promoted(kernels.where(condition, x, y), (x, y))


@where.vjp("x")
def dx(grad, condition):
    return where(condition, grad, 0.0)


@where.vjp("y")
def dy(grad, condition):
    return where(condition, 0.0, grad)


@op
def clone(x: Array) -> Array:
    """A copy; the gradient passes through."""
    return x.copy()


@clone.vjp("x")
def dx(grad):
    return grad


@op
def cast(x: Array, *, dtype: np.dtype) -> Array:
    """`x` in another floating dtype; `Plan.in_shape_of` converts the gradient back."""
    return x.astype(dtype)


@cast.vjp("x")
def dx(grad):
    return grad


def whole_quotient(function: Function, x: Any, y: Any) -> Any:
    """function(x, y), after the divisor was checked. An x that is no array of floats becomes one if
    y is one, because the first array chooses the kernel."""
    check_divisor(x, y)
    if is_array(y) and y.dtype.kind == "f":
        if isinstance(x, (int, float, np.number)):
            x = namespace(y).full((), x, getattr(x, "dtype", y.dtype))
        elif is_array(x) and x.dtype.kind != "f":
            x = x.astype(np.result_type(x.dtype, y.dtype))
    return function(x, y)


@fast("remainder")
def exact_remainder(x: Any, y: Any) -> Any:
    return namespace(x if hasattr(x, "dtype") else y).remainder(in_c_order(x), in_c_order(y))


@fast("floor_divide")
def exact_quotient(x: Any, y: Any) -> Any:
    return namespace(x if hasattr(x, "dtype") else y).floor_divide(in_c_order(x), in_c_order(y))


@op(promote=True)
def remainder(x: Array, y: Array) -> Array:
    """x - y floor(x / y), with the sign of y, as % in Python."""
    return whole_quotient(exact_remainder, x, y)


@remainder.vjp("x")
def dx(grad):
    return grad


@remainder.vjp("y")
def dy(grad, x, y):
    return -grad * floor_divide(x, y)


# The following ops have no gradient, because their results are booleans or step functions.


@op(promote=True, differentiable=False)
def floor_divide(x: Array, y: Array) -> Array:
    """The largest integer that is not above x / y."""
    return whole_quotient(exact_quotient, x, y)


@op(differentiable=False)
@fast("sign")
def sign(x: Array) -> Array:
    """-1, 0 or 1. Differs from PyTorch: no gradient, where there it is 0."""
    return namespace(x).sign(x)


@op(differentiable=False)
def equal(x: Array, y: Array) -> Array:
    return x == y


@op(differentiable=False)
def not_equal(x: Array, y: Array) -> Array:
    return x != y


@op(differentiable=False)
def less(x: Array, y: Array) -> Array:
    return x < y


@op(differentiable=False)
def less_equal(x: Array, y: Array) -> Array:
    return x <= y


@op(differentiable=False)
def greater(x: Array, y: Array) -> Array:
    return x > y


@op(differentiable=False)
def greater_equal(x: Array, y: Array) -> Array:
    return x >= y


@op(differentiable=False)
def logical_and(x: Array, y: Array) -> Array:
    return x & y


@op(differentiable=False)
def logical_or(x: Array, y: Array) -> Array:
    return x | y


@op(differentiable=False)
def logical_xor(x: Array, y: Array) -> Array:
    return x ^ y


@op(differentiable=False)
def logical_not(x: Array) -> Array:
    return ~x


@op(differentiable=False)
def isnan(x: Array) -> Array:
    """True where an element is NaN."""
    return namespace(x).isnan(x)


@op(differentiable=False)
def isfinite(x: Array) -> Array:
    """True where an element is no NaN and not infinite."""
    return namespace(x).isfinite(x)
