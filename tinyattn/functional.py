"""Functions of Tensors, without parameters of their own.

Each checks its arguments, brings them into the shape that an op expects, and calls the op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from . import masks, ops
from .base import random
from .base.backend import Array, beside, namespace, read_only, to_device
from .base.checks import (
    DType,
    cast_exactly,
    check_broadcast,
    check_heads,
    check_number,
    check_reduction,
    check_size,
    checked_probability,
    checked_scale,
    default_scale,
)
from .base.names import UnknownNameError
from .engine.autograd import wrap
from .errors import DeviceError, DtypeError, ShapeError
from .kernels import reference
from .kernels.range_checks import require_range
from .kernels.reference import Drop
from .ops.layers import unknown_id_text
from .ops.softmax import check_class_range
from .tensors.arguments import (
    ArrayLike,
    any_tensor,
    as_scores,
    at_least_float32,
    check_same_dtype_and_device,
    check_same_shape,
    checked_bias,
    checked_heads,
    checked_target,
    float_tensor,
    normalized_sizes,
)
from .tensors.create import full
from .tensors.tensor import Tensor

__all__ = [
    "alibi_bias",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "kl_div",
    "layer_norm",
    "linear",
    "log_softmax",
    "masked_mean",
    "masked_softmax",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pack_padded_sequence",
    "pad",
    "pad_packed_sequence",
    "relu",
    "rms_norm",
    "rotary_embedding",
    "scaled_dot_product_attention",
    "sequence_mask",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
    "transpose_output",
    "transpose_qkv",
]


def softmax(x: Tensor, dim: int = -1, dtype: DType = None) -> Tensor:
    """exp(x_i) / sum_j exp(x_j) along `dim`: positive numbers whose sum is 1.

    x (...) -> (...), of the same shape. dtype: compute in this dtype; that of x by default.
    Raises IndexError if x has no such dimension.
    Differs from PyTorch: `dim` may be left out.

    >>> F.softmax(ta.tensor([0.0, 0.0]))
    tensor([0.5, 0.5])
    """
    return float_tensor(x, "x").softmax(dim, dtype)


def log_softmax(x: Tensor, dim: int = -1, dtype: DType = None) -> Tensor:
    """x_i - log(sum_j exp(x_j)) along `dim`; more exact than `softmax(x).log()`.

    x (...) -> (...), of the same shape. dtype: compute in this dtype; that of x by default.
    Raises IndexError if x has no such dimension.
    Differs from PyTorch: `dim` may be left out.

    >>> F.log_softmax(ta.tensor([0.0, 1000.0]))
    tensor([-1000.,     0.])
    """
    return float_tensor(x, "x").log_softmax(dim, dtype)


def relu(x: Tensor) -> Tensor:
    """max(x, 0) of each element; the gradient at 0 is 0.

    >>> F.relu(ta.tensor([-2.0, 3.0]))
    tensor([0., 3.])
    """
    return ops.relu(float_tensor(x, "x"))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x Phi(x) of each element, where Phi is the distribution function of the normal distribution.

    approximate: "tanh" for x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    Raises ValueError for another value of `approximate`.
    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    >>> F.gelu(ta.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.    ,  0.8413])
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate must be "none" or "tanh", got {approximate!r}')
    return (ops.gelu if approximate == "none" else ops.gelu_tanh)(float_tensor(x, "x"))


def tanh(x: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x)) of each element, the hyperbolic tangent.

    >>> F.tanh(ta.tensor([-100.0, 0.0, 100.0]))
    tensor([-1.,  0.,  1.])
    """
    return ops.tanh(float_tensor(x, "x"))


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) of each element, computed so that it cannot overflow.

    >>> F.sigmoid(ta.tensor([-1000.0, 0.0, 1000.0]))
    tensor([0. , 0.5, 1. ])
    """
    return ops.sigmoid(float_tensor(x, "x"))


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x) of each element, also called swish.

    Source: Elfwing et al., "Sigmoid-Weighted Linear Units", 2017.

    >>> F.silu(ta.tensor([-1000.0, 0.0, 1000.0]))
    tensor([  -0.,    0., 1000.])
    """
    return float_tensor(x, "x") * ops.sigmoid(x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) of each element, a smooth form of relu, computed so that it cannot overflow.

    >>> F.softplus(ta.tensor([-1000.0, 0.0, 100.0]))
    tensor([  0.    ,   0.6931, 100.    ])
    """
    return ops.softplus(float_tensor(x, "x"))


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm, eps), with the norm (sum_i |x_i|^p)^(1/p) along `dim`.

    x (...) -> (...), of the same shape. eps: so that a row of zeros stays zeros.
    Raises IndexError if x has no such dimension, and ValueError for another p.
    Differs from PyTorch: p is 1 or 2.

    >>> F.normalize(ta.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6, 0.8],
            [0. , 0. ]])
    """
    x, eps = float_tensor(x, "x"), check_number("eps", eps, 0)
    if p not in (1, 2):
        raise ValueError(f"normalize takes p = 1 or 2, got {p!r}")
    # The limit is below the root, because the root has no slope at 0. It is no smaller than the
    # dtype's numbers, because float16 rounds 1e-12 to 0.
    limit = max(eps, float(np.finfo(x.dtype).smallest_subnormal)) ** p
    x, dtype = at_least_float32(x), x.dtype
    limit = max(limit, float(np.finfo(x.dtype).tiny))
    total = (ops.abs(x) if p == 1 else x * x).sum(dim, keepdim=True).clamp(min=limit)
    return (x / (total if p == 1 else total.sqrt())).to(dtype)


