"""What is looked at on the device: `cuda/checks.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend import Array, namespace
from .launch import by_elements, function, hidden, in_c_order


def visible_keys(limits: Any, mask: Any, batch: int, keys: int) -> Array:
    """(B, H|1, K): which keys any query may see."""
    some = limits if mask is None else mask
    xp = namespace(some)
    heads = 1 if mask is None else mask.shape[1]
    queries = max(1 if limits is None else limits.shape[1], 1 if mask is None else mask.shape[2])
    out = xp.empty((batch, heads, keys), np.bool_)
    if out.size:
        kernel = function(xp, "checks", "visible_keys", 32)
        kernel((-(-out.size // 128),), (128,),
               (out, out.size, heads, keys, queries, *hidden(limits, mask)))  # fmt: skip
    return out


def check_range(numbers: Array, faults: Array, low: int, high: int, besides: int) -> None:
    """Note in `faults` (2,) the place of some number outside [low, high), and the number."""
    if numbers.size:
        xp = namespace(numbers)
        numbers = in_c_order(numbers.astype(np.int64, copy=False))
        kernel = function(xp, "checks", "check_range", 32)
        limits = (int(low), int(high), int(besides))  # 8 bytes each, whatever NumPy had them in
        kernel(*by_elements(numbers.size), (numbers, faults, numbers.size, *limits))
