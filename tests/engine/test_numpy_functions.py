"""NumPy's functions refuse Tensors: none gives an array that has lost the graph in silence."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import leaf

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.hints import FROM_NUMPY as BY_HINT
from tinyattn.hints import from_numpy
from tinyattn.tensors.operators import OPERATORS

# Those of functions that torch_names has stand in its rows.
IN_ROWS = """broadcast_to clip divide empty_like floor_divide greater logical_and logical_not
    logical_or ravel tile trace true_divide"""
FROM_NUMPY = {
    name: from_numpy(name) for names in (*BY_HINT.values(), IN_ROWS) for name in names.split()
}

SPACES = {"": np, "linalg.": np.linalg, "fft.": np.fft}
# Functions that ask for `__array_function__`, and universal functions.
FUNCTIONS: dict[str, Any] = {
    prefix + name: value
    for prefix, space in SPACES.items()
    for name, value in vars(space).items()
    if not name.startswith("_") and hasattr(value, "_implementation")
}
UFUNCS = {name: value for name, value in vars(np).items() if isinstance(value, np.ufunc)}
# Arguments of which NumPy does not ask `__array_function__`, and what they may be.
NOT_ASKED = {
    "can_cast": "a dtype",
    "take": "indices",
    "fill_diagonal": "the number that is written into an array, as array[0] = x writes it",
    "piecewise": "functions",
}
REFUSED = "does not take a Tensor"


def signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        pytest.skip("this NumPy has no signature of its functions in C, as NumPy 2.4 has")


def places(function: Callable[..., Any]) -> list[int]:
    """The positions of the arguments that must be given."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = signature(function).parameters.values()
    return [i for i, p in enumerate(given) if p.default is p.empty and p.kind in kinds]


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> str:
    """ "refused", an error of another kind, or the type of the result."""
    try:
        result = function(*args, **options)
    except TypeError as error:
        return "refused" if REFUSED in str(error) else f"error {error}"
    except Exception as error:
        return f"error {error}"
    return type(result).__name__


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # np.save may write


def test_there_are_as_many_functions_as_ever() -> None:
    assert len(FUNCTIONS) > 230
    assert len(UFUNCS) > 80


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_tensor_in_any_place_is_refused(name: str) -> None:
    function, x = FUNCTIONS[name], leaf([[1.0, 2.0], [3.0, 4.0]])
    outcomes = []
    for place in places(function):
        for filler in (np.ones((2, 2)), 1, (0, 1), "a.npz"):
            args: list[Any] = [filler] * len(places(function))
            args[place] = x
            outcomes.append(outcome(function, *args))
    if "out" in signature(function).parameters:
        args = [np.ones((2, 2))] * len(places(function))
        outcomes.append(outcome(function, *args, out=x))
    silent = [found for found in outcomes if found != "refused" and not found.startswith("error")]
    assert not silent or name in NOT_ASKED
    if places(function) and name not in ("savez", "savez_compressed"):
        assert "refused" in outcomes


@pytest.mark.parametrize(
    "name",
    ["concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "block", "select",
     "broadcast_arrays", "meshgrid", "einsum", "linalg.multi_dot", "ix_", "savez"],
)  # fmt: skip
def test_a_tensor_in_a_list_of_arrays_is_refused(name: str) -> None:
    function, x = FUNCTIONS[name], leaf([[1.0, 2.0], [3.0, 4.0]])
    for pair in ([x, x], [np.ones((2, 2)), x], [x, np.ones((2, 2))]):
        if name in ("broadcast_arrays", "meshgrid", "ix_"):
            found = outcome(function, *pair)
        elif name in ("einsum", "savez"):
            found = outcome(function, "ij,jk", *pair)
        elif name == "select":
            found = outcome(function, [np.ones((2, 2), bool)] * 2, pair)
        else:
            found = outcome(function, pair)
        assert found == "refused"
    assert os.listdir() == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UFUNCS)
