"""How threads wait awake for each other: looking at a number, again and again, without the GIL."""

from __future__ import annotations

from .compiler import jit
from .sharing import give_way

MOMENT = 11  # looks


@jit
def wait(finished, part, board, first, last, old, looks, moment):
    """Say that a part is done; then look at each of board[first:last], at most so often, until it
    is something else than `old`. Returns whether all of them were in time.

    The others may say so while they still hold the GIL, for which this thread is not to ask before:
    it waits for so many looks more.
    """
    finished[part] = 1
    found = True
    for place in range(first, last):
        left = looks
        while board[place] == old and left > 0:
            give_way()
            left -= 1
        found = found and board[place] != old
    for _ in range(moment):
        give_way()
    return found
