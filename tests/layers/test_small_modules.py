"""Activations, losses, RMSNorm, starting values, hooks, ModuleDict; PyTorch beside them."""

from __future__ import annotations

import contextlib
import copy
import importlib

import numpy as np
import pytest
from common import assert_all_zero, assert_close, assert_same, leaf, needs_torch, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.nn.module import evaluated

DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
ELEMENTWISE = ["Identity", "ReLU", "GELU", "Tanh", "Sigmoid", "SiLU", "Softmax"]
LOSSES = [
    ("CrossEntropyLoss", {}),
    ("CrossEntropyLoss", {"label_smoothing": 0.1, "reduction": "sum"}),
    ("CrossEntropyLoss", {"ignore_index": 1, "weight": [0.5, 2.0, 1.0]}),
    ("MSELoss", {"reduction": "sum"}),
    ("MSELoss", {}),
    ("KLDivLoss", {"reduction": "batchmean"}),
    ("KLDivLoss", {"log_target": True, "reduction": "sum"}),
]


def like_torch(ours, theirs, arrays, dtype, tolerance):
    """Value, and first and second derivatives along random directions, of two callables."""
    import torch

    xs = [leaf(a.astype(dtype)) for a in arrays]
    ys = [torch.tensor(a.astype(dtype), requires_grad=True) for a in arrays]
    out, right = ours(*xs), theirs(*ys)
    assert out.dtype == np.dtype(dtype)
    rng = rng_of(7)
    grad = np.asarray(signed(rng, *out.shape)).astype(dtype)
    again = [signed(rng, *a.shape).astype(dtype) for a in arrays]
    first = ta.grad(out, xs, ta.tensor(grad), create_graph=True)
    their_first = torch.autograd.grad(right, ys, torch.tensor(grad), create_graph=True)
    total = sum((g * ta.tensor(a)).sum() for g, a in zip(first, again, strict=True))
    their_total = sum((g * torch.tensor(a)).sum() for g, a in zip(their_first, again, strict=True))
    pairs = [(out, right), *zip(first, their_first, strict=True)]
    if total.requires_grad:
        second = ta.grad(total, xs, allow_unused=True)
        their_second = (
            torch.autograd.grad(their_total, ys, allow_unused=True)
            if their_total.requires_grad
            else [None] * len(ys)
        )
        for g, r, a in zip(second, their_second, arrays, strict=True):
            zero = np.zeros(a.shape, dtype)
            pairs.append(
                (ta.tensor(zero) if g is None else g, torch.tensor(zero) if r is None else r)
            )
    for found, expected in pairs:
        scale = max(1.0, float(expected.detach().abs().max()))
        assert_close(found.numpy() / scale, expected.detach().numpy() / scale, tolerance)


@needs_torch
@DTYPES
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_activations_are_pytorchs(name, dtype, tolerance, torch):
    options = {"dim": -1} if name == "Softmax" else {}
    module, theirs = getattr(nn, name)(**options), getattr(torch.nn, name)(**options)
    like_torch(module, theirs, [signed(rng_of(0), 4, 3)], dtype, tolerance)
    assert list(module.parameters()) == []
    assert repr(module).startswith(f"{name}(")


@needs_torch
@DTYPES
@pytest.mark.parametrize(("name", "options"), LOSSES)
def test_losses_are_pytorchs(name, options, dtype, tolerance, torch):
    rng = rng_of(1)
    ours, theirs = dict(options), dict(options)
    if "weight" in options:
        ours["weight"] = ta.tensor(np.array(options["weight"], dtype))
        theirs["weight"] = torch.tensor(np.array(options["weight"], dtype))
    module, right = getattr(nn, name)(**ours), getattr(torch.nn, name)(**theirs)
    x = signed(rng, 4, 3)
    if name == "CrossEntropyLoss":
        target = np.array([0, 2, 1, 0])
        like_torch(
            lambda x: module(x, ta.tensor(target)),
            lambda x: right(x, torch.tensor(target)),
            [x], dtype, tolerance,
        )  # fmt: skip
    else:
        like_torch(module, right, [x, rng.uniform(0.1, 1, (4, 3))], dtype, tolerance)


