"""How modules behave: parameters, state, modes, containers, copies."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import OrderedDict, deque

import make_torch_values as cases
import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_same,
    leaf,
    needs_torch,
    pull,
    random_parameters,
    rng_of,
)
from test_layers import make_layer

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import CheckpointError, DeviceError, DtypeError, GraphError, ShapeError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.second = nn.Linear(2, 3)
        self.scale = nn.Parameter([2.0])
        self.register_buffer("table", ta.ones(2))
        self.blocks = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.Dropout(0.5)])
        self.first = nn.Sequential(nn.Linear(3, 1), nn.ReLU())

    def forward(self, x):
        x = self.second(x) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.first(x)


NET_PARAMETERS = [
    "scale",
    "second.weight",
    "second.bias",
    "blocks.0.weight",
    "first.0.weight",
    "first.0.bias",
]


def test_parameters_come_in_order_of_assignment_own_ones_first():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NET_PARAMETERS
    assert [id(p) for p in net.parameters()] == [id(p) for _, p in net.named_parameters()]
    modules = ["", "second", "blocks", "blocks.0", "blocks.1", "first", "first.0", "first.1"]
    assert [name for name, _ in net.named_modules()] == modules
    assert next(iter(net.modules())) is net
    assert list(net.children()) == [net.second, net.blocks, net.first]


@pytest.mark.parametrize("kind", ["_parameters", "_buffers", "_modules"])
def test_what_one_writes_beside_the_attributes_is_refused(kind):
    """It would be lost, because the attributes are what a module has."""
    module = nn.Sequential(nn.Linear(2, 3))
    with pytest.raises(TypeError, match="does not support item assignment"):
        getattr(module, kind)["0"] = nn.Linear(2, 3)


def test_state_dict_holds_copies_of_parameters_and_buffers():
    net = Net()
    state = net.state_dict()
    assert list(state) == ["scale", "table", *NET_PARAMETERS[1:]]
    state["scale"][...] = 99
    assert net.scale.item() == 2
    for tensor in state.values():
        assert not tensor.requires_grad


def test_load_state_dict_round_trip_is_bitwise():
    ta.manual_seed(0)
    one, two = Net(), Net()
    two.load_state_dict(one.state_dict())
    for name, tensor in one.state_dict().items():
        assert_same(two.state_dict()[name].numpy(), tensor.numpy())
    assert two.scale is not one.scale
    x = ta.randn(4, 2)
    assert_same(one.eval()(x).numpy(), two.eval()(x).numpy())
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in two.parameters())


def test_load_state_dict_keeps_the_identity_and_dtype_of_parameters():
    net, other = Net(), Net().to(ta.float64)
    before = [id(p) for p in net.parameters()]
    net.load_state_dict(other.state_dict())
    assert [id(p) for p in net.parameters()] == before
    assert {p.dtype for p in net.parameters()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        (lambda s: s.pop("first.0.bias"), CheckpointError, "first.0.bias"),
        (lambda s: s.update(extra=ta.ones(1)), CheckpointError, "extra"),
        (lambda s: s.update({"first.0.bias": ta.ones(2)}), ShapeError, "first.0.bias"),
        (lambda s: s.update({"first.0.bias": ta.ones(1).long()}), DtypeError, "first.0.bias"),
        (lambda s: s.update({"first.0.bias": "words"}), (TypeError, ValueError), None),
        (lambda s: s.update({"first.0.bias": None}), (TypeError, ValueError), None),
        (lambda s: s.update({3: ta.ones(1)}), TypeError, "names in a state are strings, got 3"),
        (lambda s: s.update({None: ta.ones(1)}), TypeError, "strings, got None"),
    ],
)
def test_load_state_dict_takes_all_or_nothing(change, error, word):
    net = Net()
    before = {name: t.numpy() for name, t in net.state_dict().items()}
    state = {name: t + 1 for name, t in net.state_dict().items()}
    change(state)
    with pytest.raises(error, match=word):
        net.load_state_dict(state)
    for name, tensor in net.state_dict().items():
        assert_same(tensor.numpy(), before[name])


def test_a_counter_takes_whole_numbers_of_any_dtype():
    """A mean of the states of several models has floats, as in federated learning."""
    model = nn.Linear(1, 1)
    model.register_buffer("steps", ta.tensor([3, 4]))
    model.register_buffer("visible", ta.tensor([True, False]))
    state = model.state_dict()
    mean = {name: (x.float() + x.float()) / 2 for name, x in state.items()}
    model.load_state_dict(mean)
    for name, x in model.state_dict().items():
        assert x.dtype == state[name].dtype
        assert x.equal(state[name])
    for name, wrong in {"steps": [3.5, 4.0], "visible": [1.0, 2.0], "weight": [[2]]}.items():
        with pytest.raises(DtypeError):
            model.load_state_dict(mean | {name: ta.tensor(wrong)})
    assert model.steps.tolist() == [3, 4]


def test_load_state_dict_names_every_wrong_shape():
    net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    state = {name: ta.ones(3) for name, _ in net.named_parameters()}
    with pytest.raises(ShapeError) as error:
        net.load_state_dict(state)
    first, *_, last = str(error.value).split("; ")
    assert first == "Sequential: 0.weight has shape (2, 2), got (3,)"
    assert last == "and 3 more"
    assert str(error.value).count("got (3,)") == 5


def test_load_state_dict_not_strict_takes_the_common_names_only():
    net = Net()
    bias = net.first[0].bias.numpy()
    net.load_state_dict({"scale": ta.tensor([5.0]), "extra": ta.ones(1)}, strict=False)
    assert net.scale.item() == 5
    assert_same(net.first[0].bias.numpy(), bias)
    with pytest.raises(TypeError, match="names in a state are strings, got 0"):
        net.load_state_dict({0: ta.ones(1)}, strict=False)


def test_load_state_dict_takes_arrays_of_other_libraries():
    net = nn.Linear(2, 1)
    net.load_state_dict({"weight": np.array([[3.0, 4.0]]), "bias": np.array([5.0], np.float32)})
    assert net.weight.tolist() == [[3.0, 4.0]]
    assert net.bias.tolist() == [5.0]


def test_train_and_eval_reach_every_module_and_return_it():
    net = Net()
    assert all(m.training for m in net.modules())
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    assert net.train() is net
    assert all(m.training for m in net.modules())
    net.train(False)
    assert not net.blocks[1].training


def test_eval_mode_is_deterministic_and_training_is_not():
    net = nn.Encoder(
        nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), nn.PositionwiseFeedForward(8, 16)), 2
    )
    x = ta.randn(2, 5, 8)
    assert (net(x).numpy() != net(x).numpy()).any()
    net.eval()
    assert_same(net(x).numpy(), net(x).numpy())


def test_zero_grad_forgets_every_gradient():
    net = Net()
    out = net(ta.randn(4, 2))
    pull(out, np.ones(out.shape))
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_requires_grad_freezes():
    net = Net()
    net.second.requires_grad_(False)
    out = net.eval()(ta.ones(4, 2))
    pull(out, np.ones(out.shape))
    assert net.second.weight.grad is None
    assert net.scale.grad is not None
    assert len(list(net.parameters())) == len(NET_PARAMETERS)
    net.second.requires_grad_()
    assert net.second.weight.requires_grad


def test_to_dtype_converts_parameters_buffers_and_gradients_in_place():
    net = Net()
    out = net(ta.randn(4, 2))
    pull(out, np.ones(out.shape))
    before = list(net.parameters())
    grads = [p.grad.numpy() for p in before]
    assert net.to(ta.float64) is net
    assert [id(p) for p in net.parameters()] == [id(p) for p in before]
    assert {p.dtype for p in net.parameters()} == {np.dtype(np.float64)}
    assert net.table.dtype == np.float64
    for parameter, grad in zip(net.parameters(), grads, strict=True):
        assert parameter.grad.dtype == np.float64
        assert_same(parameter.grad.numpy(), grad.astype(np.float64))
    out = net(ta.randn(4, 2, dtype=ta.float64))
    assert out.dtype == np.float64


def test_to_leaves_integer_buffers_alone_and_refuses_integer_dtypes():
    net = nn.Linear(2, 2)
    net.register_buffer("ids", ta.arange(3))
    net.to(ta.float64)
    assert net.ids.dtype == np.int64
    with pytest.raises(TypeError):
        net.to(ta.int64)
    assert net.weight.dtype == np.float64


@pytest.mark.parametrize(
    "make",
    [
        lambda: [nn.Linear(1, 1)],
        lambda: (nn.Linear(1, 1),),
        lambda: {"a": nn.Linear(1, 1)},
        lambda: [[nn.Linear(1, 1)]],
        lambda: [nn.Parameter([1.0])],
        lambda: {"a": [1, (nn.Parameter([1.0]),)]},
        lambda: {nn.Linear(1, 1): "a"},
        lambda: deque([nn.Linear(1, 1)]),
        lambda: frozenset([nn.Linear(1, 1)]),
    ],
)
def test_containers_of_modules_raise(make):
    net = nn.Module()
    with pytest.raises(TypeError, match="ModuleList"):
        net.layers = make()
    assert "layers" not in net.__dict__


@pytest.mark.parametrize("name", ["layers", "_layers"])
def test_list_filled_with_modules_later_is_not_ignored_either(name):
    net = nn.Module()
    setattr(net, name, [])
    getattr(net, name).append(nn.Linear(2, 2))
    for use in (lambda: list(net.parameters()), net.state_dict, net.eval):
        with pytest.raises(TypeError, match="ModuleList"):
            use()


@pytest.mark.parametrize("library", ["tinyattn", "torch"])
def test_a_module_inside_may_have_a_train_of_its_own(library):
    """One keeps its BatchNorm in evaluation mode, as detectors do; one counts, as LoRA merges."""
    nn = ta.nn if library == "tinyattn" else pytest.importorskip("torch").nn

    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.other = nn.Dropout(0.5), nn.Dropout(0.5)

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

    class Merged(nn.Linear):
        def train(self, mode=True):
            self.modes = [*getattr(self, "modes", []), mode]
            return super().train(mode)

    net = nn.Sequential(nn.Sequential(Frozen()), Merged(2, 2))
    assert net.train() is net
    inside = net[0][0]
    assert (inside.training, inside.norm.training, inside.other.training) == (True, False, True)
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.train(True)
    assert net[1].modes == [True, False, True]


def test_parts_that_have_names_too_may_be_in_a_list():
    net = nn.Module()
    net.first, net.scale, net.layers = nn.Linear(2, 2), nn.Parameter([1.0]), []
    net.layers.append(net.first)
    net.named = {"one": [net.first, (net.scale,)]}
    assert [name for name, _ in net.named_parameters()] == ["scale", "first.weight", "first.bias"]
    twin = copy.deepcopy(net)
    assert twin.layers[0] is twin.named["one"][0] is twin.first is not net.first
    net.first = nn.Linear(2, 2)  # the other one is in the lists alone now
    for use in (lambda: list(net.parameters()), net.state_dict):
        with pytest.raises(TypeError, match="'layers' is a list with modules"):
            use()
    with pytest.raises(TypeError, match="'both' is a list with modules"):
        net.both = [net.first, nn.Linear(2, 2)]


def test_plain_lists_and_values_are_ordinary_attributes():
    net = nn.Module()
    net.sizes, net.name, net.last, net.known = [1, 2], "x", None, ta.ones(2)
    assert (net.sizes, net.name, net.last) == ([1, 2], "x", None)
    assert net.state_dict() == {}
    net.weight = ta.ones(2, requires_grad=True)  # as in PyTorch it is no Parameter
    assert (list(net.parameters()), net.state_dict()) == ([], {})


@pytest.mark.parametrize("part", [nn.ReLU(), nn.Parameter([1.0]), ta.ones(2)])
def test_parts_before_super_init_raise(part):
    class Early(nn.Module):
        def __init__(self):
            self.layer = part

    with pytest.raises(TypeError, match=r"call super\(\).__init__\(\) before setting 'layer'"):
        Early()


def test_numbers_before_super_init_stay_as_in_pytorch():
    class Early(nn.Module):
        def __init__(self, p):
            self.p, self.sizes, self.nothing = p, [1, 2], None
            super().__init__()
            self.drop = nn.Dropout(self.p)

        def forward(self, x):
            return self.drop(x)

    early = Early(1.0)
    assert (early.p, early.sizes, early.nothing, early.training) == (1.0, [1, 2], None, True)
    assert early(ta.ones(3)).tolist() == [0, 0, 0]
    assert early.eval()(ta.ones(3)).tolist() == [1, 1, 1]
    seen = []
    early.register_forward_hook(lambda *_: seen.append(1))
    early(ta.ones(1))
    other = Early(0.5)
    other(ta.ones(1))
    assert seen == [1]
    assert nn.Module._hooks == {}


def test_assignment_replaces_what_had_the_name():
    net = Net()
    net.second = nn.Linear(2, 3, bias=False)
    assert "second.bias" not in net.state_dict()
    net.scale = None
    assert net.scale is None
    assert "scale" not in dict(net.named_parameters())
    net.scale = nn.Parameter([1.0, 2.0])
    assert net.state_dict()["scale"].shape == (2,)
    del net.second
    assert not hasattr(net, "second")
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'second'"):
        _ = net.second


def test_plain_tensor_does_not_silently_take_the_place_of_a_parameter():
    """As in PyTorch: it would no longer be learned, and nobody would notice."""
    net = nn.Linear(2, 2)
    for wrong in (ta.ones(2, 2), net.weight.data, np.ones((2, 2)), 3.0):
        with pytest.raises(TypeError, match=f"'weight' is a Parameter, got {type(wrong).__name__}"):
            net.weight = wrong
    assert isinstance(net.weight, nn.Parameter)
    assert "weight" in dict(net.named_parameters())


def test_buffers_are_saved_moved_and_not_learned():
    net = nn.PositionalEncoding(4, max_len=6)
    assert list(net.parameters()) == []
    assert list(net.state_dict()) == ["P"]
    assert [name for name, _ in net.named_buffers()] == ["P"]
    net.P = ta.zeros(1, 6, 4)
    assert_all_zero(net.state_dict()["P"].numpy())
    with pytest.raises(TypeError, match="Tensor"):
        net.register_buffer("x", np.ones(2))


def test_buffer_can_be_none_for_a_while():
    net = nn.PositionalEncoding(4, max_len=6)
    net.P = None
    assert net.state_dict() == {}
    net.P = ta.ones(2)
    assert list(net.state_dict()) == ["P"]
    for wrong in (np.zeros(2), 5.0):
        with pytest.raises(TypeError, match=f"'P' is a buffer, got {type(wrong).__name__}"):
            net.P = wrong
    assert list(net.state_dict()) == ["P"]


def test_a_buffer_may_begin_as_none():
    net = Net()
    net.register_buffer("cache", None)
    assert "cache" not in net.state_dict()
    net.cache = ta.ones(2)
    assert net.state_dict()["cache"].tolist() == [1.0, 1.0]


def test_name_of_a_deleted_buffer_is_free():
    net = nn.PositionalEncoding(4, max_len=6)
    del net.P
    net.P = ta.zeros(2)
    assert net.state_dict() == {}
    net.P = nn.Parameter([1.0])
    assert [name for name, _ in net.named_parameters()] == ["P"]


def test_names_that_no_buffer_can_have():
    net = Net()
    for name in ("second.weight", "", 3):
        with pytest.raises(ValueError, match="a word without dots"):
            net.register_buffer(name, ta.ones(2))
    for name in ("forward", "scale", "second", "training"):
        with pytest.raises(ValueError, match=f"Net has an attribute '{name}' already"):
            net.register_buffer(name, ta.ones(2))
    with pytest.raises(TypeError, match="a buffer is a Tensor, got Parameter"):
        net.register_buffer("new", nn.Parameter([1.0]))
    assert [name for name, _ in net.named_buffers()] == ["table"]
    net.register_buffer("new", ta.ones(2))
    net.register_buffer("new", ta.zeros(3))
    assert net.state_dict()["new"].tolist() == [0.0, 0.0, 0.0]


def test_a_buffer_that_is_registered_again_is_saved_as_it_is_told_last():
    net = Net()
    for persistent in (True, False, True, True, False, False):
        net.register_buffer("new", ta.ones(2), persistent)
        assert ("new" in net.state_dict()) == persistent
        assert [name for name, _ in net.named_buffers()] == ["table", "new"]
        assert "table" in net.state_dict()
        saved = net.state_dict()
        assert net.load_state_dict(saved) == ([], [])


def test_shallow_copy_has_buffers_of_its_own():
    net = nn.PositionalEncoding(4, max_len=6)
    twin = copy.copy(net)
    del twin.P
    twin.register_buffer("other", ta.ones(2))
    assert list(net.state_dict()) == ["P"]
    assert list(twin.state_dict()) == ["other"]


def test_module_is_not_lost_by_assigning_something_else():
    net = Net()
    for wrong in ("relu", ta.ones(2), np.ones(2)):
        with pytest.raises(TypeError, match=f"a module \\(Linear\\), got {type(wrong).__name__}"):
            net.second = wrong
    assert "second.weight" in net.state_dict()
    net.second = None
    assert "second.weight" not in net.state_dict()


@pytest.mark.parametrize("name", ["modules", "train", "state_dict", "forward"])
def test_methods_are_no_names_for_modules_and_tensors(name):
    net = nn.Module()
    for value in (nn.Linear(1, 1), nn.Parameter([1.0]), ta.ones(1)):
        with pytest.raises(TypeError, match=f"'{name}' is a method of every Module"):
            setattr(net, name, value)


def test_attribute_of_the_instance_comes_before_that_of_the_class():
    class Optional(nn.Module):
        norm = None

        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(2)

    net = Optional()
    assert isinstance(net.norm, nn.LayerNorm)
    assert list(net.state_dict()) == ["norm.weight", "norm.bias"]


def test_parameter_shared_by_two_modules_is_counted_once():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    x = leaf(np.ones((2, 3), np.float32))
    out = net(x)
    pull(out, np.ones((2, 3)))
    assert net[0].weight.grad is net[1].weight.grad


def test_module_used_twice_is_listed_once():
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, layer)
    assert len(list(net.parameters())) == 2
    assert [name for name, _ in net.named_modules()] == ["", "0"]
    assert len(net) == 2


def test_what_is_shared_is_saved_under_each_name():
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, layer)
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    other = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    other.load_state_dict(net.state_dict())
    assert_same(other[1].weight.numpy(), layer.weight.numpy())


def test_list_of_modules_is_changed_like_a_list():
    a, b, c, d = (nn.Linear(1, n) for n in (1, 2, 3, 4))
    for kind in (nn.ModuleList([a, b]), nn.Sequential(a, b)):
        kind.append(c)
        kind.insert(0, d)
        assert list(kind) == [d, a, b, c]
        assert kind.pop() is c
        del kind[1]
        kind.extend([c, a])
        kind[0:2] = [b]
        kind[-1] = d
        assert list(kind) == [b, c, d]
        assert list(kind.state_dict()) == [f"{i}.{n}" for i in range(3) for n in ("weight", "bias")]
        assert type(kind[1:]) is type(kind)
        assert list(kind[1:]) == [c, d]
        with pytest.raises(IndexError):
            kind[3] = a


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: a + b,
        lambda a, b: a + list(b),
        lambda a, b: a[:],
        lambda a, b: a[:1].extend(b),
        lambda a, b: b[1:] + a,
        lambda a, b: type(a)(*a, *b) if isinstance(a, nn.Sequential) else type(a)([*a, *b]),
    ],
)
@pytest.mark.parametrize("kind", [nn.ModuleList, lambda parts: nn.Sequential(*parts)])
def test_a_new_list_of_modules_leaves_those_that_it_is_made_of(kind, join):
    first, second = ([nn.Linear(1, n), nn.ReLU()] for n in (1, 2))
    a, b = kind(first), kind(second)
    made = join(a, b)
    assert type(made) is type(a)
    made.append(nn.Tanh())
    made[0] = nn.Tanh()
    for found, parts in ((a, first), (b, second)):
        assert list(found) == parts
        assert list(found._modules) == ["0", "1"]


def test_module_beside_the_elements_of_a_list_stays_where_it_is():
    class WithHead(nn.ModuleList):
        def __init__(self):
            super().__init__([nn.Linear(2, 3), nn.ReLU()])
            self.head = nn.Linear(3, 1)

    net = WithHead()
    head, last = net.head, nn.Linear(3, 4)
    net.append(last)
    assert net.head is head
    assert list(net)[2:] == [last]
    names = ["0.weight", "0.bias", "head.weight", "head.bias", "2.weight", "2.bias"]
    assert sorted(net.state_dict()) == sorted(names)


def test_lists_of_modules_hold_nothing_else():
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    for use, message in (
        (lambda: net.__setitem__(1, F.gelu), "a Sequential holds modules, got function"),
        (lambda: net.append(5), "a Sequential holds modules, got int"),
        (
            lambda: nn.Sequential(nn.ReLU),
            r"holds modules, got the class ReLU \(write ReLU\(\.\.\.\)\)",
        ),
        (lambda: nn.Sequential([nn.ReLU()]), "holds modules, got list: one by one"),
        (lambda: nn.ModuleList(nn.ReLU()), "a ModuleList takes a list, got ReLU"),
        (lambda: nn.Sequential(None), "a Sequential holds modules, got NoneType"),
        (lambda: nn.ModuleList([5]), "a ModuleList holds modules, got int"),
    ):
        with pytest.raises(TypeError, match=message):
            use()
    assert [type(part) for part in net] == [nn.Linear, nn.ReLU]


def test_module_list_behaves_like_a_list():
    parts = [nn.Linear(1, 1), nn.ReLU(), nn.Dropout(0.1)]
    found = nn.ModuleList(parts)
    assert len(found) == 3
    assert list(found) == parts
    assert found[-1] is parts[2]
    assert list(found[1:]) == parts[1:]
    found.append(nn.GELU())
    assert len(found) == 4
    found[0] = parts[1]
    assert found[0] is parts[1]
    with pytest.raises(IndexError):
        found[9]
    with pytest.raises(TypeError, match="modules"):
        found.append(3)


def test_sequential_is_composition():
    a, b = nn.Linear(2, 3), nn.Linear(3, 1)
    x = ta.randn(4, 2)
    assert_same(nn.Sequential(a, nn.ReLU(), b)(x).numpy(), b(F.relu(a(x))).numpy())
    assert nn.Sequential()(x) is x


def test_a_module_set_on_a_sequential_by_name_is_the_next_one():
    """As in PyTorch, where add_module does the same; replaced, it keeps its place."""
    net = nn.Sequential(nn.Linear(2, 3))
    net.extra = nn.Linear(3, 4)
    setattr(net, "last", nn.ReLU())  # noqa: B010
    x = ta.randn(5, 2)
    assert_same(net(x).numpy(), F.relu(net.extra(net[0](x))).numpy())
    assert list(net.state_dict()) == ["0.weight", "0.bias", "extra.weight", "extra.bias"]
    net.extra = nn.Linear(3, 1)
    assert_same(net(x).numpy(), F.relu(net.extra(net[0](x))).numpy())
    assert (len(net), net[1], net[-1]) == (3, net.extra, net.last)


@needs_torch
def test_named_modules_of_a_sequential_are_pytorchs(torch):
    nets = []
    for space in (nn, torch.nn):
        layers = [("up", space.Linear(2, 3)), ("act", space.ReLU()), ("down", space.Linear(3, 1))]
        net = space.Sequential(OrderedDict(layers))
        net.append(space.Linear(1, 2))
        net.head = space.Linear(2, 2)
        nets.append(net)
    ours, theirs = nets
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({n: x.numpy() for n, x in theirs.state_dict().items()})
    x = rng_of(1).normal(size=(4, 2)).astype(np.float32)
    np.testing.assert_allclose(
        ours(ta.tensor(x)).numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("modules", "error", "message"),
    [
        ({"a": 5}, TypeError, "holds modules, got int"),
        ({"a.b": nn.ReLU()}, KeyError, "without dots"),
        ({"forward": nn.ReLU()}, KeyError, "no attribute"),
        ({3: nn.ReLU()}, KeyError, "got 3"),
    ],
)
def test_names_of_modules_in_a_sequential_are_checked(modules, error, message):
    with pytest.raises(error, match=message):
        nn.Sequential(modules)


@pytest.mark.parametrize(
    "make",
    [
        lambda **kind: nn.Linear(3, 2, **kind),
        lambda **kind: nn.Linear(3, 2, bias=False, **kind),
        lambda **kind: nn.Embedding(5, 3, padding_idx=1, **kind),
        lambda **kind: nn.LayerNorm((2, 3), **kind),
        lambda **kind: nn.LayerNorm(3, bias=False, **kind),
        lambda **kind: nn.RMSNorm(3, **kind),
        lambda **kind: nn.RMSNorm(3, elementwise_affine=False, **kind),
    ],
)
def test_layers_are_made_in_a_dtype(make):
    """With the same random numbers, which are not rounded to float32 before."""
    ta.manual_seed(0)
    default = make().state_dict()
    for dtype in (ta.float64, "float16", np.dtype(np.float32), None):
        ta.manual_seed(0)
        made = make(dtype=dtype, device="cpu").state_dict()
        for name, x in made.items():
            assert x.dtype == np.dtype(dtype or np.float32)
            assert_same(x.float().numpy(), default[name].to(x.dtype).float().numpy())
    with pytest.raises(DtypeError, match="a Parameter needs a floating dtype, got int64"):
        nn.Linear(2, 2, dtype=ta.int64)
    with pytest.raises(DeviceError, match="got 'tpu'"):
        nn.Linear(2, 2, device="tpu")
    ta.manual_seed(0)
    numbers = nn.Linear(3, 2, dtype=ta.float64).weight.numpy()
    assert (numbers != numbers.astype(np.float32)).any()


def test_a_state_with_something_else_in_it_names_the_key():
    layer = nn.Linear(2, 2)
    for value in (None, "x", [[1.0], [2.0, 3.0]]):
        with pytest.raises((DtypeError, ShapeError), match=r"^bias: "):
            layer.load_state_dict({"weight": ta.ones(2, 2), "bias": value})


def test_gradient_arrives_where_a_module_was_converted_in_between():
    x, grad = np.ones((2, 3), np.float32), np.float32([[1, -2], [3, 0.5]])
    net, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    out = net(leaf(x))
    net.to(ta.float64)
    pull(out, grad)
    pull(twin(leaf(x)), grad)
    assert net.weight.grad.dtype == np.float64
    assert_same(net.weight.grad.numpy(), twin.weight.grad.numpy().astype(np.float64))


def test_module_without_forward_says_so():
    with pytest.raises(TypeError, match="forward"):
        nn.Module()(1)


def test_repr_shows_the_tree():
    text = repr(Net())
    assert text.splitlines()[0] == "Net("
    assert "  (second): Linear(2, 3, bias=True)" in text
    assert "    (0): Linear(3, 3, bias=False)" in text
    assert "    (1): Dropout(p=0.5)" in text
    assert "(norm): LayerNorm((6,), eps=1e-05, elementwise_affine=True, bias=True)" in repr(
        make_layer("pre", "relu")
    )
    assert repr(nn.Linear(2, 3)) == "Linear(2, 3, bias=True)"
    text = "Parameter containing:\ntensor([1.], requires_grad=True)"
    assert repr(nn.Parameter([1.0])) == text


def test_deepcopy_is_independent():
    ta.manual_seed(0)
    net = Net()
    out = net(ta.randn(4, 2))
    pull(out, np.ones(out.shape))
    twin = copy.deepcopy(net)
    assert type(twin) is Net
    assert [n for n, _ in twin.named_parameters()] == NET_PARAMETERS
    for mine, other in zip(net.parameters(), twin.parameters(), strict=True):
        assert mine is not other
        assert isinstance(other, nn.Parameter)
        assert_same(mine.numpy(), other.numpy())
        assert not np.shares_memory(mine.data, other.data)
        assert other.grad is None  # as in PyTorch
    with ta.no_grad():
        twin.scale[...] = 7
    assert net.scale.item() == 2
    assert net.scale.grad is not None
    x = ta.randn(4, 2)
    with ta.no_grad():
        twin.scale[...] = 2
    assert_same(net.eval()(x).numpy(), twin.eval()(x).numpy())


def test_deepcopy_while_a_graph_is_alive_can_be_trained():
    net = nn.Linear(2, 2)
    out = net(ta.ones(1, 2))
    twin = copy.deepcopy(net)
    with ta.no_grad():
        twin.weight[0, 0] = 5.0
    assert twin.weight[0, 0].item() == 5
    assert net.weight[0, 0].item() != 5
    pull(out, np.ones((1, 2)))
    assert twin.weight.grad is None


def test_clones_have_values_of_their_own():
    ta.manual_seed(0)
    original = nn.MultiHeadedAttention(2, 8)
    copies = nn.clones(original, 3)
    assert isinstance(copies, nn.ModuleList)
    everyone = [original, *copies]
    for name, _ in original.named_parameters():
        values = [dict(m.named_parameters())[name].numpy() for m in everyone]
        for i in range(4):
            for j in range(i):
                assert (values[i] != values[j]).all(), f"{name} of copies {i} and {j}"


def test_clones_keep_sizes_settings_and_padding():
    original = nn.Sequential(nn.Embedding(5, 4, padding_idx=2), nn.LayerNorm(4, 0.5))
    random_parameters(original, rng_of(40))
    copies = nn.clones(original, 2)
    for part in copies:
        assert_all_zero(part[0].weight.numpy()[2])
        assert part[1].eps == 0.5
        assert (part[1].weight.numpy() == 1).all()
        assert_all_zero(part[1].bias.numpy())


def test_module_is_freed_without_the_garbage_collector():
    def watched():
        net = make_layer("pre", "gelu")
        out = net(ta.randn(2, 3, cases.WIDTH))
        pull(out, np.ones(out.shape))
        return weakref.ref(net.feed_forward.w_1.weight)

    watched()  # older versions of Numba keep the arguments of a call that compiles a kernel
    gc.collect()
    gc.disable()
    try:
        assert watched()() is None
    finally:
        gc.enable()


def test_parameter_needs_a_floating_dtype():
    with pytest.raises(DtypeError):
        nn.Parameter(np.arange(3))
    assert nn.Parameter([1.0], requires_grad=False).requires_grad is False


@pytest.mark.parametrize("kind", [ta.Tensor, nn.Linear])
def test_an_error_within_a_property_is_shown_as_it_is(kind, monkeypatch):
    """And not that there is no such property."""
    monkeypatch.setattr(kind, "broken", property(lambda self: self.weigth), raising=False)
    owner = ta.ones(2) if kind is ta.Tensor else nn.Linear(2, 2)
    for _ in range(2):
        with pytest.raises(AttributeError, match="weigth"):
            _ = owner.broken
        assert not hasattr(owner, "broken")


def test_a_state_is_refused_as_a_whole_where_a_buffer_was_computed() -> None:
    """As of a running mean without detach(): the weights before it had changed already."""

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(ta.ones(3))
            self.register_buffer("mean", ta.zeros(3))

    model = Mean()
    model.mean = 0.9 * model.mean + 0.1 * model.w
    before = model.state_dict()
    with pytest.raises(GraphError, match=r"^mean was computed .*: detach\(\)"):
        model.load_state_dict({"w": ta.zeros(3), "mean": ta.zeros(3)})
    assert all(x.equal(before[name]) for name, x in model.state_dict().items())
    model.mean = model.mean.detach()
    model.load_state_dict({"w": ta.zeros(3), "mean": ta.ones(3)})
    assert (model.w.tolist(), model.mean.tolist()) == ([0.0] * 3, [1.0] * 3)


def test_the_parameters_of_a_module_without_those_inside_it():
    """As programs ask that leave norms and biases out of weight decay."""
    block = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.LayerNorm(3)))
    block.scale = nn.Parameter(ta.ones(3))  # type: ignore[assignment]
    block.register_buffer("mask", ta.ones(2))
    assert [name for name, _ in block.named_parameters(recurse=False)] == ["scale"]
    assert [*block.parameters(recurse=False)] == [block.scale]
    assert [name for name, _ in block.named_buffers(recurse=False)] == ["mask"]
    assert [*block[1].buffers(recurse=False), *block[1].parameters(recurse=False)] == []
