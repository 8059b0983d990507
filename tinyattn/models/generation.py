"""Generation: a model gives scores for the next id, one is chosen, and the model reads it too.

The model is any function of ids (B, T) that gives scores (B, V), the logits of the id after them:
`nn.EncoderDecoder.next_scores(src)`, which keeps a cache, or `lambda ids: model(ids)[:, -1]`. A
model with dropout is put into eval() first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import masks
from ..base import random
from ..base.backend import to_device
from ..base.checks import check_size, is_integer
from ..engine.autograd import wrap
from ..engine.grad_mode import no_grad
from ..errors import DtypeError, ShapeError
from ..tensors.arguments import ArrayLike
from ..tensors.tensor import Tensor


@no_grad()
def generate(
    next_scores: Callable[[Any], Tensor],
    prompt: ArrayLike,
    max_len: int,
    stop: int | None = None,
    pad: int = 0,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    num_beams: int = 1,
    length_penalty: float = 0.0,
) -> Tensor:
    """Continue the ids of each sample: prompt (B, P) -> (B, T), with T <= max_len.

    next_scores: a function of ids (B, t) that gives scores (B, V) of the id after them.
    prompt: ids that are given, one at least for each sample. Shorter ones end in `pad`, and are
        continued from there. If `pad` is an id that prompts may end in, take another, such as -1.
    max_len: the most ids of a sample, its prompt included.
    stop: the id that ends a sample; the ids after it are `pad`. A prompt is continued even if it
        has this id.
    temperature: 0 takes the likeliest id (greedy). Above 0, an id is drawn from
        softmax(scores / temperature), by the random numbers that `manual_seed` fixes.
    top_k, top_p: draw from the k likeliest ids only; and of these from the fewest whose
        probabilities add up to top_p or more.
    num_beams: above 1, beam search: keep so many of the likeliest beginnings in each step, and
        return the one whose log-probability, divided by ((5 + n) / 6)^length_penalty, is highest,
        for n generated ids. A beginning that has ended keeps its place while it is among the best.

    Source: Wu et al., "Google's Neural Machine Translation System", 2016 (length penalty); Fan et
    al., 2018 (top-k); Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020
    (top-p).

        >>> def next_scores(ids):  # the next id is likely to be one more
        ...     return F.one_hot(ids[:, -1] + 1, 6).float()
        >>> generate(next_scores, [[1], [3]], max_len=5, stop=4)
        tensor([[1, 2, 3, 4],
                [3, 4, 0, 0]])
    """
    ids, known = checked_prompt(prompt, max_len, pad)
    if stop is not None and not is_integer(stop):
        raise DtypeError(f"stop is an id, an integer, got {stop!r}")
    check_choice(temperature, top_k, top_p, num_beams)
    if not math.isfinite(length_penalty):
        raise ValueError(f"length_penalty is a finite number, got {length_penalty!r}")
    getattr(next_scores, "start", lambda: None)()
    if num_beams > 1:
        return wrap(beam_search(next_scores, ids, known, stop, num_beams, length_penalty))
    ended = np.zeros(len(ids), np.bool_)
    for t in range(start_of(known), max_len):
        if ended.all():
            return wrap(ids[:, :t].copy())
        logs = log_probabilities(next_scores, ids[:, :t])
        chosen = logs.argmax(axis=-1)
        if temperature:
            chosen = draw(chances(logs, temperature, top_k, top_p))
        free = ~ended & ~known[:, t]
        ids[free, t] = chosen[free]
        ended |= free & (chosen == stop)
    return wrap(ids)


def beam_search(
    next_scores: Callable[[Any], Tensor],
    ids: np.ndarray,
    known: np.ndarray,
    stop: int | None,
    num_beams: int,
    length_penalty: float,
) -> np.ndarray:
    """The best continuation found of ids (B, max_len); known (B, max_len) says what is given."""
    batch = len(ids)
    select = getattr(next_scores, "select", lambda rows: None)
    first_rows = np.arange(batch)[:, None] * num_beams  # the beams of a sample follow each other
    rows = np.arange(batch).repeat(num_beams)  # (R,), R = B * num_beams
    ids, known = ids[rows], known[rows]
    select(rows)
    # The beams of a sample begin alike: only the first counts.
    log_prob = np.where(np.arange(len(rows)) % num_beams == 0, 0.0, -np.inf)
    lengths, ended = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    for t in range(start_of(known), ids.shape[1]):
        if ended.all():
            break
        logs = log_probabilities(next_scores, ids[:, :t])  # (R, V)
        free = ~ended & ~known[:, t]
        # A beam that cannot choose has one continuation, with probability 1.
        logs[~free] = np.where(np.arange(logs.shape[1]) == 0, 0.0, -np.inf)
        lengths, candidates = lengths + free, log_prob[:, None] + logs
        ranked = candidates / (((5 + lengths) / 6) ** length_penalty)[:, None]
        ranked = ranked.reshape(batch, -1)  # (B, num_beams * V)
        best = np.argsort(-ranked, axis=-1, kind="stable")[:, :num_beams]
        beams, chosen = np.divmod(best, logs.shape[1])  # (B, num_beams) each
        rows, chosen = (first_rows + beams).reshape(-1), chosen.reshape(-1)
        ids, free, ended, lengths = ids[rows], free[rows], ended[rows], lengths[rows]
        log_prob = candidates[rows, chosen]
        select(rows)
        ids[free, t] = chosen[free]
        ended |= free & (chosen == stop)
    # The best beam of each sample stands first; others may have become longer.
    longest = (known.sum(axis=1) + lengths)[::num_beams].max(initial=0)
    return ids[::num_beams, :longest].copy()


def start_of(known: np.ndarray) -> int:
    """The first position at which an id is not given."""
    return int(known.sum(axis=1).min(initial=known.shape[1]))


def log_probabilities(next_scores: Callable[[Any], Tensor], ids: np.ndarray) -> np.ndarray:
    """log softmax of the scores for the next id, in float64: (B, V)."""
    scores = next_scores(wrap(ids.copy()))
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(ids):
        raise ShapeError(
            f"next_scores takes ids (B, t) and gives a Tensor of scores (B, V): for ids "
            f"{ids.shape} it gave {getattr(scores, 'shape', scores)}"
        )
    logs = scores.double().log_softmax(-1).cpu().numpy().copy()
    if np.isnan(logs).any():
        raise ValueError("a score for the next id is NaN or inf, or those of a sample are all -inf")
    return logs


def chances(
    logs: np.ndarray, temperature: float, top_k: int | None, top_p: float | None
) -> np.ndarray:
    """The probabilities (B, V) that ids are drawn with, from log-probabilities (B, V)."""
    order = np.argsort(-logs, axis=-1, kind="stable")  # equal ids stay in their order
    logs = np.take_along_axis(logs, order, axis=-1)
    weights = np.exp((logs - logs[:, :1]) / temperature)
    if top_k is not None:
        weights[:, top_k:] = 0
    if top_p is not None:
        before = (weights.cumsum(axis=-1) - weights) / weights.sum(axis=-1, keepdims=True)
        weights[before >= top_p] = 0
    out = np.zeros_like(weights)
    np.put_along_axis(out, order, weights / weights.sum(axis=-1, keepdims=True), axis=-1)
    return out


def draw(probabilities: np.ndarray) -> np.ndarray:
    """One id for each row of probabilities (B, V)."""
    sums = probabilities.cumsum(axis=-1)
    u = random.generator().random((len(sums), 1)) * sums[:, -1:]
    return (sums <= u).sum(axis=-1)


def checked_prompt(prompt: ArrayLike, max_len: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """ids (B, max_len), filled up with `pad`, and which of them are given."""
    if not is_integer(pad):
        raise DtypeError(f"pad is an id, an integer, got {pad!r}")
    prompt_ids = to_device(masks.array_of(prompt, "prompt"), "cpu")
    if prompt_ids.dtype.kind not in "iu":
        raise DtypeError(f"prompt holds ids, integers, got {prompt_ids.dtype}")
    if prompt_ids.ndim != 2 or prompt_ids.shape[1] > check_size("max_len", max_len):
        raise ShapeError(
            f"prompt has shape (B, P) with P <= max_len={max_len}, got {prompt_ids.shape}"
        )
    ids = np.full((len(prompt_ids), max_len), pad, np.int64)
    ids[:, : prompt_ids.shape[1]] = prompt_ids
    known = ids != pad
    lengths = known.sum(axis=1, keepdims=True)
    if (known != (np.arange(max_len) < lengths)).any() or not lengths.all():
        raise ValueError(f"each prompt has one id at least, and pad={pad} only after its last id")
    return ids, known


def check_choice(
    temperature: float, top_k: int | None, top_p: float | None, num_beams: int
) -> None:
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is a finite number >= 0, got {temperature!r}")
    if top_k is not None:
        check_size("top_k", top_k)
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p lies between 0 and 1, and is not 0, got {top_p!r}")
    if (top_k is not None or top_p is not None) and not temperature:
        raise ValueError("top_k and top_p are for drawing: give a temperature above 0 too")
    if check_size("num_beams", num_beams) > 1 and temperature:
        raise ValueError("beam search draws nothing: give num_beams or a temperature, not both")
