"""PyTorch's names that make no gradient, or that the table of operations cannot call."""

from __future__ import annotations

import itertools
import math
import re
from inspect import signature
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F

OF_INTEGERS = [
    lambda t, x, y: x // y,
    lambda t, x, y: x % y,
    lambda t, x, y: x // 2,
    lambda t, x, y: 7 % y,
    lambda t, x, y: x // 0.7,
    lambda t, x, y: t.cumsum(x, 0),
    lambda t, x, y: t.prod(x),
    lambda t, x, y: t.prod(x, 1),
    lambda t, x, y: x.sum(dtype=t.float32),
    lambda t, x, y: x.sum(1, dtype=t.int32),
    lambda t, x, y: x.softmax(1, dtype=t.float64),
    lambda t, x, y: x.log_softmax(0, dtype=t.float64),
    lambda t, x, y: t.logsumexp(x, 0),
    lambda t, x, y: t.sort(x, 0)[0],
    lambda t, x, y: t.square(x),
    lambda t, x, y: t.reciprocal(x),
    lambda t, x, y: t.expm1(x),
    lambda t, x, y: t.sign(x),
    lambda t, x, y: t.clamp(x, y, y + 1),
    lambda t, x, y: t.clamp(x, y, y + 0.5),
    lambda t, x, y: x.repeat(2, 1),
    lambda t, x, y: t.tril(x),
    lambda t, x, y: x.type_as(t.zeros(1)),
]


FUNCTIONS = {
    name
    for name in dir(ta)
    if callable(getattr(ta.Tensor, name, None)) and name not in ("bool", "numel")
}


MORE = {"pow": (0,), "remainder": (1,), "matmul": (np.ones(2),), "gather": (0, np.zeros(1, int))}
MORE |= {"cumsum": (0,), "transpose": (0, 0), "swapaxes": (0, 0), "masked_fill": (True, 0)}
OF_TWO = """allclose bmm chunk dot equal multinomial outer repeat_interleave roll split topk
    unsqueeze"""
MORE |= dict.fromkeys(OF_TWO.split(), (1,))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(dim=1, axis=0),
        lambda x: x.sum(1, axis=0),
        lambda x: x.std(dim=1, axis=0),
        lambda x: x.sum(dim=1, keepdim=True, keepdims=False),
        lambda x: x.max(1, axis=0),
        lambda x: x.min(axis=1, keepdim=True, keepdims=False),
        lambda x: ta.pow(x, y=2.0, other=3.0),
        lambda x: ta.maximum(x, y=x, other=x),
        lambda x: ta.softmax(x, input=x, dim=0),
    ],
)
def test_an_argument_has_one_of_its_names(call: Any) -> None:
    with pytest.raises(TypeError, match=r"of one argument|multiple values"):
        call(ta.ones(2, 3))


WITH_OTHER_NAMES = {
    name: function
    for name in sorted(FUNCTIONS)
    if (function := getattr(ta, name)) and "numpy_names" in signature(function).parameters
}


@pytest.mark.parametrize("name", WITH_OTHER_NAMES)
@pytest.mark.parametrize("option", ["no_such_option", "numpy_names"])
def test_only_the_other_names_are_options(name: str, option: str) -> None:
    """What a signature calls `**numpy_names`, for editors, is `axis` and `keepdims` alone."""
    with pytest.raises(TypeError, match=f"^{name}.*got an unexpected argument {option!r}"):
        WITH_OTHER_NAMES[name](ta.ones(2, 3), **{option: 1})


def test_an_own_op_may_have_the_other_names() -> None:
    """`input` and `other` are names of PyTorch's for x and y of the library's ops alone."""

    @ta.op
    def mixed(x: Any, y: Any, *, other: float = 0.0, input: float = 1.0) -> Any:
        return x * y * input + other

    numbers = ta.tensor([2.0]), ta.tensor([3.0])
    assert mixed(*numbers, other=5.0, input=2.0).tolist() == [17.0]
    assert mixed(numbers[0], y=numbers[1], other=5.0).tolist() == [11.0]
    assert ta.where(condition=numbers[0] > 0, input=numbers[0], other=0.0).tolist() == [2.0]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_is_the_method(name: str) -> None:
    """One object, with an error of ours for what is no Tensor."""
    function = getattr(ta, name)
    assert getattr(ta.Tensor, name) is function
    assert getattr(F, name, function) is function
    assert function.__doc__
    with pytest.raises(TypeError, match="x must be a Tensor, got list: wrap it with ta"):
        function([1.0, 2.0], *MORE.get(name, ()))
    with pytest.raises(TypeError, match=r"misses its argument 'x'|missing 1 required .* 'x'"):
        function()


