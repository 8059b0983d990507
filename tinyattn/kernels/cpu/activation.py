"""Functions of single elements that NumPy lacks, or needs several passes for."""

from __future__ import annotations

import math

import numpy as np

from ..threads import parallel_for
from .compiler import jit
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
