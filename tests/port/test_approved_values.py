"""Constants and signatures stay as they were approved, because few tests depend on each of them.

approved_values.json holds the constants of every module, such as tables of names and limits, and
the arguments and defaults of every constructor, and of every function that has defaults. After a
change that is meant, write it anew, and read its difference:

    python tests/port/test_approved_values.py
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import json
import pkgutil
import re
import types
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyattn

APPROVED = Path(__file__).with_name("approved_values.json")
# What differs from machine to machine, or is made of all names of a class or a module.
LEFT_OUT = {"FORMULAS_ONLY", "HAS_NUMBA", "SAME_SIZE", "TYPE_CHECKING"}
LEFT_OUT |= {"BEFORE", "FOUND", "GIVEN", "OWN", "PYTHONS", "TENSORS"}


def modules() -> Iterator[str]:
    """All modules but the kernels, whose constants are parts of compiled programs."""
    for module in pkgutil.walk_packages(tinyattn.__path__, "tinyattn."):
        if "kernels" not in module.name and not module.name.endswith("__main__"):
            yield module.name


def written(value: Any) -> Any:
    """A value as json can hold it; a function or a class by its name."""
    if isinstance(value, (np.dtype, np.generic, enum.Enum)):
        return str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(written(key)): written(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [written(x) for x in value]
    if isinstance(value, (Set, range)):
        return sorted(map(str, map(written, value)))
    if isinstance(value, functools.partial):
        return [written(value.func), written(value.args), written(value.keywords)]
    if isinstance(value, re.Pattern):
        return value.pattern
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else type(value).__name__


def signature(function: Any) -> str:
    """The arguments and defaults, without types, which the type checkers know."""
    own = hasattr(function, "__signature__")
    shown = inspect.signature(function if own else inspect.unwrap(function))
    plain = [
        p.replace(
            annotation=p.empty, default=p.default if p.default is p.empty else Shown(p.default)
        )
        for p in shown.parameters.values()
    ]
    return str(shown.replace(parameters=plain, return_annotation=shown.empty))


class Shown:
    """A default whose repr is the same on every machine."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return json.dumps(written(self.value))


def signatures(owner: Any, module: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Of the functions with defaults that the module defines, of its constructors, which are called
    by position, and the values of its classes."""
    for name, found in vars(owner).items():
        value = getattr(found, "__func__", getattr(found, "fget", None) or found)
        if prefix and isinstance(value, (bool, int, float, str)) and not name.startswith("__"):
            yield f"{prefix}{name}", written(value)
        if getattr(value, "__module__", None) != module:
            continue
        if isinstance(value, type):
            if not prefix and not issubclass(value, enum.Enum):
                yield from signatures(value, module, f"{name}.")
        elif isinstance(value, types.FunctionType):
            shown = signature(value)
            if "=" in shown or (name == "__init__" and shown.count(",") > 1):
                yield f"{prefix}{name}", shown


def values_of(name: str) -> dict[str, Any]:
    """The constants of a module, and its functions' signatures."""
    module = importlib.import_module(name)
    constants = {
        key: written(value)
        for key, value in vars(module).items()
        if re.fullmatch("[A-Z][A-Z0-9_]*", key) and key not in LEFT_OUT
    }
    return json.loads(json.dumps(constants | dict(signatures(module, name))))


@pytest.mark.parametrize("module", list(modules()))
def test_constants_and_signatures_are_as_approved(module: str) -> None:
    approved = json.loads(APPROVED.read_text(encoding="utf-8"))
    try:
        found = values_of(module)
    except ImportError as error:
        pytest.skip(f"{module} needs {error.name}")
    assert found == approved.get(module, {})


def test_every_approved_module_is_there() -> None:
    assert {*json.loads(APPROVED.read_text(encoding="utf-8"))} <= {*modules()}


if __name__ == "__main__":
    found = {name: values for name in modules() if (values := values_of(name))}
    lines = [f"{json.dumps(name)}: {{\n" + ",\n".join(
        f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in values.items()) + "\n}" for name, values in found.items()]  # fmt: skip
    APPROVED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
