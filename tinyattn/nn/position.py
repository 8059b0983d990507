"""Positional encodings, because attention does not depend on the order of its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from ..base.checks import check_choice, check_number, check_size, check_type
from ..engine.autograd import wrap
from ..errors import ShapeError
from ..ops.arguments import ArrayLike, float_tensor
from ..ops.positions import rotary_rates
from ..tensors.tensor import Tensor
from . import init
from .layers import Dropout
from .module import Module, Parameter


def sinusoids(length: int, width: int, past: int = 0) -> np.ndarray:
    """(length, width) in float64: sin and cos of position / 10000^(2j / width), alternating."""
    positions = np.arange(past, past + length)[:, None]
    rates = 10000.0 ** (-np.arange(0, width, 2) / width)
    table = np.zeros((length, width))
    table[:, 0::2] = np.sin(positions * rates)
    table[:, 1::2] = np.cos(positions * rates)[:, : width // 2]  # an odd width ends on a sine
    return table


class PositionalEncoding(Module):
    """x + P, with P[i, 2j] = sin(i / 10000^(2j/D)), P[i, 2j+1] = cos(i / 10000^(2j/D)).

    Call: x (B, N, D), past -> (B, N, D), with dropout on the sum. x are the positions after `past`
    earlier ones, which is 0 by default. From one position to the next the pair
    (2j, 2j+1) turns by a fixed angle, so a shift is a rotation that is the same at every position.

    num_hiddens: D, even or odd. max_len: the table's length.
    Raises ShapeError for an input that is longer or has another width.

    Source: Vaswani et al., 2017; the d2l book, "Self-Attention and Positional Encoding".

        >>> nn.PositionalEncoding(2)(ta.zeros(1, 3, 2))
        tensor([[[ 0.    ,  1.    ],
                 [ 0.8415,  0.5403],
                 [ 0.9093, -0.4161]]])
    """

    P: Tensor

    def __init__(self, num_hiddens: int, dropout: float = 0.0, max_len: int = 1000) -> None:
        super().__init__()
        check_size("num_hiddens", num_hiddens)
        check_size("max_len", max_len)
        self.dropout = Dropout(dropout)
        table = sinusoids(max_len, num_hiddens)
        self.register_buffer("P", wrap(table.astype(np.float32)[None]))  # (1, max_len, D)

    def forward(self, x: Tensor, past: int = 0) -> Tensor:
        rows = rows_of(self.P, x, past)
        if x.dtype != rows.dtype:
            rows = self.converted_rows(rows, past, x.dtype)
        return self.dropout(x + rows)

    def converted_buffer(self, name: str, dtype: np.dtype) -> Tensor:
        if name != "P":
            return super().converted_buffer(name, dtype)
        return self.converted_rows(self.P, 0, dtype)

    def converted_rows(self, rows: Tensor, past: int, dtype: np.dtype) -> Tensor:
        """Rows (1, N, D) of P after `past` others, in another dtype.

        They are computed by the formula, and rounded only if another table was loaded.
        """
        exact = sinusoids(rows.shape[1], rows.shape[2], past)[None]
        if not np.array_equal(rows.numpy(), exact.astype(rows.dtype)):
            return rows.to(dtype)
        return wrap(exact.astype(dtype)).to(rows.device)


class LearnedPositionalEncoding(Module):
    """x + P with a learned table P (max_len, num_hiddens), as in BERT.

    Call: as PositionalEncoding.
    """

    def __init__(self, num_hiddens: int, dropout: float = 0.0, max_len: int = 512) -> None:
        super().__init__()
        check_size("num_hiddens", num_hiddens)
        check_size("max_len", max_len)
        self.dropout = Dropout(dropout)
        self.weight = Parameter(np.empty((max_len, num_hiddens), np.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, past: int = 0) -> Tensor:
        return self.dropout(x + rows_of(self.weight.unsqueeze(0), x, past))


class RotaryEmbedding(Module):
    """Queries or keys, turned by their positions; see `functional.rotary_embedding`.

    Call: x (..., N, width), positions (..., N) -> (..., N, width). It has no parameters, so one
    module can serve all layers.

    scaling: how a model that was trained on short texts reads long ones, as the rope_scaling of a
        published config.json says it: {"rope_type": "linear", "factor": 8.0}, or "llama3" or "yarn"
        with their numbers. The rate of each pair is divided by the factor, by a part that is 1 for
        slow pairs and 0 for fast ones, which keep their rates. "yarn" also makes the result longer.
    halves: see `functional.rotary_embedding`.
    Raises ShapeError for an odd width, ValueError for another base or scaling.
    Source of "linear": Chen et al., "Extending Context Window", 2023; of "yarn": Peng et al.,
    "YaRN", 2023; "llama3" is from the code of Llama 3.1.

        >>> rotary = nn.RotaryEmbedding(4)
        >>> q, k = ta.randn(1, 2, 5, 4), ta.randn(1, 2, 5, 4)  # (B, H, N, d)
        >>> F.scaled_dot_product_attention(rotary(q), rotary(k), k).shape
        (1, 2, 5, 4)
    """

    def __init__(
        self,
        width: int,
        base: float = 10000.0,
        scaling: dict[str, Any] | None = None,
        halves: bool = False,
    ) -> None:
        super().__init__()
        if check_size("width", width) % 2:
            raise ShapeError(f"RotaryEmbedding turns pairs: width is even, got {width}")
        self.width, self.halves = width, halves
        self.base = check_number("base", base, 1)
        self.scaling = check_type("scaling is a dict", scaling or {}, dict)
        self.rates, self.length = scaled_rates(rotary_rates(width, self.base), base, self.scaling)

    def forward(self, x: Tensor, positions: ArrayLike | None = None) -> Tensor:
        if float_tensor(x, "x").shape[-1:] != (self.width,):
            raise ShapeError(f"this module takes x (..., N, {self.width}), got {x.shape}")
        out = F.rotary_embedding(x, positions, rates=self.rates, halves=self.halves)
        return out if self.length == 1 else out * self.length

    def extra_repr(self) -> str:
        more = f", scaling={self.scaling}" if self.scaling else ""
        return f"{self.width}, base={self.base}{more}" + ", halves=True" * self.halves


# The numbers of each kind of scaling, with their usual values; None for those that must be given.
BY_PARTS = dict.fromkeys(("factor", "original_max_position_embeddings"))
SCALINGS: dict[str, dict[str, float | None]] = {
    "default": {},
    "linear": {"factor": None},
    "llama3": {**BY_PARTS, "low_freq_factor": None, "high_freq_factor": None},
    "yarn": {
        **BY_PARTS,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "attention_factor": 0.0,
        "mscale": 0.0,
        "mscale_all_dim": 0.0,
    },
}


def scaled_rates(
    rates: np.ndarray, base: float, scaling: dict[str, Any]
) -> tuple[np.ndarray, float]:
    """The rates of pairs (d / 2,) after a scaling, and the length of what was of length 1."""
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    check_choice("rope scaling", kind, *SCALINGS)
    numbers = SCALINGS[kind] | {k: x for k, x in scaling.items() if k in SCALINGS[kind]}
    for name, value in numbers.items():
        numbers[name] = check_number(f"{name} of the rope scaling {kind}", value, 0)
    if kind == "default":
        return rates, 1.0
    factor, kept = numbers["factor"], np.zeros(len(rates))  # 1 where a pair keeps its rate
    if not factor:
        raise ValueError("the factor of a rope scaling is more than 0")
    if kind != "linear":
        turns = numbers["original_max_position_embeddings"] * rates / (2 * np.pi)  # of each pair
    if kind == "llama3":
        low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
        kept = ((turns - low) / (high - low)).clip(0, 1)
    if kind == "yarn":
        # The numbers of the pairs that turn so often; fractions in between.
        often = np.array([numbers["beta_fast"], numbers["beta_slow"]])
        ends = len(rates) * np.log(turns[0] / often) / np.log(base)
        if scaling.get("truncate", True):
            ends = [np.floor(ends[0]), np.ceil(ends[1])]
        first, last = max(ends[0], 0), min(ends[1], 2 * len(rates) - 1)
        kept = 1 - ((np.arange(len(rates)) - first) / (last - first or 0.001)).clip(0, 1)
    length = yarn_length(numbers) if kind == "yarn" else 1.0
    return rates * (kept + (1 - kept) / factor), length


def yarn_length(numbers: dict[str, Any]) -> float:
    if numbers["attention_factor"]:
        return numbers["attention_factor"]
    grown = 0.1 * np.log(max(numbers["factor"], 1.0))
    if numbers["mscale"] and numbers["mscale_all_dim"]:
        return (1 + numbers["mscale"] * grown) / (1 + numbers["mscale_all_dim"] * grown)
    return 1 + grown


def rows_of(table: Tensor, x: Tensor, past: int) -> Tensor:
    """N rows of a table (1, max_len, D), for x (B, N, D) after `past` positions."""
    _, max_len, width = table.shape
    if x.ndim != 3 or x.shape[-1] != width:
        raise ShapeError(f"positions of width {width} take x (B, N, {width}), got {x.shape}")
    length = check_size("past", past, 0) + x.shape[1]
    if length > max_len:
        raise ShapeError(f"a sequence has {length} positions, the table ends at max_len={max_len}")
    return table[:, past:length]
