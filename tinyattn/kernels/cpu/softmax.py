"""Softmax over visible keys, and log_softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiler import FAST_SUMS, inner, jit
from .layout import VisibilityArrays, as_input, as_rows, as_scores, visibility_arrays
from .row_functions import LANES, MINUS_INF, ZERO, dot, exp, largest, total_of


@inner
def row_visibility(visibility, b, h, q, keys):
    """How many first keys the query sees at most, and the row of the mask. An array has size 1
    where one value holds for all samples, heads or queries, so indices are taken modulo the size.
    """
    limits, mask = visibility.limits, visibility.mask
    n = min(limits[b % limits.shape[0], q % limits.shape[1]], keys)
    return n, mask[b % mask.shape[0], h % mask.shape[1], q % mask.shape[2]]


@inner
def clear(row, start):
    for j in range(start, len(row)):
        row[j] = 0


@jit
def masked_softmax_rows(x, visibility, out):
    """x, out (B, H, Q, K) float32."""
    batch, heads, queries, keys = x.shape
    sums = np.empty(LANES)
    for b in range(batch):
        for h in range(heads):
            for q in range(queries):
                n, mask = row_visibility(visibility, b, h, q, keys)
                source, row = x[b, h, q], out[b, h, q, :n]
                number = n
                if visibility.has_mask:
                    number = 0
                    for j in range(n):
                        is_visible = mask[j] != 0
                        number += is_visible
                        row[j] = source[j] if is_visible else MINUS_INF
                else:
                    for j in range(n):
                        row[j] = source[j]
                clear(out[b, h, q], n if number else 0)
                if number == 0:
                    continue
                top = largest(row)
                for j in range(n):
                    row[j] = exp(row[j] - top)
                factor = np.float32(1.0 / total_of(row, sums))
                for j in range(n):
                    row[j] *= factor
                if visibility.has_mask:  # a NaN among the visible is theirs alone
                    for j in range(n):
                        row[j] = row[j] if mask[j] != 0 else ZERO


def without_starts(visibility: Any, x: np.ndarray) -> VisibilityArrays:
    """The arrays of a Visibility or None, without starts, which these kernels do not know."""
    limits, mask = (None, None) if visibility is None else visibility.as_limits_and_mask(x)
    if mask is not None:  # with all keys, because a step of 0 between them would not be vectorized
        mask = np.broadcast_to(mask, (*mask.shape[:-1], x.shape[-1]))
    return visibility_arrays(limits, mask)


def masked_softmax(x: np.ndarray, visibility: Any) -> Any:
    # float64 is for checking, where NumPy's exp serves as well.
    if x.dtype != np.float32 or not x.size:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    x = as_scores(x)
    masked_softmax_rows(x, without_starts(visibility, x), out.reshape(x.shape))
    return out


def softmax(x: np.ndarray) -> Any:
    return masked_softmax(x, None)


@jit(fastmath=FAST_SUMS)
def softmax_backward_rows(grad, out, result):
    for i in range(len(out)):
        total = np.float64(0)
        for j in range(out.shape[1]):
            total += np.float64(grad[i, j]) * out[i, j]
        for j in range(out.shape[1]):
            result[i, j] = out[i, j] * (grad[i, j] - total)


def softmax_backward(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    out = as_input(out)  # of native bytes, which the result has too
    result = np.empty(out.shape, out.dtype)
    if out.size:
        rows = out.reshape(-1, out.shape[-1])
        softmax_backward_rows(as_rows(grad), rows, result.reshape(rows.shape))
    return result


@jit
def masked_backward_rows(d, weights, visibility):
    """d (B, H, Q, K) is the gradient of the weights, and becomes that of the scores."""
    batch, heads, queries, keys = weights.shape
    sums = np.empty(LANES)
    for b in range(batch):
        for h in range(heads):
            for q in range(queries):
                n, mask = row_visibility(visibility, b, h, q, keys)
                row, w = d[b, h, q, :n], weights[b, h, q, :n]
                clear(d[b, h, q], n)
                if visibility.has_mask:
                    for j in range(n):
                        row[j] = row[j] if mask[j] != 0 else 0
                total = dot(row, w, sums)
                for j in range(n):
                    row[j] = w[j] * (row[j] - total)
                if visibility.has_mask:
                    for j in range(n):
                        row[j] = row[j] if mask[j] != 0 else 0


def masked_softmax_backward(grad: np.ndarray, out: np.ndarray, visibility: Any) -> np.ndarray:
    result = np.array(grad, order="C")
    if result.size:
        out = as_scores(out)
        masked_backward_rows(result.reshape(out.shape), out, without_starts(visibility, out))
    return result


@jit(fastmath=FAST_SUMS)
def log_softmax_rows(x, out):
    columns = x.shape[1]
    for i in range(len(x)):
        top = largest(x[i])
        total = np.float64(0)
        for j in range(columns):
            total += exp(x[i, j] - top)
        log_sum = math.log(total)
        for j in range(columns):
            out[i, j] = (np.float64(x[i, j]) - top) - log_sum


def log_softmax(x: np.ndarray) -> Any:
    if x.dtype != np.float32 or not x.size:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    log_softmax_rows(as_rows(x), out.reshape(-1, x.shape[-1]))
    return out
