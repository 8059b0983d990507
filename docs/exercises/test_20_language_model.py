"""Grades exercise 20."""

from pathlib import Path
from typing import Any

import numpy as np
from grading import close, exercise, expect, needs, run

import tinyattn as ta

yours = exercise("ex_20_language_model")
rng = np.random.default_rng(20)
FOLDER = Path(__file__).parent / "induction_model"
PERIOD = 12
IDS = np.tile(rng.integers(64, size=(1, PERIOD)), 3).tolist()
W = {name: rng.standard_normal((3, 5)) for name in ("W_q", "W_k", "W_v")}
W["position"] = rng.standard_normal((9, 5))
X = rng.standard_normal((6, 5))
LOGITS = np.array([0.5, 2.0, -1.0, 1.4, 0.0, 1.0])


def test_the_scores() -> None:
    weights = np.tril(rng.random((3, 14, 14)))
    i = np.arange(5, 14)
    found = run(yours.induction_scores, weights.copy(), 5)
    copy = "that is the weight of the earlier copy itself, and not of the token after it"
    further = "the key is one too many: it is i - period + 1"
    mistakes = {copy: i - 5, further: i - 3}
    mistakes["the key is two too few: the token after the copy is i - period + 1"] = i - 6
    mistakes["that is the weight of the token before the query: use the period"] = i - 1
    for sentence, keys in mistakes.items():
        expect(not close(found, weights[:, i, keys].mean(1)), sentence)
    right = weights[:, i, i - 4]
    exchanged = "queries and keys are exchanged: weights[h, i, j] is what query i gives to key j"
    expect(not close(found, weights[:, i - 4, i].mean(1)), exchanged)
    expect(not close(found, right.sum(1)), "that is the sum: take the mean over the positions")
    all_of_them = "the sum is divided by N: only N - period positions have an earlier copy"
    expect(not close(found, right.sum(1) / 14), all_of_them)
    expect(not close(found, right[:, 1:].mean(1)), "the first query is `period`: it is left out")
    expect(not close(found, right[:, :-1].mean(1)), "the last query is N - 1: it is left out")
    expect(not close(found, right.mean()), "each head has its own score: the result is (H,)")
    expect(close(found, right.mean(1)), "the scores are not means of weights[h, i, i - period + 1]")


def model_with(heads: list[int], before: int, after: int = 0) -> ta.models.CausalLM:
    """The small model with the heads of its layer 1 in this order, between layers that add 0."""
    small = ta.models.CausalLM.from_pretrained(FOLDER)
    model = ta.models.CausalLM({**small.config, "num_hidden_layers": before + after + 2}).eval()
    state = small.state_dict()
    layers = list(model.encoder.layers)
    for layer in layers[:before] + layers[before + 2 :]:
        for part in (layer.self_attn.W_o, layer.feed_forward.w_2):
            part.weight.data = ta.zeros_like(part.weight)
    for i, layer in enumerate(layers[before : before + 2]):
        prefix = f"encoder.layers.{i}."
        layer.load_state_dict(
            {k.removeprefix(prefix): x for k, x in state.items() if k.startswith(prefix)}
        )
    for part in ("word", "head"):
        getattr(model, part).weight.data = getattr(small, part).weight.detach()
    model.encoder.norm.load_state_dict(small.encoder.norm.state_dict())
    attention = layers[before + 1].self_attn
    rows = np.arange(64).reshape(len(heads), -1)[heads].reshape(-1)
    for part in (attention.W_q, attention.W_k, attention.W_v):
        part.weight.data = part.weight.detach()[rows]
    attention.W_o.weight.data = attention.W_o.weight.detach()[:, rows]
    return model


def strongest(model: ta.models.CausalLM, distance: int) -> tuple[int, int]:
    """(layer, head) with the largest mean weight of the key `distance` before the query."""
    layers = range(len(model.encoder.layers))
    with ta.models.observed(model, weights=layers) as seen, ta.no_grad():
        model(IDS)
    i = np.arange(PERIOD, len(IDS[0]))
    scores = [seen.weights[layer].numpy()[0][:, i, i - distance].mean(1) for layer in layers]
    layer, head = np.unravel_index(np.argmax(scores), np.shape(scores))
    return int(layer), int(head)


