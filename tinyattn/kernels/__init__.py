"""Which code computes a kernel: Numba on NumPy arrays, CUDA on CuPy arrays, plain array code else.

`reference.py` is the truth. `cpu/` is imported on first use, since importing Numba takes longer
than importing everything else together; without Numba, or with TINYATTN_JIT=0 in the environment,
the reference runs in its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from ..backend import device_of
from . import reference
from .matmul import matrix_product as matrix_product
from .sums import in_order as in_order
from .sums import reduce_sum as reduce_sum
from .sums import sum_to as sum_to
from .sums import wide as wide

ndarray = np.ndarray
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


@cache
def jitted() -> ModuleType | None:
    """The module of Numba kernels, or None where they cannot or shall not run."""
    if os.environ.get("TINYATTN_JIT", "1") == "0":
        return None
    try:
        from . import cpu
    except ImportError:
        return None
    return cpu


def cuda_kernels() -> ModuleType:
    """The module of CUDA kernels; they are compiled when first launched."""
    from . import gpu

    return gpu


def gpu_optimizer() -> ModuleType:
    """The module of CUDA kernels that work on many arrays at once."""
    from .gpu import optimizer

    return optimizer


def dispatched(name: str) -> Callable[..., Any]:
    """The kernel `name`, chosen at each call by the array that comes first."""
    plain = getattr(reference, name)
    fast: Callable[..., Any] | None = None
    on_device: Callable[..., Any] | None = None

    def kernel(array: Any, *arguments: Any) -> Any:
        nonlocal fast, on_device
        if type(array) is ndarray:
            if array.dtype is FLOAT32 or array.dtype is FLOAT64:
                if fast is None:
                    fast = getattr(jitted(), name, plain)
                return fast(array, *arguments)
        elif device_of(array) == "cuda" and array.dtype.kind == "f":
            if on_device is None:
                on_device = getattr(cuda_kernels(), name, plain)
            return on_device(array, *arguments)
        return plain(array, *arguments)

    kernel.__name__, kernel.__doc__ = name, plain.__doc__
    return kernel


erf = dispatched("erf")
relu = dispatched("relu")
relu_backward = dispatched("relu_backward")
add_bias = dispatched("add_bias")
sum_rows = dispatched("sum_rows")
masked_softmax = dispatched("masked_softmax")
softmax_backward = dispatched("softmax_backward")
masked_softmax_backward = dispatched("masked_softmax_backward")
log_softmax = dispatched("log_softmax")
log_softmax_backward = dispatched("log_softmax_backward")
cross_entropy = dispatched("cross_entropy")
cross_entropy_backward = dispatched("cross_entropy_backward")
layer_norm = dispatched("layer_norm")
layer_norm_backward = dispatched("layer_norm_backward")
dropout = dispatched("dropout")
scatter_rows = dispatched("scatter_rows")
weighted_sum = dispatched("weighted_sum")
attention = dispatched("attention")
attention_backward = dispatched("attention_backward")
self_attention = dispatched("self_attention")
self_attention_backward = dispatched("self_attention_backward")


def adam(parameters: Sequence[Any], *arguments: Any) -> None:
    """`adam` of the reference, compiled where it can be: for lists of arrays, of one device."""
    module = jitted() if type(parameters[0]) is ndarray else None
    (module or reference).adam(parameters, *arguments)
