"""Exercise 8: LayerNorm and its backward.

Write both functions, then `pytest docs/exercises/test_08_layer_norm.py` says what is wrong. About
25 minutes. The page is docs/course/08_layer_norm.md, with three hints at its end.
"""

import numpy as np


def layer_norm(x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """(x - mean) / sqrt(variance + eps) of each row, the last axis. Divide the variance by d."""
    raise NotImplementedError


def layer_norm_backward(grad: np.ndarray, x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """The gradient of x, from the gradient of the output."""
    raise NotImplementedError
