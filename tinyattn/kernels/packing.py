"""Rows of samples: from padded, (B, L, ...), to packed, (R, ...), and back; and shared heads.

`pack_rows` and `pad_rows` are for arrays of any shape, `padded` and `as_packed` are for attention.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.backend import Array, namespace, on_device_of, read_only
from .visibility import Samples


@lru_cache(maxsize=4)
def rows_in_padded(lengths: tuple[int, ...], length: int) -> np.ndarray:
    """The index of each packed row among the (B * length) rows of the padded form."""
    exists = np.arange(length) < np.array(lengths, np.int64)[:, None]  # (B, length)
    return read_only(np.flatnonzero(exists))


def pack_rows(x: Array, lengths: Sequence[int]) -> Array:
    """The first lengths[b] rows of each sample: (B, L, ...) -> (R, ...)."""
    batch, length, *rest = x.shape
    rows = on_device_of(rows_in_padded(tuple(lengths), length), x)
    return x.reshape(batch * length, *rest).take(rows, axis=0)


def pad_rows(x: Array, lengths: Sequence[int], length: int) -> Array:
    """(R, ...) -> (B, length, ...), with zeros after the end of each sample."""
    out = namespace(x).zeros((len(lengths) * length, *x.shape[1:]), x.dtype)
    out[on_device_of(rows_in_padded(tuple(lengths), length), x)] = x
    return out.reshape(len(lengths), length, *x.shape[1:])


def padded(x: Any, samples: Samples, pad: Callable[..., Any] = pad_rows) -> Any:
    """(R, H, d) -> (B, L, H, d), with zeros after the end of each sample; (B, L, H, d) as it is.

    pad: `pad_rows` of arrays; the op `unpack` of Tensors.
    """
    if x.ndim == 4:
        return x
    if samples.have_one_length:
        return x.reshape(len(samples.lengths), samples.longest, *x.shape[1:])
    return pad(x, tuple(samples.lengths.tolist()), samples.longest)


def as_packed(x: Any, samples: Samples, pack: Callable[..., Any] = pack_rows) -> Any:
    """The inverse of `padded`: (B, L, H, d) -> (R, H, d)."""
    if samples.have_one_length:
        return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    return pack(x, tuple(samples.lengths.tolist()))


def repeat_heads(x: Any, heads: int) -> Any:
    """(..., G, d) -> (..., H, d): each head of keys H / G times, on arrays and on Tensors."""
    if x.shape[-2] == heads:
        return x
    numbers = np.arange(heads) // (heads // x.shape[-2])
    return x[..., on_device_of(numbers, x), :]


def sum_heads(x: Any, groups: int) -> Any:
    """The derivative of `repeat_heads`: (..., H, d) -> (..., G, d)."""
    *rows, heads, width = x.shape
    if groups == heads:
        return x
    return x.reshape(*rows, groups, heads // groups, width).sum(axis=-2)
