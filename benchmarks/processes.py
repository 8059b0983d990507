"""One process for one library: its start, its answer, and whether other programs disturbed it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from .cases import BUSY, Case

ROOT = Path(__file__).resolve().parents[1]
# By default glibc gives large freed buffers back to the system, which clears them again a moment
# later. tinyattn prevents it (`kernels/malloc.py`), PyTorch does not.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
# With these OpenBLAS computes with kernels for another processor than the one that it finds.
OTHER_KERNELS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
# For C++, which torch.compile calls.
COMPILER = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")


@dataclass(frozen=True)
class Side:
    """One way to compute a case: a library, its options, its environment."""

    library: str
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # packages
    programs: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        return all(map(find_spec, self.needs)) and all(map(which, self.programs))


SIDES = {
    "torch": Side("torch", {"attention": "fused"}, needs=("torch",)),
    "torch plain": Side("torch", {"attention": "plain"}, needs=("torch",)),
    "onnxruntime": Side(
        "torch", {"attention": "plain", "export": True}, needs=("torch", "onnx", "onnxruntime")
    ),
    "torch.compile": Side(
        "torch",
        {"attention": "fused", "compile": True},
        # Its first call compiles in every round.
        {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
        needs=("torch",),
        programs=(COMPILER,),
    ),
    "jax": Side("jax", {"compile": True}, needs=("jax",)),
    "tinyattn": Side("tinyattn"),
    "limit": Side("numpy"),
}


@dataclass(frozen=True)
class Settings:
    """Seconds: budget and timeout for one case in one process, wait for the cores to be free.

    memory  how many bytes a process may allocate, 0 for any
    """

    threads: int = 2
    repeats: int = 5
    budget: float = 1.0
    timeout: float = 300.0
    wait: float = 0.0
    short: bool = False
    keep_memory: bool = True
    memory: int = 0


def environment(side: Side, settings: Settings) -> dict[str, str]:
    """A user's environment: no variable in it sets a number of threads, or the kernels of BLAS, and
    Python keeps the bytecode of modules, which otherwise each process compiles again."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_NUM_THREADS")
        and name not in (*OTHER_KERNELS, "PYTHONDONTWRITEBYTECODE")
    }
    return {**inherited, **(KEEP_MEMORY if settings.keep_memory else {}), **side.environment}


def parsed(output: str) -> list[dict[str, Any]]:
    """The lines of an answer; the last one may have been cut off."""
    answers = []
    for line in output.splitlines():
        try:
            answers.append(json.loads(line))
        except ValueError:
            break
    return answers


def ask(side: Side, cases: Sequence[Case], settings: Settings) -> tuple[list[dict[str, Any]], str]:
    """Run one process for these cases: its answers, and why there are not more of them."""
    is_busy = any(BUSY in case.parts for case in cases)
    request = {
        "library": side.library,
        "cases": [case.name for case in cases],
        "threads": settings.threads,
        "budget": settings.budget,
        "short": settings.short,
        "memory": settings.memory,
        # With more cores than threads nothing would run beside the loop. JAX has a thread for
        # each core that it may use, and no option for fewer.
        "cores": settings.threads if side.library == "jax" or is_busy else 0,
        **side.options,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", json.dumps(request)],
        cwd=ROOT,
        env=environment(side, settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that its children can be ended with it
    )
    reason = "no answer"
    try:
        output, complaints = process.communicate(timeout=settings.timeout * len(cases))
        if process.returncode:
            last = complaints.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
            reason = last[0]
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        reason = f"no answer within {error.timeout:g} s"
    finally:  # after an interrupt too: neither the process nor its busy loop may be left
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return parsed(output), reason


def answers_of(side: Side, cases: Sequence[Case], settings: Settings) -> dict[str, dict[str, Any]]:
    """By case name; a case that a failed process left unanswered carries the reason."""
    answers, reason = ask(side, cases, settings)
    by_case = {answer["case"]: answer for answer in answers}
    return {case.name: by_case.get(case.name, {"error": reason}) for case in cases}


class Others:
    """How many cores other programs have used since this object was made (Linux only)."""

    def __init__(self) -> None:
        self.began = self.clocks()

    @staticmethod
    def clocks() -> tuple[float, float, float]:
        """Seconds: of time, of work on all cores, of our own work."""
        own = os.times()
        try:
            with open("/proc/stat") as stat:
                # user, nice, system, idle, iowait, irq, softirq, steal
                ticks = [int(word) for word in stat.readline().split()[1:9]]
            busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            busy = float("nan")
        return time.monotonic(), busy, sum(own[:4])

    def cores(self) -> float:
        elapsed, busy, own = (b - a for a, b in zip(self.began, self.clocks(), strict=True))
        return max(0.0, (busy - own) / elapsed) if elapsed > 0 and busy == busy else 0.0


def crowded(others: float, threads: int) -> bool:
    """Whether other programs used cores that the measurement needed."""
    return others + threads > (os.cpu_count() or 1) + 0.1


def undisturbed(
    side: Side, cases: Sequence[Case], settings: Settings
) -> tuple[dict[str, dict[str, Any]], float]:
    """The answers of one process, and how many cores other programs used meanwhile.

    A process that was short of cores is run again, until `settings.wait` seconds have passed.
    """
    end = time.monotonic() + settings.wait
    while True:
        idle = Others()
        while time.monotonic() < end:
            time.sleep(0.5)
            if not crowded(idle.cores(), settings.threads):
                break
            idle = Others()
        others = Others()
        answers = answers_of(side, cases, settings)
        cores = others.cores()
        if time.monotonic() >= end or not crowded(cores, settings.threads):
            return answers, cores
