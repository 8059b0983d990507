"""Functions of Tensors, without parameters of their own.

Each checks its arguments, brings them into the shape that an op expects, and calls the op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import masks, ops
from .base import random
from .base.backend import Array, beside, namespace, read_only, to_device
from .base.checks import (
    are_groups,
    check_heads,
    check_number,
    check_reduction,
    check_size,
    fitting,
    is_integer,
    require_float,
    type_name,
)
from .base.names import UnknownNameError
from .engine.autograd import wrap
from .errors import DeviceError, DtypeError, ShapeError
from .kernels import reference
from .kernels.late_errors import require_range
from .kernels.reference import Drop
from .ops.layers import no_row_text
from .ops.softmax import check_classes
from .tensors.create import full
from .tensors.tensor import Tensor


def tensor_of(value: Any, name: str) -> Tensor:
    """`value` if it is a floating Tensor, else an error that names the argument."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a Tensor, got {type_name(value)}: wrap it with ta.tensor(...)"
        )
    require_float(value.dtype, name)
    return value


def softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """exp(x_i) / sum_j exp(x_j) along `dim`; same shape as `x`, computed in `dtype`.

    Differs from PyTorch: `dim` may be left out.

    >>> F.softmax(ta.tensor([0.0, 0.0]))
    tensor([0.5, 0.5])
    """
    return tensor_of(x, "x").softmax(dim, dtype)


def log_softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """x_i - log(sum_j exp(x_j)) along `dim`; more exact than `softmax(x).log()`.

    Differs from PyTorch: `dim` may be left out.
    """
    return tensor_of(x, "x").log_softmax(dim, dtype)


def relu(x: Tensor) -> Tensor:
    """max(x, 0); the gradient at 0 is 0."""
    return ops.relu(tensor_of(x, "x"))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), Phi the normal distribution function; or its approximation by tanh.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate must be "none" or "tanh", got {approximate!r}')
    return (ops.gelu if approximate == "none" else ops.gelu_tanh)(tensor_of(x, "x"))


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return ops.tanh(tensor_of(x, "x"))


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return ops.sigmoid(tensor_of(x, "x"))


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), also called swish."""
    return tensor_of(x, "x") * ops.sigmoid(x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), a smooth form of relu, computed so that it cannot overflow."""
    return ops.softplus(tensor_of(x, "x"))


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm, eps), with the norm (sum_i |x_i|^p)^(1/p) along `dim`.

    Differs from PyTorch: p is 1 or 2.

    >>> F.normalize(ta.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6, 0.8],
            [0. , 0. ]])
    """
    x, eps = tensor_of(x, "x"), check_number("eps", eps, 0)
    if p not in (1, 2):
        raise ValueError(f"normalize takes p = 1 or 2, got {p!r}")
    # Squares of float16 would overflow at 256. The limit is below the root, because the root has no
    # slope at 0. It is no smaller than the dtype's numbers, because float16 rounds 1e-12 to 0.
    wide = x.float() if x.dtype == np.float16 else x
    least = max(eps, float(np.finfo(x.dtype).smallest_subnormal)) ** p
    least = max(least, float(np.finfo(wide.dtype).tiny))
    total = (ops.abs(wide) if p == 1 else wide * wide).sum(dim, keepdim=True).clamp(min=least)
    return (wide / (total if p == 1 else total.sqrt())).to(x.dtype)


def one_hot(ids: Any, num_classes: int = -1) -> Tensor:
    """1 at the place of each id, else 0: integers (...) -> int64 (..., num_classes).

    num_classes: -1 for the largest id plus 1.

    >>> F.one_hot([0, 2]).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    array = masks.array_of(ids, "ids")
    if array.dtype.kind not in "iu":
        raise DtypeError(f"one_hot takes integer ids, got {array.dtype}")
    if num_classes == -1 and array.size:
        num_classes = max(int(array.max()), 0) + 1
    check_size("num_classes", num_classes)
    text = f"one_hot: id {{number}} is out of range for {num_classes} classes"
    require_range(array, 0, num_classes, IndexError, text)
    return wrap((array[..., None] == namespace(array).arange(num_classes)).astype(np.int64))


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0) -> Tensor:
    """`x` with `value` around it.

    pad: how many elements before and after the last dimension, then the one before it, and so on.
    Differs from PyTorch: "constant" is the only mode, and numbers are >= 0; x[..., 1:] crops.

    >>> F.pad(ta.tensor([[1, 2]]), (0, 1, 1, 0), value=7).tolist()
    [[7, 7, 7], [1, 2, 7]]
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a Tensor, got {type_name(x)}")
    if not isinstance(pad, (tuple, list)):
        raise TypeError(f"pad is a tuple such as (1, 1), before and after, got {pad!r}")
    sizes = [check_size("a number in pad", n, 0) for n in pad]
    if mode != "constant" or len(sizes) % 2 or len(sizes) > 2 * x.ndim:
        raise ShapeError(
            f'pad takes two numbers for each of up to {x.ndim} dimensions, and mode "constant", '
            f"got {pad} and {mode!r} for x {x.shape}"
        )
    if x.dtype.kind != "f":
        fitting(np.array([value]), x.dtype)  # raises, because a fraction would be cut off
    for i, n in enumerate(sizes):
        dim = x.ndim - 1 - i // 2
        more = full((*x.shape[:dim], n, *x.shape[dim + 1 :]), value, x.dtype, x.device)
        x = ops.cat(x, more, dim=dim) if i % 2 else ops.cat(more, x, dim=dim)
    return x


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias: x (..., in), weight (out, in), bias (out,) -> (..., out)."""
    x, weight = tensor_of(x, "x"), tensor_of(weight, "weight")
    if weight.ndim != 2:
        raise ShapeError(f"linear: weight is (out, in), got shape {weight.shape}")
    if not x.ndim or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: weight {weight.shape} takes inputs whose last dimension is "
            f"{weight.shape[1]}, got shape {x.shape}"
        )
    same_kind("linear", x=x, weight=weight, bias=bias)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"linear: bias must have shape {weight.shape[:1]}, got {bias.shape}")
    return ops.linear(x, weight, bias)


