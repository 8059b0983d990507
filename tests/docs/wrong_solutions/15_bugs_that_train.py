"""Exercise 15_bugs_that_train: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("differ(out, attention(q, k, v))", "False", "is not 'samples mixed': it does not explain"),
    (
        "differ(out[0], attention(q, k, other)[0])",
        "False",
        "not 'none': it does not explain one",
    ),
    ("((3, 3, 5, 8))", "((3, 1, 5, 8))", "box_3 is not 'none'"),
    ("differ(attention(q, k, ones), ones)", "False", "is not 'mask after softmax': it"),
    ("other[1:] += 1", "other += 1", "a sample does not depend on the other samples"),
    ("ones, causal=True", "ones", "a number that you can compute beforehand comes out"),
    ("later[:, 3:]", "later[:, 4:]", "box_1 is not 'none'"),
    ("later, causal=True", "later", "box_2 is not 'causal off by one'"),
    ("-4 / np.sqrt(4)", "-4 / np.sqrt(8)", "box_2 is not 'no root of d': it would break"),
    ('return "none"', 'return "fine"', "diagnose returns one of"),
    (
        "    if differ(attention(q, k, ones), ones):",
        "    if not differ(attention(q, k, ones), ones):",
        "without a mask the weights of a query sum to 1",
    ),
    (
        "    if differ(out, attention(q, k, v)):",
        "    if not differ(out, attention(q, k, v)):",
        "two calls give the same",
    ),
    (
        "    if differ(attention(q, k, ones, causal=True), ones):",
        "    if not differ(attention(q, k, ones, causal=True), ones):",
        "with the causal mask the weights of a query sum to 1",
    ),
    (
        "    if differ(out[:, order]",
        "    if not differ(out[:, order]",
        "another order of the inputs gives the same",
    ),
]
