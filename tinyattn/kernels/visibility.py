"""Which keys each query sees, as one object for one call of attention.

The scores of a call are (B, H, Q, K): B samples, H heads, Q queries, K keys. The rows of a sample
are padded to the longest, or packed: (R, ...), those of one sample after those of another, without
padding. Padded samples of equal length are the same memory, reshaped. So attention takes rows and
lengths, and both forms are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..base.backend import Array, beside, namespace, read_only
from ..errors import ShapeError


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

    def positions(self) -> np.ndarray:
        """The position of each row in its sample: (R,)."""
        return np.arange(self.rows) - np.repeat(self.offsets[:-1], self.lengths)


@lru_cache(maxsize=64)
def samples_of(lengths: tuple[int, ...], length: int = 0) -> Samples:
    """The Samples of these lengths; cached, because all layers of a step ask for the same.

    length: that of padded samples, in case that there are none.
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    counted = np.array(lengths, np.int64)
    return Samples(read_only(counted), read_only(offsets), max(lengths, default=length))


class Visibility(NamedTuple):
    """Query q of sample b sees key k if starts[b, q] <= k < limits[b, q] and mask[b, h, q, k].

    None hides nothing. A size of 1 stands for all samples, heads, queries or keys alike. Padding
    belongs to no sample: nobody sees it, and it sees nothing.
    """

    queries: Samples
    keys: Samples
    limits: Array | None = None  # (B|1, Q|1)
    mask: Array | None = None  # (B|1, H|1, Q|1, K|1)
    starts: Array | None = None  # (B|1, Q|1)

    def shape(self, heads: int) -> tuple[int, int, int, int]:
        """(B, H, Q, K)."""
        return len(self.queries.lengths), heads, self.queries.longest, self.keys.longest

    def hides_nothing(self) -> bool:
        arrays = (self.limits, self.mask, self.starts)
        return self.queries.equal and self.keys.equal and all(a is None for a in arrays)

    def limits_and_mask(self, x: Any) -> tuple[Array | None, Array | None]:
        """The same in two arrays, beside x: limits hide padding too, the mask what starts hide."""
        limits, mask, starts = self.limits, self.mask, self.starts
        if not (self.queries.equal and self.keys.equal):
            rows = np.arange(self.queries.longest) < self.queries.lengths[:, None]  # (B, Q)
            own = beside(np.where(rows, self.keys.lengths[:, None], 0), x)
            limits = own if limits is None else namespace(own).minimum(own, limits)
        if starts is not None:
            reached = namespace(starts).arange(self.keys.longest) >= starts[:, None, :, None]
            mask = reached if mask is None else reached & mask  # (B|1, H|1, Q|1, K)
        return limits, mask

    def pairs(self, x: Any) -> Array | None:
        """True where a query sees a key, beside x: booleans that broadcast to (B, H, Q, K)."""
        limits, mask = self.limits_and_mask(x)
        if limits is None:
            return mask
        inside = namespace(limits).arange(self.keys.longest) < limits[:, None, :, None]
        return inside if mask is None else inside & mask

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ShapeError if this is not for scores of this shape."""
        if len(shape) != 4 or shape != self.shape(shape[1]):
            raise ShapeError(f"visibility is of scores {self.shape(1)}, got {shape}")
        of_queries = (shape[0], shape[2])
        for name, right in (("limits", of_queries), ("mask", shape), ("starts", of_queries)):
            check_sizes(name, getattr(self, name), right)


def check_sizes(name: str, array: Array | None, right: tuple[int, ...]) -> None:
    """Raise ShapeError if an array has not the sizes `right`, or 1 for any of these."""
    if array is not None and (
        array.ndim != len(right)
        or any(n not in (1, m) for n, m in zip(array.shape, right, strict=True))
    ):
        raise ShapeError(f"{name} must be {right}, or 1 for any of these, got {array.shape}")


def of_padded(shape: Sequence[int], **arrays: Any) -> Visibility:
    """The Visibility of padded samples, for scores of this shape, (B, H, Q, K)."""
    batch, _, queries, keys = shape
    samples = samples_of((queries,) * batch, queries), samples_of((keys,) * batch, keys)
    return Visibility(*samples, **arrays)
