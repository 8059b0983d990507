"""Checks and conversions of arguments."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib import import_module
from operator import index
from traceback import walk_tb
from types import EllipsisType, MethodType, NoneType
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from ..errors import CheckpointError, DeviceError, DtypeError, InPlaceError, ShapeError
from .backend import Array, converted, device_of, is_array, is_tensor, to_device

Dims = int | Sequence[int] | None
DTypeLike: TypeAlias = np.dtype | type | str | None
# Where two types of NumPy are the same numbers: int64 for longlong, float64 for a longdouble of
# eight bytes (Windows, Macs with Apple's processors).
SAME_SIZE = {np.dtype(code).type: np.dtype(np.dtype(code).str[1:]).type for code in "lLqQdg"}

HELD = "tensors hold booleans, integers or floats up to 64 bits"


def checked_dtype(dtype: DTypeLike) -> np.dtype:
    """A dtype that tinyattn computes with: booleans, integers, float16, float32, float64."""
    try:
        checked = np.dtype(dtype)
    except TypeError:
        sizes = "; sizes are given to ta.zeros(2, 3)" if is_integer(dtype) else ""
        raise DtypeError(f'not a dtype: {dtype!r} (devices are "cpu" and "cuda"{sizes})') from None
    if checked.kind not in "biuf" or checked.itemsize > 8:
        raise DtypeError(f"{HELD}, got {checked}")
    # NumPy has one object for each native dtype. Return it, because fast code compares with `is`.
    return np.dtype(SAME_SIZE.get(checked.type, checked.type))


def optional_package(name: str, who: str, extra: str) -> Any:
    """A package that not every installation has. Its ImportError says how to get it."""
    try:
        return import_module(name)
    except ImportError:
        hint = f'in a clone of tinyattn, pip install -e ".[{extra}]"'
        raise ImportError(f"{who}: {hint}") from None


def check_type(expected: str, value: Any, kind: Any, hint: str = "") -> Any:
    """The value; TypeError that says what was expected if it is of another kind.

    For Callable a class is of another kind, because what it makes is no result of a function.
    """
    if not isinstance(value, kind) or (kind is Callable and isinstance(value, type)):
        number = f" {value!r}" if isinstance(value, (int, float)) else ""
        raise TypeError(f"{expected}, got {type_name(value)}{number}{hint}")
    return value


def check_tensor(name: str, value: Any, kind: type) -> Any:
    """The value; TypeError, which says what to write, if it is no Tensor."""
    hint = ": is a return missing?" if value is None else ": wrap it with ta.tensor(...)"
    if holds(value, is_tensor):  # which `ta.tensor` would copy without their graphs
        hint = ": take one of its Tensors, as in out, state = lstm(x), or join them with stack"
    return check_type(f"{name} must be a Tensor", value, kind, "" if callable(value) else hint)


def refuse_tensors(name: str, value: Any) -> None:
    if holds(value, is_tensor):
        raise TypeError(
            f"{name} holds Tensors, which would get no gradient: make each an argument of its own, "
            "take one of them, join them with stack, or pass their numpy()"
        )


def require_float(dtype: np.dtype, what: str) -> None:
    if dtype.kind != "f":
        raise DtypeError(f"{what} needs a floating dtype, got {dtype}: use .to(ta.float32)")


def require_integers(dtype: np.dtype, expected: str) -> None:
    if dtype.kind not in "iu":
        raise DtypeError(f"{expected}, got {dtype}")


def check_one_dtype_and_device(function: str, **arrays: Any) -> None:
    """Raise an error that names two arrays if their dtypes or devices differ. None is left out."""
    (first, x), *others = arrays.items()
    for name, other in others:
        if other is None:
            continue
        if type(other) is not type(x):
            check_one_device(function, first, x, name, other)
        if other.dtype is not x.dtype and other.dtype != x.dtype:
            raise DtypeError(
                f"{function}: {first} is {x.dtype}, {name} is {other.dtype}: convert one with "
                ".to(dtype)"
            )


def check_one_device(function: str, first: str, x: Array, name: str, other: Array) -> None:
    if device_of(other) != device_of(x):
        raise DeviceError(
            f"{function}: {first} is on {device_of(x)}, {name} on {device_of(other)}: "
            "move one with .to(device)"
        )


def is_integer(value: Any) -> bool:
    """True for an integer of Python or NumPy; False for a boolean."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def number_of(value: Any) -> Any:
    """Of NumPy or a 0-d Tensor as one of Python, because an int8 overflows; others as they are."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def integer(name: str, value: Any) -> int:
    number = number_of(value)
    if not is_integer(number):
        raise DtypeError(f"{name} must be an integer, got {value!r}")
    return number


def check_size(name: str, value: Any, least: int = 1) -> int:
    size = number_of(value)
    if not is_integer(size) or size < least:
        raise ShapeError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(size)


FLOATS, LARGEST = (float, np.floating), float(np.finfo(np.float64).max)
BOOLEANS = bool, np.bool_


def check_number(name: str, value: Any, low: float = -LARGEST, high: float = math.inf) -> float:
    number = isinstance(value, FLOATS) or (is_integer(value) and abs(int(value)) <= LARGEST)
    if not number or not low <= value < high:
        limits = f"number >= {low}" if high == math.inf else f"number in [{low}, {high})"
        limits = "finite number" if low == -LARGEST else limits
        raise ValueError(f"{name} must be a {limits}, got {value!r}")
    return float(value)


def checked_probability(p: float, name: str = "a dropout probability") -> float:
    if isinstance(p, bool) or not isinstance(p, (int, float, np.number)) or not 0 <= p <= 1:
        raise ValueError(f"{name} lies between 0 and 1, got {p!r}")
    return float(p)


def names_device(target: Any) -> bool:
    """True if the argument of `to` names a device, even one like "cuda:1", which is refused."""
    return isinstance(target, str) and target.partition(":")[0] in ("cpu", "cuda")


def listed(name: str, values: Any) -> list[Any]:
    """The values as a list. A set is refused, because it has no order."""
    if not isinstance(values, Iterable) or isinstance(values, AbstractSet):
        raise TypeError(f"{name} takes a list, got {type_name(values)}")
    return list(values)


def rectangular(data: Any, name: str) -> np.ndarray:
    """Numbers in nested lists, or in anything else that NumPy reads, as an array."""
    try:
        return np.asarray(data)
    except ValueError as error:
        raise ShapeError(
            f"{name}: not a rectangular array of numbers, with rows of one length: {error}"
        ) from None
    except (TypeError, RuntimeError) as error:  # PyTorch's, for bfloat16 and requires_grad
        raise DtypeError(
            f"{name}: NumPy cannot read this {type(data).__name__} ({error}): pass "
            "x.detach().cpu() of a PyTorch tensor, and x.detach().cpu().float() of a bfloat16 one; "
            "ta.interop.load_torch_state_dict reads a state of either"
        ) from None


def refuse_masked(array: Any) -> None:
    if isinstance(array, np.ma.MaskedArray):
        raise DtypeError("a masked array would lose its mask: pass .filled(value) and a mask")


def one_each(data: Any) -> Any:
    """Nested lists with a number for each Tensor of one element in them, as PyTorch reads them.

    Larger Tensors stay, and become rows.
    """
    if not isinstance(data, (list, tuple)) or {*map(type, data)} <= {int, float, bool}:
        return data
    return [x.detach().view(()) if is_tensor(x) and x.numel() == 1 else one_each(x) for x in data]


def as_array(data: Any, dtype: DTypeLike, device: str | None) -> Array:
    """A new array of numbers from any data; see `cast_exactly`."""
    refuse_masked(data)
    array = data if is_array(data) else rectangular(one_each(data), "data")
    if dtype is None and array is not data and array.dtype.kind == "f":
        # Numbers of Python have no precision; float32 is PyTorch's default.
        dtype = array.dtype if has_dtype(data, array.dtype) else np.float32
        if array.dtype == np.float64 and abs(array).max(initial=0) >= 2**63:
            refuse_integers(data)
    if array.dtype.kind in "OSU":
        raise DtypeError(f"{HELD}, got {array.dtype}: {data!r:.60}")
    target = checked_dtype(array.dtype if dtype is None else dtype)
    checked_dtype(array.dtype)
    array = cast_exactly(array, target)  # always a copy, and in native byte order
    return to_device(array, device or device_of(array))


def as_exact_as(scores: Any, data: Any) -> Array:
    """A new array of any data, in which numbers of Python are as exact as the scores."""
    array = as_array(data, None, None)
    keeps = array.dtype.kind != "f" or has_dtype(data)
    return array if keeps else as_array(data, scores.dtype, None)


def refuse_integers(data: Any) -> None:
    """Raise DtypeError for integers that NumPy would make floats, because no dtype holds them."""
    numbers = list(np.array(data, object).flat)
    if all(map(is_integer, numbers)):
        raise DtypeError(
            f"no integer dtype holds both {min(numbers)} and {max(numbers)}: give dtype=ta.float64"
        )


def has_dtype(data: Any, dtype: np.dtype | None = None) -> bool:
    """True for numbers that have this dtype (or any) themselves: an array or tensor of any library,
    a number of NumPy, or a list with one of these in it."""
    if isinstance(data, (list, tuple)):
        return any(has_dtype(part, dtype) for part in data if type(part) is not float)
    if dtype is None or not hasattr(data, "dtype"):
        return hasattr(data, "dtype")
    own = data.dtype if isinstance(data.dtype, np.dtype) else np.asarray(data).dtype  # PyTorch's
    return own.type is dtype.type


def checked_index(index: Any) -> Any:
    """An index whose Tensors and sequences are replaced by arrays of a checked dtype."""
    if type(index) in (int, slice):  # as most are, because the questions below take long
        return index
    if isinstance(index, tuple):  # a tuple or a range in it is a list of numbers
        return tuple(checked_index(list(x) if isinstance(x, tuple) else x) for x in index)
    if is_tensor(index):
        index = index._data.copy()
    elif isinstance(index, (Sequence, np.ndarray)):
        refuse_masked(index)
        empty = isinstance(index, Sequence) and not index
        index = np.array(rectangular(index, "an index"), dtype=np.int64 if empty else None)
    elif hasattr(index, "__array__") and not is_array(index) and not isinstance(index, np.generic):
        raise DtypeError(f"an index is not a {type_name(index)}: make it a Tensor with ta.tensor()")
    index = index.item() if is_array(index) and not index.ndim else index
    is_single = isinstance(index, (slice, EllipsisType, NoneType, SupportsIndex))
    fits = index.dtype.kind in "iub" if is_array(index) else is_single
    if not fits or isinstance(index, BOOLEANS):
        text = "an index is made of integers, slices or masks of one dimension or more, got"
        error = DtypeError if isinstance(index, bool) or hasattr(index, "dtype") else IndexError
        raise error(f"{text} {getattr(index, 'dtype', type_name(index))}")
    return index


def one_dim(tensor: Any, dim: int, more: int = 0) -> int:
    """`dim` counted from the first dimension, checked; of a tensor that gets `more` dimensions."""
    ndim = tensor.ndim + more or 1  # as in PyTorch, where a 0-d tensor takes dim 0 too
    if isinstance(dim, BOOLEANS) or not hasattr(dim, "__index__"):
        raise TypeError(f"a dimension is an integer, got {dim!r}")
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"dim {dim} is out of range for shape {tensor.shape}: expected {-ndim} to {ndim - 1}"
        )
    return int(dim) % ndim


def require_dims(tensor: Any, name: str) -> Any:
    """The tensor; ShapeError if it has no dimension."""
    if not tensor.ndim:
        raise ShapeError(f"{name} takes a tensor of one dimension or more, got a 0-d tensor")
    return tensor


def dims_of(tensor: Any, dim: Dims, keepdim: Any = False) -> tuple[int, ...] | None:
    """The dimensions of a reduction, and keepdim checked; None or () means all."""
    check_keepdim(keepdim)
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return None
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    checked = tuple(one_dim(tensor, d) for d in dims)
    if len(set(checked)) != len(checked):
        raise ValueError(f"a dimension is named twice in {dims}")
    return checked if tensor.ndim else None


def sizes_of(arguments: Sequence[Any]) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence."""
    if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)):
        arguments = arguments[0]
    for size in arguments:
        if type(size) is not int and (isinstance(size, BOOLEANS) or not hasattr(size, "__index__")):
            raise TypeError(f"a size is an integer, got {size!r}")
    return tuple(map(index, arguments))