def test_losses_refuse_another_reduction_when_they_are_made():
    for name in ("CrossEntropyLoss", "MSELoss", "KLDivLoss"):
        with pytest.raises(ValueError, match="got 'all'"):
            getattr(nn, name)(reduction="all")


def test_weight_of_a_loss_moves_with_it():
    loss = nn.CrossEntropyLoss(ta.tensor([1.0, 3.0])).double()
    assert loss.weight.dtype == np.float64
    assert list(loss.state_dict()) == ["weight"]
    assert list(nn.CrossEntropyLoss().state_dict()) == []


@needs_torch
@DTYPES
@pytest.mark.parametrize("sizes", [(3,), (4, 3)])
@pytest.mark.parametrize("eps", [None, 0.1])
def test_rms_norm_is_pytorchs(sizes, eps, dtype, tolerance, torch):
    rng = rng_of(2)
    ours, theirs = nn.RMSNorm(sizes, eps).to(dtype), torch.nn.RMSNorm(sizes, eps)
    weight = rng.uniform(0.5, 1.5, sizes)
    ours.weight.data = weight.astype(dtype)
    theirs.weight = torch.nn.Parameter(torch.tensor(weight.astype(dtype)))
    like_torch(ours, theirs, [signed(rng, 2, 4, 3)], dtype, tolerance)
    assert repr(ours) == repr(theirs)


def test_rms_norm_without_weight_and_in_float16():
    norm = nn.RMSNorm(2, elementwise_affine=False)
    assert list(norm.parameters()) == []
    x = ta.tensor(np.array([[300.0, 400.0]], np.float16))  # 300^2 is beyond float16
    assert_close(norm(x).numpy(), np.array([[0.8485, 1.1314]]), 1e-3)
    norm = nn.RMSNorm(2)
    norm.weight.data = np.array([3.0, 4.0], np.float32)
    norm.reset_parameters()
    assert norm.weight.tolist() == [1.0, 1.0]


def test_a_vector_of_zeros_stays_one_in_float16_too():
    for dtype in (np.float16, np.float32, np.float64):
        for p in (1, 2):
            x = leaf(np.array([[0.0, 0.0], [3.0, -4.0]], dtype))
            out = F.normalize(x, p=p)
            assert out.tolist()[0] == [0.0, 0.0]
            assert np.isfinite(ta.grad(out.sum(), [x])[0].numpy()[1]).all()


def test_nn_functional_is_the_functional_module():
    assert importlib.import_module("tinyattn.nn.functional") is F
    assert nn.functional is F


# Starting values


@needs_torch
@pytest.mark.parametrize("mode", ["fan_in", "fan_out"])
@pytest.mark.parametrize("nonlinearity", ["relu", "leaky_relu", "tanh", "linear", "selu"])
def test_kaiming_is_as_wide_as_pytorchs(mode, nonlinearity, torch):
    """The largest of many uniform numbers, and the deviation of normal ones."""
    weight, theirs = ta.zeros(300, 200), torch.zeros(300, 200)
    options = {"a": 0.5, "mode": mode, "nonlinearity": nonlinearity}
    for name in ("kaiming_uniform_", "kaiming_normal_"):
        assert getattr(nn.init, name)(weight, **options) is weight
        getattr(torch.nn.init, name)(theirs, **options)
        assert abs(weight.std().item() / theirs.std().item() - 1) < 0.02
    nn.init.kaiming_uniform_(weight, **options)
    fan = 200 if mode == "fan_in" else 300
    bound = torch.nn.init.calculate_gain(nonlinearity, 0.5) * np.sqrt(3 / fan)
    assert 0.999 * bound < np.abs(weight.numpy()).max() <= bound


