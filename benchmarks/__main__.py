"""tinyattn against PyTorch, side by side.

Every row is the median of several rounds; in a round, fresh processes of the two libraries take
turns. The ratio is PyTorch's median over tinyattn's: above 1, tinyattn takes less. Beside it stand
the least and the greatest ratio of one round. "plain" marks rows where PyTorch was faster with
attention as separate products than with scaled_dot_product_attention.

Both libraries have the same number of threads, and no variable of the environment sets it. In
training steps a quarter of each batch is padding: tinyattn leaves it out (skip_padding), PyTorch
computes it, because it has no option for that in training. In rows "with padding" both compute it;
in rows "without padding" both leave it out, and PyTorch's samples are packed by hand. In rows "busy
machine" another process keeps one core busy.

Further columns stand beside some rows, where the peer is installed: onnxruntime (with onnx) beside
inference, torch.compile (with a C++ compiler) and JAX beside training steps. Both compile in the
first call, in every round, which takes most of the time of these rows: --without torch.compile.
They compute padding, and their peak memory is left out, because the compiler's would count.
"""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import asdict, replace
from fnmatch import fnmatchcase

from . import plots, report, targets
from .cases import Case
from .harness import Row, all_cases, measure_all
from .processes import SIDES, Settings, Side


def parser() -> argparse.ArgumentParser:
    parser = report.parser_of("benchmarks", __doc__)
    only = "rows whose name contains this (with * and ?); may be given again"
    parser.add_argument("--only", metavar="PATTERN", action="append", help=only)
    without = "a column to leave out; may be given again"
    parser.add_argument(
        "--without", choices=report.PEERS, action="append", default=[], help=without
    )
    parser.add_argument("--targets", action="store_true", help="only the rows with a target")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    malloc = (
        "set no variable of malloc: what is freed goes back to the system, if the library lets it"
    )
    parser.add_argument("--default-malloc", action="store_true", help=malloc)
    return parser


def matches(name: str, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatchcase(name, f"*{pattern}*") for pattern in patterns)


def chosen(args: argparse.Namespace) -> tuple[list[Case], list[str]]:
    """The cases to be measured, and the names of the rows that were asked for."""
    cases = all_cases(args.short)
    names = [
        row
        for case in cases
        for row in case.rows
        if matches(row, args.only) and (not args.targets or row in targets.ROWS)
    ]
    return [case for case in cases if any(row in names for row in case.rows)], names


def measured(
    cases: list[Case], names: list[str], sides: dict[str, Side], settings: Settings
) -> tuple[list[Row], bool]:
    """The rows of these names, printed as they are finished, and whether somebody interrupted."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt  # which ends the process that is measured

    signal.signal(signal.SIGTERM, stop)
    table = report.Table(settings.threads)
    finished: list[Row] = []
    interrupted = False
    try:
        for rows in measure_all(cases, sides, settings, report.tell):
            wanted = [row for row in rows if row.name in names]
            report.tell("")
            table.add(wanted)
            finished += wanted
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; the finished rows are written", file=sys.stderr)
    table.close()
    return finished, interrupted


def main() -> int:
    args, settings = report.parsed(parser())
    settings = replace(settings, keep_memory=not args.default_malloc)
    cases, names = chosen(args)
    if args.list:
        print("\n".join(names))
        return 0
    if not cases:
        asked = " or ".join(args.only or ()) or "a target's"
        print(f"no row is called {asked}; see --list", file=sys.stderr)
        return 2
    about = report.surroundings(settings)
    print(report.heading(about), flush=True)
    sides = {n: side for n, side in SIDES.items() if n not in args.without and side.is_installed}
    finished, interrupted = measured(cases, names, sides, settings)
    # Targets are set for the full sizes.
    verdicts = [] if args.short else targets.judged(finished, args.threads)
    if verdicts:
        print("\n" + targets.table(verdicts))
    path, plot = report.files(args, about)
    judged = [{**asdict(verdict), "verdict": verdict.word} for verdict in verdicts]
    report.write_json(path, finished, about, targets=judged)
    print(f"\n{path}")
    if plots.write_plot(plot, finished, about, verdicts):
        print(plot)
    failed = [row.name for row in finished if row.complaints]
    if failed:
        print(f"with errors: {', '.join(failed)}", file=sys.stderr)
    return 130 if interrupted else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
