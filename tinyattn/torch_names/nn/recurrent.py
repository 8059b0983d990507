"""PyTorch's recurrent layers RNN, LSTM and GRU, and their cells, which do one step."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import ops
from ...base.backend import in_c_order, namespace
from ...base.checks import check_choice, check_size, checked_probability
from ...engine.op import op
from ...errors import ShapeError
from ...kernels.matmul import matrix_product
from ...nn import Module, Parameter, init
from ...nn.module import with_options
from ...ops.arguments import float_tensor
from ...ops.products import rows, swap
from ...ops.shapes import cat, stack
from ...tensors.create import zeros
from ...tensors.tensor import Tensor
from . import functional as F
from .modules import takes

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell"]
SIZES = "input_size, hidden_size, num_layers=1"
OPTIONS = "bias=True, batch_first=False, dropout=0.0, bidirectional=False"


class Gated(Module):
    """The parameters of a recurrent layer or cell, and the first states."""

    kind, nonlinearity = "RNN", "tanh"  # a row of CELLS
    gates = 1  # each has hidden_size columns of the two projections
    parts = 1  # of the state

    def set_sizes(self, given: Any) -> None:
        self.input_size = check_size("input_size", given.input_size)
        self.hidden_size = check_size("hidden_size", given.hidden_size)
        self.bias = given.bias

    def add_parameters(self, suffix: str, inputs: int) -> None:
        rows = self.gates * self.hidden_size
        sizes: dict[str, Any] = {"weight_ih": (rows, inputs), "weight_hh": (rows, self.hidden_size)}
        sizes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if self.bias else {}
        for kind, shape in sizes.items():
            setattr(self, f"{kind}{suffix}", Parameter(np.zeros(shape, np.float32)))

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def weight_and_bias(self, name: str) -> tuple[Tensor, Tensor | None]:
        """Those of a projection, as "ih_l0"; None for a bias that is not there."""
        bias = getattr(self, f"bias_{name}") if self.bias else None
        return getattr(self, f"weight_{name}"), bias

    def check_input(self, x: Any, dims: tuple[int, int]) -> None:
        if float_tensor(x, "x").ndim not in dims or x.shape[-1] != self.input_size:
            kind = type(self).__name__
            raise ShapeError(f"this {kind} takes x (..., {self.input_size}), got {x.shape}")

    def first_states(self, state: Any, shape: tuple[int, ...], x: Tensor) -> Tensor:
        """(parts, *shape)"""
        zero = zeros(shape, dtype=x.dtype, device=x.device)
        given = (zero,) * self.parts if state is None else state
        given = given if isinstance(given, (tuple, list)) else (given,)
        shapes = [getattr(first, "shape", first) for first in given]
        if shapes != [shape] * self.parts:
            state = "a state is a pair (h, c), each" if self.parts > 1 else "a state is"
            raise ShapeError(f"{state} {shape}, got {shapes}")
        return stack(given)

    def states(self, x: Tensor, first: Tensor, name: str) -> Tensor:
        """Those after each position: x (L, B, D), first (parts, B, H) -> (L, parts, B, H)."""
        projected = F.linear(x, *self.weight_and_bias(f"ih{name}"))
        return recurrent_states(projected, *self.weight_and_bias(f"hh{name}"), first, self.kind)

    def in_form_of_pytorch(self, states: Tensor) -> Any:
        """(parts, ...) -> h, or of an LSTM the pair (h, c)."""
        return (states[0], states[1]) if self.parts > 1 else states[0]


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
        self.runs = [[f"_l{layer}{direction}" for direction in directions] for layer in layers]
        for layer, names in enumerate(self.runs):
            for name in names:
                inputs = self.hidden_size * len(directions) if layer else self.input_size
                self.add_parameters(name, inputs)
        self.reset_parameters()

    __init__: Callable[..., None] = takes(f"{SIZES}, {OPTIONS}")(build)

    def forward(self, input: Any, hx: Any = None) -> tuple[Tensor, Any]:
        self.check_input(input, (2, 3))
        swapped = self.batch_first and input.ndim == 3
        x = input.transpose(0, 1) if swapped else input  # (L, B, D), or (L, D)
        if not len(x):
            raise ShapeError(f"{type(self).__name__} takes one position or more, got none")
        shape = len(self.runs) * len(self.runs[0]), *x.shape[1:-1], self.hidden_size
        firsts = self.first_states(hx, shape, x)
        lasts: list[Tensor] = []
        for names in self.runs:
            x = F.dropout(x, self.dropout, self.training) if lasts else x
            outs = []
            for name in names:
                is_reverse = name.endswith("_reverse")
                states = self.states(x.flip(0) if is_reverse else x, firsts[:, len(lasts)], name)
                outs.append(states[:, 0].flip(0) if is_reverse else states[:, 0])
                lasts.append(states[-1])
            x = outs[0] if len(outs) == 1 else cat(outs, -1)
        x = x.transpose(0, 1) if swapped else x.contiguous()
        return x, self.in_form_of_pytorch(stack(lasts, 1))

    @property
    def _flat_weights_names(self) -> list[str]:
        """Which the d2l book reads to give the weights their starting values."""
        return list(self._parameters)

    def flatten_parameters(self) -> None:
        """Nothing: PyTorch's call for one kind of memory on a GPU."""

    def extra_repr(self) -> str:
        options = {"num_layers": 1, "nonlinearity": "tanh", "bias": True, "batch_first": False}
        options |= {"dropout": 0.0, "bidirectional": False}
        return with_options(self, self.input_size, self.hidden_size, **options)