def test_other_starting_values():
    weight = ta.ones(300, 200)
    assert abs(nn.init.xavier_normal_(weight, 2.0).std().item() / (2 * np.sqrt(2 / 500)) - 1) < 0.02
    assert_all_zero(nn.init.zeros_(weight).numpy())
    assert (nn.init.ones_(weight).numpy() == 1).all()
    assert (nn.init.constant_(weight, -0.25).numpy() == -0.25).all()
    with pytest.raises(ValueError, match=r"fan_in.*got 'fan'"):
        nn.init.kaiming_normal_(weight, mode="fan")
    with pytest.raises(ValueError, match="'cosine'"):
        nn.init.kaiming_normal_(weight, nonlinearity="cosine")
    with pytest.raises(ShapeError, match="two dimensions"):
        nn.init.kaiming_uniform_(ta.ones(3))


FILLED = {
    "uniform_": ((-3.0, 5.0), lambda rng, shape: rng.uniform(-3.0, 5.0, shape)),
    "normal_": ((7.0, 0.5), lambda rng, shape: 7.0 + 0.5 * rng.standard_normal(shape)),
    "constant_": ((-2.5,), lambda rng, shape: np.full(shape, -2.5)),
    "zeros_": ((), lambda rng, shape: np.zeros(shape)),
    "ones_": ((), lambda rng, shape: np.ones(shape)),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", FILLED)
def test_starting_values_are_those_of_the_generator(name, dtype):
    """Drawn in float64. Only what is drawn is skipped where a file will replace it."""
    arguments, right = FILLED[name]
    fill = getattr(nn.init, name)
    for skips in (False, True):
        weight = nn.Parameter(np.full((3, 4), 9.0), dtype=dtype)
        ta.manual_seed(3)
        expected = right(ta.base.random.generator(), (3, 4)).astype(dtype)
        ta.manual_seed(3)
        with nn.init.skipped() if skips else contextlib.nullcontext():
            assert fill(weight, *arguments) is weight
        is_drawn = name in ("uniform_", "normal_")
        assert_same(weight.numpy(), np.full_like(expected, 9.0) if skips and is_drawn else expected)


# What every module can do


def test_apply_reaches_the_children_first():
    seen = []
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "ReLU", "Sequential", "Sequential"]
    assert [name for name, _ in net.named_children()] == ["0", "1"]


def test_a_buffer_that_is_not_persistent_is_moved_and_not_saved():
    net = nn.Linear(2, 2)
    net.register_buffer("kept", ta.ones(1))
    net.register_buffer("table", ta.ones(1), persistent=False)
    assert list(net.state_dict()) == ["weight", "bias", "kept"]
    assert [b.dtype for b in net.double().buffers()] == [np.float64] * 2
    net.load_state_dict(net.state_dict())
    net.register_buffer("table", ta.ones(1))
    assert "table" in net.state_dict()
    net.register_buffer("table", ta.ones(1), persistent=False)
    net.table = nn.Parameter([1.0])  # no buffer any more
    assert "table" in net.state_dict()


def test_forward_hooks_see_and_replace_the_output():
    net, calls = nn.Linear(2, 3), []
    x = ta.randn(4, 2)
    first = net.register_forward_hook(lambda m, args, out: calls.append((m, args[0], out)))
    second = net.register_forward_hook(lambda m, args, out: out * 2)
    third = net.register_forward_hook(lambda m, args, out: out + 1)
    out = net(x)
    ((module, given, seen),) = calls
    assert module is net
    assert given is x
    assert_same(out.numpy(), (seen * 2 + 1).numpy())
    copied = copy.deepcopy(net)
    for handle in (first, second, third, third):
        handle.remove()
    assert_same(net(x).numpy(), seen.numpy())
    assert_same(copied(x).numpy(), out.numpy())
    assert len(calls) == 2


def test_a_hook_gets_the_arguments_that_have_no_name():
    """As in PyTorch: those that are given by name are not among them."""
    net, seen = nn.MultiHeadAttention(2, 2, 2, 2, 1), []
    net.register_forward_hook(lambda module, args, out: seen.append(args))
    x = ta.ones(1, 3, 2)
    calls = [(x, x, x), (x, x), (x,), ()]
    for given in calls:
        names = ("queries", "keys", "values")[len(given) :]
        net(*given, **dict.fromkeys(names, x), is_causal=True)
    assert seen == calls


