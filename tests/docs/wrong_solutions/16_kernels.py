"""Exercise 16_kernels: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("total * shrink + e.sum(axis=1)", "e.sum(axis=1)", "total forgets the tiles before"),
    ("total * shrink", "total", "total of the earlier keys belongs to their old top"),
    ("out * shrink[:, None]", "out", "out of the earlier keys belongs to their old top"),
    ("total * shrink", "total / shrink", "the other way round"),
    ("np.exp(top - finite)", "np.exp(finite - top)", "the first tile gives nan"),
    (
        "np.maximum(top, scores.max(axis=1))",
        "scores.max(axis=1)",
        "top is wrong where the first",
    ),
    ("scores.max(axis=1)", "scores.max()", "not the maximum of each row"),
    ("scores - finite[:, None]", "scores", "the sum of exp(score), not of"),
    ("np.where(new_top == -np.inf, 0.0, new_top)", "new_top", "exp(-inf - -inf)"),
    ("return new_top", "return finite", "is -inf, not 0"),
    ("    new_top = np", "    scores -= 1\n    new_top = np", "changed its arguments"),
    ("+ e @ values", "+ e @ values / e.sum(axis=1)[:, None]", "after the last tile"),
    (" / np.sqrt(q.shape[1])", "", "not divided by sqrt(d)"),
    ("return out / total[:, None]", "return out", "not divided by total"),
    ("range(0, len(k), tile)", "range(0, len(k) - tile + 1, tile)", "last tile are missing"),
    (
        "scores = q @ k[i : i + tile].T / np.sqrt(q.shape[1])",
        "scores = (q @ k.T / np.sqrt(q.shape[1]))[:, i : i + tile]",
        "the scores of all keys are 2812 KiB",
    ),
    ("np.full(len(q), -np.inf)", "np.zeros(len(q))", "top begins with -inf"),
    ("np.full(len(q), -np.inf)", "np.full(len(q), -100.0)", "top begins with -inf"),
    ("np.where(new_top == -np.inf, 0.0, new_top)", "np.maximum(new_top, -100)", "however low"),
    (
        "range(0, len(k), tile)",
        "range(0, len(k) - 1, tile)",
        "33 keys in tiles of 16: the keys",
    ),
    (
        "return new_top, total * shrink + e.sum(axis=1), out * shrink[:, None] + e @ values",
        "return new_top, total * shrink + e.sum(axis=1), out * shrink[:, None] + 2 * e @ values",
        "out of the first tile is not exp(score - top)",
    ),
    (
        "e.sum(axis=1), out *",
        "e.sum(axis=1, keepdims=True), out *",
        "top (3,), total (3,), out (3, 2); yours are (",
    ),
    (
        "    return new_top, total * shrink",
        "    return total * shrink",
        "update returns top, total and out",
    ),
    (
        "return out / total[:, None]",
        "return (out / total[:, None])[:, :1]",
        "(6, 4), not (6, 1)",
    ),
    (
        "    return out / total[:, None]",
        "    return 2 * out / total[:, None]",
        "the output is not that of attention",
    ),
    (
        "finite = np.where(new_top == -np.inf, 0.0, new_top)",
        "finite = np.where(abs(new_top) > 99, 0.0, new_top)",
        "scores of 1000 give nan or inf",
    ),
    (
        "total * shrink + e.sum(axis=1)",
        "total * shrink**2 + e.sum(axis=1)",
        "total of two tiles is not that of all their keys",
    ),
    (
        "out * shrink[:, None]",
        "out * shrink[:, None] ** 2",
        "out of two tiles is not that of all their keys",
    ),
    (
        "e = np.exp(scores - finite[:, None])",
        "e = np.exp(np.clip(scores, -500, 500) - finite[:, None])",
        "scores of 1000 and 2000 give a wrong total",
    ),
    (
        "e = np.exp(scores - finite[:, None])",
        "e = np.exp(np.maximum(scores, -99.0) - finite[:, None])",
        "keys of score -inf are counted",
    ),
    (
        "new_top = np.maximum(top, scores.max(axis=1))",
        "new_top = np.maximum(top, scores.max(axis=1))\n"
        "    new_top = np.where(scores.max(axis=1) == -np.inf, -np.inf, new_top)",
        "top is wrong after a tile that a query does not see",
    ),
]

# The same in another way.
ALSO_RIGHT = [
    ("np.full(len(q), -np.inf)", "np.full(len(q), np.finfo(float).min)"),
    (
        "return new_top, total * shrink + e.sum(axis=1), out * shrink[:, None] + e @ values",
        "return [new_top, total * shrink + e.sum(axis=1), out * shrink[:, None] + e @ values]",
    ),
]