class Cell(Gated):
    """One step: x (B, input_size) or (input_size,), and the state -> the next state.

    The state is (B, hidden_size), of an LSTM a pair of these; 0 unless given.
    """

    @takes("input_size, hidden_size, bias=True")
    def __init__(self, given: Any) -> None:
        self.set_sizes(given)
        self.add_parameters("", self.input_size)
        self.reset_parameters()

    def extra_repr(self) -> str:
        return with_options(self, self.input_size, self.hidden_size, bias=True)

    def forward(self, input: Any, hx: Any = None) -> Any:
        self.check_input(input, (1, 2))
        first = self.first_states(hx, (*input.shape[:-1], self.hidden_size), input)
        return self.in_form_of_pytorch(self.states(input[None], first, "")[0])


# What each kind of cell computes at a position, on arrays or on Tensors: the parts of the next
# state, and what backward needs. And its backward: the gradients of x, of h, and of the parts of
# the state, apart from that through h.


def rnn(x: Any, h: Any, state: Any, function: Any) -> tuple[Any, ...]:
    new = function(x + h)
    return (new,), new


def rnn_backward(grad: Any, h: Any, state: Any, new: Any, function: Any) -> tuple[Any, ...]:
    dx = function.spec.rules[0][0](grad[0], new)  # the function's own rule, which asks for out
    return dx, dx, ()


def gru(x: Any, h: Any, state: Any) -> tuple[Any, ...]:
    width = state.shape[-1]
    r_and_z = ops.sigmoid(x[..., : 2 * width] + h[..., : 2 * width])
    r, z = r_and_z[..., :width], r_and_z[..., width:]
    n = ops.tanh(x[..., 2 * width :] + r * h[..., 2 * width :])
    return (n + z * (state[0] - n),), r, z, n


def gru_backward(grad: Any, h: Any, state: Any, r: Any, z: Any, n: Any) -> tuple[Any, ...]:
    dnew, last = grad[0], n.ndim - 1
    dz = dnew * (state[0] - n) * z * (1 - z)
    dn = dnew * (1 - z) * (1 - n * n)
    dr = dn * h[..., 2 * n.shape[-1] :] * r * (1 - r)
    dh = ops.concatenate(dr, dz, dn * r, dim=last)
    return ops.concatenate(dr, dz, dn, dim=last), dh, (dnew * z,)


def lstm(x: Any, h: Any, state: Any) -> tuple[Any, ...]:
    total, width = x + h, state.shape[-1]
    gates = ops.sigmoid(total)  # of all columns, because that is faster than three calls
    i, f, o = (gates[..., k * width : (k + 1) * width] for k in (0, 1, 3))
    g = ops.tanh(total[..., 2 * width : 3 * width])
    c = f * state[1] + i * g
    tanh = ops.tanh(c)
    return (o * tanh, c), i, f, g, o, tanh


def lstm_backward(
    grad: Any, h: Any, state: Any, i: Any, f: Any, g: Any, o: Any, tanh: Any
) -> tuple[Any, ...]:
    dh, dc = grad[0], grad[1] + grad[0] * o * (1 - tanh * tanh)
    di, df = dc * g * i * (1 - i), dc * state[1] * f * (1 - f)
    dg, do = dc * i * (1 - g * g), dh * tanh * o * (1 - o)
    dx = ops.concatenate(di, df, dg, do, dim=dh.ndim - 1)
    return dx, dx, (0.0, dc * f)


CELLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "RNN": (partial(rnn, function=ops.tanh), partial(rnn_backward, function=ops.tanh)),
    "RNN_RELU": (partial(rnn, function=ops.relu), partial(rnn_backward, function=ops.relu)),
    "GRU": (gru, gru_backward),
    "LSTM": (lstm, lstm_backward),
}


def stacked(parts: Any) -> Any:
    """Arrays or Tensors along a new first dimension."""
    return ops.concatenate(*(part[None] for part in parts), dim=0)


@op(saves=True)
def recurrent_states(x: Any, weight: Any, bias: Any, first: Any, kind: str = "RNN") -> Any:
    """The states after each position: x (L, B, G * H), first (P, B, H) -> (L, P, B, H).

    x: the projections of the inputs. weight (G * H, H) and bias (G * H,), or None, project h,
    which is part 0 of a state. One op for all positions, because backward then has one product for
    the gradient of weight, and a position has too few numbers to pay for many ops.
    """
    cell, _ = CELLS[kind]
    x, state = in_c_order(x), in_c_order(first)
    weight = in_c_order(weight.T).T  # once, because products with few rows are faster with it
    states, saved = namespace(x).empty((len(x), *first.shape), x.dtype), []
    for row, new in zip(x, states, strict=True):
        h = ops.linear(state[0], weight, bias)
        parts, *gates = cell(row, h, state)
        for i, part in enumerate(parts):
            new[i] = part
        state = new
        saved.append((h, gates))
    return states, saved


@recurrent_states.vjp("x", "weight", "bias", "first")
def dx_and_more(grad, x, weight, bias, first, out, kind, saved):
    cell, backward = CELLS[kind]
    grad, x, weight, first = map(in_c_order, (grad, x, weight, first))
    dstate, dxs, dhs = None, [], []
    for t in reversed(range(len(x))):
        old = out[t - 1] if t else first
        if saved is None:  # on Tensors, because saved arrays are not in the graph
            h = ops.linear(old[0], weight, bias)
            _, *gates = cell(x[t], h, old)
        else:
            h, gates = saved[t]
        dnew = grad[t] if dstate is None else grad[t] + dstate
        dx, dh, (*parts,) = backward(dnew, h, old, *gates)
        through_h = matrix_product(dh, weight)
        dstate = stacked([sum(parts[:1], through_h), *parts[1:]])
        dxs.append(dx)
        dhs.append(dh)
    dx = stacked(dxs[::-1])
    dh = rows(dx if dxs[0] is dhs[0] else stacked(dhs[::-1]))
    h = rows(ops.concatenate(first[:1], out[:-1, 0], dim=0))
    return dx, matrix_product(swap(dh), h), dh.sum(0), dstate


class GRU(Recurrent):
    """h' = (1 - z) n + z h, n = tanh(x_n + r h_n), with sigmoids as r and z: Cho et al., 2014.

    See `Recurrent`.

    In tinyattn: write an nn.Linear in a loop over the positions

    >>> import tinyattn.torch_names.nn as nn
    >>> out, state = nn.GRU(4, 6, num_layers=2, batch_first=True)(ta.randn(3, 5, 4))
    >>> out.shape, state.shape
    ((3, 5, 6), (2, 3, 6))
    """

    kind, gates = "GRU", 3


class LSTM(Recurrent):
    """c' = f c + i g, h' = o tanh(c'), with sigmoids as i, f and o, and tanh as g.

    Source: Hochreiter and Schmidhuber, 1997. See `Recurrent`; the state is (h, c).

    In tinyattn: write an nn.Linear in a loop over the positions
    """

    kind, gates, parts = "LSTM", 4, 2


class RNN(Recurrent):
    """h' = tanh(x + h), or with nonlinearity="relu" relu(x + h). See `Recurrent`."""

    @takes(f"{SIZES}, nonlinearity='tanh', {OPTIONS}")
    def __init__(self, given: Any) -> None:
        self.nonlinearity = check_choice("nonlinearity", given.nonlinearity, "tanh", "relu")
        self.kind = "RNN" if self.nonlinearity == "tanh" else "RNN_RELU"
        self.build(given)


class GRUCell(Cell):
    """One step of a GRU. See `Cell`."""

    kind, gates = "GRU", 3


class LSTMCell(Cell):
    """One step of an LSTM, whose state is (h, c). See `Cell`."""

    kind, gates, parts = "LSTM", 4, 2
