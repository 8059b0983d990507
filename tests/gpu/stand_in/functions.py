"""The stand-in's module of functions: a list of what CuPy has, and nothing else."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from . import arithmetic
from .arrays import device, host, ndarray, poison, quiet, synchronisations
from .tasks import task

# Elementwise functions; in CuPy they take these keywords.
UFUNCS = (
    "add", "multiply", "divide", "exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "sign",
    "maximum", "minimum", "isnan", "isfinite", "log1p", "expm1", "remainder", "floor_divide",
    "ceil", "floor", "trunc", "isinf", "log2", "log10",
)  # fmt: skip
UFUNC_KEYWORDS = ("out", "dtype")
# Other functions and their parameters, in CuPy's order.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "where": ("condition", "x", "y"),
    "clip": ("a", "a_min", "a_max", "out"),
    "zeros": ("shape", "dtype", "order"),
    "empty": ("shape", "dtype", "order"),
    "full": ("shape", "fill_value", "dtype", "order"),
    "zeros_like": ("a", "dtype", "order"),
    "ones_like": ("a", "dtype", "order"),
    "empty_like": ("prototype", "dtype", "order"),
    "arange": ("start", "stop", "step", "dtype"),
    "argwhere": ("a",),
    "round": ("a", "decimals", "out"),
    "argsort": ("a", "axis", "kind"),
    "cumsum": ("a", "axis", "dtype", "out"),
    "roll": ("a", "shift", "axis"),
    "allclose": ("a", "b", "rtol", "atol", "equal_nan"),
    "broadcast_to": ("array", "shape"),
    "concatenate": ("tup", "axis", "out"),
    "stack": ("tup", "axis", "out"),
    "matmul": ("x1", "x2", "out"),
    "moveaxis": ("a", "source", "destination"),
    "tril": ("m", "k"),
    "triu": ("m", "k"),
}
TYPES = (
    "bool_", "uint8", "uint32", "uint64", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip


class UFunc:
    """An elementwise function; `add.at` adds once for every index, like NumPy's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.function = quiet(getattr(arithmetic, name, getattr(np, name)))

    @task
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if unknown := set(kwargs) - set(UFUNC_KEYWORDS):
            raise TypeError(f"{self.name}() got an unexpected keyword argument {unknown.pop()!r}")
        for arg in args:
            if not isinstance(arg, (ndarray, int, float, np.generic)):
                raise TypeError(f"Unsupported type {type(arg)}")
        if not any(isinstance(arg, ndarray) for arg in args):
            raise TypeError(f"{self.name}() of the device got no array of the device")
        out = kwargs.pop("out", None)
        result = self.function(*map(host, args), **kwargs)
        if out is None:
            return device(result)
        out.array[...] = result
        return out

    @task
    def at(self, a: ndarray, indices: Any, b: Any) -> None:
        if self.name != "add" or a.dtype.kind != "f":
            raise TypeError("scatter_add supports only some dtypes, all floats among them")
        from .arrays import wrapped

        np.add.at(a.array, wrapped(host(indices), a.shape), host(b))


def function(name: str, parameters: tuple[str, ...]) -> Callable[..., Any]:
    original = quiet(getattr(np, name))

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(parameters) or set(kwargs) - set(parameters):
            raise TypeError(f"{name}() takes {parameters}, got {len(args)} and {list(kwargs)}")
        if parameters[0] in ("a", "array", "prototype") and type(args[0]) is not ndarray:
            raise TypeError(f"{name}() takes an array of the device, got {type(args[0])}")
        given = [host(arg) for arg in args]
        result = original(*given, **{key: host(value) for key, value in kwargs.items()})
        if name in ("empty", "empty_like"):
            poison(result)
        base = args[0] if name in ("broadcast_to", "moveaxis") else None
        return device(result, base)

    call.__name__ = name
    return task(call)


def asarray(a: Any, dtype: Any = None) -> ndarray:
    """From the host or the device; a copy only where one is needed, as in CuPy."""
    if isinstance(a, ndarray):
        return a if dtype is None or a.dtype == dtype else a.astype(dtype)
    a = np.asarray(a)
    return ndarray(np.array(a, dtype, order="F" if a.flags.fnc else "C"))


@task
def ascontiguousarray(a: ndarray, dtype: Any = None) -> ndarray:
    return a if a.flags.c_contiguous and dtype is None else ndarray(np.array(host(a), dtype))


def may_share_memory(a: ndarray, b: ndarray) -> bool:
    return np.may_share_memory(a.array, b.array)


def asnumpy(a: Any) -> np.ndarray:
    synchronisations.add("asnumpy")
    return np.array(host(a))


def from_dlpack(array: Any, *, device: Any = None, copy: bool | None = None) -> ndarray:
    """Of an array of the device, as CuPy's `__dlpack__` gives it."""
    return array.copy() if copy else array.view_of(array.array[...])


class Device:
    """One of several devices; the kernels and arrays of all of them are on the host."""

    count, current = 1, 0
    shared_memory = 227 * 1024  # for which a block may ask: that of compute capability 9.0

    def __init__(self, device: int | None = None) -> None:
        self.id = Device.current if device is None else device

    def use(self) -> None:
        Device.current = self.id

    @property
    def attributes(self) -> dict[str, int]:
        return {"MaxSharedMemoryPerBlockOptin": self.shared_memory}


class Grid:
    def __getitem__(self, key: Any) -> list[ndarray]:
        found = np.ogrid[key]
        return [ndarray(part) for part in (found if isinstance(key, tuple) else [found])]


def cupy() -> types.ModuleType:
    """A module to hand to `tinyattn.base.backend.register_cuda`."""
    from .launch import RawModule

    module = types.ModuleType("stand_in")
    contents: dict[str, Any] = {name: UFunc(name) for name in UFUNCS}
    contents |= {name: function(name, names) for name, names in FUNCTIONS.items()}
    contents |= {name: getattr(np, name) for name in TYPES}
    contents |= {
        "ndarray": ndarray,
        "asarray": asarray,
        "ascontiguousarray": ascontiguousarray,
        "asnumpy": asnumpy,
        "may_share_memory": may_share_memory,
        "from_dlpack": from_dlpack,
        "ogrid": Grid(),
        "RawModule": RawModule,
        "cuda": types.SimpleNamespace(
            Device=Device,
            runtime=types.SimpleNamespace(
                getDevice=lambda: Device.current, getDeviceCount=lambda: Device.count
            ),
            get_current_stream=lambda: types.SimpleNamespace(synchronize=lambda: None),
        ),
    }
    vars(module).update(contents)
    return module
