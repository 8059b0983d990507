"""How a CUDA kernel is found, given its arguments, and told how many threads work on what."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ... import backend
from ...backend import Array, to_device
from ..reference import drop_threshold

FOLDER = Path(__file__).parent
SCALARS = {np.dtype(np.float16): 16, np.dtype(np.float32): 32, np.dtype(np.float64): 64}
WARP = 32
MOST_THREADS = 1024
# More blocks than any device runs at once; beyond, a thread takes several elements.
MOST_BLOCKS = 65536


@cache
def source(name: str) -> str:
    """A kernel's source, with what all of them share in front."""
    return "".join((FOLDER / f"{part}.cu").read_text() for part in ("common", name))


@cache
def function(xp: Any, name: str, kernel: str, scalar: int, defines: tuple[str, ...] = ()) -> Any:
    """One compiled kernel for one element type. CuPy keeps what it has compiled on disk."""
    options = ("--std=c++17", f"-DSCALAR={scalar}", *defines)
    return xp.RawModule(code=source(name), options=options).get_function(kernel)


def in_c_order(array: Array) -> Array:
    return array if array.flags.c_contiguous else array.copy(order="C")


def real(dtype: np.dtype) -> np.dtype:
    """What kernels compute with: halves as float32."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def by_rows(rows: int, columns: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Grid and block for kernels that give a row to the threads of one `threadIdx.y`: a warp to a
    short row, several of which share a block; to a long one a block of its own."""
    if columns <= 1024:
        return (-(-rows // 4),), (WARP, 4)
    return (rows,), (min(MOST_THREADS, -(-columns // (8 * WARP)) * WARP), 1)


def by_elements(size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Grid and block for kernels in which any thread may take any element."""
    return (min(-(-size // 256), MOST_BLOCKS),), (256,)


def hidden(limits: Any, mask: Any) -> tuple[Any, ...]:
    """limits (B|1, Q|1) and mask (B|1, H|1, Q|1, K|1), with their strides in elements, as kernels
    take them: a stride of 0 repeats an entry."""
    found: list[Any] = []
    for array, dims, dtype in ((limits, 2, np.int64), (mask, 4, np.bool_)):
        if array is None:
            found += [0] * (1 + dims)
            continue
        array = in_c_order(to_device(array.astype(dtype, copy=False), "cuda"))
        strides = [s // array.itemsize if n > 1 else 0
                   for n, s in zip(array.shape, array.strides, strict=True)]  # fmt: skip
        found += [array, *strides]
    return tuple(found)


def four(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Any shape as (B, H, Q, K)."""
    if len(shape) == 4:
        return shape
    return 1, 1, math.prod(shape[:-1]), shape[-1]


def dropping(p: float, seed: int) -> tuple[Any, ...]:
    """What kernels that drop elements take: p, when to drop, the seed, and for a captured step how
    often it has been replayed."""
    draws = 0 if backend.capture is None else backend.capture.draws
    return float(p), drop_threshold(p), seed, draws
