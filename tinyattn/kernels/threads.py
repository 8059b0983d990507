"""A pool of threads, and a loop that is divided among them.

`parallel_for` cuts a loop into chunks and makes a task of them. The caller computes chunks itself;
helpers, if they wake up in time, take some of them:

    caller                         queue            helpers (asleep until a task comes)
      |
      |--- put(task) -------------> task ----------> wake up
      |                                                |
      |<-- next chunk --- task.chunks --- next chunk ->|
      |<-- next chunk --- task.chunks --- next chunk ->|
      |                                                |
    no chunk is left                             no chunk is left
      |                                                |
    barrier: waits for each <---- task.ended ----------|
    helper that has begun                              |
      |                                              sleeps
      v

Nobody waits for a helper that has not begun: on a busy machine the caller computes all chunks.
Which thread computes a chunk changes no bit of it, and the kernels sum nothing across chunks.

Measured against this, per loop and on two cores: a ThreadPoolExecutor takes 35 microseconds to hand
over an empty chunk, this pool 12. Numba's own threads spin or are unsafe after a fork or when two
threads use them, depending on the layer it finds.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from ..base.checks import is_integer
from . import blas

MOST = 1024  # threads: more than machines have cores
# How long a chunk takes at least, because a helper needs 10,000 to 100,000 until it is awake.
CHUNK_NANOSECONDS = 50_000
CHUNKS_PER_THREAD = 2  # so that a thread that is faster, or that began sooner, computes more


def default_threads() -> int:
    value = os.environ.get("TINYATTN_NUM_THREADS", "")
    if value and not (value.isdecimal() and 1 <= int(value) <= MOST):
        raise ValueError(f"TINYATTN_NUM_THREADS must be an integer from 1 to {MOST}, got {value!r}")
    for name in ("TINYATTN_NUM_THREADS", *blas.VARIABLES):
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return min(int(value), MOST)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


_number = default_threads()


def get_num_threads() -> int:
    """How many threads a computation may use; see `set_num_threads`."""
    return _number


def set_num_threads(number: int) -> None:
    """Let one computation use `number` threads, the caller's among them: 1 to 1,024.

    More than there are cores are allowed, and slower. Before the program starts,
    TINYATTN_NUM_THREADS says the same. No result depends on the number, to the last bit.

    The first kernel limits BLAS, which computes the matrix products of NumPy and SciPy, to one
    thread in the whole process. Large products of tinyattn are divided among its own threads. BLAS
    is left alone without threadpoolctl; and until this function is called, where
    OPENBLAS_NUM_THREADS, OMP_NUM_THREADS or MKL_NUM_THREADS is set.

    Differs from PyTorch, whose products have threads of their own that wait awake.

        >>> ta.set_num_threads(1)
        >>> ta.get_num_threads()
        1
    """
    global _number
    if not is_integer(number) or not 1 <= number <= MOST:
        raise ValueError(f"the number of threads is an integer from 1 to {MOST}, got {number!r}")
    _number = int(number)
    blas.ask_for_limit()


class Task:
    """The chunks of one loop.

    chunks: calls that nobody has begun yet; threads take them from the left, which is atomic.
    begun, ended: an entry for each helper, made before it takes its first chunk, and after its last
        one. An entry in `ended` is the helper's error, or None.
    """

    def __init__(self, chunks: list[tuple[Any, ...]]) -> None:
        self.chunks = deque(chunks)
        self.begun: list[None] = []
        self.ended: list[BaseException | None] = []
        self.signal: SimpleQueue[None] = SimpleQueue()

    def compute_chunks(self) -> None:
        while self.chunks:
            try:
                function, *arguments = self.chunks.popleft()
            except IndexError:  # another thread was faster
                return
            function(*arguments)

    def help_caller(self) -> None:
        """What a helper does; KeyboardInterrupt never comes to a helper, but to the main thread."""
        self.begun.append(None)
        error = None
        try:
            self.compute_chunks()
        except BaseException as caught:
            error = caught
        self.ended.append(error)
        self.signal.put(None)

    def wait_for_helpers(self) -> None:
        """The barrier. A helper that begins after it finds no chunk."""
        interrupt, waiting = None, True
        while waiting:
            try:
                self.chunks.clear()  # after an error of the caller some are left
                while len(self.ended) < len(self.begun):
                    self.signal.get()
                waiting = False
            except KeyboardInterrupt as caught:  # helpers still write to the caller's arrays
                interrupt = caught
        for error in (interrupt, *self.ended):
            if error is not None:
                raise error


_tasks: SimpleQueue[Task] = SimpleQueue()
_helpers = 0  # how many have been started
_starting = threading.Lock()


def forget_helpers() -> None:
    """After a fork, in the child: the threads of its parent do not exist there."""
    global _tasks, _helpers, _starting
    _tasks, _helpers, _starting = SimpleQueue(), 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_helpers)


def help_forever(tasks: SimpleQueue[Task]) -> None:
    while True:
        tasks.get().help_caller()


def start_helpers(number: int) -> None:
    """Start helpers until there are `number`. If the system allows fewer, the caller computes the
    rest."""
    global _helpers
    with _starting, suppress(RuntimeError):
        while _helpers < number:
            threading.Thread(target=help_forever, args=(_tasks,), daemon=True).start()
            _helpers += 1


def parallel_for(
    count: int, nanoseconds: float, function: Callable[..., object], *arguments: Any
) -> None:
    """function(*arguments, first, last) over range(count), divided among threads if it pays.

    nanoseconds: about how long one thread takes for all of it.
    """
    chunks = min(count, int(nanoseconds / CHUNK_NANOSECONDS), CHUNKS_PER_THREAD * _number)
    if chunks < 2 or _number == 1:
        function(*arguments, 0, count)
        return
    ends = [count * chunk // chunks for chunk in range(chunks + 1)]
    task = Task([(function, *arguments, *ends[i : i + 2]) for i in range(chunks)])
    helpers = min(_number, chunks) - 1
    try:
        if _helpers < helpers:
            start_helpers(helpers)
        for _ in range(min(helpers, _helpers)):
            _tasks.put(task)
        task.compute_chunks()
    finally:
        task.wait_for_helpers()
