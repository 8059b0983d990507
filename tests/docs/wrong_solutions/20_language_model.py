"""Exercise 20_language_model: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("i - period + 1]", "i - period]", "the earlier copy itself"),
    ("i - period + 1]", "i - period + 2]", "the key is one too many"),
    ("i - period + 1]", "i - period - 1]", "the key is two too few"),
    ("i - period + 1]", "i - 1]", "the token before the query"),
    ("i, i - period + 1]", "i - period + 1, i]", "queries and keys are exchanged"),
    (".mean(axis=1)", ".sum(axis=1)", "that is the sum"),
    (".mean(axis=1)", ".sum(axis=1) / weights.shape[1]", "divided by N"),
    ("np.arange(period, weights", "np.arange(period + 1, weights", "it is left out"),
    ("weights.shape[1])", "weights.shape[1] - 1)", "the last query is N - 1"),
    (".mean(axis=1)", ".mean()", "each head has its own score"),
    (".mean(axis=1)", ".max(axis=1)", "the scores are not means"),
    ("return int(layer), int(head)", "return int(head), int(layer)", "that is (head, layer)"),
    ("range(len(model.encoder.layers))", "range(2)", "this model has three layers"),
    ("scores.argmax(), scores", "0, scores", "the induction head of this model is"),
    ("return int(layer), int(head)", "return scores.argmax()", "returns two numbers"),
    ("numpy()[0], period)", "numpy()[0], len(ids[0]) // 18)", "previous-token head"),
    (
        "    layers = range",
        "    model.register_forward_hook(lambda *args: None)\n    layers = range",
        "a hook is left",
    ),
    ('w["position"][past : past + len(x)]', 'w["position"][: len(x)]', "begin at 0 again"),
    ('    x = x + w["position"][past : past + len(x)]\n', "", "positions are not added"),
    (" / np.sqrt(q.shape[1])", "", "not divided by sqrt(d)"),
    ("np.sqrt(q.shape[1])", "np.sqrt(x.shape[1])", "divided by sqrt(D)"),
    ("scores, -np.inf)", "scores, 0)", "with 0 it gets a weight"),
    (
        "scores - scores.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1",
        "scores - scores.max(axis=0, keepdims=True))\n    return e / e.sum(axis=0",
        "over the keys",
    ),
    ("np.tri(len(q), len(k), past, dtype=bool)", "True", "sees those after it"),
    (
        "np.tri(len(q), len(k), past, dtype=bool)",
        "np.tri(len(q), len(k), past, dtype=bool) & (np.arange(len(k)) >= past)",
        "new positions see the new keys only",
    ),
    (
        "np.tri(len(q), len(k), past, dtype=bool)",
        "(cache is not None) | np.tri(len(q), len(k), dtype=bool)",
        "with a cache, a new position sees later ones",
    ),
    (", past, dtype=bool)", ", dtype=bool)", "the mask counts new queries from 0"),
    ("@ v, (k, v)", "@ v, (k[-len(x) :], v[-len(x) :])", "are forgotten"),
    (
        "@ v, (k, v)",
        "@ v, (k[past > 0 :], v[past > 0 :])",
        "it has all of them up to now",
    ),
    ("@ v, (k, v)", "@ v", "returns two things"),
    ("@ v, (k, v)", "@ v, np.stack([k, v, v])", "the new cache is a pair"),
    ("@ v, (k, v)", "@ v, (v, k)", "the cache is not (keys, values)"),
    (
        "np.concatenate([cache[0], k]), np.concatenate([cache[1], v])",
        "np.concatenate([k, cache[0]]), np.concatenate([v, cache[1]])",
        "the new keys come first",
    ),
    (
        "    if cache is not None:\n        k, v =",
        "    own = k, v\n    if cache is not None:\n        cache[0][:] += 0.1\n        k, v =",
        "the old cache are changed",
    ),
    ("(logits - logits.max()) / temperature", "logits - logits.max()", "has no influence"),
    (
        "(logits - logits.max()) / temperature",
        "(logits - logits.max()) * temperature",
        "multiplied by the temperature",
    ),
    (
        "e = np.exp((logits - logits.max()) / temperature)\n    p = e / e.sum()\n",
        "e = np.exp(logits - logits.max())\n    return e / e.sum() / temperature\n",
        "are divided",
    ),
    ("(logits - logits.max()) / temperature", "logits / temperature", "large scores give nan"),
    (
        "    if temperature == 0:\n        return np.eye(len(logits))[logits.argmax()]\n",
        "",
        "with the temperature 0",
    ),
    ("before < top_p", "before + p[order] < top_p", "the id that crosses top_p stays too"),
    ("before < top_p", "before <= top_p", "top_p or more is enough"),
    (
        "np.eye(len(logits))[logits.argmax()]",
        "(logits == logits.max()).astype(float)",
        "one alone gets 1",
    ),
    (
        "before < top_p",
        "(before + p[order] < top_p) | (top_p == 1)",
        "with it the sum is top_p or more",
    ),
    (
        "    e = np.exp((logits - logits.max()) / temperature)\n",
        "    e = np.exp(logits - logits.max())\n    e = np.exp(e / e.sum() / temperature)\n",
        "softmax comes before",
    ),
    (
        "    before = np.cumsum(p[order]) - p[order]\n",
        "    raw = p[order] ** temperature / (p**temperature).sum()\n"
        "    before = np.cumsum(raw) - raw\n",
        "before the temperature",
    ),
    ("order[before < top_p]", "order[: (before < top_p).sum() + 1]", "one id too many"),
    ("before < top_p", "before < 2", "top_p has no influence"),
    ("return p * kept / (p * kept).sum()", "return p * kept", "the sum is not 1"),
    ("order = np.argsort(-p)", "order = np.argsort(p)", "from the least likely one"),
    (
        "return p * kept / (p * kept).sum()",
        "return np.sort(p * kept / (p * kept).sum())[::-1]",
        "they are sorted",
    ),
    ("order = np.argsort(-p)", "order = np.arange(len(p))", "in their own order"),
    ("kept[order[before < top_p]] = 1", "kept[p >= top_p] = 1", "no id is left with top_p 1"),
    (
        "return p * kept / (p * kept).sum()",
        "return p[kept == 1] / p[kept == 1].sum()",
        "the result is (V,)",
    ),
    (
        "    return e / e.sum(axis=1, keepdims=True) @ v, (k, v)",
        "    out = e / e.sum(axis=1, keepdims=True) @ v\n"
        "    return out if cache is None else out[[-1] * len(out)], (k, v)",
        "with a cache the result is not that without one",
    ),
    (
        "    return e / e.sum(axis=1, keepdims=True) @ v, (k, v)",
        "    out = e / e.sum(axis=1, keepdims=True) @ v\n"
        "    return out if cache is None else np.concatenate([cache[1], out]), (k, v)",
        "out has the new positions only: a row for each",
    ),
    (
        "    return e / e.sum(axis=1, keepdims=True) @ v, (k, v)",
        "    return (e / e.sum(axis=1, keepdims=True) @ v)[:, :2], (k, v)",
        "out is (N, d), here (6, 3), and yours is (6, 2)",
    ),
    (
        "    return e / e.sum(axis=1, keepdims=True) @ v, (k, v)",
        "    return 2 * e / e.sum(axis=1, keepdims=True) @ v, (k, v)",
        "is not causal attention",
    ),
    (
        "return p * kept / (p * kept).sum()",
        "return 2 * p * kept / (p * kept).sum()",
        "with top_p 1 the result is not softmax(logits / temperature)",
    ),
    (
        "before < top_p]",
        "(before < top_p) & (p[order] <= top_p)]",
        "no id is left: the likeliest one always stays",
    ),
    (
        'x = x + w["position"][past : past + len(x)]\n'
        '    q, k, v = (x @ w[name].T for name in ("W_q", "W_k", "W_v"))',
        'plain = x @ w["W_k"].T\n'
        '    x = x + w["position"][past : past + len(x)]\n'
        '    q, k, v = (x @ w[name].T for name in ("W_q", "W_k", "W_v"))\n'
        "    if past == 0:\n"
        "        e = np.where(np.tri(len(q), dtype=bool), np.exp(q @ k.T / "
        "np.sqrt(q.shape[1])), 0)\n"
        "        return e / e.sum(axis=1, keepdims=True) @ v, (plain, v)",
        "keys and values are made of x with its positions",
    ),
]

# The lines of the solution, and what is right in their place too.
ALSO_RIGHT = [
    ("return int(layer), int(head)", "return [int(layer), int(head)]"),
    (", (k, v)", ", [k, v]"),
    (
        "return e / e.sum(axis=1, keepdims=True) @ v, (k, v)",
        "out = e / e.sum(1)[:, None] @ v\n    return [out, (k, v)]",
    ),
]
