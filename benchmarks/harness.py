"""Fresh processes that take turns, and what remains of their times: medians and their spread.

The thread pools of two libraries disturb each other in one process, and a machine is not equally
fast all the time. So every library has processes of its own, one of each makes a round, rounds are
repeated, and ratios are taken within a round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import median
from typing import Any

from .cases import Case
from .encoders import START
from .other_rows import OTHERS
from .processes import SIDES, Settings, Side, crowded, undisturbed

TORCH = ("torch", "torch plain")


@dataclass
class Row:
    """All that was measured for one line of the table.

    values  for each side one value per round, None where there is none
    torch   which of PyTorch's sides counts
    first   for each side the seconds of its first repetition, in the slowest round
    lacks   why a side beside PyTorch and tinyattn has no value
    others  for each process how many cores other programs kept busy meanwhile
    """

    name: str
    section: str
    detail: str
    unit: str = "s"
    values: dict[str, list[float | None]] = field(default_factory=dict)
    torch: str = TORCH[0]
    errors: list[str] = field(default_factory=list)
    first: dict[str, float] = field(default_factory=dict)
    lacks: dict[str, str] = field(default_factory=dict)
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

    def crowded(self, threads: int) -> bool:
        """Whether other programs took cores that most of its processes needed."""
        return bool(self.others) and crowded(median(self.others), threads)

    def fail(self, message: str) -> None:
        if message not in self.errors:
            self.errors.append(message)


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
        if "first" in answer:
            row.first[side] = max(answer["first"], row.first.get(side, 0.0))
        if "error" in answer and side in OTHERS:
            row.lacks[side] = answer["error"]
        elif "error" in answer:
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

    def start(side: Side, column: str, *filled: Row, wait: float = settings.wait) -> None:
        answers, others = undisturbed(side, [START], replace(settings, wait=wait))
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
            side = SIDES["tinyattn"]
            side = replace(side, environment=side.environment | {"NUMBA_CACHE_DIR": cache})
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
