"""float16 computed in float32, because its steps would lose digits and overflow from 65,520 on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from .compiled import cpu_kernels

SOME = 1 << 12  # numbers from which a kernel is faster than NumPy


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays or Tensors; for float16 it runs in float32, and its result is float16.

    Other dtypes it computes as they are.
    """

    @wraps(function)
    def computed(*arrays: Any) -> Any:
        if arrays[0].dtype != np.float16:
            return function(*arrays)
        return in_dtype(function(*(in_dtype(x, np.float32) for x in arrays)), np.float16)

    return computed


def in_dtype(x: Any, dtype: Any) -> Any:
    """An array or a Tensor in this dtype."""
    if hasattr(x, "to"):
        return x.to(dtype)
    return float32_of(x) if dtype == np.float32 else x.astype(dtype, copy=False)


def float32_of(x: Any) -> Any:
    """An array of float16 in float32; one of float32 as it is."""
    if type(x) is np.ndarray and x.dtype == np.float16 and x.size >= SOME:
        module = cpu_kernels()
        if module is not None:
            return module.float32_of(x)
    return x.astype(np.float32, copy=False)
