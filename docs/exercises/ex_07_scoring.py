"""Exercise 7: two scoring functions, and the backward of the additive one.

Write the three functions, then `pytest docs/exercises/test_07_scoring.py` says what is wrong. About
25 minutes. The page is docs/course/07_scoring.md, with three hints at its end.
"""

import numpy as np


def dot_product_scores(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """queries (B, Q, d), keys (B, K, d) -> scores (B, Q, K): products, divided by sqrt(d)."""
    raise NotImplementedError


def additive_scores(
    queries: np.ndarray, keys: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, w_v: np.ndarray
) -> np.ndarray:
    """w_v . tanh(W_q q + W_k k) for each query and key.

    queries (B, Q, m), keys (B, K, n), W_q (h, m), W_k (h, n), w_v (h,) -> scores (B, Q, K).
    """
    raise NotImplementedError


def additive_backward(
    grad: np.ndarray,
    queries: np.ndarray,
    keys: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    w_v: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """From the gradient of the scores (B, Q, K): the gradients of the queries and of w_v."""
    raise NotImplementedError
