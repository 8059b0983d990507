"""The operations of layers: normalization, dropout, embedding, and packed sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import kernels
from ..base.backend import Array
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from ..kernels import packing
from ..kernels.range_checks import require_range, slot_for


@op(saves=True)
def layer_norm(x: Array, weight: Array | None, bias: Array | None, *, eps: float) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension, D.

    x (..., D), weight and bias (D,) or None; var is the biased variance (divided by D).
    """
    for name, array in (("weight", weight), ("bias", bias)):
        if array is not None and array.shape != x.shape[-1:]:
            raise ShapeError(f"layer_norm: {name} must be {x.shape[-1:]}, got {array.shape}")
    out, mean, inv_std = kernels.layer_norm(x, weight, bias, eps)
    return out, (mean, inv_std)


@layer_norm.vjp("x", "weight", "bias")
def gradients(grad, x, weight, eps, saved):
    return kernels.layer_norm_backward(grad, x, weight, eps, saved)


@op(saves=True)
def rms_norm(x: Array, weight: Array | None, *, eps: float) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, D.

    x (..., D), weight (D,) or None.
    """
    if weight is not None and weight.shape != x.shape[-1:]:
        raise ShapeError(f"rms_norm: weight must be {x.shape[-1:]}, got {weight.shape}")
    return kernels.rms_norm(x, weight, eps)


@rms_norm.vjp("x", "weight")
def dx(grad, x, weight, eps, saved):
    return kernels.rms_norm_backward(grad, x, weight, eps, saved)


@op
def dropout(x: Array, *, p: float, seed: int) -> Array:
    """x / (1 - p) for each element i that hash(seed, i) keeps, else 0."""
    return kernels.dropout(x, p, seed)


@dropout.vjp("x")
def dx(grad, p, seed):
    return dropout(grad, p=p, seed=seed)  # linear, and the same mask


@op
def embedding(ids: Array, weight: Array, *, padding_idx: int | None = None) -> Array:
    """weight[ids]: ids (...), weight (V, D) -> (..., D)."""
    if getattr(ids, "dtype", np.dtype(object)).kind not in "iu":
        raise DtypeError(
            f"embedding takes integer ids, got {getattr(ids, 'dtype', type(ids).__name__)}"
        )
    if weight.ndim != 2:
        raise ShapeError(f"embedding takes a table (V, D), got shape {weight.shape}")
    text = unknown_id_text(len(weight))
    if type(weight) is not np.ndarray:
        return kernels.gpu_kernels().take_rows(weight, ids, slot_for(IndexError, text))
    require_range(ids, 0, len(weight), IndexError, text)
    return weight.take(ids, axis=0)


def unknown_id_text(count: int) -> str:
    return f"token id {{number}} is out of range: the embedding has {count} rows (0 to {count - 1})"


@embedding.vjp("weight")
def dweight(grad, ids, shapes, padding_idx):
    return scatter_rows(grad, ids, num_rows=shapes[1][0], skip=padding_idx)


@op
def scatter_rows(grad: Array, ids: Array, *, num_rows: int, skip: int | None) -> Array:
    """Zeros (V, D) with each row of `grad` (..., D) added at its id; `skip` stays zero."""
    return kernels.scatter_rows(grad, ids, num_rows, skip)


@scatter_rows.vjp("grad")
def dgrad(grad, ids, skip) -> Any:
    rows = embedding(ids, grad)
    if skip is None:
        return rows
    ids = getattr(ids, "_data", ids)
    return rows * (ids != skip)[..., None]


@op
def pack(x: Array, *, lengths: Sequence[int]) -> Array:
    """The first lengths[b] rows of each sample, one after another: (B, L, ...) -> (R, ...)."""
    return packing.pack_rows(x, lengths)


@pack.vjp("x")
def dx(grad, shape, lengths):
    return unpack(grad, lengths=lengths, length=shape[1])


@op
def unpack(x: Array, *, lengths: Sequence[int], length: int) -> Array:
    """(R, ...) -> (B, length, ...), with zeros after the end of each sample."""
    return packing.pad_rows(x, lengths, length)


@unpack.vjp("x")
def dx(grad, lengths):
    return pack(grad, lengths=lengths)
