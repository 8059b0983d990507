"""`scaled_dot_product_attention`, and the d2l book's form of heads."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import numpy as np

from ..base import checks, random
from ..base.backend import Array, to_device
from ..base.random import Drop
from ..engine.autograd import AnyTensor, TensorBase, wrap
from ..errors import DtypeError, ShapeError
from .arguments import ArrayLike, check_same_dtype_and_device, checked_bias, float_tensor, lifted
from .arithmetic import where
from .attention import attention, attention_with_weights, clear_invisible, default_scale
from .visibility import checked_mask, visibility_of


@overload
def scaled_dot_product_attention(
    query: AnyTensor,
    key: AnyTensor,
    value: AnyTensor,
    mask: ArrayLike | None = ...,
    valid_lens: ArrayLike | None = ...,
    is_causal: bool = ...,
    dropout_p: float = ...,
    scale: float | None = ...,
    return_weights: Literal[False] = ...,
    bias: AnyTensor | None = ...,
    attn_mask: ArrayLike | None = ...,
    window: int | None = ...,
    enable_gqa: bool = ...,
) -> AnyTensor: ...


@overload
def scaled_dot_product_attention(
    query: AnyTensor,
    key: AnyTensor,
    value: AnyTensor,
    mask: ArrayLike | None = ...,
    valid_lens: ArrayLike | None = ...,
    is_causal: bool = ...,
    dropout_p: float = ...,
    scale: float | None = ...,
    *,
    return_weights: Literal[True],
    bias: AnyTensor | None = ...,
    attn_mask: ArrayLike | None = ...,
    window: int | None = ...,
    enable_gqa: bool = ...,
) -> tuple[AnyTensor, AnyTensor]: ...


def scaled_dot_product_attention(
    query: AnyTensor,
    key: AnyTensor,
    value: AnyTensor,
    mask: ArrayLike | None = None,
    valid_lens: ArrayLike | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    return_weights: bool = False,
    bias: AnyTensor | None = None,
    attn_mask: ArrayLike | None = None,
    window: int | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q k^T / sqrt(d) + bias) v over the visible keys.

    query (B, Q, d), key (B, K, d), value (B, K, e) -> (B, Q, e), or with heads
    (B, H, Q, d), (B, H, K, d), (B, H, K, e) -> (B, H, Q, e). The dimensions before the last two
    broadcast: none, as in (Q, d), is one sample; of more than two, all before H are samples, and B
    is their product for mask and valid_lens.
    mask, valid_lens, is_causal: a key is visible if all of them say so; see `tinyattn.masks`.
    dropout_p: dropout on the weights; there is no training flag here, so 0 switches it off.
    scale: a finite number instead of 1 / sqrt(d).
    return_weights: return (output, weights), with weights (B, Q, K) or (B, H, Q, K), as the output
        has them, without dropout and without a graph.
    bias: a Tensor that broadcasts to the scores, (B, Q, K) or (B, H, Q, K), such as (H, Q, K).
    window: query i sees key k only if |i - k| < window; with is_causal the last `window` keys.
    enable_gqa: key and value may have fewer heads, a divisor G of H: each is for H / G heads.
    attn_mask: PyTorch's mask, which broadcasts as a bias does: booleans, True = visible; or numbers
        that are added to the scores, where -inf hides a key. A `Mask`, such as that of
        masks.padding, means the same as in mask=.

    Raises ShapeError for queries, keys, values, valid_lens, bias or attn_mask whose shapes do not
    agree, MaskError for lengths out of range or with a fraction and for a mask that does not fit
    the scores, DtypeError for a mask of floats and for valid_lens that are no numbers, ValueError
    for a scale that is not finite and for a dropout_p that does not lie between 0 and 1.

    Why sqrt(d): the product of two independent vectors of d elements of variance 1 has variance d.
    A softmax of such scores puts nearly all weight on one key, and there its gradient is nearly 0.
    Source: Vaswani et al., "Attention Is All You Need", 2017; enable_gqa: Ainslie et al., "GQA",
    2023; window: Beltagy et al., "Longformer", 2020.
    Differs from PyTorch: `mask` is never added to the scores; a 2-D mask is (B, K), so one of
    queries by keys is written `mask[None]`; a query without a visible key gives zeros. As in
    PyTorch, query i sees keys 0 to i of a causal mask, also if Q and K differ: after `past` earlier
    positions write mask=masks.causal(Q, past).

    >>> keys, values = ta.tensor([[[0.0], [9.0], [9.0]]]), ta.tensor([[[2.0], [4.0], [8.0]]])
    >>> F.scaled_dot_product_attention(ta.zeros(1, 1, 1), keys, values, valid_lens=[2])
    tensor([[[3.]]])
    """
    lead, (q, k, v) = checked_heads(query, key, value, enable_gqa)  # (B, H, N, d)
    p = checks.checked_probability(dropout_p)
    *of_queries, width = q.shape
    groups, keys = k.shape[1:3]
    scale = default_scale(width) if scale is None else checks.check_number("scale", scale)
    shape = *of_queries, keys  # (B, H, Q, K)
    visibility = visibility_of(shape, valid_lens, mask, is_causal, window, q.device)
    bias, visible = bias_and_mask(bias, attn_mask, query, shape, (*lead, *shape[2:]))
    visibility = visibility.and_mask(visible)
    k, v = clear_invisible(visibility, shape[1], k, v)
    options: dict[str, Any] = {"heads": (shape[1], groups), "visibility": visibility}
    options |= {"scale": scale, "drop": Drop(p, random.dropout_seed() if p else 0)}
    if return_weights:  # with an array of all weights (B, H, Q, K)
        out, weights = attention_with_weights(q, k, v, bias, **options)
    else:  # the same, block of queries by block of queries: kernels/cpu/tiled_attention.py
        out = attention(q, k, v, bias, **options)  # (B, H, Q, e)
    if len(lead) != 2:
        out = out.reshape(*lead, *out.shape[2:])
    return (out, weights.detach().reshape(*lead, *shape[2:])) if return_weights else out