def test_many_functions_are_methods() -> None:
    assert len(FUNCTIONS) > 60
    assert {"softmax", "sum", "exp", "reshape", "sort"} < FUNCTIONS


def test_the_first_argument_may_be_called_input() -> None:
    assert ta.sum(input=ta.tensor([1.0, 2.0])).item() == 3.0
    assert ta.square(input=ta.tensor(3.0)).item() == 9.0
    assert ta.square(x=ta.tensor(3.0)).item() == 9.0


def test_allclose(torch: Any) -> None:
    x = np.array([1.0, math.inf, 0.0])
    others = [x, x * (1 + 1e-6), x * (1 + 1e-4), x + 1e-9, x + 1e-7, -x, x[:1], np.array(math.nan)]
    for y in others:
        for options in ({}, {"rtol": 1e-3}, {"atol": 1e-6}, {"equal_nan": True}):
            theirs = torch.allclose(torch.tensor(x), torch.tensor(y), **options)
            assert ta.allclose(ta.tensor(x), ta.tensor(y), **options) is theirs
    nan = ta.tensor([math.nan])
    assert not nan.allclose(nan)
    assert nan.allclose(nan, equal_nan=True)


def test_allclose_refuses() -> None:
    x = ta.ones(3)
    with pytest.raises(TypeError, match="one dtype, got float32 and float64"):
        x.allclose(ta.ones(3, dtype=ta.float64))
    with pytest.raises(TypeError, match=r"other must be a Tensor, got numpy\.ndarray"):
        x.allclose(np.ones(3))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        x.allclose(ta.ones(2))


def test_equal() -> None:
    x = ta.tensor([1.0, 2.0])
    assert x.equal(ta.tensor([1.0, 2.0])) is True
    assert x.equal(ta.tensor([1.0, 3.0])) is False
    assert ta.equal(x, ta.tensor([[1.0, 2.0]])) is False
    assert not ta.equal(*[ta.tensor([math.nan])] * 2)
    with pytest.raises(TypeError, match="other must be a Tensor, got list"):
        x.equal([1.0, 2.0])


def test_tensors_of_two_shapes_are_not_equal_whatever_they_hold() -> None:
    """Also where one broadcasts to the other, where neither does, and where they hold nothing."""
    shapes = [(), (1,), (2,), (3,), (0,), (1, 1), (1, 3), (2, 3), (2, 1), (3, 2), (0, 3), (3, 0)]
    for first, second in itertools.product(shapes, repeat=2):
        x, y = ta.ones(first), ta.ones(second)
        assert x.equal(y) is ta.equal(y, x) is (first == second), (first, second)


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_draws_by_weight(replacement: bool) -> None:
    """Of 20000 first draws as many as the weights say, within five standard deviations."""
    ta.manual_seed(3)
    weights = ta.tensor([[1.0, 0.0, 3.0, 6.0]]).expand(20000, 4)
    # Beside a row of another sum, because each row has its own.
    weights = ta.cat([ta.ones(1, 4), weights])
    drawn = ta.multinomial(weights, 2, replacement)
    assert drawn.dtype == ta.int64
    assert drawn.shape == (20001, 2)
    drawn = drawn[1:]
    counts = np.bincount(drawn.numpy()[:, 0], minlength=4) / 20000
    expected = np.array([0.1, 0.0, 0.3, 0.6])
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected * (1 - expected) / 20000)).all()
    twice = (drawn[:, 0] == drawn[:, 1]).numpy().mean()
    assert (twice > 0.4) == replacement
    if not replacement:
        assert twice == 0
    after_6 = drawn.numpy()[drawn.numpy()[:, 0] == 3, 1]
    share = (after_6 == 2).mean()  # of 3 among 1 and 3, or among all
    assert abs(share - (0.3 if replacement else 0.75)) < 0.03


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_many_is_the_beginning_of_sort(largest: bool, dim: int) -> None:
    x = ta.tensor(np.random.default_rng(3).permutation(64 * 64).reshape(64, 64) / 2)
    values, indices = x.sort(dim, descending=largest)
    for k in 1, 3, 8, 9:
        found = x.topk(k, dim, largest)
        first = (slice(k), slice(None))[:: 1 if dim == 0 else -1]
        assert found.values.equal(values[first]), k
        assert found.indices.equal(indices[first]), k


