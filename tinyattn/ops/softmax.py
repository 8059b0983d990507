"""Softmax, its logarithm, its masked form, and cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import kernels
from ..base.backend import Array, converted
from ..base.checks import DTypeLike, checked_dtype, one_dim, require_float
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from ..kernels.range_checks import require_range
from ..kernels.visibility import Visibility


def along_dim(kernel: Callable[..., Any], dim: int, *arrays: Any) -> Any:
    """Apply a kernel for the last dimension to dimension `dim` of arrays or Tensors."""
    ndim, dim = arrays[0].ndim, one_dim(arrays[0], dim)
    if not ndim:
        return kernel(*(array.reshape(1) for array in arrays)).reshape(())
    if dim == ndim - 1:
        return kernel(*arrays)
    return kernel(*(array.swapaxes(dim, -1) for array in arrays)).swapaxes(dim, -1)


def floats_of(x: Array, dtype: DTypeLike, name: str) -> Array:
    """x in this dtype, by default its own, which must be one of floats."""
    x = x if dtype is None else converted(x, checked_dtype(dtype))
    require_float(x.dtype, name)
    return x


@op
def softmax(x: Array, *, dim: int = -1, dtype: DTypeLike = None) -> Array:
    """exp(x_i) / sum_j exp(x_j) along `dim`: numbers >= 0 whose sum is 1.

    x (...) -> (...), of the same shape. dtype: compute in this dtype; that of x by default.
    Raises IndexError if x has no such dimension, and DtypeError for integers without a dtype.
    Differs from PyTorch: `dim` may be left out.

    >>> F.softmax(ta.tensor([0.0, 0.0]))
    tensor([0.5, 0.5])
    """
    return along_dim(kernels.softmax, dim, floats_of(x, dtype, "softmax"))


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
def log_softmax(x: Array, *, dim: int = -1, dtype: DTypeLike = None) -> Array:
    """x_i - log(sum_j exp(x_j)) along `dim`; more exact than `softmax(x).log()`.

    x (...) -> (...), of the same shape. dtype: compute in this dtype; that of x by default.
    Raises IndexError if x has no such dimension, and DtypeError for integers without a dtype.
    Differs from PyTorch: `dim` may be left out.

    >>> F.log_softmax(ta.tensor([0.0, 1000.0]))
    tensor([-1000.,     0.])
    """
    return along_dim(kernels.log_softmax, dim, floats_of(x, dtype, "log_softmax"))


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
