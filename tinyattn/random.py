"""One generator for everything random, so that one seed fixes a whole run.

Numbers are drawn on the CPU with NumPy and then moved, so a seed means the same on every device.
NumPy's own global state is never touched. Dropout draws a single number here, the seed of a
counter-based hash (see `kernels/reference.py`), instead of one number for each element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .checks import is_integer

_generator: np.random.Generator | None = None


def generator() -> np.random.Generator:
    """The generator behind tinyattn; seeded from the system until `manual_seed` is called."""
    global _generator
    if _generator is None:
        _generator = np.random.Generator(np.random.PCG64())
    return _generator


def manual_seed(seed: int) -> None:
    """Start the random numbers anew: equal seeds give bitwise equal runs."""
    global _generator
    if not is_integer(seed) or seed < 0:
        raise ValueError(f"manual_seed takes an integer >= 0, got {seed!r}")
    _generator = np.random.Generator(np.random.PCG64(int(seed)))


def get_rng_state() -> dict[str, Any]:
    """The generator's state, to be saved in a checkpoint and handed to `set_rng_state`."""
    state = generator().bit_generator.state
    # JSON has no 128-bit integers that every reader keeps, so the big ones travel as text.
    return {**state, "state": {name: str(value) for name, value in state["state"].items()}}


def set_rng_state(state: dict[str, Any]) -> None:
    """Go on with the random numbers from where `get_rng_state` was called."""
    try:
        numbers = {name: int(value) for name, value in state["state"].items()}
        generator().bit_generator.state = {**state, "state": numbers}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a state of get_rng_state(): {state!r}") from error


def dropout_seed() -> int:
    """A fresh 64-bit seed for one dropout mask."""
    return int(generator().bit_generator.random_raw()) >> 1  # as integers(0, 2**63), but faster
