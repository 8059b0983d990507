"""Activations: relu, and both forms of gelu."""

from __future__ import annotations

import math

import numpy as np

from .compiler import inner, jit
from .exponential import exp_float64, for_float32, scaled_tail, sigmoid_float64
from .layout import of_elements

SQRT_HALF, INV_SQRT_2PI = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)
GELU_CUBIC, GELU_SCALE = 0.044715, math.sqrt(2 / math.pi)


@jit
def relu_elements(grad, out, result, first, last):
    zero = grad.dtype.type(0)
    grad, out, result = grad[first:last], out[first:last], result[first:last]
    for i in range(len(grad)):
        result[i] = zero if out[i] <= zero else grad[i]


relu_backward = of_elements(relu_elements, 0.3)


def relu(x: np.ndarray) -> np.ndarray:
    return relu_backward(x, x)  # the same loop, so that one is compiled


# GELU of float32 is computed in float64, in one pass; float64 is for checking: several passes.


@inner
def normal(x):
    """Phi(x) and exp(-x^2 / 2)."""
    a = abs(x)
    is_far = a > 16.0  # a NaN is not
    power = exp_float64(-0.5 * x * x)
    tail = 0.0 if is_far else power * scaled_tail(a)
    return (tail if x < 0.0 else 1.0 - tail), (0.0 if is_far else power)


@inner
def sigmoid_of_gelu(x):
    """sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    return sigmoid_float64(2.0 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))


@jit
def gelu_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        cdf, _ = normal(value)
        out[i] = value * cdf


@jit
def gelu_backward_elements(grad, x, result, first, last):
    grad, x, result = grad[first:last], x[first:last], result[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        cdf, power = normal(value)
        result[i] = grad[i] * (cdf + value * power * INV_SQRT_2PI)


@jit
def gelu_tanh_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        out[i] = value * sigmoid_of_gelu(value)


@jit
def gelu_tanh_backward_elements(grad, x, result, first, last):
    grad, x, result = grad[first:last], x[first:last], result[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        part = sigmoid_of_gelu(value)
        slope = 2.0 * GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * value * value)
        result[i] = grad[i] * (part + value * part * (1.0 - part) * slope)


@jit
def normal_cdf_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        out[i] = 0.5 * math.erfc(-SQRT_HALF * np.float64(x[i]))


normal_cdf = of_elements(normal_cdf_elements, 10.0)

gelu = for_float32(gelu_elements)
gelu_backward = for_float32(gelu_backward_elements)
gelu_tanh = for_float32(gelu_tanh_elements)
gelu_tanh_backward = for_float32(gelu_tanh_backward_elements)
