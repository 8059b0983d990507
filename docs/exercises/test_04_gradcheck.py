"""Grades exercise 4."""

import numpy as np
from grading import exercise, expect, needs, run

yours = exercise("ex_04_gradcheck")
x = np.random.default_rng(4).standard_normal((2, 3))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_rule(grad: np.ndarray, x: np.ndarray) -> np.ndarray:
    return softmax(x) * (grad - (grad * softmax(x)).sum(-1, keepdims=True))


def answer(function, rule, x=x) -> bool:
    found = run(yours.is_right, function, rule, x)
    expect(isinstance(found, (bool, np.bool_)), f"is_right returns True or False, not {found!r}")
    return bool(found)


def test_cotangent_and_steps() -> None:
    """What the function and the rule are given tells how the slopes are made."""
    cotangents, given, points = [], [], []

    def function(x: np.ndarray) -> np.ndarray:
        points.append(np.array(x))
        return np.exp(x)

    def rule(grad: np.ndarray, x: np.ndarray) -> np.ndarray:
        cotangents.append(np.array(grad))
        given.append(np.array(x))
        return grad * np.exp(x)

    answer(function, rule)
    expect(cotangents, "is_right does not call the rule")
    expect(
        np.array_equal(given[0], x) or not np.array_equal(cotangents[0], x),
        "the rule is called with x first: it is rule(grad, x)",
    )
    expect(
        np.ptp(cotangents[0]) > 0,
        "all numbers of the cotangent are equal: with ones a wrong rule of softmax passes, because "
        "its rows sum to 1. Take random numbers with both signs",
    )
    steps = [point - x for point in points if np.isrealobj(point) and point.shape == x.shape]
    expect(
        not points or len(steps) < len(points) or np.abs(steps).max() > 1e-15,
        "the function sees x alone: change one element of a copy by h, and then of another copy",
    )
    steps = [step for step in steps if step.any()]
    if steps:
        largest = np.abs(steps).max()
        moved = np.count_nonzero(np.abs(steps).max(0))
        expect(moved == x.size, f"{moved} of {x.size} elements of x are moved: check each one")
        expect(largest > 1e-9, f"a step of {largest:.0e} is lost in rounding: take 1e-5 or 1e-6")
        expect(largest < 1e-2, f"a step of {largest:.0e} sees the curve, not the slope: take 1e-5")
    expect(
        not answer(np.exp, lambda g, x: -5 * g * np.exp(x) + 3),
        "a rule that has nothing to do with exp is accepted: compare what it gives with the slopes",
    )
    expect(
        not all(answer(np.exp, lambda g, x, c=c: c * g * np.exp(x)) for c in (0.5, 1, 2)),
        "a rule is accepted whose gradient has the right direction and another length: compare "
        "each number",
    )
    for factor, cause in ((2, "2 h, not by h"), (0.5, "2 h, not by 4 h")):
        expect(
            not answer(np.exp, lambda g, x, c=factor: c * g * np.exp(x)),
            f"slopes are {factor} times what they are: f(x + h) - f(x - h) is divided by {cause}",
        )
    expect(
        not answer(np.exp, lambda g, x: np.exp(x)),
        "the slopes are those of a sum: multiply f(x + h) - f(x - h) by the cotangent, then sum",
    )
    one_side = bool(steps) and (np.min(steps) >= 0 or np.max(steps) <= 0)
    expect(
        not one_side,
        "the difference is one-sided: f(x + h) - f(x - h), divided by 2 h, is far more exact",
    )


