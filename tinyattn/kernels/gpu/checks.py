"""Questions that the device answers without the host waiting; launches `checks.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.backend import Array, in_c_order, namespace
from .launch import by_elements, run, visibility_arguments


def visible_to_any(visibility: Any, x: Any) -> Array:
    """Which keys are visible to at least one query: (B, H|1, K)."""
    limits, mask = visibility.as_limits_and_mask(x)
    xp = namespace(limits if mask is None else mask)
    batch, _, _, keys = visibility.scores_shape(1)
    heads = 1 if mask is None else mask.shape[1]
    queries = max(1 if limits is None else limits.shape[1], 1 if mask is None else mask.shape[2])
    out = xp.empty((batch, heads, keys), np.bool_)
    if out.size:
        arguments = out, out.size, heads, keys, queries, *visibility_arguments(visibility, x)
        run("checks", "visible_to_any", out, by_elements(out.size), *arguments)
    return out


def check_range(numbers: Array, slot: Array, low: int, high: int, also_allowed: int) -> None:
    """Write one number outside [low, high) that is not `also_allowed`, and its position.

    slot: see `range_checks.slot_for`.
    """
    if numbers.size:
        numbers = in_c_order(numbers.astype(np.int64, copy=False))
        bounds = int(low), int(high), int(also_allowed)  # CuPy passes NumPy's in their own size
        threads = by_elements(numbers.size)
        run("checks", "check_range", numbers, threads, numbers, slot, numbers.size, *bounds)
