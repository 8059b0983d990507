"""How many threads one kernel runs on.

Matrix products are NumPy's, and have the threads of its BLAS. Attention, dropout, relu, LayerNorm
and Adam, where they are enough work to be worth it, are divided among as many: by default the
number in OMP_NUM_THREADS or OPENBLAS_NUM_THREADS, else the cores this process may use. Nothing is
summed across threads, so results do not depend on their number, to the last bit.

The threads are Python's own, which sleep while there is nothing to do. They survive `fork` (a child
starts its own) and many threads of the caller, where OpenMP's end in a hang or an abort.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .checks import is_integer

MOST = 1024  # more cores than machines have; a kernel with enough work would start them all


def default_threads() -> int:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return min(int(value), MOST)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


_number = default_threads()
_pool: ThreadPoolExecutor | None = None


def get_num_threads() -> int:
    """How many threads a kernel may use; see `set_num_threads`."""
    return _number


def set_num_threads(number: int) -> None:
    """Let kernels use `number` threads, the caller's among them: 1 to 1,024.

    More than there are cores are allowed, and slower. A thread is started when a kernel has half a
    million multiplications for it.

    NumPy's matrix products are not concerned: their number is fixed when NumPy is imported, by
    OPENBLAS_NUM_THREADS. Differs from PyTorch, where one number covers both.

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
    forget_pool()


def forget_pool() -> None:
    """The pool ends when its last task has; of one from before a fork no thread is left."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_pool)


def in_parts(count: int, work: float, function: Callable[[int, int], object]) -> None:
    """function(first, last) over range(count), divided among threads if `work` is worth it.

    work: about how many multiplications there are. Half a million, the least of a part, take as
    long as handing it to another thread does.
    """
    global _pool
    parts = min(_number, count, int(work / 5e5))
    if parts < 2:
        function(0, count)
        return
    if _pool is None:
        _pool = ThreadPoolExecutor(_number - 1, "tinyattn")
    pool = _pool
    ends = [count * part // parts for part in range(parts + 1)]
    others = [pool.submit(function, ends[part], ends[part + 1]) for part in range(1, parts)]
    function(0, ends[1])
    for other in others:
        other.result()
