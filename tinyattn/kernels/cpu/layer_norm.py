"""Layer normalization and RMSNorm.

RMSNorm has no means and no bias: they are None, and the compiler leaves out what they are for.
"""

from typing import Any

import numpy as np

from ..threads import parallel_for
from .compiler import FAST_SUMS, jit
from .layout import as_input, as_rows

# How many elements of x are summed together at least, since fewer are never worth a thread; and how
# many rows, so that the sums of all blocks take less memory than x.
BLOCK, BLOCK_ROWS = 1 << 14, 16


@jit(fastmath=FAST_SUMS)
def norm_rows(x, weight, bias, eps, out, means, inv_stds, first, last):
    columns = x.shape[1]
    for i in range(first, last):
        mean = np.float64(0)
        if means is not None:
            for j in range(columns):
                mean += x[i, j]
            means[i] = mean = mean / columns
        squares = np.float64(0)  # not 0.0, which NumPy would let a float32 narrow
        for j in range(columns):
            distance = x[i, j] - mean
            squares += distance * distance
        # Not math.sqrt, because its float has no 1 / 0 where the compiler is off.
        inv_stds[i] = inv_std = 1.0 / np.sqrt(squares / columns + eps)
        for j in range(columns):
            normal = (x[i, j] - mean) * inv_std * weight[j]
            out[i, j] = normal if bias is None else normal + bias[j]


@jit(fastmath=FAST_SUMS)
def norm_backward_rows(grad, x, weight, means, inv_stds, height, dx, sums, first, last):
    """sums (blocks, 2, D): the gradients of weight and bias from each `height` rows."""
    columns = x.shape[1]
    for block in range(first, last):
        for i in range(block * height, min((block + 1) * height, len(x))):
            mean = np.float64(0) if means is None else means[i]
            inv_std = inv_stds[i]
            g_sum = gn_sum = np.float64(0)
            for j in range(columns):
                normal = (x[i, j] - mean) * inv_std
                g = np.float64(grad[i, j]) * weight[j]
                gn_sum += g * normal
                sums[block, 0, j] += grad[i, j] * normal
                if means is not None:
                    g_sum += g
                    sums[block, 1, j] += grad[i, j]
            g_mean, gn_mean = g_sum / columns, gn_sum / columns
            for j in range(columns):
                normal = (x[i, j] - mean) * inv_std
                g = np.float64(grad[i, j]) * weight[j]
                dx[i, j] = inv_std * (g - g_mean - normal * gn_mean)


def layer_norm(x: np.ndarray, weight: Any, bias: Any, eps: float) -> Any:
    if not x.size:
        return NotImplemented
    bias = np.zeros(x.shape[-1], x.dtype) if bias is None else as_input(bias)
    means = np.empty((*x.shape[:-1], 1))
    out, inv_stds = normalized(x, weight, bias, means.reshape(-1), eps)
    return out, means, inv_stds


def rms_norm(x: np.ndarray, weight: Any, eps: float) -> Any:
    return normalized(x, weight, None, None, eps) if x.size else NotImplemented


def normalized(
    x: np.ndarray, weight: Any, bias: Any, means: Any, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """The normal rows, and 1 / sqrt(...) of each."""
    columns = x.shape[-1]
    out, inv_stds = np.empty(x.shape, x.dtype), np.empty((*x.shape[:-1], 1))
    weight = np.ones(columns, x.dtype) if weight is None else weight
    inputs = as_rows(x), as_input(weight), bias, eps
    results = out.reshape(-1, columns), means, inv_stds.reshape(-1)
    parallel_for(inv_stds.size, x.size, norm_rows, *inputs, *results)
    return out, inv_stds


def layer_norm_backward(
    grad: np.ndarray, x: np.ndarray, weight: Any, eps: float, saved: Any
) -> Any:
    return gradients(grad, x, weight, *saved) if x.size else NotImplemented


def rms_norm_backward(
    grad: np.ndarray, x: np.ndarray, weight: Any, eps: float, inverse: Any
) -> Any:
    return gradients(grad, x, weight, None, inverse)[:2] if x.size else NotImplemented


def gradients(
    grad: np.ndarray, x: np.ndarray, weight: Any, means: Any, inv_stds: np.ndarray
) -> tuple[Any, ...]:
    """Those of x, of the weight, or None, and of the bias."""
    columns = x.shape[-1]
    dx = np.empty(x.shape, x.dtype)
    scale = np.ones(columns, x.dtype) if weight is None else weight
    means = None if means is None else as_input(means.reshape(-1))
    # As many blocks of rows for any number of threads, so that the sums do not depend on it.
    blocks = max(1, min(x.size // BLOCK, inv_stds.size // BLOCK_ROWS))
    height = -(-inv_stds.size // blocks)
    sums = np.zeros((blocks, 2, columns))
    inputs = as_rows(grad), as_rows(x), as_input(scale), means, as_input(inv_stds.reshape(-1))
    results = dx.reshape(-1, columns), sums
    parallel_for(blocks, x.size, norm_backward_rows, *inputs, height, *results)
    dweight, dbias = sums[0] if blocks == 1 else sums.sum(axis=0)
    return dx, None if weight is None else dweight, dbias
