"""What the commands `benchmarks` and `benchmarks.scaling` have in common."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def parser_of(program: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="tiny sizes, once: tests the harness")
    parser.add_argument("--threads", type=int, help="of each library (default: 2; with --short 1)")
    parser.add_argument("--repeats", type=int, help="rounds (default: 5; with --short 1)")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long a process may wait for free cores, and be repeated for want of them",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: in runs/benchmarks/")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="default: the JSON file's, as PNG"
    )
    return parser


def parsed(parser: argparse.ArgumentParser, *above_0: str) -> argparse.Namespace:
    """The arguments, of which these too must be above 0."""
    args = parser.parse_args()
    args.threads = args.threads if args.threads is not None else 1 if args.short else 2
    args.repeats = args.repeats if args.repeats is not None else 1 if args.short else 5
    above_0 = ("threads", "repeats", *above_0)
    if min(getattr(args, name) for name in above_0) <= 0:
        parser.error(f"{', '.join(f'--{name}' for name in above_0)} must be above 0")
    return args


def tell(what: str) -> None:
    """What is being done, on a line that the next one replaces; nothing if nobody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what} ...", end="\r", file=sys.stderr, flush=True)
