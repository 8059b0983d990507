"""Grades exercise 8."""

import numpy as np
from grading import close, exercise, expect, finite_differences, needs, of_copies, run

yours = exercise("ex_08_layer_norm")


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape)


def right(x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def test_rows() -> None:
    x = numbers(3, 4) * 5 + 2
    found = of_copies(yours.layer_norm, x)
    expect(
        np.shape(found) == (3, 4), f"layer_norm of (3, 4) has shape (3, 4), not {np.shape(found)}"
    )
    expect(not close(found.mean(0), np.zeros(4)), "columns have mean 0: take the mean of each row")
    ratio = found / (x - x.mean())
    expect(
        not close(ratio, np.repeat(ratio[:, :1], 4, axis=1)),
        "the mean is that of the whole array: take that of each row",
    )
    expect(close(found.mean(-1), np.zeros(3)), "the rows of the result do not have mean 0")
    spread = found.std(-1)
    expect(
        not close(spread, np.full(3, 0.75**0.5), 1e-3), "the variance is divided by d - 1, not d"
    )
    expect(
        not close(spread * x.std(-1), np.ones(3), 1e-3),
        "the root is forgotten: divide by sqrt(variance + eps), not by the variance",
    )
    centred = x - x.mean(-1, keepdims=True)
    expect(
        not any(close(spread * whole, x.std(-1), 1e-3) for whole in (x.std(), centred.std())),
        "the variance is that of the whole array: take that of each row",
    )
    expect(close(spread, np.ones(3), 1e-3), f"rows have standard deviations {spread}, not 1")


def test_eps() -> None:
    x = numbers(2, 5) * 0.1
    centred = x - x.mean(-1, keepdims=True)
    beside = centred / (x.std(-1, keepdims=True) + 0.04)
    found = of_copies(yours.layer_norm, x, 0.04)
    needs(test_rows)
    expect(not close(found, beside), "eps is added to the root; it belongs under the root")
    expect(close(found, right(x, 0.04)), "eps does not act as in sqrt(variance + eps)")
    constant = of_copies(yours.layer_norm, np.full((1, 4), 3.0))
    expect(close(constant, np.zeros((1, 4))), "a row of equal numbers becomes 0")


def test_more_dimensions() -> None:
    x = numbers(2, 3, 4)
    found = of_copies(yours.layer_norm, x)
    if not close(found, right(x)):
        needs(test_eps)
    expect(
        close(found, right(x)),
        "layer_norm of (2, 3, 4) is wrong: rows lie along the last axis, axis=-1",
    )


def test_a_large_mean() -> None:
    x = numbers(2, 5)
    found = of_copies(yours.layer_norm, x + 1e6)
    if not close(found, right(x)):
        needs(test_eps)
    expect(
        close(found, right(x)),
        "numbers around 1,000,000 give a wrong result: subtract the mean before you square, "
        "because mean(x^2) - mean^2 loses digits",
    )


def test_input_is_not_changed() -> None:
    x = numbers(2, 5)
    before = x.copy()
    run(yours.layer_norm, x)
    expect(np.array_equal(x, before), "layer_norm changed x: write x - mean, not x -= mean")


def test_backward() -> None:
    x, grad = numbers(2, 2, 5)
    expected = finite_differences(right, x, grad)
    given = [grad.copy(), x.copy()]
    found = run(yours.layer_norm_backward, *given)
    expect(
        all(map(np.array_equal, given, (grad, x))),
        "layer_norm_backward changed grad or x: write to a new array",
    )
    expect(np.shape(found) == x.shape, f"the gradient of x has x's shape, not {np.shape(found)}")
    centred = x - x.mean(-1, keepdims=True)
    sigma = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    y, ones = centred / sigma, grad.mean(-1, keepdims=True)
    along_y = y * (grad * y).mean(-1, keepdims=True)
    for d in ((5, 5), (5, 1), (1, 5)):
        expect(
            not close(found, (grad - d[0] * ones - d[1] * along_y) / sigma),
            "subtract means of rows, not sums: the mean of grad, and y * mean(grad * y)",
        )
    for other, sentence in (
        (x, "x is in place of y: y is (x - mean) / sqrt(variance + eps)"),
        (centred, "x - mean is in place of y: y is (x - mean) / sqrt(variance + eps)"),
    ):
        for a, b in ((other, other), (other, y), (y, other)):
            along = a * (grad * b).mean(-1, keepdims=True)
            expect(not close(found, (grad - ones - along) / sigma), sentence)
    without_y = (grad - ones - (grad * y).mean(-1, keepdims=True)) / sigma
    expect(not close(found, without_y), "mean(grad * y) lacks its factor: subtract y times it")
    along_ones = np.abs(found.sum(-1)).max()
    expect(
        along_ones < 1e-9, "the gradient points along ones: subtract the mean of grad in each row"
    )
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
    x, grad = numbers(2, 2, 5)
    expected = finite_differences(lambda x: right(x, 0.5), x, grad)
    found = run(yours.layer_norm_backward, grad, x, 0.5)
    if not close(found, expected, 1e-6):
        needs(test_backward)
    expect(
        close(found, expected, 1e-6),
        "with eps=0.5 the gradient is wrong: y has eps in it too",
    )