def one_hot(ids: ArrayLike, num_classes: int = -1) -> Tensor:
    """1 at the place of each id, else 0: integers (...) -> int64 (..., num_classes).

    num_classes: -1 for the largest id plus 1.
    Raises DtypeError if ids are no integers, and IndexError for an id out of range.

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
    Raises ShapeError for a negative or an odd number of sizes, for more sizes than x has
    dimensions, and for another mode.
    Differs from PyTorch: "constant" is the only mode, and numbers are >= 0; x[..., 1:] crops.

    >>> F.pad(ta.tensor([[1, 2]]), (0, 1, 1, 0), value=7).tolist()
    [[7, 7, 7], [1, 2, 7]]
    """
    x = any_tensor(x, "x")
    if not isinstance(pad, (tuple, list)):
        raise TypeError(f"pad is a tuple such as (1, 1), before and after, got {pad!r}")
    sizes = [check_size("a number in pad", n, 0) for n in pad]
    if mode != "constant" or len(sizes) % 2 or len(sizes) > 2 * x.ndim:
        raise ShapeError(
            f'pad takes two numbers for each of up to {x.ndim} dimensions, and mode "constant", '
            f"got {pad} and {mode!r} for x {x.shape}"
        )
    if x.dtype.kind != "f":
        cast_exactly(np.array([value]), x.dtype)  # raises, because a fraction would be cut off
    for i, n in enumerate(sizes):
        dim = x.ndim - 1 - i // 2
        border = full((*x.shape[:dim], n, *x.shape[dim + 1 :]), value, x.dtype, x.device)
        x = ops.cat(x, border, dim=dim) if i % 2 else ops.cat(border, x, dim=dim)
    return x


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias: x (..., in), weight (out, in), bias (out,) -> (..., out).

    Raises ShapeError if the sizes do not agree, DtypeError and DeviceError if dtypes or devices
    differ.

    >>> F.linear(ta.tensor([1.0, 2.0]), weight=ta.tensor([[1.0, 1.0], [0.0, 3.0]]))
    tensor([3., 6.])
    """
    x, weight = float_tensor(x, "x"), float_tensor(weight, "weight")
    if weight.ndim != 2:
        raise ShapeError(f"linear: weight is (out, in), got shape {weight.shape}")
    if not x.ndim or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: weight {weight.shape} takes inputs whose last dimension is "
            f"{weight.shape[1]}, got shape {x.shape}"
        )
    check_same_dtype_and_device("linear", x=x, weight=weight, bias=bias)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"linear: bias must have shape {weight.shape[:1]}, got {bias.shape}")
    return ops.linear(x, weight, bias)


def embedding(ids: ArrayLike, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """weight[ids], the row of each id: integers ids (...), weight (V, D) -> (..., D).

    padding_idx: a row that gets no gradient.
    Raises IndexError for an id out of range, and DtypeError if ids are no integers.
    Differs from PyTorch: negative ids, and a negative padding_idx, do not count from the end.

    >>> F.embedding([1, 0, 1], weight=ta.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.],
            [3., 4.]])
    """
    weight = float_tensor(weight, "weight")
    if not isinstance(ids, Tensor):
        ids = Tensor(ids)
        if ids.device != weight.device and ids.dtype.kind in "iu" and weight.ndim == 2:
            require_range(ids._data, 0, len(weight), IndexError, unknown_id_text(len(weight)))
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

    x (..., *normalized_shape) -> the same shape; weight and bias have the shape normalized_shape.
    The variance is biased (divided by n) and eps is added under the root, as in PyTorch. The
    Annotated Transformer divides by n - 1 and adds eps to the root: with few features the results
    differ, and with one they are NaN.
    Raises ShapeError if x does not end with normalized_shape.
    Source: Ba et al., "Layer Normalization", 2016.

    >>> F.layer_norm(ta.tensor([[-3.0, 3.0], [10.0, 10.0]]), 2)
    tensor([[-1.,  1.],
            [ 0.,  0.]])
    """
    x = float_tensor(x, "x")
    sizes = normalized_sizes("layer_norm", x, normalized_shape, weight=weight, bias=bias)
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

    x (..., *normalized_shape) -> the same shape; weight has the shape normalized_shape.
    eps: None for the epsilon of the dtype, as in PyTorch.
    Raises ShapeError if x does not end with normalized_shape.
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    >>> F.rms_norm(ta.tensor([[1.0, 7.0]]), 2)
    tensor([[0.2, 1.4]])
    """
    x = float_tensor(x, "x")
    sizes = normalized_sizes("rms_norm", x, normalized_shape, weight=weight)
    eps = float(np.finfo(x.dtype).eps) if eps is None else check_number("eps", eps, 0)
    x, dtype = at_least_float32(x), x.dtype
    out = x / ((x * x).mean(tuple(range(-len(sizes), 0)), keepdim=True) + eps).sqrt()
    return (out if weight is None else out * weight.to(out.dtype)).to(dtype)


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """In training, set each element to 0 with probability p, and divide the others by 1 - p.

    So the expectation of each element stays the same. `ta.manual_seed` repeats the choice.
    Raises ValueError if p does not lie between 0 and 1.
    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
    2014.

    >>> sorted(set(F.dropout(ta.ones(100), p=0.5).tolist()))
    [0.0, 2.0]
    >>> F.dropout(ta.ones(3), p=0.5, training=False)
    tensor([1., 1., 1.])
    """
    x = float_tensor(x, "x")
    checked_probability(p)
    if not training or p == 0:
        return x
    return ops.dropout(x, p=p, seed=random.dropout_seed())


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
    if weight is not None or smoothing or target.dtype.kind == "f":
        log_probs = logits.log_softmax(axis)
        return weighted_nll(log_probs, target, weight, ignore_index, reduction, smoothing)
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
    counted = flat._data != ignore_index
    if type(counted) is not np.ndarray:  # so that the host need not wait for the number
        return total / wrap(counted.sum().astype(total.dtype))
    count = int(np.count_nonzero(counted))
    return total / count if count else total * math.nan


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
    return weighted_nll(log_probs, target, weight, ignore_index, reduction)


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
        check_same_dtype_and_device("a weighted loss", log_probs=log_probs, weight=weight)
        if weight.shape != (classes,):
            raise ShapeError(f"weight must have shape ({classes},), got {weight.shape}")
        terms = terms * weight.reshape(classes, *(1,) * (log_probs.ndim - 1 - axis))
    mixed = smoothing * terms.mean(axis) if smoothing else 0.0
    if target.dtype.kind == "f":
        losses = (1 - smoothing) * (terms * target).sum(axis) + mixed
        return losses if reduction == "none" else getattr(losses, reduction)()
    check_class_range(target._data, classes, ignore_index)
    counted = target != ignore_index
    ids = ops.where(counted, target, 0)
    losses = (1 - smoothing) * terms.gather(axis, ids.unsqueeze(axis)).squeeze(axis) + mixed
    losses = ops.where(counted, losses, 0.0)
    if reduction != "mean":
        return losses if reduction == "none" else losses.sum()
    counts = counted.to(losses.dtype) if weight is None else ops.where(counted, weight[ids], 0.0)
    return losses.sum() / counts.sum()


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
    squares = (x - target) * (x - target)
    return squares if reduction == "none" else getattr(squares, reduction)()


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - x), the divergence of exp(x) from `target`; 0 where target is 0.

    x: logarithms of probabilities (...). target: probabilities of the same shape, or with
        `log_target` their logarithms.
    reduction: "batchmean" (the sum divided by the first size), "mean" (over all elements), "sum" or
        "none".
    Raises ShapeError if the shapes differ.
    Differs from PyTorch: reduction comes third.

    >>> F.kl_div(ta.tensor([[0.5, 0.5]]).log(), ta.tensor([[1.0, 0.0]]), reduction="batchmean")
    tensor(0.6931)
    """
    check_same_shape("kl_div", x, target)
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

    x (...), target (...), numbers from 0 to 1 -> a 0-d tensor; with reduction "none" (...).
    Raises ShapeError if the shapes differ.
    Differs from PyTorch: there are no weights, and reduction comes third.

    >>> F.binary_cross_entropy_with_logits(ta.tensor([0.0, 1000.0]), ta.tensor([1.0, 1.0]), "none")
    tensor([0.6931, 0.    ])
    """
    check_same_shape("binary_cross_entropy_with_logits", x, target)
    check_reduction(reduction)
    # -log(sigmoid(x)) is softplus(-x), and -log(1 - sigmoid(x)) is softplus(x).
    losses = target * ops.softplus(-x) + (1 - target) * ops.softplus(x)
    return losses if reduction == "none" else getattr(losses, reduction)()


def masked_softmax(
    scores: Tensor,
    valid_lens: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
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
    Raises ShapeError for scores of another number of dimensions, and MaskError if valid_lens or
    mask do not fit the scores.

    >>> F.masked_softmax(ta.zeros(1, 1, 3), valid_lens=[2])
    tensor([[[0.5, 0.5, 0. ]]])
    """
    scores = float_tensor(scores, "scores")
    if scores.ndim not in (1, 2, 3, 4):
        raise ShapeError(
            f"scores are (B, Q, K), (B, H, Q, K), (Q, K) or (K,), got shape {scores.shape}"
        )
    if scores.ndim > 2:
        x = scores if scores.ndim == 4 else scores.unsqueeze(1)  # (B, H, Q, K)
    else:
        x = scores.reshape(1, *(1,) * (3 - scores.ndim), *scores.shape)  # (1, 1, Q, K)
        valid_lens = None if valid_lens is None else masks.array_of(valid_lens, "valid_lens")[None]
        if mask is not None:
            array = masks.array_of(mask, "mask")
            mask = array.reshape(1, *(1,) * (2 - array.ndim), *array.shape)  # (1, Q|1, K|1)
    visibility = masks.visibility(x.shape, valid_lens, mask, is_causal, device=x.device)
    return ops.masked_softmax(x, visibility=visibility).reshape(scores.shape)


