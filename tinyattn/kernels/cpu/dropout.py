"""Dropout, with chance taken from a hash of the element's number."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .. import reference
from ..reference import drop_threshold, halves
from ..threads import in_parts
from .compiler import inner, jit, ready

LOW_32 = np.uint64(0xFFFFFFFF)
MIXER_1, MIXER_2 = np.uint64(0x21F0AAAD), np.uint64(0x735A2D97)


@inner
def mixed(h):
    # The hash lives on the overflow of 32-bit products. Numba would widen them by itself, and
    # NumPy's scalars, which take over where the compiler is off, would warn.
    h = np.uint32((np.uint64(h ^ (h >> np.uint32(16))) * MIXER_1) & LOW_32)
    h = np.uint32((np.uint64(h ^ (h >> np.uint32(15))) * MIXER_2) & LOW_32)
    return np.uint32(h ^ (h >> np.uint32(15)))


@inner
def hash_of(index, low, high):
    return mixed(np.uint32(mixed(np.uint32(np.uint32(index) ^ low)) ^ high))


@jit
def dropout_flat(x, factor, threshold, low, high, out, first, last):
    zero = factor - factor
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        out[i] = x[i] * factor if hash_of(np.uint32(first + i), low, high) >= threshold else zero


def dropping(p: float, seed: int, dtype: np.dtype) -> tuple[Any, ...]:
    """What the loops need to know: the factor of what is kept, the hash's threshold and seed."""
    return (*rate(p, dtype), *map(np.uint32, halves(seed)))


@lru_cache(maxsize=16)
def rate(p: float, dtype: np.dtype) -> tuple[Any, Any]:
    return dtype.type(1 / (1 - p)), np.uint32(drop_threshold(p))


def dropout(x: np.ndarray, p: float, seed: int) -> np.ndarray:
    if p >= 1 or not x.size:
        return reference.dropout(x, p, seed)
    out = np.empty(x.shape, x.dtype)
    arguments = (ready(x).reshape(-1), *dropping(p, seed, x.dtype), out.reshape(-1))
    in_parts(x.size, 0.35 * x.size, dropout_flat, *arguments)
    return out
