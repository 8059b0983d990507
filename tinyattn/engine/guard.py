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

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.backend import array_types, read_only
from ..errors import GraphError, InPlaceError
from .autograd import TensorBase


def guarded_forward(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward that can write to none of its arguments."""

    @functools.wraps(forward)
    def guarded(*arrays: Any, **options: Any) -> Any:
        return forward(*map(read_only, arrays), **options)

    return guarded


def guarded_rule(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A derivative rule that can write to none of its arguments, and whose results are copies.

    On Tensors it is the rule itself, because nobody can write to the array of a Tensor uncounted.
    """

    @functools.wraps(rule)
    def guarded(grad: Any, *arguments: Any) -> Any:
        try:
            if isinstance(grad, TensorBase):
                return rule(grad, *arguments)
            gradients = rule(read_only(grad), *map(read_only, arguments))
        except (TypeError, ValueError) as error:
            raise_explained(name, error)
            raise
        if type(gradients) is tuple:
            return tuple([copied(gradient) for gradient in gradients])
        return copied(gradients)

    return guarded


def copied(value: Any) -> Any:
    """A copy of an array of any class; anything else as it is."""
    return value.copy() if isinstance(value, (np.ndarray, *array_types)) else value


def raise_explained(name: str, error: Exception) -> None:
    """Raise an error that says what a rule should do instead; return if `error` says enough."""
    if "does not take a Tensor" in str(error):
        raise GraphError(
            f"a derivative rule of {name} uses NumPy functions, which do not record themselves: "
            "for derivatives of second order write it with operators and the functions of "
            "tinyattn.ops (check_op can leave them out with second_order=False)"
        ) from error
    if "read-only" in str(error):
        raise InPlaceError(
            f"a derivative rule of {name} writes to an argument: write grad = grad * y instead of "
            "grad *= y"
        ) from error