def test_a_universal_function_is_an_operator_or_refuses(name: str) -> None:
    """`array + x` is np.add(array, x), which is ours; x as the first argument is x + array."""
    function, array = UFUNCS[name], np.full((2, 2), 2.0, np.float32)
    x = leaf(array)
    calls: list[tuple[Callable[..., Any], tuple, dict]] = []
    outs = (array.copy(),) * function.nout
    for place in range(function.nin):
        args: list[Any] = [array] * function.nin
        args[place] = x
        if place != 1 or function.__name__ not in OPERATORS:
            calls.append((function, tuple(args), {}))
        else:
            assert outcome(function, *args) == "Tensor" or name.startswith("bitwise")
        calls += [(function, tuple(args), options) for options in ({"out": outs}, {"dtype": "f8"})]
        if function.signature is None:
            calls.append((function, tuple(args), {"where": array > 1}))
    both = (array,) * function.nin
    calls.append((function, both, {"out": (x,) * function.nout}))
    if function.signature is None:
        calls.append((function, both, {"where": x}))
    if function.nin == 2 and function.nout == 1 and function.signature is None:
        calls += [(function.reduce, (x,), {}), (function.accumulate, (x,), {})]
        calls += [(function.reduce, (array,), {"out": x}), (function.reduceat, (x, [0]), {})]
    if function.nin == 2 and function.signature is None:
        calls += [(function.outer, (array, x), {}), (function.outer, (x, array), {})]
    if function.nin <= 2 and function.nout == 1 and function.signature is None:
        rest = (array,) * (function.nin - 1)
        calls.append((function.at, (x, [0], *rest), {}))
        if rest:
            calls.append((function.at, (array, [0], x), {}))
    for call, arguments, options in calls:
        with pytest.raises(TypeError, match=r"takes no Tensor|does not take a Tensor"):
            call(*arguments, **options)


def test_an_array_that_refused_a_tensor_is_as_it_was() -> None:
    array, x = np.ones(2), leaf([5.0, 6.0])
    for change in (
        "array += x",
        "array *= x",
        "np.add.at(array, [0], x)",
        "np.copyto(array, x)",
        "np.put(array, [0], x)",
        "np.exp(x, out=array)",
    ):
        with pytest.raises(TypeError, match=r"takes no Tensor|does not take a Tensor"):
            exec(change, {"array": array, "x": x, "np": np})
    assert array.tolist() == [1, 1]


# What to write instead

# What the words in the hints stand for; "x" and "y" are arrays.
WORDS: dict[str, Any] = {
    "x": np.array([[2.0, 1.0], [3.0, 0.5]]),
    "y": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "condition": np.array([[True, False], [False, True]]),
    "index": np.array([[1, 0], [0, 0]]),
    "equation": "ij,kj->ik", "min": 0.7, "max": 2.5, "dims": (1, 0), "dim0": 0, "dim1": 1, "dim": 1,
    "shape": (3, 2, 2), "sizes": (2, 3), "repeats": 3, "pieces": 2, "size": 1, "value": 7.0,
    "pad": (1, 2),
}  # fmt: skip
# The call of NumPy, where it is not np.name(x) or np.name(x, y).
CALLS = {
    "where": "np.where(condition, x, y)",
    "clip": "np.clip(x, min, max)",
    "append": "np.append(x, y, 0)",
    "einsum": "np.einsum(equation, x, y)",
    "moveaxis": "np.moveaxis(x, 0, 1)",
    "swapaxes": "np.swapaxes(x, 0, 1)",
    "expand_dims": "np.expand_dims(x, 1)",
    "broadcast_to": "np.broadcast_to(x, shape)",
    "tile": "np.tile(x, sizes)",
    "repeat": "np.repeat(x, repeats)",
    "split": "np.split(x, pieces)",
    "array_split": "np.array_split(x, pieces)",
    "take_along_axis": "np.take_along_axis(x, index, 1)",
    "take": "np.take(x, index)",
    "pad": "np.pad(x, ((0, 0), (1, 2)))",
    "amax": "np.amax(x, 1)",
    "amin": "np.amin(x, 1)",
    "cumsum": "np.cumsum(x, 1)",
    "full_like": "np.full_like(x, value)",
    "reshape": "np.reshape(x, 4)",
    "flip": "np.flip(x, dims)",
    "roll": "np.roll(x, 1)",
    "allclose": "np.allclose(x, y)",
}
# Of a method, x.name()
ARGUMENTS = {"reshape": "4", "roll": "1", "allclose": "y"}
ARGUMENTS |= dict.fromkeys(("amax", "amin", "cumsum"), "1")
IN_PAIRS = ("concatenate", "stack", "hstack", "vstack")
VECTORS = ("outer", "linalg.outer")


