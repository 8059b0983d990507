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
]

# The same in another way.
ALSO_RIGHT = [
    ("np.full(len(q), -np.inf)", "np.full(len(q), np.finfo(float).min)"),
    (
        "return new_top, total * shrink + e.sum(axis=1), out * shrink[:, None] + e @ values",
        "return [new_top, total * shrink + e.sum(axis=1), out * shrink[:, None] + e @ values]",
    ),
]
