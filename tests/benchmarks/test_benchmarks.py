"""The benchmark's harness: that it measures, compares and survives, not what the times are."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import harness, other_report, processes, report, scaling, targets
from benchmarks.cases import Case, LackingError
from benchmarks.harness import Row
from benchmarks.libraries import LIBRARIES
from benchmarks.other_libraries import OTHER_LIBRARIES
from benchmarks.other_rows import OTHERS, other_cases
from benchmarks.processes import SIDES, Settings
from benchmarks.rows import all_cases, every_case
from benchmarks.scaling_cases import scaling_cases
from benchmarks.targets import Target, Verdict
from benchmarks.worker import Memory

ROOT = processes.ROOT
SHORT = Settings(threads=1, repeats=1, short=True)


def named(name: str) -> Case:
    return every_case(short=True)[name]


def benchmarks(*arguments: str, module: str = "benchmarks") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
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
    values = {row["name"]: row["medians"]["tinyattn"] for row in figures["rows"]}
    parts = (values[f"attention 512 padded {part}"] for part in ("forward", "backward"))
    assert values["attention 512 padded together"] == pytest.approx(sum(parts))
    assert figures["targets"] == []  # which are set for other sizes than these
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
        cases = [*all_cases(short), *other_cases(short), *scaling_cases(short)]
        names = [row for case in cases for row in case.rows]
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


def test_memory_is_counted_from_what_is_there_before() -> None:
    memory = Memory()
    if memory.peak() is None:
        pytest.skip("this system does not tell a process's peak memory")
    block = np.ones(1 << 23)
    assert 60 << 20 < (memory.peak() or 0) < 100 << 20
    del block
    assert (Memory().peak() or 0) < 16 << 20


def measured(**values: list[float | None]) -> Row:
    row = Row("step tiny p=0", "section", "")
    row.values = dict(values)
    return row


@pytest.mark.parametrize(
    ("against", "bound", "torch", "word"),
    [
        ("PyTorch", 2.0, [4.0, 4.0, 4.0], "met"),
        ("PyTorch", 2.0, [4.0, 4.0, 1.0], "met, but not in every round"),
        ("PyTorch", 2.0, [1.0, 1.0, 1.0], "missed"),
        ("PyTorch", 2.0, [1.0, 1.0, 9.0], "missed, but not in every round"),
        ("limit", 2.0, [1.0, 1.0, 1.0], "met"),
        ("limit", 1.5, [1.0, 1.0, 1.0], "missed"),
        ("", 1.0, [1.0, 1.0, 1.0], "met"),
        ("", 0.9, [1.0, 1.0, 1.0], "missed"),
    ],
)
def test_targets_are_judged_by_the_median(
    against: str, bound: float, torch: list[float | None], word: str
) -> None:
    row = measured(torch=torch, tinyattn=[1.0] * 3, limit=[0.6, 0.6, 0.6])
    target = Target(row.name, against, bound)
    verdict = Verdict(target, "", target.measured({row.name: row}))
    assert verdict.word == word
    assert verdict.met == word.startswith("met")
    assert word in targets.table([verdict])


def test_a_target_that_was_not_measured_is_not_met() -> None:
    target = Target("step tiny p=0", "PyTorch", 1.0)
    wrong = measured(torch=[9.0], tinyattn=[1.0])
    wrong.fail("the libraries computed different numbers")
    for row in (measured(tinyattn=[1.0]), wrong):
        (verdict,) = (v for v in targets.judged([row], 1) if v.target.against == "PyTorch")
        assert not verdict.met
        assert verdict.word == "not measured"
    assert "0 of 1 met" in targets.table([verdict])
    assert not target.measured({})


def test_memory_that_grows_with_the_square_of_the_length_is_missed() -> None:
    growth = next(t for t in targets.TARGETS if t.row == "attention 4096 plain peak memory")
    less, more = measured(tinyattn=[10.0]), measured(tinyattn=[20.0])
    rows = {growth.against: less, growth.row: more}
    assert growth.measured(rows) == (2.0, 2.0, 2.0)
    assert growth.holds(2.0)
    assert not growth.holds(4.0)


def test_every_target_has_its_rows() -> None:
    there = {row for case in all_cases(short=False) for row in case.rows}
    assert there >= targets.ROWS
    listed = set(benchmarks("--list", "--targets").stdout.split("\n")) - {""}
    assert listed == targets.ROWS


# tinygrad is left out: it compiles for minutes, and needs clang for it.
@pytest.mark.parametrize("library", ["autograd", "mygrad", "dezero"])
def test_another_library_computes_what_tinyattn_does(library: str) -> None:
    try:
        lib = OTHER_LIBRARIES[library]({})
    except ImportError:
        pytest.skip(f"{library} is not installed")
    own = LIBRARIES["tinyattn"]({})
    for case in other_cases(short=True):
        if library == "dezero" and "step" in case.name:
            with pytest.raises(LackingError):
                case.build(lib)
            continue
        checks = []
        for each in (own, lib):
            run = case.build(each)
            for _ in range(3):
                run.phases[""](None)
            checks.append(run.check() if run.check else [])
        assert checks == [[], []] or harness.same_numbers({"own": checks[0], library: checks[1]})


def test_a_library_that_is_not_there_or_lacks_something_is_said_to() -> None:
    case = named("other step tiny p=0")
    sides = ["tinyattn", "DeZero", "autograd"]
    ((row,),) = harness.measure_together([case], sides, SHORT)
    assert row.errors == []
    assert row.known("tinyattn")
    assert "DeZero" in row.lacks
    assert bool(row.known("autograd")) != ("autograd" in row.lacks)
    text = other_report.table([row], {**dict.fromkeys(OTHERS, "1.0"), "MyGrad": "not installed"}, 1)
    assert f"without step tiny p=0: {row.lacks['DeZero']}" in text
    assert "MyGrad not installed: no figures" in text


def test_exponents_are_fitted_to_the_upper_half() -> None:
    sizes = [1, 2, 4, 8, 16, 32]
    assert scaling.fitted(sizes, [5 + 0 * s if s < 8 else s**1.5 for s in sizes]) == (
        pytest.approx(1.5)
    )
    assert scaling.fitted(sizes, [1.0, 4.0, 16.0, None, None, None]) == pytest.approx(2)
    assert scaling.fitted(sizes, [1.0, None, None, None, None, None]) is None


def test_scaling_prints_exponents_and_writes_json_and_a_plot(tmp_path: Path) -> None:
    file = tmp_path / "scaling.json"
    arguments = ("--short", "--axis", "depth", "--json", str(file))
    done = benchmarks(*arguments, module="benchmarks.scaling")
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(file.read_text())
    assert figures["sizes"] == {"depth": [1, 2, 4]}
    assert figures["exponents"]["depth"]["time"]["tinyattn"] is not None
    assert [row["name"] for row in figures["rows"][:2]] == [
        "scaling depth 1",
        "scaling depth 1 peak memory",
    ]
    assert "exponent" in done.stdout
    if importlib.util.find_spec("matplotlib"):
        assert file.with_suffix(".png").stat().st_size > 0


@pytest.mark.parametrize(("seconds", "memory"), [(0.02, 0), (60.0, 1 << 24)])
def test_a_point_beyond_the_time_or_the_memory_is_dropped(seconds: float, memory: int) -> None:
    cases = [case for case in scaling_cases(short=True) if case.process == "depth"]
    settings = replace(SHORT, repeats=2, memory=memory)
    found, rounds = scaling.measure(cases, ["tinyattn"], settings, seconds)
    times = scaling.of_unit(found["depth"], "s")
    assert rounds <= 2
    assert all(row.median("tinyattn") is None for row in times)
    assert all(row.lacks["tinyattn"] for row in times)
    text = scaling.table("depth", found["depth"], [1, 2, 4], 1)
    assert "tinyattn without depth 4" in text
    assert scaling.exponents(found["depth"], [1, 2, 4])["time"]["tinyattn"] is None


def test_figures_taken_beside_other_programs_are_marked() -> None:
    row = measured(torch=[4.0], tinyattn=[1.0])
    row.others = [0.0, float(os.cpu_count() or 1), float(os.cpu_count() or 1)]
    assert row.crowded(1)
    (verdict,) = targets.judged([row], 1)
    assert verdict.met
    assert targets.table([verdict]).split("\n")[-2].endswith("met  ~")
