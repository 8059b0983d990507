"""What layers compute: products, embeddings, normalization, dropout, and shapes of inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import masks, ops
from ..base import random
from ..base.backend import namespace
from ..base.checks import (
    check_number,
    check_size,
    checked_probability,
    is_integer,
)
from ..engine.autograd import wrap
from ..errors import DeviceError, DtypeError, ShapeError
from ..kernels.range_checks import require_range
from ..ops.layers import unknown_id_text
from ..tensors.arguments import (
    ArrayLike,
    any_tensor,
    check_same_dtype_and_device,
    float_tensor,
    normalized_sizes,
    widened,
)
from ..tensors.create import full
from ..tensors.tensor import Tensor


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
    return (ops.gelu if approximate == "none" else ops.gelu_tanh)(x)


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
    if padding_idx is not None and weight.ndim == 2:
        check_padding_idx(padding_idx, len(weight))
    if ids.dtype.kind == "f" and not ids.numel():
        ids = ids.long()  # an empty list carries no dtype
    return ops.embedding(ids, weight, padding_idx=padding_idx)


def check_padding_idx(padding_idx: int | None, rows: int) -> None:
    """Raise IndexError if padding_idx is neither None nor a row of a table of so many."""
    if padding_idx is not None and not (is_integer(padding_idx) and 0 <= padding_idx < rows):
        raise IndexError(f"padding_idx {padding_idx!r} is no row of a table of {rows}")


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
    eps: None for the epsilon of the dtype that it computes in, as in PyTorch: of float64 for
        float64, of float32 for float32 and float16.
    Raises ShapeError if x does not end with normalized_shape.
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    >>> F.rms_norm(ta.tensor([[1.0, 7.0]]), 2)
    tensor([[0.2, 1.4]])
    """
    x = float_tensor(x, "x")
    sizes = normalized_sizes("rms_norm", x, normalized_shape, weight=weight)
    if x.dtype == np.float16:  # in which a square overflows from 256 on
        return rms_norm(x.float(), sizes, None if weight is None else weight.float(), eps).half()
    eps = float(np.finfo(x.dtype).eps) if eps is None else check_number("eps", eps, 0)
    if len(sizes) == 1:
        return ops.rms_norm(x, weight, eps=eps)
    rows = x.reshape(*x.shape[: -len(sizes)], math.prod(sizes))
    weight = None if weight is None else weight.flatten()
    return ops.rms_norm(rows, weight, eps=eps).reshape(x.shape)


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """In training, set each element to 0 with probability p, and divide the others by 1 - p.

    So the expectation of each element stays the same. `ta.manual_seed` repeats the choice.
    Raises ValueError if p does not lie between 0 and 1.
    Differs from PyTorch: what is dropped is 0 even if it was NaN or infinite.
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
    x, dtype = widened(x), x.dtype
    limit = max(limit, float(np.finfo(x.dtype).tiny))
    total = (ops.abs(x) if p == 1 else x * x).sum(dim, keepdim=True).clamp(min=limit)
    return (x / (total if p == 1 else total.sqrt())).to(dtype)


def one_hot(ids: ArrayLike, num_classes: int = -1) -> Tensor:
    """1 at the place of each id, else 0: integers (...) -> int64 (..., num_classes).

    num_classes: -1 for the largest id plus 1; needed if there are no ids.
    Raises DtypeError if ids are no integers, and IndexError for an id out of range.

    >>> F.one_hot([0, 2]).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    array = masks.array_of(ids, "ids")
    if array.dtype.kind not in "iu":
        raise DtypeError(f"one_hot takes integer ids, got {array.dtype}")
    if num_classes == -1:
        if not array.size:
            raise ShapeError("one_hot of no ids needs num_classes, the size of the last dimension")
        num_classes = max(int(array.max()), 0) + 1
    check_size("num_classes", num_classes)
    text = f"one_hot: id {{number}} is out of range for {num_classes} classes"
    require_range(array, 0, num_classes, IndexError, text)
    xp = namespace(array)
    out = xp.zeros((array.size, num_classes), np.int64)
    out[xp.arange(array.size), array.reshape(-1)] = 1
    return wrap(out.reshape(*array.shape, num_classes))


def pad(
    x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """`x` with `value` around it, by default 0.

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
    value = 0 if value is None else value
    for i, n in enumerate(sizes):
        dim = x.ndim - 1 - i // 2
        border = full((*x.shape[:dim], n, *x.shape[dim + 1 :]), value, x.dtype, x.device)
        x = ops.cat(x, border, dim=dim) if i % 2 else ops.cat(border, x, dim=dim)
    return x if sizes else x.clone()
