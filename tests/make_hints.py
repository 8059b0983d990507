"""The hints of torch_names in one file, for the errors of tinyattn.

    python tests/make_hints.py        writes tinyattn/torch_names/hints.json

A hint says what to write instead of a name, and stands beside the code of that name: as the second
argument of its row, or in its docstring after "In tinyattn:" (`torch_names/marks.py`). Here they
are read from the text of the files. `port/test_torch_names.py` says when the file is old.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tinyattn import hints
from tinyattn.hints import DTYPES

FOLDER = Path(hints.__file__).parent / "torch_names"
# The names that torch_names has of a row or class of functions.py and methods.py.
FORMS = {
    "function": ("ta.{}",),
    "both": ("ta.{}", "Tensor.{}"),
    "changing": ("ta.{}", "Tensor.{}", "Tensor.{}_"),
    "OfTensors": ("Tensor.{}",),
    "OfModules": ("Module.{}",),
}
# The files whose lists `__all__` have the other names.
LISTS = {
    "F": "nn/functional.py nn/windows.py",
    "nn": "nn/__init__.py nn/attention.py nn/convolution.py nn/modules.py nn/parameter.py "
    "nn/recurrent.py nn/transformer.py",
    "nn.init": "nn/init.py",
    "optim": "optim/__init__.py optim/optimizer.py",
    "ta": "__init__.py devices.py",
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def named(tree: Any) -> Iterator[tuple[str, Any]]:
    """(name, node) of the functions, classes and values of a file or class."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield from ((to.id, node.value) for to in node.targets if isinstance(to, ast.Name))


def hint(node: Any, start: str = "In tinyattn: ") -> str:
    """The text in a row, or the paragraph of a docstring that begins so; "" if there is none."""
    match node:
        case ast.Call(args=[_, ast.Constant(value=str(text))]) if start == "In tinyattn: ":
            return f"write {text}"
        case ast.FunctionDef() | ast.ClassDef() | ast.Module():
            text = ast.get_docstring(node) or ""
            found = re.search(rf"(?ms)^{start}(.*?)(?=\n\s*\n|\nIn place: |\Z)", text)
            return " ".join(found[1].split()) if found else ""
    return ""


def rows() -> Iterator[tuple[str, str]]:
    """The names of the functions and methods that torch_names adds, with their hints."""
    methods = dict(named(parsed(FOLDER / "methods.py")))
    for name in methods["CHANGED"].value.split():
        yield f"Tensor.{name}_", ""
    marked = [(kind, row) for kind in ("OfTensors", "OfModules") for row in named(methods[kind])]
    for name, node in named(parsed(FOLDER / "functions.py")):
        is_row = isinstance(node, ast.Call)
        marks = [node.func] if is_row else getattr(node, "decorator_list", [])
        marked += [(ast.unparse(mark), (name, node)) for mark in marks[:1]]
    for kind, (name, node) in marked:
        for form in FORMS.get(kind, ()):
            is_changed = kind == "changing" and form.endswith("_")
            yield form.format(name), hint(node, "In place: " if is_changed else "In tinyattn: ")


def listed(owner: str) -> dict[str, Any]:
    """The names in the lists `__all__` of an owner's files, with what they stand for."""
    names: set[str] = set()
    nodes: dict[str, Any] = {}
    paths = [FOLDER / path for path in LISTS[owner].split()]
    for path in paths:
        nodes |= dict(named(parsed(path)))
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.Assign, ast.AugAssign)) and "__all__" in ast.unparse(node):
                texts = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
                names |= set(" ".join(map(str, texts)).split())
    for name in names:  # some are files or folders
        for path in (paths[0].parent / f"{name}.py", paths[0].parent / name / "__init__.py"):
            nodes |= {name: parsed(path)} if path.is_file() else {}
    return {name: nodes.get(name) for name in sorted(names)}


def added() -> dict[str, str]:
    """The names that torch_names has, with what to write without it, or ""."""
    found = dict(rows())
    for name, kind in DTYPES.items():
        found[f"Tensor.{name}"] = f"write x.to(ta.{kind})"
        found |= {f"ta.{name}": f"write ta.{kind}"} if name not in ("byte", "char") else {}
        text = f"write ta.tensor(data, dtype=ta.{kind}), or ta.zeros for sizes"
        found[f"ta.{name.capitalize()}Tensor"] = text
    for owner in LISTS:
        for name, node in listed(owner).items():
            found[f"{owner}.{name}"] = hint(node)
            if isinstance(node, ast.Call) and owner == "nn":  # a module that calls a function of F
                function = f"F.{ast.unparse(node.args[1]).partition('.')[2]}"
                found[f"nn.{name}"] = found.get(function, f"write {function}")
    return found


def text() -> str:
    """What the file holds: a line for each name, in their order."""
    return json.dumps(added(), indent=0, sort_keys=True) + "\n"


if __name__ == "__main__":
    (FOLDER / "hints.json").write_text(text(), encoding="utf-8")
