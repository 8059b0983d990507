"""Errors of numbers on the device, such as ids out of range: raised when a value is next read.

To look at such numbers at once, the host would have to wait for all work it has asked for so far,
in every step. So a kernel looks at them and notes the first wrong one. The error is raised when the
host waits anyway (`item()`, `numpy()`, ...). Numbers on the host are checked at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import backend
from ..base.backend import Array, namespace
from . import gpu_kernels

SLOTS = 64
NOTHING = np.iinfo(np.int64).min  # no exception to a range

_notes: Array | None = None  # (SLOTS, 2) on the device: 1 + a position, and the number there
_errors: dict[tuple[Any, ...], tuple[int, type[Exception], str]] = {}


def require_range(
    numbers: Array, low: int, high: int, error: type[Exception], text: str, besides: int = NOTHING
) -> None:
    """Every integer is in [low, high), or is `besides`. If not, raise `error`, now or later.

    text: the message, with {number} in it.
    """
    if type(numbers) is not np.ndarray:
        gpu_kernels().check_range(numbers, note(error, text), low, high, besides)
        return
    wrong = ((numbers < low) | (numbers >= high)) & (numbers != besides)
    if np.count_nonzero(wrong):  # faster than any()
        raise error(text.format(number=int(numbers[wrong][0])))


def note(error: type[Exception], text: str) -> Array:
    """Two integers on the device, (2,), into which a kernel writes the position and the number of
    this error."""
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
    """The notes of all errors. The graph of a captured step goes on writing to them."""
    return _notes


def raise_noted() -> None:
    """Raise the first error that is noted, if there is one, and forget all of them."""
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


def index_for(x: Array, index: Any) -> Any:
    """A plain index with its arrays on the device of `x`. Their numbers are checked for CuPy,
    because its indices out of range raise no error."""
    if type(x) is np.ndarray:
        return index
    parts = index if isinstance(index, tuple) else (index,)
    lengths = [dimensions_taken(part) for part in parts]
    dim, found = 0, []
    for part, length in zip(parts, lengths, strict=True):
        if part is Ellipsis:
            length = x.ndim - sum(lengths)
        elif backend.is_array(part) and part.dtype.kind != "b" and dim < x.ndim:
            n = x.shape[dim]
            text = f"index {{number}} is out of range for dimension {dim}"
            require_range(part, -n, n, IndexError, text)
        found.append(backend.to_device(part, "cuda") if isinstance(part, np.ndarray) else part)
        dim += length
    return tuple(found) if isinstance(index, tuple) else found[0]


def dimensions_taken(part: Any) -> int:
    """The number of dimensions of an array that one part of an index takes."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if getattr(part, "dtype", None) == np.bool_ else 1
