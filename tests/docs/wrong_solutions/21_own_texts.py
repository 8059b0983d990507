"""Exercise 21_own_texts: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ('["<pad>", "<unknown>", *(', "[*(", "the list begins with"),
    ("if n >= least", "if n > least", "least = 2 means 2 or more"),
    ("if n >= least", "if n", "with least = 2 it is left out"),
    ("counts.most_common()", "sorted(counts.items())", "the most frequent word"),
    ("if n >= least", 'if n >= least and word != "dog"', "the words are"),
    (
        "for text in texts for word in text)",
        "for text in texts for word in dict.fromkeys(text))",
        "at each",
    ),
    ('return ["<pad>", "<unknown>", *(', 'return ["<pad>", "<unknown>", "the", *(', "twice"),
    (
        "max(map(len, texts))), PAD)\n    for row, text in zip(ids, texts, strict=True):",
        "min(map(len, texts))), PAD)\n"
        "    for row, text in zip(ids, [text[:1] for text in texts], strict=True):",
        "words are cut off",
    ),
    ("max(map(len", "9 + max(map(len", "have the shape (3, 4)"),
    ("number.get(word, UNKNOWN)", "number.get(word, PAD)", "and not padding"),
    ("texts))), PAD)", "texts))), UNKNOWN)", "and not UNKNOWN"),
    ("row[: len(text)]", "row[len(row) - len(text) :]", "put it behind"),
    ("in enumerate(vocabulary)", "in enumerate(vocabulary, -2)", "in the whole list"),
    ("texts))), PAD)", "texts))), 0.0)", "ids are integers"),
    (
        "zip(ids, texts, strict=True)",
        "zip(ids, texts[::-1], strict=True)",
        "and yours are",
    ),
    ("keep = ids != PAD", "keep = ids >= PAD", "the vectors of padding are in the mean"),
    (
        "count = np.maximum(keep.sum(axis=1, keepdims=True), 1)",
        "count = ids.shape[1]",
        "and not by the number of words",
    ),
    (" / count", "", "this is the sum"),
    ("keep.sum(axis=1, keepdims=True)", "keep.sum()", "those of its own text"),
    ("keep = ids != PAD", "keep = ids > UNKNOWN", "unknown words are words too"),
    ("np.where(keep[:, :, None], x, 0).sum(axis=1) / count", "x[:, 0]", "the first word"),
    ("np.where(keep[:, :, None], x, 0)", "(x * keep[:, :, None])", "0 * NaN is NaN"),
    (
        "np.maximum(keep.sum(axis=1, keepdims=True), 1)",
        "keep.sum(axis=1, keepdims=True)",
        "a text without words is 0",
    ),
    (".sum(axis=1) / count", ".max(axis=1)", "not the means of the words"),
    (".sum(axis=1) / count", ".sum() / count", "have means of shape (3, 2)"),
    (
        "test.append(rows[tenth : 2 * tenth])",
        "test.append(rows[:tenth])",
        "are in the test too",
    ),
    ("rows[2 * tenth :]", "rows[tenth:]", "know them by heart"),
    ("rows[2 * tenth :]", "rows[3 * tenth :]", "in none of the three parts"),
    (
        "return np.concatenate(learning), np.concatenate(choices), np",
        "return np.concatenate(choices), np.concatenate(learning), np",
        "the largest part comes first",
    ),
    (
        "rng.permutation(np.flatnonzero(labels == label))",
        "np.flatnonzero(labels == label)",
        "do not depend on the seed",
    ),
    (
        "    for label in np.unique(labels):\n"
        "        rows = rng.permutation(np.flatnonzero(labels == label))\n"
        "        tenth = len(rows) // 10",
        "    for rows in [rng.permutation(len(labels))]:\n        tenth = len(rows) // 10",
        "divide the texts of each label alone",
    ),
    ("default_rng(seed)", "default_rng()", "the same seed gives other parts"),
    ("len(rows) // 10", "len(rows) // 5", "and yours are"),
    ("np.concatenate(test)\n", "np.array(0)\n", "an array (n,)"),
    ("np.concatenate(choices), np.concatenate(test)", "choices", "returns three arrays"),
    ("np.concatenate(learning), ", "np.concatenate(learning * 2), ", "in one part twice"),
    (
        "rng.permutation(np.flatnonzero(labels == label))",
        "np.roll(np.flatnonzero(labels == label), rng.integers(3))",
        "never come into the test",
    ),
    (
        "        choices.append(rows[:tenth])\n        test.append(rows[tenth : 2 * tenth])",
        "        choices.append(rows[:1])\n        test.append(rows[1 : 2 * tenth])",
        "the texts of each label are",
    ),
    (
        "counts.most_common()",
        'sorted(counts.items(), key=lambda x: (-(x[1] > 3), x[0] == "dog", -x[1]))',
        "is the rarest word of the list",
    ),
    (
        'return ["<pad>", "<unknown>", *(word for word, n in counts.most_common() if n >= least)]',
        'return ("<pad>", "<unknown>", *(word for word, n in counts.most_common() if n >= least))',
        "vocabulary_of returns a list of words",
    ),
]

# The same in another way.
ALSO_RIGHT = [
    ("counts.most_common()", "sorted(counts.items(), key=lambda x: -x[1])"),
    ("counts.most_common()", "sorted(counts.items(), key=lambda x: (-x[1], x[0]))"),
    (
        "return np.concatenate(learning), np.concatenate(choices), np.concatenate(test)",
        "return [np.concatenate(x) for x in (learning, choices, test)]",
    ),
    (
        "np.where(keep[:, :, None], x, 0).sum(axis=1) / count",
        "np.nan_to_num(np.nanmean(np.where(keep[:, :, None], x, np.nan), axis=1))",
    ),
]
