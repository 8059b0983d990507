"""Dropout by a counter-based hash: the mask is computed again in backward, never stored."""

from __future__ import annotations

from .. import kernels
from ..backend import Array
from ..op import op


@op
def dropout(x: Array, *, p: float, seed: int) -> Array:
    """x * keep / (1 - p), where element i is kept if hash(seed, i) says so."""
    return kernels.dropout(x, p, seed)


@dropout.vjp("x")
def _(grad, p, seed):
    return dropout(grad, p=p, seed=seed)  # linear, and the same mask
