"""Generation: a model gives scores for the next id, one is chosen, and the model reads it too.

The model is any function of ids (B, T) that gives scores (B, V), the logits of the id after them:
`next_scores(src)` of an nn.EncoderDecoder or `next_scores()` of a CausalLM, which keep a cache, or
`lambda ids: model(ids)[:, -1]`. The first two compute in eval(), whatever the mode of the model is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from typing import Any

import numpy as np

from .base.backend import quiet, to_device
from .base.checks import check_number, check_size, check_type, checked_probability, integer
from .engine.autograd import wrap
from .engine.grad_mode import no_grad
from .errors import DtypeError, ShapeError
from .ops.arguments import ArrayLike, array_like
from .tensors.tensor import Tensor

LARGEST_ID = np.iinfo(np.int64).max


@no_grad()
def generate(
    next_scores: Callable[[Any], Tensor],
    prompt: ArrayLike,
    max_len: int,
    stop: int | ArrayLike | Collection[int] | None = None,
    pad: int = 0,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    num_beams: int = 1,
    length_penalty: float = 0.0,
) -> Tensor:
    """Continue the ids of each sample: prompt (B, P) -> (B, T), with T <= max_len.

    next_scores: a function of ids (B, t) that gives scores (B, V) of the id after them. It never
        gets `pad`: a sample that has ended gets its last id again, and its scores are not read.
    prompt: ids that are given, integers from 0 on, one at least for each sample. Shorter ones end
        in `pad`, and are continued from there. If `pad` is an id that prompts have, take another,
        such as -1.
    max_len: the most ids of a sample, its prompt included.
    stop: the id that ends a sample, or several such ids, from 0 to V - 1; the ids after it are
        `pad`. A prompt is continued even if it has such an id.
    temperature: 0 takes the likeliest id (greedy). Above 0, an id is drawn from
        softmax(scores / temperature), by the random numbers that `manual_seed` fixes.
    top_k, top_p: draw from the k likeliest ids only; and of these from the fewest whose
        probabilities add up to top_p or more.
    num_beams: above 1, beam search: keep so many of the likeliest beginnings in each step. Of all
        their continuations that end, return the one whose value is highest: its log-probability,
        divided by ((5 + n) / 6)^length_penalty, for n generated ids. A continuation that has ended
        takes no place from the beginnings.
    length_penalty: a number in [-10, 10); above 0 it prefers longer continuations.

    Raises ShapeError, DtypeError or ValueError for arguments that make no sense, and for scores of
    another shape, without a vocabulary, or with NaN or inf.
    Source: Fan et al., 2018 (top-k); Holtzman et al., "The Curious Case of Neural Text
    Degeneration", 2020 (top-p).

        >>> def next_scores(ids):  # the next id is likely to be one more
        ...     return F.one_hot(ids[:, -1] + 1, 6).float()
        >>> generate(next_scores, [[1], [3]], max_len=5, stop=4)
        tensor([[1, 2, 3, 4],
                [3, 4, 0, 0]])
        >>> generate(next_scores, [[0], [3]], max_len=5, stop=[2, 4], pad=-1)
        tensor([[ 0,  1,  2],
                [ 3,  4, -1]])
    """
    ids, given, stops = checked_start(next_scores, prompt, max_len, pad, stop)
    check_drawing(temperature, top_k, top_p)
    check_beams(num_beams, length_penalty)
    if num_beams > 1 and temperature:
        raise ValueError("beam search draws nothing: give num_beams or a temperature, not both")
    if not len(ids):
        return wrap(np.empty((0, max_len), np.int64))
    if num_beams > 1:
        found = beam_search(next_scores, ids, max_len, stops, pad, num_beams, length_penalty)
        return padded([best[0].numpy() for best, *_ in found], pad)
    getattr(next_scores, "start", lambda: None)()
    lengths = np.full(len(ids), max_len)  # of the samples, which are shorter once they have ended
    for t in range(given.min(), max_len):  # the place of the next id
        in_prompt, ended = t < given, lengths <= t
        if (ended | (given == max_len)).all():
            break
        ids = with_column(ids, t)
        is_chosen = ~(in_prompt | ended)
        logs = log_probabilities(next_scores, ids[:, :t], is_chosen, stops)
        chosen = chosen_ids(logs, temperature, top_k, top_p)
        after_prompt = np.where(ended, ids[:, t - 1], chosen)
        ids[:, t] = np.where(in_prompt, ids[:, t], after_prompt)
        lengths[is_chosen & np.isin(chosen, stops)] = t + 1
    return padded([row[:n] for row, n in zip(ids, lengths, strict=True)], pad)


class Beams:
    """The likeliest beginnings of one sample, and the `best` of its continuations that have ended.

    The beginnings are rows of an array of ids outside, here are their log-probabilities.
    """

    def __init__(
        self, prompt: np.ndarray, max_len: int, num_beams: int, length_penalty: float, best: int
    ) -> None:
        self.given, self.max_len, self.length_penalty = len(prompt), max_len, length_penalty
        # (ids, value), the highest value first
        self.best, self.ended = best, list[tuple[np.ndarray, float]]()
        if self.given == max_len:  # a full prompt is all there is
            self.best, self.ended = 1, [(prompt, 0.0)]
        # The beams begin alike: only the first counts.
        self.log_prob = np.full(num_beams, -np.inf)
        self.log_prob[0] = 0.0

    def divisor(self, length: int) -> float:
        """What the log-probability of so many ids, the prompt included, is divided by."""
        return float(((5 + length - self.given) / 6) ** self.length_penalty)

    def may_improve(self, t: int) -> bool:
        """Whether a beginning of t ids can still become one of the best that have ended."""
        next_length = max(t, self.given) + 1
        largest = max(self.divisor(next_length), self.divisor(self.max_len))
        least = self.ended[-1][1] if len(self.ended) == self.best else -np.inf
        return self.log_prob[0] / largest > least  # the first beam is the likeliest

    def keep_best(self, ids: np.ndarray, candidates: np.ndarray) -> None:
        """Keep the likeliest of continuations that end: beginnings (num_beams, t), and the
        log-probability of each with each last id, (num_beams, V)."""
        values = candidates.reshape(-1) / self.divisor(ids.shape[1] + 1)
        for place in np.argsort(-values, kind="stable")[: self.best]:
            if values[place] > -np.inf:
                beam, last = divmod(place, candidates.shape[1])
                self.ended.append((np.append(ids[beam], last), float(values[place])))
        # Equal values stay in the order in which they came.
        self.ended = sorted(self.ended, key=lambda pair: -pair[1])[: self.best]

    def go_on(self, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest beginnings with one more id: which beam each continues, and that id."""
        flat = candidates.reshape(-1)  # (num_beams * V,)
        order = np.argsort(-flat, kind="stable")[: len(self.log_prob)]
        self.log_prob = flat[order]
        return np.divmod(order, candidates.shape[1])


