"""Python's data model on Tensors, one special method after another: right, or refused."""

from __future__ import annotations

import array as array_module
import bisect
import collections.abc as abc
import copy
import dataclasses
import functools
import json
import math
import operator
import pickle
import random
import statistics
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from common import leaf

import tinyattn as ta
from tinyattn import nn

KNOWN = {
    "abc": abc, "array": array_module, "bisect": bisect, "copy": copy, "json": json, "math": math,
    "nn": nn, "np": np, "operator": operator, "random": random, "statistics": statistics,
    "sys": sys, "ta": ta,
}  # fmt: skip


def values() -> dict[str, Any]:
    return KNOWN | {
        "x": leaf([1.0, 2.0]), "y": ta.tensor([3.0, 4.0]), "f": ta.tensor(2.5), "n": ta.tensor(3),
        "b": ta.tensor(True), "i": ta.tensor([1, 0]), "m": ta.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "e": ta.zeros(0, 3), "one": ta.tensor([[7]]), "A": np.array([3.0, 4.0]),
    }  # fmt: skip


RIGHT: dict[str, Any] = {
    # As numbers
    "int(f)": 2, "int(one)": 7, "float(f)": 2.5, "complex(f)": 2.5 + 0j, "bool(f)": True,
    "bool(ta.zeros(1, 1))": False, "operator.index(n)": 3, "range(n)": range(3),
    "[1, 2, 3, 4][n]": 4, "list(range(9))[n - 1 : n + 1]": [2, 3], "'abcd'[:n]": "abc",
    "math.sqrt(f)": math.sqrt(2.5), "math.floor(f)": 2, "math.ceil(f)": 3, "math.isnan(f)": False,
    "math.pow(2, f)": 2**2.5, "math.fsum(y)": 7.0, "math.hypot(*y)": 5.0, "hex(n)": "0x3",
    "chr(ta.tensor(65))": "A", "np.float64(f)": 2.5, "slice(n).indices(9)": (0, 3, 1),
    "statistics.fmean(y)": 3.5, "bisect.bisect([1, 2, 3], f)": 2, "n == 3": True,
    # As texts
    "f'{f:.2f}'": "2.50", "f'{n:d}'": "3", "f'{n:5.1f}'": "  3.0", "f'{n:x}'": "3",
    "f'{b:d}'": "1", "f'{f:>6}'": "   2.5", "f'{f:e}'": "2.500000e+00", "'%d' % f": "2",
    "f'{f:+.1%}'": "+250.0%", "'%.1f' % f": "2.5", "'{:.1f}'.format(f)": "2.5",
    "f'{y}'": "tensor([3., 4.])", "f'{y!s}'": "tensor([3., 4.])", "'%s' % y": "tensor([3., 4.])",
    "str(y)": "tensor([3., 4.])", "repr(e)": "tensor([], size=(0, 3))",
    "repr(ta.zeros(0))": "tensor([])", "repr(ta.zeros(2, 0, 3))": "tensor([], size=(2, 0, 3))",
    "repr(ta.zeros(0, 2).half())": "tensor([], size=(0, 2), dtype=float16)",
    "repr(ta.zeros(0, 2, requires_grad=True))": "tensor([], size=(0, 2), requires_grad=True)",
    # As containers
    "len(m)": 2, "len(e)": 0, "[v.tolist() for v in m]": [[1, 2], [3, 4]],
    "[v.item() for v in reversed(y)]": [4, 3], "3.0 in y": True, "9.0 in y": False,
    "y in x": False, "ta.ones(2) in x": True, "'a' in y": False, "None in y": False,
    "[v.item() for v in sorted(i)]": [0, 1],
    "max(y).item()": 4, "min(y).item()": 3, "min(e, default=1)": 1, "any(i)": True,
    "all(i)": False, "sum(y).item()": 7, "sum([x, y]).tolist()": [4, 6], "math.prod(y).item()": 12,
    "statistics.median(y).item()": 3.5, "operator.length_hint(y)": 2,
    "operator.countOf(y, 3.0)": 1, "operator.indexOf(y, 4.0)": 1, "y[:n].tolist()": [3, 4],
    "y[n - 2].item()": 4, "[v.item() for v in operator.itemgetter(0, 1)(y)]": [3, 4],
    "[(k, v.item()) for k, v in enumerate(y)]": [(0, 3), (1, 4)],
    "[[v.item() for v in pair] for pair in zip(*m)]": [[1, 3], [2, 4]],
    "array.array('d', y).tolist()": [3, 4], "dict(a=1, **{'b': y})['b'].tolist()": [3, 4],
    "random.choice(ta.tensor([5.0, 5.0])).item()": 5,
    # Comparison and identity
    "x == None": False, "x != None": True, "x == 'a'": False,
    "(y == [3, 9]).tolist()": [True, False],
    "x in [x]": True, "x in {x}": True, "{x: 1}[x]": 1, "len({x, y, x})": 2,
    "hash(x) == hash(x)": True,
    "hash(x) == hash(copy.copy(x))": False, "(0 < f < 3).item()": True,
    "0 < f < 2": ta.tensor(False),
    # Operators
    "(+x) is x": True, "(-x).tolist()": [-1, -2], "abs(-y).tolist()": [3, 4],
    "(~i).tolist()": [-2, -1],
    "pow(y, 2).tolist()": [9, 16], "(2**y).tolist()": [8, 16], "(i | 1).tolist()": [1, 1],
    "(10 - y).tolist()": [7, 6], "(10 / f).item()": 4, "(7 // n).item()": 2, "(7 % n).item()": 1,
    "operator.matmul(y, y).item()": 25, "operator.iadd(y, 1).tolist()": [4, 5],
    "not f": False, "(f and 1)": 1, "operator.truth(f)": True, "operator.not_(ta.zeros(()))": True,
    # What it is
    "isinstance(x, abc.Sequence)": False, "isinstance(x, abc.Iterable)": True,
    "isinstance(x, abc.Hashable)": True, "isinstance(x, abc.Sized)": True,
    "isinstance(f, (int, float))": False, "callable(x)": False,
    "issubclass(nn.Parameter, ta.Tensor)": True,
    "'shape' in dir(x)": True, "hasattr(x, 'foo')": False, "getattr(x, 'foo', 5)": 5,
    "x.__sizeof__() > 0": True, "sys.getsizeof(x) > 0": True,
}  # fmt: skip


