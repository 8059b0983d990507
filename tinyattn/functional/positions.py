"""Positions of queries and keys: rotary embedding and ALiBi."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .. import masks, ops
from ..base.backend import on_device_of, read_only, to_device
from ..base.checks import (
    DTypeLike,
    check_broadcast,
    check_number,
    check_size,
    checked_dtype,
    require_float,
)
from ..errors import DtypeError, ShapeError
from ..kernels.range_checks import require_range
from ..tensors.arguments import (
    ArrayLike,
    float_tensor,
)
from ..tensors.tensor import Tensor


@lru_cache(maxsize=16)
def rotations(
    positions: bytes, shape: tuple[int, ...], width: int, base: float, dtype: np.dtype
) -> np.ndarray:
    """e^(i angle) for the angle p / base^(2j / width) of each position p: (*shape, width / 2).

    positions: the int64 numbers of an array of this shape, as bytes, because all layers of a step
    ask for the same, and arrays are no keys of a cache.
    """
    numbers = np.frombuffer(positions, np.int64).reshape(*shape, 1)
    require_range(numbers, 0, 2**31, ShapeError, "positions must be >= 0, got {number}")
    angles = numbers * base ** (-np.arange(0, width, 2) / width)
    return read_only(np.exp(1j * angles).astype(np.result_type(dtype, np.complex64)))


def rotary_embedding(
    x: Tensor, positions: ArrayLike | None = None, base: float = 10000.0
) -> Tensor:
    """x with each pair (2j, 2j+1) of a row turned by the angle position / base^(2j / d).

    x (..., N, d), d even; for attention queries and keys with heads, (B, H, N, d).
    positions: integers >= 0 that broadcast to (..., N), one for each row; 0 to N-1 by default.
        After `past` earlier ones they are np.arange(past, past + N).
    base: a number >= 1.
    Raises ShapeError for an odd width and for positions that are negative or do not broadcast,
    DtypeError for positions that are no integers, ValueError for another base.

    A product of a query and a key that are both turned depends on the distance of their positions
    only: turning both by one angle more leaves it as it was. Values are not turned.
    Source: Su et al., "RoFormer", 2021. Implementations of Llama pair element j with j + d/2: the
    same for weights whose rows are in another order.

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
        numbers = to_device(masks.array_of(positions, "positions"), "cpu")
        if numbers.dtype.kind not in "iu":
            raise DtypeError(f"positions must be integers, got {numbers.dtype}")
        check_broadcast("positions must broadcast to the rows", numbers.shape, x.shape[:-1])
    key, base = numbers.astype(np.int64).tobytes(), check_number("base", base, 1)
    turns = rotations(key, numbers.shape, x.shape[-1], base, x.dtype)
    return ops.rotate_pairs(x, turns=on_device_of(turns, x))


def alibi_bias(
    num_heads: int,
    queries: int,
    keys: int | None = None,
    dtype: DTypeLike = None,
    device: str | None = None,
    past: int = 0,
) -> Tensor:
    """The bias -m_h |past + i - j| of query i and key j in head h: (H, Q, K), m_h = 2^(-8 h / H).

    h counts from 1. dtype: a floating one, float32 by default.
    past: how many positions came before the first query, such as those in a cache. keys: past +
        queries by default.
    Heads with a steep slope see what is near, others see further; no position is added to the
    inputs.
    Raises ShapeError for sizes that are none, DtypeError for another dtype.
    Source: Press et al., "Train Short, Test Long", 2022. Their code has other slopes if the number
    of heads is no power of 2.

        >>> F.alibi_bias(2, 3)[0]
        tensor([[-0.    , -0.0625, -0.125 ],
                [-0.0625, -0.    , -0.0625],
                [-0.125 , -0.0625, -0.    ]])
        >>> F.alibi_bias(2, 1, past=2)[0]
        tensor([[-0.125 , -0.0625, -0.    ]])
    """
    check_size("num_heads", num_heads)
    last = check_size("past", past, 0) + check_size("queries", queries, 0)
    keys = last if keys is None else check_size("keys", keys, 0)
    slopes = 2.0 ** (-8 * np.arange(1, num_heads + 1) / num_heads)
    distances = np.abs(np.arange(past, last)[:, None] - np.arange(keys))
    dtype = checked_dtype(dtype or np.float32)
    require_float(dtype, "alibi_bias")
    bias = Tensor(-slopes[:, None, None] * distances, dtype=dtype)
    return bias if device is None else bias.to(device)
