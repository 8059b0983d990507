"""Where a package is missing, a program ends with one line that says what to install."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = """
import runpy, sys
package, path = sys.argv[1:]
sys.modules[package] = None  # an import of it fails, as if it were not installed
sys.path.insert(0, path.rpartition("/")[0])
sys.argv = [path]
runpy.run_path(path, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("path", "package", "name", "extras"),
    [
        ("examples/classify_texts.py", "sklearn", "scikit-learn", "examples"),
        ("examples/train_digits.py", "sklearn", "scikit-learn", "examples"),
        ("examples/stress_baselines.py", "sklearn", "scikit-learn", "examples"),
        ("examples/train_encoder.py", "tqdm", "tqdm", "examples"),
        ("examples/ask_stdlib.py", "tqdm", "tqdm", "examples,text"),
        ("examples/few_shot.py", "tqdm", "tqdm", "examples,text"),
        ("docs/build.py", "babel", "babel", "docs"),
        ("docs/notebooks.py", "nbformat", "nbformat", "docs"),
    ],
)
def test_a_missing_package_is_said_in_one_line(path, package, name, extras):
    command = [sys.executable, "-c", WITHOUT, package, str(ROOT / path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr == f'{name} is missing: pip install -e ".[{extras}]"\n'
    assert (ended.returncode, ended.stdout) == (1, "")


def asked_for():
    """The package and the extra of each call of optional_package in the library."""
    for path in sorted((ROOT / "tinyattn").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "optional_package(" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "optional_package":
                package, _, extra = (getattr(x, "value", None) for x in node.args)
                yield package.partition(".")[0], extra


def test_the_extra_of_a_package_has_it():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = {
        extra: re.findall(r"^[\w-]+", packages, re.MULTILINE)
        for extra, packages in settings["options.extras_require"].items()
    }
    pairs = set(asked_for())
    assert {package for package, _ in pairs} >= {"torch", "matplotlib", "jinja2", "gguf"}
    for package, extra in pairs:
        assert package in extras[extra], (package, extra)