def test_the_head() -> None:
    needs(test_the_scores)
    for heads, before, after in (
        ([3, 2, 1, 0], 0, 0),
        ([2, 3, 0, 1], 1, 0),
        ([2, 3, 0, 1], 0, 1),
    ):
        model = model_with(heads, before, after)
        right, previous = strongest(model, PERIOD - 1), strongest(model, 1)
        found = run(yours.induction_head, model, IDS, PERIOD)
        hooks = any(part._hooks for part in model.modules())
        expect(not hooks, "a hook is left in the model: use `observed` in a with-block")
        is_pair = isinstance(found, (tuple, list)) and len(found) == 2
        expect(is_pair, "induction_head returns two numbers: (layer, head)")
        found = tuple(map(int, found))
        expect(found != right[::-1] or found == right, "that is (head, layer): exchange them")
        expect(found != previous, "that is the previous-token head: use induction_scores")
        fixed = "this model has three layers: look at all of model.encoder.layers"
        expect(before + after == 0 or found[0] == right[0], fixed)
        expect(found == right, f"the induction head of this model is {right}, not {found}")


def attended(
    x: np.ndarray,
    first: int = 0,
    visible: np.ndarray | None = None,
    scale: float = 3**0.5,
    hidden: float = -np.inf,
    axis: int = 1,
) -> np.ndarray:
    """Attention of all positions at once, the first of which has the position `first`."""
    x = x + W["position"][first : first + len(x)]
    q, k, v = (x @ W[name].T for name in ("W_q", "W_k", "W_v"))
    visible = np.tri(len(x), dtype=bool) if visible is None else visible
    scores = np.where(visible, q @ k.T / scale, hidden)
    e = np.exp(scores - scores.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True) @ v


def attend(x: np.ndarray, cache: Any) -> tuple[np.ndarray, Any]:
    """What your function returns for copies, which it must not change."""
    given = None if cache is None else tuple(part.copy() for part in cache)
    found = run(yours.attend_with_cache, x.copy(), W, given)
    pair = isinstance(found, (tuple, list)) and len(found) == 2
    expect(pair, "attend_with_cache returns two things: out and the new cache")
    out, new = found
    two = isinstance(new, (tuple, list)) and len(new) == 2
    expect(two, "the new cache is a pair: keys and values")
    same = given is None or all(map(np.array_equal, given, cache))
    expect(same, "the arrays of the old cache are changed: np.concatenate makes new ones")
    return np.asarray(out), new


def test_without_a_cache() -> None:
    out, (keys, values) = attend(X, None)
    expect(out.shape == (6, 3), f"out is (N, d), here (6, 3), and yours is {out.shape}")
    everything = np.ones((6, 6), bool)
    expect(
        not close(out, attended(X, visible=everything)),
        "a new position sees those after it: new positions need a causal mask among themselves",
    )
    expect(not close(out, attended(X, scale=1.0)), "the scores are not divided by sqrt(d)")
    wide = attended(X, scale=X.shape[1] ** 0.5)
    expect(not close(out, wide), "the scores are divided by sqrt(D), and the rows of q have d")
    zeros = attended(X, hidden=0.0)
    expect(not close(out, zeros), "a hidden score is -inf before softmax: with 0 it gets a weight")
    expect(not close(out, attended(X, axis=0)), "softmax is over the keys, the last axis")
    expect(not close(out, attended(X - W["position"][:6])), "the positions are not added to x")
    expect(close(out, attended(X)), "the first call, without a cache, is not causal attention")
    x = X + W["position"][:6]
    plain = close(keys, X @ W["W_k"].T) or close(values, X @ W["W_v"].T)
    expect(not plain, "keys and values are made of x with its positions")
    right = close(keys, x @ W["W_k"].T) and close(values, x @ W["W_v"].T)
    expect(right, "the cache is not (keys, values), each (T, d)")


def test_with_a_cache() -> None:
    needs(test_without_a_cache)
    whole, cache, first = attended(X), None, 0
    for end in (2, 3, 6):
        old = cache
        out, cache = attend(X[first:end], cache)
        number = len(cache[0])
        forgets = number == end - first < end
        expect(
            not forgets, "the old keys and values are forgotten: the cache has the new ones only"
        )
        every = f"the cache has {number} positions after {end}: it has all of them up to now"
        expect(number == end, every)
        expect(out.shape == (end - first, 3), "out has the new positions only: a row for each")
        if old is not None:
            behind = not close(cache[0][: len(old[0])], old[0])
            expect(not behind, "the new keys come first in the cache: they come after the old ones")
            k = X[first:end] @ W["W_k"].T + (W["position"][: end - first] @ W["W_k"].T)
            again = (
                "positions begin at 0 again: the first new one is the number of cached positions"
            )
            expect(not close(cache[0][first:], k), again)
            alone = attended(X[first:end], first)
            expect(not close(out, alone), "new positions see the new keys only, and not the cache")
            masked = np.tri(end, dtype=bool)
            masked[first:] = np.tri(end - first, end, dtype=bool)
            no_past = "the mask counts new queries from 0: query i sees the keys 0 to past + i"
            expect(not close(out, attended(X[:end], visible=masked)[first:]), no_past)
            masked[first:] = True
            everything = "with a cache, a new position sees later ones: mask them here too"
            later = attended(X[:end], visible=masked)[first:]
            expect(end - first == 1 or not close(out, later), everything)
        expect(close(out, whole[first:end]), "with a cache the result is not that without one")
        first = end


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def nucleus(p: np.ndarray, top_p: float, more: int = 0) -> np.ndarray:
    """True at the fewest of p that add up to top_p, and at `more` of them."""
    order = np.argsort(-p)
    number = int((np.cumsum(p[order]) < top_p).sum()) + 1 + more
    return np.isin(np.arange(len(p)), order[:number])


