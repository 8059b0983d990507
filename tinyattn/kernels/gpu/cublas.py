"""Matrix products by cuBLAS, called directly: only a captured step needs this file.

CuPy refuses its own cuBLAS calls while a stream is captured into a CUDA graph. But cuBLAS itself
can be captured, as long as its workspace is a fixed buffer.

cuBLAS reads matrices column by column, so a matrix that lies row by row is its transpose there. It
is asked for C^T = B^T A^T, because that result, read row by row again, is C = A B.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import threading
from ctypes import byref, c_double, c_float, c_int, c_longlong, c_size_t, c_void_p
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...base.backend import Array, namespace
from ...errors import DeviceError
from ..sums import in_c_order

PLAIN, TRANSPOSED = 0, 1  # cublasOperation_t
DEFAULT_MATH, TF32_MATH = 0, 3  # cublasMath_t
# For each dtype: cudaDataType_t, cublasComputeType_t, and the type of alpha and beta.
TYPES = {
    np.dtype(np.float16): (2, 68, c_float),
    np.dtype(np.float32): (0, 68, c_float),
    np.dtype(np.float64): (1, 70, c_double),
}
DEFAULT_ALGORITHM = -1  # cublasGemmAlgo_t
WORKSPACE = 32 * 1024 * 1024  # NVIDIA recommends this for Hopper, and 4 MiB for older devices
MATRIX = (c_void_p, c_int, c_int, c_longlong)  # pointer, type, leading dimension, stride
# Handle, two operations, sizes m, n and k, alpha, A, B, beta, C, the number of products, the type
# to compute in, and the algorithm.
PRODUCT = (c_void_p, *(c_int,) * 5, c_void_p, *MATRIX, *MATRIX, c_void_p, *MATRIX, *(c_int,) * 3)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (c_void_p,),
    "cublasSetMathMode": (c_void_p, c_int),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasGemmStridedBatchedEx": PRODUCT,
}


@functools.cache
def load() -> Any:
    """The cuBLAS that CuPy uses."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)


# The handles by thread, library and device. They are never destroyed, because that would wait for
# the device at any moment the garbage collector chooses. So the steps of a thread share one.
handles: dict[tuple[int, Any, int], c_void_p] = {}


class Handle:
    """The handle of this thread, bound to one stream, with a workspace for the products there.

    Float32 is computed as by CuPy: in TF32 if the environment has CUPY_TF32=1.
    """

    def __init__(self, xp: Any, stream: int, library: Any = None) -> None:
        self.xp = xp
        self.library = load() if library is None else library
        for name, arguments in SIGNATURES.items():
            getattr(self.library, name).argtypes = arguments
        place = threading.get_ident(), self.library, xp.cuda.runtime.getDevice()
        if place not in handles:
            created = c_void_p()
            self.call("cublasCreate_v2", byref(created))
            handles[place] = created
        self.handle = handles[place]
        in_tf32 = os.environ.get("CUPY_TF32", "0") not in ("", "0")
        self.call("cublasSetMathMode", self.handle, TF32_MATH if in_tf32 else DEFAULT_MATH)
        # The workspace comes after the stream, because setting a stream resets the workspace.
        self.call("cublasSetStream_v2", self.handle, stream)
        self.workspace = xp.empty(WORKSPACE, np.uint8)
        self.call("cublasSetWorkspace_v2", self.handle, self.workspace.data.ptr, WORKSPACE)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise DeviceError(f"{name} failed with cublasStatus_t {status}")

    def matmul(self, x: Array, y: Array) -> Array:
        """x @ y for float arrays of at least one dimension, by NumPy's rules."""
        if x.ndim == 1:
            out = self.matmul(x.reshape(1, -1), y)
            return out.reshape(*out.shape[:-2], out.shape[-1]) if y.ndim > 1 else out.reshape(())
        if y.ndim == 1:
            return self.matmul(x, y.reshape(-1, 1)).reshape(x.shape[:-1])
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        m, k, n = x.shape[-2], x.shape[-1], y.shape[-1]
        if not (math.prod(batch) * m * n and k):
            return self.xp.zeros((*batch, m, n), x.dtype)
        out = self.xp.empty((*batch, m, n), x.dtype)
        (x, of_x), (y, of_y) = operand(x, batch), operand(y, batch)
        kind, compute, number = TYPES[x.dtype]
        alpha, beta = byref(number(1)), byref(number(0))
        # out^T = y^T x^T, because cuBLAS reads and writes column by column.
        first = self.handle, of_y.operation, of_x.operation, n, m, k, alpha
        y_matrix = y.data.ptr, kind, of_y.leading, of_y.stride
        x_matrix = x.data.ptr, kind, of_x.leading, of_x.stride
        last = beta, out.data.ptr, kind, n, m * n, math.prod(batch), compute, DEFAULT_ALGORITHM
        self.call("cublasGemmStridedBatchedEx", *first, *y_matrix, *x_matrix, *last)
        return out


class Layout(NamedTuple):
    """How cuBLAS reads the matrices of an array."""

    operation: int
    leading: int  # numbers from one row of a matrix to the next, or from one column
    stride: int  # numbers from one matrix to the next


def operand(array: Array, batch: tuple[int, ...]) -> tuple[Array, Layout]:
    """The array, or a copy if cuBLAS cannot read it as it lies, and its layout."""
    of_array = layout(array, batch)
    if of_array is None:
        array = in_c_order(namespace(array).broadcast_to(array, (*batch, *array.shape[-2:])))
        of_array = layout(array, batch)
        assert of_array is not None
    return array, of_array


def layout(array: Array, batch: tuple[int, ...]) -> Layout | None:
    """None if cuBLAS cannot read the array as it lies."""
    rows, columns = array.shape[-2:]
    down, along = (stride // array.itemsize for stride in array.strides[-2:])
    # The stride of a dimension of one element may be any number, because nobody steps along it.
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        operation, leading = PLAIN, max(down if rows > 1 else columns, columns)
    elif (down == 1 or rows == 1) and (along >= rows or columns == 1):
        operation, leading = TRANSPOSED, max(along if columns > 1 else rows, rows)
    else:
        return None
    stride = batch_stride(array, batch)
    return None if stride is None else Layout(operation, leading, stride)


def batch_stride(array: Array, batch: tuple[int, ...]) -> int | None:
    """The stride from each matrix of the batch to the next, or None if there is no single one."""
    dims = array.shape[:-2]
    if math.prod(dims) == 1:
        return 0  # one matrix for the whole batch
    if dims != batch:
        return None
    steps = [(n, stride) for n, stride in zip(dims, array.strides[:-2], strict=True) if n > 1]
    if any(outer != n * inner for (_, outer), (n, inner) in pairwise(steps)):
        return None
    _, innermost = steps[-1]
    return None if innermost < 0 else innermost // array.itemsize