def sequence_mask(x: Tensor, valid_lens: ArrayLike, value: float = 0) -> Tensor:
    """`x` (B, L, ...) with `value` at every position from valid_lens[b] on.

    valid_lens: (B,), one length for each sample, from 0 to L.
    Returns a new tensor. (The d2l book's version changes `x`.)
    Raises ShapeError if valid_lens is not (B,), and MaskError for a length out of range.

    >>> F.sequence_mask(ta.tensor([[1, 2, 3], [4, 5, 6]]), valid_lens=[1, 2], value=-1)
    tensor([[ 1, -1, -1],
            [ 4,  5, -1]])
    """
    if any_tensor(x, "x").ndim < 2:
        raise ShapeError(f"sequence_mask takes (B, L, ...), got shape {x.shape}")
    visible = masks.from_valid_lens(valid_lens, x.shape[1])
    if visible.shape != x.shape[:2]:
        raise ShapeError(
            f"sequence_mask takes a length for each of the {x.shape[0]} samples, valid_lens (B,), "
            f"got shape {visible.shape[:-1]}"
        )
    visible = visible.to(x.device).reshape(*visible.shape, *(1,) * (x.ndim - 2))
    return ops.where(visible, x, value)


def masked_mean(
    x: Tensor, valid_lens: ArrayLike | None = None, mask: ArrayLike | None = None
) -> Tensor:
    """The mean over the visible positions of each sample: x (B, N, ...) -> (B, ...).

    valid_lens (B,), a mask (B, N), or both; neither for all positions. The mean of none is 0. What
    stands in an invisible position has no influence, even if it is NaN.

        >>> F.masked_mean(ta.tensor([[[1.0], [3.0], [8.0]]]), valid_lens=[2])
        tensor([[2.]])
    """
    if float_tensor(x, "x").ndim < 2:
        raise ShapeError(f"masked_mean takes (B, N, ...), got shape {x.shape}")
    shape = (len(x), 1, 1, x.shape[1])  # of scores (B, H, Q, K) with one query
    visible = masks.visibility(shape, valid_lens, mask, device=x.device).visible_pairs(x)
    if visible is None:
        return x.mean(1)
    keep = wrap(namespace(visible).broadcast_to(visible, shape)[:, 0, 0])  # (B, N)
    count = keep.sum(1).clamp(min=1).reshape(len(x), *(1,) * (x.ndim - 2))
    wide = x.float() if x.dtype == np.float16 else x  # because a sum may overflow in float16
    kept = ops.where(keep.reshape(*keep.shape, *(1,) * (x.ndim - 2)), wide, 0)
    return (kept.sum(1) / count).to(x.dtype)


