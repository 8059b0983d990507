"""Every row that can be measured, by its name."""

from __future__ import annotations

from .cases import Case
from .encoders import START, attentions, steps, steps_alike
from .operations import layers, operations
from .other_rows import other_cases
from .scaling_cases import scaling_cases


def all_cases(short: bool) -> list[Case]:
    """Those of the main table, in its order."""
    encoders = [*steps(short), *steps_alike(short)]
    return [*operations(short), *layers(short), *encoders, *attentions(short), START]


def every_case(short: bool) -> dict[str, Case]:
    """Of all tables, by name."""
    cases = [*all_cases(short), *other_cases(short), *scaling_cases(short)]
    return {case.name: case for case in cases}
