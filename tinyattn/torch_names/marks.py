"""The marks of the rows in `functions.py`: each says where PyTorch has the function.

    lerp = changing(lambda input, end, weight: input + weight * (end - input))
    log2 = both(lambda input: input.log() / math.log(2), "x.log() / np.log(2)")

The first row is torch.lerp, x.lerp and x.lerp_, the second torch.log2 and x.log2. A row may have a
second argument, the hint: what a program without torch_names writes instead. A function of several
lines has it in its docstring after "In tinyattn:", and that of the form with "_" after "In place:".
The error for a name that tinyattn lacks shows it, once `python tests/make_hints.py` has read it.
"""

import inspect
from collections.abc import Hashable, Mapping
from functools import cache, wraps
from types import FunctionType
from typing import Any, TypeVar

from ..engine.rules import rename

F = TypeVar("F", bound=Hashable)
# What PyTorch calls the first argument of a function, and the second if it is the second operand.
THEIRS = dict.fromkeys(("x", "self", "ids", "logits", "log_probs"), "input") | {"y": "other"}
# What PyTorch calls the arguments of single functions, and what they are called here.
NAMES: dict[str, dict[str, str]] = {}
for line in """bmm mat2 other; dot tensor other; full size shape; load_state_dict state_dict state;
    max other dim; min other dim; outer vec2 other; register_buffer tensor value;
    set_rng_state new_state state; split split_size sizes; split split_size_or_sections sizes;
    split tensor x; swapaxes axis0 dim0; swapaxes axis1 dim1""".split(";"):  # noqa: SIM905
    name, theirs, ours = line.split()
    NAMES.setdefault(name, {})[theirs] = ours
# What older programs write instead of `reduction`.
OF_OLD_LOSSES = {"size_average": "reduction", "reduce": "reduction"}


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
def under_their_names(function: Any, name: str) -> Any:
    """The function `name`, which takes arguments under PyTorch's names too, as `input=`.

    What is no function, or has these names, stays as it is.
    """
    if isinstance(function, type) or not callable(function):
        return function
    parameters = list(inspect.signature(function).parameters.values())
    theirs = [THEIRS.get(p.name, p.name) if i < 2 else p.name for i, p in enumerate(parameters)]
    names = {t: p.name for t, p in zip(theirs, parameters, strict=True) if t != p.name}
    names |= {"axis": "dim"} if "dim" in theirs else {}
    names |= {t: ours for t, ours in NAMES.get(name, {}).items() if t not in theirs}
    is_loss = "reduction" in theirs
    if not is_loss and names.keys() <= other_names(function).keys():
        return function

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if options:
            rename(name, options, names)
            if is_loss and OF_OLD_LOSSES.keys() & options.keys():
                average, reduce = (options.pop(old, None) for old in OF_OLD_LOSSES)
                summed = "sum" if average is False else "mean"
                options["reduction"] = "none" if reduce is False else summed
        return function(*args, **options)

    found = [p.replace(name=t) for p, t in zip(parameters, theirs, strict=True)]
    call.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    known = other_names(function) | names | (OF_OLD_LOSSES if is_loss else {})
    call.other_names = known  # type: ignore[attr-defined]
    return call


def other_names(function: Any) -> dict[str, str]:
    """Further names of a function's arguments, and the names in its signature."""
    if isinstance(function, type):
        function = function.__init__  # type: ignore[misc]
    found = getattr(getattr(function, "spec", None), "other_names", {})
    return getattr(function, "other_names", found)
