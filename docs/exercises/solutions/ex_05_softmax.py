"""A solution of exercise 5."""

import numpy as np


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_backward(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    return out * (grad - (grad * out).sum(axis=-1, keepdims=True))
