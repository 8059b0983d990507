"""Scaled dot-product attention, tile by tile: the Q x K array is never made.

Forward walks over the keys of a block of queries and keeps for each query the largest score so far,
the sum of exp(score - largest), and the output that belongs to them; when a tile brings a larger
score, both are scaled down to it ("online softmax": Milakov and Gimelshein, 2018). Only the largest
score and the sum are kept for backward, which computes the weights of a tile again from them (Dao
et al., "FlashAttention", 2022). With D = sum(grad * out) of a query,

    dvalues = weights^T grad,  dscores = weights * (grad values^T - D),
    dqueries = scale * dscores keys,  dkeys = scale * dscores^T queries.

Keys behind the limit of a sample are not looked at, which for padded batches saves their time too.

Forward holds scores as (keys, queries): maximum and sum of a query then run down a column, and all
columns are done at once by vector instructions. Backward, which needs neither, holds (queries,
keys). Arrays come in as (N, H, d), the samples one after another: the order in which projections
(B, N, H * d) lie in memory anyway, and packed sequences too. `starts` (B + 1,) say where each
sample begins and the last one ends. Packed copies of one head are padded with zeros to multiples of
four and of LANES, which is what `add_product` needs; zeros add nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...backend import is_finite
from ...threads import together
from .. import reference
from .attention_backward import attention_backward_loop
from .attention_forward import attention_loop
from .compiler import hidden, ready
from .dropout import dropping
from .sharing import boards

PIECE = 5_000  # nanoseconds of what a thread takes at once


def rows_of_heads(x: np.ndarray) -> np.ndarray:
    """(B, H, N, d) -> (B * N, H, d) as the loops take it, a copy only if it does not lie so."""
    x = ready(x.swapaxes(1, 2))
    return x.reshape(-1, *x.shape[2:])


class Samples(NamedTuple):
    """Samples that lie one after another."""

    lengths: np.ndarray
    starts: np.ndarray  # where each begins, and where the last one ends
    longest: int
    squares: float  # of the lengths, together


@lru_cache(maxsize=64)
def samples_of(lengths: tuple[int, ...]) -> Samples:
    """Of these lengths; kept, since all layers of a step ask for the same, forward and backward."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    squares = float(sum(length * length for length in lengths))
    return Samples(np.array(lengths, np.int64), ready(starts), max(lengths, default=0), squares)


def odd_among(limits: Any, mask: Any, *arrays: np.ndarray) -> bool | None:
    """What the loops take as `odd`."""
    if mask is None and (limits is None or limits.shape[1] == 1):
        return None  # all queries of a sample see the same keys
    return None if all(map(is_finite, arrays)) else True


