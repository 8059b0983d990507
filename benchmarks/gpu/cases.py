"""What is timed on a GPU, and how large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STEP, ATTENTION, SOFTMAX, LAYER_NORM, COPY = "step", "attention", "softmax", "layer_norm", "copy"


@dataclass(frozen=True)
class Size:
    """Of a training step; the first five are those of the benchmark on the CPU."""

    d_model: int
    heads: int
    d_ff: int
    layers: int
    batch: int
    length: int


STEPS = {
    "tiny": Size(32, 4, 64, 2, 32, 24),
    "small": Size(64, 4, 256, 2, 32, 32),
    "medium": Size(128, 4, 512, 4, 32, 64),
    "full": Size(512, 8, 2048, 6, 32, 10),
    "long": Size(32, 4, 64, 2, 2, 1024),
    "large": Size(1024, 16, 4096, 12, 32, 512),
}
LENGTHS = (512, 1024, 2048, 4096, 8192)
HEADS = (2, 8, 64)  # samples, heads, width of a head
ROWS = ((262144, 128), (65536, 512), (16384, 2048), (4096, 8192))
TRIAL_STEPS = {"tiny": Size(8, 2, 16, 1, 2, 5)}  # what a dry run does on the host
TRIAL_LENGTHS, TRIAL_HEADS, TRIAL_ROWS = (40,), (1, 2, 8), ((9, 40),)


@dataclass(frozen=True)
class Case:
    """One row of the table. `work` is bytes read and written, for bandwidths."""

    kind: str
    name: str
    shape: Any
    sides: tuple[str, ...]
    work: int = 0


def cases(trial: bool) -> list[Case]:
    """In the order they are run: what takes long to prepare comes last."""
    batch, heads, width = TRIAL_HEADS if trial else HEADS
    rows = TRIAL_ROWS if trial else ROWS
    steps = TRIAL_STEPS if trial else STEPS
    copied = max(n * columns for n, columns in rows)
    found = [Case(COPY, f"copy {4 * copied >> 20} MiB", copied, ("tinyattn", "torch"), 8 * copied)]
    for kind in (SOFTMAX, LAYER_NORM):
        for n, columns in rows:
            work = 8 * n * columns
            sides = ("tinyattn", "torch")
            found.append(Case(kind, f"{kind} {n} x {columns}", (n, columns), sides, work))
    sides = ("tinyattn", "captured", "torch")
    found += [Case(STEP, f"step {name}", size, sides) for name, size in steps.items()]
    for length in TRIAL_LENGTHS if trial else LENGTHS:
        name = f"attention {batch} x {heads} x {length} x {width}"
        # Scores and their gradients of the longest would take 17 GiB without tiles.
        sides = ("tinyattn", "torch") + (("torch plain",) if length <= 4096 else ())
        found.append(Case(ATTENTION, name, (batch, heads, length, width), sides))
    if not trial:  # compiling on the host proves nothing and takes long
        compiled = ("torch.compile",)
        found += [Case(STEP, f"step {name}", size, compiled) for name, size in steps.items()]
    return found
