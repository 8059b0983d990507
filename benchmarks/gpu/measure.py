"""How a case is timed: the clock of the host around many operations, with a wait at either end.

So the time is what a user waits for, launches included, and not what the device is busy. The sides
of a case take turns, round by round, so that a change of the card's clock meets all of them.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import sides
from .cases import STEP, Case

ROUNDS = 5
OUT_OF_TIME = "out of time"
ROUND_SECONDS = 0.25
# float32 after a whole forward or a long sum, in another order.
AGREEMENT = 1e-3


@dataclass
class Device:
    """The card, or in a dry run the host: how to wait, and what memory was taken."""

    xp: Any
    torch: Any
    trial: bool

    @property
    def torch_device(self) -> str:
        return "cpu" if self.trial else "cuda"

    def wait(self, side: str) -> None:
        if self.trial:
            return
        if side.startswith("torch"):
            self.torch.cuda.synchronize()
        else:
            self.xp.cuda.Device().synchronize()

    def empty(self) -> None:
        """Give back the memory that the case before has used."""
        gc.collect()
        if not self.trial:
            self.xp.get_default_memory_pool().free_all_blocks()
            if self.torch is not None:
                self.torch.cuda.empty_cache()

    def launches(self, run: sides.Timed) -> int | None:
        """How many launches one operation asks for, of kernels or of whole graphs. PyTorch's
        profiler sees those of the whole process, CuPy's as well; None where it cannot."""
        if self.trial or self.torch is None:
            return None
        from torch.profiler import ProfilerActivity, profile

        try:
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
                run()
                self.torch.cuda.synchronize()
                self.xp.cuda.Device().synchronize()
        except RuntimeError:  # the machine does not let programs be profiled
            return None
        kinds = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemsetAsync")
        return sum(e.count for e in seen.key_averages() if e.key.startswith(kinds)) or None

    def held(self, side: str, *pools: Any) -> int:
        """Bytes that the side's library has taken from the card. No pool gives memory back by
        itself, so what is held in the end is the most that was needed at once."""
        if self.trial:
            return 0
        if side.startswith("torch"):
            return self.torch.cuda.memory_reserved()
        pools = (self.xp.get_default_memory_pool(), *pools)
        return sum(pool.total_bytes() for pool in pools)


@dataclass
class Row:
    """Seconds for one operation in each round, by side; or why there are none."""

    case: Case
    seconds: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    launches: dict[str, int | None] = field(default_factory=dict)

    def median(self, side: str) -> float | None:
        return statistics.median(self.seconds[side]) if side in self.seconds else None


def measured(case: Case, device: Device, deadline: float) -> Row:
    """All sides of a case, or a note for each that could not run."""
    row = Row(case)
    ready: dict[str, tuple[sides.Timed, int]] = {}
    answers: dict[str, np.ndarray] = {}
    for side in case.sides:
        if side.startswith("torch") and device.torch is None:
            continue  # its column stays empty
        elif time.perf_counter() > deadline:
            row.notes[side] = OUT_OF_TIME
        else:
            with noted(row, side):
                device.empty()
                before = device.held(side)
                run, answer = sides.build(case, side, device.torch_device)
                answers[side] = sides.result(answer())
                count = repetitions(run, side, device)
                row.memory[side] = device.held(side, *getattr(run, "pools", ())) - before
                ready[side] = run, count
    check(case, answers, row)
    for _ in range(1 if device.trial else ROUNDS):
        for side, (run, count) in ready.items():
            with noted(row, side):
                seconds = timed(run, count, side, device)
                row.seconds.setdefault(side, []).append(seconds)
    for side, (run, _) in ready.items():  # after all timing: a profiler makes launches slower
        if case.kind == STEP:
            with noted(row, side):
                row.launches[side] = device.launches(run)
    return row


@contextmanager
def noted(row: Row, side: str) -> Iterator[None]:
    """What goes wrong with one side is said in the table, which has the others all the same."""
    try:
        yield
    except Exception as error:
        row.notes[side] = f"{type(error).__name__}: {error}"[:200]


def repetitions(run: sides.Timed, side: str, device: Device) -> int:
    """So many that a round is long against the wait at its end."""
    if device.trial:
        return 1
    for _ in range(3):
        run()
    once = max(timed(run, 3, side, device), 1e-7)
    return max(3, int(ROUND_SECONDS / once))


def timed(run: sides.Timed, count: int, side: str, device: Device) -> float:
    device.wait(side)
    start = time.perf_counter()
    for _ in range(count):
        run()
    device.wait(side)
    return (time.perf_counter() - start) / count


def check(case: Case, answers: dict[str, np.ndarray], row: Row) -> None:
    """Say so where the sides do not compute the same."""
    if "tinyattn" not in answers or len(answers) < 2:
        return
    ours = answers.pop("tinyattn")
    for side, theirs in answers.items():
        error = np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30)
        if not error <= AGREEMENT:
            row.notes[side] = f"another result: relative difference {error:.1e}"
