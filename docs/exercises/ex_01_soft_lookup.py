"""Exercise 1: attention in NumPy.

Write the functions, then `pytest docs/exercises/test_01_soft_lookup.py` says what is wrong.
About 20 minutes. The page is docs/course/01_soft_lookup.md, with three hints at its end.
"""

import numpy as np


def attention(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """softmax(Q K^T / sqrt(d)) V: (n, d), (m, d), (m, e) -> (n, e)."""
    raise NotImplementedError


def kernel_regression(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, width: float
) -> np.ndarray:
    """Means of the values (m, e) for queries (n, d) and keys (m, d) -> (n, e).

    The weights are a softmax of -distance^2 / (2 width^2), with the distances of query and key.
    """
    raise NotImplementedError
