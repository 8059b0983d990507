"""PyTorch's recurrent layers: RNN, LSTM and GRU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...base.checks import check_size, checked_probability
from ...errors import ShapeError
from ...nn import Module, Parameter, init
from ...ops import where
from ...tensors.arguments import float_tensor
from ...tensors.create import cat, stack, zeros
from ...tensors.tensor import Tensor
from . import functional as F
from .arguments import takes
from .utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

State = tuple[Tensor, ...]  # (h,), or of an LSTM (h, c)
SIZES = "input_size, hidden_size, num_layers=1"
OPTIONS = "bias=True, batch_first=False, dropout=0.0, bidirectional=False"


class Recurrent(Module):
    """num_layers layers, each over the outputs of the one before. Call: x, and a first state.

    x (L, B, input_size), or with batch_first (B, L, input_size), or (L, input_size), or a
    PackedSequence -> the h of the last layer at each position, and the last state of each layer:
    (num_layers, B, hidden_size), of an LSTM a pair of these. The first state is 0 unless given.
    bidirectional: each layer runs in both directions, and joins the two.
    """

    gates = 1  # each has hidden_size columns of the two projections
    parts = 1  # of the state

    def build(self, given: Any) -> None:
        size, width = (check_size(n, getattr(given, n)) for n in ("input_size", "hidden_size"))
        self.input_size, self.hidden_size, self.num_layers = size, width, given.num_layers
        self.bias, self.batch_first = given.bias, given.batch_first
        self.bidirectional, self.dropout = given.bidirectional, checked_probability(given.dropout)
        directions = ("", "_reverse") if given.bidirectional else ("",)
        layers = range(check_size("num_layers", given.num_layers))
        self.runs = [[f"l{layer}{direction}" for direction in directions] for layer in layers]
        rows, bound = self.gates * width, 1 / math.sqrt(width)
        for name in (name for names in self.runs for name in names):
            inputs = size if name.startswith("l0") else width * len(directions)
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs)}
            shapes["weight_hh"] = (rows, width)
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if given.bias else {}
            for kind, shape in shapes.items():
                parameter = init.uniform_(Parameter(np.empty(shape, np.float32)), -bound, bound)
                setattr(self, f"{kind}_{name}", parameter)

    __init__ = takes(f"{SIZES}, {OPTIONS}")(build)

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        """The next state, from the projections of the input and of h, and the state."""
        raise NotImplementedError

    def project(self, x: Tensor, name: str) -> Tensor:
        """(..., gates * hidden_size); name is that of the parameters, as "ih_l0"."""
        bias = getattr(self, f"bias_{name}") if self.bias else None
        return F.linear(x, getattr(self, f"weight_{name}"), bias)

    def forward(self, x: Any, state: Any = None) -> tuple[Any, Any]:
        if isinstance(x, PackedSequence):
            padded, lengths = pad_packed_sequence(x)
            out, state = self.run_layers(padded, state, lengths.numpy())
            is_sorted = x.sorted_indices is None
            return pack_padded_sequence(out, lengths, enforce_sorted=is_sorted), state
        if float_tensor(x, "x").ndim not in (2, 3) or x.shape[-1] != self.input_size:
            kind = type(self).__name__
            raise ShapeError(f"this {kind} takes x (..., {self.input_size}), got {x.shape}")
        swapped = self.batch_first and x.ndim == 3
        out, state = self.run_layers(x.transpose(0, 1) if swapped else x, state)
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
        values = {name: getattr(self, name) for name in defaults}
        changed = [f"{name}={x}" for name, x in values.items() if x != defaults[name]]
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])

    def run_layers(self, x: Tensor, state: Any, lengths: Any = None) -> tuple[Tensor, Any]:
        """x (L, B, D), or (L, D) -> the outputs and the last states."""
        shape = len(self.runs) * len(self.runs[0]), *x.shape[1:-1], self.hidden_size
        zero = zeros(shape, dtype=x.dtype, device=x.device)
        given = (state,) if isinstance(state, Tensor) else state
        firsts = (zero,) * self.parts if given is None else tuple(given)
        if [first.shape for first in firsts] != [shape] * self.parts:
            raise ShapeError(f"each state is {shape}, got {[first.shape for first in firsts]}")
        lasts: list[State] = []
        for names in self.runs:
            x = F.dropout(x, self.dropout, self.training) if lasts else x
            outs = []
            for name in names:
                first = tuple(part[len(lasts)] for part in firsts)
                out, last = self.run(x, name, first, lengths)
                outs.append(out)
                lasts.append(last)
            x = outs[0] if len(outs) == 1 else cat(outs, -1)
        states = tuple(stack(parts) for parts in zip(*lasts, strict=True))
        return x, states if self.parts > 1 else states[0]

    def run(self, x: Tensor, name: str, state: State, lengths: Any) -> tuple[Tensor, State]:
        """One layer in one direction. After the end of a sample its state stays as it is."""
        projected = rows_of(self.project(x, f"ih_{name}"))
        outs: dict[int, Tensor] = {}
        for t in reversed(range(len(x))) if name.endswith("_reverse") else range(len(x)):
            old = state
            state = self.step(projected[t], self.project(state[0], f"hh_{name}"), state)
            if lengths is not None and not (t < lengths).all():
                alive = Tensor((t < lengths)[:, None], device=x.device)
                state = tuple(where(alive, *pair) for pair in zip(state, old, strict=True))
            outs[t] = state[0]
        return stack([outs[t] for t in range(len(x))]), state


def rows_of(x: Tensor) -> list[Tensor]:
    """x[0], x[1], ... by halves, because the gradient of each x[i] alone would be as large as x."""
    half = len(x) // 2
    return rows_of(x[:half]) + rows_of(x[half:]) if half else [x[0]]


class GRU(Recurrent):
    """h' = (1 - z) n + z h, n = tanh(x_n + r h_n), with sigmoids as r and z: Cho et al., 2014.

    See `Recurrent`.

    >>> import tinyattn.torch_names.nn as nn
    >>> out, state = nn.GRU(4, 6, num_layers=2, batch_first=True)(ta.randn(3, 5, 4))
    >>> out.shape, state.shape
    ((3, 5, 6), (2, 3, 6))
    """

    gates = 3

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        width = 2 * self.hidden_size
        r, z = (x[..., :width] + h[..., :width]).sigmoid().chunk(2, -1)
        n = (x[..., width:] + r * h[..., width:]).tanh()
        return (n + z * (state[0] - n),)


class LSTM(Recurrent):
    """c' = f c + i g, h' = o tanh(c'), with sigmoids as i, f and o, and tanh as g.

    Source: Hochreiter and Schmidhuber, 1997. See `Recurrent`; the state is (h, c).
    """

    gates, parts = 4, 2

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        i, f, g, o = (x + h).chunk(4, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class RNN(Recurrent):
    """h' = tanh(x + h), or with nonlinearity="relu" relu(x + h). See `Recurrent`."""

    @takes(f"{SIZES}, nonlinearity='tanh', {OPTIONS}")
    def __init__(self, given: Any) -> None:
        if given.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f'nonlinearity is "tanh" or "relu", got {given.nonlinearity!r}')
        self.build(given)
        self.nonlinearity = given.nonlinearity

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        return ((F.relu if self.nonlinearity == "relu" else F.tanh)(x + h),)