@pytest.mark.parametrize("name", FROM_NUMPY)
def test_what_the_error_says_computes_the_same(name: str) -> None:
    if not hasattr(eval(f"np.{name.rpartition('.')[0] or 'exp'}"), name.rpartition(".")[2]):
        name = name if hasattr(np, name.partition(".")[0]) else "exp"  # not in this NumPy
    if name.startswith("empty"):
        return  # memory without values
    words = WORDS | ({k: WORDS[k][0] for k in "xy"} if name in VECTORS else {})
    both = "x, y" if re.search(r"\by\b", FROM_NUMPY[name]) else "x"
    both = f"[{both}]" if name in IN_PAIRS else both
    expected = eval(CALLS.get(name, f"np.{name}({both})"), {"np": np, **words})
    ours = {k: ta.tensor(v) if isinstance(v, np.ndarray) else v for k, v in words.items()}
    for text in FROM_NUMPY[name].split(", or "):
        text = text.replace("()", f"({ARGUMENTS.get(name, '')})")
        found = eval(text, {"ta": ta, "F": F, **ours})
        is_list = isinstance(expected, list)
        for one, other in zip(found, expected, strict=True) if is_list else [(found, expected)]:
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: np.concatenate([x, x]),
            r"NumPy's concatenate does .* write ta\.cat\(\[x, y\]\)",
        ),
        (
            np.exp,
            r"NumPy's exp does not take a Tensor, because .* write x\.exp\(\), or pass x\.num",
        ),
        (np.prod, r"write x\.prod\(\)"),
        (np.sum, r"write x\.sum\(\)"),
        (np.linalg.norm, r"NumPy's linalg\.norm .* write x\.norm\(\), or"),
        (np.linalg.svd, r"NumPy's linalg\.svd .* no gradient: pass x\.numpy\(\), a copy without"),
        (np.fft.fft, r"NumPy's fft\.fft does not take a Tensor"),
        (lambda x: np.power(x, 2), r"write x \*\* y"),
        (lambda x: np.add(x, x), r"write x \+ y"),
    ],
)
def test_the_error_names_what_to_write(call: Callable[[ta.Tensor], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(leaf([1.0, 2.0]))


# What stays allowed


def test_a_tensor_becomes_an_array_where_that_is_asked_for() -> None:
    for x in (leaf([1.0, 2.0]), ta.tensor([1.0, 2.0]), leaf([0.0, 1.0]).exp()):
        for array in (np.asarray(x), np.array(x), np.asarray([x, x])[1], x.numpy(), np.full(2, x)):
            assert type(array) is np.ndarray
            assert not np.shares_memory(array, x.data)
            np.testing.assert_array_equal(array, x.data)
    written = np.zeros(2)
    written[...] = leaf([1.0, 2.0])
    assert written.tolist() == [1, 2]


@pytest.mark.parametrize("number", [2.0, np.float64(2), np.float32(2), np.int64(2), np.array(2.0)])
@pytest.mark.parametrize(
    "operator", ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!="]
)
def test_a_number_of_numpy_on_the_left(operator: str, number: Any) -> None:
    values = np.array([1.5, 2.0, 3.0], np.float32)  # the second is equal to the number
    out = eval(f"number {operator} x", {"number": number, "x": ta.tensor(values)})
    assert isinstance(out, ta.Tensor)
    expected = eval(f"number {operator} values", {"number": float(number), "values": values})
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("operation", ["x * m", "m * x", "x == m", "ta.maximum(m, x)", "x - m"])
def test_a_masked_array_would_lose_its_mask(operation: str) -> None:
    x, m = ta.tensor([1.0, 2.0]), np.ma.masked_array([1.0, 2.0], [True, False])
    with pytest.raises(TypeError, match=r"lose its mask|does not take a Tensor"):
        eval(operation, {"x": x, "m": m, "ta": ta})


@pytest.mark.parametrize("owner", [ta, ta.ones(2)], ids=["ta", "Tensor"])
@pytest.mark.filterwarnings("ignore")  # NumPy warns of old names
def test_only_functions_of_numpy_are_named_instead_of_a_name(owner: Any) -> None:
    """A class of NumPy's, such as np.matrix or np.float16, does not take the numbers of x."""
    asked = 0
    for module in (np, np.linalg):
        for name in dir(module):
            if name.startswith("_") or hasattr(owner, name):
                continue
            with pytest.raises(AttributeError) as caught:
                getattr(owner, name)
            found = getattr(module, name)
            is_function = callable(found) and not isinstance(found, type)
            if "has it, of x.numpy()" in str(caught.value):
                assert is_function, name
            else:
                assert not is_function or ": " in str(caught.value), name
            asked += is_function
    assert asked > 100
