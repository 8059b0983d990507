"""Exercise 19_learning: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("m = beta * m + g", "m = beta * m + (1 - beta) * g", "g is not multiplied by 1 - beta"),
    ("m = beta * m + g", "m = beta * m - g", "not beta m + g"),
    ("return w - rate * m, m", "return w + rate * m, m", "goes with the gradient"),
    (
        "m = beta * m + g\n    return w - rate * m, m",
        "return w - rate * m, beta * m + g",
        "with the old m",
    ),
    ("return w - rate * m, m", "return w - rate * g, m", "takes g in place of m"),
    ("return w - rate * m, m", "return w - rate * (g + beta * m), m", "momentum of Nesterov"),
    ("return w - rate * m, m", "return m, w - rate * m", "and then the new m"),
    ("+ eps), m, v", "+ eps), v, m", "is not beta_1 m"),
    (
        "betas[0] * m + (1 - betas[0]) * g",
        "0.9 * m + 0.1 * g",
        "betas are arguments",
    ),
    (
        "betas[0] * m + (1 - betas[0]) * g",
        "betas[1] * m + (1 - betas[1]) * g",
        "the betas are exchanged",
    ),
    (
        "return w - rate * m_hat / (np.sqrt(v_hat) + eps), m, v",
        "return m, v, w",
        "and then the new m and v",
    ),
    (
        "    w = w - rate * decay * w\n    return w - rate * m_hat / (np.sqrt(v_hat) + eps), m, v",
        "    w = w - rate * m_hat / (np.sqrt(v_hat) + eps)\n    return w - rate * decay * w, m, v",
        "the decay takes the new w",
    ),
    ("return best", "return losses[best]", "that is the best loss"),
    ("return best", "return best + 1", "steps are counted from 0"),
    ("loss < losses", "loss > losses", "the largest loss is no progress"),
    (
        "        if step - best >= patience:\n",
        "        behind = 0 if step == 0 or loss < losses[step - 1] else behind + 1\n"
        "        if behind >= patience:\n",
        "a loss below the one before it",
    ),
    ("m = beta * m + g", "m *= beta\n    m += g", "changes its arguments"),
    ("return w - rate * m, m", "return w - rate * m", "returns 2 arrays"),
    ("+ eps), m, v", "+ eps), m_hat, v_hat", "keep m and v without the correction"),
    ("(1 - betas[0]) * g\n", "g\n", "m is a mean, not a sum"),
    ("(1 - betas[0]) * g\n", "betas[0] * g\n", "(1 - beta_1) g"),
    ("* g**2", "* g", "the mean of the squares"),
    ("* g**2", "* g**4", "(1 - beta_2) g**2"),
    ("rate * m_hat / (np.sqrt(v_hat)", "rate * m / (np.sqrt(v)", "the means are not corrected"),
    ("np.sqrt(v_hat)", "np.sqrt(v)", "v is not corrected"),
    ("rate * m_hat /", "rate * m /", "m is not corrected"),
    (" ** n)", " ** (n - 1))", "power n - 1"),
    ("np.sqrt(v_hat)", "v_hat", "the root of v is missing"),
    ("np.sqrt(v_hat) + eps", "np.sqrt(v_hat + eps)", "eps is inside the root"),
    ("(np.sqrt(v_hat) + eps)", "np.sqrt(v_hat)", "eps is missing"),
    ("rate * m_hat /", "rate * g /", "g in place of m"),
    ("return w - rate * m_hat", "return w + rate * m_hat", "goes with the gradient"),
    ("rate * m_hat /", "2 * rate * m_hat /", "without decay the new w"),
    ("    w = w - rate * decay * w\n", "", "decay has no influence"),
    ("rate * decay * w", "decay * w", "not multiplied by the rate"),
    ("w = w - rate * decay", "w = w + rate * decay", "weights grow"),
    ("rate * decay * w", "rate * decay", "not that of AdamW"),
    ("    m = betas[0]", "    g = g + decay * w\n    m = betas[0]", "AdamW keeps it out"),
    ("            break", "            pass", "the losses behind the stop"),
    ("            break", "            return step", "return the best one before it"),
    ("step - best >= patience", "step - best > patience", "the best step when training stops"),
    ("loss < losses", "loss <= losses", "an equal loss is no progress"),
    (
        "return w - rate * m, m",
        "return w - 2 * rate * m, m",
        "the new w is not w - rate m",
    ),
]

# The same in another way.
ALSO_RIGHT = [
    ("return w - rate * m, m", "return [w - rate * m, m]"),
    (
        "return w - rate * m_hat / (np.sqrt(v_hat) + eps), m, v",
        "return [w - rate * m_hat / (np.sqrt(v_hat) + eps), m, v]",
    ),
]