@pytest.mark.parametrize("expression", RIGHT)
def test_it_is_right(expression: str) -> None:
    found, expected = eval(expression, values()), RIGHT[expression]
    if isinstance(expected, ta.Tensor):
        assert found.item() == expected.item()
    else:
        assert bool(found == expected)


REFUSED: dict[str, str] = {
    "int(x)": r"one element, got shape \(2,\)", "float(x)": "one element",
    "complex(x)": "one element",
    "bool(x)": r"the truth of a tensor of shape \(2,\)", "bool(e)": r"truth .* \(0, 3\)",
    "not x": "truth", "x and y": "truth", "0 < x < 3": "truth", "x in [y]": "truth",
    "[y, x].index(x)": "truth", "max([x, y])": "truth", "any([x, y])": "truth",
    "operator.index(f)": "only an integer tensor can be an index, got float32",
    "operator.index(i)": "one element", "range(f)": "only an integer tensor",
    "[1, 2][b]": "got bool",
    "math.sqrt(x)": "one element", "'%d' % i": "one element", "f'{x:.2f}'": "one element",
    "f'{f:d}'": "Unknown format code 'd'", "f'{f:nonsense}'": "Invalid format|Unknown format",
    "len(f)": "a 0-d tensor has no length", "list(f)": "no length, and cannot be iterated over",
    "reversed(f)": "0-d tensor", "[*f]": "cannot be iterated over", "next(x)": "not an iterator",
    "divmod(x, 2)": "unsupported operand", "divmod(2, x)": "unsupported operand",
    "pow(x, 2, 3)": "3 were given", "pow(n, 2, 5)": "3 were given", "x << 1": "unsupported operand",
    "round(x)": "__round__", "math.trunc(f)": "__trunc__", "x @ 2": "at least one dimension",
    "2 @ x": "at least one dimension", "x + 'a'": "add does not take",
    "x + None": "add does not take",
    "'a' + x": "add does not take", "x + {}": "add does not take", "-b": "neg does not take",
    "~x": "booleans and integers, got", "x < 'a'": "does not take", "x < None": "does not take",
    "json.dumps(f)": "not JSON serializable", "statistics.mean(y)": "can't convert type 'Tensor'",
    "random.sample(y, 1)": "must be a sequence", "memoryview(x)": "bytes-like",
    "bytes(f)": "convert",
    "y[f]": "integers", "y[1.0]": "integers", "y['a']": "integers", "y[{}]": "integers",
    "y[b]": "slices or masks .*, got bool", "y[True]": "got bool",
    "y[np.bool_(True)]": "got bool", "y[np.array(True)]": "got bool", "y[0, 0]": "too many indices",
    "y[5]": "out of bounds", "y[ta.tensor([5])]": "out of bounds", "x()": "not callable",
    "x.foo": "has no Tensor.foo", "copy.deepcopy(x * 2)": r"detach\(\)",
    "ta.Tensor(2, 3)": r"ta\.zeros",
    "pickle_of(x * 2)": r"detach\(\)",
}  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_it_is_refused(expression: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError, AttributeError, RuntimeError),
                       match=REFUSED[expression]):  # fmt: skip
        eval(expression, values() | {"pickle_of": pickle.dumps})