def pack_padded_sequence(x: Tensor, valid_lens: ArrayLike) -> Tensor:
    """The first valid_lens[b] rows of each sample, one after another: x (B, L, ...) -> (N, ...).

    N is the sum of valid_lens (B,). Linear, LayerNorm and feed-forward networks compute each row
    alone, so on packed rows they give the same and do not compute padding. Multi-head attention
    takes packed rows together with valid_lens. `pad_packed_sequence` undoes this function.

    Raises ShapeError if valid_lens is not (B,), and MaskError for a length out of range.
    Differs from PyTorch's function of this name: that one returns an object in which the rows of
    all samples alternate, for recurrent networks.

    >>> x = ta.tensor([[1, 2, 0], [3, 0, 0]])
    >>> F.pack_padded_sequence(x, valid_lens=[2, 1])
    tensor([1, 2, 3])
    """
    if any_tensor(x, "x").ndim < 2:
        raise ShapeError(f"pack_padded_sequence takes (B, L, ...), got shape {x.shape}")
    return ops.pack(x, lengths=masks.sample_lens(valid_lens, *x.shape[:2]))


def pad_packed_sequence(x: Tensor, valid_lens: ArrayLike, length: int | None = None) -> Tensor:
    """Undo `pack_padded_sequence`: x (N, ...) -> (B, length, ...), with zeros after each sample.

    length: the longest of valid_lens by default; PyTorch calls it `total_length`.
    Raises ShapeError if the sum of valid_lens is not N, or if `length` is too short.

    >>> F.pad_packed_sequence(ta.tensor([1, 2, 3]), valid_lens=[2, 1])
    tensor([[1, 2],
            [3, 0]])
    """
    if not any_tensor(x, "x").ndim:
        raise ShapeError("pad_packed_sequence takes (N, ...), got a tensor without dimensions")
    lengths = masks.packed_lens(valid_lens, len(x))
    longest = max(lengths, default=0)
    length = longest if length is None else check_size("length", length, 0)
    if length < longest:
        raise ShapeError(f"length {length} is less than the longest sequence, {longest}")
    return ops.unpack(x, lengths=lengths, length=length)


