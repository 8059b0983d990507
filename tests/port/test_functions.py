"""The further functions and methods against PyTorch's, with the same arguments."""

from __future__ import annotations

import ast
import copy
import gzip
import inspect
import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import pytorch_tables as tables

import tinyattn
import tinyattn.torch_names as ours
from tinyattn import hints
from tinyattn.errors import CheckpointError, DeviceError, DtypeError, InPlaceError, ShapeError
from tinyattn.torch_names import functions

ADDED = set(tables.missing()) & set(hints.added())

RNG = np.random.default_rng(5)
X, Y, Z = RNG.uniform(0.5, 3, (3, 4)), RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
A, B, C = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 5)), RNG.normal(size=(3, 5))
V, W = RNG.normal(size=4), RNG.normal(size=4)
HOLES = np.array([1.0, np.nan, np.inf])
TIES = np.array([[2.5, -2.5, 0.0, -0.4], [1.5, 3.7, -7.0, 0.5]])
I2, J2 = np.array([[2, -7, 7, 0], [1, 4, 0, 9]]), np.array([[3, 2, -2, 5], [1, 2, 6, 4]])
M = Y > 0
NUMBER = np.array(0.5)  # of no dimension
ROWS = np.array([2, 0, 2])
PLACES = np.array([[0, 2, 1, 0], [2, 0, 2, 1]])  # no place twice along dimension 0
AGAIN = np.array([[0, 0, 1, 0], [0, 2, 1, 1]])
D = RNG.normal(size=(2, 3, 4))
ZEROS = np.array([[2.0, 0.0, 3.0, 0.0], [1.5, -1.0, 0.0, 2.0], [1.0, 2.0, 3.0, 4.0]])
LOGIC = [((TIES, TIES * (TIES > 1)), {}), ((I2 > 1, I2 > 2), {})]
COMPARED = [((Y, Z), {}), ((TIES, 1.5), {}), ((I2, J2), {})]


def one(*args: Any, **options: Any) -> list[Any]:
    return [(args, options)]


# The arguments of every function that is a method too; arrays become tensors.
BOTH: dict[str, list[Any]] = {
    "add": [((Y, Z), {}), ((Y, Z), {"alpha": 3}), ((Y, 2.0), {"alpha": 0.5}), ((I2, J2), {})],
    "addcdiv": one(Y, Z, X, value=0.3),
    "addcmul": [((Y, Z, X), {"value": -2}), ((Y, Z, X), {})],
    "addmm": [((C, A, B), {"beta": 0.5, "alpha": -2}), ((C[0], A, B), {})],
    "argwhere": one(M),
    "baddbmm": [
        ((RNG.normal(size=(2, 3, 5)), np.stack([A, A]), np.stack([B, -B])), {"alpha": 0.1}),
        ((C, np.stack([A, A]), np.stack([B, -B])), {"beta": -2}),
    ],
    "broadcast_to": [((V, (3, 4)), {}), ((Y, (2, -1, 4)), {})],
    "ceil": [((TIES,), {}), ((I2,), {})],
    "clamp_max": one(Y, 0.2),
    "clamp_min": one(Y, 0.2),
    "clip": one(Y, -0.5, 0.5),
    "cumprod": [((ZEROS, 0), {}), ((ZEROS,), {"dim": 1}), ((I2, 1), {}), ((Y[:, :1], -1), {})],
    "diag": [((V,), {}), ((V, 1), {}), ((V, -2), {}), ((A,), {}), ((A, 1), {})],
    "div": [
        ((Y, X), {}), ((I2, J2), {}),
        *[((TIES, J2 * 1.0), {"rounding_mode": mode}) for mode in ("floor", "trunc")],
        *[((I2, J2), {"rounding_mode": mode}) for mode in ("floor", "trunc")],
    ],
    "divide": [((Y, X), {}), ((TIES, J2 * 1.0), {"rounding_mode": "floor"})],
    "eq": COMPARED,
    "floor": [((TIES,), {}), ((I2,), {})],
    "floor_divide": [((I2, J2), {}), ((TIES, 0.7), {})],
    "ge": COMPARED,
    "greater": COMPARED,
    "gt": COMPARED,
    "index_add": [
        ((Y, 0, ROWS, Z), {}), ((Y, 0, ROWS, Z), {"alpha": -2}), ((Y, -1, ROWS, Z[:, :3]), {}),
    ],
    "index_copy": [((Y, 0, np.array([2, 0]), Z[:2]), {}), ((Y, 1, np.array([3]), Z[:, :1]), {})],
    "index_fill": [
        ((Y, 0, ROWS, 7.0), {}), ((Y, -1, np.array([1, 2]), -1), {}), ((I2, 1, ROWS, 5), {}),
        ((Y, 0, np.array([-1]), 7.0), {}), ((Y, 1, np.array([-3, 0]), 7.0), {}),
    ],
    "index_put": [
        ((Y, (ROWS[:2], np.array([1, 3])), W[:2]), {}), ((Y, (ROWS,), Z), {"accumulate": True}),
        ((Y, (ROWS, ROWS), V[:3]), {"accumulate": True}),
    ],
    "index_select": [((Y, 0, ROWS), {}), ((Y, -1, ROWS), {})],
    "int": one(TIES),
    "is_floating_point": [((Y,), {}), ((I2,), {})],
    "isclose": [
        ((Y, Y + 1e-9), {}), ((Y, Y + 0.1), {"atol": 0.2}), ((X, X * 1.1), {"rtol": 0.2}),
        *[((HOLES, HOLES), {"equal_nan": alike}) for alike in (False, True)],
    ],
    "isinf": one(np.array([1.0, np.inf, -np.inf, np.nan])),
    "le": COMPARED,
    "lerp": [((Y, Z, 0.3), {}), ((Y, Z, X), {})],
    "log10": one(X),
    "log2": one(X),
    "logical_and": LOGIC,
    "logical_not": [((TIES,), {}), ((M,), {})],
    "logical_or": LOGIC,
    "lt": COMPARED,
    "masked_select": [((Y, M), {}), ((V, M), {}), ((Y, M[:, :1]), {}), ((Y[0], M[:, :1]), {})],
    "mm": one(A, B),
    "movedim": [
        ((D, 2, 0), {}), ((D, (0, 1), (-1, 0)), {}),
    ],
    "mul": [((Y, Z), {}), ((Y, 3), {})],
    "mv": one(A, V),
    "narrow": [((Y, 1, 1, 2), {}), ((Y, 0, 0, 3), {}), ((Y, -1, 3, 1), {}), ((Y, 1, -2, 2), {})],
    "ne": COMPARED,
    "neg": one(Y),
    "nonzero": [((ZEROS,), {}), ((ZEROS,), {"as_tuple": True}), ((M,), {})],
    "ravel": one(Y),
    "round": [((TIES,), {}), ((Y,), {"decimals": 2}), ((I2,), {})],
    "scatter": [
        ((Y, 0, PLACES, Z[:2]), {}), ((Y, 0, PLACES), {"value": 7.5}), ((Y, 0, PLACES, 2.0), {}),
        ((Y, 1, PLACES[:, 1:3], Z[:2, :2]), {}), ((I2, 1, np.array([[1], [3]]), 1), {}),
        ((J2, 1, np.array([[1], [3]]), I2), {}),
        ((V, 0, np.array(2), NUMBER), {}), ((V, 0, np.array(2)), {"value": 1}),
        ((NUMBER, 0, np.array(0), 5.0), {}), ((NUMBER, 0, np.array([0]), V[:1]), {}),
    ],
    "scatter_add": [
        ((Y, 0, AGAIN, Z[:2]), {}), ((Y, -1, AGAIN, Z[:2]), {}), ((I2, 1, AGAIN[:1], J2), {}),
        ((V, -1, np.array([3]), NUMBER), {}), ((NUMBER, 0, np.array(0), NUMBER), {}),
    ],
    "select": [((Y, 1, 2), {}), ((Y, 0, -1), {}), ((Y, 1, np.array(2)), {})],
    "short": one(TIES),
    "sub": [((Y, Z), {}), ((Y, Z), {"alpha": 3})],
    "tile": [((Y, (2, 3)), {}), ((Y, (2,)), {}), ((V, (2, 1, 3)), {})],
    "trace": one(A[:, :3]),
    "true_divide": one(Y, X),
    "trunc": one(TIES),
    "unflatten": [((Y, 1, (2, 2)), {}), ((Y, -1, (2, -1)), {}), ((Y, 0, (3, 1)), {})],
    "unique": [
        ((I2,), {}), ((I2,), {"return_inverse": True, "return_counts": True}),
        ((np.array([[1, 2], [1, 2], [0, 1]]),), {"dim": 0, "return_inverse": True}),
    ],
}  # fmt: skip
DRAWN = {"bernoulli"}
FUNCTIONS: dict[str, list[Any]] = {
    "concat": one([Y, Z], 1),
    "concatenate": [(([Y, Z],), {}), (([Y, Z],), {"dim": 1})],
    "isin": [
        ((I2, np.array([7, 1])), {}), ((I2, 7), {}), ((I2, np.array([7, 1])), {"invert": True}),
        ((ROWS[:2], PLACES[0, :2]), {"assume_unique": True}),
    ],
    "is_tensor": [((Y,), {}), ((3,), {})],
    "meshgrid": [
        *[((V, W[:3], Y[0, :2]), {"indexing": how}) for how in ("ij", "xy")],
        (([V, W],), {"indexing": "xy"}), ((V,), {"indexing": "xy"}),
    ],
    "where": [
        ((M,), {}), ((M, Y, Z), {}),
        ((np.array(True),), {}), ((np.array(0.0),), {}),
    ],
    "maximum": one(Y, Z),
    "pow": [((2.5, Y), {}), ((X, 3), {}), ((X, Y), {})],
}  # fmt: skip
METHODS: dict[str, list[Any]] = {
    "byte": one(I2 * 0 + 7),
    "detach_": [],
    "fill_diagonal_": [],
    "is_contiguous": one(Y),
    "unfold": [((D, -1, 2, 1), {}), ((D, 1, 2, 2), {}), ((D, 0, 2, 1), {}), ((V, 0, 3, 2), {})],
    "char": one(I2),
    "maximum": one(Y, Z),
    "minimum": one(Y, Z),
    "nelement": one(Y),
    "new_empty": one(Y, 0, 2),
    "new_full": [((Y, (2,), 3), {}), ((I2, (2, 1), 3), {})],
    "new_ones": [((Y, 2, 3), {}), ((I2, (2, 3)), {})],
    "new_tensor": [((Y, [1, 2]), {}), ((I2, [[1, 2]]), {})],
    "new_zeros": [((Y, (2, 3)), {}), ((M, 2), {})],
    "pin_memory": [],
    "reshape_as": one(Y, Z.reshape(4, 3)),
    "type": [],
    "view_as": one(Y, Z.reshape(2, 6)),
    "where": one(Y, M, Z),
}


