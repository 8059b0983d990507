"""Scaled dot-product attention.

Letters of the shapes: B samples; H heads of queries, G heads of keys and values (fewer where heads
share them); R rows of queries and S rows of keys, of all samples together; Q queries and K keys of
the longest sample; a row of a head has d numbers in queries and keys, and e in values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from ..base import random
from ..base.backend import Array, is_array, is_finite, namespace, quiet
from ..base.checks import (
    are_groups,
    as_array,
    check_attention,
    checked_probability,
    checked_scale,
    default_scale,
    has_dtype,
)
from ..engine.autograd import AnyTensor, TensorBase, array_of, wrap
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from ..kernels import gpu_kernels, with_kernels
from ..kernels.drop import NO_DROP, Drop
from ..kernels.float16 import float32_of
from ..kernels.matmul import matrix_product
from ..kernels.packing import repeat_heads, sum_heads
from ..kernels.sums import in_c_order
from ..kernels.visibility import Visibility, check_sizes
from .arguments import (
    ArrayLike,
    as_scores,
    check_same_dtype_and_device,
    checked_bias,
    float_tensor,
)
from .arithmetic import where
from .dropout import drop
from .elementwise import isfinite
from .heads import heads_to_rows, in_form_of, in_heads, rows_to_heads
from .products import matmul, swap
from .softmax import softmax_of_visible, visible_softmax_backward
from .visibility import visibility_of


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
    visibility = visibility_of(shape, valid_lens, mask, is_causal, window, q.device)
    bias, visible = bias_and_mask(bias, attn_mask, query, shape)
    visibility = visibility.and_mask(visible)
    k, v = clear_invisible(visibility, shape[1], k, v)
    options: dict[str, Any] = {"heads": (shape[1], groups), "visibility": visibility}
    options |= {"scale": scale, "drop": Drop(p, random.dropout_seed() if p else 0)}
    if return_weights:  # with an array of all weights (B, H, Q, K)
        out, weights = attention_with_weights(q, k, v, bias, **options)
    else:  # the same, block of queries by block of queries: kernels/cpu/tiled_attention.py
        out = attention(q, k, v, bias, **options)  # (B, H, Q, e)
    if query.ndim == 3:
        out = out.squeeze(1)
    if not return_weights:
        return out
    return out, (weights if query.ndim == 4 else weights.squeeze(1)).detach()


def checked_heads(query: Any, key: Any, value: Any, enable_gqa: bool = False) -> list[Any]:
    """query, key and value as (B, H, N, d), checked; H is 1 if they have no heads."""
    inputs = {"query": query, "key": key, "value": value}
    q, k, v = (float_tensor(x, name).shape for name, x in inputs.items())
    ndim = len(q)
    if ndim not in (3, 4) or not ndim == len(k) == len(v):
        raise ShapeError(
            "attention takes query, key and value of 3 dimensions (B, N, d) or of 4 (B, H, N, d), "
            f"got {q}, {k}, {v}"
        )
    if q[-1] != k[-1]:
        raise ShapeError(f"query {q} and key {k} must have one width")
    if k[-2] != v[-2]:
        raise ShapeError(f"key {k} and value {v} must agree in the number of keys, K")
    agree = q[:-2] == k[:-2]
    if enable_gqa and ndim == 4:
        agree = q[0] == k[0] and are_groups(q[1], k[1])
    if not agree or k[:-2] != v[:-2]:
        of_heads = ndim == 4 and q[0] == k[0] and k[:-2] == v[:-2]
        hint = "; with enable_gqa=True the heads of key and value are a divisor of query's"
        raise ShapeError(
            "query, key and value must have the same samples (and heads), got "
            f"{q}, {k}, {v}{hint if of_heads else ''}"
        )
    check_same_dtype_and_device("attention", **inputs)
    return [x if ndim == 4 else x.unsqueeze(1) for x in inputs.values()]


def bias_and_mask(
    bias: Any, attn_mask: Any, query: AnyTensor, shape: tuple[int, ...]
) -> tuple[AnyTensor | None, Array | None]:
    """What is added to scores of this shape (B, H, Q, K), and where attn_mask says visible."""
    ndim = query.ndim
    bias = None if bias is None else checked_bias("bias", bias, query, shape, ndim)
    if attn_mask is None:
        return bias, None
    if not isinstance(attn_mask, TensorBase):
        # Numbers of Python are as exact as the scores.
        array = as_array(attn_mask, None, query.device)
        is_exact = array.dtype.kind != "f" or has_dtype(attn_mask)
        attn_mask = wrap(array if is_exact else as_array(attn_mask, query.dtype, query.device))
    if attn_mask.dtype.kind in "iu":
        raise DtypeError(
            "attn_mask holds booleans (True = visible), or floats that are added to the scores, "
            f"got {attn_mask.dtype}: write attn_mask != 0 for one of 1 and 0"
        )
    if attn_mask.dtype == np.bool_:
        visible = as_scores("attn_mask", attn_mask.to(query.device), ndim, shape)._data.copy()
    else:
        numbers = checked_bias("attn_mask", attn_mask, query, shape, ndim)
        visible = numbers._data != -math.inf
        numbers = where(visible, numbers, 0.0)
        bias = numbers if bias is None else bias + numbers
    return bias, visible


@op(saves=True)
def attention(
    q: AnyTensor,
    k: AnyTensor,
    v: AnyTensor,
    bias: AnyTensor | None = None,
    *,
    heads: tuple[int, int] = (1, 1),
    visibility: Visibility,
    scale: float,
    drop: Drop = NO_DROP,
) -> Any:
    """dropout(masked_softmax(scale * q k^T + bias)) v, in each head of each sample.

    q (B, Q, H * d), k (B, K, G * d), v (B, K, G * e) -> (B, Q, H * e), as projections give them; or
    packed, (R, H * d) and so on, with the rows of one sample after those of another; or with the
    heads in front, (B, H, Q, d) and so on.
    heads: H and G. With G < H, each head of keys is for H / G heads of queries that follow each
    other. bias (B|1, H|1, Q|1, K|1).
    """
    rows = in_heads(q, k, v, heads=heads)
    check_attention(*rows, visibility.queries, visibility.keys)
    visibility.check(visibility.shape(heads[0]))
    check_sizes("bias", bias, visibility.shape(heads[0]))
    out, saved = attention_of_rows(*rows, visibility, scale, drop, bias)
    return in_form_of(q, out), (saved, rows)


@attention.vjp("q", "k", "v", "bias")
def dqkv(grad, q, k, v, bias, heads, visibility, scale, drop, saved):
    saved, rows = saved or (None, in_heads(q, k, v, heads=heads))
    (grad,) = in_heads(grad, heads=heads)
    grads = attention_of_rows_backward(grad, *rows, visibility, scale, drop, bias, saved)
    dq, dk, dv = (in_form_of(x, dx) for x, dx in zip((q, k, v), grads, strict=False))
    return dq, dk, dv, grads[3] if len(grads) > 3 else None


@with_kernels(cpu="tiled_attention.attention", cuda="tiled_attention.attention")
def attention_of_rows(
    q: Any,
    k: Any,
    v: Any,
    visibility: Visibility,
    scale: float,
    drop: Drop = NO_DROP,
    bias: Any = None,
) -> tuple[Any, Any]:
    """dropout(weights) v in each head of each sample, and the weights, before dropout.

    q (R, H, d), k (S, G, d), v (S, G, e) -> (R, H, e) and (B, H, Q, K); see `attention_weights`.
    """
    if q.dtype == np.float16 and is_array(q):  # because rounded scores would lose digits
        out, weights = attention_of_rows(*map(float32_of, (q, k, v)), visibility, scale, drop, bias)
        return out.astype(np.float16), weights
    weights = attention_weights(q, k, visibility, scale, bias)
    return attention_output(dropped(weights, drop), v, visibility), weights


@quiet  # invisible scores may be NaN or inf
def attention_weights(
    q: Any, k: Any, visibility: Visibility, scale: float, bias: Any = None
) -> Any:
    """softmax(scale * q k^T + bias) over the visible keys: (R, H, d), (S, G, d) -> (B, H, Q, K).

    Arrays or Tensors. The rows of one sample follow those of another; or (B, Q, H, d) and so on.
    """
    keys = in_c_order(rows_to_heads(repeat_heads(k, q.shape[-2]), visibility.keys))  # (B, H, K, d)
    # float, because a float64 of NumPy would make the products float64 too
    queries = in_c_order(rows_to_heads(q, visibility.queries)) * float(scale)  # (B, H, Q, d)
    scores = matrix_product(queries, keys.swapaxes(-1, -2))
    return softmax_of_visible(scores if bias is None else scores + bias, visibility)


def attention_output(weights: Any, v: Any, visibility: Visibility) -> Any:
    """weights (B, H, Q, K) times values, rows (S, G, e) -> rows (R, H, e)."""
    values = rows_to_heads(repeat_heads(v, weights.shape[1]), visibility.keys)  # (B, H, K, e)
    out = weighted_sum(weights, in_c_order(values), visibility)  # (B, H, Q, e)
    return heads_to_rows(out, visibility.queries)


def dropped(weights: Any, dropping: Drop) -> Any:
    return drop(weights, *dropping) if dropping.p else weights


@with_kernels(cpu="tiled_attention.attention_backward", cuda="tiled_attention.attention_backward")
def attention_of_rows_backward(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    visibility: Visibility,
    scale: float,
    drop: Drop,
    bias: Any,
    weights: Any,
) -> tuple[Any, ...]:
    """Gradients of q, k and v, and of the bias if there is one: with products = q k^T,

    dv = dropout(weights)^T grad,  dweights = dropout(grad v^T),
    dscores = weights * (dweights - sum(weights * dweights)) = dbias,
    dproducts = dscores * scale,  dq = dproducts k,  dk = dproducts^T q.
    """
    if q.dtype == np.float16 and is_array(q):
        grad, q, k, v = map(float32_of, (grad, q, k, v))
    if weights is None:  # on Tensors, because saved weights are not part of the graph
        weights = attention_weights(q, k, visibility, scale, bias)
    queries, keys = visibility.queries, visibility.keys
    heads, groups = q.shape[-2], k.shape[-2]
    grad, q = (in_c_order(rows_to_heads(x, queries)) for x in (grad, q))  # (B, H, Q, d)
    k, v = (in_c_order(rows_to_heads(repeat_heads(x, heads), keys)) for x in (k, v))  # (B, H, K, d)
    dweights = dropped(matrix_product(grad, v.swapaxes(-1, -2)), drop)
    dscores = visible_softmax_backward(dweights, weights, visibility)
    dproducts = dscores * float(scale)
    dq = weighted_sum(dproducts, k, visibility)
    dk = weighted_sum_of_queries(dproducts, q, visibility)
    dv = weighted_sum_of_queries(dropped(weights, drop), grad, visibility)
    dk, dv = (sum_heads(heads_to_rows(x, keys), groups) for x in (dk, dv))
    grads = heads_to_rows(dq, queries), dk, dv
    return grads if bias is None else (*grads, dscores)


def attention_with_weights(
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    *,
    heads: tuple[int, int],
    visibility: Visibility,
    scale: float,
    drop: Drop = NO_DROP,
    through: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """`attention` of Tensors, and the weights (B, H, Q, K). The kernels never make that array.

    through: a module that the weights go through before they meet the values.
    """
    q_rows, k_rows, v_rows = in_heads(q, k, v, heads=heads)
    weights = attention_weights(q_rows, k_rows, visibility, scale, bias)
    used = dropped(weights, drop) if through is None else through(weights)
    return in_form_of(q, attention_output(used, v_rows, visibility)), weights


@op
def weighted_sum(weights: AnyTensor, values: AnyTensor, visibility: Visibility | None) -> AnyTensor:
    """weights (B, H, Q, K) @ values (B, H, K, e); invisible values have no influence, even NaN."""
    return visible_product(in_c_order(weights), in_c_order(values), visibility)


@weighted_sum.vjp("weights")
def dweights(grad, values, visibility):
    products = matmul(grad, swap(values))
    visible = None if visibility is None else visibility.visible_pairs(grad)
    return products if visible is None else where(visible, products, 0.0)


@weighted_sum.vjp("values")
def dvalues(grad, weights, visibility):
    return weighted_sum_of_queries(weights, grad, visibility)


def weighted_sum_of_queries(weights: Any, grad: Any, visibility: Visibility | None) -> Any:
    """weights^T (B, H, K, Q) @ (B, H, Q, e), of arrays or Tensors; invisible pairs do not count."""
    return visible_product(swap(in_c_order(weights)), in_c_order(grad), visibility, True)


@with_kernels(cuda="weighted_sum.weighted_sum")
@quiet
def visible_product(
    weights: Any, values: Any, visibility: Visibility | None, transposed: bool = False
) -> Any:
    """weights @ values, in which an invisible value has no influence, even if it is NaN.

    weights (B, H, Q, K), values (B, H, K, e), or `transposed`: (B, H, K, Q) and (B, H, Q, e).
    """
    product = matrix_product(weights, values)
    # The weight of an invisible value is 0, which is enough if the value is finite: 0 * NaN is NaN.
    if visibility is None or visibility.all_visible or is_finite(array_of(values)):
        return product
    shape = weights.swapaxes(-1, -2).shape if transposed else weights.shape  # (B, H, Q, K)
    visible = visibility.visible_pairs(weights)
    visible = namespace(visible).broadcast_to(visible, shape)
    visible = visible.swapaxes(-1, -2) if transposed else visible
    product = matrix_product(weights, where(isfinite(values), values, 0.0))
    for key in range(values.shape[-2]):
        row = values[..., key : key + 1, :]
        finite = isfinite(row)
        if bool(finite.all()):
            continue
        bad = where(finite, 0.0, row)  # (B, H, 1, e)
        part = weights[..., key : key + 1] * bad  # (B, H, Q, e)
        product = product + where(visible[..., key : key + 1], part, 0.0)
    return product


def clear_invisible(visibility: Visibility, heads: int, keys: Any, values: Any) -> tuple[Any, Any]:
    """Keys and values with zeros for those that no query may see, if these are NaN or inf.

    Tensors (B, K, D), or with heads (B, G, K, d). Finite invisible numbers have no influence. But
    0 * NaN is NaN, and through a projection it would reach the gradients of weights, which all
    samples share.
    """
    if visibility.all_visible or visibility.each_key_seen:
        return keys, values
    shape = visibility.shape(heads)
    if keys.device == "cuda":  # always, because a search for NaN would let the host wait
        visible = gpu_kernels().visible_to_any(visibility, keys)
        clear_keys = clear_values = True
    else:
        clear_keys, clear_values = not is_finite(keys._data), not is_finite(values._data)
        if not clear_keys and not clear_values:
            return keys, values
        visible = visibility.visible_pairs(keys)
        visible = namespace(visible).broadcast_to(visible, shape).any(axis=-2)  # (B, H, K)
    if keys.ndim == 3:
        visible = visible[:, 0] if visible.shape[1] == 1 else visible.any(axis=1)  # (B, K)
    elif 0 < keys.shape[1] < visible.shape[1]:  # (B, G, K): to any head of queries of the group
        groups = keys.shape[1]
        visible = visible.reshape(*shape[:1], groups, heads // groups, shape[-1]).any(axis=2)
    visible = wrap(visible[..., None])  # a Tensor, because an op copies arrays of its caller
    cleared_keys = where(visible, keys, 0.0) if clear_keys else keys
    if values is keys:
        return cleared_keys, cleared_keys
    return cleared_keys, where(visible, values, 0.0) if clear_values else values
