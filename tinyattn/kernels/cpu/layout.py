"""Arrays in the one layout that kernels are compiled for.

Each other layout would cost a compilation, and a kernel that expects one and gets another would
read beside the array, because compiled code checks nothing.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..threads import parallel_for


def as_input(array: np.ndarray) -> np.ndarray:
    """In C order, of native bytes, read-only; copied only if it has to be."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        array = array.view()
    else:
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    # By position, though NumPy's types want `write=`, which costs as much as the call itself.
    array.setflags(False)  # type: ignore[call-arg]
    return array


def as_rows(array: np.ndarray) -> np.ndarray:
    """(..., D) -> (N, D), an input."""
    return as_input(array).reshape(-1, array.shape[-1])


def of_elements(elements: Any, nanoseconds: float, only: Any = None) -> Callable[..., Any]:
    """A kernel that runs the loop `elements` over arrays of one shape, so long for each number.

    only: the one dtype that it takes; all others are left to the formula.
    """

    def kernel(*arrays: np.ndarray) -> Any:
        if only is not None and arrays[0].dtype != only:
            return NotImplemented
        out = np.empty(arrays[0].shape, arrays[0].dtype)
        flat = [as_input(array).reshape(-1) for array in arrays]
        parallel_for(out.size, nanoseconds * out.size, elements, *flat, out.reshape(-1))
        return out

    return kernel


def broadcast_flat(shape: tuple[int, ...], *arrays: Any) -> list[np.ndarray]:
    """Arrays and numbers of this shape, each as an input of one dimension."""
    return [as_input(np.broadcast_to(array, shape)).reshape(-1) for array in arrays]


def as_scores(array: np.ndarray) -> np.ndarray:
    """Any shape -> (B, H, Q, K), an input."""
    array = as_input(array)
    return array if array.ndim == 4 else array.reshape(1, 1, -1, array.shape[-1])


MOST = np.iinfo(np.int64).max
NO_MASK = as_input(np.ones((1, 1, 1, 1), np.uint8))


def as_mask(mask: Any) -> np.ndarray:
    """Booleans, or None where nothing is hidden, as an input of bytes."""
    return NO_MASK if mask is None else as_input(np.asarray(mask, np.bool_)).view(np.uint8)
