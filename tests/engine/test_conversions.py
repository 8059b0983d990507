"""To another dtype or device: each way to say it does the same, and keeps the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import leaf
from messages import all_differences

import tinyattn as ta
from tinyattn.errors import DtypeError, ShapeError

FLOATS = [np.float16, np.float32, np.float64]
DTYPES = [*FLOATS, np.int8, np.int16, np.int32, np.int64, np.uint8, np.bool_]
VALUES = [0.5, 2.0, 1.25, 0.0]
COTANGENT = [1.0, -2.0, 0.25, 8.0]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)


def assert_moved(found: ta.Tensor, x: ta.Tensor, dtype: Any, device: str) -> None:
    """The values of x in this dtype and on this device, and a gradient that comes back to x."""
    assert (found.dtype, found.device) == (np.dtype(dtype), device)
    np.testing.assert_array_equal(found.numpy(), x.numpy().astype(dtype), strict=True)
    if (x.dtype, x.device) == (found.dtype, device):
        assert found is x
    assert found.requires_grad == (x.requires_grad and found.dtype.kind == "f")
    if found.requires_grad:
        (gradient,) = ta.grad(found, x, ta.tensor(COTANGENT, dtype=dtype, device=device))
        assert (gradient.dtype, gradient.device) == (x.dtype, x.device)
        assert gradient.tolist() == COTANGENT


# Ways to say a dtype and a device, each as the arguments of `to`.
WAYS: dict[str, Callable[[Any, str], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "device, dtype": lambda dtype, device: ((device, dtype), {}),
    "dtype, device": lambda dtype, device: ((dtype, device), {}),
    "a number for the device": lambda dtype, device: ((f"{device}:0", dtype), {}),
    "the name of the dtype": lambda dtype, device: ((device, np.dtype(dtype).name), {}),
    "by name": lambda dtype, device: ((), {"dtype": dtype, "device": device}),
    "by name, with a number": lambda dtype, device: ((), {"dtype": dtype, "device": f"{device}:0"}),
    "the device by name": lambda dtype, device: ((dtype,), {"device": device}),
    "the dtype by name": lambda dtype, device: ((device,), {"dtype": dtype}),
    "a tensor": lambda dtype, device: ((ta.ones(1, dtype=dtype, device=device),), {}),
}


@each_dtype
@pytest.mark.parametrize("source", FLOATS, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_name_a_dtype_and_the_host(way: str, source: Any, dtype: Any) -> None:
    x = leaf(VALUES, source)
    arguments, options = WAYS[way](dtype, "cpu")
    assert_moved(x.to(*arguments, **options), x, dtype, "cpu")


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32], ids=["64", "32", "integers"])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_name_a_dtype_and_a_device(way: str, dtype: Any, cuda: Any) -> None:
    for source in ("cpu", "cuda"):
        for target in ("cpu", "cuda"):
            x = ta.tensor(VALUES, device=source, requires_grad=True)
            arguments, options = WAYS[way](dtype, target)
            assert_moved(x.to(*arguments, **options), x, dtype, target)


METHODS = {
    "float": np.float32, "double": np.float64, "half": np.float16, "long": np.int64,
    "bool": np.bool_,
}  # fmt: skip


@each_dtype
def test_each_method_is_one_call_of_to(dtype: Any) -> None:
    """Whatever the tensor was, and itself where nothing has to change."""
    x = ta.tensor(VALUES).to(dtype)
    x.requires_grad = x.dtype.kind == "f"
    for name, target in METHODS.items():
        assert_moved(getattr(x, name)(), x, target, "cpu")
        assert_moved(x.type_as(ta.ones(1, dtype=target)), x, target, "cpu")
    for same in (x.cpu(), x.to("cpu"), x.to("cpu:0"), x.to(device="cpu:0"), x.to(), x.to(x)):
        assert same is x


def test_methods_to_a_device_and_back_keep_the_graph(cuda: Any) -> None:
    for source in ("cpu", "cuda"):
        x = ta.tensor(VALUES, device=source, requires_grad=True)
        for found, target in (
            (x.cpu(), "cpu"), (x.cuda(), "cuda"), (x.to("cpu:0"), "cpu"), (x.to("cuda:0"), "cuda"),
            (x.cuda().cpu(), "cpu"), (x.cpu().cuda(), "cuda"),
        ):  # fmt: skip
            assert found.device == target
            cotangent = ta.tensor(COTANGENT, device=target)
            (gradient,) = ta.grad(found, x, cotangent)
            assert (gradient.device, gradient.tolist()) == (source, COTANGENT)
        assert (x.cuda() if source == "cuda" else x.cpu()) is x


# What makes tensors


MAKERS: dict[str, tuple[Callable[..., ta.Tensor], list[float]]] = {
    "arange to 256": (lambda **o: ta.arange(256, **o), [*range(256)]),
    "arange to 300": (lambda **o: ta.arange(300, **o), [*range(300)]),
    "arange to 2": (lambda **o: ta.arange(2, **o), [0, 1]),
    "arange from -1": (lambda **o: ta.arange(-1, 2, **o), [-1, 0, 1]),
    "arange from -129": (lambda **o: ta.arange(-129, -127, **o), [-129, -128]),
    "arange of halves": (lambda **o: ta.arange(0, 2, 0.5, **o), [0, 0.5, 1, 1.5]),
    "arange of 2.0": (lambda **o: ta.arange(0.0, 4.0, 2.0, **o), [0, 2]),
    "arange beyond int32": (lambda **o: ta.arange(2**31, 2**31 + 2, **o), [2**31, 2**31 + 1]),
    "linspace of whole numbers": (lambda **o: ta.linspace(0, 4, 5, **o), [0, 1, 2, 3, 4]),
    "linspace of halves": (lambda **o: ta.linspace(0, 1, 3, **o), [0, 0.5, 1]),
    "linspace from -1": (lambda **o: ta.linspace(-1, 1, 3, **o), [-1, 0, 1]),
    "full of 200": (lambda **o: ta.full((2,), 200, **o), [200, 200]),
    "full of 1.5": (lambda **o: ta.full((2,), 1.5, **o), [1.5, 1.5]),
    "full of -1": (lambda **o: ta.full((2,), -1, **o), [-1, -1]),
    "full_like": (lambda **o: ta.full_like(ta.zeros(2), 40_000, **o), [40_000, 40_000]),
    "eye": (lambda **o: ta.eye(1, 2, **o).reshape(2), [1, 0]),
    "ones": (lambda **o: ta.ones(2, **o), [1, 1]),
    "tensor": (lambda **o: ta.tensor([0, 255.0], **o), [0, 255]),
    "as_tensor": (lambda **o: ta.as_tensor([0, 2], **o), [0, 2]),
    "as_tensor of a tensor": (lambda **o: ta.as_tensor(ta.tensor([0, -300]), **o), [0, -300]),
}


@each_dtype
@pytest.mark.parametrize("name", MAKERS)
def test_what_is_made_has_its_numbers_or_is_refused(name: str, dtype: Any) -> None:
    """Floats are rounded; of integers and booleans each number is exact, or an error names it."""
    make, numbers = MAKERS[name]
    values = np.array(numbers, np.float64)
    kind = np.dtype(dtype)
    with np.errstate(all="ignore"):
        expected = values.astype(dtype)
    wrong = [] if kind.kind == "f" else values[expected != values]
    if len(wrong):
        with pytest.raises(DtypeError) as caught:
            make(dtype=dtype)
        text = str(caught.value)
        number, _, rest = text.partition(" ")
        assert float(number) == wrong[0]
        assert rest == (
            f"does not fit into a tensor of {kind}: only x.to(dtype) of a Tensor wraps, and cuts "
            "fractions off"
        )
    else:
        made = make(dtype=dtype)
        np.testing.assert_array_equal(made.numpy(), expected, strict=True)
        assert not made.requires_grad


# To numbers of Python


@each_dtype
def test_the_truth_of_one_element_is_that_of_its_number(dtype: Any) -> None:
    numbers: list[Any] = [0, 1, 2, 100, -1, -100]
    if np.dtype(dtype).kind == "f":
        numbers += [0.5, -0.5, -0.0, 1e-5, -1e-5, np.inf, -np.inf, np.nan]
    for number in numbers:
        array = np.array([number]).astype(dtype)
        for shape in ((), (1,), (1, 1)):
            x = ta.tensor(array.reshape(shape))
            assert bool(x) is bool(array[0])
            assert (not x) is (not array[0])
            if np.isfinite(array[0]):
                assert float(x) == float(array[0])
                assert int(x) == int(array[0])
            assert str(x.item()) == str(array[0].item())


@pytest.mark.parametrize("shape", [(0,), (2,), (0, 3), (2, 1), (1, 2, 1)], ids=str)
def test_only_one_element_is_a_number(shape: tuple[int, ...]) -> None:
    """None and several are refused alike, each with what was asked for."""
    x, i = ta.zeros(shape), ta.zeros(shape, dtype=np.int64)
    truth = f"the truth of a tensor of shape {shape} is ambiguous: use any() or all()"
    item = f"item() and float() take one element, got shape {shape}"
    assert not all_differences([
        (lambda: bool(x), ShapeError, truth),
        (lambda: not i, ShapeError, truth),
        (lambda: x or 1, ShapeError, truth),
        (lambda: x.item(), ShapeError, item),
        (lambda: float(x), ShapeError, item),
        (lambda: int(i), ShapeError, item),
        (lambda: complex(x), ShapeError, item),
        (lambda: f"{x:.1f}", ShapeError, item),
        (lambda: i.__index__(), ShapeError, item),
        (lambda: x.__index__(), DtypeError, "only an integer tensor can be an index, got float32"),
    ])  # fmt: skip
