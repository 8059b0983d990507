"""Functions whose arguments lie on two devices, or of which one is a number or a list.

On the stand-in for CuPy, or with `-m gpu` on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DeviceError

Pair = tuple[Callable[[ta.Tensor], ta.Tensor], list[float]]

OF_FLOATS: dict[str, Pair] = {
    "a number % x": (lambda x: 7.5 % x, [1.5, -0.5, 0.5]),
    "x % a number": (lambda x: x % 1.5, [0.5, 0.5, 1]),
    "a number // x": (lambda x: 7.5 // x, [3, -2, 7]),
    "x // a number": (lambda x: x // 1.5, [1, -3, 0]),
    "the larger of x and a number": (lambda x: ta.maximum(x, 0.5), [2, 0.5, 1]),
    "the smaller of x and a number": (lambda x: ta.minimum(x, 0.5), [0.5, -4, 0.5]),
    "x where a list is true": (lambda x: ta.where([True, False, True], x, 9.0), [2, 9, 1]),
    "x where a list is false": (lambda x: ta.where([True, False, True], 9.0, x), [9, -4, 9]),
    "x where numbers are not 0": (lambda x: ta.where(x - 1, x, 0.0), [2, -4, 0]),
    "x filled where a list is true": (lambda x: x.masked_fill([True, False, False], 9), [9, -4, 1]),
    "a root": (lambda x: (x * x) ** -0.5, [0.5, 0.25, 1]),
    "x between numbers": (lambda x: x.clamp(-1, 1.5), [1.5, -1, 1]),
}
OF_INTEGERS: dict[str, Pair] = {
    "a number % x": (lambda x: 7 % x, [1, -1, 0]),
    "a number // x": (lambda x: 7 // x, [3, -2, 7]),
    "a fraction % x": (lambda x: 7.5 % x, [1.5, -0.5, 0.5]),
    "x % a fraction": (lambda x: x % 1.5, [0.5, 0.5, 1]),
    "x // a number": (lambda x: x // 3, [0, -2, 0]),
    "the larger of x and a number": (lambda x: ta.maximum(x, 1), [2, 1, 1]),
}


def is_on_device(x: ta.Tensor, cuda: Any) -> bool:
    return x.device == "cuda" and type(x.data) is cuda.ndarray


@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats_on_the_device_beside_what_is_not_there(name: str, cuda: Any) -> None:
    function, right = OF_FLOATS[name]
    found = function(ta.tensor([2.0, -4.0, 1.0], device="cuda"))
    assert is_on_device(found, cuda)
    assert found.tolist() == right


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers_on_the_device_beside_numbers(name: str, cuda: Any) -> None:
    function, right = OF_INTEGERS[name]
    found = function(ta.tensor([2, -4, 1], device="cuda"))
    assert is_on_device(found, cuda)
    assert found.tolist() == right


def test_a_negative_power_of_integers_on_the_device_is_refused(cuda: Any) -> None:
    x = ta.tensor([2, 3], device="cuda")
    for wrong in (lambda: x ** ta.tensor([-1, 2], device="cuda"), lambda: 2 ** (x - 4)):
        with pytest.raises(ValueError, match=r"an integer to the power -[12] is a fraction"):
            wrong().tolist()
    assert (x ** ta.tensor([0, 2], device="cuda")).tolist() == [1, 9]
    np.testing.assert_allclose((x**-0.5).numpy(), np.array([2, 3]) ** -0.5, rtol=1e-6)


def test_tensors_on_two_devices_are_refused(cuda: Any) -> None:
    here, there = ta.tensor([1.0, 2.0]), ta.tensor([1.0, 2.0], device="cuda")
    for wrong in (
        lambda: ta.where(there > 1, here, here),
        lambda: ta.where(there > 1, here, 0.0),
        lambda: ta.where(here > 1, there, there),
        lambda: ta.maximum(here, there),
        lambda: there % here,
        lambda: here // there,
        lambda: ta.einsum("i,i->", here, there),
        lambda: F.mse_loss(there, here),
        lambda: F.kl_div(here, there),
        lambda: F.binary_cross_entropy_with_logits(here, there),
    ):
        with pytest.raises(DeviceError):
            wrong()


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_logits_and_targets_lie_on_one_device(name: str, cuda: Any) -> None:
    function, weight = getattr(F, name), ta.ones(3)
    here, there = ta.ones(2, 3), ta.ones(2, 3, device="cuda")
    for logits, classes, text in (
        (there, ta.tensor([0, 1]), "logits is on cuda, target on cpu"),
        (here, ta.tensor([0, 1], device="cuda"), "logits is on cpu, target on cuda"),
    ):
        with pytest.raises(DeviceError) as found:
            function(logits, classes)
        assert str(found.value) == f"{name}: {text}: move one with .to(device)"
    with pytest.raises(DeviceError, match=r"^a weighted loss: scores is on cuda, weight on cpu"):
        function(there, [0, 1], weight)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("classes", [[0, 3], [-1, 0]])
def test_classes_in_a_list_are_checked_before_they_move(
    name: str, classes: list[int], cuda: Any
) -> None:
    wrong = max(classes, key=abs)
    with pytest.raises(IndexError, match=f"class {wrong} is out of range for 3 classes"):
        getattr(F, name)(ta.ones(2, 3, device="cuda"), classes)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("shape", [(4,), (5, 4), (3, 4, 2)])
@pytest.mark.parametrize("is_list", [True, False])
def test_losses_on_the_device_are_those_of_the_host(
    name: str, shape: tuple[int, ...], is_list: bool, reduction: str, cuda: Any, rng: Any
) -> None:
    numbers, axis = signed(rng, *shape).astype(np.float32), min(1, len(shape) - 1)
    target = rng.integers(0, 4, (*shape[:axis], *shape[axis + 1 :]))
    if target.size > 1:
        target.flat[1] = -7
    options: dict[str, Any] = {"ignore_index": -7, "reduction": reduction}
    x = ta.tensor(numbers, requires_grad=True)
    right = getattr(F, name)(x, target, **options)
    grad = ta.tensor(signed(rng, *right.shape).astype(np.float32))
    (slope,) = ta.grad(right, x, grad)
    x = ta.tensor(numbers, requires_grad=True, device="cuda")
    classes = target.tolist() if is_list else ta.tensor(target, device="cuda")
    found = getattr(F, name)(x, classes, **options)
    assert is_on_device(found.detach(), cuda)
    np.testing.assert_allclose(found.detach().numpy(), right.detach().numpy(), rtol=1e-5)
    (found_slope,) = ta.grad(found, x, grad.to("cuda"))
    np.testing.assert_allclose(found_slope.numpy(), slope.numpy(), rtol=1e-5, atol=1e-6)
