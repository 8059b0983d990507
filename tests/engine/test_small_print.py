"""What one line of the engine each says: of arguments, memory, versions and graphs."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.base import checks, names, random
from tinyattn.engine import grad_mode
from tinyattn.engine.autograd import wrap
from tinyattn.engine.versions import Version
from tinyattn.errors import (
    CheckpointError,
    DtypeError,
    GraphError,
    InPlaceError,
    ShapeError,
)


def leaf(*numbers: float) -> ta.Tensor:
    return ta.tensor(numbers, requires_grad=True)


# Arguments that are refused, and in which words


class Foreign:
    """As an array of another library."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array([0, 1])


X = ta.ones(2, 2)
WRONG_INDEX = "an index is made of integers, slices or masks of one dimension or more, got"
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "nothing": (lambda: F.softmax(None), TypeError, r"got NoneType: is a return missing\?$"),
    "a tuple with a tensor": (
        lambda: F.softmax((X, 3)),
        TypeError,
        r"tuple: take one of its Tensors, as in out, state = lstm\(x\), or join them with stack$",
    ),
    "a tuple": (lambda: F.softmax((1, 3)), TypeError, r"tuple: wrap it with ta.tensor\(...\)$"),
    "a function": (lambda: F.softmax(len), TypeError, "got builtin_function_or_method$"),
    "a list": (lambda: F.tanh([1.0]), TypeError, "^tanh: x must be a Tensor, got list: wrap"),
    "a number": (lambda: F.tanh(0.5), TypeError, r"^tanh: x must be a Tensor, got float 0\.5"),
    "two lists": (
        lambda: ta.ops.eq([1.0], [1.0]),
        TypeError,
        "^eq: x must be a Tensor, got list: wrap",
    ),
    "two lists of an operator": (
        lambda: ta.ops.floor_divide([3], [2]),
        TypeError,
        "^floor_divide: x must be a Tensor, got list: wrap",
    ),
    "an array beside a tensor": (
        lambda: F.linear(np.ones((2, 2)), X),
        TypeError,
        "x must be a Tensor, got numpy.ndarray",
    ),
    "a ragged index": (lambda: X[[[0], [0, 1]]], ShapeError, "^an index: not a rectangular"),
    "an index of floats": (lambda: X[[0.5]], DtypeError, f"{WRONG_INDEX} float64$"),
    "a float of NumPy": (lambda: X[np.float64(1.0)], DtypeError, f"{WRONG_INDEX} float64$"),
    "a boolean index": (lambda: X[True], DtypeError, f"{WRONG_INDEX} bool$"),
    "a name": (lambda: X["a"], IndexError, f"{WRONG_INDEX} str$"),
    "a float": (lambda: X[1.5], IndexError, f"{WRONG_INDEX} float$"),
    "an array of others": (lambda: X[Foreign()], DtypeError, "an index is not a .*Foreign: make"),
    "sum over True": (lambda: X.sum(True), TypeError, "^a dimension is an integer, got True$"),
    "softmax over True": (lambda: F.softmax(X, True), TypeError, "dimension is an integer, got"),
    "unsqueeze at False": (lambda: X.unsqueeze(False), TypeError, "is an integer, got False$"),
    "sum over 1.0": (lambda: X.sum(1.0), TypeError, r"a dimension is an integer, got 1\.0$"),
    "a dimension beyond float16": (
        lambda: ta.ones(3, dtype=ta.float16).argmax(70_000),
        IndexError,
        "^dim 70000 is out of range",
    ),
    "a size of True": (lambda: ta.zeros(2, True), TypeError, "^a size is an integer, got True$"),
    "a size of 1.5": (lambda: ta.zeros(2, 1.5), TypeError, r"^a size is an integer, got 1\.5$"),
    "pieces of 1.0": (lambda: X.split([1, 1.0]), TypeError, r"split takes integers as sizes, got"),
    "pieces of 2 - 0": (lambda: X.split([3, -1]), ValueError, "split takes sizes >= 0, got"),
    "an option of nobody": (
        lambda: X.reshape(length=4),
        TypeError,
        r"^reshape\(\) got an unexpected argument 'length'$",
    ),
    "sizes of what has none": (
        lambda: F.softmax(X, size=4),
        TypeError,
        r"^softmax\(\) got an unexpected argument 'size'$",
    ),
    "one argument too many": (
        lambda: F.tanh(X, 1, 2),
        TypeError,
        r"^tanh\(\) takes 1 arguments but 3 were given$",
    ),
    "randperm of -1": (lambda: ta.randperm(-1), ShapeError, "^n must be an integer >= 0, got -1$"),
    "no heads": (lambda: F.alibi_bias(0, 1), ShapeError, "^num_heads must be an integer >= 1"),
    "less than no queries": (
        lambda: F.alibi_bias(2, -1),
        ShapeError,
        "^queries must be an integer >= 0, got -1$",
    ),
    "less than no keys": (
        lambda: F.alibi_bias(2, 1, -3),
        ShapeError,
        "^keys must be an integer >= 0, got -3$",
    ),
    "a negative past": (
        lambda: F.alibi_bias(2, 1, past=-2),
        ShapeError,
        "^past must be an integer >= 0, got -2$",
    ),
    "a fraction into integers": (
        lambda: ta.zeros(2, dtype=ta.int64).__setitem__(0, ta.tensor(1.5)),
        DtypeError,
        r"^1\.5 does not fit into a tensor of int64",
    ),
    "a masked array": (lambda: X * np.ma.array(np.ones(2)), DtypeError, "would lose its mask"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_named(case: str) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()


def test_only_five_names_that_are_missing_are_listed() -> None:
    numbers = {name: np.zeros(1) for name in "abcdefg"}
    for count, shown in (
        (7, "a, b, c, d, e, ..."),
        (6, "a, b, c, d, e, ..."),
        (5, "a, b, c, d, e"),
    ):
        expected = {name: numbers[name] for name in list(numbers)[:count]}
        with pytest.raises(CheckpointError) as caught:
            checks.check_names("a model", expected, {})
        assert f"missing {shown}, unexpected nothing" in str(caught.value)


def test_the_largest_integer_that_a_float_holds_is_a_number() -> None:
    largest = int(np.finfo(np.float64).max)
    assert checks.check_number("x", largest) == checks.LARGEST
    for number in (2 * largest, -2 * largest):
        with pytest.raises(ValueError, match=r"^x must be a finite number, got"):
            checks.check_number("x", number)


def test_a_matrix_of_numpy_is_multiplied_element_by_element() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy advises against matrices
        matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])
    product = ta.tensor([[5.0, 6.0], [7.0, 8.0]]) * matrix
    assert product.tolist() == [[5.0, 12.0], [21.0, 32.0]]