@no_grad()
def beam_search(
    next_scores: Callable[[Any], Tensor],
    prompt: ArrayLike,
    max_len: int,
    stop: int | ArrayLike | Collection[int] | None = None,
    pad: int = 0,
    num_beams: int = 4,
    length_penalty: float = 0.0,
    best: int = 1,
) -> list[list[tuple[Tensor, float]]]:
    """The `best` continuations of each sample that a beam search finds, with their values.

    See `generate`, which has the same arguments and returns the first of each. Of each sample
    (ids (T,), value), the highest value first, or fewer if fewer have ended.

    The search stops when no beginning can reach a higher value than the best that has ended. A
    log-probability is negative, and more ids only lower it. So the highest value that a beginning
    can reach is its log-probability now, divided by the largest divisor that may come: the one of
    max_len, or that of the next id if length_penalty is negative.
    Source: Wu et al., "Google's Neural Machine Translation System", 2016 (length penalty); Huang et
    al., "When to Finish? Optimal Beam Search for Neural Text Generation", 2017 (when it stops).

        >>> def next_scores(ids):  # 1 and 2 are likely, and 2 ends
        ...     return ta.tensor([[-9.0, 0.0, -1.0]] * len(ids))
        >>> for ids, value in beam_search(next_scores, [[1]], 3, stop=2, best=2)[0]:
        ...     print(ids.tolist(), round(value, 3))
        [1, 1, 1] -0.627
        [1, 2] -1.313
    """
    ids, given, stops = checked_start(next_scores, prompt, max_len, pad, stop)
    check_beams(num_beams, length_penalty)
    if check_size("best", best) > num_beams:
        raise ValueError(f"best is at most num_beams, {num_beams}, got {best}")
    getattr(next_scores, "start", lambda: None)()
    prompts = [row[:n] for row, n in zip(ids, given, strict=True)]
    samples = [Beams(prompt, max_len, num_beams, length_penalty, best) for prompt in prompts]
    select = getattr(next_scores, "select", lambda rows: None)
    rows = np.arange(len(ids)).repeat(num_beams)  # (R,), R = B * num_beams
    ids = ids[rows]
    select(rows)
    for t in range(given.min(), max_len):
        if not any(beams.may_improve(t) for beams in samples):
            break
        ids = with_column(ids, t)
        # (R,), whether a beam chooses the id behind its first t ids.
        is_read = np.concatenate([(b.log_prob > -np.inf) & (t >= b.given) for b in samples])
        logs = log_probabilities(next_scores, ids[:, :t], is_read, stops)  # (R, V)
        ends = np.isin(np.arange(logs.shape[1]), stops) | (t + 1 == max_len)  # (V,)
        rows = np.arange(len(ids))
        for i, beams in enumerate(samples):
            if t < beams.given:
                continue  # the prompt says the next id
            own = slice(i * num_beams, (i + 1) * num_beams)
            candidates = beams.log_prob[:, None] + logs[own]  # (num_beams, V)
            beams.keep_best(ids[own, :t], np.where(ends, candidates, -np.inf))
            continued, chosen = beams.go_on(np.where(ends, -np.inf, candidates))
            rows[own] = rows[own][continued]
            ids[own] = ids[rows[own]]
            ids[own, t] = chosen
        select(rows)
    return [[(wrap(found), value) for found, value in beams.ended] for beams in samples]


