"""Exercise 04_gradcheck: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    (
        "standard_normal(np.shape(function(x)))",
        "random(np.shape(function(x))) * 0 + 1",
        "plain mean",
    ),
    ("1e-6 * np.abs(slopes).max() + 1e-9", "1e-6", "make the tolerance relative"),
    ("1e-6 * np.abs", "1e-2 * np.abs", "1 in 1,000"),
    ("x.astype(np.float64)", "x.copy()", "at a float32 x"),
    ("    x = x.astype(np.float64)\n", "    x += 1\n", "is_right changed x"),
    (".max()\n", ".min()\n", "in one element"),
    ("return bool", "return float", "True or False"),
    ("np.abs(rule(grad, x) - slopes)", "(rule(grad, x) - slopes)", "exp minus 1: compare abs"),
    ("np.abs(rule(grad, x) - slopes)", "(slopes - rule(grad, x))", "exp plus 1: compare abs"),
    ("standard_normal(np", "random(np", "exp with abs(grad): a cotangent has both signs"),
    (
        "(0).standard_normal(np",
        "(0).uniform(-1, 0, np",
        "exp with -abs(grad): a cotangent has both signs",
    ),
    ("(np.shape(function(x)))", "(x.shape[-1:]) + 0 * function(x)", "rows that differ"),
    ("(np.shape(function(x)))", "((len(function(x)), 1)) + 0 * function(x)", "columns"),
    ("np.abs(slopes).max()", "slopes.max()", "the right rule of one number is refused"),
    (
        "1e-6 * np.abs(slopes).max() + 1e-9",
        "1e-6 * max(np.abs(slopes).max(), 1)",
        "1e-7 sin(x)",
    ),
    ("1e-6 * np.abs(slopes).max() + 1e-9", "1e-15", "leave room for the error"),
    ("function(x - step)", "function(x)", "the difference is one-sided"),
    ("rule(grad, x)", "rule(x, grad)", "the rule is called with x first"),
    ("step[i] = 1e-5", "step[i] = 0", "the function sees x alone"),
    (
        "    difference = np.abs(rule(grad, x) - slopes).max()\n",
        "    found = rule(grad, x)\n"
        "    found = found * np.linalg.norm(slopes) / max(np.linalg.norm(found), 1e-300)\n"
        "    difference = np.abs(found - slopes).max()\n",
        "the right direction and another length",
    ),
    ("difference <=", "not difference >", "a comparison with nan is False"),
    ("np.shape(function(x))", "x.shape", "is_right raised ValueError"),
    (
        "/ 2e-5",
        "/ 4e-5",
        "2 h, not by 4 h",
    ),
    (
        "    difference =",
        "    if np.shape(function(x)) != x.shape:\n        return False\n    difference =",
        "with outputs of another shape is refused",
    ),
    (
        "np.abs(rule(grad, x) - slopes)",
        'np.abs(np.convolve((rule(grad, x) - slopes).ravel(), [1, 1], "valid"))',
        "by turns: take the largest",
    ),
    (
        "np.abs(rule(grad, x) - slopes)",
        "np.abs(np.abs(rule(grad, x)) - np.abs(slopes))",
        "exp with the wrong sign",
    ),
    (
        "rule(grad, x)",
        "slopes",
        "is_right does not call the rule",
    ),
    (
        "    difference =",
        "    if abs(slopes.sum()) < 1e-6:\n        return False\n    difference =",
        "the right rule of softmax is refused",
    ),
    (
        "    difference = np",
        "    if np.allclose(rule(grad, x), np.exp(x)):\n        return True\n    difference = np",
        "exp without the chain rule",
    ),
]

# These get no second sentence.
ONCE = [
    ("/ 2e-5", "/ 1e-5", "slopes are 2 times what they are"),
    ("1e-6 * np.abs(slopes).max() + 1e-9", "1e-15", "leave room for the error"),
]

# The same in another way.
ALSO_RIGHT = [
    ("default_rng(0)", "default_rng(8)"),  # whose first six numbers have one sign
    (
        "return bool(difference <= 1e-6 * np.abs(slopes).max() + 1e-9)",
        "return difference <= 1e-6 * np.abs(slopes).max() + 1e-9",
    ),
    (
        "slopes[i] = (grad * (function(x + step) - function(x - step))).sum() / 2e-5",
        "slopes[i] = (grad * function(x + 1j * step).imag).sum() / 1e-5",
    ),
    ("np.abs(slopes).max() + 1e-9", "np.abs(slopes).max()"),
    ("difference <= 1e-6 * np.abs(slopes).max() + 1e-9", "np.allclose(rule(grad, x), slopes)"),
    (
        "difference = np.abs(rule(grad, x) - slopes).max()\n"
        "    return bool(difference <= 1e-6 * np.abs(slopes).max() + 1e-9)",
        "norm = np.linalg.norm\n"
        "    return bool(norm(rule(grad, x) - slopes) <= 1e-5 * norm(slopes))",
    ),
]
