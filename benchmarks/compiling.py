"""Which kernels the first training step compiles, and how long each takes.

    python -m benchmarks.compiling [--case tiny]

CPU seconds of a fresh installation, that is with an empty cache of compiled kernels. What a kernel
calls is compiled inside it, and counts as its own. Times mean little while other programs run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from time import process_time
from typing import Any


def seconds_of_kernels(case: str) -> dict[str, float]:
    """By kernel, and for the whole process until the end of a training step with dropout."""
    from numba.core import event

    seconds: defaultdict[str, float] = defaultdict(float)
    began: list[float] = []

    class Clock(event.Listener):
        def on_start(self, _: Any) -> None:
            began.append(process_time())

        def on_end(self, compilation: Any) -> None:
            taken = process_time() - began.pop()
            if not began:  # not a function that another one needs
                seconds[compilation.data["dispatcher"].py_func.__name__] += taken

    event.register("numba:compile", Clock())
    from .encoders import ENCODERS, training_step
    from .libraries import LIBRARIES

    lib = LIBRARIES["tinyattn"]({"library": "tinyattn", "threads": 1, "short": False})
    training_step(lib, ENCODERS[case], 0.1).phases[""](None)
    seconds["all, with imports and the step"] = process_time()
    return seconds


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiling", description=__doc__)
    parser.add_argument("--case", default="tiny", help="an encoder of encoders.py (default: tiny)")
    case = parser.parse_args(arguments).case
    with tempfile.TemporaryDirectory() as cache:
        os.environ["NUMBA_CACHE_DIR"] = cache
        seconds = seconds_of_kernels(case)
    for name in sorted(seconds, key=seconds.__getitem__, reverse=True):
        print(f"{name:32s} {seconds[name]:6.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
