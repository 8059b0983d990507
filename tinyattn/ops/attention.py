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


def check_heads(width: int, heads: int) -> None:
    if heads < 1 or width % heads:
        raise ShapeError(
            f"the width {width} cannot be split into {heads} heads: it must be a multiple"
        )


def check_lengths(name: str, lengths: np.ndarray | None, shape: tuple[int, ...]) -> tuple[int, int]:
    """How many samples there are, and how long the longest is, in x of this shape."""
    if lengths is None:
        return shape[0], shape[1]
    listed = lengths.tolist()
    if sum(listed) != shape[0] or min(listed, default=0) < 0:
        raise ShapeError(
            f"{name}: lengths of packed samples are >= 0 and add up to the {shape[0]} rows, got "
            f"{listed}"
        )
    return len(listed), max(listed, default=0)


def check_hiding(
    name: str, batch: int, heads: int, length: int, limits: Any, mask: Any, packed: bool
) -> None:
    """limits and mask of self-attention, of which the kernel looks at no shape."""
    if packed and mask is not None:
        raise ShapeError(f"{name}: packed samples take no mask, got {mask.shape}")
    wanted = (("limits", limits, (batch, length)), ("mask", mask, (batch, heads, length, length)))
    for what, array, shape in wanted:
        if array is None:
            continue
        if array.ndim != len(shape) or any(
            n not in (1, full) for n, full in zip(array.shape, shape, strict=True)
        ):
            raise ShapeError(f"{name}: {what} must be {shape}, or 1 for any, got {array.shape}")


@op
def self_attention(
    qkv: Array,
    *,
    heads: int,
    lengths: np.ndarray | None,
    limits: Array | None,
    mask: Array | None,
    scale: float,
    p: float = 0.0,
    seed: int = 0,
) -> Array:
    """`attention` in `heads` slices, of queries, keys and values that stand side by side.

    qkv (B, N, 3 D) -> (B, N, D). With lengths (B,) it is packed, (N, 3 D) -> (N, D): samples one
    after another, of which each sees itself alone. limits are (B|1, L|1) then, L the longest
    sample, and on the host, as lengths are.
    """
    dimensions = 3 if lengths is None else 2
    if qkv.ndim != dimensions or qkv.shape[-1] % 3:
        raise ShapeError(
            "self_attention: queries, keys and values stand side by side in (B, N, 3 D), packed in "
            f"(N, 3 D), got {qkv.shape}"
        )
    check_heads(qkv.shape[-1] // 3, heads)
    batch, length = check_lengths("self_attention", lengths, qkv.shape)
    check_hiding("self_attention", batch, heads, length, limits, mask, lengths is not None)
    return kernels.self_attention(qkv, heads, lengths, limits, mask, scale, p, seed)


@self_attention.vjp("qkv")
def _(grad, qkv, heads, lengths, limits, mask, scale, p, seed, saved):
    return kernels.self_attention_backward(
        grad, qkv, heads, lengths, limits, mask, scale, p, seed, saved
    )


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
