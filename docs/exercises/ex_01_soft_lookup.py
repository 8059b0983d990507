"""Exercise 1: attention in NumPy.

Write the function, then `pytest docs/exercises/test_01_soft_lookup.py` says what is wrong. About 15
minutes. The page is docs/course/01_soft_lookup.md, with three hints at its end.
"""

import numpy as np


def attention(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """softmax(Q K^T / sqrt(d)) V: (Q, d), (K, d), (K, e) -> (Q, e)."""
    raise NotImplementedError
