"""Grades exercise 1."""

import numpy as np
from grading import close, exercise, expect, run

yours = exercise("ex_01_soft_lookup")
rng = np.random.default_rng(1)
queries, keys, values = (rng.standard_normal(shape) for shape in ((3, 4), (5, 4), (5, 2)))


def answer(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    e = np.exp(scale * queries @ keys.T)
    return e / e.sum(axis=-1, keepdims=True) @ values


def test_shapes() -> None:
    found = np.shape(run(yours.attention, queries, keys, values))
    expect(found == (3, 2), f"queries (3, 4), keys (5, 4), values (5, 2) give (3, 2), not {found}")


def test_a_query_finds_its_key() -> None:
    """Keys that are far apart, so that each query takes one value alone."""
    right = np.diag([1.0, 2.0, 3.0])
    found = run(yours.attention, 1e4 * np.eye(3), np.eye(3), right)
    expect(np.isfinite(found).all(), "large scores give nan: subtract the maximum before exp")
    expect(close(found, right), "query i is most like key i, so it gets value i; yours does not")


def test_large_scores() -> None:
    """Query 0 has scores of 10,000 and 5,000, query 1 has -10,000 and -5,000."""
    queries, keys = np.array([[1e4], [-1e4]]), np.array([[1.0], [0.5]])
    found = run(yours.attention, queries, keys, np.eye(2))
    expect(
        np.isfinite(found).all(),
        "scores of 10,000 in one row and -10,000 in another give nan: subtract the maximum of each "
        "row, not that of the array",
    )
    expect(
        close(found, np.eye(2)),
        "scores of 10,000 and 5,000 must have the weights 1 and 0: change scores only by "
        "subtracting the maximum of their row",
    )


def test_the_formula() -> None:
    found = run(yours.attention, queries, keys, values)
    raw, scaled = answer(queries, keys, values, 1.0), answer(queries, keys, values, 1 / 4)
    expect(not close(found, raw), "the scores are not divided by sqrt(d)")
    expect(not close(found, scaled), "the scores are divided by d, not by sqrt(d)")
    e = np.exp(queries @ keys.T / np.sqrt(4))
    over_queries = "softmax is taken over the queries: take it over the keys, axis=-1"
    expect(not close(found, e / e.sum(0) @ values), over_queries)
    right = answer(queries, keys, values, 1 / np.sqrt(4))
    expect(close(found, right), "the means are not those of softmax(Q K^T / sqrt(d)) V")


def test_order_of_keys() -> None:
    order = [3, 0, 4, 2, 1]
    before = run(yours.attention, queries, keys, values)
    after = run(yours.attention, queries, keys[order], values[order])
    expect(close(before, after), "keys and values in another order must give the same means")
