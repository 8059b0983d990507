"""Grades exercise 10."""

import numpy as np
from grading import close, exercise, expect, needs, run

yours = exercise("ex_10_positions")
rng = np.random.default_rng(10)


def angle(position: int, pair: int, width: int) -> float:
    return position / 10000 ** (2 * pair / width)


def table(length: int, width: int) -> np.ndarray:
    """One number after the other."""
    out = np.empty((length, width))
    for i, c in np.ndindex(out.shape):
        out[i, c] = (np.cos if c % 2 else np.sin)(angle(i, c // 2, width))
    return out


def turned(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """One pair after the other, as a complex number."""
    out = np.empty_like(x)
    for i, j in np.ndindex(len(x), x.shape[1] // 2):
        pair = complex(x[i, 2 * j], x[i, 2 * j + 1])
        pair *= np.exp(1j * angle(positions[i], j, x.shape[1]))
        out[i, 2 * j : 2 * j + 2] = pair.real, pair.imag
    return out


def test_sinusoids() -> None:
    right = table(7, 6)
    found = run(yours.sinusoids, 7, 6)
    expect(np.shape(found) == (7, 6), f"7 positions of width 6 are (7, 6), not {np.shape(found)}")
    halves = np.concatenate([right[:, 0::2], right[:, 1::2]], axis=1)
    expect(not close(found, halves), "sines and cosines alternate; yours are two halves")
    exchanged = right.reshape(7, 3, 2)[..., ::-1].reshape(7, 6)
    expect(not close(found, exchanged), "even columns are sines, odd columns are cosines")
    for factor in (1, 2):
        columns = np.arange(7)[:, None] / 10000.0 ** (factor * np.arange(6) / 6)
        columns = np.where(np.arange(6) % 2, np.cos(columns), np.sin(columns))
        expect(
            not close(found, columns),
            "the exponent is 2j / width with j the number of the pair, not that of the column: "
            "both columns of a pair have one rate",
        )
    expect(not close(found, table(8, 6)[1:]), "positions begin at 1: the first row is that of 0")
    pairs = np.repeat(np.arange(3), 2)
    for power, sentence in (
        (pairs / 6, "the exponent is 2j / width, not j / width"),
        (-2 * pairs / 6, "the angle is multiplied by 10000^(2j / width): divide"),
    ):
        angles = np.arange(7)[:, None] / 10000.0**power
        wrong = np.where(np.arange(6) % 2, np.cos(angles), np.sin(angles))
        expect(not close(found, wrong), sentence)
    expect(close(found, right), "the table is not sin and cos of i / 10000^(2j / width)")


def test_odd_width() -> None:
    found = run(yours.sinusoids, 5, 7)
    expect(np.shape(found) == (5, 7), f"5 positions of width 7 are (5, 7), not {np.shape(found)}")
    expect(close(found, table(5, 7)), "an odd width ends on a sine, with exponents 2j / 7")


def test_shift() -> None:
    long = table(40, 8)
    for start in (0, 11):
        rows = long[start : start + 5].copy()
        found = run(yours.shift, rows, 3)
        expect(np.shape(found) == (5, 8), f"rows (5, 8) become (5, 8), not {np.shape(found)}")
        expect(
            not close(found[3:], long[:2]),
            "the rows stand 3 positions earlier: they turn the wrong way",
        )
        expect(
            start == 0 or not close(found, long[3:8]),
            "your shift takes the first row for position 0; it has to work with rows alone",
        )
        expect(
            not close(found, np.roll(rows, -3, axis=0)),
            "rows are moved in the array: compute each from its own numbers, by a turn",
        )
        expect(
            close(found, long[start + 3 : start + 8]),
            "the rows are not those of 3 positions later: sin(a + b) = sin a cos b + cos a sin b",
        )
        expect(close(rows, long[start : start + 5]), "shift changed its argument")


def test_rotary() -> None:
    x, positions = rng.standard_normal((4, 6)), np.array([0, 3, 1, 50])
    before = x.copy()
    found = run(yours.rotary, x, positions)
    expect(close(x, before), "rotary changed its argument: x[:, 0] is needed for both numbers")
    expect(np.shape(found) == (4, 6), f"x (4, 6) becomes (4, 6), not {np.shape(found)}")
    right = turned(x, positions)
    expect(
        not close(found, turned(x, np.arange(4))),
        "the rows are turned by their numbers, not by their positions",
    )
    order = [0, 3, 1, 4, 2, 5]
    halves = turned(x[:, order], positions)[:, np.argsort(order)]
    expect(
        not close(found, halves),
        "your pairs are (j, j + d / 2), as in implementations of Llama; here they are (2j, 2j + 1)",
    )
    mixed = turned(x[:, order], positions)
    expect(
        not close(found, mixed),
        "pairs are (j, j + d / 2), and stand beside each other afterwards: take (2j, 2j + 1)",
    )
    expect(
        not close(found, x + table(51, 6)[positions]),
        "rotary adds the table of positions to x: it turns the pairs of x, and adds nothing",
    )
    expect(
        not close(found[0], x[0] * np.tile([1, -1], 3)),
        "the second number of a pair has the wrong sign: a turn of (a, b) gives "
        "(a cos - b sin, a sin + b cos)",
    )
    expect(close(found[0], x[0]), "a row at position 0 must stay as it is: its angle is 0")
    lengths = [(a.reshape(4, 3, 2) ** 2).sum(-1) for a in (found, x)]
    expect(close(*lengths), "a turn keeps the length of each pair (2j, 2j + 1); yours does not")
    expect(not close(found, turned(x, -positions)), "the pairs turn with the clock")
    expect(close(found, right), "the angles are not position / 10000^(2j / d)")


def test_only_distances_count() -> None:
    needs(test_rotary)
    q, k = rng.standard_normal((2, 5, 8))
    here, there = np.arange(5), np.arange(5) + 70
    near = run(yours.rotary, q, here) @ run(yours.rotary, k, here).T
    far = run(yours.rotary, q, there) @ run(yours.rotary, k, there).T
    expect(close(near, far), "if queries and keys are all 70 positions later, scores must not move")
