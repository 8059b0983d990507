"""How the cost of a training step grows: with length, batch, width, depth and vocabulary.

    python -m benchmarks.scaling

One size grows while the others stay. The exponent is the slope of a straight line through the upper
half of the points, both axes logarithmic: 1 where twice the size costs twice as much. PyTorch runs
with scaled_dot_product_attention and without dropout, because with dropout that function computes
separate products. A point that a library cannot compute in its time or memory is left out for that
library, and the table says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from . import plots, report
from .cases import BOTH
from .encoders import AXES, growing
from .harness import Row, measure_all
from .processes import SIDES

TIME, MEMORY = "s", "B"


def fitted(sizes: Sequence[float], values: Sequence[float | None]) -> float | None:
    """The exponent over the upper half of the known points; None with fewer than two."""
    known = [(s, v) for s, v in zip(sizes, values, strict=True) if v]
    upper = known[len(known) // 2 :]
    if len(upper) < 2:
        return None
    x, y = np.log(np.array(upper)).T
    return float(np.polyfit(x, y, 1)[0])


def of_unit(rows: Iterable[Row], unit: str) -> list[Row]:
    return [row for row in rows if row.unit == unit]


def exponents(rows: Sequence[Row], sizes: Sequence[int]) -> dict[str, dict[str, float | None]]:
    """By time and peak memory, then by side."""
    return {
        quantity: {
            side: fitted(sizes, [row.median(side) for row in of_unit(rows, unit)]) for side in BOTH
        }
        for quantity, unit in (("time", TIME), ("peak memory", MEMORY))
    }


def table(axis: str, rows: Sequence[Row], sizes: Sequence[int], threads: int) -> str:
    times, memories = of_unit(rows, TIME), of_unit(rows, MEMORY)
    fits = exponents(rows, sizes)
    heads = ("PyTorch", "tinyattn", "ratio", "PyTorch", "tinyattn", "ratio")
    lines = [f"\n{rows[0].section}", f"{'':>9}{'time':>20}{'peak memory':>46}"]
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
    """Bytes that one process may take: three quarters of the free memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return free * 3 // 4


def main() -> int:
    parser = report.parser_of("benchmarks.scaling", __doc__)
    parser.add_argument("--axis", choices=AXES, action="append", help="default: all")
    parser.set_defaults(timeout=20.0)
    args, settings = report.parsed(parser)
    settings = replace(settings, memory=available_memory())
    axes = {name: axis for name, axis in AXES.items() if not args.axis or name in args.axis}
    cases = [case for case in growing(args.short) if case.process in axes]
    sides = {side: SIDES[side] for side in BOTH if SIDES[side].is_installed}
    about = report.surroundings(settings)
    print(report.heading(about), flush=True)

    sizes = {name: axis.sizes(args.short) for name, axis in axes.items()}
    measured = zip(cases, measure_all(cases, sides, settings, report.tell), strict=True)
    found: dict[str, list[Row]] = {}
    for name, group in groupby(measured, key=lambda pair: pair[0].process):
        found[name] = [row for _, rows in group for row in rows]
        report.tell("")
        print(table(name, found[name], sizes[name], args.threads), flush=True)
    every = [row for rows in found.values() for row in rows]
    if any(row.crowded(args.threads) for row in every):
        print(f"\n{report.CROWD}")
    fits = {name: exponents(rows, sizes[name]) for name, rows in found.items()}
    path, plot = report.files(args, about, "scaling-")
    report.write_json(path, every, about, sizes=sizes, exponents=fits)
    print(f"\n{path}")
    if plots.write_scaling_plot(plot, found, sizes, fits, about):
        print(plot)
    return 1 if any(row.errors for row in every) else 0


if __name__ == "__main__":
    sys.exit(main())
