"""Packed sequences: the rows of all samples one after another, without the padding between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend import Array, device_of, namespace, to_device
from ..graph import TensorBase


def rows_kept(lengths: np.ndarray, length: int, x: Array) -> Array:
    """Where the rows before each sample's length stand among all (B * length), beside x."""
    return to_device(np.flatnonzero(np.arange(length) < lengths[:, None]), device_of(x))


def pack(x: Any, lengths: np.ndarray) -> Any:
    """x (B, L, ...) -> (sum of lengths, ...)."""
    if isinstance(x, TensorBase):  # whose op records itself
        return namespace(x).pack(x, lengths=lengths)
    batch, length, *rest = x.shape
    return x.reshape(batch * length, *rest)[rows_kept(lengths, length, x)]


def unpack(x: Any, lengths: np.ndarray, length: int) -> Any:
    """x (sum of lengths, ...) -> (B, length, ...), zeros where nothing was."""
    if isinstance(x, TensorBase):
        return namespace(x).unpack(x, lengths=lengths, length=length)
    out = namespace(x).zeros((len(lengths) * length, *x.shape[1:]), x.dtype)
    out[rows_kept(lengths, length, x)] = x
    return out.reshape(len(lengths), length, *x.shape[1:])
