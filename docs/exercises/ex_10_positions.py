"""Exercise 10: sinusoids, a shift as a rotation, and rotary positions.

Write the three functions, then `pytest docs/exercises/test_10_positions.py` says what is wrong.
About 25 minutes. The page is docs/course/10_positions.md, with three hints at its end.
"""

import numpy as np


def sinusoids(length: int, width: int) -> np.ndarray:
    """The table P (length, width), of any width, even or odd.

    P[i, 2j] = sin(i / 10000^(2j / width)), P[i, 2j + 1] = cos(i / 10000^(2j / width)).
    """
    raise NotImplementedError


def shift(rows: np.ndarray, steps: int) -> np.ndarray:
    """Rows (N, width) of a table of even width -> the rows that stand `steps` positions later.

    It is not known which positions the rows have.
    """
    raise NotImplementedError


def rotary(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Queries or keys x (N, d), d even, at positions (N,).

    Each pair (x[2j], x[2j + 1]) is turned, against the clock, by position / 10000^(2j / d).
    """
    raise NotImplementedError
