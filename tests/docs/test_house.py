"""The package is built in one direction, and stays small enough to read.

Imports run down only: a module imports what stands before it in `ORDER`, imports for typing and
inside functions included. So it can be read from top to bottom, and there is no circle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinyattn

PACKAGE = Path(tinyattn.__file__).parent
ORDER = """
    errors names backend checks random promotion
    kernels.sums kernels.blas kernels.threads kernels.matmul kernels.packing
    kernels.reference kernels kernels.cpu kernels.gpu kernels.late_errors
    grad_mode versions autograd guard rules op in_place
    ops.elementwise ops.shape ops.reduction ops.linear ops.activation ops.softmax ops.layers
    ops.attention ops
    methods tensor create functions masks functional
    nn.module nn.init nn.activations nn.layers nn.losses nn.position nn.attention nn.transformer
    nn.decoder nn
    generation batches optim distributed atomic_write checkpoint models.bert models.sentence models
    finite_differences testing viz interop captured_step __init__
""".split()  # noqa: SIM905
# The compiled kernels and those of a GPU are imported when the first array asks for them.
WHEN_NEEDED = {("kernels", "kernels.cpu"), ("kernels", "kernels.gpu")}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
CORE = ("tensor", "op", "rules", "autograd", "ops", "kernels/reference", "nn")


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def place_of(name: str) -> int:
    """The place of a module in ORDER; the files of kernels/cpu and kernels/gpu have one each."""
    for folder in ("kernels.cpu", "kernels.gpu"):
        if name.startswith(folder):
            name = folder
    return ORDER.index(name)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) for every relative import of a file, wherever it stands."""
    package = list(path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        folder = package[: len(package) - node.level + 1]
        base = [*folder, *(node.module.split(".") if node.module else [])]
        for alias in node.names:
            inside = PACKAGE.joinpath(*base, alias.name)
            if inside.with_suffix(".py").is_file() or inside.is_dir():
                yield node.lineno, ".".join([*base, alias.name])
            elif base:
                yield node.lineno, ".".join(base)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_run_down_only(path: Path) -> None:
    name = name_of(path)
    upward = [
        f"{name}:{line} -> {other}"
        for line, other in imported(path)
        if place_of(other) > place_of(name) and (name, other) not in WHEN_NEEDED
    ]
    assert not upward


def test_the_order_names_every_module() -> None:
    assert {place_of(name_of(path)) for path in MODULES} == set(range(len(ORDER)))


def test_functions_are_short_and_take_few_arguments() -> None:
    """Seventy lines fill a screen; nobody remembers more than ten arguments.

    More have constructors, a picture, and scaled_dot_product_attention, as in PyTorch.
    """
    public = ("__init__", "show_heatmaps", "scaled_dot_product_attention")
    long = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                a = node.args
                count = len(a.posonlyargs + a.args + a.kwonlyargs)
                doc = ast.get_docstring(node, clean=False) or ""
                lines = (node.end_lineno or 0) - node.lineno - doc.count("\n")
                # A picture has as many settings as matplotlib and the d2l book give it.
                if count > 10 + 3 * (node.name in public) or lines > 70:
                    long.append(f"{name_of(path)}.{node.name}: {count} arguments, {lines} lines")
    assert not long


def test_no_function_that_is_imported_late_has_the_name_of_a_module() -> None:
    """To import that module would put it in the place of the function, for the whole process."""
    assert "capture" in tinyattn._LAZY
    assert not set(tinyattn._LAZY) & {path.stem for path in PACKAGE.glob("*.py")}


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_the_core_can_be_read_in_a_day() -> None:
    core = [p for p in MODULES if name_of(p).replace(".", "/").startswith(CORE)]
    core = [p for p in core if name_of(p) not in ("optim", "nn.decoder")]
    assert lines_of(core) <= 5_050
    assert lines_of([*MODULES, *PACKAGE.rglob("*.cu")]) <= 16_450
