"""What an op does about dtypes that differ, and about a forward that fails."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend import Array, device_of
from .errors import DeviceError, DtypeError, ShapeError

if TYPE_CHECKING:
    from .rules import Spec

CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}


def promoted(out: Array, arguments: Sequence[Any]) -> Array:
    """`out` in the dtype PyTorch would give: NumPy lets 0-d arrays and integers widen a float32.

    Among tensors with dimensions, 0-d tensors and Python numbers, only a higher category (bool,
    integer, float) counts against those that come first.
    """
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
    return out.astype(np.float32) if kind == 2 else out


def retry_or_explain(
    spec: Spec, arrays: Sequence[Any], options: dict[str, Any], error: Exception
) -> Any:
    """What to do when a forward fails: say which op and which shapes, in tinyattn's errors.

    Where the user has made warnings errors, NumPy's remarks on inf and NaN arrive here too; those
    are values like any other, so the forward is run again without them.
    """
    if isinstance(error, RuntimeWarning):
        with np.errstate(all="ignore"):
            return spec.forward(*arrays, **options)
    if type(error).__module__.startswith(__package__):
        raise error
    came = ", ".join(describe(array) for array in arrays)
    devices = {device_of(array) for array in arrays if hasattr(array, "dtype")}
    if len(devices) > 1:
        raise DeviceError(
            f"{spec.name} got arrays on different devices ({came}): move one with .to(device)"
        ) from None
    message = f"{spec.name} does not take ({came}): {error}"
    if isinstance(error, TypeError):
        raise DtypeError(message) from error
    if isinstance(error, ValueError):
        raise ShapeError(message) from error
    raise error


def describe(value: Any) -> str:
    """An argument in an error message: dtype and shape of arrays, the value of anything short."""
    if hasattr(value, "dtype"):
        device = "" if device_of(value) == "cpu" else " on cuda"
        return f"{value.dtype}{list(value.shape)}{device}"
    text = repr(value)
    return text if len(text) < 40 else type(value).__name__