def tensors(torch: Any, values: Any, dtype: str) -> Any:
    """Arrays as tensors, at any depth; those of floats are leaves of this dtype."""
    if isinstance(values, (list, tuple)):
        return type(values)(tensors(torch, value, dtype) for value in values)
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind != "f":
        return torch.tensor(values)
    return torch.tensor(values.astype(dtype), requires_grad=True)


def leaves_of(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [leaf for value in values for leaf in leaves_of(value)]
    return [values] if getattr(values, "requires_grad", False) else []


def parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def compare(call: Callable[..., Any], torch: Any, args: Any, options: Any, dtype: str) -> None:
    """The values, dtypes and shapes of all results, and the gradients of all arguments."""
    exact = 1e-10 if dtype == "float64" else 1e-5
    mine, right = tensors(ours, args, dtype), tensors(torch, args, dtype)
    found, expected = parts(call(ours, *mine, **options)), parts(call(torch, *right, **options))
    assert len(found) == len(expected)
    loss: Any = 0
    loss_there: Any = 0
    rng = np.random.default_rng(1)
    for a, b in zip(found, expected, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a.shape == tuple(b.shape)
        assert f"torch.{a.dtype}" == str(b.dtype)
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=exact, atol=exact)
        if b.requires_grad and "NotImplemented" not in str(b.grad_fn):
            cotangent = rng.normal(size=a.shape).astype(dtype)
            loss = loss + (a * ours.tensor(cotangent)).sum()
            loss_there = loss_there + (b * torch.tensor(cotangent)).sum()
    if isinstance(loss_there, torch.Tensor):
        if loss.requires_grad:  # else it has no gradient where there it is 0
            loss.backward()
        loss_there.backward()
        for x, y in zip(leaves_of(mine), leaves_of(right), strict=True):
            zeros = np.zeros(x.shape) if y.grad is None else y.grad.numpy()
            got = np.zeros(x.shape) if x.grad is None else x.grad.numpy()
            np.testing.assert_allclose(got, zeros, rtol=exact, atol=exact)


def cases(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(name, *case, id=f"{name}-{i}")
        for name, several in table.items()
        for i, case in enumerate(several)
    ]


def test_every_name_has_a_row() -> None:
    functions, of_tensors = (
        {name.rpartition(".")[2] for name in ADDED if name.rpartition(".")[0] == owner}
        for owner in ("ta", "Tensor")
    )
    assert set(BOTH) | DRAWN == functions & of_tensors
    in_place = {f"{name}_" for name in IN_PLACE}
    asked = {"is_cuda", "is_sparse", "is_meta", "is_quantized", "is_nested"}
    assert in_place | set(METHODS) | asked == of_tensors - functions


# The first changes nothing, PyTorch has no second, and the others have tests of their own, because
# there a dtype is another object, and reduce="add" is deprecated beside a Tensor.
NOT_IN_ROWS = {
    ("unique", "sorted"), ("true_divide", "rounding_mode"), ("cumprod", "dtype"),
    ("scatter", "reduce"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*BOTH, *FUNCTIONS} - {"int", "short"}))
