"""A solution of exercise 10."""

import numpy as np


def rates(width: int) -> np.ndarray:
    """The angle of one step, for each pair of columns."""
    return 10000.0 ** (-np.arange(0, width, 2) / width)


def turn(first: np.ndarray, second: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Pairs of columns, turned against the clock: (N, d / 2) twice -> (N, d)."""
    cos, sin = np.cos(angle), np.sin(angle)
    out = np.empty((len(first), 2 * first.shape[1]))
    out[:, 0::2] = cos * first - sin * second
    out[:, 1::2] = sin * first + cos * second
    return out


def sinusoids(length: int, width: int) -> np.ndarray:
    angles = np.arange(length)[:, None] * rates(width)
    table = np.empty((length, width))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)[:, : width // 2]
    return table


def shift(rows: np.ndarray, steps: int) -> np.ndarray:
    # (sin, cos) and not (cos, sin): so a later position is a turn with the clock.
    return turn(rows[:, 0::2], rows[:, 1::2], -steps * rates(rows.shape[1]))


def rotary(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return turn(x[:, 0::2], x[:, 1::2], positions[:, None] * rates(x.shape[1]))