def test_multinomial_of_rows_of_very_different_weights() -> None:
    weights = ta.tensor([[1e300, 1e300], [1e-30, 0.0]], dtype=ta.float64)
    drawn = weights.multinomial(50, replacement=True).numpy()
    assert set(drawn[0]) == {0, 1}
    assert set(drawn[1]) == {0}


def test_multinomial_of_one_row_repeats_with_the_seed() -> None:
    weights = ta.tensor([0.2, 0.8], dtype=ta.float16)
    ta.manual_seed(0)
    first = weights.multinomial(5, replacement=True)
    ta.manual_seed(0)
    assert first.equal(weights.multinomial(5, replacement=True))
    assert first.shape == (5,)
    assert sorted(weights.multinomial(2).tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("weights", "arguments", "match"),
    [
        ([1.0, -1.5], (1,), r"finite weights >= 0, as softmax .* got -1\.5"),
        ([1.0, math.nan], (1,), "finite weights >= 0.* got nan"),
        ([[1.0], [math.inf]], (1,), "finite weights >= 0.* got inf"),
        ([0.0, 0.0], (1, True), "takes 1 weights > 0 at least in a row, got 0"),
        ([[1.0, 2.0], [1.0, 0.0]], (2,), "takes 2 weights > 0 at least in a row, got 1"),
        ([1.0, 2.0], (3,), "takes 3 weights > 0 at least in a row, got 2"),
        ([[], []], (1,), "takes 1 weights > 0 at least in a row, got 0"),
        ([1.0, 1.0], (0,), "num_samples must be an integer >= 1, got 0"),
        (1.0, (1,), r"\(N,\) or \(B, N\), got \(\)"),
        ([1, 2], (1,), "needs a floating dtype, got int64"),
    ],
)
def test_multinomial_refuses(weights: Any, arguments: tuple, match: str) -> None:
    state = ta.get_rng_state()
    with pytest.raises((ValueError, TypeError), match=match):
        ta.tensor(weights).multinomial(*arguments)
    assert ta.get_rng_state() == state


def test_indices_of_sort_and_topk(torch: Any) -> None:
    x = np.random.default_rng(0).permutation(24).reshape(2, 3, 4).astype(float)
    ours, theirs = ta.tensor(x), torch.tensor(x)
    for options in ({"dim": -1}, {"dim": 0}, {"dim": 1}):
        for name, more in (
            ("sort", {}),
            ("sort", {"descending": True}),
            ("topk", {"k": 2}),
            ("topk", {"k": 1, "largest": False}),
        ):
            values, indices = getattr(ours, name)(**options, **more)
            right, places = getattr(theirs, name)(**options, **more)
            np.testing.assert_array_equal(values.numpy(), right.numpy())
            np.testing.assert_array_equal(indices.numpy(), places.numpy(), strict=True)
    assert ta.sort(ours).indices.equal(ta.argsort(ours))