def test_every_option_has_a_row_with_another_value_than_its_default(name: str) -> None:
    """Else an option that is taken and ignored would be noticed by no row."""
    signature = inspect.signature(getattr(ours, name))
    parameters = signature.parameters.values()
    left = {p.name: p.default for p in parameters if p.default is not p.empty}
    left = {option: x for option, x in left.items() if (name, option) not in NOT_IN_ROWS}
    for args, options in (BOTH | FUNCTIONS)[name]:
        for option, value in signature.bind(*args, **options).arguments.items():
            if option in left and (isinstance(value, np.ndarray) or value != left[option]):
                del left[option]
    assert not left


def test_cumprod_multiplies_in_the_dtype_that_is_asked_for(torch: Any) -> None:
    for t in (ours, torch):
        assert t.tensor([2.7, -2.7]).cumprod(0, dtype=t.int64).tolist() == [2, -4]
        assert t.cumprod(t.tensor([3, 2]), 0, dtype=t.float64).dtype == t.float64


@pytest.mark.parametrize("name", ["nonzero", "where", "isinf"])
def test_what_is_no_tensor_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name}: .* must be a Tensor, got list: wrap it"):
        getattr(ours, name)([1, 0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "args", "options"), cases(BOTH | FUNCTIONS))
def test_functions(torch: Any, name: str, args: Any, options: Any, dtype: str) -> None:
    if name in ("int", "short"):
        pytest.skip("PyTorch has a dtype of this name")
    compare(lambda t, *a, **o: getattr(t, name)(*a, **o), torch, args, options, dtype)


def of_integers() -> list[Any]:
    """The rows of functions that get integers."""
    rows = cases(BOTH | FUNCTIONS)
    return [row for row in rows if any(x is I2 or x is J2 for x in row.values[1])]


@pytest.mark.parametrize("small", ["int8", "int32"])
@pytest.mark.parametrize(("name", "args", "options"), of_integers())
def test_functions_of_small_integers(
    torch: Any, name: str, args: Any, options: Any, small: str
) -> None:
    args = tuple(x.astype(small) if x is I2 or x is J2 else x for x in args)
    compare(lambda t, *a, **o: getattr(t, name)(*a, **o), torch, args, options, "float64")


# What a hint calls an argument, if it has another name there.
WORDS = {"self": "x", "input": "x", "other": "y", "mat2": "y", "vec": "y", "vec2": "y"}


def evaluated() -> Iterator[Any]:
    """The rows whose hint is an expression of just these arguments."""
    for row in cases({name: rows for name, rows in BOTH.items() if name not in ("int", "short")}):
        name, args, options = row.values
        if name == "masked_select" and row.id != "masked_select-0":  # a broadcast
            continue
        text = hints.instead("ta", name, []).removeprefix("write ")
        bound = inspect.signature(getattr(ours, name)).bind(*args, **options)
        known = {WORDS.get(word, word): word for word in bound.arguments}
        try:
            used = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
        except SyntaxError:
            continue
        if used - {"np", "ta", "F", "abs", "len"} == known.keys():
            yield pytest.param(name, text, args, options, id=row.id)


@pytest.mark.parametrize(("name", "text", "args", "options"), list(evaluated()))
def test_a_hint_is_the_function(name: str, text: str, args: Any, options: Any) -> None:
    """What a program writes without the function."""
    function = getattr(ours, name)
    bound = inspect.signature(function).bind(*tensors(ours, args, "float64"), **options)
    known = {WORDS.get(word, word): value for word, value in bound.arguments.items()}
    found = eval(text, {"ta": tinyattn, "np": np, **known})
    expected = function(*bound.args, **bound.kwargs)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12)


def test_many_hints_are_evaluated() -> None:
    assert len({row.values[0] for row in evaluated()}) > 25


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "args", "options"), cases(BOTH | METHODS))
def test_methods(torch: Any, name: str, args: Any, options: Any, dtype: str) -> None:
    compare(lambda t, x, *a, **o: getattr(x, name)(*a, **o), torch, args, options, dtype)


# The arguments of every method that changes its tensor.
IN_PLACE: dict[str, list[Any]] = {
    "cos": one(Y), "exp": one(Y),
    "log": one(X), "abs": one(Y), "clamp": one(Y, -0.5, 0.5),
    "masked_fill": one(Y, M, 3.0), "pow": one(X, 2.5), "reciprocal": one(X), "relu": one(Y),
    "rsqrt": one(X), "sigmoid": one(Y), "sign": one(Y), "sin": one(Y),
    "sqrt": one(X), "tanh": one(Y), "tril": one(Y), "triu": one(Y, 1),
    "copy": [((Y, Z), {}), ((Y, V), {}), ((I2, TIES), {})], "fill": [((Y, 3.0), {}), ((I2, 3), {})],
    "zero": one(Y),
    "bernoulli": [], "exponential": [], "normal": [], "uniform": [],
}  # fmt: skip
# Named one by one, because a function whose mark was forgotten would miss in a list that is made.
CHANGING = """
    add addcdiv addcmul addmm clamp_max clamp_min div divide floor index_add index_copy
    index_fill index_put lerp mul round scatter scatter_add sub true_divide
""".split()  # noqa: SIM905
IN_PLACE |= {name: BOTH[name] for name in CHANGING}
CHANGED = {"lerp": one(Y, Z, 0.3), "div": BOTH["div"][:1], "addmm": BOTH["addmm"][:1]}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "args", "options"), cases(IN_PLACE | CHANGED))
def test_changes_in_place(torch: Any, name: str, args: Any, options: Any, dtype: str) -> None:
    """Recorded, and into the memory of an unrecorded tensor, which its views see."""

    def recorded(t: Any, x: Any, *others: Any, **o: Any) -> Any:
        x = x.clone()
        assert getattr(x, f"{name}_")(*others, **o) is x
        return x

    if name != "copy" or args[0].dtype.kind == "f":  # a recorded copy into integers is refused
        compare(recorded, torch, args, options, dtype)

    def memory(t: Any, x: Any, *others: Any, **o: Any) -> Any:
        with t.no_grad():
            x = x.clone()
            view = x.view(-1)
            assert getattr(x, f"{name}_")(*others, **o) is x
        return view

    compare(memory, torch, args, options, dtype)


def test_every_function_that_changes_its_tensor_has_a_row() -> None:
    assert sorted(functions.CHANGING) == CHANGING


def test_detach_ends_a_graph_in_place(torch: Any) -> None:
    """As programs do with the state of a recurrent layer."""
    results = []
    for library in (ours, torch):
        w, state = library.tensor([2.0, -1.0], requires_grad=True), library.ones(2)
        for _ in range(3):
            state.detach_()
            state = w * state + 1
            (state * library.tensor([1.5, -2.0])).sum().backward()
        assert state.detach_() is state
        state += 1
        assert state.is_leaf
        assert not state.requires_grad
        assert not w.detach_().requires_grad
        results.append([w.grad.tolist(), state.tolist()])
    assert results[0] == results[1]


