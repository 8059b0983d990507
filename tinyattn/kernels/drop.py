"""Which elements dropout keeps: a hash of the element's number decides, on every device alike."""

from __future__ import annotations

from typing import NamedTuple


class Drop(NamedTuple):
    """Dropout inside an operation: the probability, and the seed of the hash."""

    p: float
    seed: int


NO_DROP = Drop(0.0, 0)


def halves(seed: int) -> tuple[int, int]:
    """The lower and the upper 32 bits of a seed."""
    return seed & 0xFFFFFFFF, seed >> 32


def drop_threshold(p: float) -> int:
    """An element is kept if its hash, an integer of 32 bits, is not smaller."""
    return min(round(p * 2**32), 2**32 - 1)
