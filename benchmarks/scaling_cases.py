"""The training steps of which one size grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from .cases import Case
from .encoders import training_step
from .libraries import Encoder


@dataclass(frozen=True)
class Axis:
    """What grows: encoder(size) for all sizes from the least to the greatest, always doubled."""

    least: int
    greatest: int
    encoder: Callable[[int], Encoder]
    others: str

    def sizes(self, short: bool) -> list[int]:
        sizes = []
        size = self.least
        while size <= self.greatest:
            sizes.append(size)
            size *= 2
        return sizes[:3] if short else sizes


# width, heads, ff, layers, batch, length
AXES = {
    "length": Axis(
        128, 8192, lambda n: Encoder(64, 4, 256, 2, 1, n), "width 64, 4 heads, 2 layers, batch 1"
    ),
    "batch": Axis(
        1, 128, lambda n: Encoder(64, 4, 256, 2, n, 64), "width 64, 4 heads, 2 layers, length 64"
    ),
    "width": Axis(
        32, 1024, lambda n: Encoder(n, 4, 4 * n, 2, 8, 64), "4 heads, 2 layers, batch 8, length 64"
    ),
    "depth": Axis(
        1, 32, lambda n: Encoder(64, 4, 256, n, 8, 64), "width 64, 4 heads, batch 8, length 64"
    ),
}


def scaling_cases(short: bool) -> Iterator[Case]:
    for name, axis in AXES.items():
        for size in axis.sizes(short):
            sizes = axis.encoder(size)
            yield Case(
                axis.others,
                f"scaling {name} {size}",
                sizes.detail,
                partial(training_step, sizes=sizes, p=0.0),
                parts=("",),
                process=name,
                memory=True,
            )
