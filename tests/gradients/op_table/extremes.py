"""Numbers near the ends of float16 and float32, by a word each: see test_extremes.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
MANY = 70_000  # more than float16 can count


@dataclass(frozen=True)
class Extreme:
    """One call with extreme numbers, and how exact its result is."""

    arguments: str  # words of NUMBERS, with commas between them
    function: Callable[..., Any] | None  # None: that of the row
    options: dict[str, Any]
    rtol: float  # times the epsilon of the dtype, of each element
    of_largest: bool  # of the largest element instead, where a row adds elements up
    rtol_of_half: float  # in float16, where most are computed in float32 and rounded once


def at(
    *sets: str,
    function: Callable[..., Any] | None = None,
    rtol: float = 4.0,
    of_largest: bool = False,
    rtol_of_half: float = 1.0,
    **options: Any,
) -> list[Extreme]:
    """A call for each set of arguments; the words of a set have commas between them."""
    return [Extreme(words, function, options, rtol, of_largest, rtol_of_half) for words in sets]


def signs(rng: np.random.Generator, *shape: int) -> Array:
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.0, shape)


# Each gets the generator, and the limits of the dtype.
NUMBERS: dict[str, Callable[[np.random.Generator, Any], Array]] = {
    "ones": lambda rng, info: signs(rng, 3, 4),
    "positive": lambda rng, info: np.abs(signs(rng, 3, 4)),
    "large": lambda rng, info: signs(rng, 3, 4) * float(info.max) * 0.9,
    "large positive": lambda rng, info: np.abs(signs(rng, 3, 4)) * float(info.max) * 0.9,
    "root of large": lambda rng, info: signs(rng, 3, 4) * float(info.max) ** 0.5,
    "root of small": lambda rng, info: signs(rng, 3, 4) * float(info.tiny) ** 0.5 * 4,
    "small": lambda rng, info: signs(rng, 3, 4) * float(info.tiny) * 4,
    "small positive": lambda rng, info: np.abs(signs(rng, 3, 4)) * float(info.tiny) * 4,
    "tens": lambda rng, info: signs(rng, 3, 40) * 10,
    "tens of 4": lambda rng, info: signs(rng, 3, 4) * 10,
    "spread": lambda rng, info: np.linspace(-12, 12, 97),
    "many": lambda rng, info: signs(rng, MANY),
    "many positive": lambda rng, info: np.abs(signs(rng, MANY)),
    "many large": lambda rng, info: np.abs(signs(rng, MANY)) * float(info.max) * 0.9,
    "many of both ends": lambda rng, info: (
        np.where(rng.random(MANY) < 0.9, -0.9, 0.9) * float(info.max)
    ),
    "one thousand": lambda rng, info: np.eye(1, MANY)[0] * 1000.0,
    "many small": lambda rng, info: np.abs(signs(rng, MANY)) * float(info.tiny) * 4,
    "many fractions": lambda rng, info: rng.random(MANY),
    "many in 3 rows": lambda rng, info: signs(rng, 3, MANY),
    "many rows": lambda rng, info: signs(rng, MANY, 3),
    "many rows of large logs": lambda rng, info: -np.abs(signs(rng, MANY, 3)) * float(info.max),
    "many large rows": lambda rng, info: signs(rng, MANY, 3) * float(info.max) * 0.4,
    "many rows of logs": lambda rng, info: -np.abs(signs(rng, MANY, 3)),
    "many rows positive": lambda rng, info: np.abs(signs(rng, MANY, 3)),
    "many rows of 4": lambda rng, info: signs(rng, MANY, 4),
    "many rows of tens": lambda rng, info: signs(rng, MANY, 3) * 10,
}
ENDS = ("large", "small", "ones", "spread")
CLASSES = np.random.RandomState(0).randint(3, size=MANY)
IGNORED = np.where(np.arange(MANY) % 3, CLASSES, -100)
