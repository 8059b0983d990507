"""The next position of a decoder: with the keys and values of earlier ones kept, and without."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from .cases import Case, Run, digest, random
from .libraries import Encoder

MEMORY = 32  # positions of the memory
LENGTHS = (64, 256, 1024)


def next_position(lib: Any, sizes: Encoder) -> Run:
    """What position `length` costs: alone after a cache, or as the last of a full pass."""
    decode = lib.decoder(sizes, np.random.default_rng(0))
    x = lib.tensor(random(sizes.batch, sizes.length, sizes.width))
    memory = lib.tensor(random(sizes.batch, MEMORY, sizes.width, seed=1))
    last, (_, kept) = x[:, -1:], decode(x[:, :-1], memory, None)

    def step(_: Any) -> Any:
        return decode(last, memory, kept)[0]

    def full(_: Any) -> Any:
        return decode(x, memory, None)[0][:, -1:]

    phases = {"with cache": step, "without cache": full}
    return Run(phases, check=lambda: digest([phase(None) for phase in phases.values()]))


def decoding(short: bool) -> Iterator[Case]:
    for length in LENGTHS:
        sizes = Encoder(128, 4, 512, 2, 4, length // 16 if short else length)
        yield Case(
            "the next position of a decoder; width, heads, ff, layers, batch, length",
            f"next position {length}",
            sizes.detail,
            partial(next_position, sizes=sizes),
            parts=("with cache", "without cache"),
            process="next position",
        )
