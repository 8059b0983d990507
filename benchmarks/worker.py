"""One process of a benchmark: measures some cases for one library and prints a line for each.

    python -m benchmarks.worker REQUEST

REQUEST is the JSON that `harness.py` writes; so is each line of the answer. Nothing heavy is
imported up here, because the start of a program is measured too.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from statistics import median
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
    """Return freed memory to the system, so that what is used again counts as growth (glibc)."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class Memory:
    """How far the process has grown at most since this object was made."""

    def __init__(self) -> None:
        give_back()
        try:
            CLEAR_REFS.write_text("5")  # the high-water mark starts again from here
            self.before = resident("VmRSS")
        except OSError:
            self.before = -1

    def peak(self) -> int | None:
        return None if self.before < 0 else max(0, resident("VmHWM") - self.before)


def measure(run: Run, budget: float, short: bool) -> tuple[dict[str, list[float]], float]:
    """Seconds of every phase, once for each repetition; and of the very first repetition."""
    times: dict[str, list[float]] = {name: [] for name in run.phases}

    def once() -> float:
        began = perf_counter()
        value = None
        for name, phase in run.phases.items():
            start = perf_counter()
            value = phase(value)
            times[name].append((perf_counter() - start) / run.per)
        run.reset()
        return perf_counter() - began

    first = once()  # compiles kernels, starts threads
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


def measure_case(case: Case, lib: Any, request: dict[str, Any]) -> dict[str, Any]:
    memory = Memory() if case.memory else None
    if lib is None:
        assert case.limit is not None
        run = case.limit()
    else:
        run = case.build(lib)
    # Cases that share a process take little time each, so half of it holds enough repetitions.
    budget = request["budget"] / (2 if case.process else 1)
    times, first = measure(run, budget, request["short"])
    values = {name: median(seconds) for name, seconds in times.items()}
    if "together" in case.parts:
        values["together"] = median(map(sum, zip(*times.values(), strict=True)))
    if memory is not None and lib is not None and (peak := memory.peak()) is not None:
        values["peak memory"] = peak
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

    numpy_there = perf_counter()
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
    values = {"import": imported - numpy_there, "first step": perf_counter() - began}
    return {"case": "start", "values": values, "check": None}


def main() -> None:
    request = json.loads(sys.argv[1])
    if request["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (request["memory"],) * 2)
    # What libraries print must not come between the lines of the answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=answer, flush=True)

    if request["cases"] == ["start"]:
        say(measure_start(request))
        return
    from .cases import LackingError
    from .encoders import warm_up
    from .libraries import LIBRARIES
    from .other_libraries import OTHER_LIBRARIES
    from .rows import every_case

    library = request["library"]
    made = {**LIBRARIES, **OTHER_LIBRARIES}
    lib = None if library == "numpy" else made[library](request)
    cases = every_case(request["short"])
    if lib is not None and any(cases[name].memory for name in request["cases"] if name in cases):
        warm_up(lib)
    for name in request["cases"]:
        try:
            say(measure_case(cases[name], lib, request))
        except Exception as error:  # of one case; the others shall not be lost with it
            lacking = isinstance(error, LackingError)
            kind = "" if lacking else f"{type(error).__name__}: "
            say({"case": name, "error": f"{kind}{error}"})


if __name__ == "__main__":
    main()
