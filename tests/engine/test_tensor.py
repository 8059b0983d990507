"""Making tensors, their dtypes, and the way to Python and other libraries."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from test_engine import equal, leaf

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError


def test_default_dtypes() -> None:
    """Python floats are float32, integers int64, truth values bool; arrays keep theirs."""
    for data, dtype in (
        (1.0, "float32"),
        ([1, 2.5], "float32"),
        ([], "float32"),
        (1, "int64"),
        ([[1], [2]], "int64"),
        (True, "bool"),
        (np.float64(1.0), "float64"),
        (np.ones(2), "float64"),
        (np.ones(2, np.float16), "float16"),
        (np.ones(2, ">f8"), "float64"),
        (np.int32(1), "int32"),
        (ta.ones(2, dtype=ta.float64), "float64"),
    ):
        assert ta.tensor(data).dtype == np.dtype(dtype), data
    for made in (ta.zeros(2), ta.ones(2), ta.empty(2), ta.eye(2), ta.rand(2), ta.randn(2)):
        assert made.dtype == np.float32
    assert ta.full((2,), 1.5).dtype == np.float32
    assert ta.full((2,), 1).dtype == np.int64
    assert ta.arange(3).dtype == np.int64
    assert ta.arange(3.0).dtype == np.float32
    assert ta.linspace(0, 1, 3).dtype == np.float32


def test_creation() -> None:
    equal(ta.zeros(2, 3), np.zeros((2, 3)))
    equal(ta.ones((2, 3)), np.ones((2, 3)))
    equal(ta.empty(2), np.zeros(2))
    equal(ta.full((2,), 7.0), [7.0, 7.0])
    equal(ta.arange(4), [0, 1, 2, 3])
    equal(ta.arange(2, 11, 3), [2, 5, 8])
    equal(ta.arange(5, 2, -1), [5, 4, 3])
    equal(ta.linspace(0, 1, 5), [0, 0.25, 0.5, 0.75, 1])
    equal(ta.linspace(3, 1, 1), [3])
    assert ta.linspace(0, 1, 0).shape == (0,)
    equal(ta.eye(2, 3), np.eye(2, 3))
    x = ta.tensor([[1.0, 2.0]], dtype=ta.float64)
    for made, expected in (
        (ta.zeros_like(x), 0.0),
        (ta.ones_like(x), 1.0),
        (ta.full_like(x, 3), 3.0),
    ):
        equal(made, np.full((1, 2), expected))
        assert made.dtype == np.float64
    for made in (ta.randn_like(x), ta.rand_like(x)):
        assert (made.shape, made.dtype) == ((1, 2), np.float64)
    assert ta.zeros(2, requires_grad=True).requires_grad
    assert ta.zeros(()).shape == ()


def test_tensors_copy_what_they_are_made_from() -> None:
    array = np.array([1.0, 2.0])
    x = ta.tensor(array)
    y = ta.tensor(x)
    array[0] = 5.0
    x[0] = 6.0
    equal(x, [6.0, 2.0])
    equal(y, [1.0, 2.0])


def test_random_numbers_come_from_one_seed() -> None:
    """Equal seeds, equal numbers; NumPy's own state is left alone."""
    before = np.random.get_state()[1].tobytes()

    def draw() -> list[Any]:
        ta.manual_seed(3)
        first = [ta.randn(3), ta.rand(3), ta.randint(0, 9, (4,)), ta.randperm(5)]
        return [x.tolist() for x in (*first, F.dropout(ta.ones(50), 0.5))]

    assert draw() == draw()
    for seed in (4, 5, 3 + 2**32, 3 + 2**64):
        ta.manual_seed(seed)
        assert ta.randn(3).tolist() != draw()[0]
    state = ta.get_rng_state()
    following = ta.randn(5).tolist()
    ta.set_rng_state(state)
    assert ta.randn(5).tolist() == following
    assert np.random.get_state()[1].tobytes() == before


def test_random_numbers_are_what_they_are_called() -> None:
    ta.manual_seed(1)
    uniform, normal = ta.rand(20_000).numpy(), ta.randn(20_000).numpy()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    integers = ta.randint(-1, 3, (2000,)).numpy()
    assert set(integers) == {-1, 0, 1, 2}
    assert sorted(ta.randperm(9).tolist()) == list(range(9))
    assert (ta.rand(3000, dtype=ta.float16).numpy() < 1).all()


