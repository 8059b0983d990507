"""Grades exercise 14."""

import numpy as np
from grading import close, exercise, expect, run

yours = exercise("ex_14_decoder")
rng = np.random.default_rng(14)
LOGITS = rng.standard_normal((2, 5, 6))
IDS = np.array([[1, 4, 2, 5, 3], [1, 3, 5, 4, 2]])


def minus_logs(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """-log p of each id (B, T), by the scores (B, T, V) of the same position."""
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(p, ids[..., None], -1)[..., 0])


def test_the_target_is_the_next_id() -> None:
    found = run(yours.next_token_loss, LOGITS, IDS, 0)
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
    expect(close(found, right.mean()), "the loss is not the mean of -log p(next id)")


def test_padding_is_left_out() -> None:
    ids = np.array([[1, 4, 2, 0, 0], [1, 3, 5, 4, 2]])
    found = run(yours.next_token_loss, LOGITS, ids, 0)
    losses, counted = minus_logs(LOGITS[:, :-1], ids[:, 1:]), ids[:, 1:] != 0
    expect(not close(found, losses.mean()), "a position whose next id is padding is in the mean")
    expect(
        not close(found, (losses * counted).mean()),
        "padding adds no loss, but it is counted: divide by the number of ids that are no padding",
    )
    expect(
        not close(found, losses[ids[:, :-1] != 0].mean()),
        "left out where the id that is read is padding: leave out where the next id is",
    )
    expect(close(found, losses[counted].mean()), "with padding the loss is wrong")


def test_large_scores() -> None:
    found = run(yours.next_token_loss, LOGITS * 1000, IDS, 0)
    expect(
        np.isfinite(found),
        f"large scores give {found}: log p is x - max - log(sum(exp(x - max)))",
    )


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    out = np.empty((*q.shape[:2], v.shape[2]))
    for b, t in np.ndindex(*q.shape[:2]):
        e = np.exp(k[b, : t + 1] @ q[b, t] * scale)
        out[b, t] = e @ v[b, : t + 1] / e.sum()
    return out


def test_no_position_sees_a_later_one() -> None:
    q, k, v = rng.standard_normal((3, 2, 4, 3))
    before = run(yours.causal_attention, q, k, v)
    expect(np.shape(before) == v.shape, f"v {v.shape} gives {v.shape}, not {np.shape(before)}")
    expect(np.isfinite(before[:, 0]).all(), "position 0 sees nothing: t sees 0 to t, itself too")
    k[:, 2:], v[:, 2:] = 5.0, -7.0
    moved = run(yours.causal_attention, q, k, v)
    expect(close(before[:, :2], moved[:, :2]), "positions 0 and 1 move when later ones change")
    expect(not close(before[:, 2], moved[:, 2]), "position 2 sees neither itself nor earlier ones")


def test_attention() -> None:
    q, k = rng.standard_normal((2, 2, 4, 3))
    v = rng.standard_normal((2, 4, 5))
    found = run(yours.causal_attention, q, k, v)
    expect(np.shape(found) == (2, 4, 5), f"values of width 5 give (2, 4, 5), not {np.shape(found)}")
    ones = run(yours.causal_attention, q, k, np.ones((2, 4, 1)))
    expect(
        close(ones, np.ones((2, 4, 1))),
        "weights do not sum to 1: hide later keys before softmax, not after it",
    )
    expect(not close(found, reference(q, k, v, 1.0)), "scores are not divided by sqrt(d)")
    expect(close(found, reference(q, k, v, 3**-0.5)), "the output is not that of causal attention")
    large = run(yours.causal_attention, 100 * q, 100 * k, v)
    expect(np.isfinite(large).all(), "large scores give nan: subtract the maximum of each row")


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
    expect(greedy[0] != 1, "k=1 gives id 0, the place among the k: return the id of logits")
    expect(greedy[3] == 1, "k=1 must give the likeliest id, whatever u is")
    found = drawn(logits, 3, 1.0)
    expect(not found[[0, 2]].any(), "an id is drawn that is not among the k likeliest")
    expect(found[[1, 3, 4]].all(), "one of the k likeliest ids is never drawn")


def test_how_often() -> None:
    logits = np.array([0.0, 1.5, -1.0, 2.0, 0.5])
    for k, temperature in ((5, 1.0), (3, 1.0), (5, 0.5), (3, 2.0)):
        found = drawn(logits, k, temperature)
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
    expect(found == 1, f"u = 0 draws id {found} of probability 0: more than u, not u or more")


def test_large_scores_are_drawn() -> None:
    found = run(yours.draw_top_k, np.array([0.0, 2000.0, 1999.0]), 2, 1.0, 0.9)
    expect(found == 2, "scores of 2000 are drawn wrongly: subtract the maximum before exp")


def test_input_is_not_changed() -> None:
    logits = np.array([0.0, 1.5, -1.0])
    run(yours.draw_top_k, logits, 1, 1.0, 0.5)
    expect(logits.tolist() == [0.0, 1.5, -1.0], "draw_top_k changed the scores of its caller")
