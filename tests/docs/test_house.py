"""The package is built in one direction, and a reader of one call meets few functions.

Imports run down only: a module imports what stands before it in `ORDER`, imports for typing and
inside functions included. So it can be read from top to bottom, and there is no circle.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from formulas import package
from tracing import (
    Trace,
    attention,
    encoder_layer,
    measured_alone,
    product_forward,
    smallest,
    softmax,
)

import tinyattn
from tinyattn.engine.op import registry

PACKAGE = Path(tinyattn.__file__).parent
# The wings, in the order in which one reads them, each with its files in that order.
WINGS = {
    "errors": "",
    "base": "names backend checks random __init__",
    "kernels": "blas malloc compiled sums threads matmul visibility packing __init__ cpu "
    "gpu range_checks",
    "engine": "grad_mode versions promotion autograd guard rules op __init__",
    "ops": "arguments arithmetic elementwise activations shapes embedding indexing "
    "reductions order products einsum visibility softmax losses normalization dropout sequences "
    "positions attention scaled_dot_product __init__",
    "tensors": "values gradients conversions operators tensor create __init__",
    "masks": "",
    "functional": "",
    "nn": "init module containers functions layers position cache attention "
    "transformer decoder int8 lora __init__",
    "optim": "optimizer updates schedules clipping __init__",
    "hints": "",
    "testing": "slopes finite_differences op_checks __init__",
    "fonts": "",
    "viz": "",
    "training": "batches atomic_write checkpoint distributed loop __init__",
    "generation": "",
    "observation": "",
    "interop": "",
    "models": "settings published adapters gguf bert heads tokenizer_files sentence_files sentence "
    "causal_files int8 chat causal __init__",
    "__init__": "",
    # Beside the rest, which uses nothing of it.
    "torch_names": "marks dtypes devices functions methods autograd testing cuda "
    "backends.cudnn backends nn.windows nn.functional nn.parameter nn.init "
    "nn.modules nn.convolution nn.utils.rnn nn.utils nn.recurrent nn.attention nn.transformer nn "
    "optim.factors optim.lr_scheduler optim.optimizer optim utils.data utils einops_backend "
    "__init__ scan",
}
ORDER = [
    wing if file in ("", "__init__") else f"{wing}.{file}"
    for wing, files in WINGS.items()
    for file in files.split() or [""]
]
# The compiled kernels are imported when the first array asks for them, and the hints when the text
# of an error is read.
WHEN_NEEDED = {("kernels.compiled", "kernels.cpu"), ("base.names", "hints")}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def place_of(name: str) -> int:
    """The place of a module in ORDER; the files of kernels/cpu and kernels/gpu have one each."""
    for folder in ("kernels.cpu", "kernels.gpu"):
        if name.startswith(folder):
            name = folder
    assert name in ORDER, f"give the file {name} its place in WINGS, where a reader reads it"
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
    assert "save" in tinyattn._LATE_FUNCTIONS
    assert not set(tinyattn._LATE_FUNCTIONS) & {path.stem for path in PACKAGE.glob("*")}


# Files of more than 500 lines, with the reason.
LONG_FILES: dict[str, str] = {}


def test_a_file_has_one_idea() -> None:
    lines = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name for name, number in lines.items() if number > 500} == set(LONG_FILES)


def test_all_code_is_formatted() -> None:
    assert not [name_of(path) for path in MODULES if "fmt: skip" in path.read_text("utf-8")]


# In the mode to read: how many calls, files and lines of the package a walk has at most.
WALKS = {
    product_forward: Trace(lines=100, distinct=59, calls=9, functions=9, files=5),
    softmax: Trace(lines=120, distinct=100, calls=20, functions=20, files=9),
    attention: Trace(lines=1_050, distinct=330, calls=200, functions=80, files=18),
    encoder_layer: Trace(lines=2_300, distinct=360, calls=350, functions=100, files=26),
}


@pytest.mark.parametrize("action", WALKS, ids=lambda action: action.__name__)
def test_a_reader_of_one_call_meets_little(action: Callable[[], Any]) -> None:
    """From the public name to the arrays; comprehensions are not functions."""
    walk, most = measured_alone(action.__doc__ or "", jit=False), WALKS[action]
    assert not [f for f in Trace._fields if getattr(walk, f) > getattr(most, f)], walk


def test_an_encoder_is_trained_by_few_lines() -> None:
    """The lines of the package that examples/smallest.py runs, each counted once."""
    walk = measured_alone(smallest.__doc__ or "", jit=False)
    assert walk.distinct <= 1_170
    assert walk.files <= 45
    for page in ("README.md", "README_zh.md", "docs/index.md"):
        assert "1,200" in (PACKAGE.parent / page).read_text("utf-8"), page


def test_what_is_said_to_be_in_a_file_is_there() -> None:
    """What sends a reader to `mul` in `ops/arithmetic.py` names the right file."""
    wrong, count = [], 0
    root = PACKAGE.parent
    folders = ("tinyattn", "tests", "benchmarks", "examples", "docs/exercises")
    sources = [path for folder in folders for path in (root / folder).rglob("*.py")]
    for path in [*sources, *root.glob("docs/*.md"), *root.glob("docs/course/*.md")]:
        text = re.sub(r"\s*\n\s*#?\s*", " ", path.read_text("utf-8"))
        for name, file in re.findall(r"`([\w.]+)`,? (?:is )?(?:in|of) \[?`([\w/]+\.py)`", text):
            count += 1
            texts = [x.read_text("utf-8") for x in sources if f"{x}".endswith(f"/{file}")]
            defined = rf"(?m)^ *(?:(?:def|class) +)?{name.rpartition('.')[2]}\b *[(:=]"
            if not any(re.search(defined, text) for text in texts):
                wrong.append(f"{path.name}: {name} in {file}")
    assert count >= 9
    assert not wrong


def test_nothing_looks_for_an_op_below_the_ops() -> None:
    """A kernel or the engine that asks an object for the name of an op would call upwards."""
    upward = []
    for path in MODULES:
        if place_of(name_of(path)) >= ORDER.index("ops.arguments"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "hasattr",
                "getattr",
            ):
                name = getattr(node.args[1], "value", None)
                if name in registry or "namespace" in ast.unparse(node.args[0]):
                    upward.append(f"{name_of(path)}:{node.lineno} {ast.unparse(node)}")
    assert not upward


def test_every_formula_that_has_kernels_is_above_them() -> None:
    """Kernels import nothing of the ops: a formula names its kernels, and not the other way."""
    assert len(package.formulas) >= 30
    for function in package.formulas.values():
        assert function.formula.__module__.startswith(("tinyattn.ops", "tinyattn.optim"))
