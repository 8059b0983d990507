"""Ops of a user: nothing that they do to their arguments or results can reach a graph.

The library's own forwards and rules write to no argument, and return no array that they also store.
Those of a user may, so they get arrays that cannot be written to, and their results are copied.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..base.backend import array_types, read_only
from ..errors import GraphError, InPlaceError
from .autograd import TensorBase


def guarded_forward(forward: Callable[..., Any], saves: bool) -> Callable[..., Any]:
    """The forward on read-only arrays; its result is a view of one of them, or a copy."""

    @functools.wraps(forward)
    def call(*arrays: Any, **options: Any) -> Any:
        result = forward(*map(read_only, arrays), **options)
        out, *saved = result if saves and type(result) is tuple else (result,)
        return (copied(out, arrays), *saved) if saved else copied(out, arrays)

    return call


def copied(out: Any, arrays: tuple[Any, ...]) -> Any:
    """A copy of an array, because the op may write to it at its next call; not of a view."""
    if type(out) not in array_types:
        return out
    owners = {id(owner) for a in arrays for owner in (a, getattr(a, "base", None))} - {id(None)}
    return out if id(out.base) in owners else out.copy()


def guarded_rule(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A derivative rule that can write to nothing; its errors say what it should have done."""

    @functools.wraps(rule)
    def call(grad: Any, *arguments: Any) -> Any:
        try:
            if isinstance(grad, TensorBase):
                return rule(grad, *arguments)
            result = rule(read_only(grad), *map(read_only, arguments))
        except (TypeError, ValueError) as error:
            if "does not take a Tensor" in str(error):
                raise GraphError(
                    f"a derivative rule of {name} uses NumPy functions, which do not record "
                    "themselves: for derivatives of second order write it with operators and the "
                    "functions of tinyattn.ops (check_op can leave them out with "
                    "second_order=False)"
                ) from error
            if "read-only" in str(error):
                raise InPlaceError(
                    f"a derivative rule of {name} writes to an argument: write grad = grad * y "
                    "instead of grad *= y"
                ) from error
            raise
        parts = result if type(result) is tuple else (result,)
        return tuple(x.copy() if type(x) in array_types else x for x in parts)

    return call
