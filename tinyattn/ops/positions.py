"""Rotary positions of queries and keys."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..base.backend import Array, in_c_order, on_device_of, read_only, to_device
from ..base.checks import check_broadcast, check_number, require_integers
from ..engine.autograd import AnyTensor, array_of
from ..engine.op import op
from ..errors import ShapeError
from ..kernels.range_checks import require_range
from .arguments import ArrayLike, array_like, float_tensor
from .shapes import reshape, swapaxes


@lru_cache(maxsize=16)
def rotations(
    positions: bytes, shape: tuple[int, ...], rates: bytes, dtype: np.dtype
) -> np.ndarray:
    """e^(i angle) for the angle p * rate of each position p and each rate: (*shape, d / 2).

    positions: the int64 numbers of an array of this shape, as bytes, because all layers of a step
    ask for the same, and arrays are no keys of a cache. rates: float64 numbers, likewise.
    """
    numbers = np.frombuffer(positions, np.int64).reshape(*shape, 1)
    require_range(numbers, 0, 2**31, ShapeError, "positions must be >= 0, got {number}")
    angles = numbers * np.frombuffer(rates)
    return read_only(np.exp(1j * angles).astype(np.result_type(dtype, np.complex64)))


@lru_cache(maxsize=16)
def rotary_rates(width: int, base: float) -> np.ndarray:
    """base^(-2j / width) for each pair j: its angle from one position to the next, (width / 2,)."""
    return read_only(base ** (-np.arange(0, width, 2) / width))


def rotary_embedding(
    x: AnyTensor,
    positions: ArrayLike | None = None,
    base: float = 10000.0,
    rates: np.ndarray | None = None,
    halves: bool = False,
) -> AnyTensor:
    """x with each pair (2j, 2j+1) of a row turned by the angle position / base^(2j / d).

    x (..., N, d), d even; for attention queries and keys with heads, (B, H, N, d).
    positions: integers >= 0 that broadcast to (..., N), one for each row; 0 to N-1 by default.
        After `past` earlier ones they are np.arange(past, past + N).
    base: a number >= 1. rates: the angle from one position to the next of each pair, (d / 2,), in
        place of base^(-2j / d).
    halves: the pairs are (j, j + d/2), as in the code of Llama. This is the same for weights whose
        rows are in another order.
    Raises ShapeError for an odd width and for positions that are negative or do not broadcast,
    DtypeError for positions that are no integers, ValueError for another base.

    A product of a query and a key that are both turned depends on the distance of their positions
    only: turning both by one angle more leaves it as it was. Values are not turned.
    Source: Su et al., "RoFormer", 2021.

        >>> x = ta.ones(2, 4)
        >>> F.rotary_embedding(x, positions=[0, 0]).equal(x)
        True
    """
    if float_tensor(x, "x").ndim < 2:
        raise ShapeError(f"rotary_embedding takes x (..., N, d), got shape {x.shape}")
    if x.shape[-1] % 2:
        raise ShapeError(f"rotary_embedding turns pairs: the width is even, got {x.shape[-1]}")
    if positions is None:
        numbers = np.arange(x.shape[-2])
    else:
        numbers = to_device(array_like(positions, "positions"), "cpu")
        require_integers(numbers.dtype, "positions must be integers")
        check_broadcast("positions must broadcast to the rows", numbers.shape, x.shape[:-1])
    if rates is None:
        rates = rotary_rates(x.shape[-1], check_number("base", base, 1))
    numbers, rates = np.asarray(numbers, np.int64), np.asarray(rates, np.float64)
    if rates.shape != (x.shape[-1] // 2,):
        raise ShapeError(f"rates are of pairs: ({x.shape[-1] // 2},), got {rates.shape}")
    turns = on_device_of(rotations(numbers.tobytes(), numbers.shape, rates.tobytes(), x.dtype), x)
    if not halves:
        return rotate_pairs(x, turns)
    pairs = swapaxes(reshape(x, (*x.shape[:-1], 2, -1)), -1, -2)  # (..., N, d / 2, 2)
    turned = reshape(rotate_pairs(reshape(pairs, x.shape), turns), pairs.shape)
    return reshape(swapaxes(turned, -1, -2), x.shape)


@op
def rotate_pairs(x: AnyTensor, turns: Array) -> AnyTensor:
    """Each pair (x_2j, x_2j+1) of a row, as a complex number, times one of turns (..., d / 2)."""
    wide = np.result_type(x.dtype, np.float32)
    pairs = in_c_order(x).astype(wide, copy=False).view(turns.dtype)
    return (pairs * turns).view(wide).astype(x.dtype, copy=False)


@rotate_pairs.vjp("x")
def dx(grad, turns):
    return rotate_pairs(grad, array_of(turns).conj())  # back by the same angle
