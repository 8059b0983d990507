"""The targets of tinyattn, and whether the measured figures reach them.

A target is met if the median of all rounds meets it. The least and the greatest figure of one
round stand beside it, since a median may lie close to the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from .cases import ALONE, BUSY
from .harness import Row, quotient
from .report import amount

# Dropout 0.1 and none: at least, and with dropout also the aim beyond.
TIMES = {
    0.1: {"tiny": 1.9, "small": 1.9, "medium": 1.9, "full": 1.3, "long": 2.5},
    0.0: {"tiny": 1.5, "small": 1.0, "medium": 1.2, "full": 1.2, "long": 1.0},
}
AIMS = {"tiny": 2.6, "small": 2.3, "medium": 2.4, "full": 1.4, "long": 6.0}
LIMITS = {"medium": 1.6, "full": 1.25}
ATTENTION = {"plain": 0.95, "causal": 1.05, "padded": 1.3}
# Twice the length: twice the memory if it is linear, four times with any array of scores.
GROWTH = 2.5
# A step beside a program that keeps one core busy, in units of the step alone.
BUSY_STEP = 2.5


@dataclass(frozen=True)
class Target:
    """A bound on one figure.

    against  what the row's tinyattn is compared with: "PyTorch" (its time over tinyattn's, at
             least), "limit" (tinyattn's over it, at most), "" (itself, in the row's unit, at most)
             or the name of another row (times that row's, at most)
    words    the figure in words, where another row is the measure
    aim      a better value than the bound, for which no verdict is given
    """

    row: str
    against: str
    bound: float
    words: str = ""
    aim: float = 0.0

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows it takes to judge."""
        return (self.row,) if self.against in ("PyTorch", "limit", "") else (self.row, self.against)

    @property
    def at_least(self) -> bool:
        return self.against == "PyTorch"

    @property
    def figure(self) -> str:
        """The figure in words."""
        names = {"PyTorch": "PyTorch / tinyattn", "limit": "tinyattn / limit", "": "tinyattn"}
        return names.get(self.against, self.words)

    def measured(
        self, rows: dict[str, Row], side: str = "tinyattn"
    ) -> tuple[float, float, float] | None:
        """The median, and the extremes of single rounds."""
        found = [rows.get(name) for name in self.rows]
        row = found[0]
        if row is None or any(each is None or each.complaints for each in found):
            return None
        if self.against == "PyTorch":
            return row.ratio(row.torch, side)
        if self.against == "limit":
            return row.ratio(side, "limit")
        if self.against:
            return quotient(row.values.get(side, ()), rows[self.against].values.get(side, ()))
        known = row.known(side)
        return (median(known), min(known), max(known)) if known else None

    def theirs(self, rows: dict[str, Row]) -> float | None:
        """PyTorch's own figure, where a row is compared with another row."""
        if len(self.rows) == 1 or self.row not in rows:
            return None
        figures = self.measured(rows, rows[self.row].torch)
        return figures[0] if figures else None

    def holds(self, figure: float) -> bool:
        return figure >= self.bound if self.at_least else figure <= self.bound


def all_targets() -> Iterator[Target]:
    for p, sizes in TIMES.items():
        for name, bound in sizes.items():
            aim = AIMS[name] if p else 0.0
            yield Target(f"step {name} p={p:g}", "PyTorch", bound, aim=aim)
    for name, bound in LIMITS.items():
        for p in TIMES:
            yield Target(f"step {name} p={p:g}", "limit", bound)
    for p, sizes in TIMES.items():
        for name in sizes:
            yield Target(f"step {name} p={p:g} peak memory", "PyTorch", 1.0)
    for name in ("tiny", "medium"):
        busy, alone = (f"busy machine {name} {part}" for part in (BUSY, ALONE))
        yield Target(busy, alone, BUSY_STEP, "times the step alone")
    for length in (2048, 4096):
        for kind, bound in ATTENTION.items():
            yield Target(f"attention {length} {kind} together", "PyTorch", bound)
    for kind in ATTENTION:
        most, less = (f"attention {length} {kind} peak memory" for length in (4096, 2048))
        yield Target(most, less, GROWTH, "times that of half the length")
    yield Target("start first step, cold cache, CPU", "", 12.0)
    yield Target("start first step, warm cache", "", 0.8)


TARGETS = tuple(all_targets())
ROWS = frozenset(name for target in TARGETS for name in target.rows)


@dataclass(frozen=True)
class Verdict:
    """A target that was judged.

    measured  the figure and its extremes, or None where a row is missing or failed
    crowded   whether other programs used cores meanwhile, so that neither verdict is sure
    theirs    PyTorch's own figure, where a row is compared with another row
    """

    target: Target
    unit: str
    measured: tuple[float, float, float] | None
    crowded: bool = False
    theirs: float | None = None

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        met, *rounds = (self.target.holds(figure) for figure in self.measured)
        if all(rounds) == met == any(rounds):
            return "met" if met else "missed"
        return "met, but not in every round" if met else "missed, but not in every round"

    @property
    def met(self) -> bool:
        return self.measured is not None and self.target.holds(self.measured[0])


def judged(rows: Sequence[Row], threads: int) -> list[Verdict]:
    """The targets whose rows were measured, or should have been."""
    named = {row.name: row for row in rows}
    verdicts = []
    for target in TARGETS:
        if row := named.get(target.row):
            unit = "" if target.against else row.unit
            # What a process allocates does not depend on who else computes.
            crowded = row.unit != "B" and row.crowded(threads)
            figures, theirs = target.measured(named), target.theirs(named)
            verdicts.append(Verdict(target, unit, figures, crowded, theirs))
    return verdicts


def table(verdicts: Sequence[Verdict]) -> str:
    def written(value: float, unit: str) -> str:
        return amount(value, unit) if unit else f"{value:.2f}"

    lines = [f"targets\n{'':<40}{'':<32}{'median':>10}  {'of the rounds':<20}target"]
    for verdict in verdicts:
        target, figures = verdict.target, ["-", "-", "-"]
        if verdict.measured:
            figures = [written(value, verdict.unit) for value in verdict.measured]
        bound = written(target.bound, verdict.unit)
        beyond = f" (aim {written(target.aim, verdict.unit)})" if target.aim else ""
        word = verdict.word + "  ~" * verdict.crowded
        if verdict.theirs is not None:
            word += f"  (PyTorch: {written(verdict.theirs, verdict.unit)})"
        lines.append(
            f"{target.row:<40}{target.figure:<32}{figures[0]:>10}"
            f"  {f'{figures[1]} - {figures[2]}':<20}"
            f"{'at least' if target.at_least else 'at most':<9}{bound + beyond:<20}{word}"
        )
    lines.append(f"{sum(verdict.met for verdict in verdicts)} of {len(verdicts)} met")
    return "\n".join(lines)
