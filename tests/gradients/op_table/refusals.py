"""Calls that must fail, for kinds of ops that take the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tinyattn as ta

from .row import ErrorInput, ops


def error(call: Callable[[], Any], exception: type[Exception], match: str) -> ErrorInput:
    return ErrorInput(call, exception, match)


def t(*shape: int, dtype: Any = np.float32) -> ta.Tensor:
    return ta.tensor(np.ones(shape, dtype))


INTS = ta.tensor([1, 2, 3])
BOOLS = ta.tensor([True, False, True])


def misuse(name: str, argument: str = "x") -> list[ErrorInput]:
    """What no op of one Tensor takes: a second, an unknown option, nothing at all."""
    function = getattr(ops, name)
    return [
        error(lambda: function(t(3), t(3)), TypeError, rf"{name}\(\) takes .*2 were given"),
        error(lambda: function(t(3), colour=1), TypeError, rf"{name}\(\) .* unexpected .*'colour'"),
        error(lambda: function(), TypeError, rf"{name}\(\) (misses|missing) .*'{argument}'"),
    ]


def misfits(name: str) -> list[ErrorInput]:
    """What no op of two broadcasting Tensors takes."""
    function = getattr(ops, name)
    return [
        error(lambda: function(t(2, 3), t(2)), ValueError, rf"{name} .*32\[2, 3\].*32\[2\]"),
        error(lambda: function(t(3), t(4)), ValueError, rf"{name} .*\[3\].*\[4\]"),
        error(lambda: function(t(3), "text"), TypeError, rf"{name} .*float32\[3\], 'text'"),
        error(lambda: function(t(3)), TypeError, rf"{name}\(\) (misses|missing) .*'y'"),
    ]


def only_floats(function: Callable[..., Any]) -> list[ErrorInput]:
    """What a function in `functional` says to lists, integers and booleans."""
    return [
        error(lambda: function([1.0, 2.0]), TypeError, "must be a Tensor, got list"),
        error(lambda: function(INTS), TypeError, "floating dtype, got int64"),
        error(lambda: function(BOOLS), TypeError, "floating dtype, got bool"),
    ]


def only_tensors(function: Callable[..., Any]) -> list[ErrorInput]:
    """What an op says to a list; integers it takes, as PyTorch does."""
    return [error(lambda: function([1.0, 2.0]), TypeError, "must be a Tensor, got list")]


def bad_dims(function: Callable[..., Any]) -> list[ErrorInput]:
    """What a function along dimensions says to one that is not there."""
    return [
        error(lambda: function(t(2, 3), 2), IndexError, r"dim 2 .*\(2, 3\).*-2 to 1"),
        error(lambda: function(t(2, 3), -3), IndexError, r"dim -3 .*\(2, 3\).*-2 to 1"),
        error(lambda: function(t(2, 3), 0.5), TypeError, r"integer, got 0\.5"),
    ]
