"""The state of a GRU, which is an op because one position has few numbers and many operations."""

from __future__ import annotations

from typing import Any

import references as ref
from samples import calls

from .refusals import error, t
from .row import OpRow, ops


def torch_gru_state(x: Any, h: Any, state: Any) -> Any:
    sigmoid, tanh = ref.torch_fn("sigmoid"), ref.torch_fn("tanh")
    width = state.shape[-1]
    gates = sigmoid((x + h)[..., : 2 * width])
    r, z = gates[..., :width], gates[..., width:]
    return (1 - z) * tanh(x[..., 2 * width :] + r * h[..., 2 * width :]) + z * state


def of_width(width: int, *lead: int) -> list[tuple[int, ...]]:
    return [(*lead, 3 * width), (*lead, 3 * width), (*lead, width)]


ROWS: list[OpRow] = [
    OpRow(
        "gru_state",
        ops.gru_state,
        ref.gru_state,
        torch_gru_state,
        calls(
            (of_width(1, 1), {}, "size 1"),
            (of_width(3, 0), {}, "empty"),
            (of_width(0, 2), {}, "no features"),
            (of_width(2), {}, "no batch"),
            (of_width(3, 2), {}),
            (of_width(2, 4), {}),
            (of_width(2, 2, 3), {}),
            repeat=3,
        ),
        [
            error(lambda: ops.gru_state(t(2, 6), t(2, 6)), TypeError, "gru_state.*'state'"),
            error(
                lambda: ops.gru_state(t(2, 6), t(3, 6), t(2, 2)), ValueError, "gru_state.*2, 6.*3"
            ),
            error(lambda: ops.gru_state(t(2, 6), t(2, 6), t(2, 3)), ValueError, "gru_state.*2, 3"),
        ],
        ("ops.gru_state",),
        differentiable=(0, 1, 2),
        steps=4,
    ),
]
