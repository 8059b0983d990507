"""What was measured, for a person: a table and a JSON file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from .harness import Row
from .processes import KEEP_MEMORY, Settings

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

    blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
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
    threads = f"{settings['threads']} thread{'s' * (settings['threads'] > 1)}"
    rounds = f"{settings['repeats']} round{'s' * (settings['repeats'] > 1)}"
    return (
        f"{versions}\n{about['processor']}, {about['cores']} cores; {threads}, {rounds}, freed "
        f"memory {memory}"
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
            crowd = row.crowded(self.threads)
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


def write_json(path: Path, rows: Sequence[Row], about: dict[str, Any], **more: Any) -> None:
    """Every value of every round, and what the table makes of them."""
    entries = []
    for row in rows:
        ratio = row.ratio(row.torch, "tinyattn") or (None, None, None)
        medians = {side: row.median(side) for side in row.values}
        summary = {"medians": medians, "ratio": ratio[0], "ratio_of_rounds": ratio[1:]}
        entries.append({**asdict(row), **summary})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, "rows": entries, **more}, indent=1) + "\n")
