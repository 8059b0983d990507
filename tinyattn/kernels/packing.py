"""Packed sequences: the rows of all samples one after another, without the padding between them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..autograd import TensorBase
from ..backend import Array, device_of, namespace, read_only, to_device


def rows_kept(lengths: np.ndarray, length: int, x: Array) -> Array:
    """Where the rows before each sample's length stand among all (B * length), beside x."""
    return to_device(kept_of(tuple(lengths.tolist()), length), device_of(x))


@lru_cache(maxsize=4)
def kept_of(lengths: tuple[int, ...], length: int) -> np.ndarray:
    """Where those rows stand, on the host. Remembered, since what a step packs it unpacks too."""
    return read_only(np.flatnonzero(np.arange(length) < np.array(lengths, np.int64)[:, None]))


def pack(x: Any, lengths: np.ndarray, kept: Array | None = None) -> Any:
    """x (B, L, ...) -> (sum of lengths, ...). kept: `rows_kept`, if x is an array and they are
    known already."""
    if isinstance(x, TensorBase):  # whose op records itself
        return namespace(x).pack(x, lengths=lengths)
    batch, length, *rest = x.shape
    kept = rows_kept(lengths, length, x) if kept is None else kept
    return x.reshape(batch * length, *rest).take(kept, axis=0)


def unpack(x: Any, lengths: np.ndarray, length: int, kept: Array | None = None) -> Any:
    """x (sum of lengths, ...) -> (B, length, ...), zeros where nothing was."""
    if isinstance(x, TensorBase):
        return namespace(x).unpack(x, lengths=lengths, length=length)
    batch, rest = len(lengths), x.shape[1:]
    out = namespace(x).zeros((batch, length, *rest), x.dtype)
    kept = rows_kept(lengths, length, x) if kept is None else kept
    out.reshape(batch * length, *rest)[kept] = x
    return out
