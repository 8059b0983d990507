"""One process of a benchmark: measures some cases for one library and prints a line for each.

    python -m benchmarks.worker REQUEST

REQUEST is the JSON that `processes.py` writes; each line of the answer is JSON too. The top of this
file imports nothing slow, because the start of a program is measured too.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cases import Case, Run

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident(field: str) -> int:
    """Bytes of this process in memory: now (VmRSS) or at most (VmHWM)."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"{STATUS} has no {field}")


def give_back() -> None:
    """Return freed memory to the system, so that memory used again counts as growth (glibc)."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class Memory:
    """How far the process has grown at most since this object was made."""

    def __init__(self) -> None:
        give_back()
        try:
            CLEAR_REFS.write_text("5")  # the high-water mark starts again from here
            self.start = resident("VmRSS")
        except OSError:
            self.start = -1

    def peak(self) -> int | None:
        return None if self.start < 0 else max(0, resident("VmHWM") - self.start)


@contextmanager
def busy_loop() -> Iterator[None]:
    """Another program that keeps one core busy."""
    null = subprocess.DEVNULL
    command = [sys.executable, "-c", "while True: pass"]
    loop = subprocess.Popen(command, stdin=null, stdout=null, stderr=null)
    try:
        yield
    finally:
        loop.kill()
        loop.wait()  # so that its time counts as ours, not as another program's


def measure(run: Run, budget: float, short: bool) -> tuple[dict[str, list[float]], float]:
    """Seconds of every phase, once for each repetition, after a third of the budget to warm up; and
    of the first call."""
    times: dict[str, list[float]] = {name: [] for name in run.phases}

    def once() -> float:
        began = perf_counter()
        value = None
        for name, phase in run.phases.items():
            start = run.clock()
            value = phase(value)
            times[name].append((run.clock() - start) / run.per)
        run.reset()
        return perf_counter() - began

    last = first = once()  # compiles kernels, starts threads
    if not short:
        warm = perf_counter() + budget / 3
        while (last := once()) and perf_counter() < warm:
            pass
    for name in times:
        times[name].clear()
    end = perf_counter() + budget
    least = 1 if short or last > 2 * budget else 3
    while least > 0 or (perf_counter() < end and not short):
        once()
        least -= 1
    return times, first


def counts_memory(case: Case, request: dict[str, Any]) -> bool:
    """Not where the memory of a compiler, which works in this process, would count."""
    return case.memory and ("device" in request or not request.get("compile"))


def measure_case(case: Case, lib: Any, request: dict[str, Any]) -> dict[str, Any]:
    from .cases import ALONE, BUSY

    memory = Memory() if counts_memory(case, request) else None
    if lib is None:
        assert case.limit is not None
        run = case.limit()
    else:
        run = case.build(lib)
    # Cases that share a process take little time each, so half of it holds enough repetitions.
    budget, short = request["budget"] / (2 if case.process else 1), request["short"]
    times, first = measure(run, budget, short)
    values: dict[str, float] = {name: median(seconds) for name, seconds in times.items()}
    if "together" in case.parts:
        values["together"] = median(map(sum, zip(*times.values(), strict=True)))
    if BUSY in case.parts:
        # The mean, because a step that waits for the other program is rare and long.
        with busy_loop():
            beside, _ = measure(run, budget, short)
        values = {ALONE: mean(times[""]), BUSY: mean(beside[""])}
    if memory is not None and lib is not None:
        peak = run.memory() if run.memory is not None else memory.peak()
        values |= {} if peak is None else {"peak memory": peak}
    counts = {name: len(seconds) for name, seconds in times.items()}
    return {
        "case": case.name,
        "values": values,
        "first": first,
        "repetitions": counts,
        "check": run.check() if run.check is not None and lib is not None else None,
    }


def measure_start(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of an import over NumPy's, and from nothing to the end of a first training step."""
    began = perf_counter()
    import numpy  # noqa: F401

    numpy_imported = perf_counter()
    if request["library"] == "torch":
        import torch  # noqa: F401
    else:
        import tinyattn  # noqa: F401
    imported = perf_counter()
    from .encoders import SHORTEST, START, training_step
    from .libraries import LIBRARIES

    lib = LIBRARIES[request["library"]](request)
    run = training_step(lib, SHORTEST, 0.1) if request["short"] else START.build(lib)
    run.phases[""](None)
    step, cpu = perf_counter() - began, sum(os.times()[:4])  # user, sys, and the children's
    values = {"import": imported - numpy_imported, "first step": step, "CPU": cpu}
    return {"case": "start", "values": values, "check": None}


def library(request: dict[str, Any]) -> Any:
    """The library's object, or None for NumPy alone."""
    from .libraries import LIBRARIES

    if request["library"] != "numpy":
        return LIBRARIES[request["library"]](request)
    from threadpoolctl import threadpool_limits

    threadpool_limits(request["threads"])
    return None


def main() -> None:
    request = json.loads(sys.argv[1])
    if request["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (request["memory"],) * 2)
    if request["cores"] and hasattr(os, "sched_setaffinity"):  # not on macOS
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: request["cores"]])
    # A library that prints must not write between the lines of the answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=answer, flush=True)

    if request["cases"] == ["start"]:
        say(measure_start(request))
        return
    from . import products
    from .encoders import warm_up
    from .harness import every_case

    lib = library(request)
    if request["cases"] == [products.CASE.name]:
        say(products.measured(lib, request))
        return
    cases = every_case(request["short"])
    asked = [cases[name] for name in request["cases"] if name in cases]
    if lib is not None and any(counts_memory(case, request) for case in asked):
        with suppress(Exception):  # a case that fails says so itself
            warm_up(lib)
    for name in request["cases"]:
        try:
            say(measure_case(cases[name], lib, request))
        except Exception as error:  # of one case; the others are measured all the same
            say({"case": name, "error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
