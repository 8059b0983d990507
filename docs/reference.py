"""Write signatures and first sentences into docs/api.md: python docs/reference.py [--check]

The blocks {reference} of this page name what is public: one name in a line, or `class NAME`.
Beneath each name this command writes its first sentence, and the public methods of a class, so that
the page can be read where nothing is built. In the site docs/conf.py puts the whole docstrings in
their place.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parent / "api.md"
BLOCK = re.compile(r"^```\{reference\} (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"^(?:class )?([\w.]+)", re.MULTILINE)
METHOD = re.compile(r"^  \.(\w+)", re.MULTILINE)


def find(module: str, name: str) -> object:
    """What the name stands for: in a module, or, with dots, from the top of the library."""
    found = importlib.import_module(module)
    if "." in name:
        module, _, name = name.rpartition(".")
        found = importlib.import_module(module)
    return getattr(found, name)


def signature_of(function: object, is_method: bool = False) -> str:
    """The names of the arguments and their defaults, without types, and without self."""
    if inspect.isclass(function) and issubclass(function, Exception):
        return "(message)"
    found = list(inspect.signature(function).parameters.values())
    text = str(inspect.Signature([x.replace(annotation=x.empty) for x in found[is_method:]]))
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)


def first_sentence(described: object) -> str:
    text = (inspect.getdoc(described) or "").partition("\n\n")[0]
    return re.split(r"(?<=[.:])\s", " ".join(text.split()), maxsplit=1)[0].rstrip(":.") + "."


def methods_of(kind: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties that have a docstring of their own; not those of Module."""
    seen = {"forward"} if kind.__name__ != "Module" else set()
    for base in kind.__mro__:
        if base is object or base.__module__.partition(".")[0] != "tinyattn":
            continue
        if base.__name__ == "Module" and kind is not base:
            break
        for name, value in vars(base).items():
            if name in seen or name.startswith("_") or not getattr(value, "__doc__", None):
                continue
            if isinstance(value, (property, classmethod, staticmethod)) or inspect.isroutine(value):
                seen.add(name)
                yield name, value


def wrapped(text: str, indent: int, more: int = 0) -> list[str]:
    first, rest = " " * indent, " " * (indent + more)
    return textwrap.wrap(
        text, 100, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


def described(module: str, name: str) -> Iterator[str]:
    """The lines of one name."""
    found = find(module, name)
    is_class = inspect.isclass(found)
    yield from wrapped("class " * is_class + name + signature_of(found), 0, more=8)
    yield from wrapped(first_sentence(found), 4)
    for method, value in methods_of(found) if is_class else ():
        call = ""
        if not isinstance(value, property):
            is_method = not isinstance(value, staticmethod)
            call = signature_of(getattr(value, "__func__", value), is_method)
        yield from wrapped(f".{method}{call}", 2, more=8)
        yield from wrapped(first_sentence(value), 6)


def written(text: str) -> str:
    """The page with what this command writes."""

    def block(found: re.Match[str]) -> str:
        module, names = found[1], NAME.findall(found[2])
        lines = [line for name in names for line in described(module, name)]
        return "\n".join([f"```{{reference}} {module}", *lines, "```"])

    return BLOCK.sub(block, text)


def directives(text: str) -> str:
    """The page for Sphinx: a directive of autodoc for each name."""

    def block(found: re.Match[str]) -> str:
        lines = ["```{eval-rst}", f".. currentmodule:: {found[1]}"]
        for part in re.split(r"\n(?=\S)", found[2].strip()):
            kind = "autoclass" if part.startswith("class ") else "autofunction"
            lines += ["", f".. {kind}:: {NAME.match(part)[1]}"]
            if methods := METHOD.findall(part):
                lines.append(f"   :members: {', '.join(methods)}")
        return "\n".join([*lines, "```"])

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    if sys.argv[1:] == ["--check"]:
        sys.exit("python docs/reference.py writes docs/api.md anew" if written(text) != text else 0)
    PAGE.write_text(written(text), "utf-8")
