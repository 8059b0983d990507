"""Every row that can be measured, by its name."""

from __future__ import annotations

from .cases import Case
from .encoders import START, attentions, steps
from .operations import layers, operations


def all_cases(short: bool) -> list[Case]:
    """Those of the main table, in its order."""
    found = [*operations(short), *layers(short), *steps(short), *attentions(short)]
    return [*found, START]
