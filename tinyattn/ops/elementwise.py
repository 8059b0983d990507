"""Functions of each element by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.backend import Array, device_of, in_c_order, namespace, to_device
from ..base.checks import as_array, is_integer, number_of
from ..engine.autograd import AnyTensor, TensorBase, array_of, wrap
from ..engine.op import op
from ..engine.promotion import in_float32, promoted
from ..errors import DtypeError, ShapeError
from ..kernels import with_kernels
from ..kernels.range_checks import check_exponent
from .arguments import Operand, of_tensors
from .arithmetic import cast, div, eq, ge, le, logical_and, logical_or, mul, where


@op(floats=True)
def exp(x: AnyTensor) -> AnyTensor:
    """e to the power of each element."""
    return namespace(x).exp(in_c_order(x))


@exp.vjp("x")
def dx(grad, out):
    return grad * out


@op(floats=True)
def log(x: AnyTensor) -> AnyTensor:
    """The natural logarithm of each element."""
    return namespace(x).log(in_c_order(x))


@log.vjp("x")
def dx(grad, x):
    return grad / x


@op(floats=True)
def log1p(x: AnyTensor) -> AnyTensor:
    """log(1 + x); near 0 exact, because 1 + x would round x away."""
    return namespace(x).log1p(in_c_order(x))


@log1p.vjp("x")
def dx(grad, x):
    return grad / (x + 1)


@op(floats=True)
def expm1(x: AnyTensor) -> AnyTensor:
    """exp(x) - 1; near 0 exact."""
    return namespace(x).expm1(in_c_order(x))


@expm1.vjp("x")
def dx(grad, x):
    return grad * exp(x)


# Of other exponents NumPy's own power is as fast (1 and 2), or products lose too many digits.
PRODUCTS = {*range(3, 9), *range(-8, -1)}


@op(promote=True)
def pow(x: AnyTensor, y: Operand) -> AnyTensor:
    """x to the power y, element by element."""
    if "cuda" in (device_of(x), device_of(y)):
        check_exponent(x, y)
    if isinstance(y, (int, float)) and y in PRODUCTS and (x.dtype.kind == "f" or type(y) is int):
        return integer_power(x, int(y))
    if isinstance(y, float) and y == -0.5 and type(x) is np.ndarray and x.dtype.kind == "f":
        return inverse_root(x)
    return in_c_order(x) ** in_c_order(y)


@in_float32
def inverse_root(x: Array) -> Array:
    """x ** -0.5 by a root, because NumPy's power takes ten times as long."""
    power = np.asarray(1 / np.sqrt(x))
    if not x.min(initial=1) > 0:
        power[x == 0] = math.inf  # the root of -0.0 is -0.0
        power[x == -math.inf] = 0
    return power


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
    return grad * where(eq(y, 0), 0.0, y * pow(x, y - 1))


@pow.vjp("y")
def dy(grad, x, y, out):
    # At x = 0 and y >= 0 the power does not change with y, but out * log(x) would be 0 * -inf.
    if isinstance(x, (int, float)):
        if x == 0:
            return grad * where(ge(y, 0), 0.0, -math.inf * out)
        return grad * out * (math.log(x) if x > 0 else math.nan)
    flat = logical_and(eq(x, 0), ge(y, 0))
    # In float64, because the sum over a broadcast exponent may be much smaller than its terms.
    base = cast(where(flat, 1.0, x), np.dtype(np.float64))
    return grad * where(flat, 0.0, pow(base, y) * log(base))


@op(floats=True)
def sqrt(x: AnyTensor) -> AnyTensor:
    """The square root of each element; NaN for negative numbers."""
    return namespace(x).sqrt(x)


@sqrt.vjp("x")
def dx(grad, out):
    return grad * 0.5 / out


@op(floats=True)
def sin(x: AnyTensor) -> AnyTensor:
    """The sine of each element, in radians."""
    return namespace(x).sin(in_c_order(x))


@sin.vjp("x")
def dx(grad, x):
    return grad * cos(x)


@op(floats=True)
def cos(x: AnyTensor) -> AnyTensor:
    """The cosine of each element, in radians."""
    return namespace(x).cos(in_c_order(x))


@cos.vjp("x")
def dx(grad, x):
    return -grad * sin(x)


@op(floats=True)
def tanh(x: AnyTensor) -> AnyTensor:
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x)) of each element, the hyperbolic tangent.

    >>> F.tanh(ta.tensor([-100.0, 0.0, 100.0]))
    tensor([-1.,  0.,  1.])
    """
    return namespace(x).tanh(in_c_order(x))


@tanh.vjp("x")
@in_float32
def dx(grad, out):
    return grad * (1 - out * out)


@op(floats=True)
@with_kernels(cpu="elementwise.erf", cuda="elementwise.erf")
def erf(x: AnyTensor) -> AnyTensor:
    """The error function: 2 / sqrt(pi) times the integral of exp(-t*t) from 0 to x."""
    return by_python(math.erf, x)


def by_python(function: Callable[[float], float], x: Array) -> Array:
    """A function of Python's, in float64, of each element of an array on any device."""
    values = np.frompyfunc(function, 1, 1)(np.asarray(to_device(x, "cpu"), np.float64))
    return to_device(np.asarray(values, np.float64).astype(x.dtype), device_of(x))


