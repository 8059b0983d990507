"""How many threads one computation runs on, and how it is divided among them.

Attention, dropout, relu, LayerNorm, biases and Adam, where they are enough work to be worth it, are
divided among threads: TINYATTN_NUM_THREADS of them, else OPENBLAS_NUM_THREADS or OMP_NUM_THREADS,
else as many as there are cores this process may use. In these nothing is summed in an order that
depends on the number of threads, and so no result does, to the last bit. Matrix products are
NumPy's, and have the threads of its BLAS.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from ..checks import is_integer

MOST = 1024  # more cores than machines have; a computation with enough work would start them all
WORTH_A_THREAD = (
    200_000  # nanoseconds a part must take, since to wake a thread takes 50,000 to 150,000
)


def default_threads() -> int:
    own = os.environ.get("TINYATTN_NUM_THREADS", "")
    if own:
        if not own.isdecimal() or not 1 <= int(own) <= MOST:
            raise ValueError(
                f"TINYATTN_NUM_THREADS must be an integer from 1 to {MOST}, got {own!r}"
            )
        return int(own)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # the order in which OpenBLAS looks
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return min(int(value), MOST)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


_number = default_threads()
_pool: ThreadPoolExecutor | None = None


def get_num_threads() -> int:
    """How many threads a computation may use; see `set_num_threads`."""
    return _number


def set_num_threads(number: int) -> None:
    """Let one computation use `number` threads, the caller's among them: 1 to 1,024.

    More than there are cores are allowed, and slower. Before the program starts,
    TINYATTN_NUM_THREADS says the same.

    NumPy's matrix products are concerned only with OPENBLAS_NUM_THREADS=1, and may then differ with
    the number in the last digit; their own threads are fixed when NumPy is imported. Differs from
    PyTorch, where one number covers both.

        >>> ta.set_num_threads(1)
        >>> ta.get_num_threads()
        1
    """
    global _number
    if not is_integer(number) or not 1 <= number <= MOST:
        raise ValueError(
            f"the number of threads must be an integer from 1 to {MOST}, got {number!r}"
        )
    _number = int(number)


def forget_threads() -> None:
    """After a fork, in the child: of its parent's threads it has none."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_threads)


def in_parts(
    count: int, nanoseconds: float, function: Callable[..., object], *arguments: Any
) -> None:
    """function(*arguments, first, last) over range(count), divided among threads if it pays.

    nanoseconds: about how long one thread takes for all of it.
    """
    global _pool
    parts = min(_number, count, int(nanoseconds / WORTH_A_THREAD))
    if parts < 2:
        function(*arguments, 0, count)
        return
    if _pool is None:
        _pool = ThreadPoolExecutor(MOST, "tinyattn")  # which starts them when they are needed
    ends = [round(count * part / parts) for part in range(parts + 1)]
    others = [_pool.submit(function, *arguments, first, last) for first, last in pairwise(ends[1:])]
    try:
        function(*arguments, 0, ends[1])
    finally:  # the others write to the caller's arrays
        errors = [other.exception() for other in others]
    for error in errors:
        if error is not None:
            raise error


def awake() -> bool:
    """Whether products are ours to divide: where BLAS has one thread."""
    return _number > 1 and os.environ.get("OPENBLAS_NUM_THREADS") == "1"
