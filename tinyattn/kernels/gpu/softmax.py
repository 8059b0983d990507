"""Softmax, masked or not, its logarithm, and cross-entropy; launches `softmax.cu`."""

from typing import Any

import numpy as np

from ...base.backend import Array, in_c_order, namespace
from ..sums import sum_dtype
from .launch import as_matrix, by_rows, run, visibility_arguments


def of_rows(kernel: str, *arrays: Array, options: tuple[Any, ...] = ()) -> Array:
    """What a kernel makes of each row of one or two arrays of one shape."""
    out = namespace(arrays[0]).empty(arrays[0].shape, arrays[0].dtype)
    if out.size:
        sizes = as_matrix(out.shape)
        arguments = *map(in_c_order, arrays), out, *sizes, *options
        run("softmax", kernel, out, by_rows(*sizes), *arguments)
    return out


def visible(x: Array, visibility: Any) -> tuple[Any, ...]:
    """For scores (B, H, Q, K), or of any shape if all are visible: what else the kernel gets."""
    heads, queries = x.shape[1:3] if visibility is not None else (1, 1)
    return heads, queries, *visibility_arguments(visibility, x)


def masked_softmax(x: Array, visibility: Any) -> Array:
    return of_rows("masked_softmax", x, options=visible(x, visibility))


def masked_softmax_backward(grad: Array, out: Array, visibility: Any) -> Array:
    return of_rows("masked_softmax_backward", grad, out, options=visible(out, visibility))


def softmax(x: Array) -> Array:
    return masked_softmax(x, None)


def softmax_backward(grad: Array, out: Array) -> Array:
    return masked_softmax_backward(grad, out, None)


def log_softmax(x: Array) -> Array:
    return of_rows("log_softmax", x)


def log_softmax_backward(grad: Array, out: Array) -> Array:
    return of_rows("log_softmax_backward", grad, out)


def cross_entropy(logits: Array, target: Array, ignore_index: int) -> Any:
    if not logits.size:
        return NotImplemented
    xp, sizes = namespace(logits), logits.shape
    losses = xp.empty(len(logits), logits.dtype)
    log_sums = xp.empty((2, len(logits)), sum_dtype(logits.dtype))
    target = in_c_order(target.astype(np.int64, copy=False))
    arrays = in_c_order(logits), target, losses, log_sums
    run("softmax", "cross_entropy", logits, by_rows(*sizes), *arrays, *sizes, ignore_index)
    return losses, log_sums


def cross_entropy_backward(
    grad: Array, logits: Array, target: Array, ignore_index: int, log_sums: Any
) -> Array:
    if not logits.size:
        return logits.copy()
    out, sizes = namespace(logits).empty(logits.shape, logits.dtype), logits.shape
    target = in_c_order(target.astype(np.int64, copy=False))
    arrays = in_c_order(grad), in_c_order(logits), target, log_sums, out
    run("softmax", "cross_entropy_backward", logits, by_rows(*sizes), *arrays, *sizes, ignore_index)
    return out
