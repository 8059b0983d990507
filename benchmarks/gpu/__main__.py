"""tinyattn beside PyTorch on one GPU.

python -m benchmarks.gpu             everything, in less than 8 minutes
python -m benchmarks.gpu --dry-run   a trial of the program itself on the host, without figures
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import tinyattn as ta
from tinyattn.errors import DeviceError

from .cases import cases
from .measure import OUT_OF_TIME, Device, measured
from .report import draw, figures, merged, setting, table, write

MINUTES = 6.5  # for the rows; what is left is for the last one begun, which may be compiling


def stand_in() -> object:
    """The tests' stand-in for CuPy, which runs the kernels on the host."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "gpu"))
    import stand_in
    from stand_in.blas import Library

    from tinyattn.kernels.gpu import cublas

    ta.backend.register_cuda(stand_in.MODULE)
    cublas.load = lambda: Library(stand_in.graphs.note)
    return stand_in.MODULE


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, on the host")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="for JSON and plot")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="begin no row after these")
    args = parser.parse_args()
    started = time.perf_counter()
    os.environ |= {"NVIDIA_TF32_OVERRIDE": "0", "CUPY_TF32": "0"}  # read as libraries are loaded
    torch = None
    if find_spec("torch"):
        import torch

        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if args.dry_run:
        device, name = Device(stand_in(), torch, trial=True), "the host, a dry run: no figures"
    else:
        try:
            xp = ta.backend.module_of("cuda")
        except DeviceError as error:
            print(f"benchmarks.gpu needs an NVIDIA GPU: {error}", file=sys.stderr)
            print("a trial of the program itself: python -m benchmarks.gpu --dry-run",
                  file=sys.stderr)  # fmt: skip
            sys.exit(2)
        device = Device(xp, torch, trial=False)
        name = xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    if not find_spec("matplotlib"):  # better said now than when all is measured
        sys.exit('the plot needs matplotlib: pip install -e ".[benchmarks]"')
    rows, about = [], setting(name)
    for case in cases(args.dry_run):
        rows = merged([*rows, measured(case, device, started + 60 * args.minutes)])
        write(rows, about, args.out)
        seconds = time.perf_counter() - started
        row = next(row for row in rows if row.case.name == case.name)
        print(f"{seconds:6.1f} s  {case.name}: {figures(row, case.sides)}", flush=True)
    try:
        draw(rows, about, args.out / "gpu.png")
    except Exception as error:  # what was measured is shown all the same
        print(f"no plot: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"{time.perf_counter() - started:6.1f} s  gpu.json and gpu.png are in {args.out}")
    print(table(rows, about))
    if any(note != OUT_OF_TIME for row in rows for note in row.notes.values()):
        sys.exit(1)  # something did not run, or computed something else


if __name__ == "__main__":
    main()
