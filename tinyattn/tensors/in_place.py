"""Changes in place: `x += y` and `x[i] = y`, and the memory that may be written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..base.checks import cast_exactly
from ..engine.autograd import wrap
from ..engine.grad_mode import is_grad_enabled
from ..engine.promotion import CATEGORY
from ..errors import DtypeError, InPlaceError, ShapeError
from ..ops.types import Operand
from .conversions import Conversions
from .gradients import Gradients

AnyTensor = TypeVar("AnyTensor", bound=Conversions)


def changed(tensor: AnyTensor, operation: Callable[..., Any], other: Operand) -> AnyTensor:
    """`x += y` gives this tensor object the values of x + y, recorded or not.

    A recorded `x[i] = y` gives it those of `ops.setitem`. The values are in new memory. So views of
    the old memory, and graphs that need the old values, stay as they are.
    """
    if is_grad_enabled():
        if tensor.requires_grad and tensor.is_leaf:
            raise InPlaceError(
                "a leaf that requires gradients cannot be changed in place while operations "
                "are recorded: do it under ta.no_grad(), or write x = x + y; x = x.clone() can be "
                "changed too"
            )
    elif not tensor.is_leaf:
        raise InPlaceError(
            "this tensor was computed by a recorded operation, so it cannot be changed under "
            "ta.no_grad(): write x = x + y"
        )
    result = operation(tensor, other)
    if result.shape != tensor.shape:
        raise ShapeError(
            f"an in-place result must keep the shape {tensor.shape}, got {result.shape}"
        )
    if CATEGORY[result.dtype.kind] > CATEGORY[tensor.dtype.kind]:
        raise DtypeError(f"a {result.dtype} result does not fit in place into {tensor.dtype}")
    if tensor.dtype.kind == "f":
        result = result.to(tensor.dtype)
    elif result.dtype != tensor.dtype:
        result = wrap(cast_exactly(result._data, tensor.dtype))
    if not tensor.is_leaf or result.requires_grad:
        tensor._node = result._node
    tensor._data, tensor._version = result._data, result._version
    return tensor


def check_recordable(tensor: Gradients) -> None:
    """Refuse `x[i] = value` that shall be recorded, if nobody would see it, or x has no gradient.

    In `x[i][j] = value` the tensor x[i] would get new memory, and x would stay as it is.
    """
    if tensor.dtype.kind != "f":
        raise DtypeError(
            f"a value that requires gradients is written into floats, got {tensor.dtype}: use "
            "x.to(ta.float32), or value.detach()"
        )
    if getattr(tensor._data.base, "size", 0) > tensor._data.size:
        raise InPlaceError(
            "this tensor is a view of a part of another, which a recorded x[i] = value would not "
            "change: write x[i, j] = value instead of x[i][j] = value, or change a clone()"
        )


def check_writable(tensor: Gradients) -> None:
    """Refuse to write to memory that belongs to a recorded result, or to another tensor."""
    if not tensor.is_leaf or tensor._version is None:
        raise InPlaceError(
            "this tensor was computed by a recorded operation, or is a view of one that was: a "
            "graph may need its values, so change a clone() made under ta.no_grad()"
        )
    if type(tensor._data) is np.ndarray and not tensor._data.flags.writeable:
        raise InPlaceError(
            "this tensor is a read-only view of another's memory (after expand, for instance): "
            "change a clone()"
        )
