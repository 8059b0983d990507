"""Ops of one's own: what a declaration may say, and what it is told when it is wrong."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from test_engine import equal, leaf, twin

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError, GraphError, ShapeError


@ta.op
def scaled(x, weight, *, power=1.0):
    """weight * x ** power: an example with an option and two derivatives."""
    return weight * x**power


@scaled.vjp("x")
def _(grad, x, weight, power):
    return grad * weight * power * x ** (power - 1)


def test_a_forward_may_use_one_buffer_for_all_its_results() -> None:
    buffer = np.empty(2)

    @ta.op
    def doubled(x):
        return np.multiply(x, 2, out=buffer)

    first = doubled(ta.tensor(np.array([1.0, 2.0])))
    second = doubled(ta.tensor(np.array([3.0, 4.0])))
    assert first.tolist() == [2, 4]
    assert second.tolist() == [6, 8]


@scaled.vjp("weight")
def _(grad, x, power):
    return grad * x**power


def test_an_op_of_ones_own() -> None:
    """Declared in a few lines, it broadcasts, has derivatives of any order and passes gradcheck."""
    x, weight = leaf([[1.0, 2.0], [3.0, 4.0]]), leaf([0.5, -1.0])
    out = scaled(x, weight, power=3.0)
    np.testing.assert_allclose(out.numpy(), weight.numpy() * x.numpy() ** 3)
    given = np.array([[1.0, -2.0], [3.0, 0.5]])
    out.backward(ta.tensor(given))
    np.testing.assert_allclose(x.grad.numpy(), given * weight.numpy() * 3 * x.numpy() ** 2)
    np.testing.assert_allclose(weight.grad.numpy(), (given * x.numpy() ** 3).sum(0))
    assert ta.gradcheck(lambda x, w: scaled(x, w, power=3.0), [x, weight])
    assert ta.gradgradcheck(lambda x, w: scaled(x, w, power=3.0), [x, weight])
    assert ta.gradcheck(lambda x, w: scaled(weight=w, x=x), [x, weight])


def test_an_op_on_plain_arrays_is_its_forward() -> None:
    out = scaled(np.array([1.0, 2.0]), 3.0, power=2)
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, [3.0, 12.0])


@pytest.mark.parametrize("given", [[1.0, 2.0], (1.0, 2.0)])
def test_an_op_with_a_rule_takes_no_list(given: Any) -> None:
    """2 * [1, 2] is [1, 2, 1, 2] in Python. Without a rule a first argument may be sizes."""

    @ta.op
    def doubled(x):
        return 2 * x

    @ta.op
    def grid(sizes=(2, 3)):
        return np.zeros(sizes)

    assert doubled(given) == given * 2
    assert grid().shape == (2, 3)

    @doubled.vjp("x")
    def _(grad):
        return 2 * grad

    with pytest.raises(TypeError, match=f"doubled: x must be a Tensor, got {type(given).__name__}"):
        doubled(given)
    assert doubled(np.ones(2)).tolist() == [2.0, 2.0]


@ta.op(saves=True)
def hypotenuse(x, y):
    root = np.sqrt(x * x + y * y)
    return root, (x / root, y / root)


@hypotenuse.vjp("x", "y")
def _(grad, x, y, saved):
    if saved is None:  # a graph of the gradient is wanted
        root = (x * x + y * y).sqrt()
        saved = x / root, y / root
    return grad * saved[0], grad * saved[1]


def test_an_op_that_keeps_something_for_its_derivative() -> None:
    x, y = leaf([3.0, 5.0]), leaf([4.0, 12.0])
    out = hypotenuse(x, y)
    equal(out, [5.0, 13.0])
    out.backward(ta.tensor([1.0, 10.0], dtype=ta.float64))
    np.testing.assert_allclose(x.grad.numpy(), [0.6, 50 / 13])
    np.testing.assert_allclose(y.grad.numpy(), [0.8, 120 / 13])
    assert ta.gradcheck(hypotenuse, [x, y])
    assert ta.gradgradcheck(hypotenuse, [x, y])


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (lambda grad: grad, r"1: float64\[2\]"),
        (lambda grad: [grad, grad], r"1: \["),
        (lambda grad: (grad, grad, grad), "3: tuple"),
    ],
)
def test_a_rule_that_returns_another_number_of_gradients(result, got) -> None:
    """The error says what the rule returned: it said that a tuple was wanted, and a tuple came."""

    @ta.op
    def total(x, y):
        return x + y

    total.vjp("x", "y")(lambda grad: result(grad))
    out = total(leaf([1.0, 2.0]), leaf([3.0, 4.0]))
    with pytest.raises(GraphError, match=f"as many, got {got}"):
        out.backward(ta.ones(2, dtype=ta.float64))


def test_an_op_with_any_number_of_arguments() -> None:
    """A rule for `*xs` returns as many gradients as there were arguments."""

    @ta.op
    def total(*xs, weight=1.0):
        return weight * sum(xs)

    @total.vjp("xs")
    def _(grad, shapes, weight):
        return tuple(grad * weight for _ in shapes)

    x, y, z = leaf([1.0, 2.0]), leaf(3.0), leaf([[4.0], [5.0]])
    out = total(x, y, z, weight=2.0)
    assert out.shape == (2, 2)
    out.backward(ta.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=ta.float64))
    equal(x.grad, [8.0, 12.0])
    equal(y.grad, 20.0)
    equal(z.grad, [[6.0], [14.0]])
    for count in (1, 2, 3):
        assert ta.gradcheck(lambda *xs: total(*xs, weight=2.0), [x, y, z][:count])
        assert ta.gradgradcheck(lambda *xs: total(*xs, weight=2.0), [x, y, z][:count])


def test_an_op_whose_rule_asks_for_any_number_of_arguments() -> None:
    """`*xs` in the rule is what `*xs` is in the forward."""

    @ta.op
    def product(*xs):
        out = xs[0]
        for x in xs[1:]:
            out = out * x
        return out

    @product.vjp("xs")
    def _(grad, *xs):
        gradients = []
        for i in range(len(xs)):
            others = grad
            for x in (*xs[:i], *xs[i + 1 :]):
                others = others * x
            gradients.append(others)
        return tuple(gradients)

    arguments = [leaf([1.0, 2.0]), leaf(3.0), leaf([[4.0], [5.0]]), leaf([0.5])]
    for count in (1, 2, 3, 4):
        assert ta.gradcheck(product, arguments[:count])
        assert ta.gradgradcheck(product, arguments[:count])
    assert ta.gradcheck(lambda x: product(x, 2.0, x), [arguments[0]])


def test_an_op_with_a_default_argument() -> None:
    @ta.op
    def shifted(x, shift=None):
        return x.copy() if shift is None else x + shift

    @shifted.vjp("x")
    def _(grad):
        return grad

    @shifted.vjp("shift")
    def _(grad):
        return grad

    x, shift = leaf([1.0, 2.0]), leaf(3.0)
    assert ta.gradcheck(shifted, [x])
    assert ta.gradcheck(shifted, [x, shift])
    assert ta.gradcheck(lambda s: shifted(ta.ones(2, dtype=ta.float64), shift=s), [shift])


def test_an_op_with_two_default_arguments() -> None:
    @ta.op
    def between(x, low=-1.0, high=1.0):
        return x.clip(low, high)

    x = ta.tensor([-3.0, -0.5, 3.0])
    assert between(x).tolist() == [-1, -0.5, 1]
    assert between(x, 0.0).tolist() == [0, 0, 1]
    assert between(x, high=2.0).tolist() == [-1, -0.5, 2]


def test_a_result_of_integers_is_not_recorded() -> None:
    @ta.op
    def ranks(x):
        return x.argsort()

    x = leaf([3.0, 2.0])
    assert ranks(x).is_leaf
    assert x.sum(dtype=ta.int64).is_leaf


def test_an_op_may_name_its_shape_and_its_output() -> None:
    @ta.op
    def spread(x, *, times):
        return np.repeat(x[None], times, 0)

    @spread.vjp("x")
    def _(grad, shape, times):
        return grad.sum(0).reshape(shape)

    @ta.op
    def root(x):
        return np.sqrt(x)

    @root.vjp("x")
    def _(grad, out):
        return grad / (2 * out)

    x = leaf([1.0, 4.0])
    assert ta.gradcheck(lambda x: spread(x, times=3), [x])
    assert ta.gradcheck(root, [x])
    assert ta.gradgradcheck(root, [x])


@ta.op
def one_sided(x, y):
    return x * y


@one_sided.vjp("x")
def _(grad, y):
    return grad * y


def test_a_missing_rule_is_named() -> None:
    x, y = leaf(2.0), leaf(3.0)
    one_sided(x, y.detach()).backward()
    equal(x.grad, 3.0)
    with pytest.raises(GraphError, match=r"one_sided has no derivative .*'y'.*@one_sided.vjp"):
        one_sided(x, y)
    with ta.no_grad():
        one_sided(x, y)


def test_a_rule_for_an_argument_that_is_not_there_is_refused() -> None:
    @ta.op
    def twice(x, *, n=2):
        return n * x

    with pytest.raises(TypeError, match=r"twice.*\['x'\].*\['y'\]"):

        @twice.vjp("y")
        def _(grad):
            return grad

    with pytest.raises(TypeError, match=r"twice.*\['x'\].*\[\]"):

        @twice.vjp()
        def _(grad):
            return grad

    with pytest.raises(TypeError, match=r"twice asks for \['z'\].*'out'"):

        @twice.vjp("x")
        def _(grad, z):
            return grad


def test_a_rule_with_too_few_gradients_is_named() -> None:
    @ta.op
    def plus(x, y):
        return x + y

    @plus.vjp("x", "y")
    def _(grad):
        return grad

    with pytest.raises(GraphError, match=r"rule of plus covers 2 arguments.*tuple"):
        plus(leaf(1.0), leaf(2.0)).backward()


def test_a_gradient_of_the_wrong_shape_is_named() -> None:
    @ta.op
    def last(x):
        return x[-1]

    @last.vjp("x")
    def _(grad):
        return np.ones(5)

    x = leaf([1.0, 2.0])
    with pytest.raises(GraphError, match=r"rule of last .*\(5,\).*\(2,\)"):
        last(x).backward()
    assert x.grad is None


OF_A_MATRIX = r"for an argument of shape \(3, 4\)"
NO_FLOATS = "instead of a gradient for argument 0, which is an array of floats"
WRONG_RETURNS = {
    "a number for a matrix": (lambda grad, x: 2.0, rf"shape \(\) {OF_A_MATRIX}"),
    "the sum": (lambda grad, x: grad.sum(), rf"shape \(\) {OF_A_MATRIX}"),
    "a row": (lambda grad, x: grad[0], rf"shape \(4,\) {OF_A_MATRIX}"),
    "transposed": (lambda grad, x: grad.T, rf"shape \(4, 3\) {OF_A_MATRIX}"),
    "a list": (lambda grad, x: [grad], rf"returned list {NO_FLOATS}"),
    "a ragged list": (lambda grad, x: [grad, x[0]], rf"returned list {NO_FLOATS}"),
    "integers": (lambda grad, x: np.ones((3, 4), int), rf"returned int64\[3, 4\] {NO_FLOATS}"),
    "booleans": (lambda grad, x: x > 0, rf"returned bool\[3, 4\] {NO_FLOATS}"),
    "complex numbers": (lambda grad, x: np.ones((3, 4), complex), rf"complex128.* {NO_FLOATS}"),
    "objects": (lambda grad, x: np.ones((3, 4), object), rf"object\[3, 4\] {NO_FLOATS}"),
    "a text": (lambda grad, x: "1.0", rf"'1.0' {NO_FLOATS}"),
    "a dict": (lambda grad, x: {"x": grad}, rf"dict {NO_FLOATS}"),
    "a generator": (lambda grad, x: (g for g in [grad]), rf"generator {NO_FLOATS}"),
    "nothing": (lambda grad, x: None, "returned None instead of a gradient .* its return missing"),
    "no gradients": (lambda grad, x: (), "covers 1 arguments"),
    "two gradients": (lambda grad, x: (grad, grad), "covers 1 arguments"),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", WRONG_RETURNS)
def test_what_a_rule_must_not_return(name: str, create_graph: bool) -> None:
    """Also if it is recorded."""
    rule, message = WRONG_RETURNS[name]

    @ta.op
    def square(x):
        return x * x

    square.vjp("x")(rule)
    x = ta.tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    with pytest.raises(GraphError, match=message):
        ta.grad(square(x).sum(), x, create_graph=create_graph)


def times_declared(rules: dict[tuple[str, ...], float]) -> Any:
    """x * y with derivatives that are multiples of the right ones."""

    @ta.op
    def times(x, y):
        return x * y

    for names, factor in rules.items():
        times.vjp(*names)(multiple(names, factor))
    return times


def multiple(names: tuple[str, ...], factor: float) -> Any:
    def rule(grad, x, y):
        gradients = {"x": factor * grad * y, "y": factor * grad * x}
        return tuple(gradients[name] for name in names)

    return rule


def gradients_of_times(times: Any) -> list[float]:
    x, y = leaf(3.0), leaf(5.0)
    return [g.item() for g in ta.grad(times(x, y), [x, y])]


def test_a_rule_that_is_declared_again_replaces_the_first() -> None:
    """As when the cell of a notebook is corrected and runs again."""
    times = times_declared({("x",): 2.0, ("y",): 1.0})
    assert gradients_of_times(times) == [10.0, 3.0]
    recorded = times(x := leaf(3.0), leaf(5.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        times.vjp("x")(multiple(("x",), 1.0))
        assert gradients_of_times(times) == [5.0, 3.0]
        times.vjp("x", "y")(multiple(("x", "y"), 4.0))
        assert gradients_of_times(times) == [20.0, 12.0]
        times.vjp("y", "x")(multiple(("y", "x"), 3.0))
        assert gradients_of_times(times) == [15.0, 9.0]
    recorded.backward()
    equal(x.grad, 10.0)  # with the rule of the time when it was recorded


def test_a_rule_that_covers_less_than_the_one_it_replaces() -> None:
    times = times_declared({("x", "y"): 2.0})
    with pytest.warns(UserWarning, match=r"of times replaces one for \['y'\] too: declare one"):
        times.vjp("x")(multiple(("x",), 1.0))
    with pytest.raises(GraphError, match=r"no derivative with respect to 'y'"):
        times(leaf(3.0), leaf(5.0))
    times.vjp("y")(multiple(("y",), 1.0))
    assert gradients_of_times(times) == [5.0, 3.0]


def test_a_rule_names_an_argument_once() -> None:
    with pytest.raises(TypeError, match=r"each once, got \['x', 'x'\]"):
        times_declared({("x", "x"): 1.0})


def test_what_was_broadcast_is_summed_by_the_engine() -> None:
    """A rule returns a gradient as large as the output; each argument gets its own shape back."""
    small, column, number = leaf([1.0, 2.0, 3.0]), leaf([[1.0], [2.0]]), leaf(4.0)
    out = twin(twin(small, column), number)
    given = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
    out.backward(ta.tensor(given))
    equal(small.grad, 4 * given.sum(0) * 2 / 2)
    equal(column.grad, 4 * given.sum(1, keepdims=True))
    equal(number.grad, 2 * given.sum())


def test_a_gradient_comes_in_the_dtype_of_its_tensor() -> None:
    x = ta.tensor([1.0, 2.0], requires_grad=True)
    y = leaf([1.0, 2.0])
    out = x * y
    assert out.dtype == np.float64
    out.backward(ta.ones(2))
    assert (x.grad.dtype, y.grad.dtype) == (np.float32, np.float64)


def test_an_op_without_a_derivative() -> None:
    @ta.op(differentiable=False)
    def larger(x, y):
        return x > y

    out = larger(leaf([1.0, 2.0]), leaf([2.0, 1.0]))
    assert not out.requires_grad
    equal(out, [False, True])


def test_a_forward_that_fails_is_explained() -> None:
    x = ta.ones(2)
    with pytest.raises(ShapeError, match=r"scaled .*float32\[2\], float32\[3\]"):
        scaled(x, ta.ones(3))
    with pytest.raises(TypeError, match=r"scaled.*'weight'"):
        scaled(x)


@pytest.mark.parametrize("x", [ta.ones(2), leaf([1.0, 2.0])], ids=["plain", "recorded"])
@pytest.mark.parametrize(
    ("result", "word"),
    [
        (lambda x: list(x), "list"),
        (lambda x: None, "NoneType"),
        (lambda x: float(x[0]), "float"),
        (lambda x: ta.tensor(x), "Tensor"),
        (lambda x: (x, x), "tuple; .*saved"),
    ],
)
def test_a_forward_returns_an_array(result, word, x) -> None:
    """Nothing else has a dtype to keep; with one, two and more arguments alike."""

    @ta.op
    def one(x):
        return result(x)

    @ta.op(promote=True)
    def two(x, y):
        return result(x)

    @ta.op
    def three(x, y, z):
        return result(x)

    for function, count in ((one, 1), (two, 2), (three, 3)):
        for rule in (False, True):
            if rule:
                function.vjp(*"xyz"[:count])(lambda grad: grad)
            with pytest.raises(DtypeError, match=f"forward of {function.spec.name} .*got {word}"):
                function(*[x] * count)


def test_a_scalar_of_numpys_is_an_array() -> None:
    @ta.op
    def largest(x):
        return x.max()

    largest.vjp("x")(lambda grad, x, out: grad * (x == out))
    x = leaf([1.0, 3.0])
    largest(x).backward()
    equal(x.grad, [0.0, 1.0])
    assert largest(ta.ones(2)).shape == ()


def test_what_is_saved_is_declared() -> None:
    """A forward with saves=True returns a pair; an array of two rows would be taken for one."""

    @ta.op(saves=True)
    def doubled(x):
        return 2 * x

    doubled.vjp("x")(lambda grad, saved: 2 * grad)
    for x in (leaf([[1.0], [2.0]]), leaf([1.0, 2.0, 3.0])):
        with pytest.raises(DtypeError, match=r"return \(out, saved\), got float64\["):
            doubled(x)

    @ta.op
    def tripled(x):
        return 3 * x, x

    with pytest.raises(TypeError, match=r"asks for \['saved'\].*@op\(saves=True\)"):
        tripled.vjp("x")(lambda grad, saved: 3 * grad)
    with pytest.raises(TypeError, match=r"asks for \['grad'\].*always the first argument"):
        tripled.vjp("x")(lambda g, grad: 3 * grad)
    tripled.vjp("x")(lambda grad: 3 * grad)
    with pytest.raises(DtypeError, match=r"got tuple; \(out, saved\) needs @op\(saves=True\)"):
        tripled(leaf([1.0, 2.0]))


def test_an_op_saves_no_more_than_its_derivative_asks_for() -> None:
    """softmax keeps its output only; a sum keeps no array at all."""

    def saved(out: ta.Tensor) -> list[np.ndarray]:
        return [part for part in out._node.saved if isinstance(part, np.ndarray)]

    x = leaf(np.ones((4, 5)))
    for out in (F.softmax(x), x.tanh(), x.sigmoid(), x.exp()):
        assert [part is out._data for part in saved(out)] == [True]
    for out in (x.sum(), x + x, x.reshape(20), x[0], F.dropout(x, 0.5), x.T, x - 1):
        assert saved(out) == []
    for out in (x * 2.0, x / 2.0):
        assert saved(out) == []
    assert len(saved(x * x)) == 2
    assert len(saved(F.layer_norm(x, 5))) == 1


def test_a_rule_may_ask_for_all_options():
    """As one dict, with those that were not given."""
    seen = []

    @ta.op
    def scaled(x, *, factor, shift=1.0):
        return x * factor + shift

    @scaled.vjp("x")
    def dx(grad, options):
        seen.append(options)
        return grad * options["factor"]

    x = ta.ones(2, requires_grad=True)
    scaled(x, factor=3.0).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert seen == [{"factor": 3.0, "shift": 1.0}]


def test_a_rule_without_grad_is_refused():
    """Its first parameter would be the gradient, whatever its name is: silently wrong."""

    @ta.op
    def squared(x):
        return x * x

    with pytest.raises(TypeError, match=r"gradient of the output first.*\['x'\]"):
        squared.vjp("x")(lambda x: 2 * x)
    with pytest.raises(TypeError, match=r"gradient of the output first.*\[\]"):
        squared.vjp("x")(lambda: 2)


def test_vjp_without_brackets_is_refused():
    @ta.op
    def squared(x):
        return x * x

    with pytest.raises(TypeError, match=r"in brackets, as in @squared\.vjp\('x'\)"):

        @squared.vjp
        def dx(grad, x):
            return 2 * grad * x


CHANGED_LATER: dict[str, tuple[Any, Any]] = {
    "an array": (lambda: np.array([2.0, 3.0]), lambda v: v.fill(9)),
    "a list": (lambda: [2.0, 3.0], lambda v: v.__setitem__(0, 9.0)),
    "an array in a list": (lambda: [np.array(2.0), 3.0], lambda v: v[0].fill(9)),
    "an array in a tuple": (lambda: (np.array(2.0), 3.0), lambda v: v[0].fill(9)),
    "a list in a list": (lambda: [[2.0], 3.0], lambda v: v[0].__setitem__(0, 9.0)),
    "a list in a dict": (lambda: {0: [2.0], 1: 3.0}, lambda v: v[0].__setitem__(0, 9.0)),
    "a dict": (lambda: {0: 2.0, 1: 3.0}, lambda v: v.__setitem__(0, 9.0)),
}


@pytest.mark.parametrize("is_option", [True, False])
@pytest.mark.parametrize("name", CHANGED_LATER)
def test_what_the_caller_changes_later_stays_as_it_was(name: str, is_option: bool) -> None:
    def as_array(factors: Any) -> np.ndarray:
        return np.array([np.ravel(factors[0])[0], factors[1]], np.float32)

    def derivative(grad: Any, factors: Any) -> Any:
        return grad * as_array(factors)

    if is_option:

        @ta.op
        def scaled(x: Any, *, factors: Any) -> Any:
            return x * as_array(factors)
    else:

        @ta.op
        def scaled(x: Any, factors: Any) -> Any:
            return x * as_array(factors)

    scaled.vjp("x")(derivative)
    make, change = CHANGED_LATER[name]
    x, factors = ta.ones(2, requires_grad=True), make()
    y = scaled(x, factors=factors)
    change(factors)
    assert as_array(factors)[0] == 9
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 3.0]
