"""tinyattn against PyTorch, side by side.

Every row is the median of several rounds; in a round, fresh processes of the two libraries take
turns. The ratio is PyTorch's median over tinyattn's: above 1, tinyattn takes less. Beside it stand
the least and the greatest ratio of one round. "plain" marks rows where PyTorch was faster with
attention as separate products than with scaled_dot_product_attention.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

from . import plots, report
from .cases import Case
from .harness import Row, measure_all
from .processes import SIDES, Settings
from .rows import all_cases


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        action="append",
        help="rows whose name contains this (with * and ?); may be given again",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--short", action="store_true", help="tiny sizes, once: tests the harness")
    parser.add_argument("--repeats", type=int, help="rounds (default: 5; with --short 1)")
    parser.add_argument("--threads", type=int, help="of each library (default: 2; with --short 1)")
    parser.add_argument(
        "--budget", type=float, default=1.0, help="seconds for a row in one process (default: 1)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        help="seconds until a row is given up (default: 300)",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long a process may wait for free cores, and be repeated for want of them",
    )
    parser.add_argument(
        "--default-malloc",
        action="store_true",
        help="let malloc give freed memory back to the system, as it does by default",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: in runs/benchmarks/")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="default: the JSON file's, as PNG"
    )
    args = parser.parse_args()
    args.threads = args.threads if args.threads is not None else 1 if args.short else 2
    args.repeats = args.repeats if args.repeats is not None else 1 if args.short else 5
    if args.threads < 1 or args.repeats < 1 or args.budget <= 0 or args.timeout <= 0:
        parser.error("--threads, --repeats, --budget and --timeout must be above 0")
    return args


def matches(name: str, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatchcase(name, f"*{pattern}*") for pattern in patterns)


def chosen_cases(short: bool, patterns: list[str] | None) -> list[Case]:
    cases = all_cases(short)
    return [case for case in cases if any(matches(row, patterns) for row in case.rows)]


def main() -> int:
    args = arguments()
    cases = chosen_cases(args.short, args.only)
    names = [row for case in cases for row in case.rows if matches(row, args.only)]
    if args.list:
        print("\n".join(names))
        return 0
    if not cases:
        print(f"no row is called {' or '.join(args.only)}; see --list", file=sys.stderr)
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
    installed = {"torch": find_spec("torch") is not None}
    sides = [name for name, side in SIDES.items() if installed.get(side.library, True)]
    about = report.surroundings(settings)
    about["started"] = time.strftime("%Y-%m-%dT%H:%M:%S")
    print(report.heading(about), flush=True)

    def tell(what: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{what} ...", end="\r", file=sys.stderr, flush=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt  # which ends the process being measured on its way out

    signal.signal(signal.SIGTERM, stop)
    table = report.Table(settings.threads)
    finished: list[Row] = []
    interrupted = False
    try:
        for rows in measure_all(cases, sides, settings, tell):
            wanted = [row for row in rows if row.name in names]
            tell("")
            table.add(wanted)
            finished += wanted
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; what was finished is kept", file=sys.stderr)
    table.close()
    path = args.json or Path("runs/benchmarks") / f"{about['started'].replace(':', '')}.json"
    report.write_json(path, finished, about)
    print(f"\n{path}")
    plot = args.plot or path.with_suffix(".png")
    if plots.write_plot(plot, finished, about):
        print(plot)
    failed = [row.name for row in finished if row.errors]
    if failed:
        print(f"with errors: {', '.join(failed)}", file=sys.stderr)
    return 130 if interrupted else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
