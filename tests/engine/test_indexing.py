"""Random indices read, write and give the gradients that PyTorch gives; wrong ones are refused.

`python tests/engine/test_indexing.py 20000` tries more of them.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tinyattn as ta  # noqa: E402
from tinyattn import ops, torch_names  # noqa: E402
from tinyattn.errors import ShapeError  # noqa: E402
from tinyattn.kernels import sums  # noqa: E402
from tinyattn.torch_names.methods import take_methods  # noqa: E402

take_methods()  # which the import gave

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


SEQUENCES: dict[str, Any] = {
    "range": lambda: range(0, 4, 2),
    "tuple": lambda: (0, 2),
    "deque": lambda: deque([0, 2]),
    "array": lambda: array("l", [0, 2]),
}


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize(
    "places",
    [
        lambda i, t: (i, t([3, 1])), lambda i, t: (t([3, 1]), i), lambda i, t: (i, [3, 1], 1),
        lambda i, t: (i, slice(None), t([1, 0])), lambda i, t: (i, t([[3], [1]])),
        lambda i, t: (..., t([3, 1]), i), lambda i, t: (i, slice(1, 3)), lambda i, t: (i, i),
        lambda i, t: (i, 1), lambda i, t: (None, i, t(2)),
    ],
)  # fmt: skip
def test_a_sequence_beside_other_parts_is_a_list_of_numbers(sequence: str, places: Any) -> None:
    """As `log_probs[range(n), targets]`, which many programs write."""
    values = np.random.default_rng(0).standard_normal((4, 5, 3))
    x = ta.tensor(values, requires_grad=True)
    y = torch.tensor(values, requires_grad=True)
    index = places(SEQUENCES[sequence](), ta.tensor)
    other = places([0, 2], torch.tensor)
    found, right = x[index], y[other]
    np.testing.assert_array_equal(found.numpy(), right.detach().numpy())
    cotangent = np.random.default_rng(1).standard_normal(found.shape)
    found.backward(ta.tensor(cotangent))
    right.backward(torch.tensor(cotangent))
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-12)
    for recorded in (False, True):
        mine, theirs = ta.tensor(values), torch.tensor(values)
        mine[index] = ta.tensor(cotangent, requires_grad=recorded)
        theirs[other] = torch.tensor(cotangent)
        np.testing.assert_array_equal(mine.detach().numpy(), theirs.numpy())


def test_an_empty_sequence_takes_nothing() -> None:
    x = ta.ones(4, 5)
    assert x[range(0)].shape == (0, 5)
    assert x[range(0), ta.tensor([], dtype=ta.int64)].shape == (0,)


def random_index(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """An index for tinyattn, and the same for PyTorch, which knows neither small dtypes nor steps
    below 0."""
    rows = [(), (3,), (1,), (2, 3), (2, 1)][rng.integers(5)]  # of all arrays, so they broadcast
    rest, ours, theirs = list(shape), [], []
    has_dots = False
    while rest and (has_dots or rng.random() < 0.85):  # all dimensions behind ... are indexed
        kind = rng.choice(["int", "slice", "array", "list", "mask", "none", "dots"])
        n = rest[0]
        if kind == "none":
            part = other = None
        elif kind == "dots" and not has_dots:
            part = other = ...
            has_dots = True
            del rest[: rng.integers(len(rest) + 1)]
        elif kind == "mask" and rows == ():
            other = torch.tensor(np.arange(n) == rng.integers(n))  # one row: it joins the others
            part = ta.tensor(other.numpy()) if rng.random() < 0.5 else other.tolist()
            rest.pop(0)
        elif kind in ("array", "list"):
            numbers = rng.integers(-n, n, rows)
            other = torch.tensor(numbers)
            if kind == "array" or not rows:
                kinds = INTEGERS[:4] if numbers.min() < 0 else INTEGERS
                numbers = numbers.astype(rng.choice(kinds))
                part = ta.tensor(numbers) if rng.random() < 0.5 else numbers
            else:
                part = numbers.tolist()
            rest.pop(0)
        elif kind == "slice":
            first = int(rng.integers(-n, n))
            part = other = slice(first, int(rng.integers(-n, n + 1)), int(rng.integers(1, 3)))
            rest.pop(0)
        else:
            part = other = int(rng.integers(-n, n))
            rest.pop(0)
        ours.append(part)
        theirs.append(other)
    if len(ours) == 1 and rng.random() < 0.5:
        return ours[0], theirs[0]
    return tuple(ours), tuple(theirs)


def try_index(rng: np.random.Generator) -> None:
    shape = tuple(rng.integers(1, 5, rng.integers(1, 5)).tolist())
    start = rng.standard_normal(shape)
    ours, theirs = random_index(rng, shape)
    about = f"shape {shape}, index {ours!r}"
    x = ta.tensor(start, requires_grad=True)
    y = torch.tensor(start, requires_grad=True)
    got, expected = x[ours], y[theirs]
    assert got.shape == tuple(expected.shape), about
    assert np.array_equal(got.detach().numpy(), expected.detach().numpy()), about
    cotangent = rng.standard_normal(got.shape)
    (got * ta.tensor(cotangent)).sum().backward()
    (expected * torch.tensor(cotangent)).sum().backward()
    assert np.allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-12), about

    values = rng.standard_normal(got.shape[-1:])
    value = ta.tensor(values, requires_grad=True)
    right = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    plain, recorded, copied = ta.tensor(start), x * 1, y * 1.0
    plain[ours] = value.detach()
    recorded[ours] = value
    copied[theirs] = right
    assert np.array_equal(plain.numpy(), copied.detach().numpy()), about
    assert np.array_equal(recorded.detach().numpy(), copied.detach().numpy()), about


@pytest.mark.parametrize("large", [sums.LARGE, 1])
@pytest.mark.parametrize("seed", range(4))
def test_random_indices_are_pytorchs(
    seed: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "LARGE", large)  # with 1, all masks are read by numbers of rows
    rng = np.random.default_rng(seed)
    for _ in range(150):
        try_index(rng)


@pytest.mark.parametrize("shape", [(200, 100, 2), (150, 130), (20_000,), (20_000, 0), (0, 5)])
def test_a_large_mask_reads_and_writes_as_a_small_one(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(shape)
    mask = rng.random(shape[:2] if len(shape) == 3 else shape[:1]) < 0.3
    x = ta.tensor(values, requires_grad=True)
    found = x[ta.tensor(mask)]
    np.testing.assert_array_equal(found.detach().numpy(), values[mask])
    cotangent = rng.standard_normal(found.shape)
    found.backward(ta.tensor(cotangent))
    expected = np.zeros(shape)
    expected[mask] = cotangent
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    plain, turned = ta.tensor(values), ta.tensor(np.ascontiguousarray(values.T))
    view = turned.permute(*reversed(range(turned.ndim)))  # in another order, in which no copy helps
    for written in (plain, view):
        written[ta.tensor(mask)] = ta.tensor(cotangent)
    expected[~mask] = values[~mask]
    np.testing.assert_array_equal(plain.numpy(), expected)
    np.testing.assert_array_equal(turned.numpy(), expected.T)


@pytest.mark.parametrize(
    ("shape", "mask"),
    [
        ((200, 100), (100, 200)),  # as many elements in another shape
        ((200, 100, 2), (100, 200)),
        ((200, 100, 2), (2, 200, 50)),
        ((150, 130), (150 * 130,)),
        ((150 * 130,), (150, 130)),
        ((20_000, 2), (20_001,)),  # one more, one less
        ((20_000, 2), (19_999,)),
        ((20_000, 2), (1,)),  # it does not broadcast
        ((150, 130), (150, 1)),
        ((2, 3), (3, 2)),
        ((2, 3), (6,)),
        ((2, 3), (1, 3)),
    ],
)
def test_a_mask_of_another_shape_is_refused(shape: tuple[int, ...], mask: tuple[int, ...]) -> None:
    for value in (False, True):
        x, index = ta.zeros(*shape), ta.full(mask, value)
        for where in (index, index.numpy()):
            with pytest.raises(IndexError, match=r"did not match|too many indices"):
                x[where]
            with pytest.raises(IndexError, match=r"did not match|too many indices"):
                x[where] = 1.0
        assert not x.any()


def test_numbers_of_a_mixed_index_are_taken_first() -> None:
    x, rows = ta.arange(24).reshape(2, 3, 4), ta.tensor([0, 2, 3])
    assert x[0, :, rows].tolist() == x[0][:, rows].tolist()
    y, z = ta.zeros(2, 3, 4), ta.zeros(3, 4)
    y[0, :, rows] = z[:, rows] = ta.arange(9.0).reshape(3, 3)
    assert y[0].tolist() == z.tolist()


@pytest.mark.parametrize("index", [[9], [-5], [4]])
@pytest.mark.parametrize("target", [(4,), (4, 3)])
def test_putitem_refuses_an_index_out_of_range(index: Any, target: tuple[int, ...]) -> None:
    with pytest.raises(IndexError, match="out of"):
        ops.putitem(ta.ones(1, *target[1:]), index=np.array(index), target=target)


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((1, 3), np.arange(4000) % 5),
        ((4, 1), np.arange(4)),
        ((3,), np.arange(4)),
        ((5, 2), (slice(None), np.array([0, 1, 2]))),
        ((3,), (1, slice(0, 2))),
        ((2,), np.array([[True, True, True]] * 5)),
    ],
)
def test_putitem_refuses_values_of_another_shape(shape: tuple[int, ...], index: Any) -> None:
    with pytest.raises(ShapeError, match="shape"):
        ops.putitem(ta.ones(*shape), index=index, target=(5, 3))


def test_scatter_rows_refuses_what_its_kernel_would_not_see() -> None:
    with pytest.raises(ShapeError, match="4000"):
        ops.scatter_rows(ta.ones(1, 3), np.arange(4000) % 5, 5, None)
    for wrong in ([5], [-1]):
        with pytest.raises(IndexError, match="out of range"):
            ops.scatter_rows(ta.ones(1, 3), np.array(wrong), 5, None)


def test_an_index_along_one_dimension_is_a_vector() -> None:
    x, i, one = ta.zeros(4), ta.tensor([[1, 2]]), ta.ones(2)
    for name, args in {
        "index_select": (), "index_add": (one,), "index_copy": (one,), "index_fill": (1.0,)
    }.items():  # fmt: skip
        for shaped in (i, i.mT):
            with pytest.raises(ShapeError, match=r"\(N,\), got \("):
                getattr(torch_names, name)(x, 0, shaped, *args)


@pytest.mark.parametrize("number", [-1, 4])
@pytest.mark.parametrize("dtype", INTEGERS[:4])
def test_numbers_that_pytorch_refuses(number: int, dtype: str) -> None:
    x, i, one = ta.zeros(4), ta.tensor(np.array([number], dtype)), ta.ones(1)
    for name, args in {
        "scatter": (one,), "scatter_add": (one,), "index_add": (one,), "index_copy": (one,),
        "index_select": (), "gather": (),
    }.items():  # fmt: skip
        with pytest.raises(IndexError, match=f"{number} is out of range"):
            getattr(torch_names, name)(x, 0, i, *args)
    assert x.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("number", [-1, 4])
def test_one_number_out_of_range_among_many(number: int) -> None:
    ids = ta.tensor([*[3] * 20_000, number])
    for take in (
        lambda: ta.zeros(4).gather(0, ids),
        lambda: ta.functional.embedding(ids, ta.zeros(4, 1)),
        lambda: ta.functional.cross_entropy(ta.zeros(20_001, 4), ids),
    ):
        with pytest.raises(IndexError, match=f"{number} is"):
            take()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_dtype_of_an_index_changes_nothing(dtype: str) -> None:
    x = ta.tensor(np.arange(200 * 90.0).reshape(200, 90), requires_grad=True)
    small = ta.tensor(np.full((3, 80), 7, dtype))
    rows = ta.tensor(np.array([100, 3, 100], dtype))
    for take in (
        lambda x, small, rows: x.gather(0, small),
        lambda x, small, rows: x[rows],
        lambda x, small, rows: x[:, rows[1:2]],
        lambda x, small, rows: ta.functional.embedding(rows, x),
        lambda x, small, rows: torch_names.index_add(x, 0, rows, ta.ones(3, 90, dtype=x.dtype)),
        lambda x, small, rows: ta.functional.cross_entropy(x[:3] / 90, rows[1:2].expand(3)),
        lambda x, small, rows: ta.functional.one_hot(rows, 128),
    ):
        (got, grad), (expected, right) = [
            result_and_grad(take, x, small.to(kind), rows.to(kind)) for kind in (dtype, "int64")
        ]
        assert np.array_equal(got, expected)
        assert np.array_equal(grad, right)


def result_and_grad(take: Any, x: Any, small: Any, rows: Any) -> tuple[Any, Any]:
    x.grad = None
    out = take(x, small, rows)
    if out.requires_grad:
        weights = np.random.default_rng(0).standard_normal(out.shape)
        (out * ta.tensor(weights, dtype=out.dtype)).sum().backward()
    return out.detach().numpy(), None if x.grad is None else x.grad.numpy()


def test_accumulated_values_broadcast_to_the_index() -> None:
    row = ta.tensor([1.0, 2.0, 3.0])
    got = torch_names.index_put(ta.zeros(4, 3), (ta.tensor([1, 1]),), row, accumulate=True)
    assert got.tolist() == [[0, 0, 0], [2, 4, 6], [0, 0, 0], [0, 0, 0]]
    with pytest.raises(ShapeError):
        torch_names.index_put(ta.zeros(4, 3), (ta.tensor([1]),), row[:2], accumulate=True)


@pytest.mark.parametrize("name", ["index_add", "index_copy"])
def test_a_source_of_another_shape_is_refused(name: str) -> None:
    with pytest.raises(ShapeError, match="source of shape"):
        getattr(torch_names, name)(ta.zeros(4, 3), 0, ta.tensor([0, 1]), ta.ones(1, 3))


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    for _ in range(int(sys.argv[1])):
        try_index(generator)
