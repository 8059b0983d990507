"""Grades exercise 3."""

from collections.abc import Callable

import numpy as np
import pytest
from grading import close, exercise, expect, run

yours = exercise("ex_03_the_real_engine")
rng = np.random.default_rng(3)


def leaf(size: int = 3):
    return yours.Tensor(rng.standard_normal(size))


def cotangent(size: int = 3) -> np.ndarray:
    return rng.standard_normal(size)


def raises(function: Callable, *args) -> bool:
    """Whether it raises RuntimeError, and not an error of another kind."""

    def caught() -> bool:
        try:
            function(*args)
        except NotImplementedError:  # a RuntimeError too
            raise
        except RuntimeError as error:
            return not isinstance(error, RecursionError)
        return False

    caught.__name__ = function.__name__
    return run(caught)


OTHER_ERROR = (
    "backward of a freed graph raises another error: count_uses raises RuntimeError if inputs are "
    "None"
)


def other_error(root) -> bool:
    """Whether backward raises an error that is no RuntimeError."""
    try:
        yours.backward(root, cotangent())
    except RuntimeError:
        return False
    except Exception:
        return True
    return False


def test_uses() -> None:
    x, w = leaf(), leaf()
    y = x * x
    z = y * w + y
    uses = run(yours.count_uses, z)
    expect(isinstance(uses, dict), "count_uses returns a dict: how often each tensor is an input")
    expect(set(uses) >= {x, w, y, z}, "count_uses leaves out the root, a computed tensor or a leaf")
    expect(uses[z] == 0, f"the root is an input of nothing, so it has 0 uses, not {uses[z]}")
    expect(uses[x] != 1, "x * x uses x twice: count each place, not each user")
    expect(uses[y] == 2, f"y has two users and thus 2 uses, not {uses[y]}")
    expect(uses[x] == 2, f"x * x uses x twice, not {uses[x]} times: visit each tensor once")


def test_order() -> None:
    for swapped in (False, True):
        a = leaf()
        b = a * a
        c = b * b
        d = b + c if swapped else c + b
        order = list(run(yours.users_first, run(yours.count_uses, d)))
        expect(len(order) == len(set(order)), "users_first gives a tensor twice")
        expect(set(order) == {a, b, c, d}, f"users_first gives {len(order)} tensors of 4")
        expect(
            order.index(c) < order.index(b), "b comes before c, which uses it: wait for all users"
        )
        expect(order == [d, c, b, a], "a tensor comes before one that uses it")


def test_users_first_leaves_its_argument() -> None:
    x = leaf()
    uses = run(yours.count_uses, x * x)
    before = dict(uses)
    run(yours.users_first, uses)
    expect(uses == before, "users_first changes the counts that it is given: count down in a copy")


def test_a_deep_graph() -> None:
    x = y = leaf(1)
    for _ in range(3000):
        y = y + x
    try:
        run(yours.backward, y, np.array([1.0]))
    except pytest.fail.Exception as error:
        expect(
            "Recursion" not in str(error), "3,000 sums in a row: keep a list instead of recursion"
        )
        raise
    expect(close(x.grad, [3001.0]), f"x is added 3,001 times, but its gradient is {x.grad}")


def right_of(x, w, g: np.ndarray) -> np.ndarray:
    """The gradient of x in (x * w)**2 + x."""
    return g * (2 * x.data * w.data**2 + 1)


def test_gradients() -> None:
    x, w, g = leaf(), leaf(), cotangent()
    given = g.copy()
    y = x * w
    z = y * y + x
    run(yours.backward, z, g)
    expect(
        not close(x.grad, 2 * right_of(x, w, g)),
        "the gradient of a leaf is twice too large: it is stored once",
    )
    expect(x.grad is not None, "the gradient of a leaf is still None: backward stores it in .grad")
    right = right_of(x, w, g)
    expect(
        close(x.grad, right), "the gradient of x in (x * w)**2 + x is wrong: add those of all uses"
    )
    expect(
        close(w.grad, g * 2 * w.data * x.data**2), "the gradient of w in (x * w)**2 + x is wrong"
    )
    expect(y.grad is None, "a computed tensor has a .grad: that is for leaves only")
    expect(close(g, given), "backward changed the gradient that it was given")


