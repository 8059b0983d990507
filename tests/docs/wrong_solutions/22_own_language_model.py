"""Exercise 22_own_language_model: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("return max(pairs, key=pairs.__getitem__)", "return max(pairs.values())", "two ids"),
    (
        "max(pairs, key=pairs.__getitem__)",
        "pairs.most_common(1)[0]",
        "a pair with its count",
    ),
    ("pairwise(ids)", "zip(ids[1:], ids)", "has an order"),
    ("max(pairs", "min(pairs", "stands there three times"),
    (
        "pairwise(ids)",
        "zip(ids[::2], ids[1::2])",
        "stands there three times",
    ),
    (
        "    pairs = Counter(pairwise(ids))\n",
        "    pairs, i = Counter(), 0\n"
        "    while i < len(ids) - 1:\n"
        "        pairs[ids[i], ids[i + 1]] += 1\n"
        "        i += 2 if ids[i] == ids[i + 1] else 1\n",
        "count all neighbours",
    ),
    (
        "key=pairs.__getitem__",
        "key=lambda pair: (pairs[pair] > 2, pair)",
        "(4, 4) stands there twice",
    ),
    ("max(pairs, key", "max(reversed(pairs), key", "comes first, not"),
    ("    found, i = [], 0\n", "    found, i = [], 0\n    ids.append(0)\n", "begin a new list"),
    ("i += 2 if is_pair else 1", "i += 1", "skip it"),
    (
        "        i += 2 if is_pair else 1\n",
        "        i += 2 if is_pair else 1\n"
        "        if is_pair:\n"
        "            return found + ids[i:]\n",
        "merge all places",
    ),
    ("while i < len(ids):", "while i < len(ids) - 2:", "at the end of the list is lost"),
    ("tuple(ids[i : i + 2]) == pair", "ids[i : i + 2] == pair", "are never equal"),
    ("append(new if is_pair", "append(i if is_pair", "becomes 9 7 9"),
    (
        "tuple(ids[i : i + 2]) == pair",
        "sorted(ids[i : i + 2]) == sorted(pair)",
        "is not the pair",
    ),
    ("while i < len(ids):", "while i < len(ids) - 1:", "it has no neighbour behind it"),
    (
        "else ids[i])",
        "else 7)",
        "becomes 7 9 4",
    ),
    (
        "i += 2 if is_pair else 1",
        "i += 2 if is_pair and pair[0] != pair[1] else 1",
        "belongs to two pairs",
    ),
    (
        "    found, i = [], 0\n",
        "    found, i = [], len(ids) % 2 if pair == (4, 4) else 0\n    found += ids[:i]\n",
        "from left to right",
    ),
    ("return found\n", "return found[:2] if pair == (4, 4) else found\n", "becomes 9 9 4"),
    ("return pieces[:, :-1], pieces[:, 1:]", "return pieces", "two arrays: the inputs"),
    ("pieces[:, :-1], pieces[:, 1:]", "pieces, pieces", "have the shape (3, 4)"),
    ("pieces[:, :-1], pieces[:, 1:]", "pieces[:, :-1], pieces[:, :-1]", "learn to copy"),
    ("pieces[:, :-1], pieces[:, 1:]", "pieces[:, 1:], pieces[:, :-1]", "are exchanged"),
    ("ids[starts[:, None]", "ids[starts[:, None] + 1", "from starts[i] on"),
    (
        "return pieces[:, :-1], pieces[:, 1:]",
        "return pieces[:, :-1], ids[starts[:, None] + np.arange(2, context + 2)]",
        "two places later",
    ),
    ("pieces[:, 1:]", "np.roll(pieces[:, :-1], -1, axis=1)", "behind the window"),
    ("pieces[:, 1:]", "pieces[:, :0:-1]", "a target is the id after"),
    (
        "    pieces = ids[starts[:, None]",
        "    starts = starts.clip(0, len(ids) - context - 2)\n    pieces = ids[starts[:, None]",
        "the last window is another one",
    ),
    ("losses.sum()", "losses", "raised TypeError"),
    ("float(losses.sum() / np.log(2)", "(losses / np.log(2)", "is one number"),
    (" / np.log(2)", "", "these are nats"),
    ("/ np.log(2)", "* np.log(2)", "and not a factor"),
    ('len(text.encode("utf-8"))', "len(text)", "these are bits a sign"),
    ('len(text.encode("utf-8"))', "len(losses)", "these are bits a token"),
    ("losses.sum()", "losses.mean()", "take their sum"),
    (' / len(text.encode("utf-8"))', "", "the bits of the whole text"),
    ("losses.sum()", "losses.max()", "this is not sum(losses)"),
    ("step / warmup", "(step - 1) / warmup", "so the step does nothing"),
    ("highest * step / warmup", "highest * step / (warmup + 1)", "one step after the warm-up"),
    ("highest * step / warmup", "step / warmup", "no influence on the warm-up"),
    ("highest * step / warmup", "highest * (step / warmup) ** 2", "in the warm-up it is"),
    (
        "highest * (1 + np.cos(np.pi * progress)) / 2",
        "highest * (1 - progress)",
        "along a line",
    ),
    ("(1 + np.cos(np.pi * progress)) / 2", "np.cos(np.pi * progress) ** 2", "falls and grows"),
    ("(1 + np.cos(np.pi * progress)) / 2", "np.cos(np.pi * progress)", "becomes negative"),
    ("(1 + np.cos(np.pi * progress)) / 2", "(1 + np.cos(np.pi * progress))", "twice as high"),
    ("highest * (1 + np.cos(np.pi * progress)) / 2", "highest", "stays at `highest` after"),
    ("(step - warmup) / (steps - warmup)", "step / steps", "where the warm-up ends"),
    ("/ (steps - warmup)", "/ steps", "divide by steps - warmup"),
    ("np.cos(np.pi * progress)", "np.cos(progress)", "the angle ends at 1"),
    ("/ (steps - warmup)", "/ (steps - warmup + 1)", "the rate of the last step is 0"),
    ("(1 + np.cos(np.pi * progress)) / 2", "np.cos(np.pi * progress / 2)", "it is not highest"),
    ("if step <= warmup:", "if step <= max(warmup, 1):", "raised ZeroDivisionError"),
    (
        "    if step <= warmup:",
        "    warmup = max(warmup, 1)\n    if step <= warmup:",
        "nothing is divided by 0",
    ),
    (
        "key=pairs.__getitem__",
        "key=lambda x: pairs[x] * (x[0] <= x[1])",
        "(9, 2) stands there twice, and you return (2, 5)",
    ),
]

# The same in another way.
ALSO_RIGHT = [
    ("return max(pairs, key=pairs.__getitem__)", "return list(max(pairs, key=pairs.__getitem__))"),
    ("return pieces[:, :-1], pieces[:, 1:]", "return [pieces[:, :-1], pieces[:, 1:]]"),
    ("max(pairs, key=pairs.__getitem__)", "pairs.most_common(1)[0][0]"),
    ('len(text.encode("utf-8"))', "len(bytes(text, 'utf8'))"),
    ("if step <= warmup:", "if step < warmup:"),
]
