"""Exercise 09_heads: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("values @ W_v.T", "values @ W_k.T", "projected by W_k, not by W_v"),
    (".transpose(0, 2, 1, 3)", ".transpose(1, 2)", "swapaxes(1, 2) exchanges two of them"),
    (
        "np.sqrt(q.shape[-1]))  # (B, H, Q, K)\n    return merge_heads(weights @ v) @ W_o.T",
        "1)\n    return merge_heads(weights @ v)",
        "2 mistakes: the scores are not divided by sqrt(d); the output is not projected by W_o",
    ),
    (
        "x.reshape(batch, n, num_heads, width // num_heads)  # (B, N, H, d)\n"
        "    return x.transpose(0, 2, 1, 3)",
        "x.reshape(batch, num_heads, n, width // num_heads)\n    return x",
        "row n of a head does not come from position n",
    ),
    (
        "num_heads, width // num_heads)  # (B, N, H, d)\n    return x.transpose(0, 2, 1, 3)",
        "width // num_heads, num_heads)\n    return x.transpose(0, 3, 1, 2)",
        "every H-th number",
    ),
    ("return x.transpose(0, 2, 1, 3)", "return x", "is (B, H, N, d) = (2, 3, 4, 4)"),
    ("    x = x.transpose(0, 2, 1, 3)", "    x = x", "numbers of other positions"),
    (
        "    x = x.transpose(0, 2, 1, 3)",
        "    x = x.transpose(0, 2, 3, 1)",
        "its d numbers of head 0",
    ),
    ("np.sqrt(q.shape[-1])", "np.sqrt(queries.shape[-1])", "so divide by sqrt(d)"),
    (" @ W_o.T", "", "not projected by W_o"),
    ("W_o.T", "W_o", ".T is missing at W_o"),
    ("queries @ W_q.T", "queries @ W_q", ".T is missing at W_q"),
    ("_k.T", "_k", ".T is missing at W_k"),
    ("queries @ W_q.T", "queries", "the queries are not projected: multiply them by W_q^T"),
    ("values @ W_v.T", "values", "the values are not projected: multiply them by W_v^T"),
    (" / np.sqrt(q.shape[-1])", "", "the scores are not divided by sqrt(d)"),
    ("np.sqrt(q.shape[-1])", "q.shape[-1]", "the scores are divided by d, not by sqrt(d)"),
    ("    q = split", "    queries += 1\n    q = split", "changed its arguments"),
    ("axis=-1", "axis=-2", "take it over the keys"),
    ("e.sum(axis=-1", "e.sum(axis=-2", "the weights sum to 1 over the queries"),
    ("axis=-1", "axis=1", "the weights sum to 1 over the heads"),
    ("axis=-1", "axis=0", "the weights sum to 1 over the samples"),
    ("return e / e.sum(axis=-1, keepdims=True)", "return e / e.sum()", "do not sum to 1"),
    ("weights @ v)", "weights @ k)", "the keys are taken as values"),
    ("values @ W_v.T", "keys @ W_v.T", "the keys are taken as values"),
    ("keys @ W_k.T", "keys @ W_q.T", "projected by W_q, not by W_k"),
    (" - x.max(axis=-1, keepdims=True)", "", "score above 1000 in one head gives nan"),
    ("x.max(axis=-1, keepdims=True)", "x.max()", "give nan for other queries"),
    ("x.max(axis=-1, keepdims=True)", "x.max((2, 3), keepdims=True)", "for other queries"),
    ("np.exp(x - x.max(axis=-1, keepdims=True))", "np.exp(x.clip(-50, 50))", "with large"),
    (
        "softmax(q @",
        "softmax(q.reshape(q.shape[0], q.shape[2], q.shape[1], -1).swapaxes(1, 2) @",
        "row n is not query n",
    ),
    (
        "    q = split",
        "    num_heads = 1\n    q = split",
        "that of one head of width D",
    ),
    (
        "return x.transpose(0, 2, 1, 3)",
        "return x.transpose(0, 2, 1, 3)[:, ::-1]",
        "head h does not have the numbers",
    ),
    (
        "return x.reshape(batch, n, heads * width)",
        "return x.reshape(batch, n * width, heads)",
        "are merged to (B, N, H d) =",
    ),
    (
        "return merge_heads(weights @ v) @ W_o.T",
        "return (merge_heads(weights @ v) @ W_o.T)[:, :1]",
        "the output is (",
    ),
]

# The same in another way.
ALSO_RIGHT = [("q @ k.swapaxes(2, 3)", "np.einsum('bhqd,bhkd->bhqk', q, k)")]
