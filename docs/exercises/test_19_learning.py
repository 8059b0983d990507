"""Grades exercise 19."""

from collections.abc import Callable
from typing import Any

import numpy as np
from grading import close, exercise, expect, needs, run

yours = exercise("ex_19_learning")
rng = np.random.default_rng(19)
W, M, G = rng.standard_normal((3, 4))
V = rng.random(4)
B1, B2 = BETAS = 0.8, 0.95
NEW_M, NEW_V = B1 * M + (1 - B1) * G, B2 * V + (1 - B2) * G**2


def call(function: Callable[..., Any], number: int, *args: Any, **options: Any) -> Any:
    """What your function returns for copies of the arrays, which it must not change."""
    given = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
    found = run(function, *given, **options)
    same = all(map(np.array_equal, given, args))
    name = function.__name__
    expect(same, f"{name} changes its arguments: m = beta * m + g makes a new array, m *= beta not")
    expect(
        isinstance(found, (tuple, list)) and len(found) == number,
        f"{name} returns {number} arrays, in the order of its arguments",
    )
    return found


def test_momentum() -> None:
    w, m = call(yours.momentum_step, 2, W, M, G, 0.03, 0.9)
    sum_of_all = 0.9 * M + G
    expect(
        not close(m, 0.9 * M + 0.1 * G),
        "momentum is a running sum: g is not multiplied by 1 - beta",
    )
    expect(not close(m, 0.9 * M + 0.03 * G), "the rate is in m: it belongs to the step, w - rate m")
    expect(not close(w, sum_of_all), "first comes the new w, and then the new m")
    expect(close(m, sum_of_all), "the new m is not beta m + g")
    expect(not close(w, W - 0.03 * G), "the step takes g in place of m")
    expect(
        not close(w, W - 0.03 * (G + 0.9 * sum_of_all)),
        "this is the momentum of Nesterov: the step takes m alone",
    )
    expect(not close(w, W + 0.03 * sum_of_all), "the step goes with the gradient: subtract it")
    expect(not close(w, W - 0.03 * M), "the step is made with the old m: compute the new one first")
    expect(close(w, W - 0.03 * sum_of_all), "the new w is not w - rate m")


def adam(m: np.ndarray, v: np.ndarray, rate: float = 0.1, eps: float = 0.01) -> np.ndarray:
    return W - rate * m / (np.sqrt(v) + eps)


def test_adam() -> None:
    w, m, v = call(yours.adamw_step, 3, W, M, V, G, 3, rate=0.1, betas=BETAS, eps=0.01)
    m_hat, v_hat = NEW_M / (1 - B1**3), NEW_V / (1 - B2**3)
    corrected = "what is returned is the corrected mean: keep m and v without the correction"
    expect(not close(m, m_hat) and not close(v, v_hat), corrected)
    expect(not close(m, B1 * M + G), "m is a mean, not a sum: multiply g by 1 - beta")
    expect(not close(w, NEW_M), "first comes the new w, and then the new m and v")
    expect(not close(m, 0.9 * M + 0.1 * G), "betas are arguments: do not write 0.9 in their place")
    swapped = "the betas are exchanged: beta_1 is betas[0] and makes m"
    expect(not close(m, B2 * M + (1 - B2) * G), swapped)
    expect(close(m, NEW_M), "the new m is not beta_1 m + (1 - beta_1) g")
    squares = "v is the mean of the squares of the gradients: g**2"
    expect(not close(v, B2 * V + (1 - B2) * G), squares)
    expect(close(v, NEW_V), "the new v is not beta_2 v + (1 - beta_2) g**2")
    inside = W - 0.1 * m_hat / np.sqrt(v_hat + 0.01)
    mistakes = {
        "the means are not corrected: divide m by 1 - beta_1**n and v by 1 - beta_2**n": (
            adam(NEW_M, NEW_V)
        ),
        "v is not corrected: divide it by 1 - beta_2**n": adam(m_hat, NEW_V),
        "m is not corrected: divide it by 1 - beta_1**n": adam(NEW_M, v_hat),
        "the correction has the power n - 1: n is 1 in the first step": (
            adam(NEW_M / (1 - B1**2), NEW_V / (1 - B2**2))
        ),
        "the correction has the power n + 1: n is 1 in the first step": (
            adam(NEW_M / (1 - B1**4), NEW_V / (1 - B2**4))
        ),
        "the root of v is missing: divide by sqrt(v) + eps": W - 0.1 * m_hat / (v_hat + 0.01),
        "eps is inside the root: add it to the root": inside,
        "eps is missing, or it is not the argument": adam(m_hat, v_hat, eps=0.0),
        "the step takes g in place of m": adam(G, v_hat),
        "the step goes with the gradient: subtract it": adam(m_hat, v_hat, rate=-0.1),
    }
    for sentence, value in mistakes.items():
        expect(not close(w, value), sentence)
    expect(close(w, adam(m_hat, v_hat)), "without decay the new w is not that of Adam")


def test_decay() -> None:
    needs(test_adam)
    options = {"rate": 0.1, "betas": BETAS, "eps": 0.01, "decay": 0.3}
    w, m, _ = call(yours.adamw_step, 3, W, M, V, G, 3, **options)
    step = adam(NEW_M / (1 - B1**3), NEW_V / (1 - B2**3)) - W
    in_gradient = "the decay is in the gradient, as in Adam with weight_decay: AdamW keeps it out"
    expect(close(m, NEW_M), in_gradient)
    expect(not close(w, W + step), "decay has no influence")
    expect(not close(w, W + step - 0.3 * W), "the decay is not multiplied by the rate")
    expect(not close(w, W + step + 0.03 * W), "weights grow: subtract rate * decay * w")
    expect(
        not close(w, 0.97 * (W + step)),
        "the decay takes the new w: subtract rate * decay * w of the w before the step",
    )
    expect(close(w, W + step - 0.03 * W), "the new w is not that of AdamW")


def test_when_to_stop() -> None:
    found = run(yours.stopping_step, [4.0, 3.0, 2.5, 3.5, 3.0], 3)
    expect(found != 2.5, "that is the best loss: return its step")
    expect(found != 0, "the largest loss is no progress: look for the smallest")
    expect(found != 3, "steps are counted from 0: of the losses 4, 3, 2.5, 3.5, 3 step 2 is best")
    losses = [3.0, 2.0, 3.5, 1.5, 1.6, 1.7, 1.8, 1.0, 1.2]
    for patience, right in ((1, 1), (2, 3), (4, 7)):
        found = run(yours.stopping_step, list(losses), patience)
        sentence = f"patience {patience}: the best step when training stops is {right}, not {found}"
        if found == 7:
            sentence = "the losses behind the stop are looked at: training has ended there"
        if found == right + patience:
            sentence = "that is the step at which training stops: return the best one before it"
        expect(found == right, sentence)
    found = run(yours.stopping_step, [2.0, 1.0, 1.0, 1.0], 5)
    expect(found == 1, "of equal losses the first one counts: an equal loss is no progress")
    found = run(yours.stopping_step, [5.0, 1.0, 3.0, 2.0, 0.5], 2)
    expect(
        found == 1,
        "a loss below the one before it is no progress: compare it with the best one so far",
    )
