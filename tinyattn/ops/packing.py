"""Padded samples to packed ones and back: each is the other's derivative."""

from __future__ import annotations

import numpy as np

from ..backend import Array
from ..kernels import packing
from ..op import op


@op
def pack(x: Array, *, lengths: np.ndarray) -> Array:
    """The first lengths[b] rows of each sample, one after another: (B, L, ...) -> (N, ...)."""
    kept = packing.rows_kept(lengths, x.shape[1], x)
    return packing.pack(x, lengths, kept), kept


@pack.vjp("x")
def _(grad, shape, lengths, saved):
    return packing.unpack(grad, lengths, shape[1], saved)


@op
def unpack(x: Array, *, lengths: np.ndarray, length: int) -> Array:
    """(N, ...) -> (B, length, ...), with zeros behind the end of each sample."""
    kept = packing.rows_kept(lengths, length, x)
    return packing.unpack(x, lengths, length, kept), kept


@unpack.vjp("x")
def _(grad, lengths, saved):
    return packing.pack(grad, lengths, saved)
