"""A solution of exercise 1."""

import numpy as np


def attention(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    d = queries.shape[-1]
    scores = queries @ keys.T / np.sqrt(d)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ values