def test_a_leaf_changes_in_place_without_recording_only(torch: Any) -> None:
    for t in (ours, torch):
        x = t.ones(2, 2, requires_grad=True)
        with pytest.raises((InPlaceError, RuntimeError)):
            x.mul_(2)
        with t.no_grad():
            x.mul_(2)
            x[0].fill_(5)
            x.view(-1)[3:].sub_(1, alpha=3)
        (x * x).sum().backward()
        assert x.is_leaf
        assert x.tolist() == [[5, 5], [2, -1]]
        assert x.grad.tolist() == [[10, 10], [4, -2]]


def test_fill_writes_what_the_dtype_holds(torch: Any) -> None:
    for t in (ours, torch):
        assert t.zeros(2, dtype=t.bool).fill_(1).tolist() == [True, True]
        assert str(t.ones(1).fill_(-0.0).item()) == "-0.0"
        value = t.tensor(2.0, requires_grad=True)
        x = t.empty(2).fill_(value)
        (x * t.tensor([3.0, -5.0])).sum().backward()
        assert value.grad.item() == -2
        leaf = t.empty(2).fill_(2.0).requires_grad_()
        (leaf * t.tensor([3.0, -5.0])).sum().backward()
        assert leaf.is_leaf
        assert leaf.grad.tolist() == [3, -5]
    with pytest.raises(DtypeError, match=r"1.5 does not fit"):
        ours.zeros(2, dtype=ours.int64).fill_(1.5)


def test_a_graph_notices_a_change_of_what_it_saved() -> None:
    x = ours.ones(2, requires_grad=True)
    y = x * x
    x.data.add_(1)
    with pytest.raises(InPlaceError, match="has been changed in place since"):
        y.sum().backward()
    constant = ours.ones(2)
    y = x * constant
    constant.add_(1)  # in its memory, though no other tensor shows it
    with pytest.raises(InPlaceError, match="has been changed in place since"):
        y.sum().backward()


def test_a_part_of_what_is_recorded_is_changed_in_place() -> None:
    y = ours.ones(2, 2, requires_grad=True) * 2
    y[0].add_(1)
    y.view(4).add_(1)
    assert y.tolist() == [[4, 4], [3, 3]]
    with pytest.raises(ShapeError, match="keeps the shape"):
        ours.ones(2).add_(ours.ones(3, 2))
    with pytest.raises(DtypeError, match="does not fit in place"):
        ours.ones(2, dtype=ours.long).div_(2)


def test_data_is_a_tensor_on_the_same_memory(torch: Any) -> None:
    for t in (ours, torch):
        w = t.ones(2, 2, requires_grad=True)
        w.data.fill_(3.0)
        w.data[0] = 1
        w.data -= 0.5 * w.data
        w.data.copy_(w.data * 4)
        assert not w.data.requires_grad
        assert w.tolist() == [[2, 2], [6, 6]]
        (w * w).sum().backward()
        assert w.grad.data.clone().tolist() == [[4, 4], [12, 12]]
        w.grad.data.zero_()
        assert w.grad.tolist() == [[0, 0], [0, 0]]
        w.data = t.zeros(2, 2)
        assert w.is_leaf
        assert w.tolist() == [[0, 0], [0, 0]]


def test_random_numbers() -> None:
    """Their means and ranges, and that a generator repeats them and leaves the others alone."""
    n = 100_000
    drawn = {
        "normal": (lambda g: ours.empty(n).normal_(2.0, 3.0, generator=g), 2.0, 3.0),
        "uniform": (lambda g: ours.empty(n).uniform_(-1, 3, generator=g), 1.0, 4 / 12**0.5),
        "exponential": (lambda g: ours.empty(n).exponential_(2.0, generator=g), 0.5, 0.5),
        "bernoulli_": (lambda g: ours.empty(n).bernoulli_(0.3, generator=g), 0.3, 0.21**0.5),
        "bernoulli": (lambda g: ours.bernoulli(ours.full((n,), 0.3), generator=g), 0.3, 0.21**0.5),
        "function": (lambda g: ours.normal(2.0, ours.full((n,), 3.0), generator=g), 2.0, 3.0),
        "sizes": (lambda g: ours.normal(0, 0.1, (n,), generator=g), 0.0, 0.1),
        "randn": (lambda g: ours.randn(n, generator=g), 0.0, 1.0),
        "multinomial": (
            lambda g: ours.multinomial(ours.ones(3), n, True, generator=g) * 1.0,
            1.0, (2 / 3) ** 0.5,
        ),
    }  # fmt: skip
    for name, (draw, mean, std) in drawn.items():
        ours.manual_seed(1)
        expected = ours.rand(3).tolist()
        generator = ours.Generator().manual_seed(7)
        ours.manual_seed(1)
        first = draw(generator)
        assert ours.rand(3).tolist() == expected, name
        assert first.equal(draw(ours.Generator().manual_seed(7)))
        assert not first.equal(draw(generator))
        assert first.mean().item() == pytest.approx(mean, abs=0.02), name
        assert first.std().item() == pytest.approx(std, rel=0.02), name


def test_dtypes(torch: Any) -> None:
    for name in ("long", "float", "double", "half", "int", "short", "uint8", "int8", "bool"):
        made, there = ours.zeros(2, dtype=getattr(ours, name)), getattr(torch, name)
        assert made.dtype is getattr(ours, name)
        assert isinstance(made.dtype, ours.dtype)
        assert f"torch.{made.dtype}" == str(there)
        assert made.type() == torch.zeros(2, dtype=there).type()
        assert ours.ones(2).type(made.type()).dtype is made.dtype
        other = ours.int8 if name == "short" else ours.int16
        kind = made.type().removeprefix("torch.")
        cls, cls_there = getattr(ours, kind), getattr(torch, kind)
        assert isinstance(made, cls)
        assert isinstance(made, ours.Tensor)
        assert type(made) == ours.Tensor  # noqa: E721
        assert type(made) not in (cls, *{cls: cls})
        assert not isinstance(ours.zeros(2, dtype=other), cls)
        assert cls(2, 3).shape == tuple(cls_there(2, 3).shape)
        assert cls().shape == tuple(cls_there().shape)
        found, expected = cls([[1, 0]]), cls_there([[1, 0]])
        assert found.tolist() == expected.tolist()
        assert f"torch.{found.dtype}" == str(expected.dtype)
        assert ours.ones(2).type(cls).dtype is made.dtype
    assert ours.DoubleTensor([0.1]).item() == 0.1
    assert ours.Tensor([1, 2]).dtype is ours.float32 is ours.get_default_dtype()
    assert ours.empty_like(ours.zeros(2), dtype=ours.long).dtype is ours.long
    assert ours.finfo(ours.float32).max == torch.finfo(torch.float32).max
    assert ours.iinfo(ours.long).min == torch.iinfo(torch.long).min
    for library in (ours, torch):
        assert library.LongTensor([library.tensor([5]), library.tensor(6)]).tolist() == [5, 6]
    ours.set_default_dtype(ours.float)
    with pytest.raises(DtypeError, match="the default dtype is float32"):
        ours.set_default_dtype(ours.double)
    with pytest.raises(ShapeError, match="LongTensor: not a rectangular"):
        ours.LongTensor([[1], [1, 2]])


