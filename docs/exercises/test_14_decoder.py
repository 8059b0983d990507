"""Grades exercise 14."""

import numpy as np
from grading import close, exercise, expect, needs, run

yours = exercise("ex_14_decoder")
rng = np.random.default_rng(14)
LOGITS = rng.standard_normal((2, 5, 6))
IDS = np.array([[1, 4, 2, 5, 3], [1, 3, 5, 4, 2]])


def minus_logs(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """-log p of each id (B, T), by the scores (B, T, V) of the same position."""
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(p, ids[..., None], -1)[..., 0])


def loss(logits: np.ndarray, ids: np.ndarray, pad: int) -> float:
    given = [logits.copy(), ids.copy()]
    found = run(yours.next_token_loss, *given, pad)
    same = all(map(np.array_equal, given, (logits, ids)))
    expect(same, "next_token_loss changed its arguments: write to new arrays")
    return found


def test_the_target_is_the_next_id() -> None:
    found = loss(LOGITS, IDS, 0)
    right = minus_logs(LOGITS[:, :-1], IDS[:, 1:])
    expect(np.ndim(found) == 0, f"the loss is one number, not an array of shape {np.shape(found)}")
    for same in (minus_logs(LOGITS, IDS), minus_logs(LOGITS[:, :-1], IDS[:, :-1])):
        expect(
            not close(found, same.mean()),
            "the scores of position t are compared with id t, which the model has read: shift",
        )
    expect(
        not close(found, minus_logs(LOGITS[:, 1:], IDS[:, :-1]).mean()),
        "shifted in the wrong direction: the scores of position t are compared with id t - 1",
    )
    expect(not close(found, right.sum()), "the loss is a sum: take the mean")
    expect(not close(found, -right.mean()), "the loss is negative: it is the mean of -log p")
    expect(not close(found, right.mean() / np.log(2)), "the loss is in bits: np.log, not np.log2")
    expect(close(found, right.mean()), "the loss is not the mean of -log p(next id)")


def test_padding_is_left_out() -> None:
    ids = np.array([[1, 4, 2, 0, 0], [1, 3, 5, 4, 2]])
    found = loss(LOGITS, ids, 0)
    losses, counted = minus_logs(LOGITS[:, :-1], ids[:, 1:]), ids[:, 1:] != 0
    if not close(found, losses[counted].mean()):
        needs(test_the_target_is_the_next_id)
    expect(not close(found, losses.mean()), "a position whose next id is padding is in the mean")
    expect(
        not close(found, (losses * counted).mean()),
        "padding adds no loss, but it is counted: divide by the number of ids that are no padding",
    )
    expect(
        not close(found, losses[ids[:, :-1] != 0].mean()),
        "left out where the id that is read is padding: leave out where the next id is",
    )
    samples = (losses * counted).sum(1) / counted.sum(1)
    expect(
        not close(found, samples.mean()),
        "the mean is that of the samples' means: take one mean of all positions that count",
    )
    expect(close(found, losses[counted].mean()), "with padding the loss is wrong")
    ids = np.array([[0, 0, 1, 4, 2], [1, 3, 5, 4, 2]])
    found = loss(LOGITS, ids, 0)
    right = minus_logs(LOGITS[:, :-1], ids[:, 1:])[ids[:, 1:] != 0].mean()
    expect(
        close(found, right),
        "with padding in front the loss is wrong: a position counts where its next id is no "
        "padding, whatever it has read",
    )
    ids = np.array([[1, 4, 2, 5, 5], [1, 3, 0, 4, 2]])
    found = loss(LOGITS, ids, 5)
    right = minus_logs(LOGITS[:, :-1], ids[:, 1:])[ids[:, 1:] != 5].mean()
    expect(close(found, right), "with pad=5 the loss is wrong: compare with `pad`, not with 0")


def test_large_scores() -> None:
    found = loss(LOGITS * 1000, IDS, 0)
    x = LOGITS[:, :-1] * 1000
    x -= x.max(-1, keepdims=True)
    right = np.log(np.exp(x).sum(-1)) - np.take_along_axis(x, IDS[:, 1:, None], -1)[..., 0]
    if not close(found, right.mean()):
        needs(test_the_target_is_the_next_id)
    expect(
        close(found, right.mean()),
        f"large scores give {found}: log p is x - max - log(sum(exp(x - max)))",
    )


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    out = np.empty((*q.shape[:2], v.shape[2]))
    for b, t in np.ndindex(*q.shape[:2]):
        scores = k[b, : t + 1] @ q[b, t] * scale
        e = np.exp(scores - scores.max())
        out[b, t] = e @ v[b, : t + 1] / e.sum()
    return out


