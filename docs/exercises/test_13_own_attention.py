"""Grades exercise 13."""

from typing import Any

import numpy as np
from grading import close, exercise, expect, run

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import GradcheckError

yours = exercise("ex_13_own_attention")
SIZE, HEADS, FARTHEST = 8, 2, 2


def module() -> nn.Module:
    """Yours in float64, with an r that has influence."""
    ta.manual_seed(13)
    found = yours.RelativeKeys(SIZE, HEADS, FARTHEST).to(ta.float64)
    found.r.data = ta.randn(*found.r.shape, dtype=ta.float64).data
    return found


def inputs(queries: int = 6, keys: int = 6) -> list[ta.Tensor]:
    rng = np.random.default_rng(13)
    shapes = [(2, n, SIZE) for n in (queries, keys, keys)]
    return [ta.tensor(rng.standard_normal(shape)) for shape in shapes]


def numbers_of(i: int, j: int) -> int:
    return min(max(j - i, -FARTHEST), FARTHEST) + FARTHEST


def by_loops(attention: nn.Module, arguments: list[ta.Tensor], change: str = "") -> np.ndarray:
    """What the formula gives, score by score, or what it gives with one change."""
    q, k, v = (
        attention.split(layer(x)).detach().numpy()
        for layer, x in zip((attention.W_q, attention.W_k, attention.W_v), arguments, strict=True)
    )
    r, d = attention.r.detach().numpy(), SIZE // HEADS
    scores = np.empty((*q.shape[:3], k.shape[2]))
    for b, h, i, j in np.ndindex(scores.shape):
        number = numbers_of(j, i) if change == "i - j" else numbers_of(i, j)
        near = k[b, h, i] if change == "keys" else q[b, h, i]
        position = near @ r[number] * (d**0.5 if change == "no root" else 1.0)
        if change == "no positions":
            position = 0.0
        scores[b, h, i, j] = (q[b, h, i] @ k[b, h, j] + position) / d**0.5
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    heads = weights @ v  # (B, H, Q, d)
    joined = ta.tensor(heads.transpose(0, 2, 1, 3).reshape(2, -1, SIZE))
    if change == "no W_o":
        return joined.numpy()
    return attention.W_o(joined).detach().numpy()


SENTENCES = {
    "no positions": "the distance has no influence: add the scores of the positions as a bias",
    "i - j": "key j is at the distance j - i from query i, not i - j",
    "keys": "the vector of a distance is multiplied with the query, not with the key",
    "no root": "the scores of the positions are divided by sqrt(d) too",
    "no W_o": "the heads are joined, but W_o is missing",
}


def called(attention: nn.Module, arguments: list[ta.Tensor], **options: Any) -> np.ndarray:
    found = run(attention.forward, *arguments, **options)
    right = (2, arguments[0].shape[1], SIZE)
    expect(isinstance(found, ta.Tensor), f"forward returns a Tensor, not {type(found).__name__}")
    expect(found.shape == right, f"forward gives {right}, yours {found.shape}")
    return found.detach().numpy()


def test_distance_numbers() -> None:
    found = np.asarray(run(yours.distance_numbers, 3, 6, FARTHEST))
    expect(found.shape == (3, 6), f"3 queries and 6 keys: (3, 6), not {found.shape}")
    expect(found.dtype.kind == "i", f"the numbers are integers, yours {found.dtype}")
    right = np.array([[numbers_of(i, j) for j in range(6)] for i in range(3)])
    mirrored = np.array_equal(found, 2 * FARTHEST - right)
    expect(not mirrored, "key j is at the distance j - i from query i, not i - j")
    expect((found >= 0).all(), "a negative number would count rows from the end of r: add farthest")
    expect((found <= 2 * FARTHEST).all(), "r has no row for so far a key: clip the distance")
    expect((found.diagonal() == FARTHEST).all(), "the distance 0 has the number `farthest`")
    expect(np.array_equal(found, right), f"the numbers of (3, 6) are\n{right}\nyours\n{found}")
    right = np.array([[numbers_of(i, j) for j in range(3)] for i in range(6)])
    expect(
        np.array_equal(run(yours.distance_numbers, 6, 3, FARTHEST), right),
        "the numbers of 6 queries and 3 keys are wrong: there may be more queries than keys",
    )


