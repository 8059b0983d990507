"""Fresh processes that take turns, and what remains of their times: medians and their spread.

The thread pools of two libraries disturb each other in one process, and a machine is not equally
fast all the time. So every library has processes of its own, one of each makes a round, rounds are
repeated, and ratios are taken within a round.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from .cases import START, Case

ROOT = Path(__file__).resolve().parents[1]
TORCH = ("torch", "torch plain")

# By default glibc gives large freed buffers back to the system and has them zeroed again a moment
# later, in either library.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 26),
}


@dataclass(frozen=True)
class Side:
    """One way to compute a case: a library, its options, its environment."""

    library: str
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


SIDES = {
    "torch": Side("torch", {"attention": "fused"}),
    "torch plain": Side("torch", {"attention": "plain"}),
    "tinyattn": Side("tinyattn"),
    "limit": Side("numpy"),
}


@dataclass(frozen=True)
class Settings:
    """Seconds: budget and timeout for one case in one process, wait for the cores to be free."""

    threads: int = 2
    repeats: int = 5
    budget: float = 1.0
    timeout: float = 300.0
    wait: float = 0.0
    short: bool = False
    keep_memory: bool = True


@dataclass
class Row:
    """All that was measured for one line of the table.

    values  for each side one value per round, None where there is none
    torch   which of PyTorch's sides counts
    others  for each process how many cores other programs kept busy meanwhile
    """

    name: str
    section: str
    detail: str
    unit: str = "s"
    values: dict[str, list[float | None]] = field(default_factory=dict)
    torch: str = TORCH[0]
    errors: list[str] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    def known(self, side: str) -> list[float]:
        return [value for value in self.values.get(side, ()) if value is not None]

    def median(self, side: str) -> float | None:
        known = self.known(side)
        return median(known) if known else None

    def spread(self, side: str) -> float:
        """Half the distance between the extremes, as a part of the median."""
        known = self.known(side)
        middle = median(known) if known else 0
        return (max(known) - min(known)) / 2 / middle if middle else 0.0

    def ratio(self, over: str, under: str) -> tuple[float, float, float] | None:
        """median(over) / median(under), with the least and the greatest ratio of one round."""
        above, below = self.median(over), self.median(under)
        if above is None or not below:
            return None
        rounds = zip(self.values[over], self.values[under], strict=False)
        ratios = [a / b for a, b in rounds if a is not None and b]
        return above / below, min(ratios, default=0.0), max(ratios, default=0.0)

    def fail(self, message: str) -> None:
        if message not in self.errors:
            self.errors.append(message)


class WorkerError(Exception):
    """A process failed or took too long; carries what it had answered until then."""

    def __init__(self, reason: str, answers: list[dict[str, Any]]) -> None:
        super().__init__(reason)
        self.answers = answers


def environment(side: Side, settings: Settings) -> dict[str, str]:
    threads = str(settings.threads)
    pools = ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB_MAXIMUM")
    return {
        **os.environ,
        **{f"{pool}_NUM_THREADS": threads for pool in pools},
        **(KEEP_MEMORY if settings.keep_memory else {}),
        **side.environment,
    }


def parsed(output: str) -> list[dict[str, Any]]:
    """The lines of an answer; the last one may have been cut off."""
    answers = []
    for line in output.splitlines():
        try:
            answers.append(json.loads(line))
        except ValueError:
            break
    return answers


def ask(side: Side, cases: Sequence[Case], settings: Settings) -> list[dict[str, Any]]:
    """Run one process for these cases; the list of its answers, or WorkerError."""
    request = {
        "library": side.library,
        "cases": [case.name for case in cases],
        "threads": settings.threads,
        "budget": settings.budget,
        "short": settings.short,
        **side.options,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", json.dumps(request)],
        cwd=ROOT,
        env=environment(side, settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that its helpers can be ended with it
    )
    try:
        output, complaints = process.communicate(timeout=settings.timeout * len(cases))
    except BaseException as error:  # an interrupt as well: no process may be left behind
        os.killpg(process.pid, signal.SIGKILL)
        output, complaints = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise WorkerError(f"no answer within {error.timeout:g} s", parsed(output)) from None
        raise
    if process.returncode:
        last = complaints.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        raise WorkerError(last[0], parsed(output))
    return parsed(output)


def answers_of(side: Side, cases: Sequence[Case], settings: Settings) -> dict[str, dict[str, Any]]:
    """By case name; what a failed process left unanswered carries the reason."""
    reason = "no answer"
    try:
        answers = ask(side, cases, settings)
    except WorkerError as error:
        reason, answers = str(error), error.answers
    by_case = {answer["case"]: answer for answer in answers}
    return {case.name: by_case.get(case.name, {"error": reason}) for case in cases}


class Others:
    """How many cores other programs have kept busy since this object was made (Linux only)."""

    def __init__(self) -> None:
        self.began = self.clocks()

    @staticmethod
    def clocks() -> tuple[float, float, float]:
        """Seconds: of time, of work on all cores, of our own work."""
        own = os.times()
        try:
            with open("/proc/stat") as stat:
                # user, nice, system, idle, iowait, irq, softirq, steal
                ticks = [int(word) for word in stat.readline().split()[1:9]]
            busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            busy = float("nan")
        return time.monotonic(), busy, sum(own[:4])

    def cores(self) -> float:
        elapsed, busy, own = (b - a for a, b in zip(self.began, self.clocks(), strict=True))
        return max(0.0, (busy - own) / elapsed) if elapsed > 0 and busy == busy else 0.0


def crowded(others: float, threads: int) -> bool:
    """Whether other programs took cores that the measurement needed."""
    return others + threads > (os.cpu_count() or 1) + 0.1


def undisturbed(
    side: Side, cases: Sequence[Case], settings: Settings
) -> tuple[dict[str, dict[str, Any]], float]:
    """The answers of one process, and how many cores other programs kept busy meanwhile.

    A process that was short of cores is run again, until `settings.wait` seconds have passed.
    """
    end = time.monotonic() + settings.wait
    while True:
        before = Others()
        while time.monotonic() < end:
            time.sleep(0.5)
            if not crowded(before.cores(), settings.threads):
                break
            before = Others()
        others = Others()
        answers = answers_of(side, cases, settings)
        cores = others.cores()
        if time.monotonic() >= end or not crowded(cores, settings.threads):
            return answers, cores


def rows_of(case: Case) -> list[Row]:
    parts = (*case.parts, "peak memory")
    return [
        Row(name, case.section, case.detail, "B" if part == "peak memory" else "s")
        for name, part in zip(case.rows, parts, strict=False)
    ]


def same_numbers(checks: dict[str, list[float]]) -> bool:
    """Whether all sides have computed the same, as far as float32 allows."""
    first, *others = checks.values()
    size = max(1.0, *map(abs, first))
    return all(
        len(first) == len(other)
        and all(abs(a - b) <= 1e-3 * size for a, b in zip(first, other, strict=True))
        for other in others
    )


def measure_together(
    cases: Sequence[Case], available: Sequence[str], settings: Settings
) -> Iterator[list[Row]]:
    """The rows of cases that share their processes: a round of all sides, again and again."""
    sides = [side for side in available if any(side in case.sides for case in cases)]
    table = {case.name: rows_of(case) for case in cases}
    checks: dict[str, dict[str, list[float]]] = {case.name: {} for case in cases}
    for repeat in range(settings.repeats):
        # Forwards and backwards in turn, so that no side always comes after the same other one.
        for side in sides if repeat % 2 == 0 else reversed(sides):
            asked = [case for case in cases if side in case.sides]
            answers, others = undisturbed(SIDES[side], asked, settings)
            for name, answer in answers.items():
                enter(answer, side, table[name], others)
                if answer.get("check"):
                    checks[name][side] = answer["check"]
    for name, rows in table.items():
        for row in rows:
            row.torch = best(rows[: -1 if rows[-1].unit == "B" else None])
            if len(checks[name]) > 1 and not same_numbers(checks[name]):
                row.fail("the libraries computed different numbers")
        yield rows


def enter(answer: dict[str, Any], side: str, rows: Sequence[Row], others: float) -> None:
    """Write one process's answer for a case into its rows."""
    named = answer.get("values", {})
    values = list(named.values())
    if side == "limit":
        for name, value in {side: sum(values) or None, **named}.items():
            name = side if name == side else f"limit, {name}"
            rows[0].values.setdefault(name, []).append(value)
    for i, row in enumerate(rows):
        row.others.append(others)
        if side != "limit":
            row.values.setdefault(side, []).append(values[i] if i < len(values) else None)
        if "error" in answer:
            row.fail(f"{side}: {answer['error']}")


