"""Losses."""

from __future__ import annotations

import math

import numpy as np

from .. import ops
from ..base.checks import (
    check_reduction,
    checked_probability,
)
from ..engine.autograd import wrap
from ..errors import ShapeError
from ..ops.softmax import check_class_range
from ..tensors.arguments import (
    ArrayLike,
    at_least_float32,
    check_same_dtype_and_device,
    check_same_shape,
    checked_target,
    float_tensor,
    widened,
)
from ..tensors.tensor import Tensor


def cross_entropy(
    logits: Tensor,
    target: ArrayLike,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log(softmax(logits)[target]), averaged over the targets that are not `ignore_index`.

    logits: (N, C), (C,), or (N, C, d1, ...) as in PyTorch: the classes are dimension 1.
    target: integers, the shape of logits without its classes; or probabilities p of all classes,
        the shape of logits: -sum_c p_c log(softmax(logits)_c), and nothing is ignored.
    weight: (C,), a factor for each class; a mean is divided by the weights of the targets.
    reduction: "mean", "sum" or "none". A mean over no targets is NaN, as in PyTorch.
    label_smoothing: this part of the target's probability is distributed over all classes equally.

    Raises IndexError for a class out of range, and ShapeError if the shapes do not agree.
    Differs from PyTorch: ignore_index and reduction come fourth and fifth.

    >>> F.cross_entropy(ta.tensor([[0.0, 0.0], [1000.0, 0.0]]), [1, 0], reduction="none")
    tensor([0.6931, 0.    ])
    """
    logits = float_tensor(logits, "logits")
    check_reduction(reduction)
    smoothing = checked_probability(label_smoothing, "label_smoothing")
    target, axis = checked_target("cross_entropy", logits, target, ignore_index)
    logits, dtype, given = at_least_float32(logits), logits.dtype, logits
    if weight is not None or smoothing or target.dtype.kind == "f":
        check_class_weight(given, weight)
        log_probs = logits.log_softmax(axis)
        losses = weighted_nll(log_probs, target, weight, ignore_index, reduction, smoothing)
        return losses.to(dtype)
    classes = logits.shape[axis]
    if logits.ndim > 2:  # (N, C, d1, ...) -> (N, d1, ..., C)
        logits = logits.permute(0, *range(2, logits.ndim), 1)
    if logits.ndim != 2:
        logits = logits.reshape(-1, classes)
    flat = target if target.ndim == 1 else target.reshape(-1)
    losses = ops.cross_entropy(logits, flat, ignore_index=int(ignore_index))
    if reduction == "none":
        return losses.reshape(target.shape).to(dtype)
    if reduction == "sum":
        return losses.sum().to(dtype)
    counted = flat._data != ignore_index
    if type(counted) is not np.ndarray:  # so that the host need not wait for the number
        return (widened(losses).sum() / wrap(counted.sum())).to(dtype)
    count = int(np.count_nonzero(counted))
    if count == len(flat):
        return losses.mean().to(dtype)
    total = widened(losses).sum()
    return (total / count if count else total * math.nan).to(dtype)


def nll_loss(
    log_probs: Tensor,
    target: ArrayLike,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-log_probs[target]: `cross_entropy` of what has been through `log_softmax`.

    log_probs (N, C), (C,) or (N, C, d1, ...); target, weight and reduction as in `cross_entropy`,
    but the targets are integers.
    Raises IndexError for a class out of range, and ShapeError if the shapes do not agree.
    Differs from PyTorch: ignore_index and reduction come fourth and fifth.

    >>> F.nll_loss(ta.tensor([[-1.0, -2.0], [-3.0, -4.0]]), [0, 1])
    tensor(2.5)
    """
    log_probs = float_tensor(log_probs, "log_probs")
    check_reduction(reduction)
    target, _ = checked_target("nll_loss", log_probs, target, ignore_index)
    check_class_weight(log_probs, weight)
    losses = weighted_nll(log_probs, target, weight, ignore_index, reduction)
    return losses.to(log_probs.dtype)


def check_class_weight(scores: Tensor, weight: Tensor | None) -> None:
    """A weight is (C,), for the classes in dimension 1 of the scores (or 0, of one sample)."""
    check_same_dtype_and_device("a weighted loss", scores=scores, weight=weight)
    classes = scores.shape[min(1, scores.ndim - 1)]
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"weight must have shape ({classes},), got {weight.shape}")


