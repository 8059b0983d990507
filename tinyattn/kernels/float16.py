"""float16 as float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import cpu_kernel

SOME = 1 << 12  # numbers from which a kernel is faster than NumPy


def float32_of(x: Any) -> Any:
    """An array of float16 in float32; one of float32 as it is."""
    if type(x) is np.ndarray and x.dtype == np.float16 and x.size >= SOME:
        kernel = cpu_kernel("float16.float32_of")
        if kernel is not None:
            return kernel(x)
    return x.astype(np.float32, copy=False)
