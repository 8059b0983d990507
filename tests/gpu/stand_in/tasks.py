"""What is asked of the stand-in's device, counted for `benchmarks/gpu/launches.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


class State:
    depth = 0  # of functions of the device that call each other
    names: list[str] | None = None  # of what was asked, if it is counted


def arrays_in(value: Any) -> list[np.ndarray]:
    if isinstance(value, (list, tuple)):
        return [array for part in value for array in arrays_in(part)]
    found = getattr(value, "array", None)
    return [found] if isinstance(found, np.ndarray) else []


def task(function: Callable[..., Any]) -> Any:
    """A function of the device. What makes a view, or an array of no elements, is not counted."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        State.depth += 1
        try:
            result = function(*args, **kwargs)
        finally:
            State.depth -= 1
        if State.depth == 0 and State.names is not None:
            given = arrays_in([*args, *kwargs.values()])
            found = arrays_in(result)
            made = [r for r in found if not any(np.shares_memory(r, g) for g in given)]
            in_place = not found or function.__name__.startswith("in_place")
            if any(array.size for array in made) or (in_place and not made):
                State.names.append(getattr(args[0], "name", function.__name__))
        return result

    return call