@pytest.mark.parametrize("replacement", [(), (1, 2), [3], 0, False, "text", np.zeros(2)],
                         ids=["empty", "tuple", "list", "0", "False", "text", "array"])  # fmt: skip
def test_what_a_hook_returns_is_the_output_unless_it_is_none(replacement):
    net = nn.Tanh()
    net.register_forward_hook(lambda *_: replacement)
    assert net(ta.ones(1)) is replacement


def test_a_hook_may_remove_itself():
    net = nn.Tanh()
    handle = net.register_forward_hook(lambda *_: handle.remove())
    assert net(ta.ones(1)).item() == net(ta.ones(1)).item()
    assert not net._hooks


class Merging(nn.Module):
    """It adds what it learns to its weight in evaluation, and takes it off for training."""

    def __init__(self):
        super().__init__()
        self.weight, self.more = nn.Parameter([2.0]), nn.Parameter([0.5])

    def train(self, mode=True):
        if mode != self.training:
            self.weight.data = self.weight.data + self.more.data * (-1 if mode else 1)
        return super().train(mode)

    def forward(self, x):
        return x * (self.weight + self.more if self.training else self.weight)


@pytest.mark.parametrize("modes", range(16))
def test_afterwards_each_part_has_the_mode_and_the_weights_that_it_had(modes):
    """One part merges weights. The modes of others are set in any combination."""
    net = nn.Sequential(nn.Sequential(nn.Dropout(0.5), Merging()), nn.Dropout(0.5))
    parts = [net, net[0], net[0][0], net[1]]
    before = [bool(modes >> i & 1) for i in range(4)]
    for part, mode in zip(parts, before, strict=True):
        part.training = mode
    for error in (None, KeyboardInterrupt):
        with pytest.raises(error) if error else contextlib.nullcontext(), evaluated(net):
            assert not any(part.training for part in net.modules())
            assert net[0][1].weight.item() == 2.5
            if error:
                raise error
        assert [part.training for part in parts] == before
        assert (net[0][1].training, net[0][1].weight.item()) == (True, 2.0)


def test_evaluation_of_parts_in_two_places_leaves_their_modes():
    """train() of a later parent reaches a part that had its mode again."""
    rng = rng_of(3)
    for _ in range(100):
        shared = [nn.Sequential(nn.Dropout(0.5), nn.Identity()) for _ in range(2)]
        orders = rng.randint(0, 2, 3)
        net = nn.ModuleList(nn.Sequential(shared[i], shared[1 - i], nn.ReLU()) for i in orders)
        parts = list(net.modules())
        before = [bool(mode) for mode in rng.randint(0, 2, len(parts))]
        for part, mode in zip(parts, before, strict=True):
            part.training = mode
        with evaluated(net):
            assert not any(part.training for part in parts)
        assert [part.training for part in parts] == before


def test_to_takes_device_and_dtype_in_any_way():
    net = nn.Linear(2, 2)
    for call, dtype in [
        (lambda: net.to(dtype=ta.float64), np.float64),
        (lambda: net.to("cpu", ta.float32), np.float32),
        (lambda: net.to(device="cpu", dtype=ta.float16), np.float16),
        (net.double, np.float64),
        (net.half, np.float16),
        (net.float, np.float32),
        (net.cpu, np.float32),
    ]:
        assert call() is net
        assert {p.dtype for p in net.parameters()} == {np.dtype(dtype)}
    with pytest.raises(TypeError, match="int64"):
        net.to("cpu", ta.int64)
    with pytest.raises(TypeError, match="int64"):
        net.to(ta.float64, ta.int64)
    assert net.weight.dtype == np.float32


def test_zero_grad_may_fill_with_zeros():
    net = nn.Linear(2, 2)
    net.weight.grad = ta.full((2, 2), np.nan)
    net.zero_grad(set_to_none=False)
    assert net.weight.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert net.bias.grad is None
    net.zero_grad()
    assert net.weight.grad is None


# ModuleDict


