"""Padded samples to packed ones and back: each is the other's derivative."""

from __future__ import annotations

import numpy as np

from ..backend import Array
from ..kernels import packing
from ..op import op


@op
def pack(x: Array, *, lengths: np.ndarray) -> Array:
    """The first lengths[b] rows of each sample, one after another: (B, L, ...) -> (N, ...)."""
    return packing.pack(x, lengths)


@pack.vjp("x")
def _(grad, shape, lengths):
    return unpack(grad, lengths=lengths, length=shape[1])


@op
def unpack(x: Array, *, lengths: np.ndarray, length: int) -> Array:
    """(N, ...) -> (B, length, ...), with zeros behind the end of each sample."""
    return packing.unpack(x, lengths, length)


@unpack.vjp("x")
def _(grad, lengths):
    return pack(grad, lengths=lengths)
