"""Grades exercise 9."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from grading import close, exercise, expect, run, say

yours = exercise("ex_09_heads")
rng = np.random.default_rng(9)
B, Q, K, D, H = 2, 4, 6, 12, 3
d = D // H
queries, keys, values = (rng.standard_normal((B, n, D)) for n in (Q, K, K))
inputs = queries, keys, values
matrices = W_q, W_k, W_v, W_o = rng.standard_normal((4, D, D)) / D**0.5


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, root: float = d**0.5, axis: int = -1
) -> np.ndarray:
    scores = q @ k.swapaxes(1, 2) / root
    e = np.exp(scores - scores.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True) @ v


def one_head_after_the_other(
    inputs: Sequence[np.ndarray] = inputs,
    matrices: Sequence[np.ndarray] = (W_q, W_k, W_v),
    **options: float,
) -> np.ndarray:
    """The heads beside each other, (B, Q, D), without W_o."""
    heads = []
    for h in range(H):
        rows = slice(h * d, (h + 1) * d)
        q, k, v = (x @ W[rows].T for x, W in zip(inputs, matrices, strict=True))
        heads.append(attention(q, k, v, **options))
    return np.concatenate(heads, axis=-1)


def test_split() -> None:
    x = rng.standard_normal((B, Q, D))
    found = run(yours.split_heads, x, H)
    expect(
        np.shape(found) == (B, H, Q, d),
        f"(B, N, D) = {x.shape} in {H} heads is (B, H, N, d) = {(B, H, Q, d)}, not "
        f"{np.shape(found)}",
    )
    expect(
        not close(found, x.reshape(B, H, Q, d)),
        "the shape is right, but row n of a head does not come from position n: reshape to "
        "(B, N, H, d) first, then exchange N and H",
    )
    expect(
        not close(found, x.reshape(B, Q, d, H).transpose(0, 3, 1, 2)),
        "head h gets every H-th number; it gets d numbers that follow each other",
    )
    expect(
        close(found, np.stack([x[..., h * d : (h + 1) * d] for h in range(H)], axis=1)),
        "head h does not have the numbers h d to (h + 1) d of each position",
    )


def test_merge() -> None:
    x = rng.standard_normal((B, H, Q, d))
    found = run(yours.merge_heads, x)
    expect(
        np.shape(found) == (B, Q, D),
        f"heads {x.shape} are merged to (B, N, H d) = {(B, Q, D)}, not {np.shape(found)}",
    )
    expect(
        not close(found, x.reshape(B, Q, D)),
        "the shape is right, but a position gets numbers of other positions: exchange H and N "
        "before reshape",
    )
    expect(
        close(found, np.concatenate(list(x.swapaxes(0, 1)), axis=-1)),
        "a position does not have its d numbers of head 0, then those of head 1, and so on",
    )


def output(inputs: Sequence[np.ndarray], matrices: Sequence[np.ndarray]) -> np.ndarray:
    given = [array.copy() for array in (*inputs, *matrices)]
    found = run(yours.multi_head_attention, *given, H)
    same = all(map(np.array_equal, given, (*inputs, *matrices)))
    expect(same, "multi_head_attention changed its arguments: write to new arrays")
    expect(np.shape(found) == (B, Q, D), f"the output is {(B, Q, D)}, not {np.shape(found)}")
    return np.asarray(found)


def test_attention() -> None:
    found = output(inputs, matrices)
    right = one_head_after_the_other()
    no_product = "the output is not projected by W_o"
    for turned in product((False, True), repeat=4):
        used = [W.T if turn else W for W, turn in zip(matrices, turned, strict=True)]
        names = [f"W_{x}" for x, turn in zip("qkvo", turned, strict=True) if turn]
        expect(
            not names or not close(found, one_head_after_the_other(matrices=used[:3]) @ used[3].T),
            f"a projection is x W^T; .T is missing at {', '.join(names)}",
        )
    for i, (name, W) in enumerate((("queries", "W_q"), ("keys", "W_k"), ("values", "W_v"))):
        used = [np.eye(D) if i == j else matrices[j] for j in range(3)]
        expect(
            not close(found, one_head_after_the_other(matrices=used) @ W_o.T),
            f"the {name} are not projected: multiply them by {W}^T",
        )
    roots = {
        "": d**0.5,
        "the scores are not divided by sqrt(d)": 1.0,
        "the scores are divided by d, not by sqrt(d)": d,
        "the scores are divided by sqrt(D); a head has width d = D / H, so divide by sqrt(d)": D
        ** 0.5,
    }
    axes = {"": -1, "softmax is taken over the queries: take it over the keys, the last axis": 1}
    for of_root, of_axis, of_product in product(roots, axes, ("", no_product)):
        heads = one_head_after_the_other(root=roots[of_root], axis=axes[of_axis])
        same = close(found, heads if of_product else heads @ W_o.T)
        mistakes = [sentence for sentence in (of_root, of_axis, of_product) if sentence]
        if same and len(mistakes) == 1:
            expect(False, mistakes[0])
        if same and len(mistakes) > 1:
            expect(False, f"there are {len(mistakes)} mistakes: {'; '.join(map(say, mistakes))}")
    expect(
        not close(found, attention(queries @ W_q.T, keys @ W_k.T, values @ W_v.T, D**0.5) @ W_o.T),
        "the output is that of one head of width D",
    )
    expect(
        not close(found, one_head_after_the_other(matrices=(W_q, W_q, W_v)) @ W_o.T),
        "the keys are projected by W_q, not by W_k",
    )
    swapped = one_head_after_the_other((queries, keys, values), (W_q, W_k, W_k))
    expect(not close(found, swapped @ W_o.T), "the values are projected by W_k, not by W_v")
    for W in (W_v, W_k):
        wrong = one_head_after_the_other((queries, keys, keys), (W_q, W_k, W))
        expect(
            not close(found, wrong @ W_o.T),
            "the keys are taken as values: project `values` by W_v, and multiply by that",
        )
    expect(
        close(found, right @ W_o.T),
        "the output is not that of small attentions, head h with rows h d to (h + 1) d of the "
        "matrices, beside each other and times W_o^T",
    )


def test_weights() -> None:
    """All numbers are 1, and so all keys are alike, and the output is the sum of the weights."""
    ones = [np.ones_like(x) for x in inputs]
    found = output(ones, [np.eye(D)] * 4)
    for number, name in ((B, "samples"), (Q, "queries"), (H, "heads")):
        expect(
            not close(found, np.full_like(found, K / number)),
            f"the weights sum to 1 over the {name}: take softmax over the keys, the last axis",
        )
    expect(
        close(found, np.ones_like(found)),
        "the weights of a query in a head do not sum to 1 over the keys",
    )


def test_large_scores() -> None:
    """Query 0 of sample 0 has large scores in head 0. No other query, and no other head has."""
    unit = [np.eye(D)] * 4
    small = output(inputs, unit)
    large = queries.copy()
    large[0, 0, :d] = 1000 * keys[0, 0, :d]
    found = output((large, keys, values), unit)
    wrong = ~np.isfinite(found).all(axis=-1)  # (B, Q)
    own = wrong[0, 0]
    wrong[0, 0] = False
    expect(
        not wrong.any(),
        "large scores of one query in one head give nan for other queries: subtract the maximum "
        "of each row of scores, not that of several queries, heads or samples",
    )
    expect(
        not own,
        "a query with a score above 1000 in one head gives nan: subtract the maximum of each row "
        "of scores, in each head, before exp",
    )
    if not close(small, one_head_after_the_other(matrices=unit[:3])):
        return  # large scores are not the cause: `test_attention` tells it
    expect(
        close(found, one_head_after_the_other((large, keys, values), unit[:3])),
        "with large scores in one head the output is not that of softmax",
    )


def test_order_of_queries() -> None:
    order = [2, 0, 3, 1]
    before = output(inputs, matrices)
    after = output((queries[:, order], keys, values), matrices)
    expect(
        close(before[:, order], after),
        "queries in another order must give the same outputs in that order: row n is not query n",
    )
