"""Each place that an index names is read, written and given its gradient: every dtype of the index,
every order of its parts, none of them, and very many."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from common import assert_same, leaf, pull, rng_of, signed

import tinyattn as ta
from tinyattn.engine.autograd import wrap

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def written(shape: tuple[int, ...], index: Any, value: np.ndarray) -> Any:
    """By a loop over the places: what stands there, and the gradients of both for a cotangent."""
    out, grad = signed(rng_of(1), *shape), signed(rng_of(2), *shape)
    of_x, of_value = grad.copy(), np.zeros(value.shape)
    places = np.arange(out.size).reshape(shape)[index]
    numbers = np.broadcast_to(np.arange(value.size).reshape(value.shape), places.shape)
    last = dict(zip(places.ravel().tolist(), numbers.ravel().tolist(), strict=True))
    for place, number in last.items():
        out.flat[place] = value.flat[number]
        of_x.flat[place] = 0
        of_value.flat[number] += grad.flat[place]
    return out, grad, of_x, of_value


REPEATED: dict[str, Any] = {
    "rows": lambda dtype: np.array([3, 1, 3, 0, 3], dtype),
    "rows of rows": lambda dtype: np.array([[3, 1], [3, 3]], dtype),
    "columns": lambda dtype: (slice(None), np.array([2, 2, 0], dtype)),
    "pairs": lambda dtype: (np.array([1, 2, 1, 1], dtype), np.array([0, 1, 0, 2], dtype)),
    "a row and columns": lambda dtype: (2, np.array([1, 0, 1], dtype)),
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", REPEATED)
def test_of_values_for_one_place_the_last_has_the_gradient(name: str, dtype: str) -> None:
    index = REPEATED[name](dtype)
    start = signed(rng_of(1), 4, 3)
    value = signed(rng_of(0), *start[index].shape)
    out, grad, of_x, of_value = written((4, 3), index, value)
    x, given = leaf(start), leaf(value)
    copy = x * 1
    copy[index] = given
    np.testing.assert_array_equal(copy.detach().numpy(), out)
    pull(copy, grad)
    np.testing.assert_array_equal(x.grad.numpy(), of_x)
    np.testing.assert_array_equal(given.grad.numpy(), of_value)


@pytest.mark.parametrize("number", [127, 128, 255, 256, 32_767, 32_769, 65_537])
def test_as_many_values_as_there_are_get_their_gradient(number: int) -> None:
    """More than a number of one or two bytes counts; two are written to one place."""
    ids = np.arange(number)
    ids[-2] = ids[-1]
    grad = signed(rng_of(3), number)
    given, out = leaf(np.zeros(number)), leaf(np.ones(number)) * 1
    out[ids] = given
    pull(out, grad)
    right = grad.copy()
    right[-2] = 0
    np.testing.assert_array_equal(given.grad.numpy(), right)


# Each part of an index into three dimensions. ... stands for what is left, which may be nothing.
PARTS: dict[str, Any] = {
    "number": 1,
    "slice": slice(None),
    "rows": np.array([1, 0, 1]),
    "new": None,
    "dots": ...,
}
ORDERS = [
    parts
    for length in (1, 2, 3, 4)
    for parts in itertools.product(PARTS, repeat=length)
    if parts.count("dots") <= 1
    and parts.count("new") <= 1
    and len(parts) - parts.count("dots") - parts.count("new") <= 3
]


def as_pytorch_reads(array: np.ndarray, parts: tuple[str, ...]) -> np.ndarray:
    """Numbers, slices and new dimensions first; the rows then stand where the first of them was, or
    in front if others lie between them."""
    parts = parts if "dots" in parts else (*parts, "dots")
    dims = sum(part in ("number", "slice", "rows") for part in parts)
    full: list[str] = []
    for part in parts:
        full += ["slice"] * (array.ndim - dims) if part == "dots" else [part]
    first = tuple(slice(None) if part == "rows" else PARTS[part] for part in full)
    rest = [part for part in full if part != "number"]
    along = [i for i, part in enumerate(rest) if part == "rows"]
    out = array[first]
    if not along:
        return out
    taken = np.stack([out[tuple(i if d in along else slice(None) for d in range(out.ndim))]
                      for i in PARTS["rows"]])  # fmt: skip
    are_neighbours = along == [*range(along[0], along[-1] + 1)]
    return np.moveaxis(taken, 0, along[0] if are_neighbours else 0)


@pytest.mark.parametrize("first", PARTS)
def test_parts_of_an_index_in_every_order_read_and_write_as_in_pytorch(first: str) -> None:
    values, numbers = signed(rng_of(0), 2, 3, 4), np.arange(24).reshape(2, 3, 4)
    for parts in ORDERS:
        if parts[0] != first:
            continue
        index = tuple(PARTS[part] for part in parts)
        places = as_pytorch_reads(numbers, parts)
        x = leaf(values)
        found = x[index]
        assert found.shape == places.shape, parts
        np.testing.assert_array_equal(found.detach().numpy(), values.flat[places], str(parts))
        grad, right = signed(rng_of(1), *places.shape), np.zeros(24)
        pull(found, grad)
        np.add.at(right, places, grad)
        np.testing.assert_allclose(x.grad.numpy().ravel(), right, rtol=1e-12, err_msg=str(parts))
        right = values.copy()
        for place, number in zip(np.ravel(places).tolist(), np.ravel(grad).tolist(), strict=True):
            right.flat[place] = number
        plain, recorded, given = ta.tensor(values), leaf(values) * 1, leaf(grad)
        plain[index] = recorded[index] = given.detach()
        np.testing.assert_array_equal(plain.numpy(), right, str(parts))
        np.testing.assert_array_equal(recorded.detach().numpy(), right, str(parts))


@pytest.mark.parametrize("first", PARTS)
def test_pytorch_reads_parts_in_every_order_so(first: str, torch: Any) -> None:
    numbers = np.arange(24).reshape(2, 3, 4)
    for parts in ORDERS:
        if parts[0] == first:
            index = tuple(
                torch.tensor(PARTS[part]) if part == "rows" else PARTS[part] for part in parts
            )
            right = torch.tensor(numbers)[index].numpy()
            np.testing.assert_array_equal(as_pytorch_reads(numbers, parts), right, str(parts))


NONE = np.zeros(0, np.int64)
EMPTY: dict[str, Any] = {
    "no rows": NONE,
    "a list of no rows": [],
    "no rows of rows": np.zeros((2, 0), np.int64),
    "no rows of unsigned numbers": NONE.astype(np.uint8),
    "no rows in a tuple": (NONE,),
    "no columns": (slice(None), NONE),
    "no pairs": (NONE, NONE),
    "none of the last": (..., NONE),
    "none beside a number": (0, NONE),
    "an empty slice": slice(0, 0),
    "a mask of nothing": np.zeros(4, bool),
}
OF_TWO = "no columns", "no pairs", "none beside a number"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(4,), (4, 4), (4, 4, 2), (4, 4, 0)])
@pytest.mark.parametrize("name", EMPTY)
def test_nothing_that_is_taken_has_the_gradient_zero(
    name: str, shape: tuple[int, ...], dtype: str
) -> None:
    index = EMPTY[name] if len(shape) > 1 or name not in OF_TWO else NONE
    values = signed(rng_of(0), *shape).astype(dtype)
    x = leaf(values)
    found = x[index]
    assert (found.shape, found.dtype) == (values[index].shape, dtype)
    (grad,) = ta.grad(found, x, ta.zeros_like(found), create_graph=True)
    assert_same(grad.detach().numpy(), np.zeros_like(values))
    given, out = leaf(np.zeros(found.shape, dtype)), x * 1
    out[index] = given
    of_x, of_value = ta.grad(out, (x, given), ta.tensor(values))
    assert_same(of_x.numpy(), values)
    assert_same(of_value.numpy(), np.zeros(found.shape, dtype))


@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_no_places_along_a_dimension_have_the_gradient_zero(shape: tuple[int, ...]) -> None:
    x, index = leaf(signed(rng_of(0), *shape)), wrap(np.zeros((0, *shape[1:]), np.int64))
    for found in (x.gather(0, index), ta.functional.embedding(index, x) if x.ndim > 1 else x[:0]):
        (grad,) = ta.grad(found, x, ta.zeros_like(found))
        assert grad.tolist() == np.zeros(shape).tolist()


LINES: dict[str, Any] = {  # the shape of x, that of the index, and the dimension
    "a row": ((5,), (7,), 0),
    "fewer rows": ((4, 3), (6, 2), 0),
    "columns": ((4, 3), (4, 5), 1),
    "columns from the end": ((4, 3), (2, 1), -1),
    "the middle": ((2, 5, 3), (2, 4, 2), 1),
    "the middle from the end": ((2, 5, 3), (1, 9, 3), -2),
    "the first of four": ((3, 2, 2, 2), (5, 2, 1, 2), 0),
    "the last of four": ((3, 2, 2, 4), (3, 1, 2, 8), 3),
    "one of each line": ((4, 6), (4, 1), 1),
    "a dimension of one": ((4, 1), (4, 3), 1),
    "two of one row": ((1, 3), (2, 3), 0),
    "two of each line": ((4, 2), (4, 2), 1),
}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", LINES)
def test_what_is_gathered_and_where_its_gradient_goes(name: str, dtype: str, kind: str) -> None:
    """Along every dimension, also by an index that is shorter in the others."""
    shape, sizes, dim = LINES[name]
    values = signed(rng_of(0), *shape).astype(dtype)
    index = rng_of(1).randint(0, shape[dim], sizes).astype(kind)
    grad = signed(rng_of(2), *sizes).astype(dtype)
    right, slope = np.zeros(sizes, dtype), np.zeros(shape)
    for place in np.ndindex(*sizes):
        source = list(place)
        source[dim] = int(index[place])
        right[place] = values[tuple(source)]
        slope[tuple(source)] += grad[place]
    x = leaf(values)
    out = x.gather(dim, ta.tensor(index))
    assert_same(out.detach().numpy(), right)
    (found,) = ta.grad(out, x, ta.tensor(grad), create_graph=True)
    assert found.dtype == dtype
    tolerance = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(found.detach().numpy(), slope, rtol=tolerance, atol=tolerance)
    assert_same(ta.grad(out, x, ta.tensor(grad))[0].numpy(), found.detach().numpy())


@pytest.mark.parametrize("offset", [-5, -4, -2, -1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 4, 3), (3, 1, 2, 3)])
def test_diagonals_and_triangles_of_every_offset(shape: tuple[int, ...], offset: int) -> None:
    values = signed(rng_of(0), *shape)
    for dim1, dim2 in itertools.permutations(range(-len(shape), len(shape)), 2):
        if (dim1 - dim2) % len(shape):
            x = leaf(values)
            out = x.diagonal(offset, dim1, dim2)
            np.testing.assert_array_equal(
                out.detach().numpy(), values.diagonal(offset, dim1, dim2), f"{dim1} {dim2}"
            )
            grad = signed(rng_of(1), *out.shape)
            pull(out, grad)
            right = np.zeros(shape)
            places = np.arange(values.size).reshape(shape).diagonal(offset, dim1, dim2)
            right.flat[places] = grad
            np.testing.assert_array_equal(x.grad.numpy(), right)
    for ours, formula in ((ta.tril, np.tril), (ta.triu, np.triu)):
        x, grad = leaf(values), signed(rng_of(2), *shape)
        out = ours(x, offset)
        np.testing.assert_array_equal(out.detach().numpy(), formula(values, offset))
        pull(out, grad)
        np.testing.assert_array_equal(x.grad.numpy(), formula(grad, offset))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7])
def test_pieces_of_every_size_and_number(size: int, dim: int) -> None:
    """Along a dimension of six; together they are the whole, and a gradient goes back to each."""
    shape = [2, 3, 4]
    shape[dim] = 6
    values, grad = signed(rng_of(0), *shape), signed(rng_of(1), *shape)
    ends = np.arange(size, 6, size)
    of_chunks = np.arange(-(-6 // size), 6, -(-6 // size))
    sizes = [size - 1, 0, 7 - size]
    for call, places in (
        (lambda x: x.split(size, dim), ends), (lambda x: x.chunk(size, dim), of_chunks),
        (lambda x: x.split(sizes, dim), np.cumsum(sizes)[:-1]),
    ):  # fmt: skip
        x = leaf(values)
        found, right = call(x), np.split(values, places, dim)
        assert [piece.shape for piece in found] == [piece.shape for piece in right]
        for piece, numbers in zip(found, right, strict=True):
            np.testing.assert_array_equal(piece.detach().numpy(), numbers)
        pull(ta.cat(found, dim), grad)
        np.testing.assert_array_equal(x.grad.numpy(), grad)
    x = leaf(values)
    rows = x.unbind(dim)
    assert len(rows) == 6
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(row.detach().numpy(), values.take(i, dim))
    pull(rows[size % 6], grad.take(0, dim))
    right = np.zeros(shape)
    np.moveaxis(right, dim, 0)[size % 6] = grad.take(0, dim)
    np.testing.assert_array_equal(x.grad.numpy(), right)
    x = leaf(values)
    out = x.flip(dim, (dim + 1) % 3 - 3)
    np.testing.assert_array_equal(out.detach().numpy(), np.flip(values, (dim, (dim + 1) % 3 - 3)))
    pull(out, grad)
    np.testing.assert_array_equal(x.grad.numpy(), np.flip(grad, (dim, (dim + 1) % 3 - 3)))


WRITES: dict[str, tuple[Any, list[tuple[int, ...]]]] = {  # into (4, 3), values of these shapes
    "a row": (1, [(), (1,), (3,), (1, 3), (1, 1), (1, 1, 3)]),
    "rows": (slice(1, 3), [(), (3,), (1, 3), (2, 1), (2, 3), (1, 2, 3), (1, 1, 2, 1)]),
    "a column": ((slice(None), 2), [(), (4,), (1,), (1, 4)]),
    "a place": ((2, 1), [(), (1,), (1, 1)]),
    "rows by number": (np.array([2, 0, 2]), [(), (3,), (1, 3), (3, 1), (3, 3), (1, 3, 3)]),
    "a mask": (np.arange(12).reshape(4, 3) % 5 == 0, [(), (1,), (3,), (1, 3)]),
    "all": (..., [(), (3,), (4, 1), (4, 3), (1, 4, 3)]),
}


@pytest.mark.parametrize("name", WRITES)
def test_the_gradient_of_a_written_value_has_the_shape_of_the_value(name: str) -> None:
    """Also of one with dimensions of size 1 in front, which the places do not have."""
    index, shapes = WRITES[name]
    for shape in shapes:
        value = signed(rng_of(0), *shape)
        ones = value.reshape(shape[max(0, len(shape) - signed(rng_of(1), 4, 3)[index].ndim) :])
        out, grad, of_x, of_value = written((4, 3), index, ones)
        x, given = leaf(signed(rng_of(1), 4, 3)), leaf(value)
        copy = x * 1
        copy[index] = given
        np.testing.assert_array_equal(copy.detach().numpy(), out)
        pull(copy, grad)
        np.testing.assert_array_equal(x.grad.numpy(), of_x)
        assert given.grad.shape == shape
        np.testing.assert_allclose(given.grad.numpy(), of_value.reshape(shape), rtol=1e-12)


@pytest.mark.parametrize(
    "shape", [(5,), (1,), (0,), (7,), (2, 2), (1, 5), (3, 2, 2), (0, 2)], ids=str
)
@pytest.mark.parametrize("size", [(4,), (3, 4), (3, 4, 5)], ids=str)
def test_numbers_along_each_dimension_have_their_gradient(
    size: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """Numbers of one dimension and of several, fewer and more than there are places."""
    for dim in range(len(size)):
        numbers = rng_of(4).randint(-size[dim], size[dim], shape)
        index = (*[slice(None)] * dim, numbers)
        values = signed(rng_of(5), *size)
        x = leaf(values)
        out = x[index]
        np.testing.assert_array_equal(out.detach().numpy(), values[index])
        grad, right = signed(rng_of(6), *out.shape), np.zeros(size)
        np.add.at(right, index, grad)
        pull(out, grad)
        np.testing.assert_allclose(x.grad.numpy(), right, rtol=1e-14)
