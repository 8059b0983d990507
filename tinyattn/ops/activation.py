"""Activation functions."""

from __future__ import annotations

import math

from .. import kernels
from ..backend import Array, namespace
from ..op import op
from .elementwise import exp

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
GELU_CUBIC = 0.044715  # Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016
GELU_SCALE = math.sqrt(2 / math.pi)


@op
def relu(x: Array) -> Array:
    """max(x, 0); the gradient at 0 is 0."""
    return kernels.relu(x)


@relu.vjp("x")
def dx(grad, out):
    return kernels.relu_backward(grad, out)


@op(floats=True)
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), computed from exp(-|x|), which cannot overflow."""
    xp = namespace(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, small) / (1 + small)


@sigmoid.vjp("x")
def dx(grad, out):
    return grad * out * (1 - out)


@op(floats=True)
def erf(x: Array) -> Array:
    """The error function: 2 / sqrt(pi) times the integral of exp(-t*t) from 0 to x."""
    return kernels.erf(x)


@erf.vjp("x")
def dx(grad, x):
    return grad * (2 / math.sqrt(math.pi)) * exp(-x * x)


@op(floats=True)
def softplus(x: Array) -> Array:
    """log(1 + exp(x)), computed from exp(-|x|), which cannot overflow."""
    xp = namespace(x)
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


@softplus.vjp("x")
def dx(grad, x):
    return grad * sigmoid(x)


@op(floats=True)
def gelu(x: Array) -> Array:
    """x * Phi(x), where Phi is the distribution function of the standard normal."""
    return x * (0.5 * (1 + kernels.erf(x * SQRT_HALF)))


@gelu.vjp("x")
def dx(grad, x):
    phi = exp(x * x * -0.5) * INV_SQRT_2PI
    return grad * (0.5 * (1 + erf(x * SQRT_HALF)) + x * phi)


@op(floats=True)
def gelu_tanh(x: Array) -> Array:
    """The approximation 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).

    Computed as x sigmoid(2 u), which is the same, because 1 + tanh(u) loses digits if tanh(u) is
    close to -1.
    """
    return x * sigmoid(2 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))


@gelu_tanh.vjp("x")
def dx(grad, x):
    part = sigmoid(2 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))
    slope = 2 * GELU_SCALE * (1 + 3 * GELU_CUBIC * x * x)
    return grad * (part + x * part * (1 - part) * slope)
