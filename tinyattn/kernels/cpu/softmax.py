"""Softmax over visible keys, its logarithm, and cross-entropy of rows of logits."""

import math
from typing import Any, NamedTuple

import numpy as np

from .compiler import FAST_SUMS, inner, jit
from .layout import MOST, as_input, as_mask, as_rows, as_scores
from .row_functions import LANES, MINUS_INF, ONE, ZERO, dot, exp, largest, total_of

NO_LIMIT = as_input(np.full((1, 1), MOST))


class VisibilityArrays(NamedTuple):
    """A Visibility for kernels: a query sees the keys before its limit, where the mask is not 0."""

    limits: np.ndarray  # (B|1, Q|1) integers
    mask: np.ndarray  # (B|1, H|1, Q|1, K|1) bytes
    has_mask: bool


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
    limits = NO_LIMIT if limits is None else as_input(np.maximum(limits, 0, dtype=np.int64))
    return VisibilityArrays(limits, as_mask(mask), mask is not None)


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


@jit(fastmath=FAST_SUMS)
def log_softmax_backward_rows(grad, out, result):
    for i in range(len(out)):
        total = np.float64(0)
        for j in range(out.shape[1]):
            total += grad[i, j]
        for j in range(out.shape[1]):
            result[i, j] = grad[i, j] - exp(out[i, j]) * total


def by_rows(rows: Any, grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    out = as_input(out)  # of native bytes, which the result has too
    result = np.empty(out.shape, out.dtype)
    if out.size:
        rows(as_rows(grad), as_rows(out), result.reshape(-1, out.shape[-1]))
    return result


def softmax_backward(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    return by_rows(softmax_backward_rows, grad, out)


def log_softmax_backward(grad: np.ndarray, out: np.ndarray) -> Any:
    is_float32 = out.dtype == np.float32
    return by_rows(log_softmax_backward_rows, grad, out) if is_float32 else NotImplemented


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
        # x - top in float32: as a float64, the compiler would add log_sum to top first.
        for j in range(columns):
            out[i, j] = np.float64(x[i, j] - top) - log_sum


def log_softmax(x: np.ndarray) -> Any:
    if x.dtype != np.float32 or not x.size:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    log_softmax_rows(as_rows(x), out.reshape(-1, x.shape[-1]))
    return out


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
        losses[i] = log_total - np.float64(logits[i, target[i]] - top)


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
