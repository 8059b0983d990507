"""Constructors with many arguments, in one line each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

from ...nn import Module


def takes(arguments: str) -> Callable[[Callable[[Any, Any], None]], Callable[..., None]]:
    """Decorate the constructor of a module: it takes these arguments, and device and dtype.

    arguments: as in the parentheses of a function. The constructor gets them as the attributes of
    one object. The module then moves to the device and the dtype.
    """
    text = ", ".join(filter(None, ("self", arguments, "device=None, dtype=None")))
    signature = inspect.signature(eval(f"lambda {text}: None"))

    def decorate(build: Callable[[Any, Any], None]) -> Callable[..., None]:
        @wraps(build)
        def constructor(self: Module, *args: Any, **options: Any) -> None:
            bound = signature.bind(self, *args, **options)
            bound.apply_defaults()
            given = SimpleNamespace(**bound.arguments)
            Module.__init__(self)
            build(self, given)
            self.to(device=given.device, dtype=given.dtype)

        constructor.__signature__ = signature  # type: ignore[attr-defined]
        return constructor

    return decorate
