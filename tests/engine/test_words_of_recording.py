"""What ops, their rules, backward, grad and changes in place refuse: the whole text of each."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from common import leaf
from messages import Refused, all_differences

import tinyattn as ta
from tinyattn.base import random
from tinyattn.errors import DtypeError, GraphError, InPlaceError, ShapeError

X = leaf([1.0, -2.0], "float32")
PLAIN = ta.ones(2)
OP: Any = ta.op


def made(*rules: Any, saves: bool = False) -> Any:
    """An op of x and y with an option, and these rules, each with the arguments it is for."""

    @ta.op(saves=saves)
    def joined(x, y=2.0, *, scale=3.0):
        return (x * y * scale, x) if saves else x * y * scale

    for names, rule in rules:
        joined.vjp(*names)(rule)
    return joined


def ruled(names: tuple[str, ...], rule: Any, saves: bool = False) -> Any:
    return lambda: made((names, rule), saves=saves)


def pulled(rule: Any, *arguments: Any) -> Any:
    return lambda: made((("x",), rule))(X, *arguments).backward(ta.ones(2))


NAMES = "['x', 'y', 'scale', 'options', 'out', 'shape', 'shapes']"
TWICE = "@joined.vjp takes names of ['x', 'y'], each once, got {}"
FIRST = (
    "a derivative rule of joined takes the gradient of the output first, then what it needs: "
    "def dx(grad, ...), got parameters {}"
)
RETURNED = "a derivative rule of joined returned {} instead of a gradient for argument 0{}"
FREED = (
    "this graph has been freed: a first backward() or grad() went through it; pass "
    "retain_graph=True there, or compute the outputs again"
)
ONLY_OF_ONE = (
    "a tensor of shape (2,) has no single gradient: pass gradient= of that shape, or reduce it "
    "first, for instance with sum() or mean()"
)
UNRECORDED = (
    "this tensor was not recorded: no input has requires_grad=True, its op has no rule, no_grad() "
    "was on, or it is a copy: ta.tensor(losses) copies, ta.stack(losses) does not"
)
LEAF = (
    "a leaf that requires gradients cannot be changed in place while operations are recorded: do "
    "it under ta.no_grad(), or write x = x + y; x = x.clone() can be changed too"
)


RULES: list[Refused] = [
    (ruled((), lambda grad: grad), TypeError, TWICE.format([])),
    (ruled(("z",), lambda grad: grad), TypeError, TWICE.format(["z"])),
    (ruled(("x", "x"), lambda grad: (grad, grad)), TypeError, TWICE.format(["x", "x"])),
    (ruled(("scale",), lambda grad: grad), TypeError, TWICE.format(["scale"])),
    (ruled(("x",), lambda: 1.0), TypeError, FIRST.format([])),
    (ruled(("x",), lambda y: y), TypeError, FIRST.format(["y"])),
    (ruled(("x",), lambda out, y: y), TypeError, FIRST.format(["out", "y"])),
    (
        ruled(("x",), lambda g, z, w: g),
        TypeError,
        f"a rule of joined asks for ['z', 'w']; it can have {NAMES}",
    ),
    (
        ruled(("x",), lambda grad, saved: grad),
        TypeError,
        f"a rule of joined asks for ['saved']; it can have {NAMES}; a forward that returns (out, "
        "saved) is declared with @op(saves=True)",
    ),
    (
        ruled(("x",), lambda y_grad, grad: grad),
        TypeError,
        f"a rule of joined asks for ['grad']; it can have {NAMES}; the gradient of the output is "
        "always the first argument of a rule",
    ),
    (
        ruled(("x",), lambda grad, z: grad, True),
        TypeError,
        f"a rule of joined asks for ['z']; it can have {NAMES[:-1]}, 'saved']",
    ),
    (
        lambda: made().vjp(lambda grad: grad),
        TypeError,
        "@joined.vjp takes names of arguments in brackets, as in @joined.vjp('x'), got (<fun...",
    ),
    (
        lambda: made()(X).sum().backward(),
        GraphError,
        "joined has no derivative with respect to 'x', which requires one: detach() it, or add a "
        "rule with @joined.vjp('x')",
    ),
    (
        lambda: made((("x",), lambda grad: grad))(X, X),
        GraphError,
        "joined has no derivative with respect to 'y', which requires one: detach() it, or add a "
        "rule with @joined.vjp('y')",
    ),
    (pulled(lambda grad: None), GraphError, RETURNED.format("None", ": is its return missing?")),
    (
        pulled(lambda grad: np.ones(2, np.int64)),
        GraphError,
        RETURNED.format("int64[2]", ", which is an array of floats"),
    ),
    (
        pulled(lambda grad: np.ones(3, np.float32)),
        GraphError,
        "a derivative rule of joined returned a gradient of shape (3,) for an argument of shape "
        "(2,)",
    ),
    (
        pulled(lambda grad: (grad, grad)),
        GraphError,
        "a derivative rule of joined covers 1 arguments and returns a tuple of as many, got 2: ...",
    ),
    (lambda: made()(X, 1.0, 2.0), TypeError, "joined() takes 2 arguments but 3 were given"),
    (lambda: made()(), TypeError, "joined() misses its argument 'x'"),
    (lambda: made()(y=1.0), TypeError, "joined() misses its argument 'x'"),
    (lambda: made()(X, x=X), TypeError, "joined() got multiple values for argument 'x'"),
    (lambda: made()(X, z=1), TypeError, "joined() got an unexpected argument 'z'"),
    (
        lambda: OP(3),
        TypeError,
        "op takes a function with a name, got 3: write it with def",
    ),
    (
        lambda: OP(int),
        TypeError,
        "op takes a function with a name, got <class 'int'>: write it with def",
    ),
    (
        lambda: ta.op(lambda x: "text")(X),
        DtypeError,
        "the forward of <lambda> must return an array, got str",
    ),
    (
        lambda: ta.op(lambda x: (x, x))(X),
        DtypeError,
        "the forward of <lambda> must return an array, got tuple; (out, saved) needs "
        "@op(saves=True)",
    ),
    (
        lambda: ta.op(lambda x: x * 1, saves=True)(X),
        DtypeError,
        "the forward of <lambda> is declared with saves=True and must return (out, saved), got "
        "float32[2]",
    ),
    (
        lambda: ta.op(lambda x: (x, x, x), saves=True)(X),
        DtypeError,
        "the forward of <lambda> is declared with saves=True and must return (out, saved), got ...",
    ),
]  # fmt: skip


def again(call: Any) -> Any:
    """The second of two calls that go through one graph."""

    def twice() -> Any:
        out = X * X
        call(out)
        return call(out)

    return twice


def change(x: ta.Tensor, sign: str, value: Any) -> Any:
    names = {"x": x, "value": value}
    return lambda: exec(f"x {sign} value", names)


BACKWARD: list[Refused] = [
    (again(lambda out: out.backward(PLAIN)), GraphError, FREED),
    (again(lambda out: ta.grad(out, X, PLAIN)), GraphError, FREED),
    (lambda: (X * 2).backward(), GraphError, ONLY_OF_ONE),
    (lambda: ta.grad(X * 2, X), GraphError, ONLY_OF_ONE),
    (lambda: PLAIN.sum().backward(), GraphError, UNRECORDED),
    (lambda: ta.grad(PLAIN.sum(), X), GraphError, UNRECORDED),
    (
        lambda: (X * 2).backward(np.ones(2)),
        TypeError,
        "gradient must be a Tensor, got ndarray",
    ),
    (lambda: (X * 2).backward(ta.ones(1)), ShapeError, "gradient must have shape (2,), got (1,)"),
    (
        lambda: ta.grad(X.sum(), [X, PLAIN]),
        GraphError,
        "input 1 does not require gradients",
    ),
    (
        lambda: ta.grad(X.sum(), [X, leaf([1.0])]),
        GraphError,
        "no output depends on input 1: allow_unused=True gives None",
    ),
    (
        lambda: ta.grad([X.sum(), X.sum()], X, [ta.tensor(1.0)]),
        ValueError,
        "grad got 2 outputs but 1 grad_outputs",
    ),
    (
        lambda: ta.grad(X.sum(), X, 1.0),
        TypeError,
        "grad_outputs is a Tensor or a sequence of Tensors, got float 1.0",
    ),
    (
        lambda: ta.grad(X.sum(), 3),
        TypeError,
        "grad takes a Tensor or a sequence of Tensors, got int: 3",
    ),
    (change(X, "+=", 1.0), InPlaceError, LEAF),
    (change(X, "*=", PLAIN), InPlaceError, LEAF),
    (change(ta.ones(2), "+=", ta.ones(3, 2)), ShapeError,
     "an in-place result keeps the shape (2,), got (3, 2)"),
    (change(ta.ones(2).long(), "+=", 0.5), DtypeError,
     "a float32 result does not fit in place into int64"),
    (change(ta.ones(2).bool(), "+=", 1), DtypeError,
     "a int64 result does not fit in place into bool"),
    (lambda: np.add(np.ones(2), X, out=np.ones(2)), TypeError,
     "an array takes no Tensor: write array + x, and w += x for w.data += x"),
    (change(X.expand(3, 2).detach(), "+=", 1.0),
     InPlaceError,
     "this is a read-only view of another's memory, as after expand: change a clone()"),
    (lambda: ta.ones(2).long().__setitem__(0, X[0]), DtypeError,
     "a value that requires gradients is written into floats, got int64: use x.to(ta.float32), or "
     "value.detach()"),
    (lambda: ta.ones(2).__setitem__(0, np.ones(2)), ShapeError,
     "cannot write into a tensor of shape (2,): ..."),
    (lambda: ta.manual_seed(-1), ValueError, "manual_seed takes an integer >= 0, got -1"),
    (lambda: ta.manual_seed(1.0), ValueError, "manual_seed takes an integer >= 0, got 1.0"),  # type: ignore
    (lambda: ta.manual_seed(True), ValueError, "manual_seed takes an integer >= 0, got True"),
]  # fmt: skip


@pytest.mark.parametrize("table", [RULES, BACKWARD], ids=["rules", "backward"])
def test_each_error_says_its_whole_text(table: list[Refused]) -> None:
    assert not all_differences(table)
    assert X.tolist() == [1.0, -2.0]


def test_what_a_rule_asks_for_is_what_it_gets() -> None:
    """Of a call with arguments by position, by name and by default."""
    got: dict[str, Any] = {}

    def dx(grad, y, x, out, shape, shapes, options, scale):
        got.update(y=y, x=x, out=out, shape=shape, shapes=shapes, options=options, scale=scale)
        return grad * y * scale

    op = made((("x",), dx))
    y = ta.tensor([[5.0], [-1.0]])
    for call, of_y, scale, shapes in (
        (lambda: op(X), 2.0, 3.0, [(2,), ()]),
        (lambda: op(X, 4.0), 4.0, 3.0, [(2,), ()]),
        (lambda: op(y=y, x=X, scale=0.5), y.numpy(), 0.5, [(2,), (2, 1)]),
        (lambda: op(X, scale=-1.0), 2.0, -1.0, [(2,), ()]),
    ):  # fmt: skip
        out = call()
        right = X.numpy() * of_y * scale
        np.testing.assert_array_equal(out.detach().numpy(), right)
        (slope,) = ta.grad(out, X, ta.ones(*out.shape))
        expected = (np.ones_like(right) * of_y * scale).reshape(-1, 2).sum(0)
        np.testing.assert_array_equal(slope.numpy(), expected)
        np.testing.assert_array_equal(got["y"], of_y)
        np.testing.assert_array_equal(got["x"], X.numpy())
        np.testing.assert_array_equal(got["out"], right)
        assert (got["scale"], got["options"]) == (scale, {"scale": scale})
        assert (got["shape"], got["shapes"]) == ((2,), shapes)


def test_a_rule_that_replaces_another_is_the_only_one() -> None:
    op = made((("x", "y"), lambda grad, x, y: (grad * y * 3, grad * x * 3)))
    with pytest.warns(UserWarning, match="^this rule") as said:
        op.vjp("x")(lambda grad: grad * 100)
    text = "this rule of joined replaces one for ['y'] too: declare one for ['y']"
    assert [str(warning.message) for warning in said] == [text]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op.vjp("x")(lambda grad: grad * 10)
        op.vjp("y")(lambda grad, x: grad * x)
    y = leaf([3.0, 4.0], "float32")
    slopes = ta.grad(op(X, y), [X, y], ta.tensor([1.0, -1.0]))
    assert [slope.tolist() for slope in slopes] == [[10.0, -10.0], [1.0, 2.0]]


def test_parts_of_a_seed_and_the_threshold_of_dropout() -> None:
    for seed, parts in (
        (0, (0, 0)), (1, (1, 0)), (2**32 - 1, (2**32 - 1, 0)), (2**32, (0, 1)),
        (2**63 - 1, (2**32 - 1, 2**31 - 1)), (5 * 2**32 + 7, (7, 5)),
    ):  # fmt: skip
        assert random.halves(seed) == parts
    for p, threshold in ((0.0, 0), (0.5, 2**31), (0.25, 2**30), (1.0, 2**32 - 1), (2.0**-32, 1)):
        assert random.drop_threshold(p) == threshold
    assert random.NO_DROP == random.Drop(p=0.0, seed=0)
    ta.manual_seed(5)
    seeds = [random.dropout_seed() for _ in range(20)]
    ta.manual_seed(5)
    assert seeds == ta.tensor([random.dropout_seed() for _ in range(20)]).tolist()
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**61
    assert len({*seeds}) == 20