def check_keepdim(keepdim: Any) -> None:
    if not isinstance(keepdim, BOOLEANS):
        raise TypeError(
            f"keepdim is True or False, got {keepdim!r}; several dimensions are written as one "
            "tuple, dim=(0, 1)"
        )


def cast_exactly(value: Array, dtype: np.dtype, order: str = "K") -> Array:
    """A copy of numbers in the dtype of the tensor that takes them.

    Floats are rounded to it, and those beyond its range become inf, as in PyTorch. Integers and
    booleans must be exact, because 44 for 300, or 1 for 1.5, is another number. A GPU is not asked.
    """
    cast = converted(value, dtype, order)
    if dtype.kind == "f" or type(value) is not np.ndarray or np.can_cast(value.dtype, dtype):
        return cast
    wrong = cast != value
    if wrong.any():
        raise DtypeError(
            f"{value[wrong].flat[0]} does not fit into a tensor of {dtype}: only x.to(dtype) of a "
            "Tensor wraps, and cuts fractions off"
        )
    return cast


def split_sizes(total: int, sizes: int | Sequence[int], dim: int) -> Sequence[int]:
    """The sizes of the pieces of a dimension of `total` elements, from one size or from several."""
    sizes = [*map(number_of, sizes)] if isinstance(sizes, (tuple, list)) else number_of(sizes)
    if is_integer(sizes):
        size = check_size("split: the size of the pieces", sizes)
        sizes = [min(size, total - i) for i in range(0, total, size)] or [0]
    if not isinstance(sizes, list) or not all(map(is_integer, sizes)):
        raise TypeError(f"split takes integers as sizes, got {sizes!r}")
    if any(size < 0 for size in sizes):
        raise ValueError(f"split takes sizes >= 0, got {sizes}")
    if sum(sizes) != total:
        raise ShapeError(f"split sizes {sizes} do not add up to {total} (dim {dim})")
    return sizes


