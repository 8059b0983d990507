"""The few functions of cuBLAS that tinyattn calls, on the memory of the host.

They read matrices the way cuBLAS does: column by column, with a leading dimension, a stride between
the matrices of a batch, and perhaps transposed.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

INVALID_VALUE = 7
# The types of A, B and C and the type to compute in, as cuBLAS numbers them: those that it allows.
TYPES = {
    (2, 2, 2, 68): (np.float16, ctypes.c_float),
    (0, 0, 0, 68): (np.float32, ctypes.c_float),
    (1, 1, 1, 70): (np.float64, ctypes.c_double),
}


def matrix(pointer: int, rows: int, columns: int, leading: int, dtype: Any) -> np.ndarray:
    """(rows, columns) at an address, column by column; a view that can be written to."""
    size = (leading * (columns - 1) + rows) * np.dtype(dtype).itemsize
    memory = (ctypes.c_char * size).from_address(pointer)
    step = np.dtype(dtype).itemsize
    return np.ndarray((rows, columns), dtype, memory, strides=(step, step * leading))


def multiply(dtype: Any, transa: int, transb: int, m: int, n: int, k: int, alpha: float,
             a: tuple, b: tuple, beta: float, c: tuple, batch: int) -> int:  # fmt: skip
    """C = alpha op(A) op(B) + beta C for each matrix of the batch; refuses what cuBLAS refuses."""
    shapes = [((k, m) if transa else (m, k)), ((n, k) if transb else (k, n)), (m, n)]
    if min(m, n, k, batch) < 0 or any(
        lead < max(1, rows) for (rows, _), (_, lead, _) in zip(shapes, (a, b, c), strict=True)
    ):
        return INVALID_VALUE
    step = np.dtype(dtype).itemsize
    for i in range(batch):
        left, right, out = (
            matrix(pointer + i * stride * step, *shape, lead, dtype)
            for shape, (pointer, lead, stride) in zip(shapes, (a, b, c), strict=True)
        )
        wide = np.float64 if dtype == np.float64 else np.float32
        product = (left.T if transa else left).astype(wide) @ (right.T if transb else right).astype(
            wide
        )
        out[...] = alpha * product + (beta * out if beta else 0)
    return 0


def value(reference: Any, kind: Any) -> float:
    return ctypes.cast(reference, ctypes.POINTER(kind)).contents.value


class Function:
    """A function with `argtypes`, as ctypes has them, that converts what it is given by them."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.argtypes: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> int:
        assert len(arguments) == len(self.argtypes), "the number of arguments"
        for kind, argument in zip(self.argtypes, arguments, strict=True):
            kind.from_param(argument)  # raises for a float where an integer should be
        return self.function(*arguments)


class Library:
    """What ctypes.CDLL(libcublas) would be. `calls` has the names of the functions called."""

    def __init__(self, tape: Any = None) -> None:
        self.calls: list[str] = []
        self.tape = tape  # called with every product, for a graph that is being captured
        for name, function in {
            "cublasCreate_v2": lambda handle: self.note("create"),
            "cublasSetMathMode": lambda handle, mode: self.note(f"math {mode}"),
            "cublasSetStream_v2": lambda handle, stream: self.note("stream"),
            "cublasSetWorkspace_v2": lambda handle, memory, size: self.note("workspace"),
            "cublasGemmStridedBatchedEx": self.gemm_ex,
        }.items():
            setattr(self, name, Function(function))

    def note(self, name: str) -> int:
        self.calls.append(name)
        return 0

    def run(self, *arguments: Any) -> int:
        status = multiply(*arguments)
        if self.tape is not None:
            self.tape(lambda: multiply(*arguments))
        return status

    def gemm_ex(self, handle, ta, tb, m, n, k, alpha, a, ka, lda, sa, b, kb, ldb, sb, beta,
                c, kc, ldc, sc, batch, compute, algorithm):  # fmt: skip
        assert algorithm == -1
        dtype, kind = TYPES[ka, kb, kc, compute]
        self.note(f"gemm {np.dtype(dtype).name}")
        scalars = value(alpha, kind), value(beta, kind)
        return self.run(dtype, ta, tb, m, n, k, scalars[0], (a, lda, sa), (b, ldb, sb),
                        scalars[1], (c, ldc, sc), batch)  # fmt: skip
