"""Scaled dot-product attention as one op."""

from __future__ import annotations

from .. import kernels
from ..backend import Array
from ..op import op


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
    return kernels.attention(q, k, v, limits, mask, scale, p, seed)


@attention.vjp("q", "k", "v")
def _(grad, q, k, v, limits, mask, scale, p, seed, saved):
    return kernels.attention_backward(grad, q, k, v, limits, mask, scale, p, seed, saved)