def test_float16_stays_float16() -> None:
    x = leaf([1.0, 2.0], dtype=np.float16)
    y = ((x * 2 + 1).exp() / 3.0 - 1).sum()
    assert y.dtype == np.float16
    y.backward()
    assert x.grad.dtype == np.float16


def test_python_numbers_and_0d_tensors_do_not_widen() -> None:
    """A float32 stays one beside Python numbers, NumPy scalars, 0-d float64 and integer tensors."""
    x = ta.ones(2)
    for other in (2, 2.5, True, np.float64(2), ta.tensor(2.0, dtype=ta.float64), ta.tensor([1, 2])):
        for out in (x + other, x * other, other - x, x / other):
            assert out.dtype == np.float32, other
    assert (x * ta.ones(2, dtype=ta.float64)).dtype == np.float64
    assert (ta.tensor([1, 2]) + 1.5).dtype == np.float32
    assert (ta.tensor([1, 2]) / 2).dtype == np.float32
    for number in (-np.log(10000.0) / 512, np.float64(2), np.float64(3)):
        for out in (ta.arange(3) * number, number - ta.arange(3), ta.arange(3) ** number):
            assert out.dtype == np.float32
    assert (ta.tensor([1, 2]) + ta.tensor(2.0, dtype=ta.float64)).dtype == np.float64
    assert (ta.tensor([True]) + 1).dtype == np.int64


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 5.0, 8.0, -1.0, -2.0, -3.0, 0.5])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_a_power_of_integers_is_a_float_if_the_exponent_is(
    torch: Any, dtype: str, exponent: float
) -> None:
    """That of 100,000 to the third would not fit an int32."""
    numbers = [100, 2, 3] if dtype == "uint8" else [100_000, 2, -3]
    if exponent == 0.5:
        numbers[2] = 3
    x = ta.tensor(numbers, dtype=dtype)
    expected = torch.tensor(numbers, dtype=getattr(torch, dtype)) ** exponent
    found = x**exponent
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-6)


def test_conversions_of_dtype() -> None:
    x = ta.tensor([1.75, -2.5, 0.0])
    for method, dtype in (
        ("float", "float32"), ("double", "float64"), ("half", "float16"),
        ("long", "int64"), ("bool", "bool"),
    ):  # fmt: skip
        converted = getattr(x, method)()
        np.testing.assert_array_equal(converted.numpy(), x.numpy().astype(dtype), strict=True)
    assert x.to(ta.float32) is x
    for kind in ta.float64, ta.float16, ta.int64, ta.bool, ta.uint8:
        like = ta.ones(1).to(kind)
        for converted in x.to(like), x.type_as(like), x.to("cpu", like), x.to("cpu", kind):
            np.testing.assert_array_equal(converted.numpy(), x.numpy().astype(kind), strict=True)
    assert x.to(ta.ones(2, 2)) is x
    y = leaf([1.5, 2.5])
    y.half().float().backward(ta.tensor([1.0, 2.0]))
    equal(y.grad, [1.0, 2.0])
    assert y.grad.dtype == np.float64
    assert not y.long().requires_grad


def test_leaving_for_python_and_numpy() -> None:
    x = leaf([[1.5, 2.0]], dtype=np.float32)
    assert x.tolist() == [[1.5, 2.0]]
    assert x[0, 0].item() == 1.5
    assert float(x[0, 0]) == 1.5
    assert int(x[0, 1]) == 2
    assert bool(x[0, 0] > 1)
    assert [10, 20, 30][ta.tensor(1)] == 20
    with pytest.raises(DtypeError, match="integer tensor can be an index, got float32"):
        x[0, 0].__index__()
    assert len(x) == 1
    assert (x.size(), x.size(1), x.dim(), x.numel(), x.ndim) == ((1, 2), 2, 2, 2, 2)
    for array in (x.numpy(), np.asarray(x), np.array(x, dtype=np.float64)):
        np.testing.assert_array_equal(array, [[1.5, 2.0]])
        array[0, 0] = 100.0  # a copy of its own
    equal(x, [[1.5, 2.0]])
    np.testing.assert_array_equal(np.from_dlpack(x.detach()), [[1.5, 2.0]])


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "@", "**", "<", "=="])
def test_numpy_arrays_on_the_left_give_tensors(operator: str) -> None:
    """array * tensor is a Tensor, with its graph, and not an array of objects."""
    array, values = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    x = leaf(values)
    out = eval(f"array {operator} x", {"array": array, "x": x})
    assert isinstance(out, ta.Tensor)
    expected = eval(f"array {operator} values", {"array": array, "values": values})
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-15)
    assert out.requires_grad == (operator not in ("<", "=="))
    flipped = eval(f"x {operator} array", {"array": array, "x": x})
    assert isinstance(flipped, ta.Tensor)


