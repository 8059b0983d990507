"""Softmax, its logarithm, its masked form, and the logarithm of its sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import checks
from ..base.backend import Array, converted, namespace, quiet
from ..base.checks import Dims, DTypeLike
from ..engine.autograd import AnyTensor
from ..engine.op import op
from ..engine.promotion import in_float32
from ..errors import ShapeError
from ..kernels import with_kernels
from ..kernels.sums import in_c_order, sum_dtype
from ..kernels.visibility import Visibility
from .arguments import ArrayLike, array_like, at_least_float32, float_tensor, of_tensors
from .arithmetic import eq, where
from .elementwise import exp, isfinite, log
from .order import amax
from .reductions import sum
from .shapes import squeeze
from .visibility import visibility_of


@op
def softmax(x: AnyTensor, dim: int = -1, dtype: DTypeLike = None) -> AnyTensor:
    """exp(x_i) / sum_j exp(x_j) along `dim`: numbers >= 0 whose sum is 1.

    x (...) -> (...), of the same shape. dtype: compute in this dtype; that of x by default.
    Raises IndexError if x has no such dimension, and DtypeError for integers without a dtype.
    Differs from PyTorch: `dim` may be left out.

    >>> F.softmax(ta.tensor([0.0, 0.0]))
    tensor([0.5, 0.5])
    """
    return along_dim(softmax_rows, dim, floats_of(x, dtype, "softmax"))


@softmax.vjp("x")
def dx(grad, out, dim):
    return along_dim(softmax_rows_backward, dim, grad, out)


@with_kernels(cpu="softmax.softmax", cuda="softmax.softmax")
@quiet
def softmax_rows(x: Array) -> Array:
    """Over the last dimension. The maximum is subtracted, because exp overflows from 89 on."""
    if not x.shape[-1]:
        return x.copy()
    scores = x.astype(sum_dtype(x.dtype), order="C")
    powers = namespace(x).exp(scores - scores.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(x.dtype)


@with_kernels(cpu="softmax.softmax_backward", cuda="softmax.softmax_backward")
@in_float32
def softmax_rows_backward(grad: Any, out: Any) -> Any:
    """out * (grad - sum(grad * out)), because the Jacobian of a row is diag(out) - out out^T."""
    return out * (grad - (grad * out).sum(axis=-1, keepdims=True))


@op
def log_softmax(x: AnyTensor, dim: int = -1, dtype: DTypeLike = None) -> AnyTensor:
    """x_i - log(sum_j exp(x_j)) along `dim`; more exact than `softmax(x).log()`.

    x (...) -> (...), of the same shape. dtype: compute in this dtype; that of x by default.
    Raises IndexError if x has no such dimension, and DtypeError for integers without a dtype.
    Differs from PyTorch: `dim` may be left out.

    >>> F.log_softmax(ta.tensor([0.0, 1000.0]))
    tensor([-1000.,     0.])
    """
    return along_dim(log_softmax_rows, dim, floats_of(x, dtype, "log_softmax"))


@log_softmax.vjp("x")
def dx(grad, out, dim):
    return along_dim(log_softmax_rows_backward, dim, grad, out)


@with_kernels(cpu="softmax.log_softmax", cuda="softmax.log_softmax")
@quiet
def log_softmax_rows(x: Array) -> Array:
    """Over the last dimension."""
    xp = namespace(x)
    if not x.shape[-1]:
        return x.copy()
    scores = x.astype(sum_dtype(x.dtype), order="C")
    shifted = scores - scores.max(axis=-1, keepdims=True)
    total = xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))
    return (shifted - total).astype(x.dtype)


@with_kernels(cpu="softmax.log_softmax_backward", cuda="softmax.log_softmax_backward")
@in_float32
def log_softmax_rows_backward(grad: Any, out: Any) -> Any:
    return grad - exp(out) * in_c_order(grad).sum(axis=-1, keepdims=True)


def floats_of(x: Array, dtype: DTypeLike, name: str) -> Array:
    """x in this dtype, by default its own, which must be one of floats."""
    x = x if dtype is None else converted(x, checks.checked_dtype(dtype))
    checks.require_float(x.dtype, name)
    return x


def along_dim(formula: Callable[..., Any], dim: int, *arrays: Any) -> Any:
    """A formula for the last dimension, along dimension `dim` of arrays or Tensors."""
    ndim, dim = arrays[0].ndim, checks.one_dim(arrays[0], dim)
    if not ndim:
        return formula(*(array.reshape(1) for array in arrays)).reshape(())
    if dim == ndim - 1:
        return formula(*arrays)
    return in_c_order(formula(*(array.swapaxes(dim, -1) for array in arrays)).swapaxes(dim, -1))


def masked_softmax(
    scores: AnyTensor,
    valid_lens: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    past: int = 0,
) -> AnyTensor:
    """Softmax over the visible keys, the last dimension of the scores; invisible keys get 0.

    scores: (B, Q, K) or (B, H, Q, K); or of one sample, (Q, K) or (K,).
    valid_lens: (B,) or (B, Q), the number of first keys that are visible; of one sample a number,
        or (Q,).
    mask: True = visible, see `tinyattn.masks`. For (Q, K) and (K,) it broadcasts to the scores.
    is_causal: query i sees keys 0 to past + i.
    past: how many positions came before the first query, such as those in a cache.
    A key is visible if all of them say so.

    No score is replaced by a fill value: maximum and sum leave invisible keys out. A row without a
    visible key is exactly 0, and so is its gradient. (With the fill value -1e6 such a row would
    attend to padding, and so would every row whose real scores are lower.)
    Raises ShapeError for scores of another number of dimensions and for valid_lens of another
    shape, MaskError for lengths out of range and for a mask that does not fit the scores.

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
        valid_lens = None if valid_lens is None else array_like(valid_lens, "valid_lens")[None]
        if mask is not None:
            array = array_like(mask, "mask")
            mask = array.reshape(1, *(1,) * (2 - array.ndim), *array.shape)  # (1, Q|1, K|1)
    past = checks.check_size("past", past, 0)
    seen = visibility_of(x.shape, valid_lens, mask, is_causal, None, x.device, past)
    return softmax_of_visible(x, seen).reshape(scores.shape)


