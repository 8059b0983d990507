"""tinyattn beside PyTorch on one GPU.

python -m benchmarks.gpu                   every row, in some ten minutes
python -m benchmarks.gpu --dry-run         a test of the program itself on the host, without figures
python -m benchmarks.gpu --first-minutes   tests, figures and NVIDIA's checks, in nine minutes

Both libraries compute in float32 with TF32 off. The JSON file is written after every section.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tinyattn as ta
from tinyattn.errors import DeviceError

from .. import plots, report
from ..harness import Row, measure_all
from .cases import gpu_cases, gpu_sides
from .first_minutes import first_minutes


def device_name(dry_run: bool) -> str:
    """The GPU's name; raises DeviceError without one."""
    if dry_run:
        return "the host, a dry run: no figures"
    return ta.base.backend.module_of("cuda").cuda.runtime.getDeviceProperties(0)["name"].decode()


def bandwidth(row: Row, side: str) -> float | None:
    """Bytes per second read and written, for a row of the first section."""
    seconds = row.median(side)
    return int(row.detail.split()[0]) / seconds if seconds else None


def table(rows: Sequence[Row], sides: Sequence[str]) -> str:
    """Times, and beside them the part of the copy's bandwidth or PyTorch's time over this one."""
    lines, section, best = [], "", 0.0
    for row in rows:
        if row.section != section:
            section = row.section
            lines.append(f"\n{section}\n{'':<32}" + "".join(f"{side:>20}" for side in sides))
        copied = [bandwidth(row, side) or 0.0 for side in sides if "bytes" in row.detail]
        if row.name.startswith("gpu copy"):
            best = max(copied)
        cells = []
        for side in sides:
            cell = report.amount(row.median(side), row.unit)
            if copied and best and (speed := bandwidth(row, side)):
                cell += f"{speed / best:>7.0%}"
            elif not copied and (ratio := row.ratio("torch", side)):
                cell += f"{f'x{ratio[0]:.2f}':>7}"
            cells.append(f"{cell:>20}")
        lines.append(f"{row.name:<32}" + "".join(cells))
        lines += [f"    ! {complaint}" for complaint in row.complaints]
    return "\n".join(lines)


def main() -> int:
    parser = report.parser_of("benchmarks.gpu", __doc__)
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, on the host")
    text = "what to run first on a GPU; results in FOLDER (default: runs/first_minutes)"
    parser.add_argument(
        "--first-minutes",
        nargs="?",
        type=Path,
        const=Path("runs/first_minutes"),
        metavar="FOLDER",
        help=text,
    )
    parser.set_defaults(repeats=3, budget=0.6)
    args, settings = report.parsed(parser)
    try:
        name = device_name(args.dry_run)
    except DeviceError as error:
        print(f"benchmarks.gpu needs an NVIDIA GPU: {error}", file=sys.stderr)
        print("a test of the program itself: python -m benchmarks.gpu --dry-run", file=sys.stderr)
        return 2
    if args.first_minutes:
        return first_minutes(args.first_minutes, args.dry_run)
    if args.dry_run:
        settings = replace(settings, short=True, repeats=1, threads=1)
    # Each variable of malloc would change the host's memory alone.
    settings = replace(settings, keep_memory=False)
    cases = list(gpu_cases(settings.short))
    sides = {
        side: each
        for side, each in gpu_sides(args.dry_run).items()
        if each.library != "torch" or find_spec("torch")
    }
    about: dict[str, Any] = report.surroundings(settings)
    about |= {"device": name, "precision": "float32, TF32 off for both"}
    about["versions"]["CuPy"] = report.installed("cupy-cuda13x", "cupy-cuda12x", "cupy")
    print(f"{report.heading(about)}\n{name}, {about['precision']}", flush=True)
    rows: list[Row] = []
    path, plot = report.files(args, about, "gpu-")
    for found in measure_all(cases, sides, settings, report.tell):
        rows += found
        report.write_json(path, rows, about)
    report.tell("")
    print(table(rows, list(sides)))
    print(f"\n{path}")
    if plots.write_plot(plot, rows, about):
        print(plot)
    return 1 if any(row.complaints for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
