"""Losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base import checks
from ..base.backend import Array, namespace, quiet, to_device
from ..engine.autograd import AnyTensor, TensorBase, array_of, wrap
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from ..kernels import with_kernels
from ..kernels.range_checks import require_range
from ..kernels.sums import sum_dtype
from .activations import softplus
from .arguments import (
    ArrayLike,
    at_least_float32,
    check_same_dtype_and_device,
    check_same_shape,
    float_tensor,
    widened,
)
from .arithmetic import where
from .elementwise import exp, log
from .softmax import log_softmax, softmax


def cross_entropy(
    logits: AnyTensor,
    target: ArrayLike,
    weight: AnyTensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> AnyTensor:
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
    smoothing = checks.checked_probability(label_smoothing, "label_smoothing")
    target, axis = checked_target("cross_entropy", logits, target, ignore_index)
    logits, dtype, given = at_least_float32(logits), logits.dtype, logits
    if weight is not None or smoothing or target.dtype.kind == "f":
        check_class_weight(given, weight)
        log_probs = log_softmax(logits, axis)
        losses = weighted_nll(log_probs, target, weight, ignore_index, reduction, smoothing)
        return losses.to(dtype)
    classes = logits.shape[axis]
    if logits.ndim > 2:  # (N, C, d1, ...) -> (N, d1, ..., C)
        logits = logits.permute(0, *range(2, logits.ndim), 1)
    if logits.ndim != 2:
        logits = logits.reshape(target.numel(), classes)
    flat = target if target.ndim == 1 else target.reshape(-1)
    losses = cross_entropy_of_rows(logits, flat, int(ignore_index))
    if reduction != "mean":
        return reduced(losses.reshape(target.shape), reduction).to(dtype)
    counted = flat._data != ignore_index
    if type(counted) is not np.ndarray:  # so that the host need not wait for the number
        return (widened(losses).sum() / wrap(counted.sum())).to(dtype)
    return (losses if counted.all() else losses[counted]).mean().to(dtype)


def checked_target(
    function: str, scores: AnyTensor, target: ArrayLike, ignore_index: int
) -> tuple[AnyTensor, int]:
    """The target as a Tensor on the device of the scores, and the dimension of the classes."""
    is_tensor = isinstance(target, TensorBase)
    classes = array_of(target) if is_tensor else checks.as_exact_as(scores, target)
    if not checks.is_integer(ignore_index) or not -(2**63) <= ignore_index < 2**63:
        raise DtypeError(f"ignore_index must be an integer of 64 bits, got {ignore_index!r}")
    if not scores.ndim:
        raise ShapeError(f"{function} takes logits with a dimension of classes, got shape ()")
    axis = min(1, scores.ndim - 1)
    tensor = target if is_tensor else wrap(classes)
    are_probabilities = classes.dtype.kind == "f" and classes.shape == scores.shape
    if are_probabilities and function == "cross_entropy":
        check_same_dtype_and_device(function, logits=scores, target=tensor)
        return tensor, axis
    checks.require_integers(classes.dtype, f"{function} takes class numbers as integers")
    expected = (*scores.shape[:axis], *scores.shape[axis + 1 :])
    if classes.shape != expected:
        hint = ""
        if scores.ndim > 2 and classes.shape == scores.shape[:-1]:
            hint = "; if the classes come last, write logits.transpose(1, -1)"
        raise ShapeError(
            f"{function}: logits {scores.shape} have the classes in dimension {axis}, so "
            f"the target has shape {expected}, got {classes.shape}{hint}"
        )
    if is_tensor:
        checks.check_one_device(function, "logits", scores._data, "target", classes)
    elif tensor.device != scores.device:  # here they can be checked at once
        check_class_range(classes, scores.shape[axis], ignore_index)
        tensor = wrap(to_device(classes, scores.device))
    return tensor, axis


def check_class_range(target: Array, classes: int, ignore_index: int) -> None:
    text = f"cross_entropy: class {{number}} is out of range for {classes} classes "
    text += f"(0 to {classes - 1}, or ignore_index={ignore_index})"
    require_range(target, 0, classes, IndexError, text, also_allowed=ignore_index)


@op(saves=True)
def cross_entropy_of_rows(logits: AnyTensor, target: Any, ignore_index: int) -> Any:
    """-log_softmax(logits)[target] for each row: logits (N, C), target (N,) -> (N,).

    Rows whose target is `ignore_index` give 0.
    """
    checks.require_integers(target.dtype, "cross_entropy takes class numbers as integers")
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ShapeError(f"logits (N, C) need targets (N,), got {logits.shape} and {target.shape}")
    check_class_range(target, logits.shape[1], ignore_index)
    return losses_of_rows(logits, target, ignore_index)


@cross_entropy_of_rows.vjp("logits")
def dlogits(grad, logits, target, ignore_index, saved):
    return losses_of_rows_backward(grad, logits, array_of(target), ignore_index, saved)


@with_kernels(cpu="softmax.cross_entropy", cuda="softmax.cross_entropy")
@quiet
def losses_of_rows(logits: Array, target: Array, ignore_index: int) -> tuple[Array, Array]:
    """The loss of each row (N,); and its maximum and log(sum(exp(row - maximum))), (2, N).

    These two are not added up, because the sum would lose digits of the smaller one.
    """
    xp = namespace(logits)
    if not len(logits):
        return xp.zeros(0, logits.dtype), xp.zeros((2, 0))
    counted = target != ignore_index
    classes = xp.where(counted, target, 0)
    scores = logits.astype(sum_dtype(logits.dtype), order="C")
    top = scores.max(axis=-1)
    log_total = xp.log(xp.exp(scores - top[:, None]).sum(axis=-1))
    losses = xp.where(counted, log_total - (scores[xp.arange(len(target)), classes] - top), 0)
    return losses.astype(logits.dtype), xp.stack([top, log_total])


@with_kernels(cpu="softmax.cross_entropy_backward", cuda="softmax.cross_entropy_backward")
def losses_of_rows_backward(
    grad: Any, logits: Any, target: Array, ignore_index: int, log_sums: Array | None
) -> Any:
    """(softmax(logits) - one_hot(target)) * grad, row by row."""
    xp = namespace(target)
    counted = target != ignore_index
    one_hot = xp.zeros(logits.shape, logits.dtype)
    one_hot[xp.arange(len(target)), xp.where(counted, target, 0)] = 1
    if log_sums is None:  # on Tensors, because log_sums is not part of the graph
        probabilities = softmax(logits)
    else:
        top, log_total = log_sums[:, :, None]
        probabilities = xp.exp((logits - top) - log_total).astype(logits.dtype)
    # `where`, because 0 * NaN is NaN: the logits of an ignored row may be NaN.
    slopes = (probabilities - one_hot) * grad.reshape(len(target), 1)
    return where(counted[:, None], slopes, 0.0)


def nll_loss(
    log_probs: AnyTensor,
    target: ArrayLike,
    weight: AnyTensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> AnyTensor:
    """-log_probs[target]: `cross_entropy` of what has been through `log_softmax`.

    log_probs (N, C), (C,) or (N, C, d1, ...); target, weight and reduction as in `cross_entropy`,
    but the targets are integers.
    Raises IndexError for a class out of range, and ShapeError if the shapes do not agree.
    Differs from PyTorch: ignore_index and reduction come fourth and fifth.

    >>> F.nll_loss(ta.tensor([[-1.0, -2.0], [-3.0, -4.0]]), [0, 1])
    tensor(2.5)
    """
    log_probs = float_tensor(log_probs, "log_probs")
    target, _ = checked_target("nll_loss", log_probs, target, ignore_index)
    check_class_weight(log_probs, weight)
    return weighted_nll(log_probs, target, weight, ignore_index, reduction).to(log_probs.dtype)


def check_class_weight(scores: AnyTensor, weight: AnyTensor | None) -> None:
    """A weight is (C,), for the classes in dimension 1 of the scores (or 0, of one sample)."""
    check_same_dtype_and_device("a weighted loss", scores=scores, weight=weight)
    classes = scores.shape[min(1, scores.ndim - 1)]
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"weight must have shape ({classes},), got {weight.shape}")


def weighted_nll(
    log_probs: AnyTensor,
    target: AnyTensor,
    weight: AnyTensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float = 0.0,
) -> AnyTensor:
    """-weight[target] log_probs[target], mixed with the mean over all classes by `smoothing`."""
    axis = min(1, log_probs.ndim - 1)
    classes, terms = log_probs.shape[axis], -log_probs
    if weight is not None:
        terms = terms * weight.reshape(classes, *(1,) * (log_probs.ndim - 1 - axis))
    if target.dtype.kind == "f":
        if smoothing:  # in the dtype of the terms, which may be wider
            target = (1 - smoothing) * target.to(terms.dtype) + smoothing / classes
        return reduced((terms * target).sum(axis), reduction)
    check_class_range(target._data, classes, ignore_index)
    mixed = smoothing * terms.mean(axis) if smoothing else 0.0
    counted = target != ignore_index
    ids = where(counted, target, 0)
    losses = (1 - smoothing) * terms.gather(axis, ids.unsqueeze(axis)).squeeze(axis) + mixed
    losses = where(counted, losses, 0.0)
    if reduction != "mean":
        return reduced(losses, reduction)
    counts = counted.to(losses.dtype) if weight is None else where(counted, weight[ids], 0.0)
    return widened(losses).sum() / widened(counts).sum()


def mse_loss(x: AnyTensor, target: AnyTensor, reduction: str = "mean") -> AnyTensor:
    """(x - target)^2 of each element; reduction: "mean", "sum" or "none".

    x (...), target (...) -> a 0-d tensor; with "none" (...).
    Raises ShapeError if the shapes differ.
    Differs from PyTorch: the two shapes must be equal, nothing is broadcast.

    >>> F.mse_loss(ta.tensor([1.0, 2.0]), ta.tensor([1.0, 5.0]))
    tensor(4.5)
    """
    check_same_shape("mse_loss", x, target)
    difference = at_least_float32(x) - at_least_float32(target)
    return reduced(difference * difference, reduction).to(x.dtype)


def kl_div(
    x: AnyTensor, target: AnyTensor, reduction: str = "mean", log_target: bool = False
) -> AnyTensor:
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
    checks.check_reduction(reduction, "batchmean")
    x, target, dtype = at_least_float32(x), at_least_float32(target), x.dtype
    # Where target is 0, x may be infinite, and 0 * inf would be NaN.
    is_zero = target == (-math.inf if log_target else 0)
    x_counted = where(is_zero & (x.abs() == math.inf), 0.0, x)
    if log_target:
        # Terms of both signs cancel, and exp would be rounded in each. So they are wide.
        x_counted, target = widened(x_counted), widened(target)
        terms = exp(target) * (where(is_zero, 0.0, target) - x_counted)
    else:
        terms = target * (log(where(is_zero, 1.0, target)) - x_counted)
    if reduction == "batchmean":  # the mean over the samples of what each adds up to
        terms = terms.sum(tuple(range(1, x.ndim))) if x.ndim > 1 else terms
        return terms.mean().to(dtype)
    return reduced(terms, reduction).to(dtype)


def binary_cross_entropy_with_logits(
    x: AnyTensor, target: AnyTensor, reduction: str = "mean"
) -> AnyTensor:
    """-target log(sigmoid(x)) - (1 - target) log(1 - sigmoid(x)), for any x without overflow.

    x (...), target (...), numbers from 0 to 1 -> a 0-d tensor; with reduction "none" (...).
    Raises ShapeError if the shapes differ.
    Differs from PyTorch: there are no weights, and reduction comes third.

    >>> F.binary_cross_entropy_with_logits(ta.tensor([0.0, 1000.0]), ta.tensor([1.0, 1.0]), "none")
    tensor([0.6931, 0.    ])
    """
    check_same_shape("binary_cross_entropy_with_logits", x, target)
    x, target, dtype = at_least_float32(x), at_least_float32(target), x.dtype
    # -log(sigmoid(x)) is softplus(-x), and -log(1 - sigmoid(x)) is softplus(x).
    losses = target * softplus(-x) + (1 - target) * softplus(x)
    return reduced(losses, reduction).to(dtype)


def reduced(losses: AnyTensor, reduction: str) -> AnyTensor:
    """The mean or the sum of the losses; with "none" all of them."""
    checks.check_reduction(reduction)
    return losses if reduction == "none" else getattr(losses, reduction)()
