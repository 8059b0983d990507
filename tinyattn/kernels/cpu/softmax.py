"""Softmax over visible keys, and log_softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import reference
from .compiler import four, hidden, jit, rows, rows_of_new
from .rows import LANES, MINUS_INF, ZERO, dot, exp, largest, total_of


@jit
def softmax_rows(x, limits, mask, use_mask, out):
    """x, out (B, H, Q, K) float32; limits (B|1, Q|1); mask (B|1, H|1, Q|1, K|1) of bytes."""
    batch, heads, queries, keys = x.shape
    lanes, sums = np.empty(LANES, np.float32), np.empty(LANES)
    for b in range(batch):
        for h in range(heads):
            for q in range(queries):
                row = out[b, h, q]
                n = min(limits[b % limits.shape[0], q % limits.shape[1]], keys)
                source = x[b, h, q]
                seen = n
                if use_mask:
                    keep = mask[b % mask.shape[0], h % mask.shape[1], q % mask.shape[2]]
                    step = 1 if len(keep) > 1 else 0
                    seen = 0
                    for j in range(n):
                        visible = keep[j * step] != 0
                        seen += visible
                        row[j] = source[j] if visible else MINUS_INF
                else:
                    for j in range(n):
                        row[j] = source[j]
                row[n:] = ZERO
                if seen == 0:
                    row[:n] = ZERO
                    continue
                live = row[:n]
                top = largest(live, lanes)
                for j in range(n):
                    live[j] = exp(live[j] - top)
                factor = np.float32(1.0 / total_of(live, sums))
                for j in range(n):
                    live[j] *= factor
                if use_mask:
                    for j in range(n):
                        live[j] = live[j] if keep[j * step] != 0 else ZERO


def masked_softmax(x: np.ndarray, limits: Any, mask: Any, out: np.ndarray | None = None) -> Any:
    # float64 is for checking, where NumPy's exp serves as well.
    if x.dtype != np.float32 or not x.size:
        return reference.masked_softmax(x, limits, mask)
    out = np.empty(x.shape, x.dtype) if out is None else out
    x = four(x)
    softmax_rows(x, *hidden(limits, mask), out.reshape(x.shape))
    return out


def softmax(x: np.ndarray) -> np.ndarray:
    return masked_softmax(x, None, None)


@jit
def softmax_backward_rows(grad, out, result):
    sums = np.empty(LANES)
    for i in range(len(out)):
        inner = dot(grad[i], out[i], sums)
        for j in range(out.shape[1]):
            result[i, j] = out[i, j] * (grad[i, j] - inner)


def softmax_backward(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    result = np.empty(out.shape, out.dtype)
    if out.size:
        softmax_backward_rows(rows(grad), rows(out), rows_of_new(result))
    return result


@jit
def masked_backward_rows(d, weights, limits, mask, use_mask):
    """d (B, H, Q, K) is the gradient of the weights, and becomes that of the scores."""
    batch, heads, queries, keys = weights.shape
    sums = np.empty(LANES)
    for b in range(batch):
        for h in range(heads):
            for q in range(queries):
                row, w = d[b, h, q], weights[b, h, q]
                n = min(limits[b % limits.shape[0], q % limits.shape[1]], keys)
                row[n:] = 0
                if use_mask:
                    keep = mask[b % mask.shape[0], h % mask.shape[1], q % mask.shape[2]]
                    step = 1 if len(keep) > 1 else 0
                    for j in range(n):
                        if keep[j * step] == 0:
                            row[j] = 0
                inner = dot(row[:n], w[:n], sums)
                for j in range(n):
                    row[j] = w[j] * (row[j] - inner)
                if use_mask:
                    for j in range(n):
                        if keep[j * step] == 0:
                            row[j] = 0


def masked_softmax_backward(
    grad: np.ndarray, out: np.ndarray, limits: Any, mask: Any
) -> np.ndarray:
    result = np.array(grad, order="C")
    if result.size:
        masked_backward_rows(result.reshape(four(result).shape), four(out), *hidden(limits, mask))
    return result


@jit
def log_softmax_rows(x, out):
    columns = x.shape[1]
    lanes, sums = np.empty(LANES, np.float32), np.empty(LANES)
    for i in range(len(x)):
        top = largest(x[i], lanes)
        for j in range(columns):
            out[i, j] = exp(x[i, j] - top)
        log_sum = math.log(total_of(out[i], sums))
        for j in range(columns):
            out[i, j] = (np.float64(x[i, j]) - top) - log_sum


def log_softmax(x: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32 or not x.size:
        return reference.log_softmax(x)
    out = np.empty(x.shape, x.dtype)
    log_softmax_rows(rows(x), rows_of_new(out))
    return out
