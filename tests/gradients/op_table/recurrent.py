"""The states of a GRU and of an LSTM, each one op because a position has few numbers."""

from __future__ import annotations

from typing import Any

import references as ref
from samples import calls

import tinyattn as ta

from .extremes import at
from .refusals import error, t
from .row import OpRow, ops


def torch_gru_state(x: Any, h: Any, state: Any) -> Any:
    sigmoid, tanh = ref.torch_fn("sigmoid"), ref.torch_fn("tanh")
    width = state.shape[-1]
    gates = sigmoid((x + h)[..., : 2 * width])
    r, z = gates[..., :width], gates[..., width:]
    return (1 - z) * tanh(x[..., 2 * width :] + r * h[..., 2 * width :]) + z * state


def torch_lstm_state(x: Any, c: Any) -> Any:
    sigmoid, tanh = ref.torch_fn("sigmoid"), ref.torch_fn("tanh")
    i, f, g, o = x.chunk(4, -1)
    new = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return ref.torch_fn("cat")([sigmoid(o) * tanh(new), new], -1)


def of_width(width: int, *lead: int) -> list[tuple[int, ...]]:
    return [(*lead, 3 * width), (*lead, 3 * width), (*lead, width)]


def of_lstm(width: int, *lead: int) -> list[tuple[int, ...]]:
    return [(*lead, 4 * width), (*lead, width)]


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
        extremes=at(
            "ones,ones,ones",
            "large,ones,large",
            function=lambda x, h, state: ops.gru_state(
                ta.cat([x] * 3, 1), ta.cat([h] * 3, 1), state
            ),
            rtol=16,
            of_largest=True,
        ),
        keeps="input 0, input 1, input 2, 3 more",
    ),
    OpRow(
        "lstm_state",
        ops.lstm_state,
        ref.lstm_state,
        torch_lstm_state,
        calls(
            (of_lstm(1, 1), {}, "size 1"),
            (of_lstm(3, 0), {}, "empty"),
            (of_lstm(0, 2), {}, "no features"),
            (of_lstm(2), {}, "no batch"),
            (of_lstm(3, 2), {}),
            (of_lstm(2, 4), {}),
            (of_lstm(2, 2, 3), {}),
            repeat=3,
        ),
        [
            error(lambda: ops.lstm_state(t(2, 8)), TypeError, "lstm_state.*'c'"),
            error(lambda: ops.lstm_state(t(2, 8), t(3, 2)), ValueError, "lstm_state.*2, 8.*3, 2"),
            error(lambda: ops.lstm_state(t(2, 8), t(2, 3)), ValueError, "lstm_state.*2, 3"),
        ],
        ("ops.lstm_state",),
        differentiable=(0, 1),
        steps=4,
        extremes=at(
            "ones,ones",
            "large,ones",
            function=lambda x, c: ops.lstm_state(ta.cat([x] * 4, 1), c),
            rtol=16,
            of_largest=True,
        ),
        keeps="input 0, input 1, 5 more",
    ),
]
