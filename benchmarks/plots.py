"""The measured figures as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from .harness import Row
from .report import heading
from .targets import Verdict


def new_figure(width: float, height: float) -> Any:
    """A figure to draw on, or None where there is no matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure((width, height), layout="constrained")


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def write_plot(
    path: Path, rows: Sequence[Row], about: dict[str, Any], verdicts: Sequence[Verdict] = ()
) -> bool:
    """A bar for every ratio, with its spread; False where there is no matplotlib or no ratio."""
    ratios = {row.name: row.ratio(row.torch, "tinyattn") for row in rows}
    found = [(row, ratio) for row in rows if (ratio := ratios[row.name]) and min(ratio) > 0]
    figure = new_figure(8, 1.5 + 0.19 * len(found))
    if figure is None or not found:
        return False
    axes = figure.subplots()
    sections = [row.section.partition(";")[0] for row, _ in found]
    for i, section in enumerate(dict.fromkeys(sections)):
        heights = [height for height, each in enumerate(sections) if each == section]
        medians, lows, highs = zip(*(found[height][1] for height in heights), strict=True)
        lengths = [ratio - 1 for ratio in medians]
        axes.barh(heights, lengths, left=1, color=f"C{i}", alpha=0.7, label=section)
        axes.hlines(heights, lows, highs, color="black", lw=0.8)
    bounds = {v.target.row: v.target.bound for v in verdicts if v.target.at_least}
    marked = [(bounds[row.name], i) for i, (row, _) in enumerate(found) if row.name in bounds]
    if marked:
        x, y = zip(*marked, strict=True)
        axes.scatter(x, y, marker="|", s=60, lw=2, c="black", label="target", zorder=3)
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(found)), [row.name for row, _ in found], fontsize=7)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("PyTorch / tinyattn: to the right of 1, tinyattn takes less")
    axes.legend(fontsize=7, loc="best")
    figure.suptitle(heading(about), fontsize=7)
    save(figure, path)
    return True


def write_scaling_plot(
    path: Path,
    found: Mapping[str, Sequence[Row]],
    sizes: Mapping[str, Sequence[int]],
    exponents: Mapping[str, Mapping[str, Mapping[str, float | None]]],
    about: dict[str, Any],
) -> bool:
    """Time and memory beside each other, a row for each size; False without matplotlib."""
    figure = new_figure(8, 3 * len(found) + 0.7)
    if figure is None:
        return False
    from matplotlib.ticker import LogLocator, NullFormatter

    grid = figure.subplots(len(found), 2, squeeze=False)
    quantities = (("time", "s", 1e3, "ms"), ("peak memory", "B", 2**-20, "MiB"))
    for row_of_panels, (axis, rows) in zip(grid, found.items(), strict=True):
        for axes, (quantity, unit, scale, label) in zip(row_of_panels, quantities, strict=True):
            of_unit = [row for row in rows if row.unit == unit]
            for i, (side, name) in enumerate((("torch", "PyTorch"), ("tinyattn", "tinyattn"))):
                known = [
                    (size, scale * median, [scale * value for value in row.known(side)])
                    for size, row in zip(sizes[axis], of_unit, strict=True)
                    if (median := row.median(side))
                ]
                if not known:
                    continue
                x, y, values = zip(*known, strict=True)
                slope = exponents[axis][quantity][side]
                fit = "" if slope is None else f", exponent {slope:.2f}"
                axes.plot(x, y, "o-", color=f"C{i}", ms=4, label=name + fit)
                axes.vlines(x, list(map(min, values)), list(map(max, values)), color=f"C{i}")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_minor_formatter(NullFormatter())
            for scale_of in (axes.xaxis, axes.yaxis):
                scale_of.set_major_formatter("{x:g}")
            axes.set_ylabel(f"{quantity} of a step ({label})")
            axes.set_xlabel(axis)
            axes.legend(fontsize=9.5, loc="upper left")  # no rising line goes there
        row_of_panels[0].set_title(rows[0].section, fontsize=9.5, loc="left")
    lines = [fill(line, 110) for line in heading(about).splitlines()]
    figure.suptitle("\n".join(lines), fontsize=9.5)
    save(figure, path)
    return True
