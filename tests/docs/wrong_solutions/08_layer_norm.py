"""Exercise 08_layer_norm: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    (
        "    return centred / np.sqrt(variance + eps)\n",
        "    return (centred / np.sqrt(variance + eps))[0]\n",
        "layer_norm of (3, 4) has shape (3, 4)",
    ),
    (
        "    return (grad - ones - y * along_y) / sigma",
        "    return ((grad - ones - y * along_y) / sigma).sum(0)",
        "the gradient of x has x's shape",
    ),
    (
        "(centred**2).mean(axis=-1, keepdims=True)\n",
        "x.var(axis=-1, ddof=1, keepdims=True)\n",
        "divided by d - 1",
    ),
    ("np.sqrt(variance + eps)", "(np.sqrt(variance) + eps)", "belongs under the root"),
    ("variance + eps", "variance", "sqrt(variance + eps)"),
    ("axis=-1", "axis=0", "take the mean of each row"),
    ("x.mean(axis=-1, keepdims=True)", "x.mean()", "the mean is that of the whole array"),
    ("- y * along_y", "- along_y", "lacks its factor"),
    ("grad - ones - y", "grad - y", "points along ones"),
    ("grad - ones - y", "grad - (grad / sigma).mean() * sigma - y", "points along ones"),
    (" - y * along_y", "", "points along x - mean"),
    (" / sigma\n    ones", "\n    ones", "x - mean is in place of y"),
    ("along_y) / sigma", "along_y)", "divide by sqrt(variance + eps)"),
    ("y = centred / sigma", "y = layer_norm(x)", "with eps=0.5"),
    ("axis=-1", "axis=1", "rows lie along the last axis"),
    ("(grad * y).mean(axis=-1", "(grad * y).mean(axis=1", "the gradient of (2, 1, 5)"),
    (
        "return (grad - ones - y * along_y) / sigma",
        "return (grad - ones - y * along_y) / sigma * (0.9 if x.ndim > 2 else 1)",
        "the gradient of (2, 1, 5)",
    ),
    (
        "variance = (centred**2).mean(axis=-1, keepdims=True)",
        "variance = (x**2).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2",
        "loses digits",
    ),
    ("    variance =", "    x -= 1\n    variance =", "layer_norm changed x"),
    ("    ones =", "    grad += 1\n    ones =", "layer_norm_backward changed grad or x"),
    (
        "return centred / np.sqrt(variance + eps)",
        "return np.where(variance == 0, 1.0, centred / np.sqrt(variance + eps))",
        "a row of equal numbers becomes 0",
    ),
]

# The same in another way.
ALSO_RIGHT = [("(centred**2).mean(axis=-1, keepdims=True)\n", "x.var(-1, keepdims=True)\n")]