@overload
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: ArrayLike | None = ...,
    valid_lens: ArrayLike | None = ...,
    is_causal: bool = ...,
    dropout_p: float = ...,
    scale: float | None = ...,
    return_weights: Literal[False] = ...,
    bias: Tensor | None = ...,
    attn_mask: ArrayLike | None = ...,
    window: int | None = ...,
    enable_gqa: bool = ...,
) -> Tensor: ...


@overload
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: ArrayLike | None = ...,
    valid_lens: ArrayLike | None = ...,
    is_causal: bool = ...,
    dropout_p: float = ...,
    scale: float | None = ...,
    *,
    return_weights: Literal[True],
    bias: Tensor | None = ...,
    attn_mask: ArrayLike | None = ...,
    window: int | None = ...,
    enable_gqa: bool = ...,
) -> tuple[Tensor, Tensor]: ...


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: ArrayLike | None = None,
    valid_lens: ArrayLike | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    return_weights: bool = False,
    bias: Tensor | None = None,
    attn_mask: ArrayLike | None = None,
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

    >>> keys, values = ta.tensor([[[0.0], [9.0], [9.0]]]), ta.tensor([[[2.0], [4.0], [8.0]]])
    >>> F.scaled_dot_product_attention(ta.zeros(1, 1, 1), keys, values, valid_lens=[2])
    tensor([[[3.]]])
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
        visible = as_scores("attn_mask", given.to(query.device), ndim, shape)._data.copy()
    else:
        numbers = checked_bias("attn_mask", given, query, shape, ndim)
        visible = numbers._data != -math.inf
        numbers = ops.where(visible, numbers, 0.0)
        bias = numbers if bias is None else bias + numbers
    return bias, visible if mask is None else visible & mask


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
    if float_tensor(x, "x").ndim < 2:
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
    num_heads: int,
    queries: int,
    keys: int | None = None,
    dtype: DType = None,
    device: str | None = None,
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
    Raises ShapeError for another number of dimensions, or if H is no divisor of D.

    >>> F.transpose_qkv(ta.ones(2, 5, 12), num_heads=3).shape
    (6, 5, 4)
    """
    if float_tensor(x, "x").ndim != 3:
        raise ShapeError(f"transpose_qkv takes (B, N, D), got shape {x.shape}")
    check_heads(x.shape[-1], num_heads)
    batch, n, width = x.shape
    x = x.reshape(batch, n, num_heads, width // num_heads)  # (B, N, H, d)
    return x.permute(0, 2, 1, 3).reshape(batch * num_heads, n, width // num_heads)


def transpose_output(x: Tensor, num_heads: int) -> Tensor:
    """(B * H, N, d) -> (B, N, H * d); undoes `transpose_qkv`.

    Raises ShapeError for another number of dimensions, or if H is no divisor of B * H.

    >>> F.transpose_output(ta.ones(6, 5, 4), num_heads=3).shape
    (2, 5, 12)
    """
    if num_heads <= 0:
        raise ShapeError(f"the number of heads must be > 0, got {num_heads}")
    if float_tensor(x, "x").ndim != 3 or x.shape[0] % num_heads:
        raise ShapeError(f"transpose_output takes (B * {num_heads}, N, d), got shape {x.shape}")
    total, n, width = x.shape
    x = x.reshape(total // num_heads, num_heads, n, width)  # (B, H, N, d)
    return x.permute(0, 2, 1, 3).reshape(total // num_heads, n, num_heads * width)


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise UnknownNameError("F", name, __all__)
