"""Integers that must lie in a range, such as ids: checked without making the host wait for a GPU.

Numbers on the host are checked at once. To look at numbers on the device, the host would have to
wait for all work it has asked for so far, in every step. So a kernel looks at them, and writes the
first one out of range into a slot on the device. The error is raised when the host next waits
anyway (`item()`, `numpy()`, ...).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import backend
from ..base.backend import Array, namespace
from . import gpu_kernels

SLOTS = 64  # different errors that can be pending at a time
NO_NUMBER = np.iinfo(np.int64).min

_slots: Array | None = None  # (SLOTS, 2) on the device: 1 + a position, and the number there
_errors: dict[tuple[Any, ...], tuple[int, type[Exception], str]] = {}  # with the index of its slot


def require_range(
    numbers: Array,
    low: int,
    high: int,
    error: type[Exception],
    text: str,
    also_allowed: int = NO_NUMBER,
) -> None:
    """Every integer is in [low, high), or is `also_allowed`. If not, raise `error`, now or later.

    text: the message, with {number} in it.
    """
    if type(numbers) is not np.ndarray:
        gpu_kernels().check_range(numbers, slot_for(error, text), low, high, also_allowed)
        return
    if numbers.size and numbers.min() >= low and numbers.max() < high:
        return
    is_wrong = ((numbers < low) | (numbers >= high)) & (numbers != also_allowed)
    if np.count_nonzero(is_wrong):  # faster than any()
        raise error(text.format(number=int(numbers[is_wrong][0])))


def slot_for(error: type[Exception], text: str) -> Array:
    """Two integers on the device, (2,), into which a kernel writes the position and the number of
    this error."""
    global _slots
    xp = backend.module_of("cuda")
    if _slots is None or namespace(_slots) is not xp or len(_errors) == SLOTS:
        raise_pending_error()
        _slots = xp.zeros((SLOTS, 2), np.int64)
        _errors.clear()
        backend.when_waiting = raise_pending_error
    index, *_ = _errors.setdefault((error, text), (len(_errors), error, text))
    return _slots[index]


def all_slots() -> Array | None:
    """The slots of all errors. The graph of a captured step goes on writing to them."""
    return _slots


def raise_pending_error() -> None:
    """Raise the first error that has a number in its slot, if there is one, and empty all slots."""
    if _slots is None or not _errors:
        return
    slots = namespace(_slots).asnumpy(_slots)
    if not slots.any():
        return
    _slots.fill(0)
    for index, error, text in _errors.values():
        position, number = slots[index]
        if position:
            raise error(text.format(number=number) + f" (at position {position - 1})")


def index_for(x: Array, index: Any) -> Any:
    """An index with its arrays on the device of `x`. Their numbers are checked for CuPy, because
    its indices out of range raise no error."""
    if type(x) is np.ndarray:
        return index
    parts = index if isinstance(index, tuple) else (index,)
    counts = [dimensions_indexed(part) for part in parts]
    dim, on_device = 0, []
    for part, count in zip(parts, counts, strict=True):
        if part is Ellipsis:
            count = x.ndim - sum(counts)
        elif backend.is_array(part) and part.dtype.kind != "b" and dim < x.ndim:
            n = x.shape[dim]
            text = f"index {{number}} is out of range for dimension {dim}"
            require_range(part, -n, n, IndexError, text)
        on_device.append(backend.to_device(part, "cuda") if isinstance(part, np.ndarray) else part)
        dim += count
    return tuple(on_device) if isinstance(index, tuple) else on_device[0]


def dimensions_indexed(part: Any) -> int:
    """The number of dimensions of an array that one part of an index stands for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if getattr(part, "dtype", None) == np.bool_ else 1
