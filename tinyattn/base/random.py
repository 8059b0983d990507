"""One generator for all random numbers, so that one seed fixes a whole run.

NumPy draws the numbers on the CPU, so a seed gives the same numbers on every device. NumPy's global
state is never used. Dropout draws one number here, the seed of a hash of each element's index (see
`ops/dropout.py`), instead of one number for each element.
"""

from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from .checks import is_integer

_generator: np.random.Generator | None = None
# Another one in a with-block. Other threads do not see it.
of_block: ContextVar[np.random.Generator | None] = ContextVar("generator", default=None)


def generator() -> np.random.Generator:
    """The generator; the system seeds it, unless `manual_seed` is called."""
    global _generator
    if _generator is None:
        _generator = np.random.Generator(np.random.PCG64())
    return of_block.get() or _generator


def manual_seed(seed: int) -> None:
    """Seed the generator anew: equal seeds give bitwise equal runs.

    Differs from PyTorch: the numbers are NumPy's, so they are others; a seed is >= 0.
    """
    global _generator
    if not is_integer(seed) or seed < 0:
        raise ValueError(f"manual_seed takes an integer >= 0, got {seed!r}")
    _generator = np.random.Generator(np.random.PCG64(int(seed)))


def get_rng_state() -> dict[str, Any]:
    """The generator's state, for a checkpoint and for `set_rng_state`.

    Differs from PyTorch: it is a dict.
    """
    state = generator().bit_generator.state
    # The numbers become text, because not every reader of JSON takes integers of 128 bits.
    return {**state, "state": {name: str(value) for name, value in state["state"].items()}}


def set_rng_state(state: dict[str, Any]) -> None:
    """Continue with the random numbers that followed the call of `get_rng_state`."""
    try:
        numbers = {name: int(value) for name, value in state["state"].items()}
        generator().bit_generator.state = {**state, "state": numbers}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"not a state of get_rng_state(): {state!r}") from error


def dropout_seed() -> int:
    """A new 64-bit seed for one dropout mask."""
    # integers(0, 2**63) gives the same number, but takes longer.
    return int(generator().bit_generator.random_raw()) >> 1


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