def attend(*arrays: np.ndarray) -> np.ndarray:
    given = [x.copy() for x in arrays]
    found = run(yours.causal_attention, *given)
    same = all(map(np.array_equal, given, arrays))
    expect(same, "causal_attention changed its arguments: write to new arrays")
    return found


def test_no_position_sees_a_later_one() -> None:
    q, k, v = rng.standard_normal((3, 2, 4, 3))
    before = attend(q, k, v)
    expect(np.shape(before) == v.shape, f"v {v.shape} gives {v.shape}, not {np.shape(before)}")
    e = np.exp(q @ k.swapaxes(1, 2) / 3**0.5 * np.tri(4))
    expect(
        not close(before, e / e.sum(-1, keepdims=True) @ v),
        "the scores of later positions are 0, which hides nothing, because exp(0) = 1: set them to "
        "-np.inf",
    )
    expect(np.isfinite(before[:, 0]).all(), "position 0 sees nothing: t sees 0 to t, itself too")
    k[:, 2:], v[:, 2:] = 5.0, -7.0
    moved = attend(q, k, v)
    expect(close(before[:, :2], moved[:, :2]), "positions 0 and 1 move when later ones change")
    expect(not close(before[:, 2], moved[:, 2]), "position 2 sees neither itself nor earlier ones")


def test_attention() -> None:
    q, k = rng.standard_normal((2, 2, 4, 3))
    v = rng.standard_normal((2, 4, 5))
    found = attend(q, k, v)
    expect(np.shape(found) == (2, 4, 5), f"values of width 5 give (2, 4, 5), not {np.shape(found)}")
    ones = attend(q, k, np.ones((2, 4, 1)))
    e = np.exp(q @ k.swapaxes(1, 2) / 3**0.5)
    after = (e * np.tri(4)).sum(-1, keepdims=True) / e.sum(-1, keepdims=True)
    expect(
        not close(ones, after),
        "weights do not sum to 1: hide later keys before softmax, not after it",
    )
    expect(
        close(ones, np.ones((2, 4, 1))),
        "the weights of a position do not sum to 1: take softmax over the keys, the last axis",
    )
    expect(not close(found, reference(q, k, v, 1.0)), "scores are not divided by sqrt(d)")
    expect(
        not close(found, reference(q, k, v, 1 / 3)), "the scores are divided by d, not by sqrt(d)"
    )
    expect(
        not close(found, reference(q, k, v, 5**-0.5)),
        "the scores are divided by the root of the width of v: d is the width of q and k",
    )
    expect(close(found, reference(q, k, v, 3**-0.5)), "the output is not that of causal attention")
    large = attend(100 * q, 100 * k, v)
    expect(
        np.isfinite(large).all(),
        "large scores give nan: subtract the maximum of the visible scores of each row",
    )
    expect(
        close(large, reference(100 * q, 100 * k, v, 3**-0.5)),
        "large scores give wrong weights: change scores only by subtracting the maximum of the "
        "visible scores of their row",
    )
    far = np.full((2, 4, 3), 1e20)
    expect(
        close(attend(far, -far, v), reference(far, -far, v, 3**-0.5)),
        "scores of -1e40 get wrong weights: a number that means invisible is larger than they are, "
        "so use -np.inf",
    )


def drawn(logits: np.ndarray, k: int, temperature: float) -> np.ndarray:
    """How often each id is drawn, in 1,000 numbers u between 0 and 1."""
    ids = [
        run(yours.draw_top_k, logits.copy(), k, temperature, u)
        for u in (np.arange(1000) + 0.5) / 1000
    ]
    expect(min(ids) >= 0 and max(ids) < len(logits), f"{len(logits)} scores, but id {max(ids)}")
    return np.bincount(ids, minlength=len(logits)) / 1000


def chances(logits: np.ndarray, k: int, temperature: float) -> np.ndarray:
    p = np.exp(logits / temperature) * (np.argsort(np.argsort(-logits)) < k)
    return p / p.sum()


