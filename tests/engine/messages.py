"""Tables of calls that are refused, each with the whole text that it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

NO_TENSOR = " must be a Tensor, got list: wrap it with ta.tensor(...)"
NO_DIM_2 = "dim 2 is out of range for shape (2, 3): expected -2 to 1"
Refused = tuple[Callable[[], Any], type[Exception], str]


def all_differences(table: Sequence[Refused]) -> list[str]:
    """What the calls say otherwise than it stands in their table; ... is the end by NumPy."""
    found = []
    for call, error, text in table:
        try:
            kind, said = "no error", str(call())
        except Exception as caught:
            kind, said = type(caught).__name__, str(caught)
        if text.endswith("..."):
            said = said[: len(text) - 3] + "..."
        if (kind, said) != (error.__name__, text):
            found.append(f"{kind}: {said}, expected {error.__name__}: {text}")
    return found
