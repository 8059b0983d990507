"""PyTorch's recurrent layers RNN, LSTM and GRU, and their cells, which do one step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import ops
from ...base.backend import Array
from ...base.checks import check_choice, check_size, checked_probability
from ...engine.op import op
from ...errors import ShapeError
from ...nn import Module, Parameter, init
from ...ops.arguments import float_tensor
from ...ops.shapes import cat, stack
from ...tensors.create import zeros
from ...tensors.tensor import Tensor
from . import functional as F
from .arguments import takes

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell"]
State = tuple[Tensor, ...]  # (h,), or of an LSTM (h, c)
SIZES = "input_size, hidden_size, num_layers=1"
OPTIONS = "bias=True, batch_first=False, dropout=0.0, bidirectional=False"


class Gated(Module):
    """The parameters of a recurrent layer or cell, and the first states."""

    gates = 1  # each has hidden_size columns of the two projections
    parts = 1  # of the state

    def set_sizes(self, given: Any) -> None:
        self.input_size, self.hidden_size = (
            check_size(n, getattr(given, n)) for n in ("input_size", "hidden_size")
        )
        self.bias = given.bias

    def add_parameters(self, suffix: str, inputs: int) -> None:
        rows, bound = self.gates * self.hidden_size, 1 / math.sqrt(self.hidden_size)
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs)}
        shapes["weight_hh"] = (rows, self.hidden_size)
        shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if self.bias else {}
        for kind, shape in shapes.items():
            parameter = init.uniform_(Parameter(np.empty(shape, np.float32)), -bound, bound)
            setattr(self, f"{kind}{suffix}", parameter)

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        """The next state, from the projections of the input and of h, and the state."""
        raise NotImplementedError

    def project(self, x: Tensor, name: str) -> Tensor:
        """(..., gates * hidden_size); name is that of the parameters, as "ih_l0"."""
        bias = getattr(self, f"bias_{name}") if self.bias else None
        return F.linear(x, getattr(self, f"weight_{name}"), bias)

    def check_input(self, x: Any, dims: tuple[int, int]) -> None:
        if float_tensor(x, "x").ndim not in dims or x.shape[-1] != self.input_size:
            kind = type(self).__name__
            raise ShapeError(f"this {kind} takes x (..., {self.input_size}), got {x.shape}")

    def first_states(self, state: Any, shape: tuple[int, ...], x: Tensor) -> State:
        given = (state,) if isinstance(state, Tensor) else state
        zero = zeros(shape, dtype=x.dtype, device=x.device)
        firsts = (zero,) * self.parts if given is None else tuple(given)
        if [first.shape for first in firsts] != [shape] * self.parts:
            raise ShapeError(f"each state is {shape}, got {[first.shape for first in firsts]}")
        return firsts


class Recurrent(Gated):
    """num_layers layers, each over the outputs of the one before. Call: x, and a first state.

    x (L, B, input_size), or with batch_first (B, L, input_size), or (L, input_size) -> the h of the
    last layer at each position, and the last state of each layer: (num_layers, B, hidden_size), of
    an LSTM a pair of these. The first state is 0 unless given.
    bidirectional: each layer runs in both directions, and joins the two.
    There is no PackedSequence: row i of a padded batch ends at its own length.
    """

    def build(self, given: Any) -> None:
        self.set_sizes(given)
        self.num_layers, self.batch_first = given.num_layers, given.batch_first
        self.bidirectional, self.dropout = given.bidirectional, checked_probability(given.dropout)
        directions = ("", "_reverse") if given.bidirectional else ("",)
        layers = range(check_size("num_layers", given.num_layers))
        self.runs = [[f"l{layer}{direction}" for direction in directions] for layer in layers]
        for layer, names in enumerate(self.runs):
            for name in names:
                inputs = self.hidden_size * len(directions) if layer else self.input_size
                self.add_parameters(f"_{name}", inputs)

    __init__ = takes(f"{SIZES}, {OPTIONS}")(build)

    def forward(self, x: Any, hx: Any = None) -> tuple[Tensor, Any]:
        self.check_input(x, (2, 3))
        swapped = self.batch_first and x.ndim == 3
        out, state = self.run_layers(x.transpose(0, 1) if swapped else x, hx)
        return (out.transpose(0, 1) if swapped else out), state

    @property
    def _flat_weights_names(self) -> list[str]:
        """Which the d2l book reads to give the weights their starting values."""
        return list(self._parameters)

    def flatten_parameters(self) -> None:
        """Nothing: PyTorch's call for one kind of memory on a GPU."""

    def extra_repr(self) -> str:
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        defaults["bidirectional"] = False
        changed = [f"{n}={getattr(self, n)}" for n, x in defaults.items() if getattr(self, n) != x]
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])

    def run_layers(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """x (L, B, D), or (L, D) -> the outputs and the last states."""
        shape = len(self.runs) * len(self.runs[0]), *x.shape[1:-1], self.hidden_size
        firsts = self.first_states(state, shape, x)
        lasts: list[State] = []
        for names in self.runs:
            x = F.dropout(x, self.dropout, self.training) if lasts else x
            outs = []
            for name in names:
                first = tuple(part[len(lasts)] for part in firsts)
                out, last = self.run(x, name, first)
                outs.append(out)
                lasts.append(last)
            x = outs[0] if len(outs) == 1 else cat(outs, -1)
        states = tuple(stack(parts) for parts in zip(*lasts, strict=True))
        return x, states if self.parts > 1 else states[0]

    def run(self, x: Tensor, name: str, state: State) -> tuple[Tensor, State]:
        """One layer in one direction."""
        projected = rows_of(self.project(x, f"ih_{name}"))
        outs: dict[int, Tensor] = {}
        for t in reversed(range(len(x))) if name.endswith("_reverse") else range(len(x)):
            state = self.step(projected[t], self.project(state[0], f"hh_{name}"), state)
            outs[t] = state[0]
        return stack([outs[t] for t in range(len(x))]), state


class Cell(Gated):
    """One step: x (B, input_size) or (input_size,), and the state -> the next state.

    The state is (B, hidden_size), of an LSTM a pair of these; 0 unless given.
    """

    @takes("input_size, hidden_size, bias=True")
    def __init__(self, given: Any) -> None:
        self.set_sizes(given)
        self.add_parameters("", self.input_size)

    def extra_repr(self) -> str:
        sizes = f"{self.input_size}, {self.hidden_size}"
        return sizes if self.bias else f"{sizes}, bias=False"

    def forward(self, x: Any, hx: Any = None) -> Any:
        self.check_input(x, (1, 2))
        old = self.first_states(hx, (*x.shape[:-1], self.hidden_size), x)
        new = self.step(self.project(x, "ih"), self.project(old[0], "hh"), old)
        return new if self.parts > 1 else new[0]


def rows_of(x: Tensor) -> list[Tensor]:
    """x[0], x[1], ... by halves, because the gradient of each x[i] alone would be as large as x."""
    half = len(x) // 2
    return rows_of(x[:half]) + rows_of(x[half:]) if half else [x[0]]


def gru_gates(x: Any, h: Any, width: int) -> tuple[Any, ...]:
    r_and_z = ops.sigmoid(x[..., : 2 * width] + h[..., : 2 * width])
    r, z = r_and_z[..., :width], r_and_z[..., width:]
    return r, z, ops.tanh(x[..., 2 * width :] + r * h[..., 2 * width :])


@op(saves=True)
def gru_state(x: Array, h: Array, state: Array) -> Any:
    """The next state. One op, because a position has too few numbers to pay for twelve."""
    _, z, n = gates = gru_gates(x, h, state.shape[-1])
    return n + z * (state - n), gates


@gru_state.vjp("x", "h", "state")
def dx(grad, x, h, state, saved):
    width, last = state.shape[-1], state.ndim - 1
    r, z, n = saved or gru_gates(x, h, width)
    dz = grad * (state - n) * z * (1 - z)
    dn = grad * (1 - z) * (1 - n * n)
    dr = dn * h[..., 2 * width :] * r * (1 - r)
    return (
        ops.concatenate(dr, dz, dn, dim=last),
        ops.concatenate(dr, dz, dn * r, dim=last),
        grad * z,
    )


def lstm_gates(x: Any, c: Any) -> tuple[Any, ...]:
    width = c.shape[-1]
    i_and_f = ops.sigmoid(x[..., : 2 * width])
    i, f = i_and_f[..., :width], i_and_f[..., width:]
    g, o = ops.tanh(x[..., 2 * width : 3 * width]), ops.sigmoid(x[..., 3 * width :])
    return i, f, g, o, ops.tanh(f * c + i * g)


@op(saves=True)
def lstm_state(x: Array, c: Array) -> Any:
    """The next h and c in one array, (..., 2 * hidden_size); x is the sum of the projections."""
    i, f, g, o, tanh = gates = lstm_gates(x, c)
    return ops.concatenate(o * tanh, f * c + i * g, dim=c.ndim - 1), gates


@lstm_state.vjp("x", "c")
def dx_and_dc(grad, x, c, saved):
    width = c.shape[-1]
    i, f, g, o, tanh = saved or lstm_gates(x, c)
    dh = grad[..., :width]
    dc = grad[..., width:] + dh * o * (1 - tanh * tanh)
    di, df = dc * g * i * (1 - i), dc * c * f * (1 - f)
    dg, do = dc * i * (1 - g * g), dh * tanh * o * (1 - o)
    return ops.concatenate(di, df, dg, do, dim=c.ndim - 1), dc * f


class GRU(Recurrent):
    """h' = (1 - z) n + z h, n = tanh(x_n + r h_n), with sigmoids as r and z: Cho et al., 2014.

    See `Recurrent`.

    In tinyattn: write an nn.Linear in a loop over the positions

    >>> import tinyattn.torch_names.nn as nn
    >>> out, state = nn.GRU(4, 6, num_layers=2, batch_first=True)(ta.randn(3, 5, 4))
    >>> out.shape, state.shape
    ((3, 5, 6), (2, 3, 6))
    """

    gates = 3

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        return (gru_state(x, h, state[0]),)


class LSTM(Recurrent):
    """c' = f c + i g, h' = o tanh(c'), with sigmoids as i, f and o, and tanh as g.

    Source: Hochreiter and Schmidhuber, 1997. See `Recurrent`; the state is (h, c).

    In tinyattn: write an nn.Linear in a loop over the positions
    """

    gates, parts = 4, 2

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        both = lstm_state(x + h, state[1])
        return both[..., : self.hidden_size], both[..., self.hidden_size :]


class RNN(Recurrent):
    """h' = tanh(x + h), or with nonlinearity="relu" relu(x + h). See `Recurrent`."""

    @takes(f"{SIZES}, nonlinearity='tanh', {OPTIONS}")
    def __init__(self, given: Any) -> None:
        self.build(given)
        self.nonlinearity = check_choice("nonlinearity", given.nonlinearity, "tanh", "relu")

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        return ((F.relu if self.nonlinearity == "relu" else F.tanh)(x + h),)


class GRUCell(Cell):
    """One step of a GRU. See `Cell`."""

    gates, step = 3, GRU.step


class LSTMCell(Cell):
    """One step of an LSTM, whose state is (h, c). See `Cell`."""

    gates, parts, step = 4, 2, LSTM.step