@pytest.mark.parametrize(
    "statement",
    ["x.foo = 1", "x.shape = (2, 1)", "x.dtype = ta.float64", "x.device = 'cpu'", "x.T = 1",
     "x.is_leaf = True", "x.grad_fn = None", "del x.grad", "del x.data", "x.__class__ = int",
     "x.grad = 5", "x.grad = ta.ones(3)", "x.data = 'a'", "x.requires_grad = x", "del x[0]",
     "x.exp = 5", "del x.foo", "f[0] = 1", "y[b] = 1", "y[1.5] = 1", "y['a'] = 1", "y[9] = 1",
     "with x: pass", "A += x", "A[0] += x", "x += 1", "x @= x", "i += 0.5", "i /= 2", "y += m"],
)  # fmt: skip
def test_a_statement_that_is_refused_changes_nothing(statement: str) -> None:
    before, now = values(), values()
    with pytest.raises((TypeError, ValueError, IndexError, AttributeError, RuntimeError)):
        exec(statement, now)
    for name in "xyfnbimA":
        np.testing.assert_array_equal(np.asarray(now[name]), np.asarray(before[name]))
        assert type(now[name]) is type(before[name])
        if name != "A":
            assert now[name].requires_grad == before[name].requires_grad


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^"])
def test_operators_in_place_give_what_the_operator_gives(sign: str) -> None:
    kind = np.bool_ if sign in "&|^" else np.float64
    one = np.array([[2.0, -1.5], [1.0, 3.0]]).astype(kind)
    two = np.array([[1.0, 2.0], [4.0, -2.0]]).astype(kind)
    for other in (ta.tensor(two), two):
        known = {"x": ta.tensor(one), "same": None, "other": other}
        known["same"] = known["x"]
        expected = eval(f"x {sign} y", {"x": one, "y": two})
        exec(f"x {sign}= other", known)
        assert known["x"] is known["same"]
        np.testing.assert_allclose(known["x"].numpy(), expected, rtol=1e-12)
        flipped = eval(f"y {sign} x", {"x": ta.tensor(one), "y": two})
        np.testing.assert_allclose(flipped.numpy(), eval(f"y {sign} x", {"x": one, "y": two}))


def test_copies_are_right() -> None:
    x = leaf([1.0, 2.0])
    x.grad = ta.tensor([5.0, 6.0])
    shallow, deep, pickled = copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))
    with ta.no_grad():
        x[0] = 9.0
    assert shallow.tolist() == [9, 2]
    for other in (deep, pickled):
        assert other.tolist() == [1, 2]
        assert other.grad.tolist() == [5, 6]
        assert other.requires_grad
    twice = copy.deepcopy([x, x])
    assert twice[0] is twice[1]
    of_itself = type("Owned", (nn.Parameter,), {})([1.0])
    of_itself.owner = [of_itself]
    deep = copy.deepcopy(of_itself)
    assert deep.owner[0] is deep
    assert len({id(t) for t in (x, shallow, deep, pickled)}) == 4


def test_weak_references_matching_and_unpacking() -> None:
    x = leaf([1.0, 2.0])
    reference = weakref.ref(x)
    assert reference() is x
    first, second = x
    head, *rest = ta.ones(3)
    assert (first.item(), second.item(), head.item(), len(rest)) == (1, 2, 1, 2)
    match x:
        case [_, _]:
            found = "sequence"
        case ta.Tensor(ndim=1):
            found = "tensor"
    assert found == "tensor"
    match ta.tensor(3):
        case 3:
            found = "three"
    assert found == "three"
    del x, first, second
    assert reference() is None


