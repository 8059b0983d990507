"""Samples of different lengths: padded, (B, L, ...), or packed, (R, ...).

Packed rows of all samples follow each other without padding: R is the sum of the lengths. Padded
samples of equal length are the same memory, reshaped. So attention takes rows and lengths, and both
forms are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..backend import Array, beside, namespace, read_only


class Samples(NamedTuple):
    """How many rows each of B samples has."""

    lengths: np.ndarray  # (B,)
    offsets: np.ndarray  # (B + 1,): the first row of each sample, and the end of the last
    longest: int

    @property
    def rows(self) -> int:
        return int(self.offsets[-1])

    @property
    def equal(self) -> bool:
        """True if the packed rows are the padded array, reshaped."""
        return len(self.lengths) * self.longest == self.rows


@lru_cache(maxsize=64)
def samples_of(lengths: tuple[int, ...], length: int = 0) -> Samples:
    """The Samples of these lengths; cached, because all layers of a step ask for the same.

    length: that of padded samples, in case that there are none.
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    counted = np.array(lengths, np.int64)
    return Samples(read_only(counted), read_only(offsets), max(lengths, default=length))


def samples_of_padded(shape: tuple[int, ...]) -> tuple[Samples, Samples]:
    """The samples of padded queries and keys, for scores of this shape, (B, H, Q, K)."""
    batch, _, queries, keys = shape
    return samples_of((queries,) * batch, queries), samples_of((keys,) * batch, keys)


@lru_cache(maxsize=4)
def rows_in_padded(lengths: tuple[int, ...], length: int) -> np.ndarray:
    """The index of each packed row among the (B * length) rows of the padded form."""
    inside = np.arange(length) < np.array(lengths, np.int64)[:, None]  # (B, length)
    return read_only(np.flatnonzero(inside))


def pack(x: Array, lengths: Sequence[int]) -> Array:
    """The first lengths[b] rows of each sample: (B, L, ...) -> (R, ...)."""
    batch, length, *rest = x.shape
    rows = beside(rows_in_padded(tuple(lengths), length), x)
    return x.reshape(batch * length, *rest).take(rows, axis=0)


def unpack(x: Array, lengths: Sequence[int], length: int) -> Array:
    """(R, ...) -> (B, length, ...), with zeros after the end of each sample."""
    out = namespace(x).zeros((len(lengths) * length, *x.shape[1:]), x.dtype)
    out[beside(rows_in_padded(tuple(lengths), length), x)] = x
    return out.reshape(len(lengths), length, *x.shape[1:])


def padded(x: Any, samples: Samples) -> Any:
    """`unpack` for attention, on arrays and on Tensors: (R, H, d) -> (B, H, L, d)."""
    batch, longest = len(samples.lengths), samples.longest
    if samples.equal:
        x = x.reshape(batch, longest, *x.shape[1:])  # (B, L, H, d)
    else:
        numbers = np.arange(longest)
        inside = (numbers < samples.lengths[:, None])[:, :, None, None]
        rows = np.where(inside[..., 0, 0], samples.offsets[:-1, None] + numbers, 0)  # (B, L)
        x = namespace(x).where(beside(inside, x), x[beside(rows, x)], 0.0)
    return x.swapaxes(1, 2)


def packed(x: Any, samples: Samples) -> Any:
    """Undo `padded`: (B, H, L, d) -> (R, H, d)."""
    batch, heads, length, width = x.shape
    x = x.swapaxes(1, 2).reshape(batch * length, heads, width)
    if samples.equal:
        return x
    return x[beside(rows_in_padded(tuple(samples.lengths.tolist()), length), x)]


def limits_in_samples(samples: tuple[Samples, Samples], limits: Array | None, x: Any) -> Any:
    """Limits (B|1, Q|1) of padded arrays, in which padded keys are invisible and padded queries
    see nothing."""
    queries, keys = samples
    if queries.equal and keys.equal:
        return limits
    rows = np.arange(queries.longest) < queries.lengths[:, None]  # (B, Q)
    own = beside(np.where(rows, keys.lengths[:, None], 0), x)
    return own if limits is None else namespace(own).minimum(own, limits)


def mask_with_starts(mask: Array | None, starts: Array | None, keys: int) -> Any:
    """The mask in which keys before the first visible one, `starts` (B|1, Q|1), are hidden too."""
    if starts is None:
        return mask
    visible = namespace(starts).arange(keys) >= starts[:, None, :, None]  # (B|1, 1, Q|1, K)
    return visible if mask is None else visible & mask


def repeat_heads(x: Any, heads: int) -> Any:
    """(B, G, K, d) -> (B, H, K, d): each head of keys H / G times, on arrays and on Tensors."""
    groups = x.shape[1]
    return x if groups == heads else x[:, beside(np.arange(heads) // (heads // groups), x)]


def sum_heads(x: Any, groups: int) -> Any:
    """The derivative of `repeat_heads`: (B, H, K, d) -> (B, G, K, d)."""
    batch, heads, *rest = x.shape
    if groups == heads:
        return x
    return x.reshape(batch, groups, heads // groups, *rest).sum(axis=2)
