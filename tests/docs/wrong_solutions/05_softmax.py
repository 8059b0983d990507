"""Exercise 05_softmax: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("e / e.sum(", "e / (1e-6 + e).sum(", "add no small number"),
    ("/ e.sum(", "/ e.max(", "the weights of a row do not sum to 1"),
    ("np.exp(x - x", "np.exp(x.clip(-500) - x.clip(-500)", "a row far below 0 has wrong"),
    ("keepdims=True))\n    return e", "keepdims=True)) + 1e-30\n    return e", "0 and -inf"),
    (
        "out * (grad - (grad * out).sum(axis=-1, keepdims=True))",
        "grad * out * (1 - out)",
        "this is the diagonal alone",
    ),
    (
        "out * (grad - (grad * out).sum(axis=-1, keepdims=True))",
        "(np.diag(out) - np.outer(out, out)) @ grad",
        "np.diag and np.outer are for one row",
    ),
    ("e.sum(axis=-1, keepdims=True)", "e.sum(axis=-1)", "keep its axis with keepdims=True"),
    (" - x.max(axis=-1, keepdims=True)", "", "a score of 1000 gives nan: subtract the maximum"),
    ("x.max(axis=-1, keepdims=True)", "x.max()", "not that of the array"),
    ("e.sum(axis=-1, keepdims=True)", "e.sum()", "take the sum of each row"),
    ("e.sum(axis=-1, keepdims=True)", "e.sum(axis=0)", "columns sum to 1"),
    ("np.exp(x - x", "np.exp2(x - x", "are not exp(x) / sum(exp(x))"),
    ("    e = np", "    x -= 1\n    e = np", "softmax changed its argument"),
    ("(grad - (grad * out).sum(axis=-1, keepdims=True))", "grad", "must give 0: subtract"),
    ("grad * out).sum", "grad).mean", "a cotangent of ones cannot see it"),
    ("x.max(axis=-1", "x.max(axis=int(x.ndim > 1)", "softmax of (2, 3, 4) is wrong"),
    ("(grad * out).sum(axis=-1", "(grad * out).sum(axis=1", "the gradient of (2, 1, 4)"),
    (
        "return out * (grad - (",
        "grad -= (grad * out).sum(axis=-1, keepdims=True)\n    return out * (grad - 0 * (",
        "changed grad or out",
    ),
    (
        "return e / e.sum(axis=-1, keepdims=True)",
        "return (e / e.sum(axis=-1, keepdims=True)).T",
        "softmax of (3, 4) has shape (3, 4), yours (4, 3)",
    ),
    (
        "return out * (grad - (grad * out).sum(axis=-1, keepdims=True))",
        "return (out * (grad - (grad * out).sum(axis=-1, keepdims=True))).sum(axis=-1)",
        "has x's shape, not (2,)",
    ),
]

# The same in another way.
ALSO_RIGHT = [
    (
        "(grad * out).sum(axis=-1, keepdims=True)",
        "np.einsum('...i,...i', grad, out)[..., None]",
    ),
]
