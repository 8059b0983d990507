"""A solution of exercise 19."""

import numpy as np


def momentum_step(
    w: np.ndarray, m: np.ndarray, g: np.ndarray, rate: float, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    m = beta * m + g
    return w - rate * m, m


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
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    m_hat = m / (1 - betas[0] ** n)
    v_hat = v / (1 - betas[1] ** n)
    w = w - rate * decay * w
    return w - rate * m_hat / (np.sqrt(v_hat) + eps), m, v


def stopping_step(losses: list[float], patience: int) -> int:
    best = 0
    for step, loss in enumerate(losses):
        if loss < losses[best]:
            best = step
        if step - best >= patience:
            break
    return best
