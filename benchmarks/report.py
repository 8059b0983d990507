"""What a person types and reads: the options of the commands, a table and a JSON file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from . import products
from .cases import COMPILED
from .harness import Row
from .processes import KEEP_MEMORY, OTHER_KERNELS, Settings

TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def parser_of(program: str, description: str | None) -> argparse.ArgumentParser:
    """The options that all commands have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="tiny sizes, once: tests the harness")
    parser.add_argument("--threads", type=int, help="of each library (default: 2; with --short 1)")
    parser.add_argument("--repeats", type=int, help="rounds (default: 5; with --short 1)")
    seconds = {
        "budget": (1.0, "for a case in one process"),
        "timeout": (300.0, "until a case is given up"),
        "wait": (0.0, "in which a process may wait for free cores, and be repeated without them"),
    }
    for name, (default, text) in seconds.items():
        text = f"seconds {text} (default: {default:g})"
        parser.add_argument(f"--{name}", type=float, metavar="S", default=default, help=text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: in runs/benchmarks/")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="default: the JSON's, as PNG")
    return parser


def parsed(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Settings]:
    args = parser.parse_args()
    args.threads = args.threads if args.threads is not None else 1 if args.short else 2
    args.repeats = args.repeats if args.repeats is not None else 1 if args.short else 5
    if min(args.threads, args.repeats, args.budget, args.timeout) <= 0:
        parser.error("--threads, --repeats, --budget and --timeout must be above 0")
    names = ("threads", "repeats", "budget", "timeout", "wait", "short")
    return args, Settings(**{name: getattr(args, name) for name in names})


def tell(text: str) -> None:
    """Say what is measured, on a line that the next one replaces; nothing if nobody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text} ...", end="\r", file=sys.stderr, flush=True)


def files(args: argparse.Namespace, about: dict[str, Any], prefix: str = "") -> tuple[Path, Path]:
    """Where the JSON and the plot go."""
    name = f"{prefix}{about['started'].replace(':', '')}.json"
    path = args.json or Path("runs/benchmarks") / name
    return path, args.plot or path.with_suffix(".png")


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


def installed(*names: str) -> str:
    """The version of the first of these packages that is there."""
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
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
    """What the figures depend on besides the code, and when they were taken."""
    import numpy

    import tinyattn

    blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "versions": {
            "tinyattn": tinyattn.__version__,
            "NumPy": f"{numpy.__version__} ({blas['name']} {blas['version']})",
            "Numba": installed("numba"),
            "PyTorch": installed("torch"),
            "JAX": installed("jax"),
            "Python": platform.python_version(),
        },
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "settings": asdict(settings),
        "environment": KEEP_MEMORY if settings.keep_memory else {},
        "left_out": {name: os.environ[name] for name in OTHER_KERNELS if name in os.environ},
        "products": products.of_both(settings),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def heading(about: dict[str, Any]) -> str:
    settings = about["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    memory = "reused" if settings["keep_memory"] else "as the library leaves it"
    threads = f"{settings['threads']} thread{'s' * (settings['threads'] > 1)}"
    rounds = f"{settings['repeats']} round{'s' * (settings['repeats'] > 1)}"
    lines = [
        versions,
        f"{about['processor']}, {about['cores']} cores; {threads}, {rounds}, freed memory {memory}",
        *about["products"],
    ]
    if left_out := about["left_out"]:
        named = ", ".join(f"{name}={value}" for name, value in left_out.items())
        lines.append(f"measured without {named}, which no user has")
    return "\n".join(lines)


HEAD = f"{'PyTorch':>18}{'tinyattn':>18}{'ratio':>8}  {'of the rounds':<14}"
LIMIT = f"{'limit':>9}{'tinyattn/limit':>16}"
PEERS = ("onnxruntime", *COMPILED)
CROWD = "~  other programs were using so many cores, which this row needed; see --wait"


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
                more = LIMIT if "limit" in row.values else ""
                more += "".join(
                    f"{side:>18}{'its ratio':>12}" + f"{'first call':>12}" * (side in COMPILED)
                    for side in PEERS
                    if side in row.values
                )
                print(f"\n{row.section}\n{'':<68}{HEAD}{more}".rstrip())
            crowd = row.crowded(self.threads)
            self.crowded |= crowd
            print(line(row) + f"  ~{median(row.others):.1f}" * crowd, flush=True)
            for complaint in row.complaints:
                print(f"    ! {complaint}", flush=True)

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
    for side in PEERS:
        if side not in row.values:
            continue
        beside = row.ratio(side, "tinyattn")
        text += f"{with_spread(row, side):>18}{f'{beside[0]:.2f}' if beside else '-':>12}"
        if side in COMPILED:
            first = row.first.get(side)
            text += f"{amount(median(first) if first else None, 's'):>12}"
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
