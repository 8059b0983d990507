"""Further methods of tensors and modules, what they refuse and say, and samplers and data sets."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyattn.torch_names as ours
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.torch_names import nn
from tinyattn.torch_names.utils import data

DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")


def says(text: str) -> str:
    return f"^{re.escape(text)}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_class_of_a_tensor_as_text(torch: Any, dtype: str) -> None:
    found = []
    for space in (ours, torch):
        x = space.zeros(2, dtype=getattr(space, dtype))
        name = x.type()
        kind = getattr(space, name.partition(".")[2])
        assert isinstance(x, kind)
        wrong = space.DoubleTensor if dtype != "float64" else space.LongTensor
        assert not isinstance(x, wrong)
        one = space.ones(1)
        names = [name]
        if space is ours:  # PyTorch wants the GPU of the second name
            names += [name.replace("torch.", "torch.cuda."), name.partition(".")[2]]
        for target in (*names, kind, getattr(space, dtype)):
            assert one.type(target).dtype == x.dtype
        empty, sized, listed = kind(), kind(2, 3), kind([1, 0, 1])
        assert tuple(empty.shape) == (0,)
        assert tuple(sized.shape) == (2, 3)
        assert listed.tolist() == [1, 0, 1]
        assert empty.dtype == sized.dtype == listed.dtype == x.dtype
        found.append(name)
    assert found[0] == found[1]


def test_new_tensors_have_the_dtype_of_the_old(torch: Any) -> None:
    found = []
    for space in (ours, torch):
        x = space.zeros(2, dtype=space.float64)
        made = [
            x.new_zeros(2, 3), x.new_ones((2,)), x.new_full((2,), 3), x.new_tensor([1, 2]),
            x.new_zeros(2, dtype=space.int64), x.new_empty(4, 0),
        ]  # fmt: skip
        found.append([(str(y.dtype).rpartition(".")[2], y.tolist()) for y in made])
    assert found[0] == found[1]


@pytest.mark.parametrize("given", [(0, 2, 1), (1, 2, 2), (-1, 3, 1), (0, 3, 5), (1, 0, 1)])
def test_windows_of_a_dimension(torch: Any, given: tuple[int, int, int]) -> None:
    x = np.random.RandomState(0).standard_normal((3, 5))
    cotangent = None
    results = []
    for space in (ours, torch):
        tensor = space.tensor(x, requires_grad=True)
        out = tensor.unfold(*given)
        if cotangent is None:
            cotangent = np.random.RandomState(1).standard_normal(tuple(out.shape))
        out.backward(space.tensor(cotangent))
        results.append((out.detach().numpy(), tensor.grad.numpy()))
    for mine, right in zip(*results, strict=True):
        np.testing.assert_allclose(mine, right, atol=1e-14)


def test_windows_that_do_not_fit() -> None:
    x = ours.ones(3, 4)
    for given, message in [
        ((0, -1, 1), "size must be an integer >= 0, got -1"),
        ((0, 2, 0), "step must be an integer >= 1, got 0"),
        ((0, 4, 1), "windows of 4 in dimension 0 of shape (3, 4)"),
        ((-1, 5, 1), "windows of 5 in dimension 1 of shape (3, 4)"),
    ]:
        with pytest.raises(ShapeError, match=says(message)):
            x.unfold(*given)


def test_parts_are_registered_by_name(torch: Any) -> None:
    for space in (ours, torch):
        model = space.nn.Linear(2, 2)
        model.register_parameter("scale", space.nn.Parameter(space.ones(1)))
        model.register_parameter("none", None)
        model.add_module("inner", space.nn.Linear(2, 1))
        assert [name for name, _ in model.named_parameters()] == [
            "weight", "bias", "scale", "inner.weight", "inner.bias",
        ]  # fmt: skip
        assert model.get_parameter("inner.bias") is model.inner.bias
        assert model.get_submodule("inner") is model.inner
        assert model.none is None
        for target in ("inner.scale", "other"):
            with pytest.raises(AttributeError):
                model.get_parameter(target)
            with pytest.raises(AttributeError):
                model.get_submodule(target)
        for name in ("a.b", ""):
            with pytest.raises(KeyError):
                model.register_parameter(name, None)
            with pytest.raises(KeyError):
                model.add_module(name, None)
        model.mode = "fast"
        with pytest.raises(KeyError, match="mode"):
            model.add_module("mode", space.nn.Linear(1, 1))
        for wrong in (3, space.ones(2)):
            with pytest.raises(TypeError):
                model.register_parameter("more", wrong)
            with pytest.raises(TypeError):
                model.add_module("more", wrong)
        assert not hasattr(model, "more")


def test_a_part_that_does_not_fit_is_named() -> None:
    model: Any = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=says("'more' has to be a Parameter or None, got int 3")):
        model.register_parameter("more", 3)
    with pytest.raises(TypeError, match=says("'more' has to be a Module or None, got int 3")):
        model.add_module("more", 3)
    with pytest.raises(KeyError, match=r"the name of a part is a word without dots, got 'a\.b'"):
        model.register_parameter("a.b", None)
    model.mode = "fast"
    with pytest.raises(KeyError, match="Linear has an attribute 'mode' already"):
        model.add_module("mode", None)
    with pytest.raises(AttributeError, match=r"^this module has no 'x', but \['weight', 'bias'\]"):
        model.get_parameter("x")
    with pytest.raises(AttributeError, match=r"^this module has no 'x', but \[''\]"):
        model.get_submodule("x")


def test_the_dicts_of_parts_change_the_module(torch: Any) -> None:
    for space in (ours, torch):
        model = space.nn.Sequential(space.nn.Linear(2, 3), space.nn.Tanh())
        assert list(model._modules) == ["0", "1"]
        assert list(model[0]._parameters) == ["weight", "bias"]
        model._modules["1"] = space.nn.Identity()
        assert type(model[1]).__name__ == "Identity"
        model[0]._parameters["bias"] = None
        assert model[0].bias is None
        assert [type(part).__name__ for _, part in model._modules.items()] == ["Linear", "Identity"]
        del model._modules["1"]
        assert len(model) == 1


def test_a_state_shows_the_memory_of_the_module(torch: Any) -> None:
    for space in (ours, torch):
        model = space.nn.Linear(2, 2)
        state = model.state_dict()
        assert not state["weight"].requires_grad
        state["bias"][...] = 7.0
        assert model.bias.tolist() == [7.0, 7.0]


def test_a_tensor_that_is_detached_in_place(torch: Any) -> None:
    for space in (ours, torch):
        x = space.ones(2, requires_grad=True)
        y = 2 * x
        assert y.detach_() is y
        assert y.is_leaf
        assert not y.requires_grad
        assert not x.detach_().requires_grad
        z = space.ones(3, 2).transpose(0, 1)
        assert not z.is_contiguous()
        assert z.contiguous().is_contiguous()


def test_values_are_filled_in(torch: Any) -> None:
    found = []
    for space in (ours, torch):
        x = space.zeros(3, 3)
        x.fill_diagonal_(2.0)
        y = space.ones(2, 2).fill_(3)
        z = space.zeros(2, 2).copy_(space.tensor([1, 2]))
        w = space.ones(2).where(space.tensor([True, False]), space.zeros(2))
        found.append([t.tolist() for t in (x, y, z, w, space.ones(2).zero_())])
        assert (x.nelement(), y.view_as(space.ones(4)).shape[0]) == (9, 4)
        assert [x.is_cuda, x.is_sparse, x.is_quantized, x.is_nested] == [False] * 4
    assert found[0] == found[1]


@pytest.mark.parametrize("value", ["tensor", "list", "tuple", "dict", "number"])
@pytest.mark.parametrize("place", ["name", "open file", "memory"])
def test_what_is_saved_is_loaded(tmp_path: Path, value: str, place: str) -> None:
    x = ours.tensor([1.0, 2.0])
    values = {
        "tensor": x, "list": [x, 2, "text"], "tuple": (x, 1.5), "dict": {"a": x, "b": [1]},
        "number": 3,
    }  # fmt: skip
    path = tmp_path / "some.pt"
    if place == "name":
        ours.save(values[value], path)
        found = ours.load(path, map_location="cpu")
    elif place == "open file":
        with path.open("wb") as file:
            ours.save(values[value], file)
        with path.open("rb") as file:
            found = ours.load(file)
    else:
        buffer = io.BytesIO()
        ours.save(obj=values[value], f=buffer)
        buffer.seek(0)
        found = ours.load(f=buffer)
    right = [*values[value]] if value == "tuple" else values[value]

    def plain(part: Any) -> Any:
        return part.tolist() if isinstance(part, ours.Tensor) else part

    if value == "dict":
        assert {key: plain(part) for key, part in found.items()} == {"a": [1.0, 2.0], "b": [1]}
    elif value in ("list", "tuple"):
        assert list(map(plain, found)) == list(map(plain, right))
    else:
        assert plain(found) == plain(right)


def test_names_of_autograd(torch: Any) -> None:
    for space in (ours, torch):
        x = space.autograd.Variable(space.ones(2), requires_grad=True)
        assert x.requires_grad
        assert x.is_leaf
        assert not space.autograd.Variable(x).requires_grad or space is torch
        (grad,) = space.autograd.grad((3 * x).sum(), x, only_inputs=True)
        assert grad.tolist() == [3.0, 3.0]
        assert x.grad is None


@pytest.mark.parametrize(
    "path", ["nn.Frob", "optim.Frob", "nn.functional.frob", "utils.frob", "cuda.frob", "frob"]
)
def test_a_name_that_is_not_there_is_named(path: str) -> None:
    owner, _, name = path.rpartition(".")
    space: Any = ours
    for part in filter(None, owner.split(".")):
        space = getattr(space, part)
    with pytest.raises(AttributeError, match=name):
        getattr(space, name)


def test_samplers_and_data_sets_of_the_wrong_size() -> None:
    for size in (0, -1, 1.5):
        with pytest.raises((ShapeError, DtypeError), match=r"^batch_size must be an integer"):
            data.BatchSampler([0, 1], size, False)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=says("data are Tensors of one length, got [(2,), (3,)]")):
        data.TensorDataset(ours.ones(2), ours.ones(3))
    with pytest.raises(ShapeError, match=r"^data are Tensors of one length"):
        data.TensorDataset(ours.ones(()), ours.ones(()))
    with pytest.raises(TypeError, match="each argument of a TensorDataset must be a Tensor"):
        data.TensorDataset([1.0, 2.0])  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 4, 5, 6])
def test_batches_of_indices(torch: Any, n: int) -> None:
    for drop in (False, True):
        mine = data.BatchSampler(range(n), 2, drop)
        right = torch.utils.data.BatchSampler(range(n), 2, drop)
        assert list(mine) == list(right)
        assert len(mine) == len(right)
    for draws in (None, 1, n, 2 * n + 1):
        mine = data.RandomSampler(range(n), num_samples=draws)
        rows = list(mine)
        assert len(rows) == len(mine) == (draws or n)
        assert sorted(rows[:n]) == list(range(n)) or len(rows) < n
        again = list(data.RandomSampler(range(n), True, draws))
        assert len(again) == (draws or n)
        assert set(again) <= set(range(n))


@pytest.mark.parametrize("name", ["index_add", "index_copy"])
def test_a_source_of_another_shape_is_named_with_both_shapes(name: str) -> None:
    x = ours.ones(3, 2)
    for dim, index, right, wrong in ((0, [0, 1], (2, 2), (3, 2)), (1, [0], (3, 1), (3, 3))):
        with pytest.raises(ShapeError) as caught:
            getattr(x, name)(dim, ours.tensor(index), ours.ones(wrong))
        assert str(caught.value) == f"{name} takes a source of shape {right}, got {wrong}"


def test_float16_is_rounded_to_digits_in_a_wider_dtype() -> None:
    """1000 to two digits is 100,000 on the way."""
    x = np.array([1000.5, -2.345, 60_000.0, 0.125], np.float16)
    for digits in (0, 1, 2, 3):
        found = ours.round(ours.tensor(x), decimals=digits)
        assert found.dtype == ours.float16
        right = np.round(x.astype(np.float32), digits).astype(np.float16)
        assert found.tolist() == right.tolist()


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 1), (3, 1), (1, 2), (3, 2)], ids=str)
def test_values_that_are_put_broadcast_to_the_places(shape: tuple[int, ...]) -> None:
    rng = np.random.RandomState(0)
    start, cotangent, values = rng.randn(4, 2), rng.randn(4, 2), np.array(rng.randn(*shape))
    rows = np.array([0, 3, 0])
    x, given = (ours.tensor(a, requires_grad=True) for a in (start, values))
    out = x.index_put((ours.tensor(rows),), given, accumulate=True)
    right = start.copy()
    np.add.at(right, rows, np.broadcast_to(values, (3, 2)))
    np.testing.assert_allclose(out.detach().numpy(), right, rtol=1e-14)
    out.backward(ours.tensor(cotangent))
    summed = cotangent[rows]
    np.testing.assert_array_equal(x.grad.numpy(), cotangent)
    lost = tuple(range(2 - len(shape)))
    summed = summed.sum(lost) if lost else summed
    ones = tuple(i for i, n in enumerate(shape) if n == 1)
    summed = summed.sum(ones, keepdims=True) if ones else summed
    np.testing.assert_allclose(given.grad.numpy(), summed, rtol=1e-14)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_windows_of_each_size_come_last(dim: int) -> None:
    values = np.random.RandomState(0).randn(3, 4, 5)
    for size in range(1, values.shape[dim] + 1):
        for step in (1, 2, 7):
            right = np.lib.stride_tricks.sliding_window_view(values, size, dim)
            places = [slice(None)] * 4
            places[dim % 3] = slice(None, None, step)
            found = ours.tensor(values).unfold(dim, size, step)
            np.testing.assert_array_equal(found.numpy(), right[tuple(places)])
    with pytest.raises(ShapeError):
        ours.tensor(values).unfold(dim, values.shape[dim] + 1, 1)


def test_products_that_are_added_have_both_factors() -> None:
    rng = np.random.RandomState(0)
    x, y, z = rng.randn(2, 2), rng.randn(2, 3), rng.randn(3, 2)
    for options, beta, alpha in (({}, 1, 1), ({"beta": 3.0}, 3, 1), ({"alpha": -2.0}, 1, -2)):
        right = beta * x + alpha * (y @ z)
        a, b, c = map(ours.tensor, (x, y, z))
        np.testing.assert_allclose(ours.addmm(a, b, c, **options).numpy(), right, rtol=1e-12)
        found = ours.baddbmm(a[None], b[None], c[None], **options)
        np.testing.assert_allclose(found.numpy(), right[None], rtol=1e-12)
    for wrong in ((b, c[:, 0]), (b[None], c), (b[0], c)):
        with pytest.raises(ShapeError):
            ours.mm(*wrong)


def test_the_state_of_a_module_is_its_own_memory() -> None:
    module = nn.Linear(2, 2)
    state = module.state_dict()
    for tensor in state.values():
        assert not tensor.requires_grad
        tensor.zero_()
    assert not module.weight.any()
    assert not module.bias.any()
    assert ours.ones(2).type("torch.LongTensor").dtype == ours.int64


def test_an_option_of_a_new_tensor_comes_before_what_the_old_one_has() -> None:
    x = ours.ones(2, dtype=ours.float16)
    for make in (x.new_zeros, x.new_ones, x.new_empty):
        assert (make((3,)).dtype, make((3,), dtype=ours.int64).dtype) == (x.dtype, ours.int64)
    assert x.new_full((1,), 2.0, dtype=ours.float64).dtype == ours.float64
    assert x.new_tensor([1.0], dtype=ours.float32).dtype == ours.float32


def test_a_number_that_is_not_zero_has_no_place_as_a_row() -> None:
    number = ours.tensor(5.0)
    assert number.nonzero().shape == (1, 0)
    assert [place.tolist() for place in number.nonzero(as_tuple=True)] == [[0]]


def test_a_factor_and_a_condition_are_taken_by_methods_too() -> None:
    x, y = ours.tensor([1.0, 5.0]), ours.tensor([2.0, -3.0])
    assert x.add(y, alpha=3).tolist() == [7.0, -4.0]
    assert x.sub(y, alpha=3).tolist() == [-5.0, 14.0]
    assert x.where(ours.tensor([True, False]), y).tolist() == [1.0, -3.0]
    assert x.sign_().tolist() == x.tolist() == [1.0, 1.0]
    assert ours.ones(2, 2).triu_().tolist() == [[1.0, 1.0], [0.0, 1.0]]


def test_a_method_that_changes_its_tensor_takes_options_by_name():
    numbers = [-7.0, -2.0, 2.0, 7.0]
    for change, right in (
        (lambda x: x.div_(2, rounding_mode="floor"), [-4.0, -1.0, 1.0, 3.0]),
        (lambda x: x.div_(2, rounding_mode="trunc"), [-3.0, -1.0, 1.0, 3.0]),
        (lambda x: x.clamp_(max=2), [-7.0, -2.0, 2.0, 2.0]),
        (lambda x: x.clamp_(min=-2, max=2), [-2.0, -2.0, 2.0, 2.0]),
        (lambda x: x.add_(1, alpha=3), [-4.0, 1.0, 5.0, 10.0]),
    ):
        x = ours.tensor(numbers)
        assert change(x) is x
        assert x.tolist() == right
