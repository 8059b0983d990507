"""The marks of the rows in `functions.py`: each says where PyTorch has the function.

    lerp = changing(lambda input, end, weight: input + weight * (end - input))
    log2 = both(lambda input: input.log() / math.log(2), "x.log() / np.log(2)")

The first row is torch.lerp, x.lerp and x.lerp_, the second torch.log2 and x.log2. A row may have a
second argument, the hint: what a program without torch_names writes instead. A function of several
lines has it in its docstring after "In tinyattn:", and that of the form with "_" after "In place:".
The error for a name that tinyattn lacks shows it; `tinyattn/hints.py` reads it from the file.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping
from functools import cache, wraps
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Hashable)
# What PyTorch calls the first argument of a function, and the second if it is the second operand.
THEIRS = dict.fromkeys(("x", "self", "ids", "logits", "log_probs"), "input") | {"y": "other"}


class Mark:
    """Marks a function, and leaves it as it is."""

    def __init__(self) -> None:
        self.functions: set[Any] = set()

    def __call__(self, function: F, hint: str = "") -> F:
        self.functions.add(function)
        return function


function = Mark()  # torch.X
both = Mark()  # torch.X and x.X
changing = Mark()  # torch.X, x.X and x.X_
method = Mark()  # x.X, or module.X


def with_name(value: Any, name: str) -> Any:
    """The value; errors and tracebacks show a function that was made for a row by this name."""
    if isinstance(value, FunctionType) and (
        "<" in value.__qualname__ or "Of" in value.__qualname__
    ):
        value.__name__ = value.__qualname__ = name
        value.__code__ = value.__code__.replace(co_name=name, co_qualname=name)
    return value


def rows(names: Mapping[str, Any], *marks: Mark) -> dict[str, Any]:
    """The functions of a file that have one of the marks, by name."""
    return {
        name: with_name(value, name)
        for name, value in names.items()
        if isinstance(value, Hashable) and any(value in mark.functions for mark in marks)
    }


@cache  # so that one function stays one object
def takes_input(function: Any) -> Any:
    """The function with the names that PyTorch gives its operands: `input=`, and `other=`.

    What is no function of a Tensor stays as it is.
    """
    if isinstance(function, type) or not callable(function):
        return function
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or THEIRS.get(parameters[0].name) != "input":
        return function
    operands = [THEIRS[p.name] for p in parameters[:2] if p.name in THEIRS]

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if options:
            args += tuple(options.pop(n) for n in operands[len(args) :] if n in options)
        return function(*args, **options)

    for i, name in enumerate(operands):
        parameters[i] = parameters[i].replace(name=name)
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call