def test_a_leaf_alone() -> None:
    x, g = leaf(), cotangent()
    run(yours.backward, x, g)
    expect(close(x.grad, g), "backward of a leaf stores its gradient too")


def test_a_second_backward() -> None:
    """The first one must leave nothing behind but .grad of the leaves."""
    x = yours.Tensor([3.0])
    y = x * x
    z = y * y
    run(yours.backward, z, np.array([1.0]), True)
    first = x.grad
    expect(close(first, [108.0]), f"the gradient of x**4 at 3 is 108, not {first}")
    run(yours.backward, z, np.array([1.0]), True)
    expect(not close(x.grad, [108.0]), "a second backward must add to .grad, not replace it")
    expect(
        close(x.grad, [216.0]),
        f"two calls give {x.grad / 108} times the gradient of one, not twice: sums of computed "
        "tensors belong to one call",
    )
    expect(close(first, [108.0]), "a second backward writes into the .grad of the first: add anew")


def test_shared_arrays() -> None:
    """The rule of + hands one array to both inputs."""
    a, b, g = leaf(), leaf(), cotangent()
    run(yours.backward, (a + b) + a, g.copy())
    expect(close(b.grad, g), "b is used once, but gets a gradient of a too: do not add in place")


def test_what_is_freed() -> None:
    x = leaf()
    y = x * x
    z = y * x
    run(yours.backward, z, cotangent())
    expect(
        z.inputs is None or z.saved != (),
        "z keeps its inputs, and so all that it was made of: set inputs to None, too",
    )
    expect(z.saved == (), "backward does not free what z has saved")
    expect(y.inputs is None and y.saved == (), "backward frees the root, and not the others")
    expect(x.inputs == (), "a leaf was freed: it has nothing to free, and serves the next graph")
    expect(not other_error(z), OTHER_ERROR)
    expect(
        raises(yours.backward, z, cotangent()),
        "a second backward through a freed graph must raise RuntimeError",
    )
    y = x + x
    run(yours.backward, y, cotangent())
    expect(
        raises(yours.backward, y + x, cotangent()),
        "y has been freed, but backward of y + x raises no RuntimeError: look at the inputs of "
        "each tensor, not of the root alone",
    )


def test_freed_at_once() -> None:
    """The memory of what is saved must be free before the walk is over."""
    x = leaf()
    y = x * x
    z = y * y
    rule, freed = y.rule, []

    def probe(*args):
        freed.append(z.inputs is None)
        return rule(*args)

    y.rule = probe
    run(yours.backward, z, cotangent())
    expect(freed, "backward does not call the rule of y")
    expect(freed[0], "z is still not freed when the rule of y runs: free it when its rule has run")


def test_retain_graph() -> None:
    x = leaf()
    y = x * x
    run(yours.backward, y, cotangent(), True)
    expect(y.inputs == (x, x) and y.saved == (x, x), "retain_graph=True must free nothing")


def test_a_changed_array() -> None:
    x, w = leaf(), leaf()
    z = (x * x) * w
    x[0] = 100.0
    expect(raises(yours.backward, z, cotangent()), "x has changed after x * x: raise RuntimeError")
    expect(
        w.grad is None and z.inputs is not None,
        "an error came after a part of the work: compare the counts of all before anything else",
    )


def test_each_array_that_is_saved() -> None:
    for i in (0, 1):
        pair = leaf(), leaf()
        y = pair[0] * pair[1]
        pair[i][0] = 100.0
        expect(
            raises(yours.backward, y, cotangent()),
            f"{'xw'[i]} has changed after x * w: compare the counts of all saved tensors",
        )


def test_changes_that_do_no_harm() -> None:
    x, w, g = leaf(), leaf(), cotangent()
    x[0] = 2.0
    expect(
        not raises(yours.backward, x * w, g), "a change before x * w is no error: compare counts"
    )
    y = x + w
    x[1] = 5.0
    expect(
        not raises(yours.backward, y, g), "the rule of + needs no array, so a change is no error"
    )