def checked_heads(
    query: Any, key: Any, value: Any, enable_gqa: bool = False
) -> tuple[tuple[int, ...], list[Any]]:
    """query, key and value as (B, H, N, d), checked, and what stands before (Q, e) in the output.

    H is 1 if they have no heads; key and value may have fewer heads, in groups.
    """
    inputs = {"query": query, "key": key, "value": value}
    q, k, v = (float_tensor(x, name).shape for name, x in inputs.items())
    if min(len(q), len(k), len(v)) < 2:
        raise ShapeError(
            "attention takes query (..., Q, d), key (..., K, d) and value (..., K, e), such as "
            f"(B, N, d) or (B, H, N, d), got {q}, {k}, {v}"
        )
    if q[-1] != k[-1]:
        raise ShapeError(f"query {q} and key {k} must have one width")
    if k[-2] != v[-2]:
        raise ShapeError(f"key {k} and value {v} must agree in the number of keys, K")
    check_same_dtype_and_device("attention", **inputs)
    lead = q[:-2]
    if lead == k[:-2] == v[:-2] and len(lead) in (1, 2):
        return lead, [x if len(lead) == 2 else x.unsqueeze(1) for x in inputs.values()]
    return broadcast_heads(list(inputs.values()), enable_gqa)


def broadcast_heads(inputs: list[Any], enable_gqa: bool) -> tuple[tuple[int, ...], list[Any]]:
    """The same for inputs whose dimensions before the last two differ, or are none or many."""
    most = max(x.ndim for x in inputs)
    have_heads = most > 3 or (enable_gqa and min(x.ndim for x in inputs) == 3)
    leads = [(1,) * (most - x.ndim) + x.shape[:-2] for x in inputs]
    leads = leads if have_heads else [(*lead, 1) for lead in leads]
    of_query, groups, of_value = (lead[-1] for lead in leads)
    in_groups = enable_gqa and groups == of_value and checks.are_groups(of_query, groups)
    try:
        *batch, heads = np.broadcast_shapes(*(leads[:1] if in_groups else leads))
        *batch, _ = np.broadcast_shapes(*((*lead[:-1], 1) for lead in leads))
    except ValueError:
        of_heads = of_query != groups == of_value
        hint = "; with enable_gqa=True the heads of key and value are a divisor of query's"
        raise ShapeError(
            "query, key and value must have the same samples (and heads), or 1 in their place, got "
            f"{', '.join(str(x.shape) for x in inputs)}{hint if of_heads else ''}"
        ) from None

    def whole(x: Any, lead: tuple[int, ...], count: int) -> Any:
        sizes = x.shape[-2:]
        x = x.reshape(*lead, *sizes).expand(*batch, count, *sizes)
        return x.reshape(math.prod(batch), count, *sizes)

    groups = groups if in_groups else heads
    rows = [whole(*each) for each in zip(inputs, leads, (heads, groups, groups), strict=True)]
    return (*batch, heads) if have_heads else (*batch,), rows


