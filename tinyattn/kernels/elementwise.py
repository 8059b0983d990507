"""Functions of single elements as plain array code: the part of `reference.py` that needs no sums.

The backward functions run on Tensors too, and are then recorded, which gives derivatives of any
order. `xp` is the module of an array's functions: NumPy, CuPy, or `tinyattn.ops` for a Tensor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base.backend import Array, namespace
from .float16 import in_float32
from .sums import in_c_order

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
GELU_CUBIC = 0.044715  # Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016
GELU_SCALE = math.sqrt(2 / math.pi)


def is_tensor(x: Any) -> bool:
    """True for a Tensor, which an op of `tinyattn.ops` takes, because the op is recorded."""
    return hasattr(namespace(x), "weighted_sum")  # `ops` has it, NumPy and CuPy do not


def erf(x: Array) -> Array:
    """The error function of each element of a NumPy array."""
    values = np.frompyfunc(math.erf, 1, 1)(np.asarray(x, np.float64))
    return np.asarray(values, np.float64).astype(x.dtype)


def relu(x: Array) -> Array:
    """max(x, 0); a NaN stays one."""
    xp = namespace(x)
    return xp.maximum(x, xp.zeros((), x.dtype))  # an array: numbers are slower to convert


def relu_backward(grad: Any, out: Any) -> Any:
    """0 where out <= 0, else grad: a NaN is not <= 0."""
    return namespace(out).where(out <= 0, 0.0, grad)


def normal_cdf(x: Any) -> Any:
    """Phi(x) = erfc(-x / sqrt(2)) / 2, because 1 + erf would lose the digits of a small Phi."""
    if is_tensor(x):
        return 0.5 * (1 + namespace(x).erf(x * SQRT_HALF))
    values = np.frompyfunc(math.erfc, 1, 1)(np.asarray(x, np.float64) * -SQRT_HALF)
    return (0.5 * np.asarray(values, np.float64)).astype(x.dtype)


@in_float32
def gelu(x: Array) -> Array:
    """x Phi(x) of a NumPy array."""
    return x * normal_cdf(x)


@in_float32
def gelu_backward(grad: Any, x: Any) -> Any:
    """grad (Phi(x) + x phi(x)), where phi(x) = exp(-x^2 / 2) / sqrt(2 pi) is the slope of Phi."""
    phi = namespace(x).exp(x * x * -0.5) * INV_SQRT_2PI
    return grad * (normal_cdf(x) + x * phi)


@in_float32
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), computed from exp(-|x|), which cannot overflow."""
    xp = namespace(x)
    if is_tensor(x):
        return xp.sigmoid(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, small) / (1 + small)


def sigmoid_backward(grad: Any, out: Any) -> Any:
    """The slope of the sigmoid, from its result."""
    return grad * out * (1 - out)


@in_float32
def silu(x: Array) -> Array:
    """x sigmoid(x)."""
    return x * sigmoid(x)


@in_float32
def silu_backward(grad: Any, x: Any) -> Any:
    part = sigmoid(x)
    return grad * (part + x * part * (1 - part))


@in_float32
def softplus(x: Array) -> Array:
    """log(1 + exp(x)), computed from exp(-|x|), which cannot overflow."""
    xp = namespace(x)
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


def log1p(x: Array) -> Array:
    """log(1 + x)."""
    return namespace(x).log1p(in_c_order(x))


def expm1(x: Array) -> Array:
    """exp(x) - 1."""
    return namespace(x).expm1(in_c_order(x))


@in_float32
def inverse_root(x: Array) -> Array:
    """x ** -0.5 by a root, because NumPy's power takes ten times as long."""
    xp = namespace(x)
    power = 1 / xp.sqrt(x)
    power = xp.where(x == 0, x.dtype.type(math.inf), power)  # that of -0.0 too
    return xp.where(x == -math.inf, x.dtype.type(0), power)


def sign(x: Array) -> Array:
    """-1, 0 or 1; of a NaN NaN."""
    return namespace(x).sign(x)


def where(condition: Array, x: Any, y: Any) -> Array:
    """x where the condition is True, else y."""
    return namespace(condition).where(condition, x, y)


def remainder(x: Any, y: Any) -> Any:
    """x - y floor(x / y), with the sign of y. One of the two may be a number."""
    return namespace(x if hasattr(x, "dtype") else y).remainder(in_c_order(x), in_c_order(y))


def floor_divide(x: Any, y: Any) -> Any:
    """The largest integer that is not above x / y. One of the two may be a number."""
    return namespace(x if hasattr(x, "dtype") else y).floor_divide(in_c_order(x), in_c_order(y))


@in_float32
def gelu_tanh(x: Array) -> Array:
    """0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).

    Computed as x sigmoid(2 u), which is the same, because 1 + tanh(u) loses digits if tanh(u) is
    close to -1.
    """
    return x * sigmoid(2 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))


@in_float32
def gelu_tanh_backward(grad: Any, x: Any) -> Any:
    part = sigmoid(2 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))
    # 0 where `part` is 0 or 1 anyway, because x * x may be inf there, and 0 * inf is NaN.
    xp = namespace(x)
    slope = xp.where(xp.abs(x) < 100, 2 * GELU_SCALE * (1 + 3 * GELU_CUBIC * x * x), 0.0)
    return grad * (part + x * part * (1 - part) * slope)
