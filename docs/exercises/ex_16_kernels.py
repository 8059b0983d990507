"""Exercise 16: softmax of a row that comes in parts, and attention in tiles.

Write both functions, then `pytest docs/exercises/test_16_kernels.py` says what is wrong. About 30
minutes. The page is docs/course/16_kernels.md, with three hints at its end.
"""

import numpy as np

Array = np.ndarray


def update(
    top: Array, total: Array, out: Array, scores: Array, values: Array
) -> tuple[Array, Array, Array]:
    """Read the next n keys: their scores (Q, n) and values (n, e).

    Of the keys that were read before, for each query,
        top (Q,)     is the largest score, -inf at the beginning,
        total (Q,)   is the sum of exp(score - top), 0 at the beginning,
        out (Q, e)   is the sum of exp(score - top) * value, 0 at the beginning.
    The result is the same three of all keys that have been read now. A score of -inf means that
    the query does not see the key; there are queries that have not seen any key yet.
    """
    raise NotImplementedError


def tiled_attention(q: Array, k: Array, v: Array, tile: int) -> Array:
    """softmax(q k^T / sqrt(d)) v: q (Q, d), k (K, d), v (K, e) -> (Q, e).

    It reads `tile` keys at a time, the last time maybe fewer, and makes no array (Q, K).
    """
    raise NotImplementedError
