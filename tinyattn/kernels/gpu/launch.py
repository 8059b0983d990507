"""How a CUDA kernel is compiled, which arguments it gets, and how many threads it runs on."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...base.backend import Array, in_c_order, namespace, to_device
from ...base.random import drop_threshold

FOLDER = Path(__file__).parent
SCALARS = {np.dtype(np.float16): 16, np.dtype(np.float32): 32, np.dtype(np.float64): 64}
Threads = tuple[tuple[int, ...], tuple[int, ...]]  # a grid of blocks, and the threads of a block
WARP = 32
MOST_THREADS = 1024
# More blocks than any device runs at once. In larger arrays a thread takes several elements.
MOST_BLOCKS = 65536


@cache
def source(name: str) -> str:
    """The source of a file of kernels, with `common.cu` in front of it."""
    return "".join((FOLDER / f"{part}.cu").read_text() for part in ("common", name))


@cache
def function(xp: Any, name: str, kernel: str, scalar: int, defines: tuple[str, ...] = ()) -> Any:
    """A kernel of the file `name`.cu, compiled for one element type. CuPy keeps compiled files."""
    options = ("--std=c++17", f"-DSCALAR={scalar}", *defines)
    return xp.RawModule(code=source(name), options=options).get_function(kernel)


def run(file: str, kernel: str, x: Array, threads: Threads, *arguments: Any) -> None:
    """Launch a kernel of a file, for elements of the type of x."""
    function(namespace(x), file, kernel, SCALARS.get(x.dtype, 32))(*threads, arguments)


def real(dtype: np.dtype) -> np.dtype:
    """The dtype in which kernels compute: float32 for halves."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def by_rows(rows: int, columns: int) -> Threads:
    """Grid and block for kernels in which the threads of one `threadIdx.y` work on one row: a warp
    on a short row, and four rows in a block; a whole block on a long row."""
    if columns <= 1024:
        return (-(-rows // 4),), (WARP, 4)
    return (rows,), (min(MOST_THREADS, -(-columns // (8 * WARP)) * WARP), 1)


def by_elements(size: int) -> Threads:
    """Grid and block for kernels in which any thread may work on any element."""
    return (min(-(-size // 256), MOST_BLOCKS),), (256,)


def visibility_arguments(visibility: Any, x: Any) -> tuple[Any, ...]:
    """limits (B|1, Q|1) and mask (B|1, H|1, Q|1, K|1), each followed by its strides in elements.
    A stride of 0 repeats an entry. VISIBILITY_PARAMETERS in common.cu takes them."""
    limits, mask = (None, None) if visibility is None else visibility.as_limits_and_mask(x)
    return *array_and_strides(limits, 2, np.int64), *array_and_strides(mask, 4, np.bool_)


def array_and_strides(array: Any, dims: int, dtype: Any) -> tuple[Any, ...]:
    """An array of so many dimensions on the device, and its strides; zeros for None."""
    if array is None:
        return (0,) * (1 + dims)
    array = in_c_order(to_device(array.astype(dtype, copy=False), "cuda"))
    layout = zip(array.shape, array.strides, strict=True)
    return array, *(stride // array.itemsize if size > 1 else 0 for size, stride in layout)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of an array, of which the last dimension is a row."""
    return math.prod(shape[:-1]), shape[-1]


def drop_arguments(p: float, seed: int) -> tuple[Any, ...]:
    """The factor of what is kept, the threshold of the hash, the seed. DROP_PARAMETERS in common.cu
    takes them."""
    return 1.0 / (1.0 - p), drop_threshold(p), seed
