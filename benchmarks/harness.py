"""Fresh processes that take turns, and the medians and the spread of their times.

The thread pools of two libraries disturb each other in one process, and a machine is not equally
fast all the time. So every library has processes of its own, one of each makes a round, rounds are
repeated, and ratios are taken within a round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import median
from typing import Any

from .cases import Case
from .decoding import decoding
from .encoders import START, attentions, busy_machine, growing, steps, steps_alike
from .gpu.cases import gpu_cases
from .inference import inferences
from .language_model import language_model_steps, language_models
from .operations import functions, layers, operations
from .processes import Settings, Side, crowded, undisturbed
from .programs import programs

TORCH = ("torch", "torch plain")


def all_cases(short: bool) -> list[Case]:
    """Those of the main table, in its order."""
    encoders = [*steps(short), *steps_alike(short), *busy_machine(short)]
    singles = [*operations(short), *layers(short), *functions(short)]
    cases = [*singles, *encoders, *attentions(short), *decoding(short)]
    # Programs come last, because tinyattn.torch_names changes Tensor for the whole process.
    models = [*inferences(short), *language_models(short), *language_model_steps(short)]
    return [*cases, *models, *programs(short), START]


def every_case(short: bool) -> dict[str, Case]:
    """Those of all tables, by name."""
    return {case.name: case for case in [*all_cases(short), *growing(short), *gpu_cases(short)]}


@dataclass
class Row:
    """All values of one line of the table.

    values  for each side one value per round, None where there is none
    first   the seconds of each process's first call, which compiles
    torch   the side of PyTorch that counts
    errors  what is wrong with the row, "different numbers" for instance
    lacks   for each side that failed the reason
    others  for each process how many cores other programs used meanwhile
    """

    name: str
    section: str
    detail: str
    unit: str = "s"
    values: dict[str, list[float | None]] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)
    torch: str = TORCH[0]
    errors: list[str] = field(default_factory=list)
    lacks: dict[str, str] = field(default_factory=dict)
    others: list[float] = field(default_factory=list)

    @property
    def complaints(self) -> list[str]:
        return self.errors + [f"{side}: {reason}" for side, reason in self.lacks.items()]

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
        return quotient(self.values.get(over, ()), self.values.get(under, ()))

    def crowded(self, threads: int) -> bool:
        """Whether other programs used cores that most of its processes needed."""
        return bool(self.others) and crowded(median(self.others), threads)


def quotient(
    over: Sequence[float | None], under: Sequence[float | None]
) -> tuple[float, float, float] | None:
    """The quotient of the medians, with the least and the greatest quotient of one round."""
    above = [value for value in over if value is not None]
    below = [value for value in under if value is not None]
    if not above or not below or not median(below):
        return None
    rounds = [a / b for a, b in zip(over, under, strict=False) if a is not None and b]
    least, most = min(rounds, default=0.0), max(rounds, default=0.0)
    return median(above) / median(below), least, most


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
    cases: Sequence[Case], available: Mapping[str, Side], settings: Settings
) -> Iterator[list[Row]]:
    """The rows of cases that share their processes: a round of all sides, again and again.

    A side that failed in a case is not asked for that case again.
    """
    sides = [side for side in available if any(side in case.sides for case in cases)]
    table = {case.name: rows_of(case) for case in cases}
    checks: dict[str, dict[str, list[float]]] = {case.name: {} for case in cases}
    for repeat in range(settings.repeats):
        # Forwards and backwards in turn, so that no side always comes after the same other one.
        for side in sides if repeat % 2 == 0 else reversed(sides):
            asked = [
                case
                for case in cases
                if side in case.sides and side not in table[case.name][0].lacks
            ]
            if not asked:
                continue
            answers, others = undisturbed(available[side], asked, settings)
            for name, answer in answers.items():
                enter(answer, side, table[name], others)
                if answer.get("check"):
                    checks[name][side] = answer["check"]
    for name, rows in table.items():
        for row in rows:
            row.torch = best(rows[: -1 if rows[-1].unit == "B" else None])
            if len(checks[name]) > 1 and not same_numbers(checks[name]):
                row.errors.append("the libraries computed different numbers")
        yield rows


def enter(answer: dict[str, Any], side: str, rows: Sequence[Row], others: float) -> None:
    """Write one process's answer for a case into its rows."""
    named = answer.get("values", {})
    values = list(named.values())
    if side == "limit":
        for name, value in {side: sum(values) or None, **named}.items():
            name = side if name == side else f"limit, {name}"
            rows[0].values.setdefault(name, []).append(value)
    if "first" in answer:
        rows[0].first.setdefault(side, []).append(answer["first"])
    for i, row in enumerate(rows):
        row.others.append(others)
        if side != "limit":
            row.values.setdefault(side, []).append(values[i] if i < len(values) else None)
        if "error" in answer:
            row.lacks[side] = answer["error"]


def best(rows: Sequence[Row]) -> str:
    """The side of PyTorch that took the least time for all parts of a case."""
    totals = {}
    for side in TORCH:
        medians = [row.median(side) for row in rows]
        if None not in medians:
            totals[side] = sum(medians)  # type: ignore[arg-type]
    return min(totals, key=totals.__getitem__, default=TORCH[0])


def measure_start(available: Mapping[str, Side], settings: Settings) -> list[Row]:
    """Fresh processes with an empty cache of compiled kernels, and with the cache they left."""
    imports, cold, cpu, warm = rows = rows_of(START)
    values = {id(imports): "import", id(cpu): "CPU"}

    def start(name: str, side: Side, *filled: Row, wait: float = settings.wait) -> None:
        answers, others = undisturbed(side, [START], replace(settings, wait=wait))
        answer = answers[START.name]
        for row in filled:
            value = answer.get("values", {}).get(values.get(id(row), "first step"))
            row.values.setdefault(name, []).append(value)
            row.others.append(others)
            if "error" in answer:
                row.lacks[name] = answer["error"]

    for _ in range(settings.repeats):
        if "torch" in available:
            start("torch", available["torch"], *rows)
        with tempfile.TemporaryDirectory() as cache:
            side = replace(available["tinyattn"], environment={"NUMBA_CACHE_DIR": cache})
            # Once only: at a second try the cache would not be empty any more.
            start("tinyattn", side, cold, cpu, wait=0.0)
            start("tinyattn", side, imports, warm)
    return rows


def measure_all(
    cases: Sequence[Case],
    available: Mapping[str, Side],
    settings: Settings,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[list[Row]]:
    """The rows of every case, as they are finished."""

    def together(case: Case) -> str:
        if settings.short and case is not START:
            return "everything"  # only answers count, so one process of each side is enough
        return case.process or case.name

    for process, group in groupby(cases, key=together):
        tell(process)
        if process == START.name:
            yield measure_start(available, settings)
        else:
            yield from measure_together(list(group), available, settings)
