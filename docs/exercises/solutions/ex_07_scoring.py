"""A solution of exercise 7."""

import numpy as np


def features(queries: np.ndarray, keys: np.ndarray, W_q: np.ndarray, W_k: np.ndarray) -> np.ndarray:
    """One vector of h numbers for each query and key: (B, Q, K, h)."""
    q, k = queries @ W_q.T, keys @ W_k.T  # (B, Q, h), (B, K, h)
    return np.tanh(q[:, :, None] + k[:, None])


def dot_product_scores(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    return queries @ keys.swapaxes(1, 2) / np.sqrt(queries.shape[-1])


def additive_scores(
    queries: np.ndarray, keys: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, w_v: np.ndarray
) -> np.ndarray:
    return features(queries, keys, W_q, W_k) @ w_v


def additive_backward(
    grad: np.ndarray,
    queries: np.ndarray,
    keys: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    w_v: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    f = features(queries, keys, W_q, W_k)
    before_tanh = grad[..., None] * w_v * (1 - f**2)  # (B, Q, K, h)
    of_queries = before_tanh.sum(axis=2) @ W_q
    of_w_v = (grad[..., None] * f).sum(axis=(0, 1, 2))
    return of_queries, of_w_v
