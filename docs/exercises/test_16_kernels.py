"""Grades exercise 16."""

import tracemalloc

import numpy as np
from grading import close, exercise, expect, needs, of_copies, run, say

yours = exercise("ex_16_kernels")
rng = np.random.default_rng(16)
State = tuple[np.ndarray, np.ndarray, np.ndarray]


def start(queries: int, width: int) -> State:
    return np.full(queries, -np.inf), np.zeros(queries), np.zeros((queries, width))


def read(*tiles: tuple[np.ndarray, np.ndarray]) -> State:
    """What your function says of several tiles, one after the other."""
    state = start(len(tiles[0][0]), tiles[0][1].shape[1])
    for scores, values in tiles:
        state = of_copies(yours.update, *state, scores, values)
        expect(
            isinstance(state, (tuple, list)) and len(state) == 3,
            "update returns top, total and out",
        )
    return state


def direct(scores: np.ndarray, values: np.ndarray) -> State:
    top = scores.max(1)
    e = np.exp(scores - top[:, None])
    return top, e.sum(1), e @ values


def test_one_tile() -> None:
    rng = np.random.default_rng(1)
    scores, values = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    found, right = read((scores, values)), direct(scores, values)
    shapes = tuple(np.shape(x) for x in found)
    expect(shapes == ((3,), (3,), (3, 2)), f"top (3,), total (3,), out (3, 2); yours are {shapes}")
    expect(
        not np.isnan(found[1]).any(),
        "the first tile gives nan: top is -inf before it, and 0 * inf is nan",
    )
    expect(close(found[0], right[0]), "top of the first tile is not the maximum of each row")
    plain = np.exp(scores).sum(1)
    expect(not close(found[1], plain), "total is the sum of exp(score), not of exp(score - top)")
    expect(close(found[1], right[1]), "total of the first tile is not the sum of exp(score - top)")
    average = right[2] / right[1][:, None]
    expect(not close(found[2], average), "out is divided by total: this comes after the last tile")
    expect(close(found[2], right[2]), "out of the first tile is not exp(score - top) @ values")


def test_a_larger_maximum_comes() -> None:
    rng = np.random.default_rng(2)
    scores, values = np.sort(rng.standard_normal((3, 8)), axis=1), rng.standard_normal((8, 2))
    first, second = direct(scores[:, :5], values[:5]), direct(scores[:, 5:], values[5:])
    found = of_copies(yours.update, *first, scores[:, 5:], values[5:])
    right = direct(scores, values)
    expect(close(found[0], right[0]), "top is not the maximum of all keys so far")
    shrink = np.exp(first[0] - second[0])
    for i, name in ((1, "total"), (2, "out")):
        factor = shrink if i == 1 else shrink[:, None]
        expect(not close(found[i], second[i]), f"{name} forgets the tiles before: add to it")
        expect(
            not close(found[i], first[i] + second[i]),
            f"{name} of the earlier keys belongs to their old top: times exp(old top - new top)",
        )
        expect(
            not close(found[i], first[i] / factor + second[i]),
            f"{name} is multiplied by exp(new top - old top): the other way round",
        )
        if not close(found[i], right[i]):
            needs(test_one_tile)
        expect(
            close(found[i], right[i]),
            f"{name} of two tiles is not that of all their keys",
        )


def test_no_larger_maximum_comes() -> None:
    rng = np.random.default_rng(3)
    scores, values = -np.sort(rng.standard_normal((3, 8)), axis=1), rng.standard_normal((8, 2))
    found = read((scores[:, :5], values[:5]), (scores[:, 5:], values[5:]))
    needs(test_one_tile, test_a_larger_maximum_comes)
    for x, y, name in zip(found, direct(scores, values), ("top", "total", "out"), strict=True):
        expect(close(x, y), f"{name} is wrong where the first tile has the maximum: it stays")


STEPS = (test_one_tile, test_a_larger_maximum_comes, test_no_larger_maximum_comes)


