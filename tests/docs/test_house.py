"""The package is built in one direction, and a reader of one call meets few functions.

Imports run down only: a module imports what stands before it in `ORDER`, imports for typing and
inside functions included. So it can be read from top to bottom, and there is no circle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tracing import attention, measured_alone, smallest

import tinyattn

PACKAGE = Path(tinyattn.__file__).parent
# The wings, in the order in which one reads them, each with its files in that order.
WINGS = {
    "errors": "",
    "base": "names short_names backend checks random __init__",
    "kernels": "blas compiled sums float16 threads matmul visibility packing __init__ cpu gpu "
    "range_checks",
    "engine": "grad_mode versions promotion autograd guard rules op __init__",
    "ops": "types arguments arithmetic elementwise activations shapes embedding indexing "
    "reductions order products einsum visibility softmax losses normalization dropout sequences "
    "positions attention scaled_dot_product __init__",
    "tensors": "values gradients conversions operators tensor create __init__",
    "masks": "",
    "functional": "",
    "nn": "summary module containers init activations layers losses position cache attention "
    "transformer decoder lora __init__",
    "optim": "optimizer updates schedules clipping __init__",
    "hints": "",
    "testing": "finite_differences op_checks __init__",
    "viz": "",
    "training": "batches atomic_write checkpoint distributed captured_step __init__",
    "models": "settings published gguf bert tokenizer_files sentence_files sentence generation "
    "causal_files int8 causal observation interop __init__",
    "__init__": "",
    # Beside the rest, which uses nothing of it.
    "torch_names": "marks dtypes devices functions in_place methods autograd cuda backends.cudnn "
    "backends nn.functional nn.arguments nn.parameter nn.init nn.modules nn.utils.rnn nn.utils "
    "nn.recurrent nn.attention nn.transformer nn optim.lr_scheduler optim.optimizers optim "
    "utils.data utils einops_backend __init__ scan",
}
ORDER = [
    wing if file in ("", "__init__") else f"{wing}.{file}"
    for wing, files in WINGS.items()
    for file in files.split() or [""]
]
# The compiled kernels and those of a GPU are imported when the first array asks for them, and the
# hints when the text of an error is read.
WHEN_NEEDED = {("kernels.compiled", "kernels.cpu"), ("kernels", "kernels.gpu")}
WHEN_NEEDED |= {("base.names", "hints")}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


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
    assert "capture" in tinyattn._LATE_FUNCTIONS
    assert not set(tinyattn._LATE_FUNCTIONS) & {path.stem for path in PACKAGE.glob("*")}


# Files of more than 500 lines, with the reason.
LONG_FILES: dict[str, str] = {}


def test_a_file_has_one_idea() -> None:
    lines = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name for name, number in lines.items() if number > 500} == set(LONG_FILES)


def test_all_code_is_formatted() -> None:
    assert not [name_of(path) for path in MODULES if "fmt: skip" in path.read_text("utf-8")]


def test_who_reads_attention_meets_few_functions() -> None:
    """In the mode to read, from the module to the arrays; comprehensions are not functions."""
    walk = measured_alone(attention.__doc__ or "", jit=False)
    assert walk.functions <= 85
    assert walk.calls <= 310


def test_an_encoder_is_trained_by_few_lines() -> None:
    """The lines of the package that examples/smallest.py runs, each counted once."""
    assert measured_alone(smallest.__doc__ or "", jit=False).distinct < 1_200
    for page in ("README.md", "README_zh.md", "docs/index.md"):
        assert "1,200" in (PACKAGE.parent / page).read_text("utf-8"), page
