"""Exercise 00_text_to_numbers: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("enumerate(vocabulary)", "enumerate(vocabulary, 1)", "from 0"),
    (
        "numbers.get(word, unknown)",
        "numbers.get(word, len(vocabulary))",
        "gets the id `unknown`",
    ),
    ("numbers.get(word, unknown)", "numbers.get(word, 0)", "another number than 0"),
    ("return -np.log(p", "return np.log(p", "the sign of log p is missing"),
    ("enumerate(vocabulary)", "enumerate(sorted(vocabulary))", "the vocabulary is sorted"),
    ("numbers.get(word, unknown)", "numbers.get(word) or unknown", "the first word has the id 0"),
    (
        "log(p[np.arange(len(targets)), targets])",
        "log(p[np.arange(len(targets)), targets] + 1e-9)",
        "a number is added to p",
    ),
    ("    p = probabilities", "    logits -= 1\n    p = probabilities", "changes logits"),
    (
        "(probabilities(logits) - y) / len(targets)",
        "(probabilities(logits) - y) / 5",
        "by the size of the vocabulary",
    ),
    ("np.zeros((size, ", "np.zeros((ids.max() + 1, ", "(7, 3), not (6, 3)"),
    ("targets]).mean()", "targets]).sum()", "this is the sum of the losses"),
    ("targets]).mean()", "targets])", "not an array of shape (4,)"),
    (
        "-np.log(p[np.arange(len(targets)), targets])",
        "p[np.arange(len(targets)), targets]",
        "mean of p",
    ),
    ("targets]).mean()", "targets].mean())", "the logarithm is taken after the mean"),
    ("-np.log(", "-np.log2(", "the logarithm has base 2"),
    ("powers.sum(axis=-1, keepdims=True)", "powers.sum(axis=0)", "over the words of the text"),
    (
        "-np.log(p[np.arange(len(targets)), targets]).mean()",
        "-(np.eye(5)[targets] * np.log(p)).mean()",
        "the right ones alone count",
    ),
    ("targets]).mean()", "targets]).max()", "not the mean of -log p"),
    (" / len(targets)", "", "divided by the number of words"),
    ("(probabilities(logits) - y)", "(y - probabilities(logits))", "the wrong sign"),
    ("(probabilities(logits) - y)", "probabilities(logits)", "y is missing"),
    ("- y) / len(targets)", "- y) / logits.size", "by the number of logits"),
    ("np.arange(len(targets)), targets", ":, targets", "takes columns of all rows"),
    ("powers.sum(axis=-1, keepdims=True)", "powers.sum()", "probabilities together sum to 1"),
    (
        "    y = np.eye(logits.shape[1])[targets]\n    return (probabilities(logits) - y)",
        "    p = probabilities(logits)\n    p[:, targets] -= 1\n    return p",
        "takes columns of all rows",
    ),
    (
        "    y = np.eye(logits.shape[1])[targets]\n    return (probabilities(logits) - y)",
        "    p = probabilities(logits)\n    p[targets] -= 1\n    return p",
        "in line 23: p[targets] -= 1; [targets] takes whole rows",
    ),
    (
        "np.add.at(table, ids, gradient)",
        "table = np.eye(size)[ids] @ gradient",
        "the columns of A are 7 and the rows of B are 4, in line 28: table = np.eye(size)[ids] "
        "@ gradient; is a .T missing",
    ),
    (
        "np.array([numbers.get(word, unknown) for word in words])",
        "[numbers.get(word, unknown) for word in words]",
        "encode gives a list",
    ),
    ("- y) / len(targets)", "- y).sum(-1)", "have a gradient (4, 5)"),
    ("- y) / len(targets)", "- y / 2) / len(targets)", "is not (p - y) / N"),
    ("np.add.at(table, ids, gradient)", "table[ids] += gradient", "yours gets the last one"),
    (
        "np.add.at(table, ids, gradient)",
        "for i, row in zip(ids[::-1], gradient[::-1]):\n        table[i] = row",
        "yours gets the first one",
    ),
    (
        "return table",
        "return table / np.maximum(np.bincount(ids, minlength=size), 1)[:, None]",
        "not the mean",
    ),
    ("return table", "return table[ids]", "has a gradient (7, 3)"),
    ("return table", "return table * 2", "row i is not the sum"),
    (
        "log(p[np.arange(len(targets)), targets])",
        "log(p[np.arange(len(targets)), targets] + np.finfo(float).eps)",
        "a number is added to p",
    ),
    (
        "np.exp(logits - logits.max(axis=-1, keepdims=True))",
        "np.exp(np.clip(logits, -700, 700))",
        "change logits only by subtraction",
    ),
]

# These get no second sentence.
ONCE = [
    ("targets]).mean()", "targets]).sum()", "this is the sum of the losses"),
    ("- y) / len(targets)", "- y)", "its gradient is divided by the number of words"),
]

# The same in another way.
ALSO_RIGHT = [
    (
        "    p = probabilities(logits)\n"
        "    return -np.log(p[np.arange(len(targets)), targets]).mean()",
        "    z = logits - logits.max(axis=-1, keepdims=True)\n"
        "    z = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))\n"
        "    return -z[range(len(targets)), targets].mean()",
    ),
    (
        "numbers.get(word, unknown)",
        "numbers[word] if word in numbers else unknown",
    ),
    (
        "table = np.zeros((size, gradient.shape[1]))\n    np.add.at(table, ids, gradient)",
        "table = np.eye(size)[ids].T @ gradient",
    ),
]