def test_a_list_times_an_integer_tensor_is_repeated() -> None:
    """As in PyTorch: programs pad with `ids + [0] * (longest - length)`."""
    count = ta.tensor(3)
    assert [5, 6] + [0] * count == [5, 6, 0, 0, 0]
    assert ((0,) * count, "=" * count, b"a" * count) == ((0, 0, 0), "===", b"aaa")
    for other in (ta.tensor(3.0), ta.tensor([3])):
        assert ([1, 2] * other).tolist() == [3, 6]


def test_logic_takes_a_number_or_a_list_on_either_side() -> None:
    b, i = ta.tensor([True, False]), ta.tensor([1, 6])
    for made, expected in (
        (True & b, [True, False]), (True | b, [True, True]), (True ^ b, [False, True]),
        (5 & i, [1, 4]), (5 | i, [5, 7]), (5 ^ i, [4, 3]), ([True, True] & b, [True, False]),
    ):  # fmt: skip
        np.testing.assert_array_equal(made.numpy(), expected)


def test_numpy_functions_refuse_tensors() -> None:
    """They would lose the graph. `np.add` is what NumPy calls for `array + x`, which is ours."""
    x = leaf([1.0, 2.0])
    for call in (lambda: np.exp(x), lambda: np.add(x, 1), lambda: np.add.reduce(x)):
        with pytest.raises(TypeError, match=r"does not take a Tensor, because .* write x"):
            call()
    with pytest.raises(TypeError, match=r"write x\.sum\(\)"):
        np.sum(x)
    assert np.add(np.ones(2), x).requires_grad
    array = np.ones(2)
    with pytest.raises(TypeError, match=r"an array takes no Tensor: write array [+] x"):
        array += x
    np.testing.assert_array_equal(array, [1.0, 1.0])


@pytest.mark.parametrize("flip", [False, True])
def test_a_tensor_of_pytorch_is_named_as_such(flip: bool) -> None:
    torch = pytest.importorskip("torch")
    pair = (torch.ones(2), ta.ones(2))
    for operation in (operator.add, operator.mul, operator.matmul):
        with pytest.raises(DtypeError, match=r"does not take a torch\.Tensor: make it a Tensor"):
            operation(*(reversed(pair) if flip else pair))
    with pytest.raises(TypeError, match=r"x must be a Tensor, got torch\.Tensor: wrap it"):
        ta.functional.softmax(pair[0])
    with pytest.raises(TypeError, match=r"exp: x must be a Tensor, got torch\.Tensor: wrap it"):
        ta.exp(pair[0])
    with pytest.raises(DtypeError, match=r"an index is not a torch\.Tensor"):
        pair[1][torch.tensor([0])]
    last = ta.op(lambda x, y: y)
    for call in (
        lambda: ta.where(pair[0] > 0, pair[1], 0.0),
        lambda: ta.where(pair[0] > 0, pair[1], 1e5),
        lambda: ta.where(pair[1] > 0, *(reversed(pair) if flip else pair)),
        lambda: last(pair[1], pair[0]),  # the result of an op of a user
    ):
        with pytest.raises(DtypeError, match=r"does not take a torch\.Tensor: make it a Tensor"):
            call()


@pytest.mark.parametrize("dim", [0, 1, (0, 1), None])
def test_sums_of_float32_are_exact_along_any_dimension(dim: Any) -> None:
    """NumPy adds the numbers of a column one by one, which loses digits in float32."""
    x = np.random.default_rng(3).random((100_000, 3), np.float32)
    for method in ("sum", "mean"):
        found = getattr(ta.tensor(x), method)(dim).numpy()
        right = getattr(x.astype(np.float64), method)(axis=dim)
        np.testing.assert_allclose(found, right, rtol=2 * np.finfo(np.float32).eps)