def test_devices() -> None:
    for device in (ours.device("cpu"), ours.device("cpu", 0), ours.device("cpu:0"), "cpu:0"):
        x = ours.zeros(2, device=device)
        assert x.device == device == "cpu" if device != "cpu:0" else x.device == "cpu"
        assert x.device.type == "cpu"
        assert x.to(device, non_blocking=True) is x.to(device=device) is x
        assert x.to(x.device, ours.double, copy=True).dtype is ours.double
        assert x.to(device, copy=True) is not x
        assert ours.nn.Linear(2, 2).to(device, non_blocking=True).weight.device == "cpu"
    assert repr(ours.device("cuda", 0)) == "device(type='cuda', index=0)"
    assert ours.device(0) == ours.device("cuda") == copy.deepcopy(ours.device("cuda:0")) == "cuda"
    assert ours.device(ours.device("cuda:0")).index == 0
    assert ours.device("cuda").index is None
    for wrong in ("cuda:1", 1, "mps", "cpu:1", "cuda:x"):
        with pytest.raises(DeviceError, match='device must be "cpu" or "cuda"'):
            ours.device(wrong)
    with pytest.raises(AttributeError, match=r"'device' of .* has no setter"):
        ours.ones(2).device = "cpu"  # type: ignore[misc]
    assert not ours.backends.mps.is_available()
    ours.backends.cudnn.deterministic = True


# What takes a device, and returns an object that has one.
WITH_DEVICE: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda device, name=name: getattr(ours, name)(2, device=device)
        for name in ("arange", "empty", "eye", "ones", "rand", "randn", "randperm", "zeros")
    },
    **{
        name: lambda device, name=name: getattr(ours, name)(ours.ones(2), device=device)
        for name in ("as_tensor", "empty_like", "ones_like", "rand_like", "randn_like", "tensor",
                     "zeros_like")
    },
    "full": lambda device: ours.full((2,), 1.0, device=device),
    "full_like": lambda device: ours.full_like(ours.ones(2), 3.0, device=device),
    "linspace": lambda device: ours.linspace(0, 1, 3, device=device),
    "randint": lambda device: ours.randint(0, 5, (2,), device=device),
    "normal": lambda device: ours.normal(0.0, 1.0, (2,), device=device),
    "Generator": ours.Generator,
    "Generator(device=)": lambda device: ours.Generator(device=device),
    "to": lambda device: ours.ones(2).to(device),
    "to(device=)": lambda device: ours.ones(2).to(device=device),
    "Linear.to": lambda device: ours.nn.Linear(1, 1).to(device).weight,
    "GRU": lambda device: ours.nn.GRU(1, 1, device=device).weight_hh_l0,
    "Linear": lambda device: ours.nn.Linear(1, 1, device=device).bias,
    "LayerNorm": lambda device: ours.nn.LayerNorm(1, device=device).weight,
    "RMSNorm": lambda device: ours.nn.RMSNorm(1, device=device).weight,
    "Embedding": lambda device: ours.nn.Embedding(2, 1, device=device).weight,
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_every_way_to_write_a_device_is_taken_and_no_other(name: str) -> None:
    make = WITH_DEVICE[name]
    for device in ("cpu", "cpu:0", ours.device("cpu"), ours.device("cpu", 0)):
        found = make(device).device
        assert found == "cpu"
        assert found.type == "cpu"
    for wrong in ("cpu:1", "cuda:1", 1):
        with pytest.raises(DeviceError, match='device must be "cpu" or "cuda"'):
            make(wrong)
    with pytest.raises((DeviceError, DtypeError), match="nowhere"):  # `to` takes dtypes too
        make("nowhere")


