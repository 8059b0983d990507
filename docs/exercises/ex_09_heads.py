"""Exercise 9: many heads.

Write the three functions, then `pytest docs/exercises/test_09_heads.py` says what is wrong. About
20 minutes. The page is docs/course/09_heads.md, with three hints at its end.
"""

import numpy as np


def split_heads(x: np.ndarray, num_heads: int) -> np.ndarray:
    """(B, N, D) -> (B, H, N, D / H): head h gets numbers h d to (h + 1) d of each position, with
    d = D / H."""
    raise NotImplementedError


def merge_heads(x: np.ndarray) -> np.ndarray:
    """(B, H, N, d) -> (B, N, H d); undoes split_heads."""
    raise NotImplementedError


def multi_head_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    num_heads: int,
) -> np.ndarray:
    """queries (B, Q, D), keys and values (B, K, D), matrices (D, D) -> (B, Q, D).

    Project with x W^T, split, attend with softmax(q k^T / sqrt(d)) v in each head, merge, and
    project with W_o.
    """
    raise NotImplementedError
