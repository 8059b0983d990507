"""Exercise 13_own_attention: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    (
        "np.arange(keys) - np.arange(queries)[:, None]",
        "np.arange(queries)[:, None] - np.arange(keys)",
        "not i - j",
    ),
    ("distance.clip(-farthest, farthest)", "distance", "clip the distance"),
    (" + farthest", "", "from the end of r"),
    (
        "distance_numbers(q.shape[2], keys, self",
        "distance_numbers(keys, keys, self",
        "position_scores raised",
    ),
    ("q, k.shape[2]) / q.shape[3] ** 0.5", "q, k.shape[2])", "divided by sqrt(d) too"),
    ("q, k.shape[2]) /", "k, k.shape[2]) /", "not with the key"),
    ("return self.W_o(out", "return (out", "W_o is missing"),
    ("            mask=mask,\n", "", "pass mask on"),
    ("            valid_lens=valid_lens,\n", "", "pass valid_lens on"),
    ("            is_causal=is_causal,\n", "", "the future has influence"),
    (
        "bias=self.position_scores(q,",
        "bias=self.position_scores(q.detach(),",
        "not that of finite differences",
    ),
    ("flatten(2))", "flatten(2)).detach()", "the output gives no gradient"),
    ("out, self.weights =", "out, _ =", "not in self.weights"),
    ("self.W_v(values)", "self.W_v(keys)", "not that of the formula"),
    (
        "np.arange(keys) - np.arange(queries)[:, None]",
        "(np.arange(keys) - np.arange(keys)[:, None])[:queries]",
        "there may be more queries than keys",
    ),
    ("mask=mask,", "mask=None if is_causal else mask,", "the mask is forgotten"),
    (
        "bias=self.position_scores(q, k.shape[2])",
        "bias=(queries is not keys) * self.position_scores(q, k.shape[2])",
        "positions have no influence",
    ),
]
