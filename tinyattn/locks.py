"""Arrays that a recorded graph needs are read-only while it needs them."""

from __future__ import annotations

import weakref

import numpy as np

from .backend import Array, array_types

# The living locks by the id of their array, which is safe: a lock keeps its array alive.
alive: dict[int, weakref.ref[WriteLock]] = {}


class WriteLock:
    """Keeps an array read-only for as long as a recorded operation holds this object.

    A gradient computed from a changed array would be wrong without a sign of it, so arrays that
    outsiders can reach are locked while a graph needs them. Nodes hold the locks; when the last
    node lets go, reference counting unlocks the array again. CuPy arrays have no such flag: there
    a lock stops tinyattn's own in-place operations only.
    """

    __slots__ = ("__weakref__", "array", "late", "owner", "unlock")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.late: list[Array] | None = None  # views to unlock after it
        base = array.base
        # Locking a view is not enough: its memory can be written through the array that owns it.
        self.owner = write_lock(base) if type(base) in array_types else None
        # What was read-only before stays so afterwards.
        self.unlock = type(array) is np.ndarray and array.flags.writeable
        if self.unlock:
            array.setflags(False)  # write, by position: by name it takes twice as long
        alive[id(array)] = weakref.ref(self)

    def __del__(self) -> None:
        array, late = self.array, self.late
        alive.pop(id(array), None)
        self.owner = None
        if self.unlock:
            free(array)
        if late is not None:
            for view in late:
                free(view)


def free(array: Array) -> None:
    """Let an array be written to again, now or when its owner may be."""
    base = array.base
    if base is None or not isinstance(base, np.ndarray) or base.flags.writeable:
        array.setflags(True)
    elif (owner := living_lock(base)) is not None:  # before it, a view cannot be unlocked
        owner.late = owner.late or []
        owner.late.append(array)


def living_lock(array: Array) -> WriteLock | None:
    """The lock some live graph holds on `array`, if there is one."""
    reference = alive.get(id(array))
    return None if reference is None else reference()


def write_lock(array: Array) -> WriteLock:
    """The lock of `array`: the living one or a new one."""
    return living_lock(array) or WriteLock(array)
