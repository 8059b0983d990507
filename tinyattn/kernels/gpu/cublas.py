"""Matrix products by cuBLAS on a handle of our own.

CuPy refuses its own cuBLAS calls while a stream is being captured into a CUDA graph, though cuBLAS
itself can be captured once its workspace is a fixed buffer. So a captured step multiplies here.

cuBLAS counts in columns: memory that holds a matrix row by row is, to it, the transpose. Since
C = A B means C^T = B^T A^T, it is asked for B^T A^T, and what it leaves, read row by row, is C.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import byref, c_double, c_float, c_int, c_longlong, c_size_t, c_void_p
from typing import Any

import numpy as np

from ...backend import Array, namespace
from ...errors import DeviceError
from .launch import in_c_order

PLAIN, TRANSPOSED = 0, 1  # cublasOperation_t
HALF, COMPUTE_32F, DEFAULT_ALGORITHM = 2, 68, -1  # cudaDataType_t, cublasComputeType_t, ...Algo_t
WORKSPACE = 32 * 1024 * 1024  # what NVIDIA recommends for Hopper; 4 MiB for older devices
# handle, two operations, m, n, k, alpha, A and B with leading dimension and stride, beta, C, batch.
MATRIX = (c_void_p, c_int, c_longlong)
PRODUCT = (c_void_p, c_int, c_int, c_int, c_int, c_int,
           c_void_p, *MATRIX, *MATRIX, c_void_p, *MATRIX, c_int)  # fmt: skip
TYPED = (c_void_p, c_int, c_int, c_longlong)  # with its type, for cublasGemmStridedBatchedEx
ANY_TYPE = (c_void_p, c_int, c_int, c_int, c_int, c_int,
            c_void_p, *TYPED, *TYPED, c_void_p, *TYPED, c_int, c_int, c_int)  # fmt: skip
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (c_void_p,),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasSgemmStridedBatched": PRODUCT,
    "cublasDgemmStridedBatched": PRODUCT,
    "cublasGemmStridedBatchedEx": ANY_TYPE,
}


def load() -> Any:
    """The cuBLAS that CuPy uses."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)


class Handle:
    """A cuBLAS handle bound to one stream, with a workspace of its own.

    It is never destroyed: that would wait for the device, whenever the garbage collector comes by.
    """

    def __init__(self, xp: Any, stream: int, library: Any = None) -> None:
        self.xp = xp
        self.library = load() if library is None else library
        for name, arguments in SIGNATURES.items():
            getattr(self.library, name).argtypes = arguments
        self.handle = c_void_p()
        self.call("cublasCreate_v2", byref(self.handle))
        # In this order: setting the stream gives back the default workspace.
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
        (x, *a), (y, *b) = operand(x, batch), operand(y, batch)
        self.product(x, a, y, b, out, (m, n, k), math.prod(batch))
        return out

    def product(
        self, x: Array, a: list[int], y: Array, b: list[int], out: Array,
        sizes: tuple[int, int, int], count: int,
    ) -> None:  # fmt: skip
        """Ask for out^T = y^T x^T; a and b are (operation, leading dimension, stride)."""
        m, n, k = sizes
        number = c_double if x.dtype == np.float64 else c_float
        one, zero = number(1), number(0)
        head = (self.handle, b[0], a[0], n, m, k, byref(one))
        left, right = (y.data.ptr, *b[1:]), (x.data.ptr, *a[1:])
        result = (out.data.ptr, n, m * n)
        if x.dtype != np.float16:
            kind = "D" if x.dtype == np.float64 else "S"
            self.call(f"cublas{kind}gemmStridedBatched",
                      *head, *left, *right, byref(zero), *result, count)  # fmt: skip
            return
        typed = [(pointer, HALF, lead, stride) for pointer, lead, stride in (left, right, result)]
        self.call("cublasGemmStridedBatchedEx", *head, *typed[0], *typed[1], byref(zero), *typed[2],
                  count, COMPUTE_32F, DEFAULT_ALGORITHM)  # fmt: skip


def operand(array: Array, batch: tuple[int, ...]) -> tuple[Array, int, int, int]:
    """The array, copied if cuBLAS could not read it as it lies, and how it is to be read: the
    operation, the leading dimension, the stride from one matrix of the batch to the next."""
    found = layout(array, batch)
    if found is None:
        array = in_c_order(namespace(array).broadcast_to(array, (*batch, *array.shape[-2:])))
        found = layout(array, batch)
        assert found is not None
    return (array, *found)


def layout(array: Array, batch: tuple[int, ...]) -> tuple[int, int, int] | None:
    rows, columns = array.shape[-2:]
    down, along = (stride // array.itemsize for stride in array.strides[-2:])
    # A dimension of one element is never stepped through, whatever its stride says.
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        operation, leading = PLAIN, max(down if rows > 1 else columns, columns)
    elif (down == 1 or rows == 1) and (along >= rows or columns == 1):
        operation, leading = TRANSPOSED, max(along if columns > 1 else rows, rows)
    else:
        return None
    stride = batch_stride(array, batch)
    return None if stride is None else (operation, leading, stride)


def batch_stride(array: Array, batch: tuple[int, ...]) -> int | None:
    """The one stride with which all matrices of the batch follow each other, or None."""
    dims = array.shape[:-2]
    if math.prod(dims) == 1:
        return 0  # one matrix for the whole batch
    if dims != batch:
        return None
    found, step = None, 0
    for size, stride in zip(reversed(dims), reversed(array.strides[:-2]), strict=True):
        if size == 1:
            continue
        if found is None:
            found = stride
        elif stride != step:
            return None
        step = stride * size
    return None if found is not None and found < 0 else (found or 0) // array.itemsize
