"""How the loops are compiled, and the doors that bring arrays into the layout they expect."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

COMPILED = not numba.config.DISABLE_JIT  # with which kernels run as Python
CONTRACT = {"contract"}  # a * b + c in one instruction
# Reordering sums lets them use vector instructions; nothing else is relaxed.
FAST_SUMS = {"reassoc", "contract", "nsz"}


def jit(function: Any = None, *, fastmath: Any = CONTRACT) -> Any:
    """`numba.njit` with our settings, also where no folder for Numba's cache can be written."""
    if function is None:
        return lambda function: jit(function, fastmath=fastmath)
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)


def inner(
    function: Any = None, *, fastmath: Any = CONTRACT, inline: str = "never",
    forceinline: bool = False, apart: bool = False,
) -> Any:  # fmt: skip
    """`jit` for a part of a loop."""
    options = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": fastmath,
        "inline": inline,
        "forceinline": forceinline,
    }
    return numba.njit(**options) if function is None else numba.njit(**options)(function)


def ready(array: np.ndarray) -> np.ndarray:
    """An input as the loops expect it; copied only if it has to be."""
    flags, native = array.flags, array.dtype.isnative
    if flags.carray and native:  # in C order, aligned and writeable, as most are
        array = array.view()
    elif flags.c_contiguous and flags.aligned and native:
        return array
    else:
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    # By position, though NumPy's types want `write=`, which costs as much as the call itself.
    array.setflags(False)  # type: ignore[call-arg]
    return array


def rows(array: np.ndarray) -> np.ndarray:
    """(..., D) -> (N, D), ready."""
    return ready(array).reshape(-1, array.shape[-1])


def rows_of_new(array: np.ndarray) -> np.ndarray:
    """(..., D) -> (N, D) of an array made here, to be written to."""
    return array.reshape(-1, array.shape[-1])


def four(array: np.ndarray) -> np.ndarray:
    """Any shape as (B, H, Q, K)."""
    array = ready(array)
    return array if array.ndim == 4 else array.reshape(1, 1, -1, array.shape[-1])


NO_LIMIT = ready(np.full((1, 1), np.iinfo(np.int64).max))
NO_MASK = ready(np.ones((1, 1, 1, 1), np.uint8))


def hidden(limits: Any, mask: Any) -> tuple[np.ndarray, np.ndarray, bool]:
    """limits and mask as the loops take them."""
    return (
        NO_LIMIT if limits is None else ready(np.asarray(limits, np.int64)),
        NO_MASK if mask is None else ready(np.asarray(mask, np.bool_)).view(np.uint8),
        mask is not None,
    )
