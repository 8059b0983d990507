"""What was measured, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .harness import Row
from .report import heading
from .targets import Verdict


def write_plot(
    path: Path, rows: Sequence[Row], about: dict[str, Any], verdicts: Sequence[Verdict] = ()
) -> bool:
    """A bar for every ratio, with its spread; False where there is no matplotlib or no ratio."""
    found = [(row, ratio) for row in rows if (ratio := row.ratio(row.torch, "tinyattn"))]
    found = [(row, ratio) for row, ratio in found if min(ratio) > 0]
    try:
        import matplotlib
    except ImportError:
        return False
    if not found:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    sections = list(dict.fromkeys(row.section.partition(";")[0] for row, _ in found))
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.19 * len(found)), layout="constrained")
    for i, section in enumerate(sections):
        part = [
            (place, ratio)
            for place, (row, ratio) in enumerate(found)
            if row.section.partition(";")[0] == section
        ]
        places = [place for place, _ in part]
        wholes, lows, highs = zip(*(ratio for _, ratio in part), strict=True)
        lengths = [whole - 1 for whole in wholes]
        axes.barh(places, lengths, left=1, color=f"C{i % 10}", label=section)
        axes.hlines(places, lows, highs, color="black", lw=0.8)
    bounds = {v.target.row: v.target.bound for v in verdicts if v.target.at_least}
    marked = [(bounds[row.name], i) for i, (row, _) in enumerate(found) if row.name in bounds]
    if marked:
        axes.scatter(*zip(*marked, strict=True), marker="|", c="red", label="target", zorder=3)
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(found)), [row.name for row, _ in found], fontsize=7)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("PyTorch / tinyattn: to the right of 1, tinyattn takes less")
    axes.legend(fontsize=7, loc="best")
    axes.set_title(heading(about), fontsize=6)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True
