"""What the grader sees in the text of an exercise, without running it."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

FOLDER = Path(__file__).parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NEEDED = {  # the modules by which no grader is reached
    *("__future__", "abc", "black_boxes", "bisect", "collections", "copy", "dataclasses", "enum"),
    *("fractions", "functools", "heapq", "itertools", "math", "matplotlib", "numba", "numpy"),
    *("operator", "random", "re", "scipy", "statistics", "string", "time", "tinyattn", "typing"),
}
REACHING = {  # other names that lead to any module or file
    *("__builtins__", "__import__", "delattr", "eval", "exec", "globals", "open", "setattr"),
    "vars",
}
# The same of attributes: np.__dict__, ta.backend.sys
BEHIND = {"__builtins__", "__dict__", "__globals__", "__subclasses__", "_getframe", "os", "sys"}


def parsed(text: str) -> ast.Module | None:
    """None if Python cannot read it; the grader says then why."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def is_hole(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it only raises NotImplementedError, after a docstring and super().__init__()."""
    body = function.body[ast.get_docstring(function) is not None :]
    if len(body) > 1 and ast.unparse(body[0]) == "super().__init__()":
        del body[0]
    error = body[0].exc if len(body) == 1 and isinstance(body[0], ast.Raise) else None
    if isinstance(error, ast.Call):
        error = error.func
    return isinstance(error, ast.Name) and error.id == "NotImplementedError"


def holes(text: str) -> list[str]:
    """The functions that are holes, with their class before a dot. The last of a name counts."""
    found: dict[str, bool] = {}
    tree = parsed(text)
    for node in tree.body if tree else []:
        if isinstance(node, ast.Assign):  # softmax = mine
            found |= {target.id: False for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            found = {name: x for name, x in found.items() if name.partition(".")[0] != node.name}
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(part, FUNCTIONS):
                found[part.name if part is node else f"{node.name}.{part.name}"] = is_hole(part)
    return [name for name, is_left in found.items() if is_left]


def text_of(path: Path) -> str:
    return path.read_text("utf-8-sig", errors="replace") if path.is_file() else ""


def unwritten(path: Path) -> tuple[list[str], bool]:
    """The holes of the exercise that are left in a student's file, and whether it has no others."""
    given, theirs = holes(text_of(FOLDER / path.name)), holes(text_of(path))
    left = [name for name in theirs if name in given]
    return left, bool(left) and len(left) == len(given)


class Shape(ast.NodeTransformer):
    """A function without what one may choose: names, docstrings, types."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}

    def number_of(self, name: str) -> str:
        return (
            name if name in dir(builtins) else self.numbers.setdefault(name, str(len(self.numbers)))
        )

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name, node.returns, node.decorator_list = "", None, []
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign([node.target], node.value))

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.number_of(node.arg))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.number_of(node.id), node.ctx)


def shapes(text: str) -> set[str]:
    """The shapes of all functions and methods of a text."""
    tree = parsed(text)
    functions = [x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)] if tree else []
    return {ast.dump(Shape().visit(function)) for function in functions}


def is_the_solution(name: str, texts: list[str]) -> bool:
    """Whether one of the texts has all that the solution has and the exercise has not. Other names,
    comments and another order do not hide it."""
    solution = text_of(FOLDER / "solutions" / name)
    own = shapes(solution) - shapes(text_of(FOLDER / name))
    return bool(own) and any(own <= shapes(text) for text in texts)


def reaching(text: str) -> list[str]:
    """The names by which a file can read other files or change its grader, such as pytest. No
    exercise needs one."""
    tree = parsed(text)
    nodes = list(ast.walk(tree)) if tree else []
    found, imported = set(), set()
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names]
            modules = names if isinstance(node, ast.Import) else [node.module or "."]
            found |= {name.partition(".")[0] or name for name in modules} - NEEDED
            imported |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in REACHING:
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            is_changed = not isinstance(node.ctx, ast.Load) and name.partition(".")[0] in imported
            if is_changed or node.attr in BEHIND:
                found.add(name)  # such as np.allclose = ...
    return sorted(found)