def same_kind(function: str, **arguments: Tensor | None) -> None:
    """Raise an error that names two arguments if their dtypes or devices differ."""
    first: tuple[str, Tensor] | None = None
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Tensor):
            raise TypeError(f"{function}: {name} must be a Tensor, got {type_name(value)}")
        if first is None:
            first = (name, value)
            kind, dtype = type(value._data), value._data.dtype
        elif type(value._data) is kind and value._data.dtype is dtype:
            continue
        elif value.device != first[1].device:
            raise DeviceError(
                f"{function}: {first[0]} is on {first[1].device}, {name} on {value.device}: "
                "move one with .to(device)"
            )
        elif value.dtype != first[1].dtype:
            raise DtypeError(
                f"{function}: {first[0]} is {first[1].dtype}, {name} is {value.dtype}: convert "
                "one with .to(dtype)"
            )


def embedding(ids: Any, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """weight[ids]: integer ids (...), weight (V, D) -> (..., D).

    padding_idx: a row that gets no gradient. Raises IndexError for an id out of range. Differs from
    PyTorch: negative ids, and a negative padding_idx, do not count from the end.
    """
    weight = tensor_of(weight, "weight")
    if not isinstance(ids, Tensor):
        ids = Tensor(ids)
        if ids.device != weight.device and ids.dtype.kind in "iu" and weight.ndim == 2:
            require_range(ids._data, 0, len(weight), IndexError, no_row_text(len(weight)))
        ids = ids.to(weight.device)
    elif ids.device != weight.device:
        raise DeviceError(
            f"embedding: ids are on {ids.device}, weight is on {weight.device}: move one with "
            ".to(device)"
        )
    if padding_idx is not None and not 0 <= padding_idx < weight.shape[0]:
        raise IndexError(f"padding_idx {padding_idx} is no row of a table of {weight.shape[0]}")
    if ids.dtype.kind == "f" and not ids.numel():
        ids = ids.long()  # an empty list carries no dtype
    return ops.embedding(ids, weight, padding_idx=padding_idx)


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, `normalized_shape`.

    The variance is biased (divided by n) and eps is added under the root, as in PyTorch. The
    Annotated Transformer divides by n - 1 and adds eps to the root: with few features the results
    differ, and with one they are NaN. Source: Ba et al., "Layer Normalization", 2016.
    """
    x = tensor_of(x, "x")
    sizes = checked_norm("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    flat = [t if t is None or len(sizes) == 1 else t.flatten() for t in (weight, bias)]
    rows = x if len(sizes) == 1 else x.reshape(*x.shape[: -len(sizes)], math.prod(sizes))
    out = ops.layer_norm(rows, *flat, eps=check_number("eps", eps, 0))
    return out if len(sizes) == 1 else out.reshape(x.shape)


def rms_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions, `normalized_shape`.

    eps: None for the epsilon of the dtype, as in PyTorch. Source: Zhang and Sennrich, "Root Mean
    Square Layer Normalization", 2019.
    """
    sizes = checked_norm("rms_norm", tensor_of(x, "x"), normalized_shape, weight=weight)
    eps = float(np.finfo(x.dtype).eps) if eps is None else check_number("eps", eps, 0)
    wide = x.float() if x.dtype == np.float16 else x  # because 256^2 overflows in float16
    out = wide / ((wide * wide).mean(tuple(range(-len(sizes), 0)), keepdim=True) + eps).sqrt()
    return (out if weight is None else out * weight.to(out.dtype)).to(x.dtype)


def checked_norm(
    function: str, x: Tensor, shape: int | Sequence[int], **learned: Tensor | None
) -> tuple[int, ...]:
    """The sizes that are normalized: x ends with them, and weight and bias have them."""
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if not sizes or x.shape[-len(sizes) :] != sizes:
        raise ShapeError(
            f"{function} over {sizes} takes inputs of shape (..., "
            f"{', '.join(map(str, sizes))}), got {x.shape}"
        )
    same_kind(function, x=x, **learned)
    for name, value in learned.items():
        if value is not None and value.shape != sizes:
            raise ShapeError(f"{function}: {name} must have shape {sizes}, got {value.shape}")
    return sizes


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """In training, set each element to 0 with probability p, and divide the others by 1 - p.

    So the expectation of each element stays the same. Source: Srivastava et al., 2014.
    """
    x = tensor_of(x, "x")
    checked_probability(p)
    if not training or p == 0:
        return x
    return ops.dropout(x, p=p, seed=random.dropout_seed())


def checked_probability(p: float, name: str = "a dropout probability") -> float:
    if isinstance(p, bool) or not isinstance(p, (int, float, np.number)) or not 0 <= p <= 1:
        raise ValueError(f"{name} lies between 0 and 1, got {p!r}")
    return float(p)


def checked_scale(scale: float) -> float:
    if not isinstance(scale, (int, float, np.number)) or not math.isfinite(scale):
        raise ValueError(f"scale must be a finite number, got {scale!r}")
    return float(scale)


def cross_entropy(
    logits: Tensor,
    target: Any,
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
    label_smoothing: this part of the target's probability is given to all classes alike.

    Differs from PyTorch: ignore_index and reduction come fourth and fifth.
    """
    logits = tensor_of(logits, "logits")
    check_reduction(reduction)
    smoothing = checked_probability(label_smoothing, "label_smoothing")
    target, axis = checked_classes("cross_entropy", logits, target, ignore_index)
    if weight is not None or smoothing or target.dtype.kind == "f":
        log_probs = logits.log_softmax(axis)
        return class_loss(log_probs, target, weight, ignore_index, reduction, smoothing)
    classes = logits.shape[axis]
    if logits.ndim > 2:  # (N, C, d1, ...) -> (N, d1, ..., C)
        logits = logits.permute(0, *range(2, logits.ndim), 1)
    if logits.ndim != 2:
        logits = logits.reshape(-1, classes)
    flat = target if target.ndim == 1 else target.reshape(-1)
    losses = ops.cross_entropy(logits, flat, ignore_index=int(ignore_index))
    if reduction == "none":
        return losses.reshape(target.shape)
    total = losses.sum()
    if reduction == "sum":
        return total
    used = flat._data != ignore_index
    if type(used) is not np.ndarray:  # so that the host need not wait for the number
        return total / wrap(used.sum().astype(total.dtype))
    count = int(np.count_nonzero(used))
    return total / count if count else total * math.nan


def checked_classes(
    function: str, scores: Tensor, target: Any, ignore_index: int
) -> tuple[Tensor, int]:
    """The target as a Tensor on the device of the scores, and the dimension of the classes."""
    given = isinstance(target, Tensor)
    target = target if given else Tensor(target)
    if not is_integer(ignore_index) or not -(2**63) <= ignore_index < 2**63:
        raise DtypeError(f"ignore_index must be an integer of 64 bits, got {ignore_index!r}")
    axis = min(1, scores.ndim - 1)
    soft = target.dtype.kind == "f" and scores.ndim and target.shape == scores.shape
    if soft and function == "cross_entropy":
        same_kind(function, logits=scores, target=target)
        return target, axis
    if target.dtype.kind not in "iu":
        raise DtypeError(f"{function} takes class numbers as integers, got {target.dtype}")
    if given and target.device != scores.device:
        raise DeviceError(f"logits are on {scores.device}, target is on {target.device}")
    if not scores.ndim or target.shape != (*scores.shape[:axis], *scores.shape[axis + 1 :]):
        raise ShapeError(
            f"{function}: logits {scores.shape} need a target of their shape without the "
            f"classes (dimension {max(axis, 0)}), got {target.shape}"
        )
    if target.device != scores.device:  # here they can be checked at once
        check_classes(target._data, scores.shape[axis], ignore_index)
        target = target.to(scores.device)
    return target, axis


def class_loss(
    log_probs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float = 0.0,
) -> Tensor:
    """-w[target] log_probs[target], mixed with the mean over all classes by `smoothing`."""
    axis = min(1, log_probs.ndim - 1)
    classes, terms = log_probs.shape[axis], -log_probs
    if weight is not None:
        same_kind("a weighted loss", log_probs=log_probs, weight=weight)
        if weight.shape != (classes,):
            raise ShapeError(f"weight must have shape ({classes},), got {weight.shape}")
        terms = terms * weight.reshape(classes, *(1,) * (log_probs.ndim - 1 - axis))
    mixed = smoothing * terms.mean(axis) if smoothing else 0.0
    if target.dtype.kind == "f":
        losses = (1 - smoothing) * (terms * target).sum(axis) + mixed
        return losses if reduction == "none" else getattr(losses, reduction)()
    check_classes(target._data, classes, ignore_index)
    used = target != ignore_index
    ids = ops.where(used, target, 0)
    losses = (1 - smoothing) * terms.gather(axis, ids.unsqueeze(axis)).squeeze(axis) + mixed
    losses = ops.where(used, losses, 0.0)
    if reduction != "mean":
        return losses if reduction == "none" else losses.sum()
    counts = used.to(losses.dtype) if weight is None else ops.where(used, weight[ids], 0.0)
    return losses.sum() / counts.sum()


def nll_loss(
    log_probs: Tensor,
    target: Any,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-log_probs[target]: `cross_entropy` of what has been through `log_softmax`.

    Differs from PyTorch: ignore_index and reduction come fourth and fifth.
    """
    log_probs = tensor_of(log_probs, "log_probs")
    check_reduction(reduction)
    target, _ = checked_classes("nll_loss", log_probs, target, ignore_index)
    return class_loss(log_probs, target, weight, ignore_index, reduction)


def same_shape(function: str, x: Any, target: Any) -> tuple[Tensor, Tensor]:
    x, target = tensor_of(x, "x"), tensor_of(target, "target")
    if x.shape != target.shape:
        raise ShapeError(f"{function}: x {x.shape} and target {target.shape} must have one shape")
    return x, target


def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(x - target)^2; reduction: "mean", "sum" or "none".

    Differs from PyTorch: the two shapes must be equal, nothing is broadcast.
    """
    x, target = same_shape("mse_loss", x, target)
    check_reduction(reduction)
    squares = (x - target) * (x - target)
    return squares if reduction == "none" else getattr(squares, reduction)()


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - x), the divergence of exp(x) from `target`; 0 where target is 0.

    x: logarithms of probabilities. target: probabilities, or with `log_target` their logarithms.
    reduction: "batchmean" (the sum divided by the first size), "mean" (over all elements), "sum" or
        "none". Differs from PyTorch: it comes third.
    """
    x, target = same_shape("kl_div", x, target)
    check_reduction(reduction, "batchmean")
    if log_target:
        terms = ops.exp(target) * (target - x)
    else:
        terms = target * (ops.log(ops.where(target == 0, 1.0, target)) - x)
    if reduction == "batchmean":
        return terms.sum() / (len(x) if x.ndim else 1)
    return terms if reduction == "none" else getattr(terms, reduction)()


def binary_cross_entropy_with_logits(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """-target log(sigmoid(x)) - (1 - target) log(1 - sigmoid(x)), for any x without overflow.

    Differs from PyTorch: there are no weights, and reduction comes third.
    """
    x, target = same_shape("binary_cross_entropy_with_logits", x, target)
    check_reduction(reduction)
    # -log(sigmoid(x)) is softplus(-x), and -log(1 - sigmoid(x)) is softplus(x).
    losses = target * ops.softplus(-x) + (1 - target) * ops.softplus(x)
    return losses if reduction == "none" else getattr(losses, reduction)()


def masked_softmax(
    scores: Tensor, valid_lens: Any = None, mask: Any = None, is_causal: bool = False
) -> Tensor:
    """Softmax over the visible keys, the last dimension of the scores; invisible keys get 0.

    scores: (B, Q, K) or (B, H, Q, K); or of one sample, (Q, K) or (K,).
    valid_lens: (B,) or (B, Q), the number of first keys that are visible; of one sample a number,
        or (Q,).
    mask: True = visible, see `tinyattn.masks`. For (Q, K) and (K,) it broadcasts to the scores.
    is_causal: query i sees keys 0 to i.
    A key is visible if all of them say so.

    No score is replaced by a fill value: maximum and sum leave invisible keys out. A row without a
    visible key is exactly 0, and so is its gradient. (With the fill value -1e6 such a row would
    attend to padding, and so would every row whose real scores are lower.)

        >>> F.masked_softmax(ta.zeros(1, 1, 3), valid_lens=[2])
        tensor([[[0.5, 0.5, 0. ]]])
    """
    scores = tensor_of(scores, "scores")
    if scores.ndim not in (1, 2, 3, 4):
        raise ShapeError(
            f"scores are (B, Q, K), (B, H, Q, K), (Q, K) or (K,), got shape {scores.shape}"
        )
    if scores.ndim > 2:
        four = scores if scores.ndim == 4 else scores.unsqueeze(1)  # (B, H, Q, K)
    else:
        four = scores.reshape(1, *(1,) * (3 - scores.ndim), *scores.shape)  # (1, 1, Q, K)
        valid_lens = None if valid_lens is None else masks.array_of(valid_lens, "valid_lens")[None]
        if mask is not None:
            mask = masks.array_of(mask, "mask")
            mask = mask.reshape(1, *(1,) * (2 - mask.ndim), *mask.shape)  # (1, Q|1, K|1)
    visibility = masks.visibility(four.shape, valid_lens, mask, is_causal, device=scores.device)
    return ops.masked_softmax(four, visibility=visibility).reshape(scores.shape)


def sequence_mask(x: Tensor, valid_lens: Any, value: float = 0) -> Tensor:
    """`x` (B, L, ...) with `value` at every position from valid_lens[b] on.

    valid_lens: (B,), one length for each sample, from 0 to L.

    Returns a new tensor. (The d2l book's version changes `x`.)
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a Tensor, got {type_name(x)}")
    if x.ndim < 2:
        raise ShapeError(f"sequence_mask takes (B, L, ...), got shape {x.shape}")
    keep = masks.from_valid_lens(valid_lens, x.shape[1])
    if keep.shape != x.shape[:2]:
        raise ShapeError(
            f"sequence_mask takes a length for each of the {x.shape[0]} samples, valid_lens (B,), "
            f"got shape {keep.shape[:-1]}"
        )
    keep = keep.to(x.device).reshape(*keep.shape, *(1,) * (x.ndim - 2))
    return ops.where(keep, x, value)


def masked_mean(x: Tensor, valid_lens: Any = None, mask: Any = None) -> Tensor:
    """The mean over the visible positions of each sample: x (B, N, ...) -> (B, ...).

    valid_lens (B,), a mask (B, N), or both; neither for all positions. The mean of none is 0. What
    stands in an invisible position has no influence, even if it is NaN.

        >>> F.masked_mean(ta.tensor([[[1.0], [3.0], [8.0]]]), valid_lens=[2])
        tensor([[2.]])
    """
    if tensor_of(x, "x").ndim < 2:
        raise ShapeError(f"masked_mean takes (B, N, ...), got shape {x.shape}")
    shape = (len(x), 1, 1, x.shape[1])  # of scores (B, H, Q, K) with one query
    visible = masks.visibility(shape, valid_lens, mask, device=x.device).pairs(x)
    if visible is None:
        return x.mean(1)
    keep = wrap(namespace(visible).broadcast_to(visible, shape)[:, 0, 0])  # (B, N)
    count = keep.sum(1).clamp(min=1).reshape(len(x), *(1,) * (x.ndim - 2))
    wide = x.float() if x.dtype == np.float16 else x  # because a sum may overflow in float16
    kept = ops.where(keep.reshape(*keep.shape, *(1,) * (x.ndim - 2)), wide, 0)
    return (kept.sum(1) / count).to(x.dtype)


def pack_padded_sequence(x: Tensor, valid_lens: Any) -> Tensor:
    """The first valid_lens[b] rows of each sample, one after another: x (B, L, ...) -> (N, ...).

    N is the sum of valid_lens (B,). Linear, LayerNorm and feed-forward networks compute each row
    alone, so on packed rows they give the same and do not compute padding. Multi-head attention
    takes packed rows together with valid_lens. `pad_packed_sequence` undoes this function.

    Differs from PyTorch's function of this name: that one returns an object in which the rows of
    all samples alternate, for recurrent networks.

        >>> x = ta.tensor([[1, 2, 0], [3, 0, 0]])
        >>> F.pack_padded_sequence(x, valid_lens=[2, 1])
        tensor([1, 2, 3])
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a Tensor, got {type_name(x)}")
    if x.ndim < 2:
        raise ShapeError(f"pack_padded_sequence takes (B, L, ...), got shape {x.shape}")
    return ops.pack(x, lengths=masks.sample_lens(valid_lens, *x.shape[:2]))


def pad_packed_sequence(x: Tensor, valid_lens: Any, length: int | None = None) -> Tensor:
    """Undo `pack_padded_sequence`: x (N, ...) -> (B, length, ...), with zeros after each sample.

    length: the longest of valid_lens by default; PyTorch calls it `total_length`.

        >>> F.pad_packed_sequence(ta.tensor([1, 2, 3]), valid_lens=[2, 1])
        tensor([[1, 2],
                [3, 0]])
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a Tensor, got {type_name(x)}")
    if not x.ndim:
        raise ShapeError("pad_packed_sequence takes (N, ...), got a tensor without dimensions")
    lengths = masks.packed_lens(valid_lens, len(x))
    longest = max(lengths, default=0)
    length = longest if length is None else check_size("length", length, 0)
    if length < longest:
        raise ShapeError(f"length {length} is less than the longest sequence, {longest}")
    return ops.unpack(x, lengths=lengths, length=length)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any = None,
    valid_lens: Any = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    return_weights: bool = False,
    bias: Tensor | None = None,
    attn_mask: Any = None,
    window: int | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q k^T / sqrt(d) + bias) v over the visible keys.

    query (B, Q, d), key (B, K, d), value (B, K, e) -> (B, Q, e), or with heads
    (B, H, Q, d), (B, H, K, d), (B, H, K, e) -> (B, H, Q, e).
    mask, valid_lens, is_causal: a key is visible if all of them say so; see `tinyattn.masks`.
    dropout_p: dropout on the weights; there is no training flag here, so 0 switches it off.
    scale: a finite number instead of 1 / sqrt(d).
    return_weights: return (output, weights), with weights (B, Q, K) or (B, H, Q, K), without
        dropout and without a graph.
    bias: a Tensor that broadcasts to the scores, (B, Q, K) or (B, H, Q, K), such as (H, Q, K).
    window: query i sees key k only if |i - k| < window; with is_causal the last `window` keys.
    enable_gqa: key and value may have fewer heads, a divisor G of H: each is for H / G heads.
    attn_mask: PyTorch's mask, which broadcasts as a bias does: booleans, True = visible; or numbers
        that are added to the scores, where -inf hides a key.

    Why sqrt(d): the product of two independent vectors of d elements of variance 1 has variance d.
    A softmax of such scores puts nearly all weight on one key, and there its gradient is nearly 0.
    Source: Vaswani et al., "Attention Is All You Need", 2017; enable_gqa: Ainslie et al., "GQA",
    2023; window: Beltagy et al., "Longformer", 2020.
    Differs from PyTorch: `mask` is never added to the scores; a 2-D mask is always (B, K), so one
    of queries by keys is written `mask[None]`; a query without a visible key gives zeros. As in
    PyTorch, query i sees keys 0 to i of a causal mask, also if Q and K differ.
    """
    q, k, v = checked_heads(query, key, value, enable_gqa)  # (B, H, N, d)
    p = checked_probability(dropout_p)
    scale = default_scale(q.shape[-1]) if scale is None else checked_scale(scale)
    shape = (*q.shape[:-1], k.shape[-2])  # (B, H, Q, K)
    visibility = masks.visibility(shape, valid_lens, mask, is_causal, window, q.device)
    bias, mask = bias_and_mask(bias, attn_mask, visibility.mask, query, shape)
    visibility = visibility._replace(mask=mask)
    k, v = ops.clear_invisible(visibility, shape[1], k, v)
    drop = Drop(p, random.dropout_seed() if p else 0)
    heads, width = (q.shape[1], k.shape[1]), v.shape[-1]
    if return_weights:  # the formula as it is written, with an array of all weights (B, H, Q, K)
        q, k, v = (t.transpose(1, 2).flatten(0, 1) for t in (q, k, v))  # (B * N, H, d)
        out, weights = reference.attention(q, k, v, visibility, scale, drop, bias)
    else:  # the same, block of queries by block of queries: kernels/cpu/attention.py
        q, k, v = (t.transpose(1, 2).flatten(2) for t in (q, k, v))  # (B, N, H * d)
        options = {"heads": heads, "visibility": visibility, "scale": scale, "drop": drop}
        out = ops.attention(q, k, v, bias, **options)
    out = out.reshape(shape[0], shape[2], heads[0], width).transpose(1, 2)  # (B, H, Q, e)
    if query.ndim == 3:
        out = out.squeeze(1)
    if not return_weights:
        return out
    return out, (weights if query.ndim == 4 else weights.squeeze(1)).detach()


def checked_heads(query: Any, key: Any, value: Any, enable_gqa: bool = False) -> list[Tensor]:
    """query, key and value as (B, H, N, d), checked; H is 1 if they have no heads."""
    named = {"query": query, "key": key, "value": value}
    query, key, value = (tensor_of(t, name) for name, t in named.items())
    if query.ndim not in (3, 4) or not query.ndim == key.ndim == value.ndim:
        raise ShapeError(
            "attention takes query, key and value of 3 dimensions (B, N, d) or of 4 (B, H, N, d), "
            f"got {query.shape}, {key.shape}, {value.shape}"
        )
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(f"query {query.shape} and key {key.shape} must have one width")
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(f"key {key.shape} and value {value.shape} must be of one number")
    alike = query.shape[:-2] == key.shape[:-2]
    if enable_gqa and query.ndim == 4:
        alike = len(query) == len(key) and are_groups(query.shape[1], key.shape[1])
    if not alike or key.shape[:-2] != value.shape[:-2]:
        hint = "; with enable_gqa=True the heads of key and value may be a divisor of query's"
        raise ShapeError(
            "query, key and value must have the same samples (and heads), got "
            f"{query.shape}, {key.shape}, {value.shape}{hint if query.ndim == 4 else ''}"
        )
    same_kind("attention", **named)
    return [t if t.ndim == 4 else t.unsqueeze(1) for t in (query, key, value)]


def bias_and_mask(
    bias: Any, attn_mask: Any, mask: Array | None, query: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor | None, Array | None]:
    """What is added to scores of this shape (B, H, Q, K), and the mask, from all that is given."""
    ndim = query.ndim
    bias = None if bias is None else checked_bias("bias", bias, query, shape, ndim)
    if attn_mask is None:
        return bias, mask
    given = attn_mask if isinstance(attn_mask, Tensor) else Tensor(attn_mask)
    if given.dtype.kind in "iu":
        raise DtypeError(
            "attn_mask holds booleans (True = visible), or floats that are added to the scores, "
            f"got {given.dtype}: write attn_mask != 0 for one of 1 and 0"
        )
    if given.dtype == np.bool_:
        visible = over_scores("attn_mask", given.to(query.device), ndim, shape)._data.copy()
    else:
        numbers = checked_bias("attn_mask", given, query, shape, ndim)
        visible = numbers._data != -math.inf
        numbers = ops.where(visible, numbers, 0.0)
        bias = numbers if bias is None else bias + numbers
    return bias, visible if mask is None else visible & mask


def checked_bias(
    name: str, bias: Any, query: Tensor, shape: tuple[int, ...], ndim: int = 4
) -> Tensor:
    """A bias as (B|1, H|1, Q|1, K|1), of the dtype and device of query; see `over_scores`."""
    same_kind("attention", **{"query": query, name: tensor_of(bias, name)})
    return over_scores(name, bias, ndim, shape)


def over_scores(name: str, x: Tensor, ndim: int, shape: tuple[int, ...]) -> Tensor:
    """x in 4 dimensions; it must broadcast to scores (B, H, Q, K), or (B, Q, K) if ndim is 3."""
    right = shape if ndim == 4 else (shape[0], *shape[2:])
    check_broadcast(f"{name} must broadcast to the scores", x.shape, right)
    x = x.reshape((1,) * (len(right) - x.ndim) + x.shape)
    return x if ndim == 4 else x.unsqueeze(1)


def check_broadcast(rule: str, shape: tuple[int, ...], right: tuple[int, ...]) -> None:
    pairs = zip(reversed(shape), reversed(right), strict=False)
    if len(shape) > len(right) or any(n not in (1, m) for n, m in pairs):
        raise ShapeError(f"{rule}, {right}, got shape {shape}")


def default_scale(width: int) -> float:
    """1 / sqrt(d), because q k^T of independent numbers has variance d; 1 for d = 0."""
    return 1 / math.sqrt(width) if width else 1.0


@lru_cache(maxsize=16)
def rotations(
    positions: bytes, shape: tuple[int, ...], width: int, base: float, dtype: np.dtype
) -> np.ndarray:
    """cos and sin of p / base^(2j / width) for each position p: (2, *shape, width / 2).

    positions: the int64 numbers of an array of this shape, as bytes, because all layers of a step
    ask for the same, and arrays are no keys of a cache.
    """
    numbers = np.frombuffer(positions, np.int64).reshape(*shape, 1)
    angles = numbers * base ** (-np.arange(0, width, 2) / width)
    return read_only(np.stack([np.cos(angles), np.sin(angles)]).astype(dtype))


def rotary_embedding(x: Tensor, positions: Any = None, base: float = 10000.0) -> Tensor:
    """x with each pair (2j, 2j+1) of a row turned by the angle position / base^(2j / d).

    x (..., N, d), d even; for attention queries and keys with heads, (B, H, N, d).
    positions: integers >= 0 that broadcast to (..., N), one for each row; 0 to N-1 by default.

    A product of a query and a key that are both turned depends on the distance of their positions
    only: turning both by one angle more leaves it as it was. Values are not turned.
    Source: Su et al., "RoFormer", 2021. Implementations of Llama pair element j with j + d/2: the
    same for weights whose rows are in another order.

        >>> x = ta.ones(2, 4)
        >>> F.rotary_embedding(x, positions=[0, 0]).equal(x)
        True
    """
    if tensor_of(x, "x").ndim < 2:
        raise ShapeError(f"rotary_embedding takes x (..., N, d), got shape {x.shape}")
    if x.shape[-1] % 2:
        raise ShapeError(f"rotary_embedding turns pairs: the width is even, got {x.shape[-1]}")
    if positions is None:
        positions = np.arange(x.shape[-2])
    else:
        positions = to_device(masks.array_of(positions, "positions"), "cpu")
        if positions.dtype.kind not in "iu":
            raise DtypeError(f"positions must be integers, got {positions.dtype}")
        require_range(positions, 0, 2**31, ShapeError, "positions must be >= 0, got {number}")
        check_broadcast("positions must broadcast to the rows", positions.shape, x.shape[:-1])
    numbers = positions.astype(np.int64).tobytes()
    table = rotations(numbers, positions.shape, x.shape[-1], float(base), x.dtype)
    cos, sin = beside(table, x)
    return ops.turn_pairs(x, cos=cos, sin=sin)


def alibi_bias(
    num_heads: int, queries: int, keys: int | None = None, dtype: Any = None, device: Any = None
) -> Tensor:
    """The bias -m_h |i - j| of query i and key j in head h: (H, Q, K), with m_h = 2^(-8 h / H).

    h counts from 1. keys: as many as queries by default. Heads with a steep slope see what is near,
    others see further; no position is added to the inputs.
    Source: Press et al., "Train Short, Test Long", 2022. Their code has other slopes if the number
    of heads is no power of 2.

        >>> F.alibi_bias(2, 3)[0]
        tensor([[-0.    , -0.0625, -0.125 ],
                [-0.0625, -0.    , -0.0625],
                [-0.125 , -0.0625, -0.    ]])
    """
    check_size("num_heads", num_heads)
    check_size("queries", queries, 0)
    keys = queries if keys is None else check_size("keys", keys, 0)
    slopes = 2.0 ** (-8 * np.arange(1, num_heads + 1) / num_heads)
    distances = np.abs(np.arange(queries)[:, None] - np.arange(keys))
    bias = Tensor(-slopes[:, None, None] * distances, dtype=dtype or np.float32)
    return bias if device is None else bias.to(device)


def transpose_qkv(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B * H, N, D / H): the heads of a sample become samples.

    This is the d2l book's form. The modules of tinyattn have a dimension for the heads instead, so
    lengths and masks need not be repeated.
    """
    if tensor_of(x, "x").ndim != 3:
        raise ShapeError(f"transpose_qkv takes (B, N, D), got shape {x.shape}")
    check_heads(x.shape[-1], num_heads)
    batch, n, width = x.shape
    x = x.reshape(batch, n, num_heads, width // num_heads)  # (B, N, H, d)
    return x.permute(0, 2, 1, 3).reshape(batch * num_heads, n, width // num_heads)


def transpose_output(x: Tensor, num_heads: int) -> Tensor:
    """(B * H, N, d) -> (B, N, H * d); undoes `transpose_qkv`."""
    if num_heads <= 0:
        raise ShapeError(f"the number of heads must be > 0, got {num_heads}")
    if tensor_of(x, "x").ndim != 3 or x.shape[0] % num_heads:
        raise ShapeError(f"transpose_output takes (B * {num_heads}, N, d), got shape {x.shape}")
    total, n, width = x.shape
    x = x.reshape(total // num_heads, num_heads, n, width)  # (B, H, N, d)
    return x.permute(0, 2, 1, 3).reshape(total // num_heads, n, num_heads * width)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        own = [n for n, v in globals().items() if getattr(v, "__module__", "") == __name__]
        raise UnknownNameError("F", name, own)