def forward(
    arrays: tuple[np.ndarray, ...], before: tuple[int, int, int],
    samples: tuple[Samples, Samples], limits: Any, mask: Any, scale: float, p: float, seed: int,
    odd: bool | None, out: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Fill out (Q, H, e) from (q, k, v) by `attention_loop`, on as many threads as pay. Returns
    what backward needs: out, tops and sums."""
    queries, heads, _ = out.shape
    tops, sums = np.empty((heads, queries), out.dtype), np.empty((heads, queries))
    arguments = (
        *arrays, before, *places_of(*samples), *hiding(limits, mask), out.dtype.type(scale),
        dropping(p, seed, out.dtype), odd, out, tops, sums,
    )  # fmt: skip
    run(attention_loop, arguments, samples, out.shape, 1)
    return out, tops, sums


def places_of(queries: Samples, keys: Samples) -> tuple[Any, Any]:
    """starts and longest, as the loops take them."""
    return (queries.starts, keys.starts), (queries.longest, keys.longest)


def run(
    loop: Any, arguments: tuple[Any, ...], samples: tuple[Samples, Samples],
    shape: tuple[int, ...], times: int,
) -> None:  # fmt: skip
    """The loop over all heads, on as many threads as pay; it takes so many `times` as forward."""
    _, heads, width = shape
    count = len(samples[0].lengths) * heads
    nanoseconds = times * nanoseconds_of(*samples, heads, width)
    (board,) = boards(heads_at_once(count, nanoseconds))
    together(count, nanoseconds, loop, *arguments, board, count)


def heads_at_once(count: int, nanoseconds: float) -> int:
    """How many a thread takes at once, of heads that together take so long."""
    return max(1, int(PIECE * count / nanoseconds))


def hiding(limits: Any, mask: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """limits and mask as the loops take them; without a mask None, which saves compiling for it."""
    limits, mask, masked = hidden(limits, mask)
    return limits, mask if masked else None


def nanoseconds_of(queries: Samples, keys: Samples, heads: int, width: int) -> float:
    """About how long it takes forward: for each head, and for each pair of a query and a key."""
    pairs = queries.squares if queries is keys else float(queries.lengths @ keys.lengths)
    return heads * (1000 * len(queries.lengths) + pairs * (1 + width / 16))


def backward(
    arrays: tuple[np.ndarray, ...], gradients: tuple[np.ndarray, ...],
    before: tuple[int, int, int], samples: tuple[Samples, Samples], limits: Any, mask: Any,
    scale: float, p: float, seed: int, odd: bool | None, saved: tuple[np.ndarray, ...],
) -> None:  # fmt: skip
    """From (grad, q, k, v) the gradients of q, k and v, into the arrays that are given."""
    out, tops, sums = (ready(part) for part in saved)
    arguments = (
        *arrays, before, out, *places_of(*samples), *hiding(limits, mask), out.dtype.type(scale),
        dropping(p, seed, out.dtype), odd, tops, sums, *gradients,
    )  # fmt: skip
    run(attention_backward_loop, arguments, samples, out.shape, 2)


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Any, mask: Any, scale: float, p: float,
    seed: int,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """The output, and for backward itself and each query's maximum and sum."""
    if q.dtype != np.float32 or p >= 1 or not (q.size and k.size and v.size):
        return reference.attention(q, k, v, limits, mask, scale, p, seed)
    batch, heads, queries, _ = q.shape
    arrays = (rows_of_heads(q), rows_of_heads(k), rows_of_heads(v))
    samples = (samples_of((queries,) * batch), samples_of((k.shape[2],) * batch))
    odd = odd_among(limits, mask, v)
    out = np.empty((batch, queries, heads, v.shape[3]), q.dtype)
    flat = out.reshape(-1, *out.shape[2:])
    saved = forward(arrays, (0, 0, 0), samples, limits, mask, scale, p, seed, odd, flat)
    return out.swapaxes(1, 2), saved


def attention_backward(
    grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Any, mask: Any,
    scale: float, p: float, seed: int, saved: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    if not isinstance(saved, tuple):
        return reference.attention_backward(grad, q, k, v, limits, mask, scale, p, seed, saved)
    batch = len(q)
    arrays = tuple(rows_of_heads(x) for x in (grad, q, k, v))
    samples = (samples_of((q.shape[2],) * batch), samples_of((k.shape[2],) * batch))
    gradients = tuple(np.empty(x.shape, x.dtype) for x in arrays[1:])
    odd = odd_among(limits, mask, grad, q, k, v)
    backward(arrays, gradients, (0, 0, 0), samples, limits, mask, scale, p, seed, odd, saved)
    dq, dk, dv = (x.reshape(batch, -1, *x.shape[1:]).swapaxes(1, 2) for x in gradients)
    return dq, dk, dv


def self_attention(
    qkv: np.ndarray, heads: int, lengths: Any, limits: Any, mask: Any, scale: float, p: float,
    seed: int,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """The same with queries, keys and values side by side, (B, N, 3 D) or packed (N, 3 D)."""
    if qkv.dtype != np.float32 or p >= 1 or not qkv.size:
        return reference.self_attention(qkv, heads, lengths, limits, mask, scale, p, seed)
    x, samples = heads_of_all(qkv, heads), (samples_in(qkv, lengths),) * 2
    odd = odd_among(limits, mask, qkv)
    before = (0, heads, 2 * heads)
    out = np.empty((*qkv.shape[:-1], qkv.shape[-1] // 3), qkv.dtype)
    flat = out.reshape(-1, heads, x.shape[2])
    saved = forward((x, x, x), before, samples, limits, mask, scale, p, seed, odd, flat)
    return out, saved


def self_attention_backward(
    grad: np.ndarray, qkv: np.ndarray, heads: int, lengths: Any, limits: Any, mask: Any,
    scale: float, p: float, seed: int, saved: Any,
) -> np.ndarray:  # fmt: skip
    if not isinstance(saved, tuple):
        settings = (heads, lengths, limits, mask, scale, p, seed)
        return reference.self_attention_backward(grad, qkv, *settings, saved)
    x, samples = heads_of_all(qkv, heads), (samples_in(qkv, lengths),) * 2
    dqkv = np.empty(qkv.shape, qkv.dtype)
    dx = dqkv.reshape(x.shape)
    arrays = (ready(grad).reshape(-1, heads, x.shape[2]), x, x, x)
    odd = odd_among(limits, mask, grad, qkv)
    before = (0, heads, 2 * heads)
    backward(arrays, (dx, dx, dx), before, samples, limits, mask, scale, p, seed, odd, saved)
    return dqkv


def heads_of_all(qkv: np.ndarray, heads: int) -> np.ndarray:
    """(..., 3 D) -> (rows, 3 H, d)."""
    return ready(qkv).reshape(-1, 3 * heads, qkv.shape[-1] // (3 * heads))


def samples_in(x: np.ndarray, lengths: Any) -> Samples:
    """Those of (B, N, D), or packed ones of these lengths."""
    return samples_of((x.shape[1],) * len(x) if lengths is None else tuple(lengths.tolist()))