def test_arguments_that_pytorch_has_too(torch: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    ours, theirs = ta.tensor(x), torch.tensor(x)
    for call in (
        lambda x, _: x.sort(dim=1, descending=True, stable=True)[0],
        lambda x, _: x.argsort(dim=1, stable=True),
        lambda x, _: x.topk(2, 1, True, True)[1],
        lambda x, _: x.flip(dims=(0, 2)),
        lambda x, _: x.var(dim=(0, 1), correction=2),
        lambda x, _: x.std(1, correction=0, keepdim=True),
        lambda x, of: x.to(of.float32).prod(1, dtype=of.float64),
        lambda x, of: x.cumsum(2, dtype=of.float64),
        lambda x, of: of.tensor(2).cumsum(0, dtype=of.float64),
        lambda x, of: of.einsum("cab", x),  # the result has its letters in alphabetical order
        lambda x, of: of.einsum("cba,b", x, x[0, :, 0]),
        lambda x, of: x[0, 0, 0].gather(0, of.tensor(0)),
        lambda x, of: x[0, 0, 0].gather(0, of.tensor([0])),
    ):
        mine, right = call(ours, ta).numpy(), call(theirs, torch).numpy()
        np.testing.assert_allclose(mine, right, rtol=1e-12, strict=True)


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
        (lambda x: x.sort(order=1), TypeError, r"sort\(\) got an unexpected"),
        (lambda x: x.sum().split(1), ValueError, "split takes a tensor of one dimension or more"),
        (lambda x: x.sum().chunk(1), ValueError, "chunk takes"),
        (lambda x: x.sum().unbind(), ValueError, "unbind takes"),
        (lambda x: x.var(correction=-1), ValueError, "correction must be an integer >= 0, got -1"),
        (lambda x: x.std(correction=0.5), ValueError, "correction must be an integer"),
        (lambda x: ta.nn.functional.pad(x, 1), TypeError, r"pad is a tuple such as \(1, 1\)"),
    ],
)
def test_arguments_that_are_refused(call: Any, kind: type, match: str) -> None:
    with pytest.raises(kind, match=match):
        call(ta.ones(2, 3))


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("function", OF_INTEGERS)
def test_integers(torch: Any, kind: str, function: Any) -> None:
    """Dtypes and values of integers are PyTorch's."""
    x, y = np.array([[3, -2], [1, 4]]), np.array([2, -3])
    if kind == "uint8":
        x, y = abs(x), abs(y)
    ours, theirs = (
        function(t, *(t.as_tensor(z.astype(kind)) for z in (x, y))) for t in (ta, torch)
    )
    assert ours.dtype == theirs.numpy().dtype
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_an_array_divides() -> None:
    """NumPy on the left: its operators reach the Tensor."""
    x = np.array([7.0, -7.0])
    y = ta.tensor([2.0, 2.0], dtype=ta.float64)
    assert (x // y).tolist() == [3.0, -4.0]
    assert (x % y).tolist() == [1.0, 1.0]


def test_divide_in_place() -> None:
    x = ta.tensor([7, 5])
    same = x
    x //= 2
    x %= 2
    assert same is x
    assert x.tolist() == [1, 0]


def test_cat_of_empty_vectors_alone_is_an_empty_vector() -> None:
    """As in a loop that found nothing."""
    for count in (1, 3):
        assert ta.cat([ta.tensor([])] * count).shape == (0,)


def test_as_tensor_and_from_numpy() -> None:
    x = ta.ones(2)
    assert ta.as_tensor(x) is x
    assert ta.as_tensor(x, dtype=ta.float64).dtype == ta.float64
    assert ta.as_tensor([1, 2]).tolist() == [1, 2]
    array = np.zeros(2)
    ours = ta.from_numpy(array)
    array[0] = 1
    assert ours.dtype == ta.float64
    assert ours.tolist() == [0.0, 0.0]
    with pytest.raises(TypeError, match="from_numpy takes a NumPy array, got list"):
        ta.from_numpy([1.0])


@pytest.mark.parametrize("name", ["zeros", "ones", "full", "rand", "randn"])
def test_like(name: str) -> None:
    fill = (7,) if name == "full" else ()
    function = getattr(ta, f"{name}_like")
    x = ta.zeros(2, 3, dtype=ta.float16)
    made = function(x, *fill)
    assert (made.shape, made.dtype, made.requires_grad) == ((2, 3), ta.float16, False)
    made = function(x, *fill, dtype=ta.float64, device="cpu", requires_grad=True)
    assert (made.shape, made.dtype, made.requires_grad) == ((2, 3), ta.float64, True)
    assert function.__name__ == f"{name}_like"
    with pytest.raises(TypeError, match=f"x of {name}_like must be a Tensor, got list"):
        function([1.0], *fill)


def test_randint_from_zero() -> None:
    for drawn in (
        ta.randint(3, (500,)),
        ta.randint(3, size=(500,)),
        ta.randint(high=3, size=(500,)),
        ta.randint(0, 3, (500,)),
    ):
        assert set(drawn.tolist()) == {0, 1, 2}
    assert set(ta.randint(-1, 1, (100,)).tolist()) == {-1, 0}
    for arguments in [(5,), (2, 5), (), (2.0, (3,))]:
        with pytest.raises(TypeError, match="randint takes low, high and a size"):
            ta.randint(*arguments)


def test_numbers() -> None:
    assert (ta.inf, ta.pi) == (math.inf, math.pi)
    assert math.isnan(ta.nan)


def test_contiguous_and_type_as() -> None:
    x = ta.ones(2, 3)
    assert x.contiguous() is x
    turned = x.T.contiguous()
    assert turned._data.flags.c_contiguous
    assert turned.shape == (3, 2)
    for name in ("type_as", "expand_as"):
        with pytest.raises(TypeError, match="other must be a Tensor, got float"):
            getattr(x, name)(1.0)


@pytest.mark.parametrize(
    ("name", "operator"),
    [("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"), ("floor_divide", "//")],
)
def test_the_name_of_an_operator_says_what_to_write_in_place_too(name: str, operator: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"write x {operator} y")):
        getattr(ta.ones(1), name)
    with pytest.raises(AttributeError, match=re.escape(f"write x {operator}= y")):
        getattr(ta.ones(1), f"{name}_")
