"""Exercise 06_masks: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("no_padding[:, None, :] &", "no_padding[:, None, :1] &", "key 2 of a sample of length 2"),
    ("None, :] & no_future", "None, :] * 1 & no_future", "a mask holds booleans"),
    (
        "no_padding[:, None, :] & no_future",
        "np.tile(no_future, (len(lengths), 1, 1))",
        "length 0",
    ),
    (
        "    return e / np",
        "    e = e + ~visible * 1e-3\n    return e / np",
        "invisible key has weight",
    ),
    (
        "no_padding[:, None, :] & no_future",
        "no_padding[:, None, :] | no_future",
        "write & and not |",
    ),
    ("np.where(visible, scores, -np.inf)", "scores * visible", "a score of 0 hides nothing"),
    ("np.where(total == 0, 1.0, total)", "(total + 1e-6)", "no small number"),
    ("    return e / np", "    e = e * 2\n    return e / np", "do not sum to 1"),
    (
        "    return e / np.where(total == 0, 1.0, total)",
        "    e = np.sqrt(e)\n    return e / e.sum(axis=-1, keepdims=True).clip(1e-99)",
        "not their softmax",
    ),
    ("keys < lengths[:, None]", "keys < lengths", "keys < lengths; lengths (B,) need axes"),
    ("keys <= keys", "keys < keys", "k <= i, not k < i"),
    ("keys <= keys[:, None]", "keys[:, None] <= keys", "sees a later key"),
    (
        "return no_padding[:, None, :] & no_future",
        "return ~(no_padding[:, None, :] & no_future)",
        "the mask is inverted",
    ),
    ("    shown = np", "    scores[~visible] = 0\n    shown = np", "changed its scores"),
    ("no_padding[:, None, :]", "no_padding", "visible_keys raised ValueError"),
    ("keys < lengths", "keys <= lengths", "k < length, not <="),
    ("no_padding[:, None, :]", "no_padding[:, :, None]", "not queries"),
    ("np.where(total == 0, 1.0, total)", "total", "without visible keys gives nan"),
    ("scores, -np.inf", "scores, -1e9", "-1e+09 get wrong weights"),
    (
        "scores, -np.inf)",
        "scores, -1e12)\n    visible = visible & (shown > -1e9)",
        "-1e+30 get wrong weights",
    ),
    ("shown.max(axis=-1, keepdims=True)", "shown.max()", "not that of the array"),
    ("np.where(most == -np.inf, 0.0, most)", "np.maximum(most, 0)", "maximum of the visible"),
    (
        "np.where(visible, scores, -np.inf)",
        "scores + np.where(visible, 0, -np.inf)",
        "NaN has influence",
    ),
    (
        "no_future = keys <= keys[:, None]",
        "no_future = (keys <= keys[:, None]) & (keys > keys[:, None] - 2)",
        "does not see all keys before it",
    ),
    (
        "e = np.exp(shown - np.where(most == -np.inf, 0.0, most))",
        "e = np.exp(shown)",
        "a visible score of 1000 gives nan",
    ),
    (
        "return e / np.where(total == 0, 1.0, total)",
        "return e / e.sum(axis=0, keepdims=True)",
        "divide each row by its own sum",
    ),
]

# These get no second sentence.
ONCE = [("    return e / np", "    e = e * 2\n    return e / np", "do not sum to 1")]

# The same in another way.
ALSO_RIGHT = [
    (
        "    shown = np.where(visible, scores, -np.inf)",
        "    shown = scores.copy()\n    shown[~visible] = -np.inf",
    ),
]
