"""What may be read and written on "cuda": graphs notice changed arrays, indices stay in range.

On the stand-in for CuPy, or with `-m gpu` on a GPU.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from common import MAKERS

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import optim
from tinyattn.errors import DeviceError, InPlaceError, ShapeError


def leaf(values: Any) -> ta.Tensor:
    return ta.tensor(values, device="cuda", requires_grad=True)


# Changes in place


def gradient_or_error(output: ta.Tensor, x: ta.Tensor) -> Any:
    try:
        output.backward()
    except InPlaceError as error:
        return str(error)
    return x.grad.tolist()


def add_one(x: ta.Tensor) -> None:
    x += 1


def write_seven(x: ta.Tensor) -> None:
    x[0] = 7.0


FUNCTIONS: dict[str, Any] = {
    "x * x": lambda x: x * x,
    "sin": lambda x: x.sin(),
    "x @ x": lambda x: x @ x,
    "softmax": lambda x: ta.functional.softmax(x) * x,
}


@pytest.mark.parametrize("change", [add_one, write_seven], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_changed_array_never_gives_a_wrong_gradient(name, change, cuda):
    """An error if a graph needs what was overwritten, or the gradient at the old values."""
    found = []
    for device in ("cpu", "cuda"):
        x = ta.tensor([1.0, 2.0], device=device, requires_grad=True)
        (right,) = ta.grad(FUNCTIONS[name](x).sum(), [x])
        y = FUNCTIONS[name](x).sum()
        with ta.no_grad():
            change(x)
        outcome = gradient_or_error(y, x)
        if change is write_seven:
            assert "changed in place" in outcome
        else:
            assert outcome == right.tolist()
        found.append((x.tolist(), (x * x).sum().item()))
    assert found[0] == found[1]
    assert found[0][0] == ([2.0, 3.0] if change is add_one else [7.0, 2.0])


def test_nor_does_memory_that_another_tensor_shares(cuda):
    for number in range(3):
        x = ta.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda")
        rows = x[0:1], x[1:2]
        w = leaf([[2.0, 2.0]])
        y = (rows[0] * w).sum()  # needs a view of x
        shared = (x, *rows)[number]
        shared[0, 0] = 7.0
        with pytest.raises(InPlaceError, match="changed in place"):
            y.backward()
        assert w.grad is None
        right = [[[7.0, 2.0], [3.0, 4.0]], [[7.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [7.0, 4.0]]]
        assert x.tolist() == right[number]


def test_nor_does_an_array_of_the_callers_own(cuda):
    """It is copied, because the caller may write to it, and no Version would count that."""
    x, array = leaf([2.0, 3.0]), cuda.asarray(np.array([3.0, 4.0], np.float32))
    y, z = x * array, ta.ops.where(x > 2, x, array)
    array[...] = 100.0
    (y + z).backward(ta.ones(2, device="cuda"))
    assert x.grad.tolist() == [3.0, 5.0]


@pytest.mark.parametrize(("here", "there"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_gradient_returns_to_the_device_of_its_tensor(here, there, cuda):
    x = ta.tensor([1.0, -2.0], device=here, requires_grad=True)
    (x.to(there) * ta.tensor([3.0, 5.0], device=there)).backward(ta.tensor([2.0, -1.0]).to(there))
    assert x.grad.device == here
    assert x.grad.tolist() == [6, -5]


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam])
def test_nor_does_a_parameter_that_was_moved(kind, cuda):
    found = []
    for device in ("cpu", "cuda"):
        x = ta.tensor([1.0, -2.0], device=device, requires_grad=True)
        optimizer = kind([x], 0.5)
        x.grad = ta.ones(2, device=device)
        y = (x * x).sum()
        optimizer.step()
        found.append(x.tolist())
        with pytest.raises(InPlaceError, match="changed in place"):
            y.backward()
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0] != [1.0, -2.0]


def test_clipping_leaves_a_living_graph_its_gradients(cuda):
    """There they become new arrays; here they are scaled in place where nobody looks."""
    found = []
    for device in ("cpu", "cuda"):
        a = ta.tensor([1.0, 2.0], device=device, requires_grad=True)
        (a * a * a).sum().backward(create_graph=True)
        penalty = (a.grad * a.grad).sum()
        view = a.grad.detach()
        w = ta.tensor([1.0, 2.0], device=device, requires_grad=True)
        z = (w * view.reshape(2)).sum()
        optim.clip_grad_norm_([a], 0.1)
        (second,) = ta.grad(penalty, [a])
        z.backward()
        found.append((a.grad.numpy(), second.numpy(), w.grad.numpy()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(found[0][2], [3.0, 12.0])


def test_a_gradient_that_is_shared_is_clipped_once(cuda):
    a, b = leaf([1.0, 1.0]), leaf([1.0, 1.0])
    a.grad = ta.tensor([3.0, 4.0], device="cuda")
    b.grad = a.grad.detach()
    assert optim.clip_grad_norm_([a, b, a], 1.0).item() == pytest.approx(5.0)
    for x in (a, b):
        np.testing.assert_allclose(x.grad.numpy(), [0.6, 0.8], rtol=1e-5)


# Indices

WITHIN: dict[str, Any] = {
    "list": [2, 0],
    "from behind": [-1, -3],
    "array": np.array([[0, 2]]),
    "with a slice": (slice(None), [1, -4]),
    "behind an ellipsis": (..., [3, -4]),
    "behind a new dimension": (None, [2]),
    "behind a boolean": (np.array([True, False, True]), [3, 0]),
    "two": ([0, 2], [3, -1]),
}
BEYOND: dict[str, Any] = {
    "list": [0, 3],
    "from behind": [-4],
    "array": np.array([[0, 7]]),
    "with a slice": (slice(None), [4]),
    "behind an ellipsis": (..., [-5]),
    "behind a new dimension": (None, [3]),
    "behind a boolean": (np.array([True, False, True]), [4, 0]),
    "two": ([0, 3], [3, -1]),
}


def on_device(index: Any) -> Any:
    """The same index with its arrays of integers on the device."""
    if isinstance(index, tuple):
        return tuple(map(on_device, index))
    return ta.tensor(index, device="cuda") if isinstance(index, (list, np.ndarray)) else index


@pytest.mark.parametrize("name", WITHIN)
def test_indices_within_range(name, cuda):
    values = np.arange(12.0).reshape(3, 4)
    index = WITHIN[name]
    plain = tuple(index) if isinstance(index, tuple) else np.asarray(index)
    for given in (index, on_device(index)):
        x = leaf(values)
        out = x[given]
        np.testing.assert_array_equal(out.numpy(), values[plain])
        out.backward(ta.ones(*out.shape, dtype=x.dtype, device="cuda"))
        wanted = np.zeros((3, 4))
        np.add.at(wanted, plain, 1.0)
        np.testing.assert_array_equal(x.grad.numpy(), wanted)


@pytest.mark.parametrize("name", BEYOND)
def test_indices_beyond_it_are_found(name, cuda):
    """At once where they come from the host, else when a value is next read."""
    x = leaf(np.arange(12.0).reshape(3, 4))
    with pytest.raises(IndexError, match="out of range for dimension"):
        x[BEYOND[name]]
    with pytest.raises(IndexError, match="out of range for dimension"):
        x[on_device(BEYOND[name])].numpy()
    plain = x.detach().clone()
    with pytest.raises(IndexError, match="out of range for dimension"):
        plain[BEYOND[name]] = 0.0
    assert plain.tolist() == x.tolist()


def test_a_boolean_array_counts_for_its_dimensions(cuda):
    values = np.arange(20.0).reshape(2, 2, 5)
    chosen = np.array([[True, False], [False, True]])
    x = ta.tensor(values, device="cuda")
    assert x[chosen, [4, -5]].tolist() == values[chosen, [4, -5]].tolist()
    with pytest.raises(IndexError, match="5 is out of range for dimension 2"):
        x[chosen, [5, 0]]


def test_more_indices_than_dimensions(cuda):
    with pytest.raises(IndexError):
        ta.ones(2, device="cuda")[[0], [1]]


# Writing

VALUES: dict[str, tuple[Any, Any]] = {
    "number": (0, 5.0),
    "list": (0, [1.0, 2.0, 3.0]),
    "array": (1, np.array([1.0, 2.0, 3.0])),
    "Tensor": (1, ta.tensor([1.0, 2.0, 3.0])),
    "rows": ([1, -2], [[1.0], [2.0]]),
    "boolean": (np.array([[True, False, True], [False, False, True]]), [7.0, 8.0, 9.0]),
    "everything": (..., np.ones((2, 3))),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_can_be_written(name, cuda):
    index, value = VALUES[name]
    wanted = np.zeros((2, 3), np.float32)
    wanted[index] = value.numpy() if isinstance(value, ta.Tensor) else value
    x = ta.zeros(2, 3, device="cuda")
    x[index] = value.to("cuda") if isinstance(value, ta.Tensor) else value
    np.testing.assert_array_equal(x.numpy(), wanted)


def test_what_cannot(cuda):
    x = ta.zeros(2, 3, device="cuda")
    with pytest.raises(ShapeError, match=r"shape \(2, 3\)"):
        x[0] = [1.0, 2.0]
    with pytest.raises(DeviceError, match=r"on cuda, .* on cpu"):
        x[0] = ta.ones(3)
    with pytest.raises(DeviceError, match=r"on cpu, .* on cuda"):
        ta.zeros(2, 3)[0] = x[0]
    assert not x.numpy().any()


# What makes a tensor on a device


def takes_device(function: Any) -> bool:
    try:
        return "device" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


@pytest.mark.parametrize("name", MAKERS)
def test_a_new_tensor_is_where_it_is_asked_for(name, cuda):
    """As many numbers there as on the CPU; what is like x is where x is, unless it is told."""
    make, arguments = getattr(ta, name), MAKERS[name]
    for device in ("cuda", "cpu"):
        x = ta.ones(2, device=device)
        own = device if "like" in name else "cpu"
        for asked, right in ((None, own), ("cuda", "cuda"), ("cpu", "cpu")):
            made = make(*arguments(x), device=asked)
            assert made.device == right
            assert made.shape[0] == 2
    if name in ("Tensor", "as_tensor", "tensor"):
        for asked, right in ((None, "cuda"), ("cuda", "cuda"), ("cpu", "cpu")):
            assert make(ta.ones(2, device="cuda"), device=asked).device == right


def test_all_functions_that_take_a_device_are_listed():
    assert {name for name in dir(ta) if takes_device(getattr(ta, name))} == set(MAKERS)


# Numbers for kernels


@pytest.mark.parametrize("lr", [np.float32(1e-2), np.float64(1e-2), 1])
def test_any_kind_of_number_is_a_learning_rate(lr, cuda):
    """A kernel reads as many bytes as it expects, whatever it was given."""
    found = []
    for device in ("cpu", "cuda"):
        x = ta.tensor([3.0, -2.0], device=device, requires_grad=True)  # 1.0 would cancel
        optimizer = optim.AdamW([x])
        optimizer.lr = lr
        if type(lr) is np.float32:  # set later, when nobody checks them
            optimizer.betas = (np.float32(0.9), np.float32(0.99))
        x.grad = ta.ones(2, device=device)
        optimizer.step()
        found.append(x.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert found[0][0] != 3.0


@pytest.mark.parametrize("skip", [np.int32(-100), np.int64(-100), -100])
def test_any_kind_of_integer_says_which_class_to_leave_out(skip, cuda):
    scores = leaf([[1.0, 2.0], [0.5, 0.5]])
    loss = ta.functional.cross_entropy(scores, [1, -100], ignore_index=skip)
    assert loss.item() == pytest.approx(np.log1p(np.exp(-1.0)))


# Parameters in another order


def test_moments_follow_their_parameter_however_they_lie(cuda):
    """m and v loaded in Fortran order, and a parameter that changes its order."""
    found = []
    for device in ("cpu", "cuda"):
        values = np.arange(6.0).reshape(2, 3)
        x = ta.tensor(values.copy(order="F"), device=device, requires_grad=True)
        optimizer = optim.Adam([x], 0.1)
        for step in range(6):
            x.grad = ta.tensor(values - step, device=device)
            optimizer.step()
            if step == 1:
                x.data = x.data.copy(order="C")
            if step == 3:
                state = optimizer.state_dict()
                for name, moment in state["arrays"].items():
                    state["arrays"][name] = ta.tensor(moment.numpy().copy(order="F"))
                optimizer.load_state_dict(state)
        found.append(x.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


# Arguments of attention


@pytest.mark.parametrize(
    "hiding", [{"valid_lens": [2, 3]}, {"attn_mask": np.ones((3, 3), bool)}, {"window": 2}]
)
def test_attention_of_no_heads(hiding, cuda):
    q = ta.zeros(2, 0, 3, 4, device="cuda")
    out = F.scaled_dot_product_attention(q, q, q, **hiding)
    assert out.shape == (2, 0, 3, 4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", [np.ndarray.tolist, lambda x: x])
def test_a_float_mask_is_moved(form, dtype, cuda):
    """A list has no device and no dtype of its own."""
    numbers = np.array([[0.5, -np.inf, 0.0], [1.0, 2.0, -1.0]], dtype)
    x = np.random.default_rng(0).standard_normal((1, 3, 4)).astype(dtype)
    right, found = (
        F.scaled_dot_product_attention(
            *(ta.tensor(part, device=device) for part in (x[:, :2], x, x)), attn_mask=form(numbers)
        )
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(found.numpy(), right.numpy(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_integers_go_to_the_formulas_because_the_kernels_are_of_floats(dtype, cuda):
    numbers = np.array([7, 0, 5], dtype)
    for function in (F.relu, lambda x: x % 3, lambda x: x // 2):
        found, right = (function(ta.tensor(numbers, device=name)) for name in ("cuda", "cpu"))
        assert found.device == "cuda"
        assert found.dtype == right.dtype
        assert found.tolist() == right.tolist()
