"""Scaled dot-product attention as one operation, its parts, and rotary positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import kernels
from ..base.backend import Array, device_of, is_finite, namespace
from ..base.checks import check_attention, check_heads
from ..engine.autograd import wrap
from ..engine.op import op
from ..kernels import in_c_order
from ..kernels.reference import NO_DROP, Drop, attention_output, attention_weights
from ..kernels.visibility import Visibility, check_sizes
from .elementwise import where
from .linear import matmul, swap


@op(saves=True)
def attention(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None = None,
    *,
    heads: tuple[int, int] = (1, 1),
    visibility: Visibility,
    scale: float,
    drop: Drop = NO_DROP,
) -> Array:
    """dropout(masked_softmax(scale * q k^T + bias)) v, in each head of each sample.

    q (B, Q, H * d), k (B, K, G * d), v (B, K, G * e) -> (B, Q, H * e), as projections give them; or
    packed, (R, H * d) and so on, with the rows of one sample after those of another; or with the
    heads in front, (B, H, Q, d) and so on.
    heads: H and G. With G < H, each head of keys is for H / G heads of queries that follow each
    other. bias (B|1, H|1, Q|1, K|1).
    """
    q_rows, k_rows, v_rows = in_heads(q, k, v, heads=heads)
    check_attention(q_rows, k_rows, v_rows, visibility.queries, visibility.keys)
    visibility.check(visibility.shape(heads[0]))
    check_sizes("bias", bias, visibility.shape(heads[0]))
    out, saved = kernels.attention(q_rows, k_rows, v_rows, visibility, scale, drop, bias)
    return in_form_of(q, out), (saved, (q_rows, k_rows, v_rows))


@attention.vjp("q", "k", "v", "bias")
def dqkv(grad, q, k, v, bias, heads, visibility, scale, drop, saved):
    saved, rows = saved or (None, in_heads(q, k, v, heads=heads))
    arguments = *in_heads(grad, heads=heads), *rows, visibility, scale, drop, saved, bias
    dq, dk, dv, *dbias = kernels.attention_backward(*arguments)
    return in_form_of(q, dq), in_form_of(k, dk), in_form_of(v, dv), *(dbias or [None])


def attention_through(
    module: Callable[[Any], Any],
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    *,
    heads: tuple[int, int],
    visibility: Visibility,
    scale: float,
) -> Any:
    """`attention` of Tensors, with the weights (B, H, Q, K) going through a module.

    So a module of a user, or a hook, sees all weights. The kernels never make that array.
    """
    q_rows, k_rows, v_rows = in_heads(q, k, v, heads=heads)
    weights = attention_weights(q_rows, k_rows, visibility, scale, bias)
    return in_form_of(q, attention_output(module(weights), v_rows, visibility))


def in_heads(*xs: Any, heads: tuple[int, ...]) -> list[Any]:
    """The rows of all samples, split into heads: (..., H * d) or (B, H, N, d) -> (R, H, d). The
    last of `heads` is for all that follow. On a GPU (B, H, N, d) becomes (B, N, H, d), a view,
    because the kernels there read rows by their strides."""
    split = []
    for i, x in enumerate(xs):
        number = heads[min(i, len(heads) - 1)]
        if x.ndim == 4:
            x = x.swapaxes(1, 2)
            if device_of(x) != "cuda":
                x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
            split.append(x)
        else:
            check_heads(x.shape[-1], number)
            split.append(x.reshape(math.prod(x.shape[:-1]), number, x.shape[-1] // number))
    return split


def in_form_of(x: Any, rows: Any) -> Any:
    """The inverse for one of them: (R, H, e) or (B, N, H, e) in the form that x has."""
    if x.ndim == 4:
        return rows.reshape(x.shape[0], x.shape[2], *rows.shape[-2:]).swapaxes(1, 2)
    return rows.reshape(*x.shape[:-1], rows.shape[-2] * rows.shape[-1])


@op
def weighted_sum(weights: Array, values: Array, *, visibility: Visibility | None) -> Array:
    """weights (B, H, Q, K) @ values (B, H, K, e); invisible values have no influence, even NaN."""
    return kernels.weighted_sum(in_c_order(weights), in_c_order(values), visibility)


@weighted_sum.vjp("weights")
def dweights(grad, values, visibility):
    products = matmul(grad, swap(values))
    visible = None if visibility is None else visibility.visible_pairs(grad)
    return products if visible is None else where(visible, products, 0.0)


@weighted_sum.vjp("values")
def dvalues(grad, weights, visibility):
    return kernels.weighted_sum(swap(in_c_order(weights)), in_c_order(grad), visibility, True)


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
        visible = kernels.gpu_kernels().visible_to_any(visibility, keys)
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


@op
def rotate_pairs(x: Array, *, turns: Array) -> Array:
    """Each pair (x_2j, x_2j+1) of a row, as a complex number, times one of turns (..., d / 2)."""
    wide = np.result_type(x.dtype, np.float32)
    pairs = in_c_order(x).astype(wide, copy=False).view(turns.dtype)
    return (pairs * turns).view(wide).astype(x.dtype, copy=False)


@rotate_pairs.vjp("x")
def dx(grad, turns):
    return rotate_pairs(grad, turns=turns.conj())  # back by the same angle
