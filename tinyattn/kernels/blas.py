"""BLAS, which computes the matrix products of NumPy and SciPy, is limited to one thread here.

Threads of BLAS wait awake: after each product they keep their cores busy for a while, and where
another program needs these cores, all of them wait for each other. One training step took up to 47
times as long that way. So BLAS gets one thread at the first kernel or large product, and
`matmul.py` divides large products among tinyattn's threads, which sleep while they wait.

This concerns the whole process. It does not happen where the user has set a variable of BLAS and
has not called `set_num_threads`, nor after `set_num_threads(n, limit_blas=False)`, nor without the
package threadpoolctl.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

_is_wanted: bool | None = None  # what the user said last
_has_begun = False  # whether anything has been computed
_has_one_thread = False
_limits: list[Any] = []  # of threadpoolctl; they know how many threads there were before


def limit_once() -> bool:
    """Limit BLAS at the first call, unless it must not. Returns whether `matmul.py` may divide
    products."""
    if not _has_begun:
        begin()
    return _has_one_thread


def begin() -> None:
    """Limit BLAS from here on: each BLAS that is loaded, because NumPy and SciPy have their own."""
    global _has_begun
    _has_begun = True
    if _is_wanted is not False:
        limit()


def want_limit(wanted: bool) -> None:
    """Limit BLAS, or give it its threads back; if nothing has been computed yet, later."""
    global _is_wanted
    changes, _is_wanted = wanted is not _is_wanted, wanted
    if _has_begun and changes:
        limit() if wanted else unlimit()


def limit() -> None:
    global _has_one_thread
    try:
        import threadpoolctl
    except ImportError:
        return
    if _is_wanted or not any(map(os.environ.get, VARIABLES)):
        _limits.append(threadpoolctl.threadpool_limits(1, "blas"))
    loaded = threadpoolctl.threadpool_info()
    numbers = [library["num_threads"] for library in loaded if library["user_api"] == "blas"]
    _has_one_thread = max(numbers, default=0) == 1  # 0: a BLAS that threadpoolctl does not know


def unlimit() -> None:
    global _has_one_thread
    while _limits:
        _limits.pop().restore_original_limits()
        _has_one_thread = False
