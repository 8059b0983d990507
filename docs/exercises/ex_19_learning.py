"""Exercise 19: the steps of optimizers, and when to stop.

Write the functions, then `pytest docs/exercises/test_19_learning.py` says what is wrong. About 25
minutes. The page is docs/course/19_learning.md, with three hints at its end.
"""

import numpy as np


def momentum_step(
    w: np.ndarray, m: np.ndarray, g: np.ndarray, rate: float, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """The new weights and the new running sum: m = beta m + g, w = w - rate m."""
    raise NotImplementedError


def adamw_step(
    w: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    n: int,
    rate: float = 0.001,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    decay: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The new w, m and v after step n, which is 1 for the first step.

    decay is AdamW's: with 0 the step is Adam's.
    """
    raise NotImplementedError


def stopping_step(losses: list[float], patience: int) -> int:
    """The step, from 0, with the best validation loss when training stops.

    It stops at the first step that is `patience` steps behind the best one so far, or at the end.
    """
    raise NotImplementedError
