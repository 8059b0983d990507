"""How many planted faults do the tests notice?

    cd tests/planted
    python mutation.py                     all of the folder `faults`, result in mutation.json
    python mutation.py --sample 10         ten of them, drawn at random (--seed repeats them)
    python mutation.py --only layer_norm   those whose file or reason contains the word
    python mutation.py --again             those that survived last time; corrects the result
    python mutation.py --jobs 2            two at a time

Each fault is planted alone, in a copy of the tree, and the tests named with it run. Those that stay
green are planted once more at the end, with the core of the tests, which `pytest` alone runs. A
fault that survives that is printed: a test is missing. A fault that makes a test hang counts as
noticed, but is printed and listed too, since a machine that is merely slow looks the same.

Python starts once, and each run of pytest is a fork of a process that has imported the packages,
because importing them takes longer than most of the tests.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue

import numba
import pytest
from planted_faults import Fault, all_faults

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parent / "mutation.json"
CORE = ["tests", "-m", "not extended"]  # without the list of faults, which each of them turns red
NOT_COPIED = (".git", "_build", "*_cache", ".hypothesis")
GREEN, RED, INTERRUPTED, INTERNAL, NOT_RUN = range(5)  # what pytest returns
SECONDS = 600
NOTICED, HUNG, SURVIVED = "noticed", "HUNG", "SURVIVED"


FORKS = multiprocessing.get_context("forkserver")
PRELOADED = ("numba", "numpy", "pytest", "torch")  # hypothesis is a plugin, which pytest imports


def run_pytest(root: Path, kernels: str, output: str, tests: list[str]) -> None:
    """In the fork: run tests of a copy of the tree, with everything that is printed in a file."""
    with open(output, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.setpgid(0, 0)  # so that processes of the tests can be ended with it
    os.chdir(root)
    sys.path[0] = os.environ["PYTHONPATH"] = str(root)
    os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = kernels
    code = NOT_RUN
    try:
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])
    finally:
        sys.stdout.flush()
        os._exit(code)  # else an error of this function would look like a red test


class Tree:
    """A copy of the tree in which faults are planted, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        self.kernels = folder / "kernels"

    def outcome(self, fault: Fault | None, tests: list[str]) -> str:
        """What `tests` make of the fault, which is in place."""
        with tempfile.TemporaryDirectory() as thrown_away:
            # Kernels compiled with a fault must not be found by the next run.
            is_kernel = fault is not None and "kernels/cpu" in fault.file
            kernels = thrown_away if is_kernel else str(self.kernels)
            output = Path(thrown_away, "output")
            run = FORKS.Process(target=run_pytest, args=(self.root, kernels, str(output), tests))
            run.start()
            run.join(SECONDS)
            if run.exitcode is None:
                assert run.pid is not None
                os.killpg(run.pid, signal.SIGKILL)
                run.join()
                return HUNG
            if run.exitcode < 0 or run.exitcode in (RED, INTERRUPTED, INTERNAL):
                return NOTICED
            if run.exitcode != GREEN:  # pytest could not be asked that way
                text = output.read_text(encoding="utf-8", errors="replace")
                raise ValueError(f"{fault}: {shlex.join(tests)}\n{text[-1600:]}")
            return SURVIVED

    def plant(self, fault: Fault, tests: list[str]) -> str:
        path = self.root / fault.file
        original, times = path.read_bytes(), path.stat()
        path.write_text(fault.planted(self.root), encoding="utf-8")
        try:
            return self.outcome(fault, tests)
        finally:
            path.write_bytes(original)
            # Numba and Python take a file with the old time and size for the old file.
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, help="this many faults, drawn at random")
    parser.add_argument("--seed", type=int, help="of the sample")
    parser.add_argument("--only", default="", help="a word of the file or the reason")
    parser.add_argument("--again", action="store_true", help="the last run's survivors")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    return parser.parse_args()


def last_survivors() -> list[str]:
    return json.loads(RESULT.read_text(encoding="utf-8"))["survivors"] if RESULT.exists() else []


def chosen(options: argparse.Namespace) -> list[Fault]:
    found = [fault for fault in all_faults() if options.only in str(fault)]
    if options.again:
        found = [fault for fault in found if str(fault) in last_survivors()]
    if options.sample:
        seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
        print(f"seed {seed}")
        survivors = last_survivors()
        found = [fault for fault in found if str(fault) not in survivors]
        found = random.Random(seed).sample(found, options.sample)
    return found


def write_result(found: dict[Fault, str], minutes: float, again: bool) -> None:
    every = all_faults() if again else list(found)
    survivors, hung = ([f for f, word in found.items() if word == w] for w in (SURVIVED, HUNG))
    if again:
        before = json.loads(RESULT.read_text(encoding="utf-8"))
        minutes += before["minutes"]
        hung += before["hung"]
    result = {
        "date": date.today().isoformat(),
        "faults": len(every),
        "noticed": len(every) - len(survivors),
        "survivors": sorted(map(str, survivors)),
        "hung": sorted(map(str, hung)),
        "faults_by_part": dict(sorted(Counter(f.file.split("/")[1] for f in every).items())),
        "minutes": round(minutes, 1),
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    options = arguments()
    faults = chosen(options)
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
    FORKS.set_forkserver_preload([name for name in PRELOADED if find_spec(name)])
    start = time.monotonic()
    found: dict[Fault, str] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        trees: SimpleQueue[Tree] = SimpleQueue()
        for job in range(options.jobs):
            trees.put(Tree(Path(folder, str(job))))

        def plant(fault: Fault, tests: list[str]) -> str:
            tree, before = trees.get(), time.monotonic()
            found[fault] = word = tree.plant(fault, tests)
            trees.put(tree)
            return f"{word:8} {time.monotonic() - before:5.1f} s  {fault}"

        tree, tests = trees.get(), shlex.split(faults[0].first) if options.sample else CORE
        if tree.outcome(None, tests) != SURVIVED:
            sys.exit(
                f"without any fault these tests are red or take over {SECONDS} s: "
                f"pytest -x {shlex.join(tests)}"
            )
        trees.put(tree)
        named = [shlex.split(fault.first) for fault in faults]
        for number, line in enumerate(pool.map(plant, faults, named), 1):
            print(f"{number:4} of {len(faults)}  {line}", flush=True)
        left = [fault for fault in faults if found[fault] == SURVIVED]
        for line in pool.map(plant, left, [CORE] * len(left)):
            print(f"the core: {line}", flush=True)
    minutes = (time.monotonic() - start) / 60
    survivors = sum(word == SURVIVED for word in found.values())
    print(f"{1 - survivors / len(faults):.1%} of {len(faults)} noticed, in {minutes:.1f} minutes")
    if not options.sample and not options.only:
        write_result(found, minutes, options.again)
    if options.sample and survivors:
        sys.exit(1)


if __name__ == "__main__":
    main()