@pytest.mark.skipif(ours.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu() -> None:
    assert ours.cuda.device_count() == 0
    assert not ours.accelerator.is_available()
    assert ours.accelerator.current_accelerator() is None
    assert not ours.ones(2).is_cuda
    before = ours.get_rng_state()
    ours.cuda.manual_seed_all(1)
    ours.cuda.empty_cache()
    assert ours.get_rng_state() == before
    for call in (ours.cuda.synchronize, ours.ones(2).cuda, ours.nn.Linear(1, 1).cuda):
        with pytest.raises(DeviceError):
            call()
    with pytest.raises(AttributeError, match=r"no cuda\.amp: delete autocast and Grad"):
        ours.cuda.amp  # noqa: B018


def test_on_cuda(cuda: Any) -> None:
    x = ours.ones(3, device="cuda:0")
    assert x.is_cuda
    assert x.device == ours.device("cuda")
    assert x.add_(1).type() == "torch.cuda.FloatTensor"
    index = ours.tensor([1, 1])
    assert ours.scatter(x, 0, index[:1], value=5.0).tolist() == [2, 5, 2]
    assert x.index_add(0, index, ours.ones(2).cuda()).tolist() == [2, 4, 2]
    assert x.data.normal_().floor().device.type == "cuda"
    assert x.fill_(2.5).round().tolist() == [2, 2, 2]
    assert x.cumprod(0).tolist() == [2.5, 2.5**2, 2.5**3]
    assert ours.diag(x).nonzero().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert x.new_zeros(2).device == "cuda"


def test_errors_have_the_name_of_the_function() -> None:
    with pytest.raises(TypeError, match=r"log2\(\) misses its argument 'input'"):
        ours.log2()
    with pytest.raises(TypeError, match=r"lerp\(\) missing 1 required .* 'weight'"):
        ours.ones(2).lerp(1.0)
    with pytest.raises(TypeError, match=r"^add_module\(\) missing 1 required .* 'module'"):
        ours.nn.Linear(1, 1).add_module("a")
    with pytest.raises(TypeError, match=r"^isclose\(\) missing 2 required .* 'input' and 'other'"):
        ours.isclose()


def test_windows_and_parts_that_are_not_there_are_refused(torch: Any) -> None:
    for t in (ours, torch):
        x = t.zeros(3, 4)
        for call in (
            lambda x: x.unfold(0, 4, 1),
            lambda x: x.unfold(1, 2, 0),
            lambda x: x.unfold(1, -1, 1),
            lambda x: x.narrow(1, 3, 2),
            lambda x: x.narrow(1, -5, 2),
            lambda x: x.narrow(1, 0, -1),
            lambda x: x[0, 0].narrow(0, 0, 1),
            lambda x: x[0, 0].select(0, 0),
        ):
            with pytest.raises((RuntimeError, IndexError) if t is torch else ValueError):
                call(x)
    number, first = ours.tensor(1.0), ours.tensor([0])
    for change in (
        lambda: number.index_fill(0, first, 2.0),
        lambda: number.index_add_(0, first, ours.ones(1)),
        lambda: number.index_copy(0, first, ours.ones(1)),
        lambda: number.index_select(0, first),
    ):
        with pytest.raises(ValueError, match=r"one dimension or more, got a 0-d tensor"):
            change()
    with pytest.raises(IndexError, match=r"dim 1 is out of range .*expected -1 to 0"):
        number.gather(1, ours.tensor(0))
    for index in (0, True, [0], None):
        for x in (number, first, ours.ones(2, 3)):
            with pytest.raises(TypeError, match=r"integer index|index must be a Tensor"):
                x.gather(0, index)
            with pytest.raises(TypeError, match="index must be a Tensor"):
                x.scatter_(0, index, 1)
    for product in (ours.dot, ours.outer):
        with pytest.raises(TypeError, match="other must be a Tensor"):
            product(ours.ones(2, 3), 7)


def test_what_has_no_such_product_or_probability_is_refused(torch: Any) -> None:
    for t in (ours, torch):
        x, matrix, vector = t.ones(2, 3, 3), t.ones(3, 3), t.ones(3)
        for call in (
            lambda t: t.mv(matrix, matrix),  # noqa: B023
            lambda t: t.mv(x, vector),  # noqa: B023
            lambda t: t.mm(x, x),  # noqa: B023
            lambda t: t.mm(matrix, vector),  # noqa: B023
            lambda t: t.trace(x),  # noqa: B023
            lambda t: vector.trace(),  # noqa: B023
            lambda t: matrix.div(2, rounding_mode="wrong"),  # noqa: B023
            lambda t: t.bernoulli(matrix * 1.5),  # noqa: B023
            lambda t: t.bernoulli(-vector),  # noqa: B023
            lambda t: t.bernoulli(t.tensor(float("nan"))),
            lambda t: vector.bernoulli_(1.01),  # noqa: B023
        ):
            with pytest.raises(RuntimeError if t is torch else ValueError):
                call(t)
        assert t.bernoulli(t.tensor([0.0, 1.0])).tolist() == [0, 1]
        assert t.zeros(2).bernoulli_(t.tensor([1.0, 0.0])).tolist() == [1, 0]


def test_a_source_has_the_shape_of_the_elements_at_its_index(torch: Any) -> None:
    """Not one that only broadcasts to it, or has as many numbers."""
    for t in (ours, torch):
        x, index = t.zeros(3, 4), t.tensor([2, 0])
        for source in (t.ones(1, 4), t.ones(4, 2), t.ones(1, 2, 4)):
            for name in ("index_add", "index_copy"):
                with pytest.raises((RuntimeError, IndexError, ShapeError)):
                    getattr(x, name)(0, index, source)


def test_a_source_smaller_than_its_index_is_refused(torch: Any) -> None:
    for t in (ours, torch):
        x, index = t.zeros(3, 4), t.zeros(3, 2, dtype=t.int64)
        for source in (t.ones(2, 2), t.ones(3, 1)):
            for name in ("scatter", "scatter_add"):
                with pytest.raises((RuntimeError, ShapeError)):
                    getattr(x, name)(1, index, source)
        larger = x.scatter_add(1, index, t.ones(4, 3))
        assert larger.tolist() == [[2, 0, 0, 0]] * 3


def test_bernoulli_takes_a_number_or_a_tensor(torch: Any) -> None:
    for t in (ours, torch):
        assert t.bernoulli(t.zeros(3), 1.0).tolist() == [1, 1, 1]
        assert t.bernoulli(t.zeros(0)).tolist() == []
        assert t.bernoulli(t.tensor(1.0)).item() == 1


def test_a_normal_sample_is_a_leaf(torch: Any) -> None:
    """As the weights of a regression from scratch are; and no gradient goes to its mean."""
    for t in (ours, torch):
        w = t.normal(0, 0.01, size=(3, 1), requires_grad=True)
        (w * 2).sum().backward()
        assert w.grad.tolist() == [[2], [2], [2]]
        with t.no_grad():
            w -= w.grad
        mean = t.zeros(2, requires_grad=True)
        (t.normal(mean, 0.1) * mean).sum().backward()
        assert (abs(mean.grad) < 1).all()
        assert not t.normal(0, 1, (2,)).requires_grad


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("shape", [(1,), (2, 1), ()])
def test_a_product_of_one_number_has_memory_of_its_own(
    torch: Any, shape: tuple[int, ...], dtype: str
) -> None:
    for t in (ours, torch):
        x = t.ones(shape, dtype=getattr(t, dtype))
        for y in (x.prod(-1), x.prod(-1, keepdim=True), x.cumprod(-1)):
            y.add_(5)
            y[...] = 7
        assert (x == 1).all()


# Results that PyTorch lays out in memory so that `view` can show them.
VIEWED: list[Any] = [
    lambda t, x: x[:, [1, 0]],
    lambda t, x: x[..., t.tensor([1, 0])],
    lambda t, x: x[0, :, [1, 0, 2]],
    lambda t, x: x[:, x[0, :, 0] > -9],
    lambda t, x: x.index_select(1, t.tensor([1, 1])),
    lambda t, x: x.softmax(1),
    lambda t, x: x.log_softmax(0),
    lambda t, x: t.nn.LSTM(4, 5)(x)[0],
    lambda t, x: t.nn.GRU(4, 5, bidirectional=True)(x)[0],
    lambda t, x: t.nn.MultiheadAttention(4, 2)(x, x, x)[0],
    lambda t, x: t.nn.functional.conv1d(x, t.ones(6, 3, 2)),
    lambda t, x: t.nn.Conv2d(3, 6, 2, groups=3)(x[:, :, None].repeat(1, 1, 4, 1)),
]


@pytest.mark.parametrize("function", VIEWED)
def test_a_view_shows_results(torch: Any, function: Any) -> None:
    """A program calls view on them; and what it writes through reshape reaches them."""
    for t in (ours, torch):
        with t.no_grad():
            y = function(t, t.randn(2, 3, 4))
            y.reshape(-1)[1] = 9.0
            assert y.view(-1)[1] == 9
            assert y.flatten()[1] == 9
            assert y.view(len(y), -1).shape[0] == len(y)


@pytest.mark.parametrize(
    "function",
    [
        lambda t, x: t.cat([x, x]),
        lambda t, x: t.cat([x, x], -1),
        lambda t, x: t.cat(x.chunk(2, 2), 2),
        lambda t, x: t.stack([x, x], 1),
        lambda t, x: t.hstack([x, x]),
        lambda t, x: t.vstack([x, x]),
        lambda t, x: x.roll(1, 0),
        lambda t, x: x.roll((1, 1), (1, 2)),
    ],
)
def test_what_is_joined_lies_in_c_order(torch: Any, function: Any) -> None:
    """As in Transformer-XL, whose scores have their dimensions in another order: cat, then view."""
    for t in (ours, torch):
        for x in (t.randn(2, 3, 4).transpose(0, 2), t.randn(2, 3, 4).permute(1, 2, 0)):
            y = function(t, x.requires_grad_())
            assert y.is_contiguous()
            assert y.view(-1).equal(y.flatten())


# Calls in which n makes a small integer, beside those of tinyattn in test_options_at_edges.py.
SMALL = [
    "x.unfold(n(1), n(3), n(2))", "x.narrow(n(1), n(100), n(100))", "x.select(n(1), n(-100))",
    "nn.functional.pad(x, (n(100), n(1)))", "x.index_select(n(1), t.tensor([3]))",
    "nn.functional.conv1d(x, t.ones(2, 300, 3), padding=n(100), dilation=n(3))",
    "nn.functional.max_pool1d(x, n(3), n(2))", "t.movedim(x, n(0), n(2))",
    "x.unflatten(n(1), (n(3), n(100)))", "t.tile(x, (n(1), n(2), n(1)))",
    "nn.MultiheadAttention(n(4), n(2))(x, x, x)[0]", "nn.GRU(n(4), n(5), n(2))(x)[0]",
    "nn.TransformerEncoderLayer(n(4), n(2), n(8), 0.0)(x)", "nn.Embedding(n(100), n(3)).weight",
]  # fmt: skip


@pytest.mark.parametrize("call", SMALL)
def test_integers_of_numpy_do_not_overflow(call: str) -> None:
    results = []
    for kind in (int, np.int8, np.int64):
        ours.manual_seed(0)
        x = ours.arange(2400.0).reshape(2, 300, 4) / 1000
        results.append(eval(call, {"x": x, "t": ours, "nn": ours.nn, "n": kind}).detach().numpy())
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_methods_of_modules(torch: Any) -> None:
    for t in (ours, torch):
        model = t.nn.Sequential(t.nn.Linear(2, 3))
        model.add_module("last", t.nn.Linear(3, 1))
        model.register_parameter("scale", t.nn.Parameter(t.ones(2)))
        assert model.get_submodule("last") is model.last
        assert model.get_submodule("") is model
        assert model.get_parameter("last.weight") is model.last.weight
        assert [name for name, _ in model.named_children()] == ["0", "last"]
        assert "scale" in dict(model.named_parameters())
        for get in (model.get_submodule, model.get_parameter):
            with pytest.raises(AttributeError, match="other"):
                get("other")


def test_what_is_written_into_the_parts_of_a_module_is_a_part_of_it(torch: Any) -> None:
    """As the MySequential of the d2l book does, and programs that replace or take away layers."""
    found = []
    for space in (ours, torch):
        model, nn = space.nn.Module(), space.nn
        for i, width in enumerate((3, 4)):
            model._modules[str(i)] = nn.Linear(width, 2)
        model._modules.update(head=nn.ReLU())
        model._modules["0"] = nn.Linear(5, 2, bias=False)
        model._modules.pop("1")
        parts = model._parameters
        parts["scale"] = nn.Parameter(space.ones(6))
        parts["shift"] = nn.Parameter(space.ones(7))
        del parts["shift"]
        assert list(parts) == ["scale"]
        assert not hasattr(model, "shift")
        model._modules["_hidden"], parts["_scale"] = nn.Tanh(), nn.Parameter(space.ones(8))
        assert list(model._modules) == ["0", "head", "_hidden"]
        assert list(model._parameters) == ["scale", "_scale"]
        found.append([(name, tuple(p.shape)) for name, p in model.named_parameters()])
        found[-1] += [name for name, _ in model.named_modules()] + [*model.state_dict()]
        with pytest.raises(KeyError, match="other"):
            del parts["other"]
    assert found[0] == found[1]


def test_a_state_dict_shows_the_memory_of_its_module(torch: Any) -> None:
    """As moving averages of weights are often written."""
    found = []
    for space in (ours, torch):
        model, average = (space.nn.Sequential(space.nn.Linear(2, 3)) for _ in range(2))
        for i, module in enumerate((model, average)):
            for parameter in module.parameters():
                parameter.data.fill_(3.0 * i + 1.0)
        kept = model.state_dict()
        for name, value in average.state_dict().items():
            value.mul_(0.5).add_(kept[name].detach(), alpha=0.25)
        optimizer = space.optim.SGD(model.parameters(), lr=0.5)
        model(space.ones(1, 2)).sum().backward()
        optimizer.step()
        found.append([x.detach().tolist() for x in (*kept.values(), *average.parameters())])
        assert not any(value.requires_grad for value in kept.values())
        shown, row = average.state_dict(), average[0].weight.detach()[1]
        average.load_state_dict(kept)  # which copies, into the memory of the module
        found[-1] += [x.tolist() for x in (*shown.values(), row)]
        shown["0.weight"].zero_()
        assert average[0].weight.abs().sum().item() == 0.0
        assert kept["0.weight"].sum().item() == model[0].weight.sum().item() == 3.0
    assert found[0] == found[1]


def test_values_are_loaded_into_memory_that_cannot_be_written() -> None:
    """Of a buffer that is expanded, and of one whose numbers a graph needs."""
    x = ours.ones(3, requires_grad=True)
    module = ours.nn.Identity()
    module.register_buffer("places", ours.arange(3).expand(2, 3))
    module.register_buffer("squares", (x * x).detach())
    state = {"places": ours.tensor([[1, 2, 3], [4, 5, 6]]), "squares": ours.full((3,), 7.0)}
    product = x * module.squares
    module.load_state_dict(state)
    assert all(value.equal(state[name]) for name, value in module.state_dict().items())
    product.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]