def test_large_scores() -> None:
    scores = np.array([[1000.0, 1001.0, 2000.0, 1999.0]])
    found = read((scores[:, :2], np.ones((2, 1))), (scores[:, 2:], np.ones((2, 1))))
    needs(*STEPS)
    right = 1 + np.exp(-1.0)
    expect(np.isfinite(found[1]).all(), "scores of 1000 give nan or inf: exp(score - top)")
    expect(close(found[1], [right]), "scores of 1000 and 2000 give a wrong total")


def test_low_scores() -> None:
    scores, values = rng.standard_normal((3, 8)) - 1e10, rng.standard_normal((8, 2))
    found = read((scores[:, :5], values[:5]), (scores[:, 5:], values[5:]))
    needs(*STEPS)
    for x, y, name in zip(found, direct(scores, values), ("top", "total", "out"), strict=True):
        expect(
            close(x, y),
            f"scores of -1e10 give a wrong {name}: top is the largest score, however low it is",
        )


def test_a_query_that_sees_nothing_yet() -> None:
    scores = np.array([[-np.inf, -np.inf, 1.0, 2.0], [0.0, -np.inf, -np.inf, -np.inf]])
    values = rng.standard_normal((4, 2))
    once = read((scores[:, :2], values[:2]))
    needs(*STEPS)
    expect(
        not np.isnan(once[1]).any(),
        "a tile that a query does not see gives nan: exp(-inf - -inf). Subtract 0 there",
    )
    expect(once[1][0] == 0 and not once[2][0].any(), "keys of score -inf are counted")
    expect(once[0][0] == -np.inf, "top of a query that has seen nothing is -inf, not 0")
    twice = read((scores[:, :2], values[:2]), (scores[:, 2:], values[2:]))
    for x, y, name in zip(twice, direct(scores, values), ("top", "total", "out"), strict=True):
        expect(close(x, y), f"{name} is wrong after a tile that a query does not see")


def test_arguments_are_not_changed() -> None:
    arguments = (np.ones(2), np.ones(2), np.ones((2, 3)), np.full((2, 4), 5.0), np.ones((4, 3)))
    before = [x.copy() for x in arguments]
    run(yours.update, *arguments)
    same = all(np.array_equal(x, y) for x, y in zip(arguments, before, strict=True))
    expect(same, "update changed its arguments: return new arrays")


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    _, total, out = direct(q @ k.T * scale, v)
    return out / total[:, None]


def test_tiles() -> None:
    for keys in (37, 32, 5, 33):
        q, k, v = (rng.standard_normal(shape) for shape in ((6, 9), (keys, 9), (keys, 4)))
        found = run(yours.tiled_attention, q, k, v, 16)
        needs(*STEPS)
        where = say(f"{keys} keys in tiles of 16")
        expect(np.shape(found) == (6, 4), f"{where}: (6, 4), not {np.shape(found)}")
        expect(not close(found, attention(q, k, v, 1.0)), "scores are not divided by sqrt(d)")
        right = attention(q, k, v, 1 / 3)
        undivided = direct(q @ k.T / 3, v)[2]
        expect(not close(found, undivided), "out is not divided by total after the last tile")
        whole = keys // 16 * 16
        if whole < keys and whole:
            part = attention(q, k[:whole], v[:whole], 1 / 3)
            expect(not close(found, part), f"{where}: the keys of the last tile are missing")
        expect(close(found, right), f"{where}: the output is not that of attention")


def test_low_scores_in_tiles() -> None:
    q, k, v = 1e5 * np.ones((2, 4)), -1e5 * np.ones((5, 4)), rng.standard_normal((5, 3))
    found = run(yours.tiled_attention, q, k, v, 2)
    needs(test_low_scores, test_tiles)
    expect(
        close(found, np.broadcast_to(v.mean(0), (2, 3))),
        "scores of -2e10 have no influence or give nan: top begins with -inf, not with a number",
    )


def test_memory() -> None:
    q, k, v = rng.standard_normal((3, 600, 4))
    run(yours.tiled_attention, q, k, v, 20)
    tracemalloc.start()
    run(yours.tiled_attention, q, k, v, 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = 8 * 600 * 600
    expect(
        peak < whole / 2,
        f"600 queries and keys in tiles of 20 need {peak // 1024} KiB; the scores of all keys are "
        f"{whole // 1024} KiB, those of a tile {8 * 600 * 20 // 1024} KiB",
    )
