"""Functions of single elements that NumPy lacks or needs several passes for."""

from __future__ import annotations

import math

import numpy as np

from ..threads import in_parts
from .compiler import jit, ready


@jit
def erf_flat(x, out):
    for i in range(len(x)):
        out[i] = math.erf(x[i])


def erf(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    erf_flat(ready(x).reshape(-1), out.reshape(-1))
    return out


@jit
def relu_flat(x, out, first, last):
    zero = x.dtype.type(0)
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        out[i] = zero if x[i] <= zero else x[i]


def relu(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    in_parts(x.size, 0.25 * x.size, relu_flat, ready(x).reshape(-1), out.reshape(-1))
    return out


@jit
def relu_backward_flat(grad, out, result, first, last):
    zero = grad.dtype.type(0)
    grad, out, result = grad[first:last], out[first:last], result[first:last]
    for i in range(len(grad)):
        result[i] = zero if out[i] <= zero else grad[i]


def relu_backward(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    result = np.empty(out.shape, out.dtype)
    arguments = (ready(grad).reshape(-1), ready(out).reshape(-1), result.reshape(-1))
    in_parts(out.size, 0.3 * out.size, relu_backward_flat, *arguments)
    return result