def test_a_subclass_keeps_its_kind_only_where_it_is_made() -> None:
    class Named(ta.Tensor):
        def __init__(self, data: Any, name: str) -> None:
            super().__init__(data)
            self.name = name

    x = Named([1.0, 2.0], "weights")
    assert type(x * 2) is ta.Tensor
    assert (copy.deepcopy(x).tolist(), copy.copy(x).tolist()) == ([1, 2], [1, 2])
    assert x.name == "weights"


def test_dispatch_by_type() -> None:
    @functools.singledispatch
    def kind(value: Any) -> str:
        return "other"

    @kind.register
    def _(value: ta.Tensor) -> str:
        return "tensor"

    assert (kind(leaf([1.0])), kind(nn.Parameter([1.0])), kind(1.0)) == (
        "tensor",
        "tensor",
        "other",
    )


def test_a_dataclass_compares_what_it_can() -> None:
    @dataclasses.dataclass
    class Pair:
        name: str
        value: ta.Tensor

    x = leaf([1.0, 2.0])
    if sys.version_info < (3, 13):  # since then two fields that are one object are compared too
        assert Pair("a", x) == Pair("a", x)
    assert Pair("a", x) != Pair("b", ta.ones(2))
    with pytest.raises(ValueError, match="truth"):
        bool(Pair("a", x) == Pair("a", ta.ones(2)))  # since 3.13 the Tensor itself is returned
    assert dataclasses.replace(Pair("a", x), name="b").value is x
    assert dataclasses.asdict(Pair("a", x))["value"].tolist() == [1, 2]


# Module


def test_the_data_model_of_a_module() -> None:
    layer = nn.Linear(2, 3)
    twin, shallow = copy.deepcopy(layer), copy.copy(layer)
    assert twin.weight is not layer.weight
    assert shallow.weight is layer.weight
    assert layer
    assert layer != twin
    assert len({layer, twin, layer}) == 2
    assert weakref.ref(layer)() is layer
    loaded = pickle.loads(pickle.dumps(layer))
    assert loaded.weight.equal(layer.weight)
    assert "Linear(2, 3" in repr(layer) == str(layer) == f"{layer}"
    assert "weight" in dir(layer)
    for expression in ("len(layer)", "iter(layer)", "layer + layer", "layer[0]", "float(layer)",
                       "layer < layer", "layer @ layer", "f'{layer:.2f}'"):  # fmt: skip
        with pytest.raises(TypeError):
            eval(expression, {"layer": layer})
    for statement in ("layer.weight = 5", "del layer.foo", "layer.forward = nn.Linear(1, 1)",
                      "layer.weight = ta.ones(3, 2)", "layer[0] = 1"):  # fmt: skip
        with pytest.raises((TypeError, AttributeError)):
            exec(statement, {"layer": layer, "nn": nn, "ta": ta})
    assert layer.weight.shape == (3, 2)
    del layer.bias
    assert [name for name, _ in layer.named_parameters()] == ["weight"]


def test_a_dict_of_modules_names_module_dict() -> None:
    module = nn.Module()
    for value in ({"a": nn.Linear(1, 1)}, {"a": [nn.Linear(1, 1)]}):
        with pytest.raises(
            TypeError, match=r"use nn\.ModuleDict, nn\.ModuleList or nn\.Sequential"
        ):
            module.layers = value
    with pytest.raises(TypeError, match=r"found: use nn\.ModuleList or nn\.Sequential"):
        module.layers = [nn.Linear(1, 1)]
    assert not hasattr(module, "layers")


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = ta.ones(1)
        self.function = lambda x: x  # no process can send it to another


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (nn.Linear(2, 2), "wieght"),
        (nn, "Lstm"),
        (ta.ones(2), "expp"),
        (ta, "foo"),
        (Own(), "sclae"),
    ],
)
def test_an_unknown_name_says_its_text_everywhere(owner, name):
    """In its repr, as loggers show it, and after another process has sent it."""
    with pytest.raises(AttributeError) as found:
        getattr(owner, name)
    text = str(found.value)
    assert name in text
    assert repr(found.value) == f"UnknownNameError({text!r})"
    sent = pickle.loads(pickle.dumps(found.value))
    assert type(sent) is type(found.value)
    assert (str(sent), repr(sent)) == (text, repr(found.value))
