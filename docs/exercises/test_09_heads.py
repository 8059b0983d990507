"""Grades exercise 9."""

import numpy as np
from grading import close, exercise, expect, run

yours = exercise("ex_09_heads")
rng = np.random.default_rng(9)
B, Q, K, D, H = 2, 4, 6, 12, 3
d = D // H
queries, keys, values = (rng.standard_normal((B, n, D)) for n in (Q, K, K))
matrices = W_q, W_k, W_v, W_o = rng.standard_normal((4, D, D)) / D**0.5


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, root: float = d**0.5, axis: int = -1
) -> np.ndarray:
    e = np.exp(q @ k.swapaxes(1, 2) / root)
    return e / e.sum(axis, keepdims=True) @ v


def one_head_after_the_other(**options: float) -> np.ndarray:
    """The heads beside each other, (B, Q, D), without W_o."""
    heads = []
    for h in range(H):
        rows = slice(h * d, (h + 1) * d)
        q, k, v = queries @ W_q[rows].T, keys @ W_k[rows].T, values @ W_v[rows].T
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


def test_attention() -> None:
    found = run(yours.multi_head_attention, queries, keys, values, *matrices, H)
    expect(np.shape(found) == (B, Q, D), f"the output is {(B, Q, D)}, not {np.shape(found)}")
    right = one_head_after_the_other()
    expect(not close(found, right), "the output is not projected by W_o")
    expect(not close(found, right @ W_o), "the output is x W_o, not x W_o^T, as other projections")
    expect(
        not close(found, one_head_after_the_other(root=D**0.5) @ W_o.T),
        "the scores are divided by sqrt(D); a head has width d = D / H, so divide by sqrt(d)",
    )
    expect(
        not close(found, one_head_after_the_other(axis=1) @ W_o.T),
        "softmax is taken over the queries: take it over the keys, the last axis",
    )
    expect(
        not close(found, attention(queries @ W_q.T, keys @ W_k.T, values @ W_v.T, D**0.5) @ W_o.T),
        "the output is that of one head of width D",
    )
    expect(
        close(found, right @ W_o.T),
        "the output is not that of small attentions, head h with rows h d to (h + 1) d of the "
        "matrices, beside each other and times W_o^T",
    )


def test_order_of_queries() -> None:
    order = [2, 0, 3, 1]
    before = run(yours.multi_head_attention, queries, keys, values, *matrices, H)
    after = run(yours.multi_head_attention, queries[:, order], keys, values, *matrices, H)
    expect(
        close(np.asarray(before)[:, order], after),
        "queries in another order must give the same outputs in that order: row n is not query n",
    )
