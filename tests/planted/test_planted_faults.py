"""The list of planted faults fits the code: `mutation.py` needs every one of them in its place."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from planted_faults import Fault, all_faults

ROOT = Path(__file__).parents[2]
FAULTS = all_faults()


def test_there_are_as_many_as_promised() -> None:
    assert len(FAULTS) >= 150
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("file", sorted({fault.file for fault in FAULTS}))
def test_every_fault_has_its_place_and_python_stays_valid(file: str) -> None:
    before = (ROOT / file).read_text(encoding="utf-8")
    for fault in FAULTS:
        if fault.file == file:
            after = fault.planted(ROOT)
            assert after != before
            if file.endswith(".py"):
                ast.parse(after)


def test_every_fault_names_tests_that_there_are() -> None:
    """Else `mutation.py` ends, because pytest has nothing to run. -k looks for words in names."""
    command = [sys.executable, "-m", "pytest", "tests", "--collect-only", "-q", "-m", ""]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [line for line in listed.lower().splitlines() if "::" in line]
    for first in sorted({fault.first for fault in FAULTS}):
        places, _, words = first.lower().partition(" -k ")
        expression = re.sub(r"[\w\[\].-]+", word_in_name, " ".join(shlex.split(words)) or "test")
        places = tuple(place.strip("'") for place in places.split())
        assert any(name.startswith(places) and eval(expression) for name in names), first


def word_in_name(found: re.Match[str]) -> str:
    word = found[0]
    return word if word in ("and", "or", "not") else f"({word!r} in name)"


def test_a_fault_without_its_place_is_an_error() -> None:
    file = "tinyattn/ops/elementwise.py"
    for under, old in [("no such line", "grad"), ("def add", "no such text"), ("def add", "x")]:
        with pytest.raises(ValueError, match=r"occurs \d+ times"):
            Fault(file, under, old, "new", "reason", "").planted(ROOT)


def test_the_last_full_run_noticed_nearly_all() -> None:
    """Of the faults that there were: docs/reliability.md says if there are more by now."""
    result = json.loads((Path(__file__).parent / "mutation.json").read_text(encoding="utf-8"))
    assert result["noticed"] + len(result["survivors"]) == result["faults"] >= 150
    assert result["noticed"] / result["faults"] >= 0.95
    page = " ".join((ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").split())
    assert f"was on {result['date']}. It planted {result['faults']:,} faults" in page
    assert f"and the tests noticed {result['noticed']:,}" in page
    assert ("The list has grown since" in page) == (result["faults"] < len(FAULTS))
