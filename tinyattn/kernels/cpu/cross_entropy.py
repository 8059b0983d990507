"""Cross-entropy of rows of logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiler import FAST_SUMS, jit
from .layout import as_input
from .row_functions import ONE, ZERO, exp, largest


@jit(fastmath=FAST_SUMS)
def cross_entropy_rows(logits, target, ignore_index, losses, log_sums):
    """log_sums (2, N) gets the largest logit of each row, and log(sum(exp)) below it."""
    for i in range(len(logits)):
        losses[i], log_sums[0, i], log_sums[1, i] = ZERO, 0.0, 0.0
        if target[i] == ignore_index:
            continue
        top, total = largest(logits[i]), np.float64(0)
        for j in range(logits.shape[1]):
            total += exp(logits[i, j] - top)
        log_sums[1, i] = log_total = math.log(total)
        log_sums[0, i] = top
        losses[i] = log_total - (np.float64(logits[i, target[i]]) - top)


@jit
def cross_entropy_backward_rows(grad, logits, target, ignore_index, log_sums, result):
    """result has zeros at the start, which stay where the target is ignored."""
    for i in range(len(logits)):
        if target[i] == ignore_index:
            continue
        top, scale = np.float32(log_sums[0, i]), np.float32(math.exp(-log_sums[1, i]))
        for j in range(logits.shape[1]):
            result[i, j] = exp(logits[i, j] - top) * scale * grad[i]
        result[i, target[i]] = (exp(logits[i, target[i]] - top) * scale - ONE) * grad[i]


def cross_entropy(logits: np.ndarray, target: np.ndarray, ignore_index: int) -> Any:
    if logits.dtype != np.float32 or not logits.size:
        return NotImplemented
    losses, log_sums = np.empty(len(logits), logits.dtype), np.empty((2, len(logits)))
    target = as_input(target.astype(np.int64, copy=False))
    cross_entropy_rows(as_input(logits), target, ignore_index, losses, log_sums)
    return losses, log_sums


def cross_entropy_backward(
    grad: np.ndarray, logits: np.ndarray, target: np.ndarray, ignore_index: int, log_sums: Any
) -> Any:
    if logits.dtype != np.float32 or not logits.size:
        return NotImplemented
    result = np.zeros(logits.shape, logits.dtype)
    target = as_input(target.astype(np.int64, copy=False))
    inputs = as_input(grad), as_input(logits), target, ignore_index, as_input(log_sums)
    cross_entropy_backward_rows(*inputs, result)
    return result
