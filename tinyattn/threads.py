"""How many threads one computation runs on.

Attention, dropout, relu, LayerNorm, biases and Adam, where they are enough work to be worth it, are
divided among threads: TINYATTN_NUM_THREADS of them, else OPENBLAS_NUM_THREADS or OMP_NUM_THREADS,
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

from .checks import is_integer

MOST = 1024  # more cores than machines have; a computation with enough work would start them all
# Nanoseconds a part must take. Handing it to a sleeping thread and waiting for that takes 50,000 to
# 150,000, and more while the threads of BLAS, which stay awake after a product, hold the cores.
WORTH_A_THREAD = 300_000


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
            threading.Thread(target=serve, args=(_tasks,), name="tinyattn", daemon=True).start()
            _started += 1


def serve(tasks: SimpleQueue[Any]) -> None:
    """What a thread does for as long as the process lives."""
    while True:
        function, arguments, first, last, done = tasks.get()
        try:
            function(*arguments, first, last)
        except BaseException as error:  # which belongs to the caller
            done.put(error)
        else:
            done.put(None)
        del function, arguments, done  # arrays are not held until the next task comes


def in_parts(
    count: int, nanoseconds: float, function: Callable[..., object], *arguments: Any
) -> None:
    """function(*arguments, first, last) over range(count), divided among threads if it pays.

    nanoseconds: about how long one thread takes for all of it.
    """
    if _number == 1 or count < 2 or nanoseconds < 2 * WORTH_A_THREAD:
        function(*arguments, 0, count)
        return
    parts = min(_number, count, int(nanoseconds / WORTH_A_THREAD))
    if _started < parts - 1:
        start(parts - 1)
    done: SimpleQueue[BaseException | None] = SimpleQueue()
    ends = [count * part // parts for part in range(parts + 1)]
    for part in range(1, parts):
        _tasks.put((function, arguments, ends[part], ends[part + 1], done))
    try:
        function(*arguments, 0, ends[1])
    finally:  # the others write to the caller's arrays
        errors = [done.get() for _ in range(1, parts)]
    for error in errors:
        if error is not None:
            raise error
