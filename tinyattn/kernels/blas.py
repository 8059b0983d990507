"""BLAS, which computes the matrix products of NumPy and SciPy, is limited to one thread here.

Threads of BLAS wait awake: after each product they keep their cores busy for a while, and where
another program needs these cores, all of them wait for each other. One training step took up to 47
times as long that way. So BLAS gets one thread at the first kernel or large product, and
`matmul.py` divides large products among tinyattn's threads, which sleep while they wait.

This concerns the whole process. It does not happen where the user has set a variable of BLAS and
has not called `set_num_threads`, nor without the package threadpoolctl.
"""

import os

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

_is_asked_for = False  # whether the user has called `set_num_threads`
_has_one_thread: bool | None = None  # None: nothing has been computed yet


def limit_once() -> bool:
    """Limit BLAS at the first call, unless it must not. Returns whether `matmul.py` may divide
    products."""
    if _has_one_thread is None:
        limit()
    return bool(_has_one_thread)


def ask_for_limit() -> None:
    """Limit BLAS also where a variable is set; if nothing has been computed yet, later."""
    global _is_asked_for
    if not _is_asked_for:
        _is_asked_for = True
        if _has_one_thread is not None:
            limit()


def limit() -> None:
    """Limit BLAS from here on: each BLAS that is loaded, because NumPy and SciPy have their own."""
    global _has_one_thread
    _has_one_thread = False
    try:
        import threadpoolctl
    except ImportError:
        return
    if _is_asked_for or not any(map(os.environ.get, VARIABLES)):
        threadpoolctl.threadpool_limits(1, "blas")
    loaded = threadpoolctl.threadpool_info()
    numbers = [library["num_threads"] for library in loaded if library["user_api"] == "blas"]
    _has_one_thread = max(numbers, default=0) == 1  # 0: a BLAS that threadpoolctl does not know
