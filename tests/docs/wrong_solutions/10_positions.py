"""Exercise 10_positions: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("    return table\n", "    return table.T\n", "7 positions of width 6 are (7, 6)"),
    (
        "    return table",
        "    return np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)",
        "yours are two halves",
    ),
    (
        "    angles = np.arange(length)[:, None] * rates(width)",
        "    c = np.arange(width)\n"
        "    angles = np.arange(length)[:, None] / 10000.0 ** (2 * c / width)\n"
        "    return np.where(c % 2, np.cos(angles), np.sin(angles))",
        "not that of the column",
    ),
    ("[:, : width // 2]", "", "sinusoids raised ValueError"),
    ("10000.0", "1000.0", "not sin and cos of i / 10000^(2j / width)"),
    ("table[:, 0::2] = np.sin", "table[:, 0::2] = np.cos", "is not sin and cos"),
    ("-steps *", "steps *", "turn the wrong way"),
    (
        "    # (sin, cos)",
        "    return sinusoids(len(rows) + steps, rows.shape[1])[steps:]\n    # (sin, cos)",
        "with rows alone",
    ),
    ("-steps * rates(rows.shape[1])", "-steps * rates(8)[:1]", "not those of 3 positions"),
    ("positions[:, None]", "np.arange(len(x))[:, None]", "not by their positions"),
    ("positions[:, None]", "-positions[:, None]", "turn with the clock"),
    ("positions[:, None]", "(positions + 1)[:, None]", "position 0 must stay as it is"),
    (
        "return turn(x[:, 0::2], x[:, 1::2], positions[:, None] * rates(x.shape[1]))",
        "first, second = np.split(x, 2, axis=1)\n"
        "    out = turn(first, second, positions[:, None] * rates(x.shape[1]))\n"
        "    return np.concatenate([out[:, 0::2], out[:, 1::2]], axis=1)",
        "as in implementations of Llama",
    ),
    ("sin * first + cos * second", "sin * first - cos * second", "has the wrong sign"),
    (
        "    return turn(x[:, 0::2], x",
        "    return x + sinusoids(51, x.shape[1])[positions]\n    return turn(x[:, 0::2], x",
        "adds nothing",
    ),
    ("cos * first - sin * second", "cos * first + sin * second", "keeps the length"),
    ("rates(x.shape[1]))", "rates(x.shape[1]) ** 2)", "position / 10000^(2j / d)"),
    (
        "    return turn(x[:, 0::2], x",
        "    x[:, 0::2] += 1\n    return turn(x[:, 0::2], x",
        "rotary changed its argument",
    ),
    (
        "-steps * rates(rows.shape[1]))",
        "-steps * rates(rows.shape[1]))[:, :4]",
        "rows (5, 8) become (5, 8), not (5, 4)",
    ),
    (
        "    return turn(rows[:, 0::2], rows[:, 1::2], -steps * rates(rows.shape[1]))",
        "    out = turn(rows[:, 0::2], rows[:, 1::2], -steps * rates(rows.shape[1]))\n"
        "    rows *= 2\n"
        "    return out",
        "shift changed its argument",
    ),
    (
        "positions[:, None] * rates(x.shape[1]))",
        "positions[:, None] * rates(x.shape[1]))[:, :4]",
        "x (4, 6) becomes (4, 6), not (4, 4)",
    ),
]
