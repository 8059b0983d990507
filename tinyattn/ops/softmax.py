"""Softmax, its logarithm, its masked form, and cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import kernels
from ..base.backend import Array
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from ..kernels.range_checks import require_range
from ..kernels.visibility import Visibility


def along_dim(kernel: Callable[..., Any], dim: int, *arrays: Any) -> Any:
    """Apply a kernel for the last dimension to dimension `dim` of arrays or Tensors."""
    ndim = arrays[0].ndim
    if not ndim:
        return kernel(*(array.reshape(1) for array in arrays)).reshape(())
    if dim in (-1, ndim - 1):
        return kernel(*arrays)
    return kernel(*(array.swapaxes(dim, -1) for array in arrays)).swapaxes(dim, -1)


@op
def softmax(x: Array, *, dim: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along `dim`."""
    return along_dim(kernels.softmax, dim, x)


@softmax.vjp("x")
def dx(grad, out, dim):
    return along_dim(kernels.softmax_backward, dim, grad, out)


@op
def masked_softmax(x: Array, *, visibility: Visibility | None) -> Array:
    """Softmax over the visible keys of scores (B, H, Q, K); invisible keys get exactly 0.

    A query without a visible key gets a row of zeros.
    """
    if visibility is not None:
        visibility.check(x.shape)
    return kernels.masked_softmax(x, visibility)


@masked_softmax.vjp("x")
def dx(grad, out, visibility):
    return kernels.masked_softmax_backward(grad, out, visibility)


@op
def log_softmax(x: Array, *, dim: int = -1) -> Array:
    """x - log(sum(exp(x))) along `dim`."""
    return along_dim(kernels.log_softmax, dim, x)


@log_softmax.vjp("x")
def dx(grad, out, dim):
    return along_dim(kernels.log_softmax_backward, dim, grad, out)


def check_class_range(target: Array, classes: int, ignore_index: int) -> None:
    text = (
        f"cross_entropy: class {{number}} is out of range for {classes} classes "
        f"(0 to {classes - 1}, or ignore_index={ignore_index})"
    )
    require_range(target, 0, classes, IndexError, text, also_allowed=ignore_index)


@op(saves=True)
def cross_entropy(logits: Array, target: Array, *, ignore_index: int) -> Array:
    """-log_softmax(logits)[target] for each row: logits (N, C), target (N,) -> (N,).

    Rows whose target is `ignore_index` give 0.
    """
    if target.dtype.kind not in "iu":
        raise DtypeError(f"cross_entropy takes class numbers as integers, got {target.dtype}")
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ShapeError(
            "cross_entropy: logits (N, C) need a target of shape (N,), got "
            f"{logits.shape} and {target.shape}"
        )
    check_class_range(target, logits.shape[1], ignore_index)
    losses, log_sums = kernels.cross_entropy(logits, target, ignore_index)
    return losses, log_sums


@cross_entropy.vjp("logits")
def dlogits(grad, logits, target, ignore_index, saved):
    return kernels.cross_entropy_backward(grad, logits, target, ignore_index, saved)
