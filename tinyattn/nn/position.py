"""Positional encodings, because attention does not depend on the order of its inputs."""

from __future__ import annotations

import numpy as np

from .. import functional as F
from ..base.checks import check_number, check_size
from ..engine.autograd import wrap
from ..errors import ShapeError
from ..ops.arguments import ArrayLike, float_tensor
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

        >>> rotary = nn.RotaryEmbedding(4)
        >>> q, k = ta.randn(1, 2, 5, 4), ta.randn(1, 2, 5, 4)  # (B, H, N, d)
        >>> F.scaled_dot_product_attention(rotary(q), rotary(k), k).shape
        (1, 2, 5, 4)
    """

    def __init__(self, width: int, base: float = 10000.0) -> None:
        super().__init__()
        if check_size("width", width) % 2:
            raise ShapeError(f"RotaryEmbedding turns pairs: width is even, got {width}")
        self.width = width
        self.base = check_number("base", base, 1)

    def forward(self, x: Tensor, positions: ArrayLike | None = None) -> Tensor:
        if float_tensor(x, "x").shape[-1:] != (self.width,):
            raise ShapeError(f"this module takes x (..., N, {self.width}), got {x.shape}")
        return F.rotary_embedding(x, positions, self.base)

    def extra_repr(self) -> str:
        return f"{self.width}, base={self.base}"


def rows_of(table: Tensor, x: Tensor, past: int) -> Tensor:
    """N rows of a table (1, max_len, D), for x (B, N, D) after `past` positions."""
    _, max_len, width = table.shape
    if x.ndim != 3 or x.shape[-1] != width:
        raise ShapeError(f"positions of width {width} take x (B, N, {width}), got {x.shape}")
    length = check_size("past", past, 0) + x.shape[1]
    if length > max_len:
        raise ShapeError(
            f"the sequence has {length} positions, but the table ends at max_len={max_len}"
        )
    return table[:, past:length]
