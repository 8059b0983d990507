"""How threads share out one loop among them: each takes the next piece, until none is left.

No thread is given its part beforehand. One that comes late finds less to do, pieces may take longer
than others, and a loop that needs all of another can follow it in the same kernel: between two
kernels all threads would have to go through Python, where only one at a time can.

Of each loop a `board` (3,) counts what was taken, and what is done; the third number says how much
is taken at once. A thread waits for pieces only that others have taken, and they are at work on
them: so it does not matter how many threads there are, nor when they come. For this no exception
may come from within a loop, since the others would wait for ever: what it needs is allocated before
it, so that a thread that fails for want of memory has taken nothing.
"""

from __future__ import annotations

import os
import threading

import numpy as np
from numba import types
from numba.extending import intrinsic

from .compiler import COMPILED, inner

MOST_LOOKS = 4000  # as LOOKS in threads.py; then a thread goes without being told

if COMPILED:

    @intrinsic
    def add_at_once(typing, board, place, number):
        """board[place] += number, as one step for all threads; returns what stood there before."""

        def code(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            pointer = builder.gep(array.data, [arguments[1]])
            return builder.atomic_rmw("add", pointer, arguments[2], "seq_cst")

        return types.int64(board, types.int64, types.int64), code

    @intrinsic
    def read_at_once(typing, board, place):
        """board[place] as it is now, and with it all that was written before it became so."""

        def code(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            pointer = builder.gep(array.data, [arguments[1]])
            return builder.load_atomic(pointer, "seq_cst", 8)

        return types.int64(board, types.int64), code

    if os.name == "posix":
        give_way = types.ExternalFunction("sched_yield", types.int32())
    else:

        @inner
        def give_way():
            pass

else:
    one_at_a_time = threading.Lock()

    def add_at_once(board, place, number):
        with one_at_a_time:
            before = board[place]
            board[place] += number
        return before

    def read_at_once(board, place):
        return board[place]

    def give_way():
        pass


@inner
def claimed(board, count):
    """Numbers below `count` that no other thread gets."""
    together = board[2]
    while True:
        first = add_at_once(board, 0, together)
        if first >= count:
            break
        last = min(first + together, count)
        for number in range(first, last):  # noqa: UP028 (Numba knows no `yield from`)
            yield number
        add_at_once(board, 1, last - first)


@inner
def wait_for(board, count):
    """Until all of a loop is done."""
    while read_at_once(board, 1) < count:
        give_way()


@inner
def arrive(bell, part):
    """What a kernel does first. `part` is 0 on the thread that calls it, a number on others, and
    -1 where nobody waits awake. A thread that asks for the GIL while another has it goes to sleep;
    so the first to come rings for the others only here, where it has given the GIL away."""
    if part == 0:
        add_at_once(bell, 0, 1)


@inner
def leave(finished, part):
    """And last: the others go when the first waits for them, and has given the GIL away again."""
    if part > 0:
        for _ in range(MOST_LOOKS):
            if read_at_once(finished, 0) != 0:
                break
            give_way()


def boards(*together: int) -> np.ndarray:
    """Of as many loops, from which so many numbers are taken at once."""
    found = np.zeros((len(together), 3), np.int64)
    found[:, 2] = together
    return found
