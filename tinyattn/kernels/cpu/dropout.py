"""Dropout, which is decided by a hash of the element's number; see `ops/dropout.py`."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...base.random import drop_threshold, halves
from ..threads import parallel_for
from .compiler import inlined, inner, jit
from .layout import as_input

LOW_32 = np.uint64(0xFFFFFFFF)
MIXER_1, MIXER_2 = np.uint64(0x21F0AAAD), np.uint64(0x735A2D97)


class DropArguments(NamedTuple):
    """What a kernel has to know."""

    factor: Any  # 1 / (1 - p), in the dtype of the array
    threshold: np.uint32  # an element is kept if its hash is not smaller; 0 without dropout
    low: np.uint32  # the halves of the seed
    high: np.uint32


@lru_cache(maxsize=16)
def drop_arguments(p: float, seed: int, dtype: np.dtype) -> DropArguments:
    threshold, (low, high) = np.uint32(drop_threshold(p)), map(np.uint32, halves(seed))
    return DropArguments(dtype.type(1 / (1 - p)), threshold, low, high)


@inlined
def mixed(h):
    # The hash needs the overflow of 32-bit products. Numba would widen them, and NumPy's numbers,
    # which take their place where the compiler is off, would warn.
    h = np.uint32((np.uint64(h ^ (h >> np.uint32(16))) * MIXER_1) & LOW_32)
    h = np.uint32((np.uint64(h ^ (h >> np.uint32(15))) * MIXER_2) & LOW_32)
    return np.uint32(h ^ (h >> np.uint32(15)))


@inner
def is_kept(number, drop):
    """True if dropout keeps the element of this number."""
    h = mixed(np.uint32(np.uint32(number & 0xFFFFFFFF) ^ drop.low))
    return mixed(np.uint32(h ^ drop.high ^ np.uint32(number >> 32))) >= drop.threshold


@jit
def dropout_elements(x, drop, out, first, last):
    zero = drop.factor - drop.factor
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        out[i] = x[i] * drop.factor if is_kept(first + i, drop) else zero


def dropout(x: np.ndarray, p: float, seed: int) -> Any:
    if p >= 1 or not x.size:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    arguments = (as_input(x).reshape(-1), drop_arguments(p, seed, x.dtype), out.reshape(-1))
    parallel_for(x.size, 0.35 * x.size, dropout_elements, *arguments)
    return out