def bias_and_mask(
    bias: Any, attn_mask: Any, query: AnyTensor, shape: tuple[int, ...], scores: tuple[int, ...]
) -> tuple[AnyTensor | None, Array | None]:
    """What is added to scores of this shape (B, H, Q, K), and where attn_mask says visible.

    scores: the shape in which bias and attn_mask know the scores; see `lifted`.
    """
    bias = None if bias is None else checked_bias("bias", bias, query, shape, scores)
    if attn_mask is None:
        return bias, None
    if getattr(attn_mask, "is_mask", False):
        return bias, to_device(checked_mask(attn_mask, shape), query.device)
    if not isinstance(attn_mask, TensorBase):
        attn_mask = wrap(to_device(checks.as_exact_as(query, attn_mask), query.device))
    if attn_mask.dtype.kind in "iu":
        raise DtypeError(
            "attn_mask holds booleans (True = visible), or floats that are added to the scores, "
            f"got {attn_mask.dtype}: write attn_mask != 0 for one of 1 and 0"
        )
    if attn_mask.dtype == np.bool_:
        visible = lifted("attn_mask", attn_mask.to(query.device), shape, scores)._data.copy()
    else:
        numbers = checked_bias("attn_mask", attn_mask, query, shape, scores)
        visible = numbers._data != -math.inf
        numbers = where(visible, numbers, 0.0)
        bias = numbers if bias is None else bias + numbers
    return bias, visible


def transpose_qkv(x: AnyTensor, num_heads: int) -> AnyTensor:
    """(B, N, D) -> (B * H, N, D / H): the heads of a sample become samples.

    This is the d2l book's form. The modules of tinyattn have a dimension for the heads instead, so
    lengths and masks need not be repeated.
    Raises ShapeError for another number of dimensions, or if H is no divisor of D.

    >>> F.transpose_qkv(ta.ones(2, 5, 12), num_heads=3).shape
    (6, 5, 4)
    """
    if float_tensor(x, "x").ndim != 3:
        raise ShapeError(f"transpose_qkv takes (B, N, D), got shape {x.shape}")
    checks.check_heads(x.shape[-1], num_heads)
    batch, n, width = x.shape
    x = x.reshape(batch, n, num_heads, width // num_heads)  # (B, N, H, d)
    return x.permute(0, 2, 1, 3).reshape(batch * num_heads, n, width // num_heads)


def transpose_output(x: AnyTensor, num_heads: int) -> AnyTensor:
    """(B * H, N, d) -> (B, N, H * d); undoes `transpose_qkv`.

    Raises ShapeError for another number of dimensions, or if H is no divisor of B * H.

    >>> F.transpose_output(ta.ones(6, 5, 4), num_heads=3).shape
    (2, 5, 12)
    """
    checks.check_size("num_heads", num_heads)
    if float_tensor(x, "x").ndim != 3 or x.shape[0] % num_heads:
        raise ShapeError(f"transpose_output takes (B * {num_heads}, N, d), got shape {x.shape}")
    total, n, width = x.shape
    x = x.reshape(total // num_heads, num_heads, n, width)  # (B, H, N, d)
    return x.permute(0, 2, 1, 3).reshape(total // num_heads, n, num_heads * width)
