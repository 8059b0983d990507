"""Grades exercise 13."""

import warnings
from typing import Any

import numpy as np
from grading import close, exercise, expect, needs, run

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import GradcheckError

yours = exercise("ex_13_own_attention")
SIZE, HEADS, FARTHEST = 8, 2, 2
ROOT = (SIZE / HEADS) ** 0.5


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


def by_loops(
    attention: nn.Module,
    arguments: list[ta.Tensor],
    *,
    products: float = ROOT,
    positions: float = ROOT,
    mirrored: bool = False,
    of_keys: bool = False,
    axis: int = -1,
    transposed: bool = True,
    projected: bool = True,
) -> np.ndarray:
    """What the formula gives, score by score, or what it gives with one change. The scores q . k
    are divided by `products`, those of the positions by `positions`."""
    q, k, v = (
        attention.split(layer(x)).detach().numpy()
        for layer, x in zip((attention.W_q, attention.W_k, attention.W_v), arguments, strict=True)
    )
    r = attention.r.detach().numpy()
    scores = np.empty((*q.shape[:3], k.shape[2]))
    for b, h, i, j in np.ndindex(scores.shape):
        number = numbers_of(j, i) if mirrored else numbers_of(i, j)
        near = k[b, h, i] if of_keys else q[b, h, i]
        scores[b, h, i, j] = q[b, h, i] @ k[b, h, j] / products + near @ r[number] / positions
    weights = np.exp(scores) / np.exp(scores).sum(axis, keepdims=True)
    heads = weights @ v  # (B, H, Q, d)
    if transposed:
        heads = heads.transpose(0, 2, 1, 3)
    joined = ta.tensor(heads.reshape(2, -1, SIZE))
    return (attention.W_o(joined) if projected else joined).detach().numpy()


def divided(by: float, sentence: str) -> list[tuple[dict[str, Any], str]]:
    """Both scores are divided by this, or one of them."""
    both: dict[str, Any] = {"products": by, "positions": by}
    return [(both, sentence), *(({name: by}, sentence) for name in both)]


