"""Kernels: the functions of arrays that do the work of the ops.

`reference.py` has each as plain array code. `cpu/` has faster ones of the same names, compiled by
Numba, for NumPy's float32 and float64 arrays (attention and softmax in float64 remain those of the
reference); `gpu/` has CUDA kernels for CuPy's arrays. The type of the first array chooses. `cpu/`
is imported on first use, because importing Numba takes longer than all the rest. Without Numba, or
with TINYATTN_JIT=0 in the environment, the reference runs instead.

    reference.py     each kernel as plain array code
    normalization.py layer normalization, and RMSNorm
    visibility.py    which keys each query sees
    packing.py       rows of padded and of packed samples, and heads that share keys
    matmul.py        matrix products, the large ones on several threads
    sums.py          sums that lose no digits
    float16.py       float16 computed in float32
    range_checks.py  integers that must lie in a range
    compiled.py      the import of cpu/, when it is asked for
    threads.py       a pool of threads
    blas.py          the number of threads of BLAS
    cpu/, gpu/       the compiled kernels
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from ..base.backend import device_of
from . import reference
from .compiled import cpu_kernels as cpu_kernels
from .matmul import matrix_product as matrix_product
from .sums import in_c_order as in_c_order
from .sums import is_large
from .sums import reduce_sum as reduce_sum
from .sums import sum_dtype as sum_dtype
from .sums import sum_to as sum_to
from .sums import wide_mean as wide_mean

ndarray = np.ndarray
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def gpu_kernels() -> ModuleType:
    """The module of CUDA kernels; they are compiled when first launched."""
    from . import gpu

    return gpu


twins: dict[str, Any] = {}  # every function that is decorated by `fast`, by the name of its twins


def fast(name: str) -> Callable[[Kernel], Kernel]:
    """Decorate a formula of arrays that has faster twins of this name in cpu/ or gpu/.

    The type of the first array chooses. A twin returns NotImplemented for what it does not take.
    The formula then computes it, and also what is of another type, such as Tensors.
    """

    def decorate(formula: Kernel) -> Kernel:
        on_cpu: Callable[..., Any] | None = None
        on_cuda: Callable[..., Any] | None = None

        @wraps(formula)
        def function(array: Any, *arguments: Any) -> Any:
            nonlocal on_cpu, on_cuda
            twin = None
            if type(array) is ndarray:
                if array.dtype is FLOAT32 or array.dtype is FLOAT64:
                    if on_cpu is None:
                        module = cpu_kernels()
                        on_cpu = formula if module is None else module.kernel(name, formula)
                    twin = on_cpu
            elif device_of(array) == "cuda" and array.dtype.kind == "f":
                if on_cuda is None:
                    on_cuda = getattr(gpu_kernels(), name, formula)
                twin = on_cuda
            out = NotImplemented if twin is None else twin(array, *arguments)
            return formula(array, *arguments) if out is NotImplemented else out

        twins[name] = function
        return function  # type: ignore[return-value]

    return decorate


def dispatched(function: Kernel) -> Kernel:
    """A function of the reference with its faster twins."""
    return fast(function.__name__)(function)


cumsum = dispatched(reference.cumsum)
multiply_rows = dispatched(reference.multiply_rows)
sum_squares = dispatched(reference.sum_squares)
scaled_distances = dispatched(reference.scaled_distances)
gather = dispatched(reference.gather)
scatter_along = dispatched(reference.scatter_along)
add_bias = dispatched(reference.add_bias)
sum_rows = dispatched(reference.sum_rows)
int8_product = dispatched(reference.int8_product)
softmax = dispatched(reference.softmax)
softmax_backward = dispatched(reference.softmax_backward)
masked_softmax = dispatched(reference.masked_softmax)
masked_softmax_backward = dispatched(reference.masked_softmax_backward)
log_softmax = dispatched(reference.log_softmax)
log_softmax_backward = dispatched(reference.log_softmax_backward)
cross_entropy = dispatched(reference.cross_entropy)
cross_entropy_backward = dispatched(reference.cross_entropy_backward)
layer_norm = dispatched(reference.layer_norm)
layer_norm_backward = dispatched(reference.layer_norm_backward)
rms_norm = dispatched(reference.rms_norm)
rms_norm_backward = dispatched(reference.rms_norm_backward)
dropout = dispatched(reference.dropout)
scatter_rows = dispatched(reference.scatter_rows)
weighted_sum = dispatched(reference.weighted_sum)
attention = dispatched(reference.attention)
attention_backward = dispatched(reference.attention_backward)


def where(condition: Any, x: Any, y: Any) -> Any:
    """`reference.where`, or a faster one for many numbers."""
    module = cpu_kernels() if is_large(condition) else None
    return (module or reference).where(condition, x, y)


def adam(parameters: Sequence[Any], *arguments: Any) -> None:
    """`reference.adam`, or a faster one: for lists of arrays on one device."""
    if type(parameters[0]) is ndarray:
        (cpu_kernels() or reference).adam(parameters, *arguments)
    else:
        gpu_kernels().optimizer.adam(parameters, *arguments)