def test_right_rules() -> None:
    needs(test_cotangent_and_steps)
    expect(
        answer(np.exp, lambda g, x: g * np.exp(x)),
        "the right rule of exp is refused: the tolerance must leave room for the error of the "
        "differences, about 1e-9 of the slopes",
    )
    expect(answer(softmax, softmax_rule), "the right rule of softmax is refused")
    expect(
        answer(lambda x: x @ x.T, lambda g, x: (g + g.T) @ x),
        "a right rule of a function with outputs of another shape is refused",
    )
    for factor in (1e6, -1e6):
        expect(
            answer(lambda x, c=factor: c * x, lambda g, x, c=factor: c * g, x[:1, :1]),
            "the right rule of one number is refused: the tolerance is relative to abs(slopes)",
        )
    large = lambda x: 1e6 * np.exp(x)  # noqa: E731
    expect(
        answer(large, lambda g, x: g * large(x)),
        "a right rule with slopes of a million is refused: make the tolerance relative",
    )
    relu = lambda x: np.maximum(x, 0)  # noqa: E731
    expect(
        answer(relu, lambda g, x: g * (x > 0), np.array([[-2.0, 3.0, -4.0]])),
        "the right rule of max(x, 0) is refused at -2, 3 and -4, where two of the slopes are 0: "
        "0 / 0 is nan, and 0 < 0 is False",
    )
    expect(
        answer(relu, lambda g, x: g * (x > 0), np.array([[-2.0, -3.0, -4.0]])),
        "a right rule whose gradient is 0 everywhere is refused: 0 / 0 is nan, and 0 < 0 is False, "
        "so do not divide, and add a small number such as 1e-9 to the tolerance",
    )


def test_float32() -> None:
    needs(test_right_rules)
    expect(
        answer(np.exp, lambda g, x: g * np.exp(x), x.astype(np.float32)),
        "a right rule is refused at a float32 x: compute in float64",
    )


def test_wrong_rules() -> None:
    wrong = {
        "exp plus 1: compare abs(difference)": (np.exp, lambda g, x: g * np.exp(x) + 1),
        "exp minus 1: compare abs(difference)": (np.exp, lambda g, x: g * np.exp(x) - 1),
        "softmax with the plain mean": (
            softmax,
            lambda g, x: softmax(x) * (g - g.mean(-1, keepdims=True)),
        ),
        "softmax that is always 0: take a cotangent with signs": (softmax, lambda g, x: 0 * g),
        "exp with the wrong sign": (np.exp, lambda g, x: -g * np.exp(x)),
        "exp without the chain rule": (np.exp, lambda g, x: np.exp(x)),
        "exp of which 1 in 1,000 is missing": (np.exp, lambda g, x: 0.999 * g * np.exp(x)),
        "exp that is wrong in one element": (
            np.exp,
            lambda g, x: g * np.exp(x) * (np.arange(6).reshape(2, 3) != 4),
        ),
        "a small function, 1e-7 sin(x), that is always 0: make the tolerance relative": (
            lambda x: 1e-7 * np.sin(x),
            lambda g, x: 0 * g,
        ),
        "exp with abs(grad): a cotangent has both signs": (
            np.exp,
            lambda g, x: np.abs(g) * np.exp(x),
        ),
        "exp with -abs(grad): a cotangent has both signs": (
            np.exp,
            lambda g, x: -np.abs(g) * np.exp(x),
        ),
        "exp plus 1 and minus 1 by turns: take the largest of abs(difference), not a mean": (
            np.exp,
            lambda g, x: g * np.exp(x) + np.array([[1, -1, 1], [-1, 1, -1]]),
        ),
        "exp that gives nan: a comparison with nan is False": (
            np.exp,
            lambda g, x: np.where(x == x[0, 0], np.nan, g * np.exp(x)),
        ),
    }
    for name, (function, rule) in wrong.items():
        # Six random numbers are of one sign too often.
        at = np.tile(x, (4, 2)) if "signs" in name else x
        expect(not answer(function, rule, at), f"a wrong rule is accepted: {name}")


def test_rules_that_mix_elements() -> None:
    x = np.random.default_rng(5).standard_normal((4, 6))
    wrong = {
        "exp with the rows of grad exchanged: a cotangent has rows that differ": np.flipud,
        "exp with the columns of grad exchanged: a cotangent has columns that differ": np.fliplr,
    }
    for name, flip in wrong.items():
        found = answer(np.exp, lambda g, x, flip=flip: flip(g) * np.exp(x), x)
        expect(not found, f"a wrong rule is accepted: {name}")


def test_input_is_not_changed() -> None:
    before = x.copy()
    answer(np.exp, lambda g, x: g * np.exp(x))
    expect(np.array_equal(x, before), "is_right changed x: change a copy")
