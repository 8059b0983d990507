"""The stand-in's array: a NumPy array that cannot be taken for one."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import memset
from typing import Any

import numpy as np

from . import arithmetic
from .tasks import task


class Synchronisations:
    """How often the host waited for a result of the device, and for what."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def add(self, reason: str) -> None:
        self.reasons.append(reason)

    def __len__(self) -> int:
        return len(self.reasons)


synchronisations = Synchronisations()


class Flags:
    """CuPy's flags know nothing of alignment or write protection."""

    def __init__(self, array: np.ndarray) -> None:
        self.c_contiguous = array.flags.c_contiguous
        self.f_contiguous = array.flags.f_contiguous
        self.owndata = array.flags.owndata


class Pointer:
    """`ndarray.data`: where the elements lie."""

    def __init__(self, array: np.ndarray) -> None:
        self.ptr = array.ctypes.data


def poison(array: np.ndarray) -> None:
    """NaN, or -1: what memory has before it is written to, and after it was freed."""
    memset(array.__array_interface__["data"][0], 0xFF, array.nbytes)


def host(value: Any) -> Any:
    """The NumPy array within, or the value itself if CuPy takes such values."""
    if type(value) is ndarray:
        return value.array
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        return type(value)(host(part) for part in value)
    if isinstance(value, slice):
        return slice(host(value.start), host(value.stop), host(value.step))
    return value


