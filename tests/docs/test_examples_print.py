"""Programs run without docstrings (python -OO), without stdout, and in an encoding of few signs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("examples", "docs", "benchmarks", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "_build" not in path.parts  # copies beside the site, which have nothing beside them
    and "argparse.ArgumentParser(" in (text := path.read_text("utf-8"))
    and "__main__" in text
]
WITHOUT_STDOUT = """
import runpy, sys
sys.stdout = None
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    settings = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "TINYATTN_JIT": "0"} | environment
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        timeout=300,
        check=False,
    )


def right(done: subprocess.CompletedProcess[bytes]) -> bool:
    """Whether the program ended well, or with a sentence that names a package to install."""
    return not done.returncode or b"is missing" in done.stderr


def test_there_are_programs() -> None:
    assert {"examples/chat.py", "docs/exercises/score.py", "benchmarks/lesson.py"} <= set(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_needs_no_docstring_and_no_sign_beyond_ascii(program: str) -> None:
    command = [program]
    if program.startswith("benchmarks/"):
        command = ["-m", program.removesuffix(".py").replace("/", ".")]
    done = run("-OO", *command, "--help")
    assert right(done), done.stderr.decode()
    done = run(*command, "--help", PYTHONIOENCODING="ascii")
    assert right(done), done.stderr.decode()


def test_the_scan_prints_what_the_encoding_does_not_have(tmp_path: Path) -> None:
    program = tmp_path / "\u597d.py"
    program.write_text("import torch\ntorch.no_such(1)  # \u597d\n", "utf-8")
    command = ["-m", "tinyattn.torch_names.scan"]
    assert not run("-OO", *command, "--help").returncode
    done = run(*command, str(program), PYTHONIOENCODING="cp1252")
    assert b"no_such" in done.stdout, done.stderr.decode()
    assert b"\\u597d.py" in done.stdout


def test_an_example_trains_without_stdout(tmp_path: Path) -> None:
    example = "examples/train_encoder.py"
    done = run("-c", WITHOUT_STDOUT, example, "--short", "--out", str(tmp_path))
    assert right(done), done.stderr.decode()
    assert not done.stdout
    assert (tmp_path / "attention.png").exists() or b"is missing" in done.stderr


def test_texts_and_labels_of_any_script_are_printed_in_any_encoding(tmp_path: Path) -> None:
    table = tmp_path / "texts.csv"
    rows = [f"good \u597d book {i},\u6b63\nbad \u574f thing {i},\u8d1f\n" for i in range(20)]
    table.write_text("text,label\n" + "".join(rows), "utf-8")
    example, out = "examples/classify_texts.py", ["--out", str(tmp_path / "\u51fa")]
    columns = ["--text", "text", "--label", "label"]
    done = run(example, str(table), *columns, *out, "--short", PYTHONIOENCODING="cp1252")
    assert right(done), done.stderr.decode("cp1252")
    if not done.returncode:
        assert b"\\u6b63 20" in done.stdout
        done = run(example, *out, "--predict", "good \u597d", PYTHONIOENCODING="cp1252")
        assert not done.returncode, done.stderr.decode("cp1252")
        assert b"good \\u597d" in done.stdout


def test_the_score_of_exercises_is_printed_in_any_encoding(tmp_path: Path) -> None:
    score = "docs/exercises/score.py"
    for kind in ("--csv", "--json"):
        done = run(score, kind, str(tmp_path / "\u597d"), PYTHONIOENCODING="cp1252")
        assert b"\\u597d" in done.stdout, done.stderr.decode("cp1252")
    done = run("-c", WITHOUT_STDOUT, score, "--csv", str(tmp_path))
    assert b"Traceback" not in done.stderr, done.stderr.decode()