def weighted_nll(
    log_probs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float = 0.0,
) -> Tensor:
    """-weight[target] log_probs[target], mixed with the mean over all classes by `smoothing`."""
    axis = min(1, log_probs.ndim - 1)
    classes, terms = log_probs.shape[axis], -log_probs
    if weight is not None:
        terms = terms * weight.reshape(classes, *(1,) * (log_probs.ndim - 1 - axis))
    mixed = smoothing * terms.mean(axis) if smoothing else 0.0
    if target.dtype.kind == "f":
        losses = (1 - smoothing) * (terms * target).sum(axis) + mixed
        return reduced(losses, reduction)
    check_class_range(target._data, classes, ignore_index)
    counted = target != ignore_index
    ids = ops.where(counted, target, 0)
    losses = (1 - smoothing) * terms.gather(axis, ids.unsqueeze(axis)).squeeze(axis) + mixed
    losses = ops.where(counted, losses, 0.0)
    if reduction != "mean":
        return losses if reduction == "none" else losses.sum()
    counts = counted.to(losses.dtype) if weight is None else ops.where(counted, weight[ids], 0.0)
    return widened(losses).sum() / widened(counts).sum()


def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(x - target)^2 of each element; reduction: "mean", "sum" or "none".

    x (...), target (...) -> a 0-d tensor; with "none" (...).
    Raises ShapeError if the shapes differ.
    Differs from PyTorch: the two shapes must be equal, nothing is broadcast.

    >>> F.mse_loss(ta.tensor([1.0, 2.0]), ta.tensor([1.0, 5.0]))
    tensor(4.5)
    """
    check_same_shape("mse_loss", x, target)
    check_reduction(reduction)
    difference = at_least_float32(x) - at_least_float32(target)
    return reduced(difference * difference, reduction).to(x.dtype)


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - x), the divergence of exp(x) from `target`; 0 where target is 0.

    x: logarithms of probabilities (...). target: probabilities of the same shape, or with
        `log_target` their logarithms.
    reduction: "batchmean" (the sum divided by the first size), "mean" (over all elements), "sum" or
        "none".
    Raises ShapeError if the shapes differ.
    Differs from PyTorch: reduction comes third, and nothing is broadcast.

    >>> F.kl_div(ta.tensor([[0.5, 0.5]]).log(), ta.tensor([[1.0, 0.0]]), reduction="batchmean")
    tensor(0.6931)
    """
    check_same_shape("kl_div", x, target)
    check_reduction(reduction, "batchmean")
    x, target, dtype = at_least_float32(x), at_least_float32(target), x.dtype
    # Where target is 0, x may be infinite, and 0 * inf would be NaN.
    is_zero = target == (-math.inf if log_target else 0)
    x_counted = ops.where(is_zero & (x.abs() == math.inf), 0.0, x)
    if log_target:
        # Terms of both signs cancel, and exp would be rounded in each. So they are wide.
        x_counted, target = widened(x_counted), widened(target)
        terms = ops.exp(target) * (ops.where(is_zero, 0.0, target) - x_counted)
    else:
        terms = target * (ops.log(ops.where(is_zero, 1.0, target)) - x_counted)
    if reduction == "batchmean":  # the mean over the samples of what each adds up to
        terms = terms.sum(tuple(range(1, x.ndim))) if x.ndim > 1 else terms
        return terms.mean().to(dtype)
    return reduced(terms, reduction).to(dtype)


def binary_cross_entropy_with_logits(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """-target log(sigmoid(x)) - (1 - target) log(1 - sigmoid(x)), for any x without overflow.

    x (...), target (...), numbers from 0 to 1 -> a 0-d tensor; with reduction "none" (...).
    Raises ShapeError if the shapes differ.
    Differs from PyTorch: there are no weights, and reduction comes third.

    >>> F.binary_cross_entropy_with_logits(ta.tensor([0.0, 1000.0]), ta.tensor([1.0, 1.0]), "none")
    tensor([0.6931, 0.    ])
    """
    check_same_shape("binary_cross_entropy_with_logits", x, target)
    check_reduction(reduction)
    x, target, dtype = at_least_float32(x), at_least_float32(target), x.dtype
    # -log(sigmoid(x)) is softplus(-x), and -log(1 - sigmoid(x)) is softplus(x).
    losses = target * ops.softplus(-x) + (1 - target) * ops.softplus(x)
    return reduced(losses, reduction).to(dtype)


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of the losses; with "none" all of them."""
    return losses if reduction == "none" else getattr(losses, reduction)()