def test_autograd_and_modes(torch: Any) -> None:
    from tinyattn.torch_names.autograd import Variable

    for t in (ours, torch):
        for wanted in (False, True):
            for given in (
                t.ones(2),
                t.ones(2, requires_grad=True),
                t.ones(2, requires_grad=True) * 2,
            ):
                before = given.requires_grad
                made = t.autograd.Variable(given, requires_grad=wanted)
                assert (made.is_leaf, made.requires_grad) == (True, wanted)
                assert given.requires_grad == before
                assert made is not given
    assert Variable is ours.autograd.Variable
    x = ours.tensor(2.0, requires_grad=True)
    assert ours.autograd.grad(x * x, x)[0].item() == 4
    (slope,) = ours.autograd.grad(x**3, x, ours.tensor(2.0), None, True, only_inputs=True)
    assert (slope.item(), ours.autograd.grad(slope, x)[0].item()) == (24, 24)
    with ours.inference_mode():
        assert not (x * x).requires_grad
    assert ours.inference_mode()(lambda: x * x)().is_leaf
    assert ours.ones(2, pin_memory=True).pin_memory().sum().item() == 2


def test_a_file_is_loaded_as_in_pytorch(tmp_path: Any) -> None:
    path = tmp_path / "state.safetensors"
    ours.save({"x": ours.arange(3)}, path)
    state = ours.load(path, map_location=ours.device("cpu"), weights_only=True)
    assert state["x"].tolist() == [0, 1, 2]


