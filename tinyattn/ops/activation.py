"""Activation functions."""

from __future__ import annotations

import math

from .. import kernels
from ..base.backend import Array
from ..engine.op import op
from ..kernels.float16 import in_float32
from .elementwise import exp


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
    return kernels.sigmoid(x)


@sigmoid.vjp("x")
def dx(grad, out):
    return kernels.sigmoid_backward(grad, out)


@op(floats=True)
def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return kernels.silu(x)


@silu.vjp("x")
def dx(grad, x):
    return kernels.silu_backward(grad, x)


@op(floats=True)
def erf(x: Array) -> Array:
    """The error function: 2 / sqrt(pi) times the integral of exp(-t*t) from 0 to x."""
    return kernels.erf(x)


@erf.vjp("x")
@in_float32
def dx(grad, x):
    return grad * (2 / math.sqrt(math.pi)) * exp(-x * x)


@op(floats=True)
def softplus(x: Array) -> Array:
    """log(1 + exp(x)), computed from exp(-|x|), which cannot overflow."""
    return kernels.softplus(x)


@softplus.vjp("x")
def dx(grad, x):
    return grad * sigmoid(x)


@op(floats=True)
def gelu(x: Array) -> Array:
    """x * Phi(x), where Phi is the distribution function of the standard normal."""
    return kernels.gelu(x)


@gelu.vjp("x")
def dx(grad, x):
    return kernels.gelu_backward(grad, x)


@op(floats=True)
def gelu_tanh(x: Array) -> Array:
    """The approximation 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    return kernels.gelu_tanh(x)


@gelu_tanh.vjp("x")
def dx(grad, x):
    return kernels.gelu_tanh_backward(grad, x)