def test_module_dict_is_a_dict_whose_modules_are_found():
    net = nn.ModuleDict({"up": nn.Linear(2, 3), "act": nn.ReLU()})
    net["down"] = nn.Linear(3, 2, bias=False)
    assert list(net) == ["up", "act", "down"]
    assert len(net) == 3
    assert "act" in net
    assert "other" not in net
    assert [name for name, _ in net.named_parameters()] == ["up.weight", "up.bias", "down.weight"]
    assert net.pop("act") is not None
    assert list(net.keys()) == ["up", "down"]
    net.update([("up", nn.Tanh())])
    assert isinstance(net["up"], nn.Tanh)
    assert len({net, nn.ModuleDict(dict(net.items()))}) == 2
    assert copy.deepcopy(net)["down"].weight is not net["down"].weight
    del net["up"]
    with pytest.raises(KeyError, match="up"):
        del net["up"]
    with pytest.raises(KeyError):
        net["training"]


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("keys", nn.ReLU(), KeyError),
        ("forward", nn.ReLU(), KeyError),
        ("training", nn.ReLU(), KeyError),
        ("a.b", nn.ReLU(), KeyError),
        (3, nn.ReLU(), KeyError),
        ("a", nn.ReLU, TypeError),
        ("a", None, TypeError),
    ],
)
def test_module_dict_refuses(key, value, error):
    net = nn.ModuleDict()
    with pytest.raises(error):
        net[key] = value
    assert len(net) == 0
    assert net.training is True


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("size", [300.0, 4e4, 1e-4, 6e-8])
def test_normalize_of_large_and_small_float16(p, size):
    x = ta.tensor([size, -size]).half()
    found = F.normalize(x, p, dim=0)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.numpy(), [2 ** (-1 / p), -(2 ** (-1 / p))], rtol=1e-3)


def test_a_module_or_buffer_that_has_two_names_is_visited_once():
    parent = nn.Module()
    parent.first = parent.second = nn.Linear(2, 2)
    shared = ta.zeros(2)
    parent.register_buffer("one", shared)
    parent.register_buffer("other", shared)
    visited = []
    parent.apply(visited.append)
    assert visited == [parent.first, parent]
    assert [name for name, _ in parent.named_children()] == ["first"]
    assert [name for name, _ in parent.named_buffers()] == ["one"]


def test_lists_of_modules_grow_in_a_chain():
    net = nn.Sequential(nn.Linear(2, 2)).append(nn.ReLU()).extend([nn.Tanh(), nn.Tanh()])
    assert [type(module).__name__ for module in net] == ["Linear", "ReLU", "Tanh", "Tanh"]


def test_starting_values_are_floats():
    for fill in (lambda x: nn.init.constant_(x, 0.5), nn.init.normal_, nn.init.uniform_):
        with pytest.raises(DtypeError, match=r"starting value.*int64"):
            fill(ta.tensor([1, 2]))
    with pytest.raises(TypeError, match=r"got numpy\.ndarray"):
        nn.init.ones_(np.zeros(2))
    values = nn.init.uniform_(ta.zeros(1000)).numpy()
    assert 0 <= values.min() < 0.1
    assert 0.9 < values.max() < 1


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_softmax_goes_along_its_dimension(dim):
    x = ta.tensor(np.arange(24.0).reshape(2, 3, 4) % 7)
    np.testing.assert_array_equal(nn.Softmax(dim)(x).numpy(), ta.softmax(x, dim).numpy())
    np.testing.assert_allclose(nn.Softmax(dim)(x).sum(dim).numpy(), 1)


@pytest.mark.parametrize("name", ["ReLU", "GELU", "Tanh", "Sigmoid", "SiLU", "Softmax"])
def test_a_module_of_a_function_gives_its_bits_at_every_kind_of_number(name: str) -> None:
    function = {"SiLU": F.silu, "Softmax": F.softmax}.get(name) or getattr(F, name.lower())
    numbers = ta.tensor([[-np.inf, -0.0, 0.0, -1e-40, 1e-40, -3.0, 3.0, 1e30], [np.nan, *range(7)]])
    found, right = getattr(nn, name)()(numbers).numpy(), function(numbers).numpy()
    assert found.tobytes() == right.tobytes()