def test_a_tensor_or_a_list_is_saved_too(tmp_path: Any) -> None:
    """As in chapter 6.6 of d2l: torch.save(x, "x-file"). A dict comes back as it is."""
    path, x = tmp_path / "x", ours.arange(3)
    ours.save(x, path)
    assert ours.load(path).tolist() == [0, 1, 2]
    ours.save(obj=[x, {"y": x * 2}, 3.5], f=path)
    first, second, number = ours.load(path)
    assert (first.tolist(), second["y"].tolist(), number) == ([0, 1, 2], [0, 2, 4], 3.5)
    for state in ({}, {"x": 1}, {"the state": x}, {"the state": 1, "x": 2}):
        ours.save(state, path)
        assert str(ours.load(path)) == str(state)
    for wrong in (ours.nn.Linear(2, 2), [ours.nn.Linear(2, 2)], np.ones(2)):
        with pytest.raises(TypeError, match=r"the state.* is a \w+; a checkpoint holds Tensors"):
            ours.save(wrong, path)


def test_an_open_file_is_a_place_for_a_state_too(tmp_path: Any) -> None:
    """As programs copy a state in memory, or into an archive that they have opened."""
    states = {"x": ours.ones(2, 3), "none": ours.zeros(0, 3), "step": 3}, ours.tensor(2), [1.5]
    for state in states:
        file = io.BytesIO()
        file.write(b"before")
        ours.save(state, file)
        file.seek(6)
        assert str(ours.load(file, weights_only=True)) == str(state)
        with pytest.raises(CheckpointError, match=r"^the rest of the file .* its 0 bytes"):
            ours.load(file)
        for opened in (open, gzip.open):
            with opened(tmp_path / "x", "wb") as file:
                ours.save(obj=state, f=file)
            with opened(tmp_path / "x", "rb") as file:
                assert str(ours.load(f=file)) == str(state)


def test_a_file_of_text_takes_no_state(tmp_path: Any) -> None:
    with open(tmp_path / "x", "w+") as file:
        for f in (io.StringIO(), file):
            for call in (lambda f=f: ours.save({"x": 1}, f), lambda f=f: ours.load(f)):
                with pytest.raises(TypeError, match="bytes"):
                    call()
    assert not (tmp_path / "x").read_bytes()


def test_a_diagonal_is_filled_in_place(torch: Any) -> None:
    """As a matrix of similarities hides each with itself, recorded or not."""
    for t in (ours, torch):
        x = t.ones(3, 2)
        assert x.fill_diagonal_(5) is x
        assert x.tolist() == [[5, 1], [1, 5], [1, 1]]
        seen = t.ones(2, 2, dtype=t.bool)
        row = seen[0]
        seen.fill_diagonal_(False)
        assert row.tolist() == [False, True]
        w = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        scores = w * 2
        scores.fill_diagonal_(float("-inf"))
        scores.softmax(-1)[0, 1].backward()
        assert w.grad.tolist() == [[0, 0], [0, 0]]
        (w * w).fill_diagonal_(0.0).sum().backward()
        assert w.grad.tolist() == [[0, 4], [6, 0]]
    with pytest.raises(ShapeError, match=r"2 dimensions is expected, got shape \(2, 2, 2\)"):
        ours.ones(2, 2, 2).fill_diagonal_(1)


def test_generators_of_threads_are_apart() -> None:
    """A thread draws from its own, and others still draw from the one of manual_seed."""
    ours.manual_seed(5)
    right = ours.randn(3).tolist()
    began, ended, seen = threading.Event(), threading.Event(), []

    def draw() -> None:
        with ours.Generator().manual_seed(1).drawing():
            began.set()
            ended.wait(10)
            seen.append(ours.randn(3).tolist())

    ours.manual_seed(5)
    thread = threading.Thread(target=draw)
    thread.start()
    began.wait(10)
    assert ours.randn(3).tolist() == right
    ended.set()
    thread.join()
    assert seen == [ours.randn(3, generator=ours.Generator().manual_seed(1)).tolist()]


@pytest.mark.parametrize(
    ("register", "error", "message"),
    [
        (lambda m, t: m.register_parameter("w", t.ones(2)), TypeError, "'w' has to be a Parameter"),
        (lambda m, t: m.add_module("a", 3), TypeError, "'a' has to be a Module or None, got int 3"),
        (lambda m, t: m.add_module("b.c", t.nn.Linear(1, 1)), KeyError, "a word without dots"),
        (lambda m, t: m.add_module("", None), KeyError, "a word without dots, got ''"),
        (lambda m, t: m.register_parameter("weight", m), TypeError, "has to be a Parameter"),
        (lambda m, t: m.add_module("weight", t.nn.Linear(1, 1)), KeyError, "an attribute 'weight'"),
        (
            lambda m, t: m.register_parameter("n", t.nn.Parameter(t.ones(1))),
            KeyError,
            "'n' already",
        ),
    ],
)
def test_what_would_not_be_trained_is_not_registered(
    register: Any, error: Any, message: str
) -> None:
    module = ours.nn.Linear(2, 3)
    module.n = 7
    before = dict(vars(module))
    with pytest.raises(error, match=message):
        register(module, ours)
    assert vars(module) == before
    module.register_parameter("weight", None)
    module.register_parameter("weight", ours.nn.Parameter(ours.ones(3, 2)))
    assert [name for name, _ in module.named_parameters()] == ["weight", "bias"]


def test_an_empty_vector_is_joined_to_any_shape(torch: Any) -> None:
    for dim, shape in ((0, (2, 3)), (1, (2, 3)), (-1, (2, 3, 4)), (0, (3,))):
        results = []
        for t in (ours, torch):
            x = t.ones(*shape, requires_grad=True)
            empty = t.tensor([], dtype=t.float64, requires_grad=True)
            for parts in ([empty, x], [x, empty, 2 * x], [empty, empty, x]):
                joined = t.cat(parts, dim)
                (joined * joined).sum().backward()
                results.append((tuple(joined.shape), str(joined.dtype)[-7:], x.grad.tolist()))
            assert tuple(empty.grad.shape) == (0,)
            assert tuple(t.cat([empty, empty]).shape) == (0,)
        assert results[:3] == results[3:]
    with pytest.raises(ShapeError, match=r"take \(float32\[0, 1\], float32\[2, 3, 4\]\)"):
        ours.cat([ours.zeros(0, 1), ours.ones(2, 3, 4)])


def test_a_new_tensor_takes_the_dtype_that_is_asked_for() -> None:
    x = ours.ones(2)
    for name in ("new_zeros", "new_ones", "new_empty"):
        assert getattr(x, name)(3).dtype == ours.float32
        assert getattr(x, name)(3, dtype=ours.int64).dtype == ours.int64
    assert x.new_full((3,), 2, dtype=ours.float64).dtype == ours.float64
    assert x.new_tensor([1.5], dtype=ours.float16).dtype == ours.float16


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_both_sides_of_a_rounded_quotient_have_a_gradient_of_0(torch: Any, mode: str) -> None:
    for library in (ours, torch):
        x, y = (library.tensor([3.5, -2.0], requires_grad=True) for _ in range(2))
        library.div(x, y, rounding_mode=mode).sum().backward()
        assert x.grad.tolist() == y.grad.tolist() == [0, 0]