def test_only_the_likeliest_are_drawn() -> None:
    logits = np.array([0.0, 1.5, -1.0, 2.0, 0.5])
    greedy = drawn(logits, 1, 1.0)
    number = np.count_nonzero(greedy)
    expect(number == 1, f"k=1 draws {number} different ids: only the k likeliest may be drawn")
    expect(
        greedy[2] != 1,
        "k=1 gives the least likely id: take the first k of np.argsort(-logits), or the last k of "
        "np.argsort(logits)",
    )
    expect(greedy[0] != 1, "k=1 gives id 0, the place among the k: return the id of logits")
    expect(greedy[3] == 1, "k=1 must give the likeliest id, whatever u is")
    found = drawn(logits, 3, 1.0)
    expect(np.count_nonzero(found) > 1, "k=3 gives the same id for each u: the id must depend on u")
    expect(not found[[0, 2]].any(), "an id is drawn that is not among the k likeliest")
    expect(found[[1, 3, 4]].all(), "one of the k likeliest ids is never drawn")


def test_how_often() -> None:
    logits = np.array([0.0, 1.5, -1.0, 2.0, 0.5])
    for k, temperature in ((5, 1.0), (3, 1.0), (5, 0.5), (3, 2.0)):
        found = drawn(logits, k, temperature)
        if not close(found, chances(logits, k, temperature), 2e-3):
            needs(test_only_the_likeliest_are_drawn)
        inverse = chances(logits, k, 1 / temperature)
        if temperature != 1:
            expect(not close(found, inverse, 2e-3), "divide the scores by temperature")
            plain = chances(logits, k, 1.0)
            expect(not close(found, plain, 2e-3), "the temperature has no influence")
        expect(
            close(found, chances(logits, k, temperature), 2e-3),
            f"k={k}, temperature={temperature}: the ids are drawn with the shares {found}, not "
            f"{chances(logits, k, temperature).round(3)}: softmax over the k likeliest ids alone",
        )


def test_u_is_0() -> None:
    found = run(yours.draw_top_k, np.array([-5.0, 3.0, 2.0]), 2, 1.0, 0.0)
    if found == 0:
        needs(test_only_the_likeliest_are_drawn)
    expect(found != 0, f"u = 0 draws id {found} of probability 0: more than u, not u or more")


def test_the_order_of_ids() -> None:
    logits = np.log([0.1, 0.5, 0.4])
    found = [run(yours.draw_top_k, logits, 3, 1.0, u) for u in (0.05, 0.3, 0.8)]
    if found != [0, 1, 2]:
        needs(test_only_the_likeliest_are_drawn)
    expect(
        found == [0, 1, 2],
        f"p = 0.1, 0.5, 0.4 and u = 0.05, 0.3, 0.8 give the ids 0, 1, 2, not {found}: add up in "
        "the order of the ids, not of the probabilities",
    )


def test_equal_scores() -> None:
    found = np.count_nonzero(drawn(np.array([1.0, 2.0, 1.0, 1.0, 0.0]), 2, 1.0))
    if found != 2:
        needs(test_only_the_likeliest_are_drawn)
    expect(
        found == 2,
        f"k=2 draws {found} different ids where several scores are equal: take k ids, not all ids "
        "with the score of the k-th",
    )


def test_u_just_below_1() -> None:
    """Ids from the likeliest to the last one, which has probability 0."""
    u = float(np.nextafter(1.0, 0.0))
    for seed in range(50):
        logits = -np.sort(np.random.default_rng(seed).standard_normal(12))
        logits[-1] = -9.0
        found = run(yours.draw_top_k, logits.copy(), 11, 1.0, u)
        expect(
            found == 10,
            f"u just below 1 gives id {found}, not the last one with a probability: rounding may "
            "leave the sum of all probabilities below u, so compare with u times that sum",
        )


def test_large_scores_are_drawn() -> None:
    logits = np.array([0.0, 2000.0, 1999.0])
    found = [run(yours.draw_top_k, logits.copy(), 2, 1.0, u) for u in (0.1, 0.6, 0.9)]
    if found != [1, 1, 2]:
        needs(test_only_the_likeliest_are_drawn)
    expect(found == [1, 1, 2], "scores of 2000 are drawn wrongly: subtract the maximum before exp")


def test_input_is_not_changed() -> None:
    logits = np.array([0.0, 1.5, -1.0])
    run(yours.draw_top_k, logits, 1, 1.0, 0.5)
    expect(logits.tolist() == [0.0, 1.5, -1.0], "draw_top_k changed the scores of its caller")
