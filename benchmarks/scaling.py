"""How the time and the memory of a training step grow with length, batch, width and depth.

    python -m benchmarks.scaling

One size grows while the others stay. The exponent is the slope of a straight line through the upper
half of the points, both axes logarithmic: 1 where twice the size costs twice as much. PyTorch runs
with scaled_dot_product_attention and without dropout, since with it that function falls back to
separate products. A point that a library cannot compute in its share of time or memory is dropped
for that library, and said to be.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from . import plots, report
from .cases import BOTH, Case
from .command import parsed, parser_of, tell
from .harness import Row, enter, rows_of, same_numbers
from .processes import SIDES, Settings, undisturbed
from .scaling_cases import AXES, scaling_cases

TIME, MEMORY = "s", "B"


def fitted(sizes: Sequence[float], values: Sequence[float | None]) -> float | None:
    """The exponent over the upper half of the known points; None with fewer than two."""
    known = [(s, v) for s, v in zip(sizes, values, strict=True) if v]
    upper = known[len(known) // 2 :]
    if len(upper) < 2:
        return None
    x, y = np.log(np.array(upper)).T
    return float(np.polyfit(x, y, 1)[0])


def measure(
    cases: Sequence[Case],
    sides: Sequence[str],
    settings: Settings,
    seconds: float,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, list[Row]], int]:
    """The rows of each axis, and in how many rounds they were measured.

    Another round begins only if it will end within `seconds`, as far as the last one tells.
    """
    rows = {case.name: rows_of(case) for case in cases}
    axes = {axis: list(group) for axis, group in groupby(cases, key=lambda case: case.process)}
    share = seconds / len(axes) / len(sides)
    checks: dict[str, dict[str, list[float]]] = {case.name: {} for case in cases}
    end, rounds = time.monotonic() + seconds, 0
    took = 0.0
    while rounds == 0 or (rounds < settings.repeats and time.monotonic() + took < end):
        began = time.monotonic()
        for axis, group in axes.items():
            for side in sides if rounds % 2 == 0 else reversed(sides):
                asked = [case for case in group if side not in rows[case.name][0].lacks]
                if not asked:
                    continue
                tell(f"round {rounds + 1}: {axis}, {side}")
                timed = replace(settings, timeout=share / len(asked))
                answers, others = undisturbed(SIDES[side], asked, timed)
                for name, answer in answers.items():
                    if "error" in answer:
                        for row in rows[name]:
                            row.lacks[side] = answer["error"]
                        continue
                    enter(answer, side, rows[name], others)
                    checks[name][side] = answer["check"]
        took = time.monotonic() - began
        rounds += 1
    for name, found in checks.items():
        if len(found) > 1 and not same_numbers(found):
            rows[name][0].fail("the libraries computed different numbers")
    return {axis: [row for case in axes[axis] for row in rows[case.name]] for axis in axes}, rounds


def of_unit(rows: Iterable[Row], unit: str) -> list[Row]:
    return [row for row in rows if row.unit == unit]


def exponents(rows: Sequence[Row], sizes: Sequence[int]) -> dict[str, dict[str, float | None]]:
    """By what is measured, then by side."""
    return {
        what: {
            side: fitted(sizes, [row.median(side) for row in of_unit(rows, unit)]) for side in BOTH
        }
        for what, unit in (("time", TIME), ("peak memory", MEMORY))
    }


def table(axis: str, rows: Sequence[Row], sizes: Sequence[int], threads: int) -> str:
    times, memories = of_unit(rows, TIME), of_unit(rows, MEMORY)
    fits = exponents(rows, sizes)
    heads = ("PyTorch", "tinyattn", "ratio", "PyTorch", "tinyattn", "ratio")
    lines = [f"\n{axis}; {rows[0].section}", f"{'':>9}{'time':>20}{'peak memory':>46}"]
    lines.append(f"{axis:>9}" + "".join(f"{head:>14}" for head in heads))

    def cells(row: Row) -> str:
        ratio = row.ratio("torch", "tinyattn")
        amounts = [report.amount(row.median(side), row.unit) for side in BOTH]
        return "".join(f"{t:>14}" for t in [*amounts, f"{ratio[0]:.2f}" if ratio else "-"])

    for size, t, m in zip(sizes, times, memories, strict=True):
        lines.append(f"{size:>9}{cells(t)}{cells(m)}{'  ~' * t.crowded(threads)}")
    slopes = [
        "-" if slope is None else f"{slope:.2f}" for fit in fits.values() for slope in fit.values()
    ]
    lines.append(
        f"{'exponent':>9}{slopes[0]:>14}{slopes[1]:>14}{'':>14}{slopes[2]:>14}{slopes[3]:>14}"
    )
    for size, row in zip(sizes, times, strict=True):
        lines += [f"    {side} without {axis} {size}: {why}" for side, why in row.lacks.items()]
        lines += [f"    ! {error}" for error in row.errors]
    return "\n".join(lines)


def available_memory() -> int:
    """Bytes that one process may take: three quarters of what is free now."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return free * 3 // 4


def arguments() -> argparse.Namespace:
    parser = parser_of("benchmarks.scaling", __doc__)
    parser.add_argument("--axis", choices=AXES, action="append", help="default: all four")
    parser.add_argument(
        "--minutes",
        type=float,
        default=6.0,
        help="for everything, without --wait, which may mean fewer rounds (default: 6)",
    )
    return parsed(parser, "minutes")


def main() -> int:
    args = arguments()
    axes = {name: axis for name, axis in AXES.items() if not args.axis or name in args.axis}
    cases = [case for case in scaling_cases(args.short) if case.process in axes]
    settings = Settings(
        threads=args.threads,
        repeats=args.repeats,
        budget=0.6,
        wait=args.wait,
        short=args.short,
        memory=available_memory(),
    )
    sides = [side for side in BOTH if side != "torch" or find_spec("torch")]
    about: dict[str, Any] = report.surroundings(settings)
    about["started"] = time.strftime("%Y-%m-%dT%H:%M:%S")

    found, rounds = measure(cases, sides, settings, args.minutes * 60, tell)
    tell("")
    about["settings"]["repeats"] = rounds
    print(report.heading(about))
    sizes = {name: axis.sizes(args.short) for name, axis in axes.items()}
    for name, rows in found.items():
        print(table(name, rows, sizes[name], args.threads))
    path = (
        args.json or Path("runs/benchmarks") / f"scaling-{about['started'].replace(':', '')}.json"
    )
    every = [row for rows in found.values() for row in rows]
    if any(row.crowded(args.threads) for row in every):
        print(f"\n{report.CROWD}")
    fits = {name: exponents(rows, sizes[name]) for name, rows in found.items()}
    report.write_json(path, every, about, sizes=sizes, exponents=fits)
    print(f"\n{path}")
    plot = args.plot or path.with_suffix(".png")
    if plots.write_scaling_plot(plot, found, sizes, fits, about):
        print(plot)
    return 1 if any(row.errors for row in every) else 0


if __name__ == "__main__":
    sys.exit(main())
