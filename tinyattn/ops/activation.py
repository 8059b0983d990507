"""Activation functions, each written once: what a user reads, the formula, the derivative.

`F.relu`, `x.relu()` and `ta.relu(x)` are the `relu` below. `@fast("relu")` says that kernels/cpu and
kernels/gpu have a faster function of this name; tests compare it with the formula.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base.backend import Array, is_tensor, namespace
from ..engine.op import op
from ..kernels import fast
from ..kernels.float16 import in_float32
from .elementwise import exp

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
GELU_CUBIC = 0.044715  # Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016
GELU_SCALE = math.sqrt(2 / math.pi)


@op
@fast("relu")
def relu(x: Array) -> Array:
    """max(x, 0) of each element; the gradient at 0 is 0.

    >>> F.relu(ta.tensor([-2.0, 3.0]))
    tensor([0., 3.])
    """
    xp = namespace(x)
    return xp.maximum(x, xp.zeros((), x.dtype))  # an array: numbers are slower to convert


@relu.vjp("x")
@fast("relu_backward")
def dx(grad, out):
    return namespace(out).where(out <= 0, 0.0, grad)  # a NaN is not <= 0


@op(floats=True)
@fast("sigmoid")
@in_float32
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) of each element, computed so that it cannot overflow.

    >>> F.sigmoid(ta.tensor([-1000.0, 0.0, 1000.0]))
    tensor([0. , 0.5, 1. ])
    """
    xp = namespace(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, small) / (1 + small)


@sigmoid.vjp("x")
@fast("sigmoid_backward")
def dx(grad, out):
    return grad * out * (1 - out)


@op(floats=True)
@fast("silu")
@in_float32
def silu(x: Array) -> Array:
    """x * sigmoid(x) of each element, also called swish.

    Source: Elfwing et al., "Sigmoid-Weighted Linear Units", 2017.

    >>> F.silu(ta.tensor([-1000.0, 0.0, 1000.0]))
    tensor([  -0.,    0., 1000.])
    """
    return x * sigmoid(x)


@silu.vjp("x")
@fast("silu_backward")
@in_float32
def dx(grad, x):
    part = sigmoid(x)
    return grad * (part + x * part * (1 - part))


@op(floats=True)
@fast("erf")
def erf(x: Array) -> Array:
    """The error function: 2 / sqrt(pi) times the integral of exp(-t*t) from 0 to x."""
    values = np.frompyfunc(math.erf, 1, 1)(np.asarray(x, np.float64))
    return np.asarray(values, np.float64).astype(x.dtype)


@erf.vjp("x")
@in_float32
def dx(grad, x):
    return grad * (2 / math.sqrt(math.pi)) * exp(-x * x)


@op(floats=True)
@fast("softplus")
@in_float32
def softplus(x: Array) -> Array:
    """log(1 + exp(x)) of each element, a smooth form of relu, computed so that it cannot overflow.

    Differs from PyTorch, which gives x itself above 20.

    >>> F.softplus(ta.tensor([-1000.0, 0.0, 100.0]))
    tensor([  0.    ,   0.6931, 100.    ])
    """
    xp = namespace(x)
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


@softplus.vjp("x")
def dx(grad, x):
    return grad * sigmoid(x)


def normal_cdf(x: Any) -> Any:
    """Phi(x) = erfc(-x / sqrt(2)) / 2, because 1 + erf would lose the digits of a small Phi."""
    if is_tensor(x):
        return 0.5 * (1 + erf(x * SQRT_HALF))
    values = np.frompyfunc(math.erfc, 1, 1)(np.asarray(x, np.float64) * -SQRT_HALF)
    return (0.5 * np.asarray(values, np.float64)).astype(x.dtype)


@op(floats=True)
@fast("gelu")
@in_float32
def gelu(x: Array) -> Array:
    """x * Phi(x), where Phi is the distribution function of the standard normal."""
    return x * normal_cdf(x)


@gelu.vjp("x")
@fast("gelu_backward")
@in_float32
def dx(grad, x):
    phi = exp(x * x * -0.5) * INV_SQRT_2PI  # the slope of Phi
    return grad * (normal_cdf(x) + x * phi)


@op(floats=True)
@fast("gelu_tanh")
@in_float32
def gelu_tanh(x: Array) -> Array:
    """The approximation 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).

    Computed as x sigmoid(2 u), which is the same, because 1 + tanh(u) loses digits if tanh(u) is
    close to -1.
    """
    return x * sigmoid(2 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))


@gelu_tanh.vjp("x")
@fast("gelu_tanh_backward")
@in_float32
def dx(grad, x):
    part = sigmoid(2 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))
    # 0 where `part` is 0 or 1 anyway, because x * x may be inf there, and 0 * inf is NaN.
    slope = namespace(x).where(abs(x) < 100, 2 * GELU_SCALE * (1 + 3 * GELU_CUBIC * x * x), 0.0)
    return grad * (part + x * part * (1 - part) * slope)
