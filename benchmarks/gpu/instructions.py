"""What the GPU has to execute, counted without one: `python -m benchmarks.gpu.instructions`.

The first table has a line for each kernel and architecture, in float32: registers of a thread;
bytes that are spilled to memory; bytes of shared memory of a block; the part of a multiprocessor's
warps that fit; instructions per FFMA in the inner loops of attention's products, where numbers are
finite and where they may be NaN; instructions of float64, and how many of them are in loops over
elements. The second has the launches of each op forward and backward, the third those of a step.

Nothing here is a time. Machine code is NVIDIA's own, for hardware that need not be there.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tinyattn.kernels.gpu.launch import FOLDER
from tinyattn.kernels.gpu.tiled_attention import (
    MOST_MEMORY,
    OWN_VARIABLES,
    TileShape,
    tile_shape,
)

from . import launches
from .architectures import ARCHITECTURES, Architecture, occupancy
from .machine_code import MISSING, Kernel, kernels_of, nvdisasm, nvrtc

FILES = sorted(path.stem for path in FOLDER.glob("*.cu") if path.stem != "common")
HEADS = (32, 64, 128)  # widths
ATTENTION = ("attention", "attention_backward_q", "attention_backward_kv")
COLUMNS = (
    "kernel", "for", "registers", "spills", "shared", "occupancy", "per FFMA", "with NaN",
    "float64", "in loops",
)  # fmt: skip


def rows(
    architectures: tuple[Architecture, ...], files: list[str], blocks: launches.Blocks
) -> Iterator[dict[str, Any]]:
    """A row of the first table for each kernel and architecture."""
    for file in files:
        for width in HEADS if file == "tiled_attention" else (0,):
            for architecture in architectures:
                for kernel in compiled(file, architecture, width):
                    yield row_of(kernel, architecture, width, blocks)


def shape_of(kernel: str, width: int) -> TileShape:
    shape = tile_shape(width, width, 4, MOST_MEMORY - OWN_VARIABLES, kernel)
    assert shape is not None
    return shape


def compiled(file: str, architecture: Architecture, width: int) -> Iterator[Kernel]:
    if not width:
        yield from kernels_of(file, architecture)
    for name in ATTENTION if width else ():
        shape = shape_of(name, width)
        sizes = {"HEAD": width, "VALUE": width, "ROWS": shape.rows, "SLICE": shape.columns}
        defines = tuple(f"-D{size}={number}" for size, number in sizes.items())
        for kernel in kernels_of(file, architecture, 32, defines):
            if kernel.name == name:
                yield kernel


def row_of(
    kernel: Kernel, architecture: Architecture, width: int, blocks: launches.Blocks
) -> dict[str, Any]:
    threads, shared = blocks.get(kernel.name, (256, 0))
    shared = kernel.shared + (shape_of(kernel.name, width).nbytes if width else shared)
    finite, conditional = kernel.per_product() if width else (math.nan, math.nan)
    wide, in_loops = kernel.float64()
    part = occupancy(architecture, threads, kernel.registers, shared)
    name = f"{kernel.name} {width}" if width else kernel.name
    values = (
        name, architecture.name, kernel.registers, kernel.spills, shared, round(part, 3),
        finite, conditional, wide, in_loops,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return "-"
        return f"{value:.0%}" if name == "occupancy" else f"{value:.2f}"
    return str(value)


def table(found: list[dict[str, Any]]) -> str:
    lines = [{name: name for name in COLUMNS}]
    lines += [{name: cell(name, row[name]) for name in COLUMNS} for row in found]
    widths = [max(len(line[name]) for line in lines) for name in COLUMNS]
    return "\n".join(
        "  ".join(
            line[name].ljust(width) if name in COLUMNS[:2] else line[name].rjust(width)
            for name, width in zip(COLUMNS, widths, strict=True)
        )
        for line in lines
    )


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.gpu.instructions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--short", action="store_true", help="sm_90 alone, and the tiny step")
    parser.add_argument("--files", nargs="+", choices=FILES, default=FILES, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers")
    args = parser.parse_args()
    if nvrtc() is None or nvdisasm() is None:
        print(MISSING, file=sys.stderr)
        return 2
    architectures = ARCHITECTURES[-1:] if args.short else ARCHITECTURES
    with launches.counted() as (tasks, blocks):
        ops = list(launches.of_ops(tasks))
        steps = list(launches.of_optimizers(tasks))
        names = ("tiny",) if args.short else ("tiny", "medium")
        counts = {name: launches.of_step(tasks, name) for name in names}
    found = list(rows(architectures, args.files, blocks))
    print(table(found))
    print(f"\n{'launches of':<26}{'forward':>10}{'backward':>10}")
    for name, forward, backward in ops:
        print(f"{name:<26}{forward:>10}{backward:>10}")
    print(f"\n{'a step of 20 parameters':<26}{'launches':>10}")
    for name, count in steps:
        print(f"{name:<26}{count:>10}")
    for name, counted in counts.items():
        print(f"\ntraining step, {name}: {counted.total()} launches and products")
        print(", ".join(f"{kernel} {n}" for kernel, n in counted.most_common()))
    if args.json:
        content = {"kernels": found, "ops": ops, "optimizers": steps, "steps": counts}
        args.json.write_text(json.dumps(content, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
