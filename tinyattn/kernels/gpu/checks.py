"""Integers that must lie in a range, checked without the host waiting; launches `checks.cu`."""

import numpy as np

from ...base.backend import Array, in_c_order
from .launch import by_elements, run


def check_range(numbers: Array, slot: Array, low: int, high: int, also_allowed: int) -> None:
    """Write one number outside [low, high) that is not `also_allowed`, and its position.

    slot: see `range_checks.slot_for`.
    """
    if numbers.size:
        numbers = in_c_order(numbers.astype(np.int64, copy=False))
        bounds = int(low), int(high), int(also_allowed)  # CuPy passes NumPy's in their own size
        threads = by_elements(numbers.size)
        run("checks", "check_range", numbers, threads, numbers, slot, numbers.size, *bounds)
