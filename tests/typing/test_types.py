"""What type checkers know about tinyattn: mypy and basedpyright read what a user writes.

With TINYATTN_TYPED_PYTHON=path/to/python they look for the package in that Python's environment,
where a wheel is installed; else they read the folder of this checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("user_program.py")
OF_TORCH = Path(__file__).with_name("torch_program.py")
INSTALLED = os.environ.get("TINYATTN_TYPED_PYTHON")
# Each line is a mistake that both checkers must report.
WRONG = """
x.foo
ta.foo
ta.exp("a")
ta.sum(x, axis="rows")
F.softmax("a")
x + "a"
x[1.5]
x.reshape("a")
x.max(0).value
linear("a")
linear(x, x)
linear.to(device=3)
nn.Linear("a", 2)
nn.ModuleList([linear])["a"]
count("a")
ta.tensor([1.0], 3, "cpu", "yes", 5)
ta.viz.foo
ta.grad(3.0, x)
ta.batches.DataLoader((x,), shufle=True)
ta.batches.DataLoader((x,), "2")
ta.op(promot=True)
""".strip().splitlines()
WRONG_HEAD = """
import tinyattn as ta
from tinyattn import functional as F, nn
x, linear = ta.ones(2), nn.Linear(2, 2)
@ta.no_grad()
def count(n: int) -> int: return n
""".strip().splitlines()


class Report(NamedTuple):
    """What a checker says about a line: a revealed type or an error."""

    file: str
    line: int
    revealed: str | None
    message: str


def run(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    # Without PYTHONPATH, because it may name this checkout, and this is about a wheel.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        command, cwd=folder, env={**environment, **variables}, capture_output=True, text=True
    )
    assert result.returncode in (0, 1), result.stderr or result.stdout
    return result.stdout


def mypy(folder: Path, files: list[str], python: str | None) -> list[Report]:
    """What mypy says; the package is that of a Python's environment, or of this checkout."""
    options = [
        "--config-file=",
        "--follow-imports=silent",
        "--no-error-summary",
        "--strict-equality",
        "--ignore-missing-imports",  # of packages without types, in the examples
    ]
    if python is not None:
        options += ["--python-executable", python]
    path = {} if python is not None else {"MYPYPATH": str(ROOT)}
    text = run([sys.executable, "-m", "mypy", *options, *files], folder, path)
    reports = []
    for line in text.splitlines():
        match = re.fullmatch(r"(.+?):(\d+): (?:error|note): (.*)", line)
        if match:
            file, number, message = match.groups()
            revealed = re.fullmatch(r'Revealed type is "(.*)"', message)
            if revealed or ": error:" in line:
                kind = shortened(revealed[1]) if revealed else None
                reports.append(Report(Path(file).name, int(number), kind, message))
    return reports


def basedpyright(folder: Path, files: list[str], python: str | None) -> list[Report]:
    """What basedpyright says, in pyright's standard mode."""
    settings = {"typeCheckingMode": "standard", "include": files, "reportUnusedExpression": False}
    if python is None:
        settings["extraPaths"] = [str(ROOT)]
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(folder)]
    text = run([*command, "--pythonpath", python or sys.executable], folder, {})
    reports = []
    for entry in json.loads(text)["generalDiagnostics"]:
        revealed = re.search(r'^Type of ".*" is "(.*)"$', entry["message"], re.DOTALL)
        if revealed or entry["severity"] == "error":
            kind = shortened(revealed[1]) if revealed else None
            line = entry["range"]["start"]["line"] + 1
            reports.append(Report(Path(entry["file"]).name, line, kind, entry["message"]))
    return reports


def shortened(text: str) -> str:
    """A type as both checkers can write it: without modules, a named tuple by its name."""
    text = re.sub(r"^tuple\[.*, fallback=(.*)\]$", r"\1", text)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text)


CHECKERS: dict[str, Callable[[Path, list[str], str | None], list[Report]]] = {
    "mypy": mypy,
    "basedpyright": basedpyright,
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_code_of_the_readme_and_the_examples_has_no_error(checker: str, tmp_path: Path) -> None:
    pytest.importorskip(checker, reason=f'needs {checker}: pip install -e ".[dev]"')
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    for number, block in enumerate(blocks):
        (tmp_path / f"readme_{number}.py").write_text(block, encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        shutil.copy(path, tmp_path)
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    assert not CHECKERS[checker](tmp_path, files, INSTALLED)


@pytest.fixture(scope="module", params=CHECKERS)
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[Report]:
    """All reports of one checker on the programs of users and on the wrong one."""
    pytest.importorskip(request.param, reason=f'needs {request.param}: pip install -e ".[dev]"')
    folder = tmp_path_factory.mktemp(request.param)
    for program in (PROGRAM, OF_TORCH):
        shutil.copy(program, folder)
    wrong = "\n".join([*WRONG_HEAD, *WRONG]) + "\n"
    (folder / "wrong_program.py").write_text(wrong, encoding="utf-8")
    files = [PROGRAM.name, OF_TORCH.name, "wrong_program.py"]
    return CHECKERS[request.param](folder, files, INSTALLED)


def test_types_are_what_the_comments_say(reports: list[Report]) -> None:
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    expected = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(lines, 1)
        if line.strip().startswith("reveal_type(")
    }
    assert len(expected) >= 70
    assert all(expected.values())
    revealed = {r.line: r.revealed for r in reports if r.file == PROGRAM.name and r.revealed}
    wrong = [
        f"{lines[number - 1].strip()}: {revealed.get(number)}"
        for number, kind in expected.items()
        if revealed.get(number) != kind
    ]
    assert not wrong


@pytest.mark.parametrize("program", [PROGRAM.name, OF_TORCH.name])
def test_a_correct_program_has_no_error(program: str, reports: list[Report]) -> None:
    assert not [r for r in reports if r.file == program and r.revealed is None]


def test_each_mistake_is_an_error(reports: list[Report]) -> None:
    noticed = {r.line for r in reports if r.file == "wrong_program.py" and r.revealed is None}
    first = len(WRONG_HEAD) + 1
    assert not [line for number, line in enumerate(WRONG, first) if number not in noticed]
    assert min(noticed) >= first


@pytest.mark.parametrize("program", [PROGRAM, OF_TORCH], ids=lambda path: path.stem)
def test_the_program_runs(program: Path, tmp_path: Path) -> None:
    # In a process of its own, because importing torch_names gives methods to Tensor.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(program)], cwd=tmp_path, env=environment, check=True)
