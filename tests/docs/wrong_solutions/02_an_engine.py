"""Exercise 02_an_engine: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    ("g @ b.T", "b @ g.T", "backward raised ValueError"),
    ("a.T @ g", "(g.T @ a).T * 2", "A.T @ G"),
    (
        "lambda g: g @ b.T), (other, lambda g: a.T @ g)",
        "lambda g: a.T @ g), (other, lambda g: g @ b.T)",
        "the two rules of A @ B are exchanged",
    ),
    ("parent.grad + fit(", "fit(", "takes the place of another one: add"),
    ("order[::-1]", "order", "reverse an order that begins at the leaves"),
    ("a @ b, [", "b @ a, [", "the product is B @ A"),
    ("a @ b, [", "a * b, [", "the product of matrices is A @ B"),
    (
        "b.T), (other, lambda g: a.T @ g",
        "b.T), (other, lambda g: g.T @ a",
        "is a .T missing, or too",
    ),
    ("if id(node) not in found", "if True", "before it is complete, or twice"),
    ("if size == 1 and", "if False and", "gives shape"),
    ("grad.sum(0)", "grad[0]", "sum over what was broadcast"),
    ("fit(rule(node.grad), parent.data.shape)", "rule(node.grad)", "has a gradient (3,)"),
    (
        "fit(rule(node.grad), parent.data.shape)",
        "fit(rule(node.grad), (1, 1, *parent.data.shape)[-node.grad.ndim :])",
        "has a gradient (3,), not (1, 3)",
    ),
    ("self.grad = grad\n", "self.grad = grad\n        grad *= 1.5\n", "in a * b is grad * b"),
    (
        "fit(rule(node.grad), parent.data.shape)",
        "fit(rule(node.grad), parent.data.shape) / (1 + bool(parent.grad.any()))",
        "those of each use must be added",
    ),
    (
        "grad = grad.sum(0)",
        "grad = grad.sum(next((i for i, n in enumerate(grad.shape) if n not in shape), -1))",
        "broadcasting adds axes in front",
    ),
    (
        "fit(rule(node.grad), parent.data.shape)",
        "rule(node.grad) if rule(node.grad).ndim == parent.data.ndim else rule(node.grad)[0] * 4",
        "a bias that is added to 4 rows",
    ),
    (
        "parent.grad + fit(rule(node.grad), parent.data.shape)",
        "parent.grad + fit(rule(node.grad), parent.data.shape)\n        grad += 1",
        "changed the gradient that it was given",
    ),
    (
        "grad = grad.sum(0)",
        "grad = grad.mean(0)",
        "fit takes the mean: take the sum",
    ),
    (
        "a @ b, [",
        "a @ b + 1, [",
        "the product itself is wrong",
    ),
]

# These get no second sentence.
ONCE = [
    ("for node in order_of(self):", "for node in [self]:", "go on to all that it is made of"),
    ("parent.grad + fit(", "fit(", "takes the place of another one: add"),
]

# The same in another way.
ALSO_RIGHT = [
    (
        "    while grad.ndim > len(shape):\n        grad = grad.sum(0)\n",
        "    grad = grad.sum(tuple(range(grad.ndim - len(shape))))\n",
    ),
]
