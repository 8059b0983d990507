"""Layer normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..threads import parallel_for
from .compiler import FAST_SUMS, jit
from .layout import as_input, as_rows

# How many elements of x are summed together at least, since fewer are never worth a thread; and how
# many rows, so that the sums of all blocks take less memory than x.
BLOCK, BLOCK_ROWS = 1 << 14, 16


@jit(fastmath=FAST_SUMS)
def layer_norm_rows(x, weight, bias, eps, out, means, inv_stds, first, last):
    columns = x.shape[1]
    for i in range(first, last):
        total = squares = np.float64(0)  # not 0.0, which NumPy would let a float32 narrow
        for j in range(columns):
            total += x[i, j]
        mean = total / columns
        for j in range(columns):
            distance = x[i, j] - mean
            squares += distance * distance
        # Not math.sqrt, because its float has no 1 / 0 where the compiler is off.
        inv_std = 1.0 / np.sqrt(squares / columns + eps)
        for j in range(columns):
            out[i, j] = (x[i, j] - mean) * inv_std * weight[j] + bias[j]
        means[i], inv_stds[i] = mean, inv_std


@jit(fastmath=FAST_SUMS)
def layer_norm_backward_rows(grad, x, weight, means, inv_stds, height, dx, sums, first, last):
    """sums (blocks, 2, D): the gradients of weight and bias from each `height` rows."""
    columns = x.shape[1]
    for block in range(first, last):
        dweight, dbias = sums[block, 0], sums[block, 1]
        for i in range(block * height, min((block + 1) * height, len(x))):
            mean, inv_std = means[i], inv_stds[i]
            g_sum = gn_sum = np.float64(0)
            for j in range(columns):
                normal = (x[i, j] - mean) * inv_std
                g = np.float64(grad[i, j]) * weight[j]
                g_sum += g
                gn_sum += g * normal
                dweight[j] += grad[i, j] * normal
                dbias[j] += grad[i, j]
            g_mean, gn_mean = g_sum / columns, gn_sum / columns
            for j in range(columns):
                normal = (x[i, j] - mean) * inv_std
                g = np.float64(grad[i, j]) * weight[j]
                dx[i, j] = inv_std * (g - g_mean - normal * gn_mean)


def blocks_of(x: np.ndarray) -> tuple[int, int]:
    """How many blocks of rows are summed apart, and how many rows each has."""
    rows = x.size // x.shape[-1]
    # As many for any number of threads, so that the sums do not depend on it.
    blocks = max(1, min(x.size // BLOCK, rows // BLOCK_ROWS))
    return blocks, -(-rows // blocks)


def layer_norm(x: np.ndarray, weight: Any, bias: Any, eps: float) -> Any:
    if not x.size:
        return NotImplemented
    columns = x.shape[-1]
    out = np.empty(x.shape, x.dtype)
    means, inv_stds = np.empty((2, x.size // columns))
    weight = np.ones(columns, x.dtype) if weight is None else weight
    bias = np.zeros(columns, x.dtype) if bias is None else bias
    inputs = as_rows(x), as_input(weight), as_input(bias), eps
    results = out.reshape(-1, columns), means, inv_stds
    parallel_for(len(means), x.size, layer_norm_rows, *inputs, *results)
    shape = (*x.shape[:-1], 1)
    return out, means.reshape(shape), inv_stds.reshape(shape)


def layer_norm_backward(
    grad: np.ndarray, x: np.ndarray, weight: Any, eps: float, saved: Any
) -> Any:
    if not x.size:
        return NotImplemented
    columns = x.shape[-1]
    dx = np.empty(x.shape, x.dtype)
    scale = np.ones(columns, x.dtype) if weight is None else weight
    means, inv_stds = (as_input(part.reshape(-1)) for part in saved)
    blocks, height = blocks_of(x)
    sums = np.zeros((blocks, 2, columns))
    inputs = as_rows(grad), as_rows(x), as_input(scale), means, inv_stds, height
    results = dx.reshape(-1, columns), sums
    parallel_for(blocks, x.size, layer_norm_backward_rows, *inputs, *results)
    dweight, dbias = sums[0] if blocks == 1 else sums.sum(axis=0)
    return dx, None if weight is None else dweight, dbias
