"""What to run in the first minutes with a GPU: `python -m benchmarks.gpu --first-minutes`.

The tests on the device, the benchmark, NVIDIA's checks of races and of memory, and a profile of the
attention kernels. Each has a time, together at most nine minutes, and writes its output to a file
of its own as it comes. So whatever was finished by the end of a short loan is there.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ..processes import ROOT

SECONDS = 540.0
# CuPy's pool would hide what is read or written beside an array.
KERNEL_TESTS = (
    "import sys, cupy, pytest; cupy.cuda.set_allocator(None); "
    "sys.exit(pytest.main(['-m', 'gpu', '-q', '-x', 'tests/gpu/test_cuda_kernels.py']))"
)
ATTENTION = """
import cupy, tinyattn as ta
q, k, v = (ta.randn(2, 8, 2048, 64, device="cuda", requires_grad=True) for _ in range(3))
y = ta.functional.scaled_dot_product_attention(q, k, v)
y.backward(ta.ones(*y.shape, device="cuda"))
cupy.cuda.Device().synchronize()
"""


class Step(NamedTuple):
    name: str  # of its file, too
    seconds: float
    command: list[str]


def steps(folder: Path, dry_run: bool) -> Iterator[Step]:
    """In the order of their worth. A dry run has what needs no GPU, in small."""
    python = sys.executable
    parallel = ["-n", "8"] if find_spec("xdist") else []
    limited = ["--timeout", "120"] if find_spec("pytest_timeout") else []
    tests = ["tests/gpu/test_device_laws.py"] if dry_run else ["-m", "gpu", *parallel, "tests/gpu"]
    yield Step("tests", 210, [python, "-m", "pytest", "-q", "-rs", *limited, *tests])
    options = ["--dry-run"] if dry_run else ["--repeats", "1", "--budget", "0.2"]
    json_file = ["--json", str(folder / "benchmark.json")]
    yield Step("benchmark", 150, [python, "-m", "benchmarks.gpu", *options, *json_file])
    if dry_run:
        return
    for tool in ("racecheck", "memcheck"):
        checks = ["compute-sanitizer", "--tool", tool, "--target-processes", "all"]
        yield Step(tool, 65, [*checks, python, "-c", KERNEL_TESTS])
    profile = ["ncu", "--set", "full", "-k", "regex:attention", "-o", str(folder / "attention")]
    yield Step("profile", 45, [*profile, python, "-c", ATTENTION])


def run(step: Step, seconds: float, log: Path) -> str:
    """How the command ended, in words."""
    if shutil.which(step.command[0]) is None:
        return "not installed"
    if seconds <= 0:
        return "no time left"
    environment = {**os.environ, "TINYATTN_JIT": "0", "PYTHONPATH": str(ROOT)}
    with log.open("w") as output:
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"ended after {seconds:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its own processes too
                process.wait()
    return "well" if status == 0 else f"exit status {status}"


def first_minutes(folder: Path, dry_run: bool, seconds: float = SECONDS) -> int:
    """Run all steps; the exit status."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    end, results = time.monotonic() + seconds, list[dict[str, Any]]()
    for step in steps(folder, dry_run):
        begin, log = time.monotonic(), folder / f"{step.name}.txt"
        ended = run(step, min(step.seconds, end - begin), log)
        took = round(time.monotonic() - begin, 1)
        results.append(step._asdict() | {"ended": ended, "took": took})
        (folder / "steps.json").write_text(json.dumps(results, indent=2))
        last = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
        print(f"{step.name:<10}{took:>7.1f} s  {ended}  {' '.join(last)}", flush=True)
    print(folder)
    return 0 if all(result["ended"] == "well" for result in results) else 1
