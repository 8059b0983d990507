"""Softmax, masked or not, its logarithm, and cross-entropy; launches `softmax.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.backend import Array, namespace
from .. import reference
from ..sums import in_c_order, sum_dtype
from .launch import SCALARS, as_scores, by_rows, function, visibility_arguments


def masked_softmax(x: Array, visibility: Any) -> Array:
    if not x.size:
        return x.copy()
    xp = namespace(x)
    x, out = in_c_order(x), xp.empty(x.shape, x.dtype)
    batch, heads, queries, keys = as_scores(x.shape)
    rows = batch * heads * queries
    kernel = function(xp, "softmax", "masked_softmax", SCALARS[x.dtype])
    sizes = rows, heads, queries, keys
    kernel(*by_rows(rows, keys), (x, out, *sizes, *visibility_arguments(visibility, x)))
    return out


def softmax(x: Array) -> Array:
    return masked_softmax(x, None)


def masked_softmax_backward(grad: Array, out: Array, visibility: Any) -> Array:
    xp = namespace(out)
    result = xp.empty(out.shape, out.dtype)
    if out.size:
        batch, heads, queries, keys = as_scores(out.shape)
        rows = batch * heads * queries
        kernel = function(xp, "softmax", "masked_softmax_backward", SCALARS[out.dtype])
        arrays = in_c_order(grad), in_c_order(out), result
        sizes = rows, heads, queries, keys
        kernel(*by_rows(rows, keys), (*arrays, *sizes, *visibility_arguments(visibility, out)))
    return result


def softmax_backward(grad: Array, out: Array) -> Array:
    return masked_softmax_backward(grad, out, None)


def log_softmax(x: Array) -> Array:
    if not x.size:
        return x.copy()
    xp = namespace(x)
    out = xp.empty(x.shape, x.dtype)
    rows, columns = x.size // x.shape[-1], x.shape[-1]
    kernel = function(xp, "softmax", "log_softmax", SCALARS[x.dtype])
    kernel(*by_rows(rows, columns), (in_c_order(x), out, rows, columns))
    return out


def log_softmax_backward(grad: Array, out: Array) -> Array:
    xp = namespace(out)
    result = xp.empty(out.shape, out.dtype)
    if out.size:
        rows, columns = out.size // out.shape[-1], out.shape[-1]
        kernel = function(xp, "softmax", "log_softmax_backward", SCALARS[out.dtype])
        kernel(*by_rows(rows, columns), (in_c_order(grad), in_c_order(out), result, rows, columns))
    return result


def cross_entropy(logits: Array, target: Array, ignore_index: int) -> tuple[Array, Array]:
    if not logits.size:
        return reference.cross_entropy(logits, target, ignore_index)
    xp = namespace(logits)
    rows, columns = logits.shape
    losses = xp.empty(rows, logits.dtype)
    log_sums = xp.empty((2, rows), sum_dtype(logits.dtype))
    kernel = function(xp, "softmax", "cross_entropy", SCALARS[logits.dtype])
    target = in_c_order(target.astype(np.int64, copy=False))
    arrays = in_c_order(logits), target, losses, log_sums
    kernel(*by_rows(rows, columns), (*arrays, rows, columns, ignore_index))
    return losses, log_sums


def cross_entropy_backward(
    grad: Array, logits: Array, target: Array, ignore_index: int, log_sums: Any
) -> Array:
    if not logits.size:
        return logits.copy()
    xp = namespace(logits)
    rows, columns = logits.shape
    result = xp.empty(logits.shape, logits.dtype)
    kernel = function(xp, "softmax", "cross_entropy_backward", SCALARS[logits.dtype])
    target = in_c_order(target.astype(np.int64, copy=False))
    arrays = in_c_order(grad), in_c_order(logits), target, log_sums, result
    kernel(*by_rows(rows, columns), (*arrays, rows, columns, ignore_index))
    return result
