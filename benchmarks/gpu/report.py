"""The rows as a table, as JSON, and as a plot."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from .cases import ATTENTION, COPY, LAYER_NORM, SOFTMAX, STEP
from .measure import Row

SIDES = ("tinyattn", "captured", "torch", "torch.compile", "torch plain")


def installed(*names: str) -> str:
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "-"


def setting(device_name: str) -> dict[str, str]:
    """What the figures depend on."""
    return {
        "date": date.today().isoformat(),
        "device": device_name,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "CuPy": installed("cupy-cuda13x", "cupy-cuda12x", "cupy"),
        "PyTorch": installed("torch"),
        "precision": "float32, TF32 off for both",
    }


def merged(rows: list[Row]) -> list[Row]:
    """Rows of one name as one: sides that take long to prepare have been run apart."""
    found: dict[str, Row] = {}
    for row in rows:
        first = found.setdefault(row.case.name, row)
        if first is not row:
            first.seconds |= row.seconds
            first.notes |= row.notes
            first.memory |= row.memory
            first.launches |= row.launches
    return list(found.values())


def copy_bandwidth(rows: list[Row]) -> float:
    """Bytes per second that the faster library's copy reads and writes."""
    (row,) = [row for row in rows if row.case.kind == COPY]
    return max((row.case.work / min(seconds) for seconds in row.seconds.values()), default=math.nan)


def entries(rows: list[Row]) -> list[dict[str, Any]]:
    bandwidth = copy_bandwidth(rows)
    found = []
    for row in rows:
        entry: dict[str, Any] = {"name": row.case.name, "kind": row.case.kind, "notes": row.notes}
        for side in SIDES:
            median = row.median(side)
            if median is None:
                continue
            numbers: dict[str, Any] = {"seconds": median, "rounds": row.seconds[side]}
            if side in row.memory:
                numbers["peak bytes"] = row.memory[side]
            if row.launches.get(side) is not None:
                numbers["launches"] = row.launches[side]
            if row.case.work:
                numbers["of copy bandwidth"] = row.case.work / median / bandwidth
            base = row.median("torch")
            if base is not None and side != "torch":
                numbers["times as fast as torch"] = base / median
            entry[side] = numbers
        found.append(entry)
    return found


def figures(row: Row, sides: Sequence[str]) -> str:
    """One row as a line, to be seen while the others are still measured."""
    medians = {side: row.median(side) for side in sides}
    return ", ".join(
        f"{side} {row.notes.get(side, '-') if median is None else f'{1e6 * median:,.1f} us'}"
        for side, median in medians.items()
    )


def table(rows: list[Row], about: dict[str, str]) -> str:
    """Microseconds; for steps and attention also how many times as fast as PyTorch's eager mode is,
    for rows the part of the copy's bandwidth."""
    lines = ["", ", ".join(f"{key} {value}" for key, value in about.items()), ""]
    lines.append(f"{'microseconds':<34}" + "".join(f"{side:>20}" for side in SIDES))
    for entry in entries(rows):
        cells = []
        for side in SIDES:
            numbers = entry.get(side)
            if numbers is None:
                cells.append(f"{'-':>20}")
                continue
            extra = ""
            if entry["kind"] in (SOFTMAX, LAYER_NORM, COPY):
                extra = f" {numbers['of copy bandwidth']:>6.0%}"
            elif "times as fast as torch" in numbers:
                extra = f" {numbers['times as fast as torch']:>5.2f}x"
            cells.append(f"{numbers['seconds'] * 1e6:,.1f}{extra}".rjust(20))
        lines.append(f"{entry['name']:<34}" + "".join(cells))
    for entry in entries(rows):
        counts = {s: entry[s]["launches"] for s in SIDES if "launches" in entry.get(s, {})}
        if counts:
            text = ", ".join(f"{side} {count}" for side, count in counts.items())
            lines.append(f"launches of {entry['name']}: {text}")
    notes = [f"{e['name']}, {s}: {text}" for e in entries(rows) for s, text in e["notes"].items()]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def write(rows: list[Row], about: dict[str, str], out: Path) -> None:
    """gpu.json, after every row: a run that somebody stops has measured something."""
    out.mkdir(parents=True, exist_ok=True)
    content = {"about": about, "rows": entries(rows)}
    (out / "gpu.json").write_text(json.dumps(content, indent=1) + "\n")


def draw(rows: list[Row], about: dict[str, str], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    for axes, kind, title in zip(
        figure.subplots(1, 2), (STEP, ATTENTION), ("training step", "attention"), strict=True
    ):
        chosen = [row for row in rows if row.case.kind == kind]
        for side in SIDES:
            points = [(i, row.median(side)) for i, row in enumerate(chosen)]
            points = [(i, 1e3 * value) for i, value in points if value is not None]
            if points:
                axes.plot(*zip(*points, strict=True), "o-", label=side)
        names = [row.case.name.partition(" ")[2] for row in chosen]
        axes.set_xticks(range(len(names)), names, rotation=20)
        axes.set(yscale="log", ylabel="milliseconds", title=title)
        if chosen:
            axes.legend()
    figure.suptitle(f"{about['device']}, {about['precision']}, {about['date']}", fontsize=9)
    figure.savefig(path, dpi=120)
