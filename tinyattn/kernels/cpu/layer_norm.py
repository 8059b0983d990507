"""Layer normalization."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...threads import in_parts
from .. import reference
from .compiler import FAST_SUMS, jit, ready, rows, rows_of_new


@jit(fastmath=FAST_SUMS)
def layer_norm_rows(x, weight, bias, eps, out, means, inv_stds, first, last):
    columns = x.shape[1]
    x, out = x[first:last], out[first:last]
    means, inv_stds = means[first:last], inv_stds[first:last]
    for i in range(len(x)):
        total = np.float64(0)  # not 0.0, which NumPy would let a float32 narrow
        for j in range(columns):
            total += x[i, j]
        mean = total / columns
        squares = np.float64(0)
        for j in range(columns):
            distance = x[i, j] - mean
            squares += distance * distance
        inv_std = 1.0 / math.sqrt(squares / columns + eps)
        for j in range(columns):
            out[i, j] = (x[i, j] - mean) * inv_std * weight[j] + bias[j]
        means[i] = mean
        inv_stds[i] = inv_std


@jit(fastmath=FAST_SUMS)
def layer_norm_backward_rows(grad, x, weight, means, inv_stds, dx, dweight, dbias):
    columns = x.shape[1]
    for i in range(len(x)):
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
            dx[i, j] = inv_std * (np.float64(grad[i, j]) * weight[j] - g_mean - normal * gn_mean)


def layer_norm(x: np.ndarray, weight: Any, bias: Any, eps: float) -> Any:
    if not x.size:
        return reference.layer_norm(x, weight, bias, eps)
    columns = x.shape[-1]
    out = np.empty(x.shape, x.dtype)
    means, inv_stds = np.empty((2, x.size // columns))
    weight = np.ones(columns, x.dtype) if weight is None else weight
    bias = np.zeros(columns, x.dtype) if bias is None else bias
    arguments = (rows(x), ready(weight), ready(bias), eps, rows_of_new(out), means, inv_stds)
    in_parts(len(means), x.size, layer_norm_rows, *arguments)
    shape = (*x.shape[:-1], 1)
    return out, means.reshape(shape), inv_stds.reshape(shape)


def layer_norm_backward(
    grad: np.ndarray, x: np.ndarray, weight: Any, eps: float, saved: Any
) -> Any:
    if not x.size:
        return reference.layer_norm_backward(grad, x, weight, eps, saved)
    columns = x.shape[-1]
    dx = np.empty(x.shape, x.dtype)
    dweight, dbias = np.zeros((2, columns))
    scale = np.ones(columns, x.dtype) if weight is None else weight
    means, inv_stds = (ready(part.reshape(-1)) for part in saved)
    layer_norm_backward_rows(
        rows(grad), rows(x), ready(scale), means, inv_stds, rows_of_new(dx), dweight, dbias
    )
    return dx, None if weight is None else dweight, dbias
