"""Grades exercise 8."""

import numpy as np
from grading import close, exercise, expect, finite_differences, run

yours = exercise("ex_08_layer_norm")
rng = np.random.default_rng(7)


def right(x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def test_rows() -> None:
    x = rng.standard_normal((3, 4)) * 5 + 2
    found = run(yours.layer_norm, x)
    expect(
        np.shape(found) == (3, 4), f"layer_norm of (3, 4) has shape (3, 4), not {np.shape(found)}"
    )
    expect(not close(found.mean(0), np.zeros(4)), "columns have mean 0: take the mean of each row")
    expect(close(found.mean(-1), np.zeros(3)), "the rows of the result do not have mean 0")
    spread = found.std(-1)
    expect(
        not close(spread, np.full(3, 0.75**0.5), 1e-3), "the variance is divided by d - 1, not d"
    )
    expect(close(spread, np.ones(3), 1e-3), f"rows have standard deviations {spread}, not 1")


def test_more_dimensions() -> None:
    x = rng.standard_normal((2, 3, 4))
    expect(
        close(run(yours.layer_norm, x), right(x)),
        "layer_norm of (2, 3, 4) is wrong: rows lie along the last axis, axis=-1",
    )


def test_a_large_mean() -> None:
    x = rng.standard_normal((2, 5))
    expect(
        close(run(yours.layer_norm, x + 1e6), right(x)),
        "numbers around 1,000,000 give a wrong result: subtract the mean before you square, "
        "because mean(x^2) - mean^2 loses digits",
    )


def test_input_is_not_changed() -> None:
    x = rng.standard_normal((2, 5))
    before = x.copy()
    run(yours.layer_norm, x)
    expect(np.array_equal(x, before), "layer_norm changed x: write x - mean, not x -= mean")


def test_eps() -> None:
    x = rng.standard_normal((2, 5)) * 0.1
    centred = x - x.mean(-1, keepdims=True)
    beside = centred / (x.std(-1, keepdims=True) + 0.04)
    found = run(yours.layer_norm, x, 0.04)
    expect(not close(found, beside), "eps is added to the root; it belongs under the root")
    expect(close(found, right(x, 0.04)), "eps does not act as in sqrt(variance + eps)")
    constant = run(yours.layer_norm, np.full((1, 4), 3.0))
    expect(close(constant, np.zeros((1, 4))), "a row of equal numbers becomes 0")


def test_backward() -> None:
    x, grad = rng.standard_normal((2, 2, 5))
    expected = finite_differences(right, x, grad)
    given = [grad.copy(), x.copy()]
    found = run(yours.layer_norm_backward, *given)
    expect(
        all(map(np.array_equal, given, (grad, x))),
        "layer_norm_backward changed grad or x: write to a new array",
    )
    expect(np.shape(found) == x.shape, f"the gradient of x has x's shape, not {np.shape(found)}")
    along_ones = np.abs(found.sum(-1)).max()
    expect(
        along_ones < 1e-9, "the gradient points along ones: subtract the mean of grad in each row"
    )
    centred = x - x.mean(-1, keepdims=True)
    along_x = np.abs((found * centred).sum(-1)).max()
    expect(along_x < 1e-3, "the gradient points along x - mean: subtract y * mean(grad * y)")
    expect(
        close(found, expected, 1e-6),
        "the gradient has the right direction, not the right size: divide by sqrt(variance + eps)",
    )
    three = [array.reshape(2, 1, 5) for array in (grad, x)]
    expect(
        close(run(yours.layer_norm_backward, *three), expected.reshape(2, 1, 5), 1e-6),
        "the gradient of (2, 1, 5) is not that of its rows: they lie along the last axis, axis=-1",
    )


def test_backward_with_a_large_eps() -> None:
    x, grad = rng.standard_normal((2, 2, 5))
    expected = finite_differences(lambda x: right(x, 0.5), x, grad)
    found = run(yours.layer_norm_backward, grad, x, 0.5)
    expect(close(found, expected, 1e-6), "with eps=0.5 the gradient is wrong: y has eps in it too")
