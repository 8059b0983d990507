"""Outputs of a notebook are compared with those of a build: what counts as another output."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason='Sphinx is not installed: pip install -e ".[docs]"')

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
NOTEBOOKS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(NOTEBOOKS)


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ("loss 0.456, 82.5% right", "loss 0.450, 82.4% right"),
        ("relative error 2e-16", "relative error 4.1e-15"),
        ("[ 2.  3. 13.]", "[ 2.        3.       13.000001]"),
        ("one by one 0.7 ms, 2.1 times as long", "one by one 30 ms, 1.4 times as long"),
        ("91,777 words", "91,777 words\n"),
    ],
)
def test_alike(kept, found):
    assert NOTEBOOKS.are_alike(kept, found)


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ("loss 0.456", "loss 0.52"),
        ("right: True", "right: False"),
        ("(32, 10, 512)", "(32, 10, 64)"),
        ("[1.0, 2.0]", "[1.0, 2.0, 3.0]"),
        ("error 2e-16", "error 2e-3"),
        ("91,777 words", "9,177 words"),
        ("selling", "sterman"),
        ("sum 1", "sum -1"),
        ("memory 3 MiB", "memory 4 MiB"),
    ],
)
def test_not_alike(kept, found):
    assert not NOTEBOOKS.are_alike(kept, found)


def test_streams_of_a_build_are_printed_once():
    def stream(text):
        return types.SimpleNamespace(text=text, get={"name": "stdout"}.get)

    parts = {"outputs": [stream("a\n"), stream("b\n")]}
    merged = {"outputs": [stream("a\nb\n"), stream("b\n")]}
    assert NOTEBOOKS.printed(parts, is_merged=False) == "a\nb\n"
    assert NOTEBOOKS.printed(merged, is_merged=True) == "a\nb\n"
