"""The libraries behind arrays: NumPy on "cpu", CuPy on "cuda".

All other files take an array's functions from `namespace(array)`, so the same source runs on both
devices. Only this file imports CuPy, and only when "cuda" is used.
"""

import functools
from collections.abc import Callable
from contextvars import copy_context
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from ..errors import DeviceError

Array = Any  # numpy.ndarray or cupy.ndarray; no common static type exists

# From the class of an array to the module with its functions; `register_cuda` adds CuPy's.
array_types: dict[type, ModuleType] = {np.ndarray: np}
_cuda_module: Any = None  # a ModuleType, once CuPy has been imported
_tensor_kind: type | None = None
# Called when a value of the device is about to be read; see kernels/range_checks.py.
when_waiting: Callable[[], None] | None = None
FLOAT16 = np.dtype(np.float16)
Function = TypeVar("Function", bound=Callable[..., Any])


def register_cuda(module: ModuleType) -> None:
    """Make `module` (CuPy, or one that behaves like it) the library behind "cuda"."""
    global _cuda_module
    _cuda_module = module
    array_types[module.ndarray] = module


def register_tensor(kind: type) -> None:
    """Say what a Tensor is, so that `is_tensor` knows it."""
    global _tensor_kind
    _tensor_kind = kind


def is_tensor(x: Any) -> bool:
    """True for a Tensor, on which a formula is recorded; False for an array or a number."""
    return _tensor_kind is not None and isinstance(x, _tensor_kind)


def cuda_is_available() -> bool:
    """True if CuPy is installed and finds a driver and a device."""
    try:
        return _load_cuda() is not None
    except DeviceError:
        return False


def _load_cuda() -> ModuleType:
    if _cuda_module is None:
        try:
            import cupy
        except ImportError:
            raise DeviceError(
                'device "cuda" needs CuPy, which is not installed: in a clone of tinyattn, '
                'pip install -e ".[cuda13]" (or ".[cuda12]" for CUDA 12 drivers)'
            ) from None
        # CuPy imports without a driver; only this call tells whether arrays can be made.
        if not cupy.cuda.is_available():
            raise DeviceError('device "cuda": CuPy is installed but finds no usable NVIDIA GPU')
        register_cuda(cupy)
    return _cuda_module


def namespace(array: Array) -> ModuleType:
    """The module whose functions take `array`: NumPy (numbers too) or CuPy."""
    return array_types.get(type(array), np)


def device_of(array: Array) -> str:
    """ "cpu" or "cuda"."""
    return "cuda" if _cuda_module is not None and type(array) is _cuda_module.ndarray else "cpu"


def is_array(value: Any) -> bool:
    """True for an array of NumPy or CuPy."""
    if type(value) not in array_types and type(value).__module__.partition(".")[0] == "cupy":
        _load_cuda()
    return type(value) in array_types


def module_of(device: str | None) -> ModuleType:
    """The array module behind a device name; None means "cpu"."""
    if device is None or device in ("cpu", "cpu:0"):
        return np
    if device in ("cuda", "cuda:0"):
        return _load_cuda()
    hint = "; CUDA_VISIBLE_DEVICES chooses among GPUs" if str(device).startswith("cuda:") else ""
    raise DeviceError(f'device must be "cpu" or "cuda", got {device!r}{hint}')


def to_device(array: Array, device: str) -> Array:
    """`array` on `device`; no copy if it is there already."""
    target = module_of(device)
    source = namespace(array)
    if source is target:
        return array
    if target is np:
        if when_waiting is not None:
            when_waiting()
        return source.asnumpy(array)
    return target.asarray(array)


def on_device_of(array: np.ndarray, x: Any) -> Array:
    """`array` on the device of `x`, an array or a Tensor."""
    return to_device(array, device_of(getattr(x, "_data", x)))


def scatter_add(target: Array, index: Any, values: Array) -> None:
    """target[index] += values, in place; an index that occurs twice adds twice."""
    namespace(target).add.at(target, index, values)


def in_c_order(x: Any) -> Any:
    """An array in C order: kernels need it, and NumPy's other loops differ in the last digit."""
    if type(x) not in array_types:  # a Tensor or a number
        return x
    flags = x.flags
    if flags.c_contiguous and (type(x) is not np.ndarray or flags.aligned):  # CuPy's always is
        return x
    return x.copy(order="C")


def owner_of(array: Array) -> Array:
    return array.base if type(array.base) is type(array) else array


def read_only(array: Array) -> Array:
    """A view that cannot be written to; a CuPy array as it is, because CuPy has no such views."""
    if type(array) is np.ndarray:
        array = array.view()
        array.setflags(write=False)
    return array


def quietly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs) without NumPy's warnings of inf and NaN, which are values.

    NumPy's settings belong to the context (`contextvars`). The function is called in a copy of it,
    which ends with the call. `np.errstate` would set them back, and an interrupt can prevent that.
    """
    return copy_context().run(without_warnings, function, args, kwargs)


def without_warnings(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    np.seterr(all="ignore")
    return function(*args, **kwargs)


def quiet(function: Function) -> Function:
    """A function that is always called by `quietly`."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return copy_context().run(without_warnings, function, args, kwargs)

    return wrapped  # type: ignore[return-value]


@quiet
def converted(array: Array, dtype: np.dtype, order: str = "K") -> Array:
    """A copy in this dtype. A float beyond its range becomes inf, and nobody is warned."""
    return array.astype(dtype, order=order)


@quiet
def is_finite(x: Array) -> bool:
    """True if the sum is finite, because then every element is; no array of booleans is made.

    False also if the sum of finite numbers overflows. Callers must be right then too.
    """
    return bool(np.isfinite(float(x.sum())))
