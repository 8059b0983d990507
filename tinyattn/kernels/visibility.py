"""Which keys each query sees, as one object for one call of attention.

The scores of a call are (B, H, Q, K): B samples, H heads, Q queries, K keys. The rows of a sample
are padded to the longest, or packed: (R, ...), those of one sample after those of another, without
padding. If all samples have one length, both forms are the same memory, because no row is padding.
So attention takes rows and lengths, and both forms are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..base.backend import Array, namespace, on_device_of, read_only
from ..base.random import Drop
from ..errors import ShapeError


class Samples(NamedTuple):
    """How many rows each of B samples has in memory: padded ones L each, padding included; packed
    ones their valid lengths."""

    lengths: np.ndarray  # (B,)
    offsets: np.ndarray  # (B + 1,): the first row of each sample, and the end of the last
    longest: int
    # These two follow from the others, and are kept because each call of attention asks for them.
    rows: int
    have_one_length: bool  # then the packed rows are the padded array, reshaped

    def positions(self) -> np.ndarray:
        """The position of each row in its sample: (R,)."""
        return np.arange(self.rows) - np.repeat(self.offsets[:-1], self.lengths)


@lru_cache(maxsize=64)
def samples_of(lengths: tuple[int, ...], length: int = 0) -> Samples:
    """The Samples of these lengths; cached, because all layers of a step ask for the same.

    length: that of padded samples, in case that there are none.
    """
    if min(lengths, default=0) < 0:
        raise ShapeError(f"the lengths of samples are >= 0, got {list(lengths)}")
    array = read_only(np.array(lengths, np.int64))
    offsets = read_only(np.cumsum((0, *lengths), dtype=np.int64))
    longest, rows = max(lengths, default=length), sum(lengths)
    return Samples(array, offsets, longest, rows, rows == len(lengths) * longest)


class Visibility(NamedTuple):
    """Query q of sample b sees key k if starts[b, q] <= k < limits[b, q] and mask[b, h, q, k].

    A field that is None hides no key. A size of 1 stands for all samples, heads, queries or keys
    alike. The `valid_lens` of padded samples are `limits`, so no query sees a key of padding. A
    query of padding sees the valid keys too; its result is not used.
    """

    queries: Samples
    keys: Samples
    limits: Array | None = None  # (B|1, Q|1)
    mask: Array | None = None  # (B|1, H|1, Q|1, K|1)
    starts: Array | None = None  # (B|1, Q|1)
    each_key_seen: bool = False  # True if each key is known to be visible to some query

    def scores_shape(self, heads: int) -> tuple[int, int, int, int]:
        """(B, H, Q, K)."""
        return len(self.queries.lengths), heads, self.queries.longest, self.keys.longest

    def and_mask(self, mask: Array | None) -> Visibility:
        """The same, if this mask (B|1, H|1, Q|1, K|1) says so too; None says nothing."""
        if mask is None:
            return self
        mask = mask if self.mask is None else self.mask & mask
        return self._replace(mask=mask, each_key_seen=False)

    @property
    def lengths_differ(self) -> bool:
        """True if some sample has fewer queries or keys than the longest."""
        return not (self.queries.have_one_length and self.keys.have_one_length)

    @property
    def all_visible(self) -> bool:
        """True if every query sees every key."""
        unrestricted = self.limits is None and self.mask is None and self.starts is None
        return unrestricted and not self.lengths_differ

    def visible_pairs(self, x: Any) -> Array | None:
        """True where a query sees a key: booleans that broadcast to (B, H, Q, K), on the device of
        x; or None if every query sees every key."""
        limits, mask = self.as_limits_and_mask(x)
        if limits is None:
            return mask
        visible = namespace(limits).arange(self.keys.longest) < limits[:, None, :, None]
        return visible if mask is None else mask & visible

    def sample_limits(self, x: Any) -> Array | None:
        """How many keys the sample of each query has: (B, Q), on the device of x, with 0 after its
        last query; or None if all samples have the same."""
        if not self.lengths_differ:
            return None
        exists = np.arange(self.queries.longest) < self.queries.lengths[:, None]  # (B, Q)
        return on_device_of(np.where(exists, self.keys.lengths[:, None], 0), x)

    def as_limits_and_mask(self, x: Any) -> tuple[Array | None, Array | None]:
        """The same in two arrays, for kernels, on the device of x: limits include those of the
        samples, and the mask includes starts."""
        limits, mask, starts = self.limits, self.mask, self.starts
        of_samples = self.sample_limits(x)
        if limits is None:
            limits = of_samples
        elif of_samples is not None:
            limits = namespace(of_samples).minimum(of_samples, limits)
        if starts is not None:
            visible = namespace(starts).arange(self.keys.longest) >= starts[:, None, :, None]
            mask = visible if mask is None else visible & mask  # (B|1, H|1, Q|1, K)
        return limits, mask

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ShapeError if this is not for scores of this shape."""
        if len(shape) != 4 or shape != self.scores_shape(shape[1]):
            raise ShapeError(f"visibility is of scores {self.scores_shape(1)}, got {shape}")
        of_queries = (shape[0], shape[2])
        for name, sizes in (("limits", of_queries), ("mask", shape), ("starts", of_queries)):
            if getattr(self, name) is not None:
                check_sizes(name, getattr(self, name), sizes)


# Of one call of attention: which keys are visible, what scales the scores, dropout on the weights.
AttentionOptions = tuple[Visibility, float, Drop]


def check_sizes(name: str, array: Array, shape: tuple[int, ...]) -> None:
    """Raise ShapeError if an array is not of this shape, or has 1 in place of any size."""
    pairs = zip(array.shape, shape, strict=False)
    if array.ndim != len(shape) or any(size not in (1, expected) for size, expected in pairs):
        raise ShapeError(f"{name} must be {shape}, or 1 for any of these, got {array.shape}")


def of_padded(shape: Sequence[int], **arrays: Any) -> Visibility:
    """The Visibility of padded samples, for scores of this shape, (B, H, Q, K)."""
    batch, _, queries, keys = shape
    samples = samples_of((queries,) * batch, queries), samples_of((keys,) * batch, keys)
    return Visibility(*samples, **arrays)
