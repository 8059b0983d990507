"""tinyattn against PyTorch, side by side.

Every row is the median of several rounds; in a round, fresh processes of the two libraries take
turns. The ratio is PyTorch's median over tinyattn's: above 1, tinyattn takes less. Beside it stand
the least and the greatest ratio of one round. "plain" marks rows where PyTorch was faster with
attention as separate products than with scaled_dot_product_attention.

tinyattn runs with OPENBLAS_NUM_THREADS=1 and as many threads of its own as PyTorch has. In training
steps a quarter of each batch is padding, which tinyattn leaves out (skip_padding) and
PyTorch, which in training has no option for that, computes. In rows "with padding" both compute it,
in rows "without padding" both leave it out, PyTorch with samples packed by hand.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

from . import other_report, plots, report, targets
from .cases import Case
from .command import parsed, parser_of, tell
from .harness import Row, measure_all
from .other_libraries import OTHER_LIBRARIES
from .other_rows import other_cases
from .processes import SIDES, Settings
from .rows import all_cases


def arguments() -> argparse.Namespace:
    parser = parser_of("benchmarks", __doc__)
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        action="append",
        help="rows whose name contains this (with * and ?); may be given again",
    )
    parser.add_argument(
        "--targets", action="store_true", help="only the rows that a target is set for"
    )
    parser.add_argument(
        "--others",
        action="store_true",
        help="also torch.compile, and what is there of pip install autograd mygrad dezero tinygrad",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument(
        "--budget", type=float, default=1.0, help="seconds for a case in one process (default: 1)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        help="seconds until a row is given up (default: 300)",
    )
    parser.add_argument(
        "--default-malloc",
        action="store_true",
        help="let malloc give freed memory back to the system, as it does by default",
    )
    return parsed(parser, "budget", "timeout")


def matches(name: str, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatchcase(name, f"*{pattern}*") for pattern in patterns)


def chosen(args: argparse.Namespace) -> tuple[list[Case], list[str]]:
    """The cases to be measured, and the names of the rows that were asked for."""
    cases = [*all_cases(args.short), *(other_cases(args.short) if args.others else ())]
    names = [
        row
        for case in cases
        for row in case.rows
        if matches(row, args.only) and (not args.targets or row in targets.ROWS)
    ]
    return [case for case in cases if any(row in names for row in case.rows)], names


def main() -> int:
    args = arguments()
    cases, names = chosen(args)
    if args.list:
        print("\n".join(names))
        return 0
    if not cases:
        asked = " or ".join(args.only or ()) or "a target's"
        print(f"no row is called {asked}; see --list", file=sys.stderr)
        return 2
    settings = Settings(
        threads=args.threads,
        repeats=args.repeats,
        budget=args.budget,
        timeout=args.timeout,
        wait=args.wait,
        short=args.short,
        keep_memory=not args.default_malloc,
    )
    here = {side.library: True for side in SIDES.values()}
    here |= {name: find_spec(name) is not None for name in ("torch", *OTHER_LIBRARIES)}
    sides = [name for name, side in SIDES.items() if here[side.library]]
    about = report.surroundings(settings)
    about["started"] = time.strftime("%Y-%m-%dT%H:%M:%S")
    print(report.heading(about), flush=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt  # which ends the process being measured on its way out

    signal.signal(signal.SIGTERM, stop)
    caches = tempfile.TemporaryDirectory()  # so that compilers begin with nothing, once
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches.name
    os.environ["CACHEDB"] = str(Path(caches.name) / "tinygrad.db")
    table = report.Table(settings.threads)
    finished: list[Row] = []
    beside: list[Row] = []
    interrupted = False
    try:
        for rows in measure_all(cases, sides, settings, tell):
            wanted = [row for row in rows if row.name in names]
            tell("")
            if any(row.name.startswith("other ") for row in wanted):
                beside += wanted
            else:
                table.add(wanted)
                finished += wanted
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; what was finished is kept", file=sys.stderr)
    caches.cleanup()
    table.close()
    if beside:
        about["versions"] |= (versions := other_report.versions())
        print(other_report.table(beside, versions, args.threads))
    # Targets are set for the full sizes.
    verdicts = [] if args.short else targets.judged(finished, args.threads)
    if verdicts:
        print("\n" + targets.table(verdicts))
    path = args.json or Path("runs/benchmarks") / f"{about['started'].replace(':', '')}.json"
    judged = [{**asdict(verdict), "verdict": verdict.word} for verdict in verdicts]
    report.write_json(path, finished + beside, about, targets=judged)
    print(f"\n{path}")
    plot = args.plot or path.with_suffix(".png")
    if plots.write_plot(plot, finished, about, verdicts):
        print(plot)
    failed = [row.name for row in finished + beside if row.errors]
    if failed:
        print(f"with errors: {', '.join(failed)}", file=sys.stderr)
    return 130 if interrupted else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
