"""The dtype of a result whose arguments have different dtypes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.backend import Array
from ..errors import DtypeError

CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}


def promoted(out: Array, arguments: Sequence[Any]) -> Array:
    """Return `out` in PyTorch's dtype. NumPy's may differ, because there 0-d arrays and integers
    may turn float32 into float64.

    Tensors with dimensions decide. A 0-d tensor decides only if its category (bool, integer, float)
    is higher, and a Python number only if its category is higher still.
    """
    if out.dtype.kind == "c":
        raise DtypeError("tensors hold real numbers, got a complex one: compute with two tensors")
    if all(getattr(argument, "dtype", None) is out.dtype for argument in arguments):
        return out
    dimensioned = [a.dtype for a in arguments if hasattr(a, "dtype") and a.ndim]
    scalar = [a.dtype for a in arguments if hasattr(a, "dtype") and not a.ndim]
    kind = CATEGORY.get(out.dtype.kind, 2)
    for dtypes in (dimensioned, scalar):
        same = [dtype for dtype in dtypes if CATEGORY[dtype.kind] == kind]
        if same:
            dtype = functools.reduce(np.promote_types, same)
            return out if out.dtype == dtype else out.astype(dtype)
    return out.astype((np.bool_, np.int64, np.float32)[kind])
