"""Scaled dot-product attention as one op."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import kernels
from ..backend import Array
from ..errors import ShapeError
from ..kernels import in_order
from ..kernels.reference import visible
from ..op import op
from .elementwise import where
from .linear import matmul, swap


@op
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    limits: Array | None,
    mask: Array | None,
    scale: float,
    p: float = 0.0,
    seed: int = 0,
) -> Array:
    """dropout(masked_softmax(scale * q k^T)) v.

    q (B, H, Q, d), k (B, H, K, d), v (B, H, K, e) -> (B, H, Q, e); limits and mask as in
    `masked_softmax`; p and seed as in `dropout`.
    """
    # The compiled kernel checks nothing, and would read beside what it was given.
    fits = q.shape[:2] == k.shape[:2] == v.shape[:2] and q.shape[-1] == k.shape[-1]
    if not fits or k.shape[2] != v.shape[2]:
        raise ShapeError(
            f"attention: queries {q.shape}, keys {k.shape} and values {v.shape} must agree in "
            "samples and heads, queries and keys in width, keys and values in number"
        )
    return kernels.attention(q, k, v, limits, mask, scale, p, seed)


@attention.vjp("q", "k", "v")
def _(grad, q, k, v, limits, mask, scale, p, seed, saved):
    return kernels.attention_backward(grad, q, k, v, limits, mask, scale, p, seed, saved)


def split(x: Any, heads: int) -> Any:
    """(..., D) -> (..., H, d), of an array or a Tensor."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def merge(x: Any) -> Any:
    """(..., H, d) -> (..., D)."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


@op
def multi_head_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    heads: int,
    limits: Array | None,
    mask: Array | None,
    scale: float,
    p: float = 0.0,
    seed: int = 0,
) -> Array:
    """`attention` of slices: q (B, Q, D), k (B, K, D), v (B, K, E) -> (B, Q, E).

    One op instead of nine, since a small model spends its time between the ops.
    """
    q, k, v = (split(x, heads).swapaxes(1, 2) for x in (q, k, v))
    out, saved = kernels.attention(q, k, v, limits, mask, scale, p, seed)
    return merge(out.swapaxes(1, 2)), saved


@multi_head_attention.vjp("q", "k", "v")
def _(grad, q, k, v, heads, limits, mask, scale, p, seed, saved):
    parts = [split(x, heads).swapaxes(1, 2) for x in (grad, q, k, v)]
    gradients = kernels.attention_backward(*parts, limits, mask, scale, p, seed, saved)
    return tuple(merge(x.swapaxes(1, 2)) for x in gradients)


@op
def packed_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    heads: int,
    lengths: np.ndarray,
    causal: bool,
    scale: float,
    p: float = 0.0,
    seed: int = 0,
) -> Array:
    """The same within each of the sequences, of `lengths` (B,), that lie one after another:
    q, k (N, D), v (N, E) -> (N, E)."""
    q, k, v = (split(x, heads) for x in (q, k, v))
    out, saved = kernels.packed_attention(q, k, v, lengths, causal, scale, p, seed)
    return merge(out), saved


@packed_attention.vjp("q", "k", "v")
def _(grad, q, k, v, heads, lengths, causal, scale, p, seed, saved):
    parts = [split(x, heads) for x in (grad, q, k, v)]
    gradients = kernels.packed_attention_backward(*parts, lengths, causal, scale, p, seed, saved)
    return tuple(merge(x) for x in gradients)


@op
def weighted_sum(
    weights: Array, values: Array, *, limits: Array | None, mask: Array | None
) -> Array:
    """weights (B, H, Q, K) times values (B, H, K, e), hidden pairs left out even if NaN."""
    return kernels.weighted_sum(in_order(weights), in_order(values), limits, mask)


@weighted_sum.vjp("weights")
def _(grad, values, shape, limits, mask):
    products = matmul(grad, swap(values))
    seen = visible(shape, limits, mask)
    return products if seen is None else where(seen, products, 0.0)


@weighted_sum.vjp("values")
def _(grad, weights, limits, mask):
    return kernels.weighted_sum(swap(in_order(weights)), in_order(grad), limits, mask, True)
