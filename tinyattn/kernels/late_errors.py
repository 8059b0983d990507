"""Numbers out of range that lie on the device: noted there, raised when the host waits anyway.

To look at token ids or class numbers on a GPU, the host would have to wait for everything it has
asked for so far, in every step. So a kernel looks at them, and what it finds is raised as an error
when a value is next read (`item()`, `numpy()`, ...), like an error of the device itself. Numbers
that are still on the host are checked at once, before they are moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import backend
from ..backend import Array, namespace

SLOTS = 64
NOTHING = np.iinfo(np.int64).min  # an exception to a range that excepts nothing

_notes: Array | None = None  # (SLOTS, 2) on the device: 1 + a position, and the number there
_errors: dict[tuple[Any, ...], tuple[int, type[Exception], str]] = {}


def note(error: type[Exception], text: str) -> Array:
    """Two integers on the device in which a kernel may report a number; `text` has a {number}."""
    global _notes
    xp = backend.module_of("cuda")
    if _notes is None or namespace(_notes) is not xp or len(_errors) == SLOTS:
        raise_noted()
        _notes = xp.zeros((SLOTS, 2), np.int64)
        _errors.clear()
        backend.when_waiting = raise_noted
    slot, *_ = _errors.setdefault((error, text), (len(_errors), error, text))
    return _notes[slot]


def notes() -> Array | None:
    """The notes themselves: a captured step goes on writing to them."""
    return _notes


def raise_noted() -> None:
    """Raise the first error that has been noted, if there is one, and forget all of them."""
    if _notes is None or not _errors:
        return
    found = namespace(_notes).asnumpy(_notes)
    if not found.any():
        return
    _notes.fill(0)
    for slot, error, text in _errors.values():
        position, number = found[slot]
        if position:
            raise error(text.format(number=number) + f" (at position {position - 1})")


def require_range(
    numbers: Array, low: int, high: int, error: type[Exception], text: str, besides: int = NOTHING
) -> None:
    """All integers lie in [low, high), or are `besides`; else the error, now or when noted."""
    if type(numbers) is np.ndarray:
        wrong = ((numbers < low) | (numbers >= high)) & (numbers != besides)
        if np.count_nonzero(wrong):  # sooner than any()
            raise error(text.format(number=int(numbers[wrong][0])))
    else:
        from . import gpu

        gpu.check_range(numbers, note(error, text), low, high, besides)
