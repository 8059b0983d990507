"""Which BLAS computes the matrix products of a library, and how fast: ratios depend on both.

OpenBLAS and MKL choose other kernels for other processors. So the heading of a table says which
ones were chosen, and how many GFLOP/s (10^9 multiplications and additions a second) a product of
two matrices (1024, 1024) in float32 reached.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from .cases import BOTH, Case, Run
from .processes import SIDES, Settings, answers_of

# Not among the rows: no library is faster by its own merit here.
CASE = Case("", "products", "", lambda lib: Run({}))


def blas_of_pytorch() -> list[str]:
    """What PyTorch says about its build, and which instructions it found."""
    import torch

    text = torch.__config__.show()
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", text)
    kernels = torch.backends.cpu.get_cpu_capability()
    return [f"{f'MKL {mkl[1]}' if mkl else 'no MKL'}, {kernels} instructions"]


def blas_of_numpy() -> list[str]:
    """NumPy and SciPy bring one each; `architecture` names the kernels that were chosen."""
    import scipy.linalg.blas  # noqa: F401  # loads its BLAS, which NumPy does not
    from threadpoolctl import threadpool_info

    found = []
    for library in threadpool_info():
        if library["user_api"] == "blas":
            package = Path(library["filepath"]).parent.name.removesuffix(".libs")
            kernels = library.get("architecture", "unnamed")
            found.append(
                f"{library['internal_api']} {library['version']} of {package}, {kernels} kernels"
            )
    return found


def measured(lib: Any, request: dict[str, Any]) -> dict[str, Any]:
    """In a process of one library: its BLAS, and the GFLOP/s of a product."""
    n = 64 if request["short"] else 1024
    x = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    a, b = lib.tensor(x), lib.tensor(x.T.copy())
    seconds = []
    for _ in range(3 if request["short"] else 30):
        began = perf_counter()
        a @ b
        seconds.append(perf_counter() - began)
    speed = 2 * n**3 / median(seconds[len(seconds) // 3 :]) / 1e9
    of_pytorch = request["library"] == "torch"
    blas = blas_of_pytorch() if of_pytorch else blas_of_numpy()
    return {"case": CASE.name, "values": {"GFLOP/s": speed}, "blas": blas, "size": n}


def of_both(settings: Settings) -> list[str]:
    """A line for each library that is installed."""
    return [
        line(name, answers_of(SIDES[name], [CASE], settings)[CASE.name])
        for name in BOTH
        if SIDES[name].is_installed
    ]


def line(name: str, answer: dict[str, Any]) -> str:
    if "error" in answer:
        return f"{name}: {answer['error']}"
    speed = f"{answer['values']['GFLOP/s']:.0f} GFLOP/s"
    return f"{name}: a product of {answer['size']} at {speed} ({'; '.join(answer['blas'])})"