def check_choice(name: str, value: Any, *choices: str) -> str:
    if not isinstance(value, str) or value not in choices:
        *first, last = (f'"{choice}"' for choice in choices)
        raise ValueError(f"{name} must be {', '.join(first)} or {last}, got {value!r}")
    return value


def check_reduction(reduction: str, *more: str) -> str:
    return check_choice("reduction", reduction, *more, "mean", "sum", "none")


def describe(value: Any) -> str:
    """An argument as an error message shows it: dtype and shape of an array, else its value."""
    # A type such as np.float32 has a dtype too, and so has a config of transformers.
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type):
        device = "" if device_of(value) == "cpu" else " on cuda"
        return f"{value.dtype}{list(value.shape)}{device}"
    text = repr(value)
    is_short = len(text) < 40 and not isinstance(value, (type, MethodType))
    return text if is_short else type_name(value)


def shortened(names: list[str]) -> str:
    return "nothing" if not names else ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def check_names(owner: str, expected: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Every name of `expected` is in the state, and no other."""
    missing = [name for name in expected if name not in state]
    unknown = [name for name in state if name not in expected]
    if missing or unknown:
        torch_names = any("in_proj_" in name for name in unknown)
        hint = ": a PyTorch state is read by ta.interop.load_torch_state_dict"
        raise CheckpointError(
            f"state does not fit {owner}: missing {shortened(missing)}, "
            f"unexpected {shortened(unknown)}{hint if torch_names else ''}"
        )


def check_shapes(owner: str, expected: Mapping[str, tuple], state: Mapping[str, Any]) -> None:
    """Every array of the state has the shape that is expected under its name."""
    wrong = [
        f"{name} has shape {shape}, got {state[name].shape}"
        for name, shape in expected.items()
        if state[name].shape != shape
    ]
    if wrong:
        shown = "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if wrong[5:] else "")
        raise ShapeError(f"{owner}: {shown}")


def check_heads(width: int, heads: int) -> None:
    if not is_integer(heads) or heads < 1 or width % heads:
        raise ShapeError(f"the width {width} cannot be split into {heads} heads of one size")


def check_broadcast(rule: str, shape: tuple[int, ...], larger: tuple[int, ...]) -> None:
    """An array of `shape` broadcasts to `larger`; if not, ShapeError begins with the rule."""
    pairs = zip(reversed(shape), reversed(larger), strict=False)
    if len(shape) > len(larger) or any(n not in (1, m) for n, m in pairs):
        raise ShapeError(f"{rule}, {larger}, got shape {shape}")


def are_groups(heads: int, groups: int) -> bool:
    """Whether so many heads of keys can be shared by the heads of queries."""
    return heads == groups or (groups > 0 and heads % groups == 0)


def raise_clearer_error(name: str, arrays: Sequence[Any], error: Exception) -> None:
    """Raise an error of tinyattn with the op and the shapes, instead of the forward's `error`.

    Returns if there is nothing to add. The caller then raises `error` again. Raised here it would
    keep the graph alive, because it would be in a reference cycle with its traceback.
    """
    refuse_foreign(name, arrays)
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    is_of_a_check = frames and frames[-1].f_globals is globals()  # of this file, which says enough
    if type(error).__module__ == ShapeError.__module__ or is_of_a_check:
        return
    came = ", ".join(describe(array) for array in arrays)
    devices = {device_of(array) for array in arrays if hasattr(array, "dtype")}
    if len(devices) > 1 and not isinstance(error, IndexError):  # an index may stay on the host
        raise DeviceError(
            f"{name} got arrays on different devices ({came}): move one with .to(device)"
        ) from None
    if isinstance(error, ValueError) and "read-only" in str(error):
        raise InPlaceError(
            f"{name} writes to an argument, which its caller needs unchanged: write x = x + y "
            "instead of x += y, or change a copy"
        ) from error
    message = f"{name} does not take ({came}): {error}"
    if isinstance(error, TypeError) and name.startswith("logical_"):
        message = f"~ & | ^ and {name} take booleans and integers, got ({came})"
    if isinstance(error, (TypeError, OverflowError)):
        raise DtypeError(message) from error
    if isinstance(error, ValueError):
        raise ShapeError(message) from error


def refuse_foreign(name: str, values: Sequence[Any]) -> None:
    """Raise an error if a value is an array or tensor of another library."""
    for value in values:
        is_known = is_array(value) or isinstance(value, (np.generic, type))  # such as a dtype
        if hasattr(value, "__array__") and not is_known:
            raise DtypeError(
                f"{name} does not take a {type_name(value)}: make it a Tensor with ta.tensor(...)"
            ) from None


def type_name(value: Any) -> str:
    """The name of a value's type, after its library: other libraries have a Tensor too.

    Of a class and a method it is their own name, because to call them was forgotten.
    """
    if isinstance(value, (type, MethodType)):
        kind = "class" if isinstance(value, type) else "method"
        return f"the {kind} {value.__name__} (write {value.__name__}(...))"
    library = type(value).__module__.partition(".")[0]
    return ("" if library in ("builtins", "tinyattn") else f"{library}.") + type(value).__name__


CONTAINERS = dict, list, tuple, set, frozenset, deque


def check_container(name: str, value: Any, kinds: tuple[type, ...], owner: dict[str, Any]) -> None:
    """Modules and parameters in a plain container, at any depth, would not be found, apart from
    those that are attributes of the owner too."""
    if not isinstance(value, CONTAINERS):  # as most, because this is asked of every attribute
        return
    if holds(value, lambda part: isinstance(part, kinds), set(map(id, owner.values()))):
        instead = "nn.ModuleDict, " if isinstance(value, dict) else ""
        raise TypeError(
            f"{name!r} is a {type(value).__name__} with modules or parameters in it, which would "
            f"not be found: use {instead}nn.ModuleList or nn.Sequential"
        )


def holds(value: Any, is_sought: Callable[[Any], bool], found: Collection[int] = ()) -> bool:
    """Whether a container has such a part, at any depth; parts that are found, by id, are none."""
    if not isinstance(value, CONTAINERS):
        return False
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    parts = [part for part in parts if id(part) not in found]
    return any(is_sought(part) or holds(part, is_sought, found) for part in parts)
