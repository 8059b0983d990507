"""The benchmark's harness: that it measures, compares and survives, not what the times are."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import distributed, harness, processes, report, scaling, targets
from benchmarks.cases import ALONE, BUSY, Case
from benchmarks.encoders import growing
from benchmarks.gpu.cases import gpu_cases
from benchmarks.harness import Row, all_cases, every_case
from benchmarks.processes import SIDES, Settings
from benchmarks.targets import Target, Verdict
from benchmarks.worker import Memory, busy_loop

ROOT = processes.ROOT
SHORT = Settings(threads=1, repeats=1, short=True)
QUICK = ("--short", "--without", "torch.compile")  # test_peers.py measures it once
OURS = {"tinyattn": SIDES["tinyattn"]}


def named(name: str) -> Case:
    return every_case(short=True)[name]


def benchmarks(*arguments: str, module: str = "benchmarks") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_a_short_run_prints_a_table_and_writes_json_and_a_plot(tmp_path: Path) -> None:
    file = tmp_path / "new" / "figures.json"
    patterns = ("op exp", "masked softmax small", "step tiny p=0", "attention 512 padded")
    only = [word for pattern in patterns for word in ("--only", pattern)]
    done = benchmarks(*QUICK, "--json", str(file), *only)
    # An exit status of 0 also says that both libraries computed the same numbers.
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(file.read_text())
    names = [row["name"] for row in figures["rows"]]
    assert names[:2] == ["op exp(-y) forward", "op exp(-y) backward"]
    assert all(name in done.stdout for name in names)
    assert "torch.compile" not in done.stdout
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


def test_a_program_for_pytorch_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = benchmarks("--short", "--json", str(file), "--only", "program nano_gpt")
    assert done.returncode == 0, done.stdout + done.stderr  # both computed the same losses
    (row,) = json.loads(file.read_text())["rows"]
    assert row["values"]["tinyattn"][0] > 0


def test_published_models_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    names = ("inference 8 texts", "inference XLM-R 8 texts", "language model next 16")
    names += ("language model Qwen3 prompt 16", "language model Qwen3 next 16")
    names += ("language model step gpt2",)
    only = [word for name in names for word in ("--only", name)]
    done = benchmarks(*QUICK, "--json", str(file), *only)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row for row in json.loads(file.read_text())["rows"]}
    assert {*names} <= rows.keys()
    assert all(row["values"]["tinyattn"][0] > 0 for row in rows.values())


def test_every_program_for_pytorch_has_a_row() -> None:
    folder = ROOT / "tests" / "port" / "programs"
    listed = set(benchmarks("--list", "--only", "program ").stdout.split("\n")) - {""}
    assert listed == {f"program {path.stem}" for path in folder.glob("*.py")} != set()


def test_rows_are_listed_and_unknown_ones_are_an_error() -> None:
    listed = benchmarks("--list", "--only", "step medium").stdout.split("\n")
    assert "step medium p=0.1" in listed
    assert "step medium p=0 peak memory" in listed
    nothing = benchmarks("--only", "no such row")
    assert nothing.returncode == 2
    assert "no such row" in nothing.stderr


def test_names_of_rows_are_distinct() -> None:
    for short in (False, True):
        cases = [*all_cases(short), *growing(short), *gpu_cases(short)]
        names = [row for case in cases for row in case.rows]
        assert len(set(names)) == len(names)


def test_an_error_in_one_case_leaves_the_others() -> None:
    good = named("op relu")
    bad = replace(good, name="op unheard of")
    twice = replace(SHORT, repeats=2)
    first, second = harness.measure_together([bad, good], OURS, twice)
    assert "op unheard of" in first[0].complaints[0]
    assert first[0].values["tinyattn"] == [None]  # not asked again
    assert second[0].complaints == []
    assert len(second[0].known("tinyattn")) == 2


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
    wrong.errors.append("the libraries computed different numbers")
    failed = measured(torch=[9.0], tinyattn=[1.0])
    failed.lacks["torch"] = "MemoryError"
    for row in (measured(tinyattn=[1.0]), wrong, failed):
        (verdict,) = (v for v in targets.judged([row], 1) if v.target.against == "PyTorch")
        assert not verdict.met
        assert verdict.word == "not measured"
    assert "0 of 1 met" in targets.table([verdict])
    assert not target.measured({})


def test_memory_that_grows_with_the_square_of_the_length_is_missed() -> None:
    growth = next(t for t in targets.TARGETS if t.row == "attention 4096 plain peak memory")
    less = measured(tinyattn=[10.0, 10.0], torch=[10.0, 10.0])
    more = measured(tinyattn=[20.0, 40.0], torch=[40.0, 40.0])
    rows = {growth.against: less, growth.row: more}
    assert growth.measured(rows) == (3.0, 2.0, 4.0)
    assert growth.theirs(rows) == 4.0
    assert growth.holds(2.0)
    assert not growth.holds(4.0)


def test_no_variable_sets_threads_or_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENBLAS", "OMP", "TINYATTN"):
        monkeypatch.setenv(f"{name}_NUM_THREADS", "1")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "512")
    for side in SIDES.values():
        inherited = processes.environment(side, SHORT)
        assert not [name for name in inherited if name.endswith("_NUM_THREADS")]
        assert not {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} & set(inherited)
        assert inherited["PATH"] == os.environ["PATH"]


def test_the_heading_says_how_fast_products_are_and_what_was_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    heading = report.heading(report.surroundings(SHORT))
    assert re.search(r"tinyattn: a product of 64 at \d+ GFLOP/s .* of numpy, .* kernels", heading)
    assert heading.count("GFLOP/s") == 1 + SIDES["torch"].is_installed
    assert "\nmeasured without OPENBLAS_CORETYPE=Haswell," in heading


def test_the_busy_loop_keeps_a_core_busy_while_it_is_there() -> None:
    def children() -> float:
        times = os.times()
        return times.children_user + times.children_system

    start = children()
    with busy_loop():
        time.sleep(1.0)
    spent = children() - start  # counts a child when it has ended
    assert spent > 0.1  # other programs may take the rest


def test_a_step_beside_a_busy_loop_is_compared_with_the_step_alone() -> None:
    ((alone, busy),) = harness.measure_together([named("busy machine tiny")], OURS, SHORT)
    assert (alone.name, busy.name) == (f"busy machine tiny {ALONE}", f"busy machine tiny {BUSY}")
    assert alone.complaints == busy.complaints == []
    (target,) = (target for target in targets.TARGETS if target.row == busy.name)
    alone.values = {"tinyattn": [1.0, 1.0], "torch": [2.0, 2.0]}
    busy.values = {"tinyattn": [2.0, 3.0], "torch": [9.0, 9.0]}
    verdicts = {verdict.target: verdict for verdict in targets.judged([alone, busy], 1)}
    assert verdicts[target].measured == (2.5, 2.0, 3.0)
    assert verdicts[target].word == "met, but not in every round"
    assert "(PyTorch: 4.50)" in targets.table([verdicts[target]])


def test_every_target_has_its_rows() -> None:
    there = {row for case in all_cases(short=False) for row in case.rows}
    assert there >= targets.ROWS
    listed = set(benchmarks("--list", "--targets").stdout.split("\n")) - {""}
    assert listed == targets.ROWS


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
    cases = [case for case in growing(short=True) if case.process == "depth"]
    settings = replace(SHORT, timeout=seconds, memory=memory)
    rows = [row for found in harness.measure_all(cases, OURS, settings) for row in found]
    times = scaling.of_unit(rows, "s")
    assert all(row.median("tinyattn") is None for row in times)
    assert all(row.lacks["tinyattn"] for row in times)
    text = scaling.table("depth", rows, [1, 2, 4], 1)
    assert "tinyattn without depth 4" in text
    assert scaling.exponents(rows, [1, 2, 4])["time"]["tinyattn"] is None


def test_the_lesson_computes_the_same_in_every_way() -> None:
    done = benchmarks("--length", "16", "--repeats", "1", module="benchmarks.lesson")
    assert done.returncode == 0, done.stderr  # it stops at another number
    assert done.stdout.count(" MiB") == 4


@pytest.mark.skipif(not importlib.util.find_spec("numba"), reason="Numba is missing")
def test_kernels_of_a_first_step_are_told_with_their_time() -> None:
    done = benchmarks(module="benchmarks.compiling")
    assert done.returncode == 0, done.stderr
    seconds = {line[:32].strip(): float(line[32:]) for line in done.stdout.splitlines()}
    total = seconds.pop("all, with imports and the step")
    assert "attention_heads" in seconds
    assert sum(seconds.values()) < total


@pytest.mark.skipif(
    not (importlib.util.find_spec("mpi4py") and distributed.find_mpiexec()),
    reason='mpi4py or mpiexec is missing: pip install -e ".[mpi]"',
)
def test_ranks_are_measured_and_predicted(tmp_path: Path) -> None:
    file = tmp_path / "distributed.json"
    done = benchmarks("--short", "--json", str(file), module="benchmarks.distributed")
    assert done.returncode == 0, done.stderr
    measured = json.loads(file.read_text())["measured"]["small"]
    assert set(measured) == {"1", "2", "4"}
    for one in measured.values():
        assert min(one["step"], one["alone"]) > 0
    assert "1024: " in done.stdout
    if importlib.util.find_spec("matplotlib"):
        assert file.with_suffix(".png").stat().st_size > 0


def test_the_model_of_ranks_computes_its_formula() -> None:
    alpha, beta = distributed.fitted({str(1 << p): 1e-5 + 2e-9 * (1 << p) for p in range(10, 25)})
    assert (alpha, beta) == pytest.approx((1e-5, 2e-9))
    one = {"bytes": 3 << 20, "alone": 2.0}
    # Four ranks: 4 messages, and 1.5 times the bytes.
    seconds = 4 * (1e-5 + 1e-5) + 1.5 * (3 << 20) * 8 / 1e7
    expected = 2 / (2 + seconds), 2 / (2 + seconds - 4 / 3)
    assert distributed.efficiency(one, 4, 1e-5, 1e7) == pytest.approx(expected)
    assert distributed.efficiency(one, 4, 1e-5, 1e9)[1] == 1  # all hidden


def test_figures_taken_beside_other_programs_are_marked() -> None:
    row = measured(torch=[4.0], tinyattn=[1.0])
    row.others = [0.0, float(os.cpu_count() or 1), float(os.cpu_count() or 1)]
    assert row.crowded(1)
    (verdict,) = targets.judged([row], 1)
    assert verdict.met
    assert targets.table([verdict]).split("\n")[-2].endswith("met  ~")
