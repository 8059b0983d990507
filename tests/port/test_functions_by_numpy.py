"""Functions of torch_names with all their options beside NumPy: as functions and as methods, with
arguments by their places and by their names, and their gradients by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import rng_of, signed

import tinyattn.torch_names as torch
from tinyattn.torch_names.autograd import grad

X, Y, Z = (signed(rng_of(seed), 3, 4).astype(np.float64) for seed in (1, 2, 3))
CUBE = signed(rng_of(4), 2, 3, 4).astype(np.float64)
OTHER_CUBE = signed(rng_of(5), 2, 4, 3).astype(np.float64)
I = np.array([2, 0, 2])  # noqa: E741  an index that has one place twice


def put(x: np.ndarray, index: Any, values: Any, adds: bool = False) -> np.ndarray:
    x = x.copy()
    if adds:
        np.add.at(x, index, values)
    else:
        x[index] = values
    return x


# The name of a function, its arguments by place, those by name, and what NumPy gives.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("add", (X, Y), {"alpha": -2.5}, X - 2.5 * Y),
    ("sub", (X, Y), {"alpha": -2.5}, X + 2.5 * Y),
    ("addcdiv", (X, Y, Z), {"value": -0.5}, X - 0.5 * Y / Z),
    ("addcdiv", (X, Y, Z), {}, X + Y / Z),
    ("addcmul", (X, Y, Z), {"value": -0.5}, X - 0.5 * Y * Z),
    ("addcmul", (X, Y, Z), {}, X + Y * Z),
    ("lerp", (X, Y, 0.25), {}, 0.75 * X + 0.25 * Y),
    ("lerp", (X, Y, 0.75), {}, 0.25 * X + 0.75 * Y),
    ("lerp", (X, Y, -1.5), {}, 2.5 * X - 1.5 * Y),
    ("lerp", (X, Y, Z), {}, X + Z * (Y - X)),
    ("div", (X, Y), {}, X / Y),
    ("clamp_max", (X, 0.25), {}, np.minimum(X, 0.25)),
    ("clamp_min", (X, 0.25), {}, np.maximum(X, 0.25)),
    ("clip", (X, -0.25, 0.5), {}, np.clip(X, -0.25, 0.5)),
    ("narrow", (CUBE, 1, 1, 2), {}, CUBE[:, 1:3]),
    ("narrow", (CUBE, -1, -3, 2), {}, CUBE[..., 1:3]),
    ("narrow", (CUBE, 0, 0, 0), {}, CUBE[:0]),
    ("movedim", (CUBE, 0, 2), {}, np.moveaxis(CUBE, 0, 2)),
    ("movedim", (CUBE, (0, -1), (1, 0)), {}, np.moveaxis(CUBE, (0, -1), (1, 0))),
    ("tile", (X, (2, 3)), {}, np.tile(X, (2, 3))),
    ("tile", (CUBE, (2,)), {}, np.tile(CUBE, 2)),
    ("tile", (X, (2, 1, 3)), {}, np.tile(X, (2, 1, 3))),
    ("unflatten", (CUBE, 2, (2, 2)), {}, CUBE.reshape(2, 3, 2, 2)),
    ("unflatten", (CUBE, -1, (4, -1)), {}, CUBE.reshape(2, 3, 4, 1)),
    ("unflatten", (X, 0, (1, 3)), {}, X.reshape(1, 3, 4)),
    ("diag", (X,), {}, np.diag(X)),
    ("diag", (X, 1), {}, np.diag(X, 1)),
    ("diag", (X, -2), {}, np.diag(X, -2)),
    ("diag", (X[0], -2), {}, np.diag(X[0], -2)),
    ("diag", (X[0], 1), {}, np.diag(X[0], 1)),
    ("broadcast_to", (X, (2, 3, 4)), {}, np.broadcast_to(X, (2, 3, 4))),
    ("ravel", (CUBE,), {}, CUBE.ravel()),
    ("index_select", (CUBE, 1, I), {}, CUBE[:, I]),
    ("index_select", (CUBE, -1, I), {}, CUBE[..., I]),
    ("select", (CUBE, 1, 2), {}, CUBE[:, 2]),
    ("select", (CUBE, -2, -3), {}, CUBE[:, 0]),
    ("masked_select", (X, Y > 0), {}, X[Y > 0]),
    ("masked_select", (X, Y[0] > 0), {}, X[:, Y[0] > 0].ravel()),
    ("index_put", (X, (I[:2], I[1:]), X[0, :2]), {}, put(X, (I[:2], I[1:]), X[0, :2])),
    ("index_put", (X, (I, I), X[0, :3]), {"accumulate": True}, put(X, (I, I), X[0, :3], True)),
    ("index_add", (X, 0, I, Y), {}, put(X, I, Y, True)),
    ("index_add", (X, 1, I, Y[:, :3]), {"alpha": -2.0},
     put(X, (slice(None), I), -2 * Y[:, :3], True)),
    ("index_copy", (X, -1, I[1:], Y[:, :2]), {}, put(X, (slice(None), I[1:]), Y[:, :2])),
    ("index_fill", (X, 1, I, 7.0), {}, put(X, (slice(None), I), 7.0)),
    ("index_fill", (X, 0, I - 3, 7.0), {}, put(X, I, 7.0)),
    ("scatter", (X, 1, I[None, 1:], Y), {}, put(X, ([[0, 0]], I[None, 1:]), Y[:1, :2])),
    ("scatter", (X, 0, I[None, :2], Y), {}, put(X, (I[None, :2], [[0, 1]]), Y[:1, :2])),
    ("scatter", (X, 1, I[None]), {"value": -3.0}, put(X, (0, I), -3.0)),
    ("scatter", (X, 1, I[None], Y), {"reduce": "add"}, put(X, (0, I), Y[0, :3], True)),
    ("scatter_add", (X, -1, I[None], Y), {}, put(X, (0, I), Y[0, :3], True)),
    ("mm", (X, Y.T), {}, X @ Y.T),
    ("mv", (X, Y[0]), {}, X @ Y[0]),
    ("addmm", (X[:, :3], X, Y.T), {"beta": -0.5, "alpha": 2.0}, -0.5 * X[:, :3] + 2 * X @ Y.T),
    ("addmm", (X[0, :3], X, Y.T), {}, X[0, :3] + X @ Y.T),
    ("baddbmm", (X[:, :3], CUBE, OTHER_CUBE), {"beta": -0.5, "alpha": 2.0},
     -0.5 * X[:, :3] + 2 * CUBE @ OTHER_CUBE),
    ("trace", (X,), {}, np.trace(X)),
    ("cumprod", (CUBE, 1), {}, np.cumprod(CUBE, 1)),
    ("cumprod", (CUBE, -1), {}, np.cumprod(CUBE, -1)),
    ("where", (X > 0, Y, Z), {}, np.where(X > 0, Y, Z)),
    ("log2", (abs(X),), {}, np.log2(abs(X))),
    ("log10", (abs(X),), {}, np.log10(abs(X))),
    ("neg", (X,), {}, -X),
    ("pow", (abs(X), 1.5), {}, abs(X) ** 1.5),
]  # fmt: skip
# Those whose result has no gradient.
STEPS: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("div", (4 * X, Y), {"rounding_mode": "trunc"}, np.trunc(4 * X / Y)),
    ("div", (4 * X, Y), {"rounding_mode": "floor"}, np.floor_divide(4 * X, Y)),
    ("div", (np.array([-7, 7, -6, 5]), 3), {"rounding_mode": "trunc"}, np.array([-2, 2, -2, 1])),
    ("div", (np.array([-7, 7, -6, 5]), -3), {"rounding_mode": "trunc"}, np.array([2, -2, 2, -1])),
    ("div", (np.array([-7, 7, -6, 5]), 3), {"rounding_mode": "floor"}, np.array([-3, 2, -2, 1])),
    ("floor_divide", (np.array([-7, 7]), 3), {}, np.array([-3, 2])),
    ("ceil", (3 * X,), {}, np.ceil(3 * X)),
    ("floor", (3 * X,), {}, np.floor(3 * X)),
    ("trunc", (3 * X,), {}, np.trunc(3 * X)),
    ("round", (3 * X,), {}, np.round(3 * X)),
    ("round", (100 * X,), {"decimals": -1}, np.round(100 * X, -1)),
    ("round", (X,), {"decimals": 1}, np.round(X, 1)),
    *((name, (np.round(X), np.round(Y)), {}, getattr(np, full)(np.round(X), np.round(Y)))
      for name, full in (("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"),
                         ("gt", "greater"), ("greater", "greater"), ("ge", "greater_equal"),
                         ("logical_and", "logical_and"), ("logical_or", "logical_or"))),
    ("logical_not", (np.round(X),), {}, np.round(X) == 0),
    ("isinf", (np.array([1.0, np.inf, -np.inf, np.nan]),), {},
     np.array([False, True, True, False])),
    ("isclose", (np.array([1.0, 2.0]), np.array([2.0, 1.0]), 0.5, 0.0), {},
     np.array([True, False])),
    ("isclose", (np.array([0.0, 0.5]), np.array([0.25, 0.0]), 0.0, 0.25), {},
     np.array([True, False])),
    ("isclose", (np.array([np.nan]), np.array([np.nan])), {"equal_nan": True}, np.array([True])),
    ("isclose", (np.array([np.nan]), np.array([np.nan])), {}, np.array([False])),
    ("nonzero", (np.round(X),), {}, np.argwhere(np.round(X))),
    ("argwhere", (np.round(X),), {}, np.argwhere(np.round(X))),
    ("cumprod", (np.array([[2, 3], [4, 5]]), 0), {}, np.array([[2, 3], [8, 15]])),
    ("cumprod", (np.array([[2, 3], [4, 5]]), 1), {"dtype": torch.float32},
     np.array([[2, 6], [4, 20]], np.float32)),
    ("unique", (I,), {}, np.array([0, 2])),
    ("unique", (np.array([[1, 2], [1, 2], [0, 3]]),), {"dim": 0}, np.array([[0, 3], [1, 2]])),
    ("unique", (np.array([[1, 1, 0], [2, 2, 3]]),), {"dim": 1}, np.array([[0, 1], [3, 2]])),
]  # fmt: skip


def tensors(values: Any) -> Any:
    if isinstance(values, tuple) and any(isinstance(x, np.ndarray) for x in values):
        return tuple(map(tensors, values))
    return torch.tensor(values) if isinstance(values, np.ndarray) else values


def calls(name: str, args: Any, named: Any) -> list[Any]:
    """What the function gives, and the method if there is one."""
    given = [tensors(x) for x in args]
    found = [getattr(torch, name)(*given, **named)] if hasattr(torch, name) else []
    if hasattr(torch.Tensor, name) and name != "where":
        found.append(getattr(given[0], name)(*given[1:], **named))
    fits = (found[-1].shape, found[-1].dtype) == (given[0].shape, given[0].dtype)
    if hasattr(torch.Tensor, f"{name}_") and fits:
        x = given[0].clone()
        assert getattr(x, f"{name}_")(*given[1:], **named) is x
        found.append(x)
    return found


@pytest.mark.parametrize("number", range(len(CASES) + len(STEPS)))
def test_a_function_gives_what_numpy_gives(number: int) -> None:
    name, args, named, right = [*CASES, *STEPS][number]
    found = calls(name, args, named)
    assert found
    for x in found:
        assert x.shape == right.shape
        assert x.dtype == right.dtype
        np.testing.assert_allclose(x.numpy(), right, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_function_has_the_gradient_of_differences(number: int) -> None:
    name, args, named, right = CASES[number]
    cotangent = signed(rng_of(9), *right.shape).astype(np.float64)
    floats = [i for i, x in enumerate(args) if isinstance(x, np.ndarray) and x.dtype == np.float64]

    def value(given: list[Any]) -> Any:
        return (getattr(torch, name)(*given, **named) * torch.tensor(cotangent)).sum()

    given = [tensors(x) for x in args]
    for i in floats:
        given[i].requires_grad_(True)
    found = grad(value(given), [given[i] for i in floats])
    for i, gradient in zip(floats, found, strict=True):
        direction = signed(rng_of(20 + i), *args[i].shape).astype(np.float64)
        step, ends = 1e-6, []
        for sign in (1, -1):
            moved = [tensors(x) for x in args]
            moved[i] = torch.tensor(args[i] + sign * step * direction)
            ends.append(value(moved).item())
        expected = (ends[0] - ends[1]) / (2 * step)
        assert (gradient.numpy() * direction).sum() == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_functions_of_several_results_or_of_no_tensor() -> None:
    x = np.array([3, 1, 3, 2, 1])
    found = torch.unique(torch.tensor(x), return_inverse=True, return_counts=True)
    for one, other in zip(found, np.unique(x, False, True, True), strict=True):
        assert one.tolist() == other.tolist()
    assert [len(torch.unique(torch.tensor(x), return_counts=True)), len(found)] == [2, 3]
    a, b, c = (torch.tensor(np.arange(n) + 10 * n) for n in (2, 3, 4))
    for indexing in ("ij", "xy"):
        for parts in ([a], [a, b], [a, b, c]):
            right = np.meshgrid(*[p.numpy() for p in parts], indexing=indexing)
            for given in (parts, [parts]):
                grids = torch.meshgrid(*given, indexing=indexing)
                assert [g.tolist() for g in grids] == [g.tolist() for g in right]
    assert [g.shape for g in torch.meshgrid(a, b)] == [(2, 3), (2, 3)]
    y = torch.tensor(np.round(X))
    places = [place.tolist() for place in np.nonzero(np.round(X))]
    assert [p.tolist() for p in torch.where(y)] == places
    assert [p.tolist() for p in y.nonzero(as_tuple=True)] == places
    assert torch.isin(a, torch.tensor([21, 5])).tolist() == [False, True]
    assert torch.isin(a, torch.tensor([21, 5]), invert=True).tolist() == [True, False]
    for kind, is_float in ((torch.float16, True), (torch.float64, True), (torch.int64, False)):
        assert torch.is_floating_point(torch.ones(2, dtype=kind)) is is_float
    assert (torch.is_tensor(a), torch.is_tensor(a.numpy())) == (True, False)


@pytest.mark.parametrize("wrong", [-0.001, 1.001, float("nan")])
def test_what_is_no_probability_is_refused_at_every_place(wrong: float) -> None:
    for place in range(3):
        p = torch.full((3,), 0.5)
        assert {*torch.bernoulli(p).tolist()} <= {0.0, 1.0}
        p[place] = wrong
        for call in (lambda p=p: torch.bernoulli(p), lambda p=p: torch.zeros(3).bernoulli(p)):
            with pytest.raises(ValueError, match=r"^bernoulli takes numbers from 0 to 1"):
                call()
    assert torch.bernoulli(torch.tensor([0.0, 1.0, 1.0, 0.0])).tolist() == [0, 1, 1, 0]
    assert torch.ones(2, 3, dtype=torch.float64).bernoulli(1.0).dtype == torch.float64
