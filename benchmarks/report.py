"""What was measured, for a person: a table, a JSON file, a picture."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from .harness import KEEP_MEMORY, Row, Settings, crowded

TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def amount(value: float | None, unit: str) -> str:
    """A number with three digits and its unit."""
    if value is None:
        return "-"
    if unit == "B":
        return f"{value / 2**20:.1f} MiB"
    scale, name = next((u for u in TIME_UNITS if abs(value) >= u[0]), TIME_UNITS[-1])
    number = value / scale
    return f"{number:.{0 if number >= 99.95 else 1 if number >= 9.995 else 2}f} {name}"


def with_spread(row: Row, side: str) -> str:
    value = row.median(side)
    return "-" if value is None else f"{amount(value, row.unit)} ±{row.spread(side):4.0%}"


def installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def surroundings(settings: Settings) -> dict[str, Any]:
    """What the figures depend on besides the code."""
    import numpy

    import tinyattn

    blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index]
    return {
        "versions": {
            "tinyattn": tinyattn.__version__,
            "NumPy": f"{numpy.__version__} ({blas['name']} {blas['version']})",
            "Numba": installed("numba"),
            "PyTorch": installed("torch"),
            "Python": platform.python_version(),
        },
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "settings": asdict(settings),
        "environment": KEEP_MEMORY if settings.keep_memory else {},
    }


def heading(about: dict[str, Any]) -> str:
    settings = about["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    memory = "kept" if settings["keep_memory"] else "given back to the system"
    return (
        f"{versions}\n{about['processor']}, {about['cores']} cores; {settings['threads']} threads, "
        f"{settings['repeats']} rounds, freed memory {memory}"
    )


HEAD = f"{'PyTorch':>18}{'tinyattn':>18}{'ratio':>8}  {'of the rounds':<14}"
LIMIT = f"{'limit':>9}{'tinyattn/limit':>16}"
CROWD = "~  other programs were using cores that this row needed"


class Table:
    """Prints rows as they come, with a heading whenever a new section begins."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.section = ""
        self.crowded = False

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.section != self.section:
                self.section = row.section
                limit = LIMIT if "limit" in row.values else ""
                print(f"\n{row.section}\n{'':<68}{HEAD}{limit}".rstrip())
            crowd = bool(row.others) and crowded(median(row.others), self.threads)
            self.crowded |= crowd
            print(line(row) + "  ~" * crowd, flush=True)
            for error in row.errors:
                print(f"    ! {error}", flush=True)

    def close(self) -> None:
        if self.crowded:
            print(f"\n{CROWD}")


def line(row: Row) -> str:
    text = f"{row.name:<40}{row.detail:<28}"
    text += f"{with_spread(row, row.torch):>18}{with_spread(row, 'tinyattn'):>18}"
    if ratio := row.ratio(row.torch, "tinyattn"):
        text += f"{ratio[0]:>8.2f}  {f'{ratio[1]:.2f} - {ratio[2]:.2f}':<14}"
    else:
        text += f"{'-':>8}  {'':<14}"
    if "limit" in row.values:
        over = row.ratio("tinyattn", "limit")
        text += f"{amount(row.median('limit'), row.unit):>9}{f'{over[0]:.2f}' if over else '-':>16}"
    return text.rstrip() + ("  plain" if row.torch == "torch plain" else "")


def write_json(path: Path, rows: Sequence[Row], about: dict[str, Any]) -> None:
    """Every value of every round, and what the table makes of them."""
    entries = []
    for row in rows:
        ratio = row.ratio(row.torch, "tinyattn") or (None, None, None)
        medians = {side: row.median(side) for side in row.values}
        summary = {"medians": medians, "ratio": ratio[0], "ratio_of_rounds": ratio[1:]}
        entries.append({**asdict(row), **summary})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, "rows": entries}, indent=1) + "\n")


def write_plot(path: Path, rows: Sequence[Row], about: dict[str, Any]) -> bool:
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
