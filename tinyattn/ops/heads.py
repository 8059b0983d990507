"""Heads of queries, keys and values: from rows of projections to heads, and back."""

from __future__ import annotations

import math
from typing import Any

from ..base.backend import device_of
from ..base.checks import check_heads
from ..engine.autograd import AnyTensor
from ..errors import ShapeError
from ..kernels.packing import as_packed, padded
from ..kernels.visibility import Samples
from .arguments import float_tensor
from .sequences import pack, unpack


def in_heads(*xs: Any, heads: tuple[int, ...]) -> list[Any]:
    """The rows of all samples, split into heads: (..., H * d) or (B, H, N, d) -> (R, H, d). The
    last of `heads` is for all that follow. On a GPU (B, H, N, d) becomes (B, N, H, d), a view,
    because the kernels there read rows by their strides."""
    split = []
    for i, x in enumerate(xs):
        number = heads[min(i, len(heads) - 1)]
        if x.ndim == 4:
            x = x.swapaxes(1, 2)
            if device_of(x) != "cuda":
                x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
            split.append(x)
        else:
            check_heads(x.shape[-1], number)
            split.append(x.reshape(math.prod(x.shape[:-1]), number, x.shape[-1] // number))
    return split


def in_form_of(x: Any, rows: Any) -> Any:
    """The inverse for one of them: (R, H, e) or (B, N, H, e) in the form that x has."""
    if x.ndim == 4:
        return rows.reshape(x.shape[0], x.shape[2], *rows.shape[-2:]).swapaxes(1, 2)
    return rows.reshape(*x.shape[:-1], rows.shape[-2] * rows.shape[-1])


def rows_to_heads(x: Any, samples: Samples) -> Any:
    """Rows of all samples to matrices of each head: (R, H, d) or (B, L, H, d) -> (B, H, L, d)."""
    return padded(x, samples, unpack).swapaxes(1, 2)


def heads_to_rows(x: Any, samples: Samples) -> Any:
    """The inverse of `rows_to_heads`: (B, H, L, d) -> (R, H, d)."""
    return as_packed(x.swapaxes(1, 2), samples, pack)


def transpose_qkv(x: AnyTensor, num_heads: int) -> AnyTensor:
    """(B, N, D) -> (B * H, N, D / H): the heads of a sample become samples.

    This is the d2l book's form. The modules of tinyattn have a dimension for the heads instead, so
    lengths and masks need not be repeated.
    Raises ShapeError for another number of dimensions, or if H is no divisor of D.

    >>> F.transpose_qkv(ta.ones(2, 5, 12), num_heads=3).shape
    (6, 5, 4)
    """
    if float_tensor(x, "x").ndim != 3:
        raise ShapeError(f"transpose_qkv takes (B, N, D), got shape {x.shape}")
    check_heads(x.shape[-1], num_heads)
    batch, n, width = x.shape
    x = x.reshape(batch, n, num_heads, width // num_heads)  # (B, N, H, d)
    return x.permute(0, 2, 1, 3).reshape(batch * num_heads, n, width // num_heads)


def transpose_output(x: AnyTensor, num_heads: int) -> AnyTensor:
    """(B * H, N, d) -> (B, N, H * d); undoes `transpose_qkv`.

    Raises ShapeError for another number of dimensions, or if H is no divisor of B * H.

    >>> F.transpose_output(ta.ones(6, 5, 4), num_heads=3).shape
    (2, 5, 12)
    """
    if num_heads <= 0:
        raise ShapeError(f"the number of heads must be > 0, got {num_heads}")
    if float_tensor(x, "x").ndim != 3 or x.shape[0] % num_heads:
        raise ShapeError(f"transpose_output takes (B * {num_heads}, N, d), got shape {x.shape}")
    total, n, width = x.shape
    x = x.reshape(total // num_heads, num_heads, n, width)  # (B, H, N, d)
    return x.permute(0, 2, 1, 3).reshape(total // num_heads, n, num_heads * width)
