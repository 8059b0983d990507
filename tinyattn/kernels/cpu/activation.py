"""Functions of single elements that NumPy lacks or needs several passes for."""

from __future__ import annotations

import math

import numpy as np

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
def relu_backward_flat(grad, out, result):
    zero = grad.dtype.type(0)
    for i in range(len(grad)):
        result[i] = zero if out[i] <= zero else grad[i]


def relu_backward(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    result = np.empty(out.shape, out.dtype)
    relu_backward_flat(ready(grad).reshape(-1), ready(out).reshape(-1), result.reshape(-1))
    return result
