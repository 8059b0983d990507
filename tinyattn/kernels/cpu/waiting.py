"""How threads wait awake for each other: looking at a number, again and again, without the GIL."""

from __future__ import annotations

from numba.core import types
from numba.core.typing import signature

from .compiler import jit

give_way = types.ExternalFunction("sched_yield", signature(types.int32))
MOMENT = 11  # looks


@jit
def changes(board, place, old, looks):
    """Whether board[place] is something else than `old` before so many looks at it."""
    for _ in range(looks):
        if board[place] != old:
            return True
        give_way()
    return False


@jit
def finish_and_wait(finished, part, board, place, old, looks):
    """Say that a part is done, once the GIL is free for who waits for that; then wait for more."""
    finished[part] = 1
    found = changes(board, place, old, looks)
    for _ in range(MOMENT):  # until who handed out the task lets go of the GIL
        give_way()
    return found
