"""What a leaf is, keeps and refuses: frozen and trained again, with other data, copied, pickled."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import leaf
from messages import Refused, all_differences

import tinyattn as ta
from tinyattn import nn
from tinyattn.base.names import UnknownNameError
from tinyattn.errors import DtypeError, GraphError, InPlaceError, ShapeError


def trained() -> Any:
    """A leaf with a gradient, [3, -6]."""
    x = leaf([1.0, -2.0], "float32")
    (x * 3).backward(ta.tensor([1.0, -2.0]))
    return x


INTEGERS = "a tensor that requires gradients needs a floating dtype, got int64: use .to(ta.float32)"
FLOATS = ["float16", "float32", "float64"]


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_other_data_keep_a_gradient_that_fits_them(size: int, dtype: str, is_frozen: bool) -> None:
    """A gradient of another shape or dtype is gone, also after the tensor is trained again."""
    x = trained()
    if is_frozen:
        x.requires_grad_(False)
    x.data = np.arange(size).astype(dtype)
    fits = (size, dtype) == (2, "float32")
    assert (x.dtype, x.requires_grad) == (dtype, not is_frozen)
    assert (None if x.grad is None else x.grad.tolist()) == ([3.0, -6.0] if fits else None)
    x.requires_grad = True
    assert (None if x.grad is None else x.grad.tolist()) == ([3.0, -6.0] if fits else None)
    (x * 2).backward(ta.ones(size, dtype=dtype))
    assert x.grad.dtype == dtype
    assert x.grad.tolist() == ([5.0, -4.0] if fits else [2.0] * size)


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(FLOATS, 2)])
def test_a_frozen_leaf_of_another_dtype_is_another_leaf(before: str, after: str) -> None:
    x = leaf([1.0, -2.0], before)
    (x * 3).backward(ta.tensor([1.0, -2.0], dtype=before))
    former = x._node
    x.requires_grad = False
    x._data = x._data.astype(after)  # as what loads a state may do
    assert (x.grad, x._former_leaf is former) == (None, True)
    x.requires_grad = True
    assert (x.grad, x._node is former) == (None, False)
    (x * 2).backward(ta.tensor([1.0, -1.0], dtype=after))
    assert (x.grad.dtype, x.grad.tolist()) == (after, [2.0, -2.0])


def test_a_frozen_leaf_is_the_same_leaf_when_it_is_trained_again() -> None:
    x = trained()
    out = x * 5
    x.requires_grad = False
    assert (x.requires_grad, x.is_leaf, x.grad_fn) == (False, True, None)
    assert x.grad.tolist() == [3.0, -6.0]
    out.backward(ta.ones(2), retain_graph=True)
    assert x.grad.tolist() == [3.0, -6.0]  # no backward adds to it
    assert x.requires_grad_() is x
    out.backward(ta.ones(2))
    assert x.grad.tolist() == [8.0, -1.0]
    assert x.requires_grad_(False) is x
    x.grad = None
    assert x.grad is None


def test_what_a_gradient_may_be() -> None:
    x, plain, out = leaf([1.0, 2.0], "float32"), ta.ones(2), leaf([1.0, 2.0]) * 2

    def give(value: Any, to: ta.Tensor = x) -> Callable[[], None]:
        return lambda: setattr(to, "grad", value)

    ints, none = ta.tensor([1, 2]), "a tensor that does not require gradients has no grad"
    refused: list[Refused] = [
        (give([1.0, 2.0]), TypeError, "grad must be a Tensor or None, got list"),
        (give(ta.ones(3)), ShapeError, "grad must have shape (2,), got (3,)"),
        (give(ta.ones(1)), ShapeError, "grad must have shape (2,), got (1,)"),
        (give(ta.ones(2).double()), DtypeError, "grad must have dtype float32, got float64"),
        (give(ta.ones(2), plain), GraphError, none),
        (plain.retain_grad, GraphError, "retain_grad: this tensor does not require gradients"),
        (
            lambda: setattr(out, "requires_grad", False),
            GraphError,
            "only a leaf can stop requiring gradients; use detach()",
        ),
        (
            lambda: setattr(ints, "requires_grad", True),
            DtypeError,
            INTEGERS,
        ),
        (
            lambda: copy.deepcopy(out),
            GraphError,
            "only leaves can be copied deeply: detach() this tensor first",
        ),
        (
            lambda: pickle.dumps(out),
            GraphError,
            "only leaves can be pickled: detach() this tensor first",
        ),
        (
            lambda: setattr(out, "data", np.ones(2)),
            GraphError,
            "data of a computed tensor cannot be replaced: use detach() first",
        ),
        (
            lambda: setattr(x, "data", np.array([1, 2])),
            DtypeError,
            INTEGERS,
        ),
    ]  # fmt: skip
    assert not all_differences(refused)
    assert x.grad is None
    x.grad = given = ta.tensor([5.0, -1.0])
    assert x.grad is given
    plain.grad = None  # says nothing, as in PyTorch
    out.requires_grad = True  # it does already
    plain.requires_grad = False


def test_a_gradient_of_a_computed_tensor_is_kept_on_demand() -> None:
    x = leaf([1.0, 2.0])
    y, z = x * 2, x * 3
    y.retain_grad()
    (y * z).backward(ta.tensor([1.0, -1.0]))
    assert y.grad.tolist() == [3.0, -6.0]
    with pytest.warns(
        UserWarning, match=r"^mul computed this tensor, and backward fills \.grad"
    ) as w:
        assert z.grad is None
    assert w[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (x.grad is None, y.grad is None) == (False, False)
        assert ta.ones(2).grad is None
        y.grad = None
        assert y.grad is None


def test_detached_tensors_share_memory_and_its_changes() -> None:
    x = trained()
    y = x.detach()
    assert np.shares_memory(x._data, y._data)
    assert (y.requires_grad, y.grad, y.is_leaf) == (False, None, True)
    out = x * x
    y[0] = 7.0
    assert x.tolist() == [7.0, -2.0]
    with pytest.raises(InPlaceError):
        out.sum().backward()


COPIES: dict[str, tuple[Callable[[Any], Any], bool]] = {  # and whether the memory is shared
    "copy": (copy.copy, True),
    "deepcopy": (copy.deepcopy, False),
    "pickle": (lambda x: pickle.loads(pickle.dumps(x)), False),
}


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_a_leaf_has_a_gradient_of_its_own(name: str, is_frozen: bool) -> None:
    make, is_shared = COPIES[name]
    x = trained()
    x.requires_grad = not is_frozen
    twin = make(x)
    assert np.shares_memory(twin._data, x._data) is is_shared
    assert (twin.requires_grad, twin.dtype, twin.tolist()) == (not is_frozen, x.dtype, x.tolist())
    assert twin.dtype is x.dtype
    assert twin.grad.tolist() == [3.0, -6.0]
    twin.requires_grad = True
    (twin * 2).backward(ta.ones(2))
    assert (twin.grad.tolist(), x.grad.tolist()) == ([5.0, -4.0], [3.0, -6.0])
    assert make(ta.ones(2)).grad is None
    without = make(leaf([1.0]))
    assert (without.requires_grad, without.grad) == (True, None)


class Noted(nn.Parameter):
    """A subclass, whose objects have attributes; here, because pickle looks for it by its name."""

    note: list[str]


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_a_parameter_keeps_its_attributes(name: str) -> None:
    """Its gradient stays behind in a deep copy, as in PyTorch."""
    weight = Noted(ta.tensor([1.0, -2.0]))
    weight.note = ["a"]
    (weight * 3).backward(ta.tensor([1.0, -2.0]))
    twin = COPIES[name][0](weight)
    assert type(twin) is Noted
    assert twin.note == ["a"]
    assert (twin.note is weight.note) is (name == "copy")
    assert (twin.grad is None) is (name != "copy")


def test_a_list_that_holds_a_leaf_twice_holds_its_copy_twice() -> None:
    x = trained()
    one, other = copy.deepcopy([x, x])
    assert one is other is not x


PROPERTIES = [
    name
    for part in ta.Tensor.__mro__[:-1]
    for name, member in vars(part).items()
    if isinstance(member, property)
]


@pytest.mark.parametrize("name", PROPERTIES)
def test_an_error_inside_a_property_is_not_that_of_an_unknown_name(name: str) -> None:
    blank = object.__new__(ta.Tensor)
    with pytest.raises(
        AttributeError, match=r"^'.*Tensor' object has no attribute '_\w+'$"
    ) as caught:
        getattr(blank, name)
    assert not isinstance(caught.value, UnknownNameError)


def test_an_unknown_name_of_a_tensor_and_of_its_data() -> None:
    x = ta.ones(2)
    owner: Any
    for owner in (x, x.data):
        with pytest.raises(UnknownNameError, match=r"^tinyattn has no Tensor\.nothing"):
            _ = owner.nothing
    with pytest.raises(AttributeError) as caught:
        _ = x.data.softmax
    text = "x.data is an array of NumPy: write x.detach().softmax, of a Tensor"
    assert (type(caught.value), str(caught.value)) == (AttributeError, text)