@erf.vjp("x")
@in_float32
def dx(grad, x):
    return grad * (2 / math.sqrt(math.pi)) * exp(-x * x)


@op
def abs(x: AnyTensor) -> AnyTensor:
    """|x|; the gradient at 0 and at NaN is 0."""
    return namespace(x).abs(x)


@abs.vjp("x")
def dx(grad, x):
    return grad * sign(x)


@op(differentiable=False)
def sign(x: AnyTensor) -> AnyTensor:
    """-1, 0 or 1; 0 for NaN. Differs from PyTorch: no gradient, where there it is 0."""
    return ((x > 0).view(np.int8) - (x < 0).view(np.int8)).astype(x.dtype)


@op(differentiable=False)
def isnan(x: AnyTensor) -> AnyTensor:
    """True where an element is NaN."""
    return namespace(x).isnan(x)


@op(differentiable=False)
def isfinite(x: AnyTensor) -> AnyTensor:
    """True where an element is no NaN and not infinite."""
    return namespace(x).isfinite(x)


@op
def clone(x: AnyTensor) -> AnyTensor:
    """A copy; the gradient passes through."""
    return x.copy()


@clone.vjp("x")
def dx(grad):
    return grad


# Without a derivative of their own: recorded as the ops that they call.


@of_tensors
def square(x: AnyTensor) -> AnyTensor:
    """x * x."""
    return mul(x, x)


@of_tensors
def rsqrt(x: AnyTensor) -> AnyTensor:
    """1 / sqrt(x)."""
    return div(1, sqrt(x))


@of_tensors
def reciprocal(x: AnyTensor) -> AnyTensor:
    """1 / x."""
    return div(1, x)


def check_clamp(low: Any, high: Any, dtype: np.dtype) -> None:
    limits = [limit for limit in (low, high) if limit is not None]
    if not limits:
        raise ValueError("clamp takes min, max or both")
    for limit in limits:
        if not isinstance(limit, (int, np.number, float)):
            raise TypeError(f"clamp takes a number as a limit, got {limit!r}")
        if is_integer(limit) and dtype.kind in "iu":
            as_array(limit, dtype, None)  # raises DtypeError if it does not fit


@of_tensors
def clamp(x: AnyTensor, min: Operand | None = None, max: Operand | None = None) -> AnyTensor:
    """Every element limited to [min, max]: numbers, or Tensors that broadcast.

    Outside of the limits the gradient of x is 0, and a limit that is a Tensor gets it.
    """
    if not isinstance(min, TensorBase) and not isinstance(max, TensorBase):
        check_clamp(min, max, x.dtype)
        return clip(x, number_of(min), number_of(max))
    # NaN stays NaN, and a limit that is NaN gives NaN.
    if min is not None:
        x = where(logical_or(ge(x, min), isnan(x)), x, min)
    if max is not None:
        x = where(logical_or(le(x, max), isnan(x)), x, max)
    return x


@op
def clip(x: AnyTensor, min: float | None, max: float | None) -> AnyTensor:
    """`clamp` between numbers."""
    return promoted(namespace(x).clip(x, min, max), (x,))


@clip.vjp("x")
def dx(grad, x, min, max):
    inside = ge(x, -math.inf if min is None else min)
    inside = logical_and(inside, le(x, math.inf if max is None else max))
    return where(inside, grad, 0.0)


def check_masked_fill(tensor: Any, mask: Any) -> None:
    if mask.dtype != np.bool_:
        raise DtypeError(f"masked_fill takes a boolean mask, got {mask.dtype}")
    sizes = zip(mask.shape[::-1], tensor.shape[::-1], strict=False)
    if any(m != n and 1 not in (m, n) for m, n in sizes):
        raise ShapeError(f"masked_fill: a mask {mask.shape} does not broadcast with {tensor.shape}")


@of_tensors
def masked_fill(x: AnyTensor, mask: Any, value: Operand) -> AnyTensor:
    """`value` wherever `mask` is True: a Tensor, or what makes one. x and the mask broadcast.

    Differs from PyTorch: a value that integers or booleans cannot hold is a DtypeError.

    >>> ta.tensor([1.0, 2.0, 3.0]).masked_fill([True, False, False], 0.0)
    tensor([0., 2., 3.])
    """
    if not isinstance(mask, TensorBase):
        mask = wrap(as_array(mask, None, x.device))
    check_masked_fill(x, mask)
    if x.dtype.kind != "f" or not isinstance(value, TensorBase):
        value = as_array(array_of(value), x.dtype, x.device)
    return where(mask, value, x)