def best(rows: Sequence[Row]) -> str:
    """Which of PyTorch's sides took the least time for all parts of a case."""
    totals = {}
    for side in TORCH:
        medians = [row.median(side) for row in rows]
        if None not in medians:
            totals[side] = sum(medians)  # type: ignore[arg-type]
    return min(totals, key=totals.__getitem__, default=TORCH[0])


def measure_start(available: Sequence[str], settings: Settings) -> list[Row]:
    """Fresh processes with an empty cache of compiled kernels, and with the cache they left."""
    imports, cold, warm = rows = rows_of(START)

    def start(side: Side, column: str, *filled: Row, **changes: float) -> None:
        answers, others = undisturbed(side, [START], replace(settings, **changes))
        answer = answers[START.name]
        values = answer.get("values", {})
        for row in filled:
            value = values.get("import" if row is imports else "first step")
            row.values.setdefault(column, []).append(value)
            row.others.append(others)
            if "error" in answer:
                row.fail(f"{column}: {answer['error']}")

    for _ in range(settings.repeats):
        if "torch" in available:
            start(SIDES["torch"], "torch", *rows)
        with tempfile.TemporaryDirectory() as cache:
            side = Side("tinyattn", environment={"NUMBA_CACHE_DIR": cache})
            # Once only: at a second try the cache would not be empty any more.
            start(side, "tinyattn", cold, wait=0.0)
            start(side, "tinyattn", imports, warm)
    return rows


def measure_all(
    cases: Sequence[Case],
    available: Sequence[str],
    settings: Settings,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[list[Row]]:
    """The rows of every case, as they are finished."""

    def together(case: Case) -> str:
        if settings.short and case is not START:
            return "everything"  # only answers count, so one process of each side will do
        return case.process or case.name

    for process, group in groupby(cases, key=together):
        tell(process)
        if process == START.name:
            yield measure_start(available, settings)
        else:
            yield from measure_together(list(group), available, settings)
