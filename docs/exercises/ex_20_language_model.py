"""Exercise 20: find the induction head, write a cache and a sampler.

Write the functions, then `pytest docs/exercises/test_20_language_model.py` says what is wrong. It
takes about 35 minutes. The page is docs/course/20_language_model.md, with three hints at its end.
"""

import numpy as np

import tinyattn as ta


def induction_scores(weights: np.ndarray, period: int) -> np.ndarray:
    """How much each head attends to the token after the earlier copy: (H, N, N) -> (H,).

    The ids repeat: id i is id i - period again. The score is the mean of the weight that query i
    gives to key i - period + 1, over all i from `period` to N - 1.
    """
    raise NotImplementedError


def induction_head(model: ta.models.CausalLM, ids: list[list[int]], period: int) -> tuple[int, int]:
    """(layer, head) of the highest induction score, for ids (1, N) that repeat.

    `ta.models.observed(model, weights=...)` shows the weights of layers, each (1, H, N, N).
    """
    raise NotImplementedError


def attend_with_cache(
    x: np.ndarray, w: dict[str, np.ndarray], cache: tuple[np.ndarray, np.ndarray] | None
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """One causal attention, of the new positions x (N, D): (out (N, d), the new cache).

    x gets rows of w["position"] (P, D) first; position counts all positions, from 0. Then queries,
    keys and values are x W^T, with W_q, W_k and W_v (d, D) of w, and the scores are divided by
    sqrt(d). cache: the keys and values (T, d) of all earlier positions, or None if there are none.
    """
    raise NotImplementedError


def next_probabilities(logits: np.ndarray, temperature: float, top_p: float) -> np.ndarray:
    """The probabilities (V,) that the next id is drawn with, from its scores (V,).

    They are softmax(logits / temperature). Only the likeliest ids stay: the fewest whose
    probabilities add up to top_p or more. The others get 0, and the sum is 1 again. With the
    temperature 0 the largest score gets 1.
    """
    raise NotImplementedError
