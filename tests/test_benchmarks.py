"""The benchmark's harness: that it measures, compares and survives, not what the times are."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import harness, processes, report
from benchmarks.cases import Case
from benchmarks.harness import Row
from benchmarks.processes import SIDES, Settings
from benchmarks.rows import all_cases

ROOT = processes.ROOT
SHORT = Settings(threads=1, repeats=1, short=True)


def named(name: str) -> Case:
    return next(case for case in all_cases(short=True) if case.name == name)


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_a_short_run_prints_a_table_and_writes_json_and_a_plot(tmp_path: Path) -> None:
    file = tmp_path / "new" / "figures.json"
    patterns = ("op exp", "masked softmax small", "step tiny p=0", "attention 512 padded")
    only = [word for pattern in patterns for word in ("--only", pattern)]
    done = benchmarks("--short", "--json", str(file), *only)
    # An exit status of 0 also says that both libraries computed the same numbers.
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(file.read_text())
    names = [row["name"] for row in figures["rows"]]
    assert names[:2] == ["op exp(-y) forward", "op exp(-y) backward"]
    assert all(name in done.stdout for name in names)
    for row in figures["rows"]:
        assert row["values"]["tinyattn"][0] is not None
    step = next(row for row in figures["rows"] if row["name"] == "step tiny p=0")
    assert step["medians"]["limit"] > 0
    assert (step["ratio"] is not None) == ("torch" in step["values"])
    if importlib.util.find_spec("matplotlib") and "torch" in step["values"]:
        assert file.with_suffix(".png").stat().st_size > 0


def test_rows_are_listed_and_unknown_ones_are_an_error() -> None:
    listed = benchmarks("--list", "--only", "step medium").stdout.split("\n")
    assert "step medium p=0.1" in listed
    assert "step medium p=0 peak memory" in listed
    nothing = benchmarks("--only", "no such row")
    assert nothing.returncode == 2
    assert "no such row" in nothing.stderr


def test_names_of_rows_are_distinct() -> None:
    for short in (False, True):
        names = [row for case in all_cases(short) for row in case.rows]
        assert len(set(names)) == len(names)


def test_an_error_in_one_case_leaves_the_others() -> None:
    good = named("op relu")
    bad = replace(good, name="op unheard of")
    first, second = harness.measure_together([bad, good], ["tinyattn"], SHORT)
    assert "op unheard of" in first[0].errors[0]
    assert first[0].median("tinyattn") is None
    assert second[0].errors == []
    assert second[0].known("tinyattn")


def test_a_process_that_fails_or_hangs_is_reported() -> None:
    case = named("op relu")
    answers = processes.answers_of(replace(SIDES["tinyattn"], library="none"), [case], SHORT)
    assert "KeyError" in answers[case.name]["error"]
    hurried = replace(SHORT, timeout=0.01)
    answers = processes.answers_of(SIDES["tinyattn"], [case], hurried)
    assert "no answer within" in answers[case.name]["error"]


def test_an_answer_that_was_cut_off_counts_as_far_as_it_goes() -> None:
    assert processes.parsed('{"case": "a"}\n{"case"') == [{"case": "a"}]


def test_medians_ratios_and_spread() -> None:
    row = Row("row", "section", "detail")
    row.values = {"torch": [2.0, 4.0, None, 9.0], "tinyattn": [1.0, 1.0, 1.0, 3.0]}
    assert row.median("torch") == 4.0
    assert row.spread("torch") == pytest.approx((9 - 2) / 2 / 4)
    assert row.ratio("torch", "tinyattn") == (4.0, 2.0, 4.0)
    assert row.ratio("torch plain", "tinyattn") is None
    row.values["tinyattn"] = [None] * 4
    assert row.ratio("torch", "tinyattn") is None
    assert report.line(row).count("-") >= 2


def test_the_faster_of_both_attentions_counts_for_all_parts_of_a_case() -> None:
    forward, backward = rows = [Row(part, "section", "") for part in ("forward", "backward")]
    forward.values = {"torch": [1.0], "torch plain": [2.0]}
    backward.values = {"torch": [5.0], "torch plain": [3.0]}
    assert harness.best(rows) == "torch plain"
    del backward.values["torch plain"]
    assert harness.best(rows) == "torch"


def test_different_numbers_are_noticed() -> None:
    assert harness.same_numbers({"torch": [1.0, 200.0], "tinyattn": [1.0001, 200.0]})
    assert not harness.same_numbers({"torch": [1.0, 2.0], "tinyattn": [1.0, 2.1]})
    assert not harness.same_numbers({"torch": [1.0, 2.0], "tinyattn": [1.0]})


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, "s", "1.50 s"),
        (0.01234, "s", "12.3 ms"),
        (123e-6, "s", "123 us"),
        (2**21, "B", "2.0 MiB"),
        (None, "s", "-"),
    ],
)
def test_amounts_are_readable(value: float | None, unit: str, text: str) -> None:
    assert report.amount(value, unit) == text
