"""The states of recurrent layers: one op for all positions, because a position has few numbers."""

from __future__ import annotations

from typing import Any

import references as ref
from samples import calls

import tinyattn as ta

from .extremes import at
from .refusals import error, t
from .row import OpRow, ops

GATES = {"RNN": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


def torch_states(x: Any, weight: Any, bias: Any, first: Any, kind: str = "RNN") -> Any:
    sigmoid, tanh, relu = map(ref.torch_fn, ("sigmoid", "tanh", "relu"))
    states, state = [], first
    for row in x:
        h = state[0] @ weight.T + bias
        if kind == "GRU":
            (x_r, x_z, x_n), (h_r, h_z, h_n) = row.chunk(3, -1), h.chunk(3, -1)
            z, n = sigmoid(x_z + h_z), tanh(x_n + sigmoid(x_r + h_r) * h_n)
            state = ((1 - z) * n + z * state[0])[None]
        elif kind == "LSTM":
            i, f, g, o = (row + h).chunk(4, -1)
            c = sigmoid(f) * state[1] + sigmoid(i) * tanh(g)
            state = ref.torch_fn("stack")([sigmoid(o) * tanh(c), c])
        else:
            state = (tanh if kind == "RNN" else relu)(row + h)[None]
        states.append(state)
    return ref.torch_fn("stack")(states)


def sizes(kind: str, length: int, width: int, *lead: int) -> tuple[Any, ...]:
    rows, parts = GATES[kind] * width, 2 if kind == "LSTM" else 1
    shapes = [(length, *lead, rows), (rows, width), (rows,), (parts, *lead, width)]
    return shapes, {"kind": kind}


ROWS: list[OpRow] = [
    OpRow(
        "recurrent_states",
        ops.recurrent_states,
        ref.recurrent_states,
        torch_states,
        calls(
            *((*sizes(kind, 3, 2, 2), f"kind {kind}") for kind in GATES),
            (*sizes("RNN", 1, 1, 1), "size 1"),
            (*sizes("LSTM", 2, 3, 0), "empty"),
            (*sizes("GRU", 4, 2), "no batch"),
            (*sizes("LSTM", 4, 2), "no batch"),
            sizes("LSTM", 5, 3, 2),
            sizes("GRU", 5, 3, 2),
            repeat=2,
        ),
        [
            error(
                lambda: ops.recurrent_states(t(2, 6), t(6, 2), t(6)),
                TypeError,
                "recurrent_states.*'first'",
            ),
            error(
                lambda: ops.recurrent_states(t(2, 6), t(6, 3), t(6), t(1, 2), kind="GRU"),
                ValueError,
                r"6, 3",
            ),
            error(
                lambda: ops.recurrent_states(t(2, 7), t(6, 2), t(6), t(1, 2), kind="GRU"),
                ValueError,
                "recurrent_states.*2, 7",
            ),
        ],
        ("ops.recurrent_states",),
        differentiable=(0, 1, 2, 3),
        steps=16,
        extremes=at(
            "ones,ones,ones",
            "large,ones,ones",
            function=lambda x, weight, first: ops.recurrent_states(
                x[None], ta.cat([weight[:1]] * x.shape[-1]), None, first[None]
            ),
            rtol=16,
            of_largest=True,
        ),
        keeps="input 0, input 1, input 2, input 3, output, 30 more",
    ),
]
