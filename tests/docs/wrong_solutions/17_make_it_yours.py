"""Exercise 17_make_it_yours: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("cap * math.tanh(x[i] / cap)", "math.tanh(x[i] / cap)", "forgets to multiply by cap"),
    ("cap * math.tanh(x[i] / cap)", "math.tanh(x[i])", "without its cap"),
    ("range(x.size)", "range(x.size - 1)", "fill all"),
    ("out[i] = cap * math.tanh(x[i] / cap)", "out[i] = x[i] = 0", "the kernel changes x"),
    ("grad * (1 -", "(1 -", "multiply by grad"),
    ("(out / cap) ** 2", "out**2", "right for cap 1 only"),
    (
        "return grad * (1",
        "grad *= 1 - (out / cap) ** 2\n    return grad + 0 * (1",
        "writes to grad",
    ),
    (
        "return grad * (1 - (out / cap) ** 2)",
        "return np.asarray(grad) * (1 - (np.asarray(out) / cap) ** 2)",
        "no second derivative: use operators",
    ),
    (" / math.sqrt(queries.shape[-1])", "", "must be scaled dot-product attention"),
    (
        "softcap(scores, cap=self.cap)",
        "softcap(scores)",
        "call softcap with the cap of the layer",
    ),
    (
        "softcap(scores, cap=self.cap), valid_lens",
        "softcap(scores, cap=self.cap)",
        "keys behind valid_lens have influence",
    ),
    (
        "scores = queries @ keys.swapaxes(-2, -1) / math.sqrt(queries.shape[-1])",
        "root = math.sqrt(queries.shape[-1])\n        scores = queries @ keys.swapaxes(-2, -1)",
        "must be scaled dot-product attention",
    ),
    (", reference=lambda x: reference(x, 2.0)", "", "without the factor cap"),
    (
        "check_op(lambda x: softcap(x, cap=2.0)",
        "check_op(lambda x: softcap(x, cap=1.0)",
        "rejects a right op",
    ),
    (
        "samples = [(3 * rng.standard_normal((3, 4)),), (rng.standard_normal(5),)]",
        "samples = [(0.01 * rng.standard_normal((3, 4)),)]",
        "has a gradient of 0 where scores are beyond cap",
    ),
    (
        "    check_op(",
        "    assert softcap(ta.zeros(1), cap=2.0).item() == 0\n    return\n    check_op(",
        "has a rule for cap 1",
    ),
    (
        "samples = [(3 * rng.standard_normal((3, 4)),), (rng.standard_normal(5),)]\n"
        "    check_op(lambda x: softcap(x, cap=2.0), samples, reference=lambda x: "
        "reference(x, 2.0))",
        "samples = [(100 * rng.standard_normal((3, 4)),)]\n"
        "    check_op(softcap, samples, reference=lambda x: reference(x, 50.0))",
        "takes a cap of 50, whatever cap is",
    ),
    (
        "        return F.masked_softmax(softcap(scores, cap=self.cap), valid_lens) @ values",
        "        out = F.masked_softmax(softcap(scores, cap=self.cap), valid_lens) @ values\n"
        "        return out.numpy()",
        "is a Tensor (2, 3, 6)",
    ),
    (
        " / math.sqrt(queries.shape[-1])\n        return F.masked_softmax(softcap(scores, "
        "cap=self.cap)",
        "\n        return F.masked_softmax(softcap(scores, cap=self.cap) / math.sqrt("
        "queries.shape[-1])",
        "divided by sqrt(d) first",
    ),
    (
        "return grad * (1 - (out / cap) ** 2)",
        "return grad * (1 - (out / cap) ** 2) * 2",
        "the rule is not grad * (1 - tanh",
    ),
    (
        "    samples = [(3 * rng.standard_normal((3, 4)),), (rng.standard_normal(5),)]\n"
        "    check_op(lambda x: softcap(x, cap=2.0), samples, reference=lambda x: "
        "reference(x, 2.0))",
        "    x = ta.tensor(3 * rng.standard_normal((3, 4)), requires_grad=True)\n"
        "    softcap(x, cap=2.0).sum().backward()\n"
        "    assert np.allclose(x.grad.numpy(), 1 - np.tanh(x.detach().numpy() / 2) ** 2)",
        "forgets the gradient of its output",
    ),
    (
        "    return grad * (1 - (out / cap) ** 2)",
        "    out = out.detach() if isinstance(out, ta.Tensor) else out\n"
        "    return grad * (1 - (out / cap) ** 2)",
        "the second derivative of softcap is wrong",
    ),
]

# The same in another way.
ALSO_RIGHT = [
    (
        "    check_op(lambda x: softcap(x, cap=2.0), samples, reference=lambda x: "
        "reference(x, 2.0))\n",
        "    for (x,) in samples:\n"
        "        found = softcap(ta.tensor(x), cap=2.0)\n"
        "        assert np.allclose(found.numpy(), reference(x, 2.0))\n"
        "        x = ta.tensor(x, requires_grad=True)\n"
        "        assert ta.gradcheck(lambda x: softcap(x, cap=2.0), [x])\n",
    ),
]
