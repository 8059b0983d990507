"""How many threads one computation runs on, and how it is divided among them.

Narrow encoder layers, attention, dropout, relu, LayerNorm, biases and Adam, where they are enough
work to be worth it, are divided among threads, in parts given out beforehand (`in_parts`) or by who
is next (`together`): TINYATTN_NUM_THREADS of them, else OPENBLAS_NUM_THREADS or OMP_NUM_THREADS,
else as many as there are cores this process may use. In these nothing is summed in an order that
depends on the number of threads, and so no result does, to the last bit.

Matrix products are NumPy's, and have the threads of its BLAS. These stay awake for some 20 ms after
a product, and ours would fight with them for the cores; so ours sleep, and are woken for large
parts only. With OPENBLAS_NUM_THREADS=1 there is nobody to fight with: then ours stay awake as well,
for `LOOKS`, are there in a tenth of the time, and divide matrix products too.

The threads are Python's own. They survive `fork` (a child starts its own) and many threads of the
caller, where OpenMP's end in a hang or an abort.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from .checks import is_integer

MOST = 1024  # more cores than machines have; a computation with enough work would start them all
# Nanoseconds until another thread has begun: to wake one takes 50,000 to 150,000, and more while
# the threads of BLAS, which stay awake after a product, hold the cores.
HANDING_OVER, HANDING_OVER_AWAKE = 60_000, 10_000
WORTH_A_THREAD, WORTH_A_THREAD_AWAKE = 300_000, 12_000  # nanoseconds a part must take
LOOKS = 4000  # at what may change, of half a microsecond each, before a thread goes to sleep
ALONE = -1  # what a function that shares out its work gets as `part` where nobody waits awake


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


def has_lone_blas() -> bool:
    """Whether the environment leaves NumPy's BLAS one thread, where threads can wait awake."""
    number = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS")
    return number == "1" and os.name == "posix"


_number = default_threads()
# Threads that were started stay, asleep, when the number becomes smaller.
_tasks: SimpleQueue[Any] = SimpleQueue()
_started = 0
_starting = threading.Lock()
# What threads look at while they wait awake: how often tasks were handed out.
_handed_out = np.zeros(1, np.int64)
_stay_awake = has_lone_blas()
_waiting: Any = None


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
        function, arguments, part, done, finished = tasks.get()
        try:
            function(*arguments)
        except BaseException as error:  # which belongs to the caller
            done.put(error)
        else:
            done.put(None)
        del function, arguments, done  # arrays are not held until the next task comes
        if awake():
            seen = _handed_out[0]
            looks = LOOKS if tasks.empty() else 0
            found = wait_for_task(finished, part, seen, looks)
            while found and tasks.empty():  # another thread was faster
                seen = _handed_out[0]
                found = tasks.empty() and wait_for_task(finished, part, seen, LOOKS)


def wait_for_task(finished: np.ndarray, part: int, seen: int, looks: int) -> bool:
    """Say that a part is done, once the GIL is free for who waits for that; then wait for more."""
    return _waiting.wait(finished, part, _handed_out, 0, 1, seen, looks, _waiting.MOMENT)


def awake() -> bool:
    """Whether threads wait awake, so that small parts pay, and matrix products are divided too."""
    global _waiting, _stay_awake
    if _number == 1 or not _stay_awake:
        return False
    if _waiting is None:
        from .kernels import jitted  # which needs this file

        _waiting = getattr(jitted(), "waiting", None)
        _stay_awake = _waiting is not None
    return _stay_awake


def number_of_parts(count: int, nanoseconds: float) -> int:
    """On how many threads work of so many pieces pays."""
    if nanoseconds < 2 * WORTH_A_THREAD_AWAKE:  # and so not worth looking further
        return 1
    worth = WORTH_A_THREAD_AWAKE if awake() else WORTH_A_THREAD
    return min(_number, count, int(nanoseconds / worth))


def in_parts(
    count: int, nanoseconds: float, function: Callable[..., object], *arguments: Any
) -> None:
    """function(*arguments, first, last) over range(count), divided among threads if it pays.

    nanoseconds: about how long one thread takes for all of it.
    """
    parts = number_of_parts(count, nanoseconds)
    if parts < 2:
        function(*arguments, 0, count)
        return
    handing_over = HANDING_OVER_AWAKE if awake() else HANDING_OVER
    # What each of the others gets; they begin later than the first.
    share = max(0.0, 1 - handing_over / nanoseconds) / parts
    ends = [round(count * (1 - share * left)) for left in reversed(range(parts))]
    firsts = [0, *ends[:-1]]
    calls = [(*arguments, *part) for part in zip(firsts, ends, strict=True)]
    at_once(function, calls, np.zeros(parts, np.int64))


def together(
    count: int, nanoseconds: float, function: Callable[..., object], *arguments: Any
) -> None:
    """function(*arguments, bell, finished, part) on as many threads as pay, where it shares out the
    work itself: `count` pieces, which one thread would do in about so many nanoseconds.

    For the rest see `kernels/cpu/sharing.py`.
    """
    parts = number_of_parts(count, nanoseconds)
    finished = np.zeros(max(1, parts), np.int64)
    if parts < 2 or not awake():
        at_once(function, [(*arguments, _handed_out, finished, ALONE)] * max(1, parts), finished)
        return
    calls = [(*arguments, _handed_out, finished, part) for part in range(parts)]
    at_once(function, calls, finished, rings=True)


def at_once(
    function: Callable[..., object],
    calls: list[tuple[Any, ...]],
    finished: np.ndarray,
    rings: bool = False,
) -> None:
    """Make the first call here and the others on other threads, and wait for all of them.

    finished: for each call 0. rings: whether the function tells the others itself to begin.
    """
    parts = len(calls)
    if parts == 1:
        function(*calls[0])
        return
    if _started < parts - 1:
        start(parts - 1)
    done: SimpleQueue[BaseException | None] = SimpleQueue()
    for part in range(1, parts):
        _tasks.put((function, calls[part], part, done, finished))
    if not rings:
        _handed_out[0] += 1
    try:
        function(*calls[0])
    finally:  # the others write to the caller's arrays
        if awake():
            _waiting.wait(finished, 0, finished, 1, parts, 0, LOOKS, 0)
        errors = [done.get() for _ in range(1, parts)]
    for error in errors:
        if error is not None:
            raise error
