"""How threads wait awake for each other: looking at a number, again and again, without the GIL."""

from __future__ import annotations

from .compiler import jit
from .sharing import give_way

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


@jit
def meet(finished, looks):
    """Wait for all other parts, and tell them that the GIL is free until they are done. Returns
    whether they were in time."""
    finished[0] = 1
    found = True
    for part in range(1, len(finished)):
        found = changes(finished, part, 0, looks) and found
    return found
