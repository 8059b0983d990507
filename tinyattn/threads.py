"""How many threads one computation runs on.

Attention, dropout, relu, LayerNorm, biases and Adam, where they are enough work to be worth it, are
divided among threads: TINYATTN_NUM_THREADS of them, else OMP_NUM_THREADS or OPENBLAS_NUM_THREADS,
else as many as there are cores this process may use. In these nothing is summed across threads, so
their results do not depend on the number, to the last bit.

Matrix products are NumPy's, and have the threads of its BLAS.

The threads are Python's own, which sleep while there is nothing to do. They survive `fork` (a child
starts its own) and many threads of the caller, where OpenMP's end in a hang or an abort.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

MOST = 1024  # more cores than machines have; a computation with enough work would start them all
# About how many multiplications of a loop a part must have. They take 300 us; handing a part to a
# sleeping thread and waiting for it takes 50 to 150.
WORTH_A_THREAD = 5e6


def default_threads() -> int:
    for name in ("TINYATTN_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return min(int(value), MOST)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


_number = default_threads()
# Threads that were started stay, asleep, when the number becomes smaller.
_tasks: SimpleQueue[Any] = SimpleQueue()
_started = 0
_starting = threading.Lock()


def get_num_threads() -> int:
    """How many threads a computation may use; see `set_num_threads`."""
    return _number


def set_num_threads(number: int) -> None:
    """Let one computation use `number` threads, the caller's among them: 1 to 1,024.

    More than there are cores are allowed, and slower. Before the program starts,
    TINYATTN_NUM_THREADS says the same.

    NumPy's matrix products are not concerned: their number is fixed when NumPy is imported, by
    OPENBLAS_NUM_THREADS. Differs from PyTorch, where one number covers both.

        >>> ta.set_num_threads(1)
        >>> ta.get_num_threads()
        1
    """
    from .checks import is_integer  # which needs backend.py, which needs this file

    global _number
    if not is_integer(number) or not 1 <= number <= MOST:
        raise ValueError(
            f"the number of threads must be an integer from 1 to {MOST}, got {number!r}"
        )
    _number = int(number)


def forget_threads() -> None:
    """After a fork, in the child: of its parent's threads it has none."""
    global _tasks, _started, _starting
    _tasks, _started, _starting = SimpleQueue(), 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_threads)


def start(number: int) -> None:
    """So many threads that wait for tasks; an executor would take twice as long for each task."""
    global _started
    with _starting:
        while _started < number:
            threading.Thread(target=work, args=(_tasks,), name="tinyattn", daemon=True).start()
            _started += 1


def work(tasks: SimpleQueue[Any]) -> None:
    """What a thread does for as long as the process lives."""
    while True:
        function, first, last, done = tasks.get()
        try:
            function(first, last)
        except BaseException as error:  # which belongs to the caller
            done.put(error)
        else:
            done.put(None)
        del function, done  # arrays are not held until the next task comes


def in_parts(count: int, work: float, function: Callable[[int, int], object]) -> None:
    """function(first, last) over range(count), divided among threads if `work` is worth it.

    work: about how many multiplications of a loop it is.
    """
    parts = min(_number, count, int(work / WORTH_A_THREAD))
    if parts < 2:
        function(0, count)
        return
    if _started < parts - 1:
        start(parts - 1)
    done: SimpleQueue[BaseException | None] = SimpleQueue()
    ends = [count * part // parts for part in range(parts + 1)]
    for part in range(1, parts):
        _tasks.put((function, ends[part], ends[part + 1], done))
    try:
        function(0, ends[1])
    finally:  # nobody writes to the arrays any more when this returns, or raises
        errors = [done.get() for _ in range(1, parts)]
    for error in errors:
        if error is not None:
            raise error
