"""Exercise 14_decoder: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    (
        "return float(losses[targets != pad].mean())",
        "return losses[targets != pad]",
        "one number",
    ),
    ("    return weights @ v", "    return (weights @ v)[0]", "gives (2, 4"),
    ("[:k]\n", "[: max(1, k - 1)]\n", "is never drawn"),
    ("np.argsort(-logits)[:k]", "np.argsort(logits)[:k]", "the least likely id"),
    ("logits[:, :-1], ids[:, 1:]", "logits, ids", "which the model has read: shift"),
    ("logits[:, :-1], ids[:, 1:]", "logits[:, 1:], ids[:, :-1]", "in the wrong direction"),
    ("pad].mean()", "pad].sum()", "the loss is a sum"),
    ("losses = -np", "losses = np", "the loss is negative"),
    ("losses = -np", "losses = -1 / np.log(2) * np", "the loss is in bits"),
    (
        "losses[targets != pad].mean()",
        "np.mean([x[y != pad].mean() for x, y in zip(losses, targets)])",
        "of the samples' means",
    ),
    ("scores, -np.inf", "scores, 0.0", "which hides nothing"),
    (" / np.sqrt(d)", " / np.sqrt(v.shape[2])", "the root of the width of v"),
    ("    return int((c", "    return int(best[0])\n    return int((c", "must depend on u"),
    ("losses[targets != pad].mean()", "losses.mean()", "is padding is in the mean"),
    (
        "losses[targets != pad].mean()",
        "(losses * (targets != pad)).mean()",
        "but it is counted",
    ),
    ("targets != pad", "ids[:, :-1] != pad", "leave out where the next id is"),
    (
        "shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))",
        "np.log(np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True))",
        "large scores give inf",
    ),
    ("np.tri(length, dtype=bool)", "True", "positions 0 and 1 move"),
    ("np.tri(length, dtype", "np.tri(length, k=1, dtype", "positions 0 and 1 move"),
    ("np.tri(length, dtype", "np.tri(length, k=-1, dtype", "itself too"),
    (
        "    return weights @",
        "    e = np.exp(scores)\n    e = e / e.sum(axis=-1, keepdims=True)\n"
        "    weights = e * np.tri(length)\n    return weights @",
        "before softmax, not after it",
    ),
    (" / np.sqrt(d)", "", "not divided by sqrt(d)"),
    (
        "seen - seen.max(axis=-1, keepdims=True)",
        "seen",
        "maximum of the visible scores of each row",
    ),
    ("seen - seen.max(", "seen - scores.max(", "maximum of the visible scores of each row"),
    (
        "np.exp(seen - seen.max(axis=-1, keepdims=True))",
        "np.where(seen == -np.inf, 0, np.exp(seen.clip(-700, 700)))",
        "large scores give wrong weights",
    ),
    ("scores, -np.inf", "scores, -1e9", "scores of -1e40 get wrong weights"),
    (" / np.sqrt(d)", " / d", "the scores are divided by d, not by sqrt(d)"),
    (
        "e.sum(axis=-1, keepdims=True)",
        "e.sum(axis=-2, keepdims=True)",
        "take softmax over the k",
    ),
    ("    scores = q", "    q *= 2\n    scores = q", "causal_attention changed its arguments"),
    ("targets != pad", "targets != 0", "compare with `pad`, not with 0"),
    ("targets != pad", "(targets != pad) & (targets != 0)", "compare with `pad`, not with 0"),
    ("targets != pad", "(targets != pad) & (ids[:, :-1] != pad)", "padding in front"),
    (
        "logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))",
        "p = np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True)\n"
        "    logs = np.log(p + 1e-12)",
        "large scores give 27.6",
    ),
    (
        "    shifted =",
        "    scores -= 1\n    shifted =",
        "next_token_loss changed its arguments",
    ),
    (
        "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
        "c = np.cumsum(p[best])\n    return int(best[(c <= u * c[-1]).sum()])",
        "in the order of the ids, not of the probabilities",
    ),
    (
        "np.argsort(-logits)[:k]",
        "logits >= np.sort(logits)[-k]",
        "k=2 draws 4 different ids where several scores are equal",
    ),
    (
        "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
        "c = np.cumsum(p / p.sum())\n    return int((c <= u).sum())",
        "u just below 1 gives id 12",
    ),
    (
        "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
        "c = np.cumsum(p / p.sum())\n    return min(int((c <= u).sum()), len(p) - 1)",
        "u just below 1 gives id 11",
    ),
    (
        "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
        "return int(np.argmax(np.cumsum(p / p.sum()) > u))",
        "u just below 1 gives id 0",
    ),
    ("[:k]\n", "[-k:]\n", "the least likely id"),
    ("[:k]\n", "[1 : k + 1]\n", "the likeliest id, whatever u is"),
    ("np.cumsum(p)", "np.cumsum(p[best])", "place among the k"),
    ("[:k]\n", "\n", "k=1 draws 5 different ids"),
    ("[:k]\n", "[: k + (k > 1)]\n", "not among the k likeliest"),
    (") / temperature", ") * temperature", "divide the scores by temperature"),
    (") / temperature", ")", "the temperature has no influence"),
    ("<= u", "< u", "of probability 0"),
    (" - logits.max()", "", "are drawn wrongly"),
    ("    p = np", "    logits[:] = 0\n    p = np", "the scores of its caller"),
    (
        "return weights @ v",
        "return weights @ v * (np.arange(length) < 2)[:, None]",
        "position 2 sees neither",
    ),
    (
        "losses[targets != pad].mean()",
        "losses[targets != pad].max()",
        "not the mean of -log p(next id)",
    ),
    (
        "losses[targets != pad].mean()",
        "np.where(targets == pad, losses.max(), losses).mean()",
        "with padding the loss is wrong",
    ),
    (
        "return int((c <= u * c[-1]).sum())",
        "return int((c <= u * c[-1]).sum()) + 3",
        "scores, but id ",
    ),
]

# The same in another way.
ALSO_RIGHT = [
    (
        "np.where(np.tri(length, dtype=bool), scores, -np.inf)",
        "scores + np.where(np.tri(length), 0, -np.inf)",
    ),
    (
        "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
        "c = np.cumsum(p) / p.cumsum()[-1]\n    return int(np.searchsorted(c, u, 'right'))",
    ),
    (
        "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
        "c = np.cumsum(p / p.sum())\n    return int(min((c <= u).sum(), best.max()))",
    ),
]
