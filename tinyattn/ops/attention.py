"""Scaled dot-product attention as one op."""

from __future__ import annotations

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