CHANGES: list[tuple[dict[str, Any], str]] = [
    (
        {"positions": np.inf},
        "the distance has no influence: add the scores of the positions as a bias",
    ),
    ({"mirrored": True}, "key j is at the distance j - i from query i, not i - j"),
    ({"of_keys": True}, "the vector of a distance is multiplied with the query, not with the key"),
    ({"positions": 1.0}, "the scores of the positions are divided by sqrt(d) too"),
    *divided(1.0, "the scores are not divided by sqrt(d)"),
    *divided(SIZE**0.5, "the scores are divided by sqrt(size), not by sqrt(d): d is size / heads"),
    *divided(ROOT**2, "the scores are divided by d: divide them once by sqrt(d)"),
    *(
        (
            {"axis": axis},
            f"the weights sum to 1 over the {name}: take softmax over the keys, the last axis",
        )
        for axis, name in ((2, "queries"), (1, "heads"), (0, "samples"))
    ),
    ({"transposed": False}, "the heads are joined without transpose(1, 2)"),
    ({"projected": False}, "the heads are joined, but W_o is missing"),
]


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
    apart = np.abs(np.arange(6) - np.arange(3)[:, None]).clip(0, FARTHEST) + FARTHEST
    both = (
        "keys on both sides get one number: the distance j - i has a sign, and is clipped with it"
    )
    expect(not np.array_equal(found, apart), both)
    around = (np.arange(6) - np.arange(3)[:, None] + FARTHEST) % (2 * FARTHEST + 1)
    far = "a far key gets the number of a near one by %: clip the distance"
    expect(not np.array_equal(found, around), far)
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
    needs(test_distance_numbers)
    attention = module()
    q = ta.randn(2, HEADS, 3, SIZE // HEADS, dtype=ta.float64)
    found = run(attention.position_scores, q, 5)
    expect(found.shape == (2, HEADS, 3, 5), f"they are (B, H, Q, K), not {found.shape}")
    right = np.empty(found.shape)
    for b, h, i, j in np.ndindex(right.shape):
        right[b, h, i, j] = q.numpy()[b, h, i] @ attention.r.detach().numpy()[numbers_of(i, j)]
    expect(
        not close(found.detach().numpy(), right / ROOT),
        "position_scores are not yet divided by sqrt(d): forward does it",
    )
    expect(close(found.detach().numpy(), right), "the score of query i and key j is q_i . r[j - i]")


def test_formula() -> None:
    needs(test_distance_numbers, test_position_scores)
    for sizes in ((6, 6), (3, 6)):
        attention, arguments = module(), inputs(*sizes)
        found, right = called(attention, arguments), by_loops(attention, arguments)
        for change, sentence in CHANGES:
            expect(not close(found, by_loops(attention, arguments, **change)), sentence)
        expect(close(found, right), "the result is not that of the formula")


STEPS = (test_distance_numbers, test_position_scores, test_formula)


def weights_of(attention: nn.Module, queries: int) -> ta.Tensor:
    weights = getattr(attention, "weights", None)
    expect(isinstance(weights, ta.Tensor), "the weights of the call are not in self.weights")
    right = (2, HEADS, queries, 6)
    expect(weights.shape == right, f"weights are (B, H, Q, K), not {weights.shape}")
    return weights


def test_weights() -> None:
    needs(*STEPS)
    attention, arguments = module(), inputs(3, 6)
    called(attention, arguments)
    weights = weights_of(attention, 3)
    expect(not weights.requires_grad, "self.weights holds the graph of the call: detach it")
    expect(close(weights.numpy().sum(-1), np.ones((2, HEADS, 3))), "weights do not sum to 1")


def test_masks() -> None:
    needs(*STEPS)
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
    needs(*STEPS)
    attention, arguments = module(), inputs()
    changed = [x.clone() for x in arguments]
    for x in changed:
        x[:, 5] = 50.0
    before, after = (called(attention, x, is_causal=True) for x in (arguments, changed))
    expect(close(before[:, :5], after[:, :5]), "is_causal=True, but the future has influence")
    mask = ta.tensor([[1, 1, 0, 1, 1, 1], [1, 1, 1, 0, 1, 1]]).bool()
    called(attention, arguments, mask=mask, is_causal=True)
    hidden = weights_of(attention, 6).numpy()[0, :, :, 2]
    expect(not hidden.any(), "with is_causal=True the mask is forgotten")


def test_gradients() -> None:
    needs(*STEPS)
    attention, arguments = module(), inputs(3, 4)
    for x in arguments:
        x.requires_grad_()
    found = run(attention.forward, *arguments)
    expect(found.requires_grad, "the output gives no gradient: something detaches it")
    found.sum().backward()
    named = zip(("queries", "keys", "values"), arguments, strict=True)
    for name, x in (*attention.named_parameters(), *named):
        expect(x.grad is not None, f"{name} gets no gradient: something detaches it")
        x.grad = None
    problem = ""
    try:
        ta.gradcheck(attention, arguments, fast=True)
    except GradcheckError as error:
        problem = str(error)
    expect(not problem, f"a gradient is not that of finite differences: {problem}")


def test_in_an_encoder() -> None:
    needs(*STEPS)
    feed_forward = nn.PositionwiseFeedForward(SIZE, 16)
    layer = nn.EncoderLayer(SIZE, yours.RelativeKeys(SIZE, HEADS, FARTHEST), feed_forward)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that both layers begin with equal values of r
        encoder = nn.Encoder(layer, 2).eval()
    x, order = ta.randn(2, 5, SIZE), [1, 0, 2, 3, 4]
    found, other = (run(encoder.forward, y, valid_lens=[5, 3]) for y in (x, x[:, order]))
    expect(found.shape == (2, 5, SIZE), f"an encoder gives (2, 5, {SIZE}), not {found.shape}")
    expect(
        not close(found[:, order].detach().numpy(), other.detach().numpy(), 1e-6),
        "two inputs change places, and so do the outputs: positions have no influence",
    )
