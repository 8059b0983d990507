"""The dtype of a result, and the dtype in which it is computed."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.backend import Array, Function, converted, is_tensor
from ..base.checks import as_array, cast_exactly, checked_dtype, rectangular
from ..errors import DtypeError
from ..kernels.sums import float32_of

CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}
# The smallest number of full precision, and the largest number.
RANGES = {
    np.dtype(kind): (float(np.finfo(kind).tiny), float(np.finfo(kind).max))
    for kind in (np.float16, np.float32, np.float64)
}


def wider_number(number: Any, dtype: np.dtype) -> Any:
    """The number; as a scalar of NumPy in a wider dtype if it lies outside of this dtype's range.

    NumPy rounds a number of Python to the dtype of the array: in float16, 70,000 is inf and 1e-8
    is 0. With a wider scalar it computes in the wider dtype, and the result may fit again.
    """
    for wide, (least, most) in RANGES.items():
        if wide.itemsize >= dtype.itemsize and least <= abs(number) <= most:
            return number if wide == dtype else wide.type(number)
    return number  # 0, inf and NaN are in every dtype


def number_beside(number: Any, arguments: Sequence[Any], must_fit: bool | None) -> Any:
    """The number as it meets the other arguments of an op; see `wider_number`.

    must_fit: raise DtypeError for an integer that the integers of the others cannot hold.
    """
    # In the range of every dtype that it may meet: int8 ends at 127, float16 at 65,504. None of
    # NumPy's, because int64 beside np.uint64 gives a float.
    if (1e-4 < number or number == 0) and number < {float: 6e4, int: 100}.get(type(number), 0):
        return number
    for dtype in [x.dtype for x in arguments if hasattr(x, "dtype") and x is not number]:
        if (kind := getattr(dtype, "kind", "?")) == "f":  # a dtype of PyTorch has none
            return wider_number(number, dtype)
        if kind in "iu" and must_fit and not isinstance(number, float):
            return as_array(number, dtype, None).item()
    return number


def check_fit(numbers: Any, arguments: Sequence[Any]) -> None:
    """DtypeError for an integer in a list that the integers of the others cannot hold."""
    array = rectangular(numbers, "a list")
    for dtype in [x.dtype for x in arguments if hasattr(x, "dtype")]:
        if dtype.kind in "iu" and array.dtype.kind in "iu":
            cast_exactly(array, dtype)


def promoted(out: Array, arguments: Sequence[Any]) -> Array:
    """Return `out` in PyTorch's dtype. NumPy's may differ, because there 0-d arrays and integers
    may turn float32 into float64.

    Tensors with dimensions decide. A 0-d tensor decides only if its category (bool, integer, float)
    is higher, and a Python number only if its category is higher still. DtypeError for a 0-d tensor
    of integers that those of the others cannot hold, as for a number.
    """
    if out.dtype.kind not in CATEGORY:
        raise DtypeError(f"tensors hold real numbers, got {out.dtype}; a complex one is two")
    if all(a.dtype is out.dtype for a in arguments if hasattr(a, "dtype")):
        return out
    dimensioned = [a.dtype for a in arguments if hasattr(a, "dtype") and a.ndim]
    # Of float64 NumPy's numbers are Python's too, as in PyTorch.
    numbers = [a for a in arguments if hasattr(a, "dtype") and not isinstance(a, float)]
    scalar = [a.dtype for a in numbers if not a.ndim]
    kind = CATEGORY.get(out.dtype.kind, 2)
    for dtypes in (dimensioned, scalar):
        same = [dtype for dtype in dtypes if CATEGORY[dtype.kind] == kind]
        if same:
            dtype = checked_dtype(functools.reduce(np.promote_types, same))
            for argument in arguments if dtype.kind in "iu" and dtypes is dimensioned else ():
                if not getattr(argument, "ndim", 1) and argument.dtype.kind in "iu":
                    cast_exactly(getattr(argument, "_data", argument), dtype)
            return out if out.dtype is dtype else converted(out, dtype)
    return converted(out, np.dtype((np.bool_, np.int64, np.float32)[kind]))


def in_float32(formula: Function) -> Function:
    """A formula of arrays or Tensors; float16 is computed in float32, and rounded at the end.

    Each step in float16 would lose digits, and overflow from 65,520 on. Other dtypes stay.
    """

    @functools.wraps(formula)
    def computed(*arguments: Any) -> Any:
        if arguments[0].dtype != np.float16:
            return formula(*arguments)
        return in_dtype(formula(*(in_dtype(x, np.float32) for x in arguments)), np.float16)

    return computed  # type: ignore[return-value]


def in_dtype(x: Any, dtype: Any) -> Any:
    """An array or a Tensor in this dtype; a number as it is."""
    if is_tensor(x):
        return x.to(dtype)
    if not hasattr(x, "dtype"):
        return x
    return float32_of(x) if dtype == np.float32 else x.astype(dtype, copy=False)