def test_arrays_and_numbers_of_numpy_are_taken_where_no_argument_is_a_tensor() -> None:
    """A derivative rule runs on them."""
    numbers = np.array([0.5, -2.0])
    found = F.tanh(numbers)
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, np.tanh(numbers), rtol=1e-15)
    np.testing.assert_allclose(F.tanh(numbers[0]), np.tanh(0.5), rtol=1e-15)


# Gradients


VIEWS: dict[str, Callable[[ta.Tensor], ta.Tensor]] = {
    "itself": lambda x: x,
    "clone": lambda x: x.clone(),
    "reshape": lambda x: x.reshape(3, 2),
    "transposed": lambda x: x.T,
    "plus": lambda x: x + 1.0,
    "plus one row": lambda x: x + ta.ones(3),
    "unsqueezed": lambda x: x.unsqueeze(0),
    "all of it": lambda x: x[...],
    "rolled": lambda x: x.roll(0, 1),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_gradient_has_memory_of_its_own(view: str) -> None:
    """Its caller may go on with the gradient that backward began with."""
    x = ta.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    out = VIEWS[view](x)
    start = ta.arange(6, dtype=ta.float32).reshape(*out.shape).clone()
    (gradient,) = ta.grad(out, x, start, retain_graph=True)
    out.backward(start)
    expected = x.grad.tolist()
    start[...] = -1.0
    assert x.grad.tolist() == gradient.tolist() == expected
    kept = gradient.clone()
    x.grad[...] = 7.0
    np.testing.assert_array_equal(gradient.numpy(), kept.numpy())


def test_two_gradients_of_one_input_are_apart() -> None:
    x = leaf(0.5, -2.0)
    one, other = ta.grad(x * 3.0, [x, x], ta.tensor([1.0, -1.0]))
    one[...] = 0.0
    assert other.tolist() == [3.0, -3.0]


def test_whether_a_graph_is_kept_is_said_by_retain_graph_first() -> None:
    x, start = leaf(0.5, -2.0), ta.tensor([1.0, -1.0])
    out = x * x
    for _ in range(2):
        ta.grad(out, x, start, retain_graph=True)
    (slope,) = ta.grad(out, x, start, retain_graph=False, create_graph=True)
    assert slope.requires_grad
    with pytest.raises(GraphError, match="this graph has been freed"):
        ta.grad(out, x, start)


def test_inputs_of_grad_may_come_from_an_iterator_or_a_dict() -> None:
    layer = nn.Linear(2, 1)
    x = ta.tensor([[3.0, -4.0]])
    weights = dict(layer.named_parameters())
    for inputs in (
        layer.parameters(),
        weights.values(),
        iter(weights.values()),
        [*weights.values()],
    ):
        of_weight, of_bias = ta.grad(layer(x), inputs)
        assert of_weight.tolist() == [[3.0, -4.0]]
        assert of_bias.tolist() == [1.0]
    with pytest.raises(TypeError, match="a sequence of Tensors, got dict"):
        ta.grad(layer(x), weights)


def test_an_input_that_plays_no_part() -> None:
    x, y = leaf(0.5, -2.0), leaf(1.0)
    out = (x * 3.0).sum()
    with pytest.raises(GraphError, match="no output depends on input 1: allow_unused=True gives"):
        ta.grad(out, [x, y], retain_graph=True)
    of_x, of_y = ta.grad(out, [x, y], allow_unused=True)
    assert (of_x.tolist(), of_y) == ([3.0, 3.0], None)


def test_second_derivatives_go_through_what_was_broadcast() -> None:
    """y = a^2 x^2 over two rows: d y / d a = 2 a x^2, and d (2 a sum(g x^2)) / d x = 4 a g x."""
    a, x = leaf(0.5), ta.tensor([[1.0, 2.0], [-3.0, 4.0]], requires_grad=True)
    weights = ta.tensor([[1.0, -1.0], [2.0, 0.5]])
    (of_a,) = ta.grad((a * a) * (x * x), a, weights, create_graph=True)
    assert of_a.tolist() == [1.0 * (1 - 4 + 18 + 8)]
    (of_x,) = ta.grad(of_a, x, ta.tensor([-2.0]))
    np.testing.assert_allclose(of_x.numpy(), -2 * 2 * (weights * x).detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_copy_of_a_leaf_gets_gradients(copied: Callable[[ta.Tensor], ta.Tensor]) -> None:
    x = leaf(0.5, -2.0)
    twin = copied(x)
    (twin * 3.0).backward(ta.tensor([1.0, -1.0]))
    assert twin.grad.tolist() == [3.0, -3.0]
    assert x.grad is None


def test_a_warning_of_grad_points_to_the_line_that_asked() -> None:
    computed = leaf(0.5, -2.0) * 2.0
    with pytest.warns(UserWarning, match="mul computed this tensor") as caught:
        assert computed.grad is None
    assert caught[0].filename == __file__


def test_a_warning_of_a_replaced_rule_points_to_the_rule() -> None:
    op = ta.op(lambda x, y: x * y)
    op.vjp("x", "y")(lambda grad, x, y: (grad * y, grad * x))
    with pytest.warns(UserWarning, match=r"replaces one for \['y'\] too") as caught:
        op.vjp("x")(lambda grad, y: grad * y)
    assert caught[0].filename == __file__


class InterruptedSwitch:
    """The switch for recording, with Ctrl-C right after it was switched for the first time."""

    def __init__(self, switch: Any) -> None:
        self.get, self.switch, self.times = switch.get, switch, 0

    def set(self, value: bool) -> None:
        self.switch.set(value)
        self.times += 1
        if self.times == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("enabled", [True, False])
def test_an_interrupt_right_after_the_switch_brings_the_setting_back(
    monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    switch = grad_mode.recording
    block, decorated = (
        (ta.no_grad(), ta.no_grad(abs)) if enabled else (ta.enable_grad(), ta.enable_grad(abs))
    )
    with ta.set_grad_enabled(enabled):
        for enter in (block.__enter__, lambda: decorated(-1)):
            monkeypatch.setattr(grad_mode, "recording", InterruptedSwitch(switch))
            with pytest.raises(KeyboardInterrupt):
                enter()
            assert ta.is_grad_enabled() is enabled
        monkeypatch.undo()


def test_a_number_of_numpy_becomes_an_array() -> None:
    x = wrap(np.float32(2.0))
    x[...] = 3.0
    assert (x.shape, x.item()) == ((), 3.0)


# Changes in place


@pytest.mark.parametrize(("index", "value"), [(5, 1.0), (slice(2), [1.0, 2.0, 3.0])])
def test_a_write_that_fails_is_no_change(index: Any, value: Any) -> None:
    weight, x = leaf(0.5, -2.0), ta.tensor([3.0, 4.0])
    out = weight * x
    with pytest.raises((IndexError, ShapeError)):
        x[index] = value
    out.backward(ta.tensor([1.0, -1.0]))
    assert weight.grad.tolist() == [3.0, -4.0]
    out = weight * x
    x[0] = 5.0
    with pytest.raises(InPlaceError, match="an array that mul needs"):
        out.backward(ta.tensor([1.0, -1.0]))


def test_a_change_counts_when_it_begins_and_when_it_ends() -> None:
    version, writers = Version(), []

    def change() -> None:
        version.begin_change()
        writers.append((version.writer, version.changes))
        version.end_change()
        writers.append((version.writer, version.changes))

    thread = threading.Thread(target=change)
    thread.start()
    thread.join()
    assert writers == [(thread.ident, 1), (0, 2)]


@pytest.mark.parametrize(
    "record",
    [lambda w: w * w, lambda w: w.T * w.T.detach(), lambda w: 1.0 / w[:1]],
    ids=["itself", "a transpose", "a row"],
)
def test_a_graph_recorded_while_another_thread_writes_is_refused(record: Any) -> None:
    """While it writes, and after it, because nobody knows which numbers the graph has."""

    def in_another_thread(function: Any) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    w = ta.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    in_another_thread(w._version.begin_change)
    out = record(w)
    for is_over in (False, True):
        if is_over:
            in_another_thread(w._version.end_change)
        for call in (out.sum().backward, lambda: ta.grad(out.sum(), w)):
            with pytest.raises(InPlaceError, match=r"^an array that (mul|div) needs for its grad"):
                call()
    assert w.grad is None
    record(w).sum().backward()


def test_others_may_hold_a_weak_reference_to_the_memory() -> None:
    array = np.zeros(3, np.float32)
    x = ta.from_numpy(array, copy=False)
    reference, view = weakref.ref(array), x[1:]
    x += 2.0
    assert view.tolist() == [2.0, 2.0]
    assert reference() is array
    weight = leaf(1.0, 3.0)
    view *= weight
    assert x.tolist() == [2.0, 2.0, 6.0]


# Numbers and names


def test_the_threshold_of_dropout_fits_into_32_bits() -> None:
    assert random.drop_threshold(0.0) == 0
    assert random.drop_threshold(0.5) == 2**31
    assert random.drop_threshold(1.0) == random.drop_threshold(1 - 1e-12) == 2**32 - 1


def test_names_of_a_module_are_those_that_it_defines() -> None:
    space = {"__name__": "tinyattn.nn", "np": np, "Linear": nn.Linear, "pi": 3.14, "mean": np.mean}
    assert names.own_names(space) == ["Linear"]
    module: dict[str, Any] = {"first": 1}
    names.offer(module, "ta", ["first"])
    assert (module["__all__"], module["__dir__"]()) == (["first"], ["first"])
    with pytest.raises(AttributeError, match="second"):
        module["__getattr__"]("second")


@pytest.mark.parametrize("name", ["rand", "randn", "rand_like", "randn_like", "alibi_bias"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8"])
def test_what_makes_floats_names_itself_beside_another_dtype(name: str, dtype: str) -> None:
    make: Any = F.alibi_bias if name == "alibi_bias" else getattr(ta, name)
    given: Any = (ta.ones(2),) if name.endswith("_like") else (2, 3)
    said = f"{name.removesuffix('_like')} needs a floating dtype, got {dtype}: use .to(ta.float32)"
    with pytest.raises(DtypeError) as caught:
        make(*given, dtype=dtype)
    assert str(caught.value) == said


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8"])
def test_what_requires_gradients_is_written_into_floats_alone(dtype: str) -> None:
    x = ta.ones(3, dtype=dtype)
    with pytest.raises(DtypeError, match=f"is written into floats, got {dtype}: use"):
        x[0] = leaf(1.0)[0]
    assert x.tolist() == [1, 1, 1]
    x[0] = leaf(0.0)[0].detach()
    assert x.tolist() == [0, 1, 1]


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_one_input_that_is_named_twice_share_no_memory(create_graph: bool) -> None:
    x, w = leaf(1.0, -2.0), leaf(0.5, 3.0)
    found = ta.grad(x * w, [w, x, x, w, x], ta.tensor([1.0, -1.0]), create_graph=create_graph)
    of_w, of_x = [1.0, 2.0], [0.5, -3.0]
    assert [g.tolist() for g in found] == [of_w, of_x, of_x, of_w, of_x]
    for i, gradient in enumerate(found):
        for other in found[:i]:
            assert not np.shares_memory(gradient._data, other._data)


@pytest.mark.parametrize("kind", [bool, np.bool_], ids=["python", "numpy"])
@pytest.mark.parametrize("value", [True, False])
def test_each_reduction_takes_a_boolean_of_numpy_too(value: bool, kind: Any) -> None:
    x = ta.tensor([[1.0, -2.0, 4.0], [3.0, 0.5, 2.0]])
    single = ["max", "min", "prod", "argmax", "argmin"]
    several = ["sum", "mean", "var", "std", "norm", "amax", "amin", "logsumexp", "all", "any"]
    for name in single + several:
        out: Any = getattr(x, name)(dim=1, keepdim=kind(value))
        out = out[0] if isinstance(out, tuple) else out
        assert out.shape == ((2, 1) if value else (2,))


def test_a_number_that_no_float_holds_is_named_with_the_op() -> None:
    x, large = ta.ones(2), 10**400
    for name, call in (("mul", lambda: x * large), ("add", lambda: x + large)):
        with pytest.raises(
            DtypeError, match=rf"^{name} does not take \(float32\[2\], int\): int too"
        ):
            call()


def test_random_numbers_have_all_digits_of_their_dtype() -> None:
    for make in (ta.rand, ta.randn):
        x = make(64, dtype=ta.float64).numpy()
        assert (x != x.astype(np.float32)).mean() > 0.9


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_an_integer_of_numpy_takes_the_dtype_beside_it(dtype: str) -> None:
    x = ta.tensor([3, 5], dtype=dtype)
    for out in (x + np.int64(1), np.int64(1) + x, x * np.uint8(2), x - np.int16(1)):
        assert out.dtype == dtype


def test_pieces_name_the_dimension_that_they_do_not_fill() -> None:
    for dim in (0, 1):
        with pytest.raises(ShapeError) as caught:
            ta.ones(3, 3).split([1, 1], dim)
        assert str(caught.value) == f"split sizes [1, 1] do not add up to 3 (dim {dim})"


def test_a_module_as_a_key_would_not_be_found_either() -> None:
    module = nn.Module()
    for name, value in (("keys", {nn.ReLU(): 1}), ("values", {1: [nn.ReLU()]})):
        with pytest.raises(TypeError, match=f"^'{name}' is a dict with modules"):
            setattr(module, name, value)