Processor = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Processed:
    """A `next_scores` whose scores go through processors first, one after another.

    processors: functions of ids (B, t) and scores (B, V), NumPy arrays, that return scores (B, V),
        such as `repetition_penalty(1.2)`; -inf excludes an id. In the place of the padding that a
        CausalLM masks stands an id of the prompt.

        >>> def next_scores(ids):
        ...     return ta.tensor([[0.0, 1.0, 2.0]] * len(ids))
        >>> scores = Processed(next_scores, repetition_penalty(3.0), min_length(3, stop=1))
        >>> scores(ta.tensor([[2, 2]])).tolist()
        [[0.0, -inf, 0.6666666865348816]]
    """

    def __init__(self, next_scores: Callable[[Any], Tensor], *processors: Processor) -> None:
        self.next_scores, self.processors = next_scores, processors
        for name in ("start", "select"):  # of a model with a cache
            if hasattr(next_scores, name):
                setattr(self, name, getattr(next_scores, name))

    def __call__(self, ids: ArrayLike) -> Tensor:
        scores, read = self.next_scores(ids).numpy(), to_device(array_like(ids, "ids"), "cpu")
        if (mask := getattr(self.next_scores, "prompt_mask", None)) is not None:
            read, (rows, places) = read.copy(), (~mask).nonzero()
            read[rows, places] = read[rows, mask.argmax(1)[rows]]
        for processor in self.processors:
            scores = processor(read, scores)
        return Tensor(scores)


