"""Integers that must lie in a range, such as ids: checked without making the host wait for a GPU.

Numbers on the host are checked at once. To look at numbers on the device, the host would have to
wait for all work it has asked for so far, in every step. So a kernel looks at them, and writes the
first one out of range into a slot on the device. The error is raised when the host next waits
anyway (`item()`, `numpy()`, ...).
"""

from typing import Any

import numpy as np

from ..base import backend
from ..base.backend import Array, namespace
from . import gpu_kernel

SLOTS = 64  # different errors that can be pending
NO_NUMBER, LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


# On the device, (SLOTS, 2): a kernel writes 1 + a position and the number there into a row.
_table: Array = None
_rows: dict[tuple[type[Exception], str], int] = {}  # of each error, since the table was last read


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
        gpu_kernel("checks.check_range")(numbers, slot_for(error, text), low, high, also_allowed)
        return
    if numbers.size and not low <= numbers.min() <= numbers.max() < high:
        is_wrong = ((numbers < low) | (numbers >= high)) & (numbers != also_allowed)
        if is_wrong.any():
            raise error(text.format(number=int(numbers[is_wrong][0])))


def check_divisor(x: Any, y: Any) -> None:
    """Integers have no inf that could stand for x / 0."""
    if "f" in kinds_of(x, y):
        return
    text = "an integer was divided by 0: use .to(ta.float32) for inf or NaN"
    if backend.device_of(y) == "cuda":
        require_range(y != 0, 1, 2, ZeroDivisionError, text)
    elif not np.all(y):
        raise ZeroDivisionError(text)


def check_exponent(x: Any, y: Any) -> None:
    """An integer to a negative power is a fraction. NumPy raises an error for it, CuPy gives 0."""
    if "f" not in kinds_of(x, y):
        text = "an integer to the power {number} is a fraction: use .to(ta.float32)"
        require_range(y if backend.is_array(y) else np.array(y), 0, LARGEST, ValueError, text)


def kinds_of(*values: Any) -> list[str]:
    return [getattr(value, "dtype", np.dtype(type(value))).kind for value in values]


def slot_for(error: type[Exception], text: str) -> Array:
    """Two integers on the device, (2,), into which a kernel writes the position and the number of
    this error."""
    global _table
    if len(_rows) == SLOTS:
        raise_pending_error()
    if _table is None:
        _table = backend.module_of("cuda").zeros((SLOTS, 2), np.int64)
        backend.when_waiting = raise_pending_error
    return _table[_rows.setdefault((error, text), len(_rows))]


def raise_pending_error() -> None:
    """Raise the first pending error, if there is one. A table that no kernel has written to since
    is not read, because reading waits for the device."""
    if not _rows:
        return
    found = namespace(_table).asnumpy(_table)
    errors = list(_rows)
    _rows.clear()
    if found.any():
        _table.fill(0)
    for (error, text), (position, number) in zip(errors, found, strict=False):
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