def device(value: Any, base: Any = None) -> Any:
    """Results as CuPy gives them: 0-d arrays where NumPy gives scalars."""
    if isinstance(value, (list, tuple)):
        return type(value)(device(part, base) for part in value)
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(np.asarray(value), base)
    return value


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's warnings about NaN and inf have no counterpart on the device."""

    def silent(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return silent


def wrapped(index: Any, shape: tuple[int, ...]) -> Any:
    """Integer arrays as CuPy reads them: past the end they begin anew, without an error."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(
        part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1
        for part in parts
        if part is not None and part is not Ellipsis
    )
    dim, out = 0, []
    for part in parts:
        if part is Ellipsis:
            dim += len(shape) - used
        elif isinstance(part, list):
            raise IndexError("Unsupported type <class 'list'>")
        elif isinstance(part, np.ndarray) and part.dtype == bool:
            dim += part.ndim
        elif isinstance(part, np.ndarray):
            part = part % shape[dim] if shape[dim] else part
            dim += 1
        elif part is not None:
            dim += 1
        out.append(part)
    return tuple(out) if isinstance(index, tuple) else out[0]


def has_boolean(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, np.ndarray) and part.dtype == bool for part in parts)


def function_of(name: str) -> Callable[..., Any]:
    """What CuPy computes for an operator."""
    own = {"mod": arithmetic.remainder, "pow": arithmetic.power}
    for short, function in own.items():
        if name == f"__{short}__":
            return function
        if name == f"__r{short}__":
            return lambda x, y: function(y, x)
        if name == f"__i{short}__":
            return lambda x, y: np.copyto(x, function(x, y), casting="same_kind")
    return getattr(np.ndarray, name)


def operator(name: str) -> Any:
    function = quiet(function_of(name))

    def method(self: ndarray, *others: Any) -> Any:
        for other in others:
            if type(other) is np.ndarray:
                raise TypeError(f"Unsupported type {type(other)}")
            if not isinstance(other, (ndarray, int, float, bool, np.generic)):
                return NotImplemented
        result = function(self.array, *(host(other) for other in others))
        return result if result is NotImplemented else device(result)

    method.__name__ = name
    return task(method)


def in_place(name: str) -> Any:
    function = quiet(function_of(name))

    def in_place_method(self: ndarray, other: Any) -> Any:
        function(self.array, host(other))
        return self

    in_place_method.__name__ = f"in_place{name}"
    return task(in_place_method)


def reduction(name: str, *keywords: str) -> Any:
    function = quiet(getattr(np.ndarray, name))

    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        if unknown := set(kwargs) - set(keywords):
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown.pop()!r}")
        return device(function(self.array, *args, **{k: host(v) for k, v in kwargs.items()}))

    method.__name__ = name
    return task(method)


def synchronising(name: str, convert: Callable[[np.ndarray], Any]) -> Any:
    def method(self: ndarray) -> Any:
        synchronisations.add(name)
        return convert(self.array)

    return method


class ndarray:
    """cupy.ndarray, as far as tinyattn may use it."""

    __array_ufunc__ = None  # NumPy's functions fail, because CuPy would take them over unseen
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: np.ndarray, base: Any = None) -> None:
        assert type(array) is np.ndarray
        self.array = array
        self.base = base

    def __del__(self, poison: Any = poison) -> None:
        """CuPy's pool gives freed memory to the next array."""
        if self.base is None and self.array.flags.owndata and self.array.flags.writeable:
            poison(self.array)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError("the stand-in's arrays are read by its own from_dlpack only")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0  # kDLCUDA, and the number of the device

    def __array_function__(self, function: Any, *args: Any) -> Any:
        raise TypeError(f"numpy.{function.__name__} on an array of the device")

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    ndim = property(lambda self: self.array.ndim)
    size = property(lambda self: self.array.size)
    itemsize = property(lambda self: self.array.itemsize)
    nbytes = property(lambda self: self.array.nbytes)
    strides = property(lambda self: self.array.strides)
    flags = property(lambda self: Flags(self.array))
    data = property(lambda self: Pointer(self.array))
    T = property(lambda self: self.view_of(self.array.T))

    def view_of(self, array: np.ndarray) -> ndarray:
        return ndarray(array, self if self.base is None else self.base)

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        synchronisations.add("repr")
        return repr(self.array)

    @task
    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> ndarray:
        if not copy and self.array.dtype == dtype:
            return self
        with np.errstate(all="ignore"):
            return ndarray(np.array(arithmetic.cast(self.array, dtype, order)))

    @task
    def copy(self, order: str = "C") -> ndarray:
        return ndarray(self.array.copy(order=order))  # type: ignore[arg-type]

    @task
    def reshape(self, *shape: Any) -> ndarray:
        out = self.array.reshape(*shape)
        return self.view_of(out) if np.shares_memory(out, self.array) else ndarray(out)

    @task
    def conj(self) -> ndarray:
        return ndarray(self.array.conj())

    def ravel(self) -> ndarray:
        return self.reshape(-1)

    def transpose(self, *axes: Any) -> ndarray:
        return self.view_of(self.array.transpose(*axes))

    def swapaxes(self, axis1: int, axis2: int) -> ndarray:
        return self.view_of(self.array.swapaxes(axis1, axis2))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
        shown = self.array.diagonal(offset, axis1, axis2)
        shown.flags.writeable = True  # as CuPy's is
        return self.view_of(shown)

    def squeeze(self, axis: Any = None) -> ndarray:
        return self.view_of(self.array.squeeze(axis))

    def view(self, dtype: Any) -> ndarray:
        return self.view_of(self.array.view(dtype))

    @task
    def fill(self, value: Any) -> None:
        self.array.fill(host(value))

    @task
    def round(self, decimals: int = 0) -> ndarray:
        return device(self.array.round(decimals))

    def nonzero(self) -> Any:
        synchronisations.add("nonzero")
        return device(self.array.nonzero())

    def get(self) -> np.ndarray:
        synchronisations.add("get")
        return self.array.copy()

    @task
    def __getitem__(self, index: Any) -> ndarray:
        index = wrapped(host(index), self.shape)
        if has_boolean(index):
            synchronisations.add("boolean index")
        out = np.asarray(self.array[index])
        view = out.size and np.shares_memory(out, self.array)
        return self.view_of(out) if view else ndarray(out)

    @task
    def take(self, indices: Any, axis: int | None = None) -> ndarray:
        # CuPy reads on at the other end where an index is out of range.
        return ndarray(self.array.take(host(indices), axis=axis, mode="wrap"))

    @task
    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        index, value = wrapped(host(index), self.shape), np.asarray(host(value))
        rows = isinstance(index, np.ndarray) and index.dtype.kind in "iu"
        if rows and value.ndim == self.ndim and value.shape[:1] == index.shape:
            index, value = index[::-1], value[::-1]  # CuPy leaves open which value stays
        with np.errstate(all="ignore"):
            self.array[index] = value

    item = synchronising("item", lambda array: array.item())
    tolist = synchronising("tolist", lambda array: array.tolist())
    __float__ = synchronising("float", float)
    __int__ = synchronising("int", int)
    __bool__ = synchronising("bool", bool)

    sum = reduction("sum", "axis", "dtype", "out", "keepdims")
    mean = reduction("mean", "axis", "dtype", "out", "keepdims")
    max = reduction("max", "axis", "out", "keepdims")
    min = reduction("min", "axis", "out", "keepdims")
    any = reduction("any", "axis", "out", "keepdims")
    all = reduction("all", "axis", "out", "keepdims")
    argmax = reduction("argmax", "axis", "out", "keepdims")
    argmin = reduction("argmin", "axis", "out", "keepdims")


for name in ("add", "sub", "mul", "truediv", "pow", "matmul", "and", "or", "xor", "mod",
             "lshift", "rshift"):  # fmt: skip
    setattr(ndarray, f"__{name}__", operator(f"__{name}__"))
    setattr(ndarray, f"__r{name}__", operator(f"__r{name}__"))
    if name != "matmul":
        setattr(ndarray, f"__i{name}__", in_place(f"__i{name}__"))
for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"):
    setattr(ndarray, f"__{name}__", operator(f"__{name}__"))