def shared(p: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """p where it is kept, with the sum 1."""
    return np.where(kept, p, 0) / p[kept].sum()


def test_the_temperature() -> None:
    found = run(yours.next_probabilities, LOGITS.copy(), 0.5, 1.0)
    right = softmax(LOGITS / 0.5)
    mistakes = {
        "the temperature has no influence": softmax(LOGITS),
        "the scores are multiplied by the temperature: divide them": softmax(LOGITS * 0.5),
        "softmax comes before the temperature: divide the scores, and then take softmax": softmax(
            softmax(LOGITS) / 0.5
        ),
    }
    after = softmax(LOGITS) / 0.5
    expect(not close(found, after), "the probabilities are divided: divide the scores")
    for sentence, value in mistakes.items():
        expect(not close(found, value), sentence)
    in_order = "they are sorted: p[i] is the probability of id i"
    expect(not close(found, np.sort(right)[::-1]), in_order)
    none_left = "no id is left with top_p 1: keep ids until the sum of their probabilities is top_p"
    expect(np.isfinite(found).all(), none_left)
    dropped = np.shape(found) == right.shape and np.min(found) == 0
    expect(not dropped, "an id is left out with top_p 1: the id that crosses top_p stays too")
    expect(close(found, right), "with top_p 1 the result is not softmax(logits / temperature)")
    found = run(yours.next_probabilities, LOGITS * 1000, 1.0, 1.0)
    expect(np.isfinite(found).all(), "large scores give nan: subtract the maximum before exp")
    found = run(yours.next_probabilities, LOGITS.copy(), 0.0, 0.9)
    greedy = "with the temperature 0 the largest score has the probability 1, and the others 0"
    expect(close(found, np.eye(6)[1]), greedy)
    found = np.asarray(run(yours.next_probabilities, np.zeros(2), 0.0, 0.9))
    expect(not close(found.sum(), 2), "of two scores that are the largest one alone gets 1")


def test_top_p() -> None:
    needs(test_the_temperature)
    for temperature, top_p in ((1.0, 0.5), (0.25, 0.9), (1.0, 0.05)):
        p = softmax(LOGITS / temperature)
        found = np.asarray(run(yours.next_probabilities, LOGITS.copy(), temperature, top_p))
        expect(found.shape == p.shape, "the result is (V,): ids that are left out have 0")
        expect(np.isfinite(found).all(), "no id is left: the likeliest one always stays")
        right = nucleus(p, top_p)
        expect(not close(found, np.where(right, p, 0)), "the sum is not 1: divide by it")
        mistakes = {
            "top_p has no influence": p > 0,
            "the id that crosses top_p is left out: with it the sum is top_p or more": (
                nucleus(p, top_p, -1)
            ),
            "one id too many stays": nucleus(p, top_p, 1),
            "top_p is taken before the temperature: take it of softmax(logits / temperature)": (
                nucleus(softmax(LOGITS), top_p)
            ),
            "ids are added up from the least likely one: begin with the likeliest": (
                np.isin(p, sorted(p)[: int((np.cumsum(sorted(p)) < top_p).sum()) + 1])
            ),
            "ids are added up in their own order: begin with the likeliest": (
                np.cumsum(p) - p < top_p
            ),
        }
        for sentence, kept in mistakes.items():
            other = kept.any() and (kept != right).any()
            expect(not other or not close(found, shared(p, kept)), sentence)
        expect(close(found, shared(p, right)), f"with top_p {top_p} the wrong ids stay")
    found = np.asarray(run(yours.next_probabilities, np.zeros(2), 1.0, 0.5))
    enough = "an id stays although those before it add up to top_p: top_p or more is enough"
    expect(not close(found, [0.5, 0.5]), enough)
