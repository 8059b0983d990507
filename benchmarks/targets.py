"""What tinyattn sets out to reach, and whether what was measured reaches it.

A target holds if the median of all rounds keeps to it. The least and the greatest figure of one
round stand beside it, since a median may lie close to the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .harness import Row
from .report import amount

TIMES = {
    0.1: {"tiny": 2.5, "small": 2.0, "medium": 1.6, "full": 1.25, "long": 3.0},
    0.0: {"tiny": 1.4, "small": 1.1, "medium": 1.0, "full": 1.0, "long": 1.0},
}
LIMITS = {"medium": 1.6, "full": 1.25}
ATTENTION = {"plain": 0.9, "causal": 0.9, "padded": 1.1}
# Twice the length: twice the memory if it is linear, four times with any array of scores.
GROWTH = 2.5


@dataclass(frozen=True)
class Target:
    """A bound on one figure.

    against  what the row's tinyattn is compared with: "PyTorch" (its time over tinyattn's, at
             least), "limit" (tinyattn's over it, at most), "" (itself, in the row's unit, at most)
             or the name of a row of less work (times what that one takes, at most)
    """

    row: str
    against: str
    bound: float

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows it takes to judge."""
        return (self.row,) if self.against in ("PyTorch", "limit", "") else (self.row, self.against)

    @property
    def at_least(self) -> bool:
        return self.against == "PyTorch"

    @property
    def figure(self) -> str:
        """What is measured, in words."""
        names = {"PyTorch": "PyTorch / tinyattn", "limit": "tinyattn / limit", "": "tinyattn"}
        return names.get(self.against, "times that of half the length")

    def measured(self, rows: dict[str, Row]) -> tuple[float, float, float] | None:
        """The median, and the extremes of single rounds."""
        found = [rows.get(name) for name in self.rows]
        row = found[0]
        if row is None or None in found or any(each.errors for each in found if each):
            return None
        if self.against == "PyTorch":
            return row.ratio(row.torch, "tinyattn")
        if self.against == "limit":
            return row.ratio("tinyattn", "limit")
        known = row.known("tinyattn")
        if not known:
            return None
        middle = row.median("tinyattn") or 0.0
        if not self.against:
            return middle, min(known), max(known)
        less = rows[self.against].median("tinyattn")
        return (middle / less, min(known) / less, max(known) / less) if less else None

    def holds(self, figure: float) -> bool:
        return figure >= self.bound if self.at_least else figure <= self.bound


def all_targets() -> Iterator[Target]:
    for p, sizes in TIMES.items():
        for name, bound in sizes.items():
            yield Target(f"step {name} p={p:g}", "PyTorch", bound)
    for name, bound in LIMITS.items():
        for p in TIMES:
            yield Target(f"step {name} p={p:g}", "limit", bound)
    for p, sizes in TIMES.items():
        for name in sizes:
            yield Target(f"step {name} p={p:g} peak memory", "PyTorch", 1.0)
    for length in (2048, 4096):
        for kind, bound in ATTENTION.items():
            yield Target(f"attention {length} {kind} together", "PyTorch", bound)
    for kind in ATTENTION:
        most, less = (f"attention {length} {kind} peak memory" for length in (4096, 2048))
        yield Target(most, less, GROWTH)
    yield Target("start first step, cold cache", "", 10.0)
    yield Target("start first step, warm cache", "", 1.5)


TARGETS = tuple(all_targets())
ROWS = frozenset(name for target in TARGETS for name in target.rows)


@dataclass(frozen=True)
class Verdict:
    """A target that was judged.

    measured  the figure and its extremes, or None where something it takes is missing
    crowded   whether other programs took cores meanwhile, so that neither verdict is sure
    """

    target: Target
    unit: str
    measured: tuple[float, float, float] | None
    crowded: bool = False

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
    """The targets whose rows were measured, or were meant to be."""
    named = {row.name: row for row in rows}
    verdicts = []
    for target in TARGETS:
        if row := named.get(target.row):
            unit = "" if target.against else row.unit
            # What a process allocates does not depend on who else computes.
            crowded = row.unit != "B" and row.crowded(threads)
            verdicts.append(Verdict(target, unit, target.measured(named), crowded))
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
        word = verdict.word + "  ~" * verdict.crowded
        lines.append(
            f"{target.row:<40}{target.figure:<32}{figures[0]:>10}"
            f"  {f'{figures[1]} - {figures[2]}':<20}"
            f"{'at least' if target.at_least else 'at most':<9}{bound:<8}{word}"
        )
    lines.append(f"{sum(verdict.met for verdict in verdicts)} of {len(verdicts)} met")
    return "\n".join(lines)
