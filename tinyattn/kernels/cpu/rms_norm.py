"""RMSNorm."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..threads import parallel_for
from .compiler import FAST_SUMS, inner, jit
from .layer_norm import blocks_of
from .layout import as_input, as_rows


@inner(fastmath=FAST_SUMS)
def inverse_rms(x, eps):
    """1 / sqrt(mean(x^2) + eps) of a row."""
    squares = np.float64(0)  # not 0.0, which NumPy would let a float32 narrow
    for j in range(len(x)):
        value = np.float64(x[j])
        squares += value * value
    # Not math.sqrt, because its float has no 1 / 0 where the compiler is off.
    return 1.0 / np.sqrt(squares / len(x) + eps)


@jit
def rms_norm_rows(x, weight, eps, out, inverses, first, last):
    for i in range(first, last):
        inverses[i] = inverse = inverse_rms(x[i], eps)
        for j in range(len(weight)):
            out[i, j] = x[i, j] * inverse * weight[j]


@inner(fastmath=FAST_SUMS)
def row_backward(grad, x, weight, inverse, dx, dweight):
    """dx of a row; what the row gives is added to dweight."""
    total = np.float64(0)
    for j in range(len(x)):
        normal = x[j] * inverse
        total += grad[j] * normal * weight[j]
        dweight[j] += grad[j] * normal
    mean = total / len(x)
    for j in range(len(x)):
        g = np.float64(grad[j]) * weight[j]
        dx[j] = inverse * (g - x[j] * inverse * mean)


@jit
def rms_norm_backward_rows(grad, x, weight, inverses, height, dx, sums, first, last):
    """sums (blocks, D): the gradient of weight from each `height` rows."""
    for block in range(first, last):
        for i in range(block * height, min((block + 1) * height, len(x))):
            row_backward(grad[i], x[i], weight, inverses[i], dx[i], sums[block])


def rms_norm(x: np.ndarray, weight: Any, eps: float) -> Any:
    if not x.size:
        return NotImplemented
    columns = x.shape[-1]
    out, inverses = np.empty(x.shape, x.dtype), np.empty(x.size // columns)
    weight = np.ones(columns, x.dtype) if weight is None else weight
    arrays = as_rows(x), as_input(weight), eps, out.reshape(-1, columns), inverses
    parallel_for(len(inverses), x.size, rms_norm_rows, *arrays)
    return out, inverses.reshape(*x.shape[:-1], 1)


def rms_norm_backward(
    grad: np.ndarray, x: np.ndarray, weight: Any, eps: float, inverse: Any
) -> Any:
    if not x.size:
        return NotImplemented
    columns = x.shape[-1]
    dx = np.empty(x.shape, x.dtype)
    scale = np.ones(columns, x.dtype) if weight is None else weight
    blocks, height = blocks_of(x)
    sums = np.zeros((blocks, columns))
    inputs = as_rows(grad), as_rows(x), as_input(scale), as_input(inverse.reshape(-1)), height
    parallel_for(blocks, x.size, rms_norm_backward_rows, *inputs, dx.reshape(-1, columns), sums)
    return dx, None if weight is None else sums.sum(axis=0)
