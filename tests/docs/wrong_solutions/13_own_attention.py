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
        "mask=mask,\n            valid_lens=valid_lens,\n            is_causal=is_causal",
        "valid_lens=valid_lens,\n"
        "            mask=np.tri(q.shape[2], k.shape[2], 1, bool)[None] if is_causal else mask",
        "the future has influence",
    ),
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
    (
        "np.arange(keys) - np.arange(queries)[:, None]",
        "np.arange(queries) - np.arange(keys)[:, None]",
        "3 queries and 6 keys: (3, 6), not (6, 3)",
    ),
    (
        "flatten(2))",
        "flatten(2))[:, :1]",
        "forward gives (2, 6, 8), yours (2, 1, 8)",
    ),
    (
        "flatten(2))",
        "flatten(2)).detach().numpy()",
        "forward returns a Tensor, not ndarray",
    ),
    (
        "        return self.W_o(out",
        "        scores = q @ k.transpose(2, 3) + self.position_scores(q, k.shape[2])\n"
        "        self.weights = F.softmax(scores / q.shape[3] ** 0.5, dim=-1)\n"
        "        return self.W_o(out",
        "holds the graph of the call",
    ),
    (
        "return distance.clip(-farthest, farthest) + farthest",
        "return distance.clip(-farthest, farthest - 1) + farthest + 1",
        "the distance 0 has the number",
    ),
    (
        "bias=self.position_scores(q, k.shape[2]) / q.shape[3] ** 0.5,",
        "bias=None,",
        "the distance has no influence",
    ),
    (
        " + farthest\n",
        " + float(farthest)\n",
        "the numbers are integers, yours float64",
    ),
    (
        "distance.clip(-farthest, farthest)",
        "distance.clip(-1, farthest)",
        "the numbers of (3, 6) are",
    ),
    (
        "self.r.transpose(0, 1)",
        "self.r.flip(0).transpose(0, 1)",
        "is q_i . r[j - i]",
    ),
    (
        "return with_each[:, :, rows, distance_numbers(q.shape[2], keys, self.farthest)]",
        "return with_each[:, :, rows, distance_numbers(q.shape[2], keys, self.farthest)][..., :3]",
        "they are (B, H, Q, K), not (2, 2, 3, 3)",
    ),
    (
        "        return self.W_o(out",
        "        self.weights = self.weights[:, :1]\n        return self.W_o(out",
        "weights are (B, H, Q, K), not (2, 1, 3, 6)",
    ),
    (
        "        return self.W_o(out",
        "        self.weights = 2 * self.weights\n        return self.W_o(out",
        "weights do not sum to 1",
    ),
]