def test_position_scores() -> None:
    attention = module()
    q = ta.randn(2, HEADS, 3, SIZE // HEADS, dtype=ta.float64)
    found = run(attention.position_scores, q, 5)
    expect(found.shape == (2, HEADS, 3, 5), f"they are (B, H, Q, K), not {found.shape}")
    right = np.empty(found.shape)
    for b, h, i, j in np.ndindex(right.shape):
        right[b, h, i, j] = q.numpy()[b, h, i] @ attention.r.detach().numpy()[numbers_of(i, j)]
    expect(
        not close(found.detach().numpy(), right / (SIZE // HEADS) ** 0.5),
        "position_scores are not yet divided by sqrt(d): forward does it",
    )
    expect(close(found.detach().numpy(), right), "the score of query i and key j is q_i . r[j - i]")


def test_formula() -> None:
    for sizes in ((6, 6), (3, 6)):
        attention, arguments = module(), inputs(*sizes)
        found, right = called(attention, arguments), by_loops(attention, arguments)
        for change, sentence in SENTENCES.items():
            expect(not close(found, by_loops(attention, arguments, change)), sentence)
        expect(
            close(found, right),
            "the result is not that of the formula: each head is softmax(...) v, and the heads are "
            "joined by transpose and flatten",
        )


def weights_of(attention: nn.Module) -> ta.Tensor:
    weights = getattr(attention, "weights", None)
    expect(isinstance(weights, ta.Tensor), "the weights of the call are not in self.weights")
    return weights


def test_weights() -> None:
    attention, arguments = module(), inputs(3, 6)
    called(attention, arguments)
    weights = weights_of(attention)
    expect(weights.shape == (2, HEADS, 3, 6), f"weights are (B, H, Q, K), not {weights.shape}")
    expect(not weights.requires_grad, "self.weights holds the graph of the call: detach it")
    expect(close(weights.numpy().sum(-1), np.ones((2, HEADS, 3))), "weights do not sum to 1")


def test_masks() -> None:
    attention, arguments = module(), inputs()
    mask = ta.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]).bool()
    for options, name in (({"mask": mask}, "mask"), ({"valid_lens": [6, 3]}, "valid_lens")):
        before = called(attention, arguments, **options)
        changed = [arguments[0], *(x.clone() for x in arguments[1:])]
        for x in changed[1:]:
            x[1, 3:] = 50.0
        after = called(attention, changed, **options)
        expect(close(before, after), f"an invisible key has influence: pass {name} on")


def test_causal() -> None:
    attention, arguments = module(), inputs()
    changed = [x.clone() for x in arguments]
    for x in changed:
        x[:, 5] = 50.0
    before, after = (called(attention, x, is_causal=True) for x in (arguments, changed))
    expect(close(before[:, :5], after[:, :5]), "is_causal=True, but the future has influence")
    mask = ta.tensor([[1, 1, 0, 1, 1, 1], [1, 1, 1, 0, 1, 1]]).bool()
    called(attention, arguments, mask=mask, is_causal=True)
    hidden = weights_of(attention).numpy()[0, :, :, 2]
    expect(not hidden.any(), "with is_causal=True the mask is forgotten")


def test_gradients() -> None:
    attention, arguments = module(), inputs(3, 4)
    run(attention.forward, *arguments)  # says so if it is not written
    for x in arguments:
        x.requires_grad_()
    try:
        ta.gradcheck(attention, arguments, fast=True)
    except GradcheckError as error:
        expect(False, f"a gradient is not that of finite differences: {error}")


def test_in_an_encoder() -> None:
    feed_forward = nn.PositionwiseFeedForward(SIZE, 16)
    layer = nn.EncoderLayer(SIZE, yours.RelativeKeys(SIZE, HEADS, FARTHEST), feed_forward)
    encoder, x, order = nn.Encoder(layer, 2).eval(), ta.randn(2, 5, SIZE), [1, 0, 2, 3, 4]
    found, other = (run(encoder.forward, y, valid_lens=[5, 3]) for y in (x, x[:, order]))
    expect(found.shape == (2, 5, SIZE), f"an encoder gives (2, 5, {SIZE}), not {found.shape}")
    expect(
        not close(found[:, order].detach().numpy(), other.detach().numpy(), 1e-6),
        "two inputs change places, and so do the outputs: positions have no influence",
    )
