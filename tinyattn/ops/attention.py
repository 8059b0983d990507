"""Scaled dot-product attention as one operation, its weights, and checks."""

from __future__ import annotations

from typing import Any

from .. import kernels
from ..backend import Array, is_finite, namespace
from ..checks import check_attention, check_visibility
from ..kernels import in_order
from ..kernels.packing import Samples, limits_in_samples, mask_with_starts, padded, repeat_heads
from ..kernels.reference import NO_DROP, Drop, Settings, visible_keys
from ..op import op
from .elementwise import add, mul, where
from .linear import matmul, swap
from .softmax import masked_softmax


@op(saves=True)
def attention(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None = None,
    *,
    samples: tuple[Samples, Samples],
    limits: Array | None,
    mask: Array | None,
    scale: float,
    drop: Drop = NO_DROP,
    starts: Array | None = None,
) -> Array:
    """dropout(masked_softmax(scale * q k^T + bias)) v, in each head of each sample.

    q (R, H, d), k (S, G, d), v (S, G, e) -> (R, H, e), with the rows of one sample after those of
    another; that is the order of projections (B, N, H * d) in memory, and of packed samples.
    `samples` have the numbers of query rows and of key rows of each sample. limits (B|1, Q|1) and
    mask (B|1, H|1, Q|1, K|1) are those of `masked_softmax`; Q and K are the longest samples.
    starts (B|1, Q|1): the first key that each query sees. bias (B|1, H|1, Q|1, K|1).
    With G < H heads of keys, each of them is for H / G heads of queries that follow each other.
    """
    check_attention(q, k, v, samples)
    queries, keys = samples
    shape = (len(queries.lengths), q.shape[1], queries.longest, keys.longest)
    check_visibility(shape, limits, mask, starts, bias)
    settings = Settings(samples, limits, mask, scale, drop, starts)
    return kernels.attention(q, k, v, settings, bias)


@attention.vjp("q", "k", "v", "bias")
def dqkv(grad, q, k, v, bias, options, saved):
    grads = kernels.attention_backward(grad, q, k, v, Settings(**options), saved, bias)
    return (*grads, None) if bias is None else grads


def attention_weights(
    q: Any,
    k: Any,
    samples: tuple[Samples, Samples],
    limits: Any,
    mask: Any,
    scale: float,
    starts: Any = None,
    bias: Any = None,
) -> Any:
    """softmax(scale * q k^T + bias) over the visible keys: (R, H, d), (S, G, d) -> (B, H, Q, K)."""
    limits = limits_in_samples(samples, limits, q)
    mask = mask_with_starts(mask, starts, samples[1].longest)
    keys = repeat_heads(padded(k, samples[1]), q.shape[1])
    scores = matmul(padded(mul(q, scale), samples[0]), swap(keys))
    scores = scores if bias is None else add(scores, bias)
    return masked_softmax(scores, limits=limits, mask=mask)


@op
def weighted_sum(
    weights: Array, values: Array, *, limits: Array | None, mask: Array | None
) -> Array:
    """weights (B, H, Q, K) @ values (B, H, K, e); invisible values have no influence, even NaN."""
    return kernels.weighted_sum(in_order(weights), in_order(values), limits, mask)


@weighted_sum.vjp("weights")
def dweights(grad, values, shape, limits, mask):
    products = matmul(grad, swap(values))
    visible = visible_keys(shape, limits, mask)
    return products if visible is None else where(visible, products, 0.0)


@weighted_sum.vjp("values")
def dvalues(grad, weights, limits, mask):
    return kernels.weighted_sum(swap(in_order(weights)), in_order(grad), limits, mask, True)


def clear_invisible(
    shape: tuple[int, ...],
    limits: Array | None,
    mask: Array | None,
    keys: Any,
    values: Any,
    starts: Array | None = None,
) -> tuple[Any, Any]:
    """Keys and values with zeros for those that no query may see, if these are NaN or inf.

    shape (B, H, Q, K); keys and values are Tensors (B, K, D), or with heads (B, G, K, d). Finite
    invisible numbers have no influence. But 0 * NaN is NaN, and through a projection it would reach
    the gradients of weights, which all samples share.
    """
    if limits is None and mask is None:
        return keys, values
    if keys.device == "cuda":  # always, because a search for NaN would let the host wait
        mask = mask_with_starts(mask, starts, shape[-1])
        visible = kernels.gpu_kernels().visible_to_any(limits, mask, shape[0], shape[-1])
        clear = [True, True]
    else:
        clear = [not is_finite(x._data) for x in (keys, values)]
        if not any(clear):
            return keys, values
        visible = visible_keys(shape, limits, mask_with_starts(mask, starts, shape[-1]))
        visible = namespace(visible).broadcast_to(visible, shape).any(axis=-2)  # (B, H, K)
    if keys.ndim == 3:
        visible = visible[:, 0] if visible.shape[1] == 1 else visible.any(axis=1)  # (B, K)
    elif visible.shape[1] > keys.shape[1]:  # (B, G, K): to any head of queries of the group
        groups = keys.shape[1]
        visible = visible.reshape(*shape[:1], groups, shape[1] // groups, shape[-1]).any(axis=2)
    cleared_keys = where(visible[..., None], keys, 0.0) if clear[0] else keys
    if values is keys:
        return cleared_keys, cleared_keys
    return cleared_keys, where(visible[..., None], values, 0.0) if clear[1] else values