def test_functions_of_integers_are_float32() -> None:
    for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "erf"):
        for x in (ta.tensor([1, 2]), ta.tensor([True, False])):
            assert getattr(x, name)().dtype == np.float32


def test_repr_says_what_matters() -> None:
    x = ta.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(ta.tensor([1, 2])) == "tensor([1, 2])"
    assert repr(ta.ones(1, dtype=ta.float64)) == "tensor([1.], dtype=float64)"
    assert "made_by=mul" in repr(x * 2)


def test_tensors_can_be_kept_in_sets_and_dicts() -> None:
    """== compares elements, hashing goes by identity."""
    x, y = ta.ones(2), ta.ones(2)
    assert len({x, y, x}) == 2
    equal(x == y, [True, True])


def test_max_and_argmax_take_numpys_names() -> None:
    x = ta.tensor([[1.0, 5.0], [7.0, 2.0]])
    values, indices = x.max(axis=1, keepdims=True)
    assert (values.tolist(), indices.tolist()) == ([[5], [7]], [[1], [0]])
    assert x.min(axis=0).indices.tolist() == [0, 1]
    assert x.argmax(axis=1).tolist() == [1, 0]
    assert x.argmin(axis=0, keepdims=True).tolist() == [[0, 1]]


@pytest.mark.parametrize(
    "name", ["shape", "dtype", "device", "ndim", "T", "mT", "is_leaf", "grad_fn"]
)
def test_what_is_only_read_stays(name: str) -> None:
    for x in (ta.ones(2, 3), ta.ones(2, 3, requires_grad=True) * 2, ta.nn.Parameter(ta.ones(2, 3))):
        with pytest.raises(AttributeError, match=f"'{name}' of .* has no setter"):
            setattr(x, name, None)
        with pytest.raises(AttributeError, match=f"'{name}' of .* has no deleter"):
            delattr(x, name)
        assert (x.shape, x.dtype, x.device) == ((2, 3), ta.float32, "cpu")


def test_without_a_dtype_the_usual_one_is_made() -> None:
    """dtype=None is what a program has that passes its own default on."""
    for make in (ta.zeros, ta.ones, ta.empty, ta.eye, ta.rand, ta.randn):
        assert make(2, dtype=None).dtype == make(2).dtype == ta.float32
    assert ta.randint(0, 5, (2,), dtype=None).dtype == ta.int64
    assert ta.ones(2, dtype=ta.bool).all()
    assert ta.zeros(2, dtype=ta.uint8).dtype == ta.uint8


def test_the_text_of_many_dimensions_and_of_none() -> None:
    assert repr(ta.zeros(0)) == "tensor([])"
    assert repr(ta.zeros(0, 3)) == "tensor([], size=(0, 3))"
    for ndim in range(3, 8):  # at least one element at each edge
        text = repr(ta.zeros(*[4] * ndim))
        if 4**ndim > 1000:
            assert text.splitlines()[0].count("0.") == min(4, 2 * max(1, 5 - ndim))
            assert text.endswith(f"size={(4,) * ndim})")


@pytest.mark.parametrize("kind", [int, float, np.int8, np.uint64, np.float16, np.float64])
def test_a_number_of_each_kind_is_looked_for(kind: type) -> None:
    x = ta.tensor([1.0, 3.0])
    assert kind(3) in x
    assert kind(2) not in x


@pytest.mark.parametrize(
    "name", ["+", "-", "*", "/", "//", "%", "@", "==", "!=", "<", "<=", ">", ">="]
)
def test_an_array_before_an_operator_is_the_first_operand(name: str) -> None:
    x, y = np.array([7.0, -5.0, 2.0]), np.array([2.0, 3.0, 2.0])
    found = eval(f"x {name} y", {"x": x, "y": ta.tensor(y)})
    assert isinstance(found, ta.Tensor)
    np.testing.assert_array_equal(found.numpy(), eval(f"x {name} y", {"x": x, "y": y}))


@pytest.mark.parametrize("name", ["&", "|", "^"])
def test_an_array_of_bits_before_an_operator(name: str) -> None:
    x, y = np.array([12, 5, 7]), np.array([10, 6, 7])
    found = eval(f"x {name} y", {"x": x, "y": ta.tensor(y)})
    assert found.tolist() == eval(f"x {name} y", {"x": x, "y": y}).tolist()
