"""Exercise 01_soft_lookup: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    (" / np.sqrt(d)", "", "not divided by sqrt(d)"),
    ("np.sqrt(d)", "d", "divided by d, not by sqrt(d)"),
    ("np.sqrt(d)", "np.sqrt(len(keys))", "by the root of the number of keys"),
    ("np.sqrt(d)", "np.sqrt(len(queries))", "by the root of the number of queries"),
    ("/ (2 * width**2)", "/ 2 * width**2", "divides by 2 alone"),
    (
        "queries[:, None] - keys  #",
        "queries - keys  #",
        "in line 20: differences = queries - keys  # (n, m, d); for all pairs of rows, give "
        "the first an axis more: queries[:, None]",
    ),
    (
        "queries @ keys.T / np.sqrt(d)",
        "np.array([q[9] for q in queries])",
        "index 9 is out of bounds for axis 0 with size 4, in line 13: scores =",
    ),
    ("axis=-1, keepdims", "axis=0, keepdims", "over the queries"),
    ("powers.sum(axis=-1, keepdims=True)", "powers.sum()", "all weights together sum to 1"),
    ("return softmax(scores) @", "return softmax(scores) / 3 @", "not those of softmax(Q"),
    (
        "queries @ keys.T / np.sqrt(d)\n    return softmax(scores)",
        "queries @ keys.T\n    return softmax(scores) / np.sqrt(d)",
        "divide the scores, before softmax",
    ),
    ("return softmax(scores) @", "return scores @", "softmax is missing"),
    ("return softmax(scores) @", "return -softmax(scores) @", "so it gets value i"),
    (
        "return softmax(scores)",
        "return softmax(scores + np.arange(len(keys)) / 9)",
        "in another order",
    ),
    ("return softmax(scores) @ values", "return softmax(scores)", "give (3, 2), not (3, 5)"),
    (
        "return softmax(scores) @",
        "softmax(scores) @",
        "attention returns nothing: end it with a return",
    ),
    ("softmax(-squares", "softmax(squares", "a far key gets more weight"),
    ("(differences**2).sum(axis=-1)", "np.linalg.norm(differences, axis=-1)", "not squared"),
    (".sum(axis=-1)  # (n, m)", "  # (n, m)", "each number has its own weights"),
    (
        "(differences**2).sum(axis=-1)",
        "np.abs(differences).sum(axis=-1) ** 2",
        "the sum of absolute differences is squared",
    ),
    ("softmax(-squares /", "softmax(queries @ keys.T /", "are products of query and key"),
    ("(2 * width**2)) @", "(4 * width**2)) @", "half as large"),
    ("softmax(-squares / (2 * width**2))", "np.exp(-squares / (2 * width**2))", "sum to 1"),
    ("width**2", "width", "the width is not squared"),
    ("(2 * width**2)", "width**2", "not halved"),
    ("softmax(-squares / (2 * width**2))", "softmax(-squares)", "do not depend on the width"),
    ("(2 * width**2)) @ values", "(2 * width**2))", "3 queries gives (3, 2), not (3, 5)"),
    ("(2 * width**2)) @", "(3 * width**2)) @", "not those of softmax(-distance"),
]

# The same in another way.
ALSO_RIGHT = [
    ("np.exp(scores)", "np.exp(scores - scores.max(axis=-1, keepdims=True))"),
    (
        "    differences = queries[:, None] - keys  # (n, m, d)\n"
        "    squares = (differences**2).sum(axis=-1)  # (n, m)\n",
        "    lengths = [(x**2).sum(-1) for x in (queries, keys)]\n"
        "    squares = lengths[0][:, None] - 2 * queries @ keys.T + lengths[1]\n",
    ),
]
