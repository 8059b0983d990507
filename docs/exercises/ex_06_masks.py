"""Exercise 6: a mask for padding and the future, and the softmax that respects it.

Write both functions, then `pytest docs/exercises/test_06_masks.py` says what is wrong. About 20
minutes. The page is docs/course/06_masks.md, with three hints at its end.
"""

import numpy as np


def visible_keys(lengths: np.ndarray, n: int) -> np.ndarray:
    """lengths (B,) -> booleans (B, n, n): query i of sample b sees key k if k is no padding, which
    means k < lengths[b], and k is not in the future, which means k <= i."""
    raise NotImplementedError


def masked_softmax(scores: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Softmax over the visible keys, the last axis. Invisible keys get 0, and have no influence,
    even if their score is NaN. A query without a visible key gets zeros."""
    raise NotImplementedError
