"""Exercise 07_scoring: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("q[:, :, None] + k[:, None]", "q + k", "query i is added to key i alone"),
    (" / np.sqrt(queries.shape[-1])", "", "not divided by sqrt(d)"),
    (
        "    return queries @ keys.swapaxes(1, 2) / np.sqrt(queries.shape[-1])",
        "    queries /= np.sqrt(queries.shape[-1])\n    return queries @ keys.swapaxes(1, 2)",
        "your function changes queries",
    ),
    ("np.sqrt(queries.shape[-1])", "queries.shape[-1]", "divided by d, not by sqrt(d)"),
    ("np.sqrt(queries.shape[-1])", "np.sqrt(queries.shape[1])", "with d the width of a query"),
    ("keys.swapaxes(1, 2)", "keys.T", "exchange the last two axes only"),
    (
        "return queries @ keys.swapaxes(1, 2)",
        "return keys @ queries.swapaxes(1, 2)",
        "rows are keys, and columns are queries",
    ),
    ("np.tanh(q[:, :, None] + k[:, None])", "q[:, :, None] + k[:, None]", "no influence"),
    (
        "np.tanh(q[:, :, None] + k[:, None])",
        "np.tanh(q[:, :, None]) + np.tanh(k[:, None])",
        "without a tanh of the sum",
    ),
    ("q[:, :, None] + k[:, None]", "q[:, None] + k[:, :, None]", "rows are keys"),
    (
        "return features(queries, keys, W_q, W_k) @ w_v",
        "scores = features(queries, keys, W_q, W_k).swapaxes(1, 2) @ w_v\n"
        "    return scores.reshape(len(queries), queries.shape[1], -1)",
        "rows are keys",
    ),
    ("q[:, :, None] + k[:, None]", "q[:, :, None] - k[:, None]", "projections are subtracted"),
    (
        "return queries @ keys.swapaxes(1, 2) /",
        "return queries @ keys.swapaxes(1, 2) *",
        "by sqrt(d): divide",
    ),
    (
        "return features(queries, keys, W_q, W_k) @ w_v",
        "q, k = queries @ W_q.T, keys @ W_k.T\n"
        "    return np.tanh((q[:, :, None] + k[:, None]) @ w_v)",
        "tanh is taken before w_v",
    ),
    ("W_k) @ w_v", "W_k) @ w_v / np.sqrt(len(w_v))", "not divided by a root"),
    ("W_k) @ w_v", "W_k) @ w_v * 2", "not w_v . tanh(W_q q"),
    ("(grad[..., None] * f)", "f", "grad is missing in the gradient of w_v"),
    ("grad[..., None] * w_v", "w_v", "grad is missing in the gradient of the queries"),
    ("before_tanh.sum(axis=2)", "before_tanh.mean(axis=2)", "a mean over the keys"),
    ("return of_queries, of_w_v", "return -of_queries, of_w_v", "has a wrong sign"),
    ("return of_queries, of_w_v", "return of_w_v, of_queries", "first the queries, then w_v"),
    (".sum(axis=(0, 1, 2))", ".mean(axis=(0, 1, 2))", "take the sum"),
    (".sum(axis=2) @ W_q", " @ W_q", "so sum over the keys"),
    (" * (1 - f**2)", "", "1 - tanh^2"),
    ("(axis=(0, 1, 2))", "(axis=(0, 1))", "sum over samples, queries and keys"),
    ("(grad[..., None] * f)", "(grad[..., None] * f**2)", "gradient of w_v is not that"),
    (
        "return features(queries, keys, W_q, W_k) @ w_v",
        "return np.squeeze(features(queries, keys, W_q, W_k) @ w_v)",
        "scores are (B, Q, K), here (1, 1",
    ),
    (
        "queries @ keys.swapaxes(1, 2) /",
        "(queries @ keys.swapaxes(1, 2)).squeeze() /",
        "scores are (B, Q, K), here (1, 1, 5)",
    ),
    *(
        (
            "    return features(queries, keys, W_q, W_k) @ w_v",
            "    scores = features(queries, keys, W_q, W_k) @ w_v\n"
            f"    {name} += 1\n    return scores",
            f"your function changes {name}:",
        )
        for name in ("queries", "keys", "W_q", "W_k", "w_v")
    ),
    *(
        (
            "    return of_queries, of_w_v",
            f"    {name} += 1\n    return of_queries, of_w_v",
            f"your function changes {name}:",
        )
        for name in ("grad", "queries", "keys", "W_q", "W_k", "w_v")
    ),
    (
        "return of_queries, of_w_v",
        "return of_queries",
        "return two gradients",
    ),
    (
        " * (1 - f**2)",
        " * (1 - f**3)",
        "the gradient of the queries is not that of finite",
    ),
]

# The same in another way.
ALSO_RIGHT = [("return of_queries, of_w_v", "return [of_queries, of_w_v]")]
