"""Scaled dot-product attention, its softmax, and the d2l book's form of heads."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import numpy as np

from .. import masks, ops
from ..base import random
from ..base.backend import Array
from ..base.checks import (
    check_heads,
    check_size,
    checked_probability,
    checked_scale,
    default_scale,
    has_dtype,
)
from ..errors import DtypeError, ShapeError
from ..kernels import reference
from ..kernels.reference import Drop
from ..tensors.arguments import (
    ArrayLike,
    as_scores,
    checked_bias,
    checked_heads,
    float_tensor,
)
from ..tensors.tensor import Tensor


def masked_softmax(
    scores: Tensor,
    valid_lens: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    past: int = 0,
) -> Tensor:
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
        valid_lens = None if valid_lens is None else masks.array_of(valid_lens, "valid_lens")[None]
        if mask is not None:
            array = masks.array_of(mask, "mask")
            mask = array.reshape(1, *(1,) * (2 - array.ndim), *array.shape)  # (1, Q|1, K|1)
    past = check_size("past", past, 0)
    visibility = masks.visibility(x.shape, valid_lens, mask, is_causal, None, x.device, past)
    return ops.masked_softmax(x, visibility=visibility).reshape(scores.shape)


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

    Raises ShapeError for queries, keys, values, valid_lens, bias or attn_mask whose shapes do not
    agree, MaskError for lengths out of range and for a mask that does not fit the scores,
    DtypeError for a mask or valid_lens of another dtype, ValueError for a scale that is not finite
    and for a dropout_p that does not lie between 0 and 1.

    Why sqrt(d): the product of two independent vectors of d elements of variance 1 has variance d.
    A softmax of such scores puts nearly all weight on one key, and there its gradient is nearly 0.
    Source: Vaswani et al., "Attention Is All You Need", 2017; enable_gqa: Ainslie et al., "GQA",
    2023; window: Beltagy et al., "Longformer", 2020.
    Differs from PyTorch: `mask` is never added to the scores; a 2-D mask is always (B, K), so one
    of queries by keys is written `mask[None]`; a query without a visible key gives zeros. As in
    PyTorch, query i sees keys 0 to i of a causal mask, also if Q and K differ: after `past` earlier
    positions write mask=masks.causal(Q, past).

    >>> keys, values = ta.tensor([[[0.0], [9.0], [9.0]]]), ta.tensor([[[2.0], [4.0], [8.0]]])
    >>> F.scaled_dot_product_attention(ta.zeros(1, 1, 1), keys, values, valid_lens=[2])
    tensor([[[3.]]])
    """
    q, k, v = checked_heads(query, key, value, enable_gqa)  # (B, H, N, d)
    p = checked_probability(dropout_p)
    *of_queries, width = q.shape
    groups, keys = k.shape[1:3]
    scale = default_scale(width) if scale is None else checked_scale(scale)
    shape = *of_queries, keys  # (B, H, Q, K)
    visibility = masks.visibility(shape, valid_lens, mask, is_causal, window, q.device)
    bias, visible = bias_and_mask(bias, attn_mask, query, shape)
    visibility = visibility.and_mask(visible)
    k, v = ops.clear_invisible(visibility, shape[1], k, v)
    drop = Drop(p, random.dropout_seed() if p else 0)
    heads = shape[1], groups
    if return_weights:  # the formula as it is written, with an array of all weights (B, H, Q, K)
        q_rows, k_rows, v_rows = ops.in_heads(q, k, v, heads=heads)
        out, weights = reference.attention(q_rows, k_rows, v_rows, visibility, scale, drop, bias)
        out = ops.in_form_of(q, out)
    else:  # the same, block of queries by block of queries: kernels/cpu/attention.py
        options = {"heads": heads, "visibility": visibility, "scale": scale, "drop": drop}
        out = ops.attention(q, k, v, bias, **options)  # (B, H, Q, e)
    if query.ndim == 3:
        out = out.squeeze(1)
    if not return_weights:
        return out
    return out, (weights if query.ndim == 4 else weights.squeeze(1)).detach()


def bias_and_mask(
    bias: Any, attn_mask: Any, query: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor | None, Array | None]:
    """What is added to scores of this shape (B, H, Q, K), and where attn_mask says visible."""
    ndim = query.ndim
    bias = None if bias is None else checked_bias("bias", bias, query, shape, ndim)
    if attn_mask is None:
        return bias, None
    attn_tensor = attn_mask
    if not isinstance(attn_mask, Tensor):
        attn_tensor = Tensor(attn_mask, device=query.device)
        if attn_tensor.dtype.kind == "f" and not has_dtype(attn_mask):
            attn_tensor = Tensor(attn_mask, query.dtype, query.device)  # as exact as the scores
    if attn_tensor.dtype.kind in "iu":
        raise DtypeError(
            "attn_mask holds booleans (True = visible), or floats that are added to the scores, "
            f"got {attn_tensor.dtype}: write attn_mask != 0 for one of 1 and 0"
        )
    if attn_tensor.dtype == np.bool_:
        visible = as_scores("attn_mask", attn_tensor.to(query.device), ndim, shape)._data.copy()
    else:
        numbers = checked_bias("attn_mask", attn_tensor, query, shape, ndim)
        visible = numbers._data != -math.inf
        numbers = ops.where(visible, numbers, 0.0)
        bias = numbers if bias is None else bias + numbers
    return bias, visible


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
