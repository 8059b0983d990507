"""Ops of a user: nothing that they do to their arguments or results can reach a graph.

The library's own forwards and rules write to no argument, and return no array that they also store.
Those of a user may. So four measures are taken, each for one reason:

    a forward gets read-only views  because it might write to the arrays of its caller
    its result is copied by `apply` because it might store the array, and write to it later;
                                    not a view of a Tensor, whose Version counts all writes
    a rule gets read-only views     because the gradient and the saved arrays belong to others too
    its results are copied          because it might return an array that it stores or was given

CuPy has no read-only views. There a write to an argument is not noticed.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.backend import array_types, read_only
from ..errors import GraphError, InPlaceError
from .autograd import TensorBase, wrap

UNRECORDED = (
    "a derivative rule of {} uses NumPy functions, which do not record themselves: for derivatives "
    "of second order write it with operators and the functions of tinyattn.ops (check_op can leave "
    "them out with second_order=False)"
)


def guarded_forward(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward that can write to none of its arguments."""

    def guarded(*arrays: Any, **options: Any) -> Any:
        options = {name: read_only(value) for name, value in options.items()}
        return forward(*map(read_only, arrays), **options)

    return guarded


def guarded_rule(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A derivative rule that can write to none of its arguments, and whose results are copies."""

    def guarded(grad: Any, *arguments: Any) -> Any:
        try:
            gradients = rule(protected(grad), *map(protected, arguments))
        except (TypeError, ValueError) as error:
            if "does not take a Tensor" in str(error):
                raise GraphError(UNRECORDED.format(name)) from error
            if "read-only" in str(error):
                raise InPlaceError(
                    f"a derivative rule of {name} writes to an argument: write grad = grad * y "
                    "instead of grad *= y"
                ) from error
            raise
        return copied(gradients)

    return guarded


def protected(value: Any) -> Any:
    """A read-only view of an array, or a Tensor on one; anything else as it is."""
    if not isinstance(value, TensorBase):
        return read_only(value)
    view = wrap(read_only(value._data), value._node)
    view._version = value._version
    return view


def copied(value: Any) -> Any:
    """A copy of an array, also of a subclass of NumPy's, and of those in lists, tuples and dicts;
    anything else as it is."""
    if type(value) in (list, tuple, deque):
        return type(value)(map(copied, value))
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    is_copied = isinstance(value, np.ndarray) or type(value) in array_types
    return value.copy() if is_copied else value