def repetition_penalty(penalty: float) -> Processor:
    """A processor: the scores of ids that are there already, divided by `penalty`, or multiplied by
    it if they are negative. Source: Keskar et al., "CTRL", 2019."""
    check_number("penalty", penalty, 1e-9)  # because scores are divided by it

    def processor(ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        found = np.take_along_axis(scores, ids, 1)
        scores = scores.copy()
        np.put_along_axis(scores, ids, np.where(found < 0, found * penalty, found / penalty), 1)
        return scores

    return processor


def min_length(length: int, stop: int | ArrayLike | Collection[int]) -> Processor:
    """A processor: no id of `stop` before there are `length` ids, the prompt included."""
    stops = checked_stops(stop)
    check_size("length", length, 0)

    def processor(ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        if ids.shape[1] < length:
            scores = scores.copy()
            scores[:, stops] = -np.inf
        return scores

    return processor


def with_column(ids: np.ndarray, t: int) -> np.ndarray:
    """ids (B, t) with one more column; more columns are left as they are."""
    return ids if t < ids.shape[1] else np.concatenate([ids, ids[:, -1:]], axis=1)


def padded(samples: list[np.ndarray], pad: int) -> Tensor:
    """(B, T) with T the length of the longest sample, and `pad` behind the others."""
    ids = np.full((len(samples), max(map(len, samples))), pad, np.int64)
    for row, sample in zip(ids, samples, strict=True):
        row[: len(sample)] = sample
    return wrap(ids)


def log_probabilities(
    next_scores: Callable[[Any], Tensor], ids: np.ndarray, is_read: np.ndarray, stops: list[int]
) -> np.ndarray:
    """log softmax of the scores for the next id, in float64: (B, V).

    is_read (B,): where it is False, the scores are not read, and all ids are equally likely.
    """
    scores = next_scores(wrap(ids.copy()))
    of_ids = isinstance(scores, Tensor) and scores.ndim == 2 and len(scores) == len(ids)
    if not of_ids or not scores.shape[1]:
        raise ShapeError(
            f"next_scores takes ids (B, t) and gives a Tensor of scores (B, V), V >= 1: for ids "
            f"{ids.shape} it gave {getattr(scores, 'shape', scores)}"
        )
    if stops and max(stops) >= scores.shape[1]:
        raise ValueError(f"stop is an id from 0 to {scores.shape[1] - 1}, got {max(stops)}")
    numbers = scores.double().cpu().numpy()
    numbers[~is_read] = 0
    if not (numbers.max(axis=1) > -np.inf).all() or not (numbers < np.inf).all():
        raise ValueError("a score for the next id is NaN or inf, or those of a sample are all -inf")
    return wrap(numbers).log_softmax(-1).numpy()


def chosen_ids(
    logs: np.ndarray, temperature: float, top_k: int | None, top_p: float | None
) -> np.ndarray:
    """The next ids (B,): the likeliest, or drawn if there is a temperature."""
    if not temperature:
        return logs.argmax(axis=-1)
    weights = wrap(chances(logs, temperature, top_k, top_p))
    return weights.multinomial(1, replacement=True).numpy()[:, 0]


@quiet
def chances(
    logs: np.ndarray, temperature: float, top_k: int | None, top_p: float | None
) -> np.ndarray:
    """The probabilities (B, V) that ids are drawn with, from log-probabilities (B, V)."""
    weights = np.exp((logs - logs.max(axis=-1, keepdims=True)) / temperature)
    for row in weights:
        if top_k is not None and top_k < len(row):
            keep(row, wrap(row).topk(top_k).indices.numpy())
        if top_p is not None:
            keep(row, likeliest(row, top_p))
    return weights / weights.sum(axis=-1, keepdims=True)


def keep(weights: np.ndarray, places: np.ndarray) -> None:
    """Set the weights (V,) to 0 in all other places."""
    is_left_out = np.ones(len(weights), bool)
    is_left_out[places] = False
    weights[is_left_out] = 0


def likeliest(weights: np.ndarray, top_p: float) -> np.ndarray:
    """The places of the fewest of weights (V,) that have the share top_p of their sum.

    Only weights that may be among them are sorted, because sorting a vocabulary takes milliseconds.
    """
    total = weights.sum()
    # All that are smaller have less than 1 - top_p together; half of that, because sums round.
    least = (1 - top_p) / 2 * total / len(weights)
    places = (weights >= least).nonzero()[0]
    places = places[np.argsort(-weights[places], kind="stable")]  # equal ids stay in their order
    ordered = weights[places]
    before = (ordered.cumsum() - ordered) / total
    return places[before < top_p]


def checked_start(next_scores: Any, prompt: ArrayLike, max_len: int, pad: int, stop: Any) -> Any:
    """What generation begins with: the two of `checked_prompt`, and the ids that end a sample."""
    check_type("next_scores is a function of ids", next_scores, Callable)
    return *checked_prompt(prompt, max_len, pad), checked_stops(stop)


def checked_prompt(prompt: ArrayLike, max_len: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """ids (B, P) as int64, and how many of each sample are given (B,): `pad` fills up the rest."""
    pad = integer("pad", pad)
    ids = to_device(array_like(prompt, "prompt"), "cpu")
    if ids.size and ids.dtype.kind not in "iu":
        raise DtypeError(f"prompt holds ids, integers, got {ids.dtype}")
    if ids.ndim != 2 or ids.shape[1] > check_size("max_len", max_len):
        raise ShapeError(f"prompt has shape (B, P) with P <= max_len={max_len}, got {ids.shape}")
    # NumPy 2.0 crashes where integers of foreign byte order meet a number beyond their range.
    ids = ids.astype(ids.dtype.newbyteorder("="), copy=False)
    is_wrong = ((ids < 0) & (ids != pad)) | (ids > LARGEST_ID)
    if is_wrong.any() or not -LARGEST_ID <= pad <= LARGEST_ID:
        wrong = ids[is_wrong][0] if is_wrong.any() else pad
        raise ValueError(f"prompt holds ids from 0 to 2^63 - 1, then pad={pad}, got {wrong}")
    ids = ids.astype(np.int64)
    is_given = ids != pad
    given = is_given.sum(axis=1)
    if (is_given != (np.arange(ids.shape[1]) < given[:, None])).any() or not given.all():
        raise ValueError(
            f"each prompt has one id at least, and pad={pad} only after its last id; if prompts "
            "have this id, take another pad, such as -1"
        )
    return ids, given


def checked_stops(stop: Any) -> list[int]:
    """The ids that end a sample."""
    if stop is None:
        return []
    given = list(stop) if isinstance(stop, Set) else stop
    ids = to_device(array_like(given, "stop"), "cpu").reshape(-1)
    if ids.size and ids.dtype.kind not in "iu":
        raise DtypeError(f"stop is an integer id or several of them, got {stop!r} of {ids.dtype}")
    if ids.size and ids.min() < 0:
        raise ValueError(f"stop is an id of the vocabulary, so it is >= 0, got {ids.min()}")
    return ids.tolist()


def check_drawing(temperature: float, top_k: int | None, top_p: float | None) -> None:
    check_number("temperature", temperature, 0)
    if top_k is not None:
        check_size("top_k", top_k)
    if top_p is not None and not 0 < checked_probability(top_p, "top_p"):
        raise ValueError(f"top_p is a probability above 0, got {top_p!r}")
    if (top_k is not None or top_p is not None) and not temperature:
        raise ValueError("top_k and top_p are for drawing: give a temperature above 0 too")


def check_beams(num_beams: int, length_penalty: float) -> None:
    check_size("num_beams", num_beams)
    # Beyond these limits the power that divides may overflow.
    check_number("length_penalty", length_penalty, -10, 10)
