"""Grades exercise 2."""

from typing import Any

import numpy as np
from grading import close, exercise, expect, needs, run

yours = exercise("ex_02_an_engine")
rng = np.random.default_rng(2)


def backward(root, grad) -> None:
    run(root.backward, grad)


def test_fit() -> None:
    square = rng.standard_normal((3, 3))
    expect(
        not close(run(yours.fit, square, (3,)), square.sum(1)),
        "fit of an array (3, 3) to (3,): broadcasting adds axes in front, so sum over the first",
    )
    grad = rng.standard_normal((4, 3, 2))
    for shape, right in (
        ((4, 3, 2), grad),
        ((3, 2), grad.sum(0)),
        ((1, 2), grad.sum((0, 1))[None]),
        ((4, 1, 2), grad.sum(1, keepdims=True)),
        ((), grad.sum()),
    ):
        found = run(yours.fit, grad, shape)
        expect(np.shape(found) == shape, f"fit to {shape} gives shape {np.shape(found)}")
        means = right * np.size(right) / grad.size
        expect(shape == grad.shape or not close(found, means), "fit takes the mean: take the sum")
        expect(close(found, right), f"fit to {shape}: sum over what was broadcast")


def test_a_product() -> None:
    a, b = yours.Tensor([[2.0, 3.0]]), yours.Tensor([[5.0, 7.0]])
    backward(a * b, np.array([[1.0, -1.0]]))
    expect(
        not close(a.grad, [[5.0, 7.0]]),
        "backward does not use the gradient that it is given: start with it",
    )
    expect(close(a.grad, [[5.0, -7.0]]), "the gradient of a in a * b is grad * b")


def test_what_is_handed_on() -> None:
    a, b = yours.Tensor([3.0]), yours.Tensor([5.0])
    middle, known = a * b, []
    first, (_, rule) = middle.parents
    middle.parents = [first, (b, lambda grad: known.append(np.any(grad)) or rule(grad))]
    backward(middle * b, np.array([1.0]))
    expect(
        all(known),
        "the rules of a * b get its gradient when that is still 0: begin at the root, and reverse "
        "an order that begins at the leaves",
    )
    expect(
        not close(a.grad, [0.0]),
        "a is used by a * b, which is not the root: go on to all that it is made of",
    )
    expect(
        not close(a.grad, [5.0]),
        "a rule gets the gradient of the root: it needs that of its own tensor, which is now known",
    )
    expect(close(a.grad, [25.0]), f"the gradient of a in a * b * b at b = 5 is 25, not {a.grad}")


def test_a_value_that_is_used_twice() -> None:
    a = yours.Tensor([3.0])
    backward(a * a + a, np.array([1.0]))
    expect(
        not close(a.grad, [3.0]), "the gradient of a use takes the place of another one: add to it"
    )
    if not close(a.grad, [7.0]):
        needs(test_what_is_handed_on)
    expect(
        close(a.grad, [7.0]),
        f"the gradient of a * a + a at 3 is 7, yours {a.grad}: those of each use must be added",
    )


def test_order() -> None:
    """b is used by c and by the result, so it must wait for c."""
    for swapped in (False, True):
        a = yours.Tensor([2.0])
        b = a * a
        c = b * b
        backward(b + c if swapped else c + b, np.array([1.0]))
        if not close(a.grad, [36.0]):
            needs(test_what_is_handed_on, test_a_value_that_is_used_twice)
        expect(
            close(a.grad, [36.0]),
            f"the gradient of a**2 + a**4 at 2 is 36, yours {a.grad}: a node hands on its gradient "
            "before it is complete, or twice",
        )


class Parents(list):
    """Those of a node, which counts how often somebody goes through them or calls their rules."""

    def __init__(self, parents: list, uses: list) -> None:
        super().__init__((parent, self.counted(rule)) for parent, rule in parents)
        self.uses = uses

    def counted(self, rule: Any) -> Any:
        return lambda grad: self.use() or rule(grad)

    def use(self) -> None:
        self.uses.append(0)
        if len(self.uses) > 10_000:
            needs(test_what_is_handed_on, test_a_value_that_is_used_twice)
            expect(False, "18 additions are gone through 10,000 times: visit each node once")

    def __iter__(self) -> Any:
        self.use()
        return super().__iter__()


def test_time() -> None:
    x = start = yours.Tensor([1.0])
    uses: list = []
    for _ in range(18):
        x = x + x
        x.parents = Parents(x.parents, uses)
    backward(x, np.array([1.0]))
    if not close(start.grad, [2.0**18]):
        needs(test_what_is_handed_on, test_a_value_that_is_used_twice)
    expect(close(start.grad, [2.0**18]), "18 doublings multiply the gradient by 2**18")


def test_broadcasting() -> None:
    x, bias = yours.Tensor(rng.standard_normal((4, 3))), yours.Tensor(rng.standard_normal(3))
    grad = rng.standard_normal((4, 3))
    backward(x + bias, grad)
    expect(
        np.shape(bias.grad) == (3,),
        f"a bias (3,) has a gradient (3,), not {np.shape(bias.grad)}: backward adds fit(...) of "
        "what a rule gives, with the shape of the parent",
    )
    expect(close(bias.grad, grad.sum(0)), "a bias that is added to 4 rows gets 4 gradients")


def test_matmul() -> None:
    a, b = yours.Tensor(rng.standard_normal((2, 3))), yours.Tensor(rng.standard_normal((3, 4)))
    grad = rng.standard_normal((2, 4))
    first, second = yours.Tensor([[1.0, 2.0], [3.0, 4.0]]), yours.Tensor([[5.0, 6.0], [7.0, 8.0]])
    product = run(first.__matmul__, second).data
    expect(not close(product, second.data @ first.data), "the product is B @ A: write A @ B")
    out = run(a.__matmul__, b)
    expect(close(out.data, a.data @ b.data), "the product itself is wrong")
    shapes = [
        np.shape(run(rule, grad)) for parent in (a, b) for x, rule in out.parents if x is parent
    ]
    expect(
        shapes != [(3, 4), (2, 3)],
        "the two rules of A @ B are exchanged: the first belongs to A, and is G @ B.T",
    )
    backward(out, grad)
    expect(close(a.grad, grad @ b.data.T), "the gradient of A in A @ B is G @ B.T")
    expect(close(b.grad, a.data.T @ grad), "the gradient of B in A @ B is A.T @ G")


def test_shared_arrays() -> None:
    """The rules of + hand on one array to two parents."""
    a, b = yours.Tensor([1.0]), yours.Tensor([1.0])
    grad = np.array([1.0])
    backward((a + b) + a, grad)
    if not close(b.grad, [1.0]):
        needs(test_what_is_handed_on)
    expect(
        close(b.grad, [1.0]), f"b is used once, but its gradient is {b.grad}: do not add in place"
    )
    expect(close(grad, [1.0]), "backward changed the gradient that it was given")
