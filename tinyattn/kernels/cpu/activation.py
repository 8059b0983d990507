"""Functions of single elements that NumPy lacks, or needs several passes for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import reference
from ..reference import GELU_CUBIC, GELU_SCALE, INV_SQRT_2PI, SQRT_HALF
from ..threads import parallel_for
from .compiler import inner, jit
from .layout import as_input


@jit
def erf_elements(x, out):
    for i in range(len(x)):
        out[i] = math.erf(x[i])


def erf(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    erf_elements(as_input(x).reshape(-1), out.reshape(-1))
    return out


@jit
def relu_elements(x, out, first, last):
    zero = x.dtype.type(0)
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        out[i] = zero if x[i] <= zero else x[i]


def relu(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    arguments = (as_input(x).reshape(-1), out.reshape(-1))
    parallel_for(x.size, 0.25 * x.size, relu_elements, *arguments)
    return out


@jit
def relu_backward_elements(grad, out, result, first, last):
    zero = grad.dtype.type(0)
    grad, out, result = grad[first:last], out[first:last], result[first:last]
    for i in range(len(grad)):
        result[i] = zero if out[i] <= zero else grad[i]


def relu_backward(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    result = np.empty(out.shape, out.dtype)
    arguments = (as_input(grad).reshape(-1), as_input(out).reshape(-1), result.reshape(-1))
    parallel_for(out.size, 0.3 * out.size, relu_backward_elements, *arguments)
    return result


# GELU of float32 is computed in float64, in one pass, without branches and calls, so that the
# compiler can turn it into vector instructions. float64 is for checking: it takes several passes.
LOG2_E, LN2 = 1 / math.log(2), math.log(2)
ROUND = 1.5 * 2.0**52  # adding it rounds to an integer, which the lowest bits of the sum then are
BIAS, EXPONENT = np.int64(1023), np.int64(52)  # of a float64's bits
# exp(a^2 / 2) (1 - Phi(a)) for a >= 0, a smooth function, as P(a) / Q(a): least maximum relative
# error, 6e-9, on [0, 14.8]. Beyond 14.8, x (1 - Phi(x)) is 0 in float32.
P0, P1, P2 = 0.5000000030667419, 0.43889333596024693, 0.18367914679241074
P3, P4 = 0.040783098675745144, 0.0041386074350526795
Q1, Q2, Q3 = 1.675671668337489, 1.2043458972892669, 0.47064293605595736
Q4, Q5 = 0.10223431326761516, 0.010373835625512579


@inner
def exp_float64(x):
    """exp of a float64 from -700 to 700 with a relative error of 6e-9; a NaN stays one."""
    shifted = x * LOG2_E + ROUND
    r = x - (shifted - ROUND) * LN2  # |r| <= log(2) / 2
    p = 1 / 24 + r * (1 / 120 + r * (1 / 720 + r * (1 / 5040)))  # Taylor's series
    p = 1.0 + r * (1.0 + r * (1 / 2 + r * (1 / 6 + r * p)))
    power = (np.float64(shifted).view(np.int64) + BIAS) << EXPONENT
    return p * np.int64(power).view(np.float64)


@inner
def normal(x):
    """Phi(x) and exp(-x^2 / 2)."""
    a = abs(x)
    is_far = a > 16.0  # a NaN is not
    power = exp_float64(-0.5 * x * x)
    p = P0 + a * (P1 + a * (P2 + a * (P3 + a * P4)))
    q = 1.0 + a * (Q1 + a * (Q2 + a * (Q3 + a * (Q4 + a * Q5))))
    tail = 0.0 if is_far else power * p / q
    return (tail if x < 0.0 else 1.0 - tail), (0.0 if is_far else power)


@inner
def sigmoid_of_gelu(x):
    """sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    z = -2.0 * GELU_SCALE * (x + GELU_CUBIC * x * x * x)
    part = 1.0 / (1.0 + exp_float64(-700.0 if z < -700.0 else z))
    return 0.0 if z > 700.0 else part


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
def normal_cdf_elements(x, out):
    for i in range(len(x)):
        out[i] = 0.5 * math.erfc(-SQRT_HALF * x[i])


def normal_cdf(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    normal_cdf_elements(as_input(x).reshape(-1), out.reshape(-1))
    return out


def by_elements(kernel: Any, *arrays: np.ndarray) -> np.ndarray:
    out = np.empty(arrays[0].shape, arrays[0].dtype)
    flat = [as_input(array).reshape(-1) for array in arrays]
    parallel_for(out.size, 2.5 * out.size, kernel, *flat, out.reshape(-1))
    return out


def gelu(x: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32:
        return x * normal_cdf(x)
    return by_elements(gelu_elements, x)


def gelu_backward(grad: np.ndarray, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32:
        return grad * (normal_cdf(x) + x * np.exp(-0.5 * x * x) * INV_SQRT_2PI)
    return by_elements(gelu_backward_elements, grad, x)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return reference.gelu_tanh(x) if x.dtype != np.float32 else by_elements(gelu_tanh_elements, x)


def gelu_tanh_backward(grad: np.ndarray, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32:
        return reference.gelu_tanh_backward(grad, x)
    return by_elements(gelu_tanh_backward_elements, grad, x)
