"""The import of the compiled kernels, when the first array asks for them."""

import os
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from . import blas, malloc

# With TINYATTN_JIT=0 formulas compute everything, so that a reader meets nothing else.
FORMULAS_ONLY = os.environ.get("TINYATTN_JIT", "1") == "0"


def function_of(package: str, name: str) -> Any:
    """The function "file.function" of a package."""
    file, _, function = name.partition(".")
    return getattr(import_module(f"{package}.{file}"), function)


def cpu_kernel(name: str) -> Callable[..., Any] | None:
    """The kernel "file.function" of kernels/cpu; None without Numba or SciPy."""
    module = cpu_kernels()
    return None if module is None else module.kernel(name)


@cache
def cpu_kernels() -> ModuleType | None:
    """The module of Numba kernels, or None without Numba or SciPy or with TINYATTN_JIT=0."""
    module = None if FORMULAS_ONLY else imported_kernels()
    blas.limit()  # now, because the kernels have imported SciPy, which has a BLAS of its own
    malloc.keep_freed_memory()
    return module


def imported_kernels() -> ModuleType | None:
    try:
        from . import cpu
    except ImportError as error:
        warnings.warn(
            f"tinyattn computes with plain NumPy, which is slower: no Numba or SciPy ({error}). "
            "TINYATTN_JIT=0 asks for this and says nothing",
            RuntimeWarning,
            stacklevel=4,
        )
        return None
    return cpu