@op
def softmax_of_visible(x: AnyTensor, visibility: Visibility | None) -> AnyTensor:
    """`masked_softmax` of scores (B, H, Q, K), over the keys that a Visibility shows.

    This op is what is recorded; `visible_softmax` is its formula, on arrays.
    """
    if visibility is not None:
        visibility.check(x.shape)
    return visible_softmax(x, visibility)


@softmax_of_visible.vjp("x")
def dx(grad, out, visibility):
    return visible_softmax_backward(grad, out, visibility)


@with_kernels(cpu="softmax.masked_softmax", cuda="softmax.masked_softmax")
@quiet
def visible_softmax(x: Array, visibility: Visibility | None) -> Array:
    """`softmax_rows` over the visible keys; the others get 0."""
    visible = None if visibility is None else visibility.visible_pairs(x)
    if visible is None or not x.shape[-1]:
        return softmax_rows(x)
    xp = namespace(x)
    # No finite fill value is safe, because real scores may be lower. -inf changes neither the
    # maximum nor the sum.
    weights = softmax_rows(xp.where(visible, x, -math.inf))
    # Weights of a row of only -inf are NaN until here, and so are those beside a visible NaN.
    return xp.where(visible, weights, 0)


@with_kernels(cpu="softmax.masked_softmax_backward", cuda="softmax.masked_softmax_backward")
def visible_softmax_backward(grad: Any, out: Any, visibility: Visibility | None) -> Any:
    """`softmax_rows_backward` over the visible keys; others have no influence, even if NaN."""
    visible = None if visibility is None else visibility.visible_pairs(out)
    if visible is None:
        return softmax_rows_backward(grad, out)
    return where(visible, softmax_rows_backward(where(visible, grad, 0.0), out), 0.0)


@of_tensors
def logsumexp(x: AnyTensor, dim: Dims = None, keepdim: bool = False) -> AnyTensor:
    """log(sum(exp(x))) over `dim`, by default all; as max(x) + log(sum(exp(x - max(x))))."""
    dims = checks.dims_of(x, dim, keepdim)
    x = x if x.dtype.kind == "f" else x.to(np.float32)
    x, dtype = at_least_float32(x), x.dtype  # sums of float16 overflow at 65,504 equal elements
    shift: Any = 0
    if x.numel():
        shift = amax(x.detach(), dims, keepdim=True)
        shift = where(isfinite(shift), shift, 0)
    total = sum(exp(x - shift), dims, keepdim=True)
    empty = eq(total, 0)  # a row of -inf: its gradient is 0, and that of log(0) is inf
    result = where(empty, -math.inf, log(where(empty, 1.0, total))) + shift
    return (result if keepdim else squeeze(result, dims)).to(dtype)
