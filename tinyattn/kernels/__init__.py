"""Kernels: faster twins of formulas, compiled for the CPU by Numba and for a GPU by CUDA.

A formula stands in its op, in `tinyattn/ops`, as plain array code. One line above it names its
kernels, for NumPy's arrays of float32 and float64, and for CuPy's arrays:

    @with_kernels(cpu="softmax.softmax_backward", cuda="softmax.softmax_backward")

A kernel takes the arguments of its formula, and first the formula itself if it `takes_formula`. It
returns NotImplemented for what it does not take, and the formula computes that. Without Numba
or SciPy the formula computes everything on the CPU, with TINYATTN_JIT=0 in the environment
everywhere.

    cpu/, gpu/       the kernels
    compiled.py      the import of cpu/, when it is asked for
    matmul.py        matrix products, the large ones on several threads
    sums.py          sums that lose no digits, and float16 as float32
    visibility.py    which keys each query sees, as arrays
    packing.py       rows of padded and of packed samples
    range_checks.py  integers that must lie in a range
    threads.py       a pool of threads
    blas.py          the number of threads of BLAS
    malloc.py        freed memory stays in the process
"""

from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any, TypeVar

import numpy as np

from ..base.backend import device_of
from .compiled import FORMULAS_ONLY, function_of
from .compiled import cpu_kernel as cpu_kernel

ndarray = np.ndarray
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
Formula = TypeVar("Formula", bound=Callable[..., Any])
formulas: dict[str, Any] = {}  # every function that has kernels, by the name of the first one


@cache
def gpu_kernel(name: str) -> Callable[..., Any]:
    """The kernel "file.function" of kernels/gpu, which is compiled when first launched."""
    return function_of(f"{__name__}.gpu", name)


def with_kernels(
    *, cpu: str | None = None, cuda: str | None = None
) -> Callable[[Formula], Formula]:
    """Decorate a formula of arrays that has kernels.

    cpu: "file.function" in kernels/cpu. cuda: "file.function" in kernels/gpu.
    The type and the dtype of the first array choose.
    """

    def decorate(formula: Formula) -> Formula:
        @cache
        def on_cpu() -> Any:
            kernel = None if cpu is None else cpu_kernel(cpu)
            takes_formula = getattr(kernel, "takes_formula", False)
            return partial(kernel, formula) if kernel and takes_formula else kernel

        @wraps(formula)
        def function(array: Any, *arguments: Any, **options: Any) -> Any:
            kernel = None
            if type(array) is ndarray:
                if array.dtype is FLOAT32 or array.dtype is FLOAT64:
                    kernel = on_cpu()
            elif cuda and device_of(array) == "cuda" and array.dtype.kind == "f":
                kernel = gpu_kernel(cuda)
            if kernel is not None:
                out = kernel(array, *arguments, **options)
                if out is not NotImplemented:
                    return out
            return formula(array, *arguments, **options)

        chosen: Any = formula if FORMULAS_ONLY else function
        chosen.formula, chosen.kernels = formula, {"cpu": cpu, "cuda": cuda}
        formulas[str(cpu or cuda)] = chosen
        return chosen

    return decorate
