"""Low-rank adaptation of a Linear: its value, its gradients, merged and not, in whole models."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from common import HAS_TORCH, assert_close, assert_equal, rng_of, signed

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError
from tinyattn.nn.int8 import Int8Linear

TOLERANCE = {np.float32: 2e-5, np.float64: 1e-12}
both_dtypes = pytest.mark.parametrize("dtype", TOLERANCE)


def adapted(dtype=np.float64, bias=True):
    """A LoRA whose B is not 0."""
    layer = nn.LoRA(nn.Linear(7, 5, bias), 3, 0.5).to(dtype)
    layer.B.data = ta.tensor(signed(rng_of(0), 5, 3).astype(dtype))
    return layer


def arrays(layer):
    return [p.numpy().astype(np.float64) for p in (layer.linear.weight, layer.A, layer.B)]


@both_dtypes
def test_value_and_gradients_are_those_of_the_formula(dtype):
    layer, rng = adapted(dtype), rng_of(1)
    x = ta.tensor(signed(rng, 2, 4, 7).astype(dtype), requires_grad=True)
    grad = signed(rng, 2, 4, 5).astype(dtype)
    w, a, b = arrays(layer)
    out = layer(x)
    out.backward(ta.tensor(grad))
    right = x.numpy() @ (w + 0.5 * b @ a).T + layer.linear.bias.numpy()
    assert_close(out.numpy(), right, TOLERANCE[dtype])
    rows, grads = x.numpy().reshape(-1, 7), grad.reshape(-1, 5)
    assert_close(layer.A.grad.numpy(), 0.5 * (grads @ b).T @ rows, TOLERANCE[dtype])
    assert_close(layer.B.grad.numpy(), 0.5 * grads.T @ (rows @ a.T), TOLERANCE[dtype])
    assert_close(x.grad.numpy(), grad @ (w + 0.5 * b @ a), TOLERANCE[dtype])
    assert layer.linear.weight.grad is None
    assert layer.linear.bias.grad is None


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_ten_steps_are_those_of_pytorch():
    import torch

    layer, rng = adapted(), rng_of(2)
    w, a, b = (torch.tensor(array) for array in arrays(layer))
    a.requires_grad_()
    b.requires_grad_()
    bias = torch.tensor(layer.linear.bias.numpy())
    ours = ta.optim.AdamW([p for p in layer.parameters() if p.requires_grad], lr=0.1)
    theirs = torch.optim.AdamW([a, b], lr=0.1)
    for _ in range(10):
        x, grad = signed(rng, 4, 7), signed(rng, 4, 5)
        ours.zero_grad()
        theirs.zero_grad()
        layer(ta.tensor(x)).backward(ta.tensor(grad))
        tx = torch.tensor(x)
        (tx @ w.T + bias + 0.5 * (tx @ a.T) @ b.T).backward(torch.tensor(grad))
        ours.step()
        theirs.step()
    assert_close(layer.A.numpy(), a.detach().numpy(), 1e-12)
    assert_close(layer.B.numpy(), b.detach().numpy(), 1e-12)
    assert_equal(layer.linear.weight.numpy(), w.numpy())


def test_it_begins_as_the_linear_alone():
    ta.manual_seed(0)
    linear = nn.Linear(400, 5)
    layer, x = nn.LoRA(linear), ta.randn(3, 400)
    assert_equal(layer(x).numpy(), linear(x).numpy())
    assert layer.A.shape == (8, 400)
    assert 0.9 < abs(layer.A.numpy()).max() * 20 <= 1
    assert repr(layer).startswith("LoRA(rank=8, scale=1.0")


def test_a_layer_that_stands_for_a_linear_takes_its_input_by_name_too():
    x = ta.randn(2, 7)
    layers = [adapted(np.float32), Int8Linear(ta.randn(5, 7))]
    for layer in [*layers, nn.LoRA(layers[1])]:
        assert_equal(layer(input=x).numpy(), layer(x).numpy())


@both_dtypes
def test_merged_it_is_a_linear_and_unmerged_what_it_was(dtype):
    layer = adapted(dtype)
    x, before = ta.tensor(signed(rng_of(3), 4, 7).astype(dtype)), layer.linear.weight.numpy().copy()
    right = layer(x).numpy()
    for _ in range(2):
        layer.merge()
        assert_close(layer(x).numpy(), right, TOLERANCE[dtype])
        assert_close(layer.linear(x).numpy(), right, TOLERANCE[dtype])
        assert not layer.linear.weight.requires_grad  # an optimizer would change it
    with pytest.raises(RuntimeError, match="would count twice"):
        layer.state_dict()
    layer.double()  # the weight that waits goes along
    for _ in range(2):
        layer.unmerge()
        assert_equal(layer.linear.weight.numpy(), before.astype(np.float64))
    assert_close(layer(x.double()).numpy(), right, TOLERANCE[dtype])
    again = adapted(dtype)
    again.load_state_dict(layer.to(dtype).state_dict())
    assert_equal(again(x).numpy(), layer(x).numpy())


def test_in_a_model_only_the_corrections_learn():
    block = nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), nn.PositionwiseFeedForward(8, 16))
    model = nn.Encoder(block, 2).eval()
    plain, x = copy.deepcopy(model), ta.randn(2, 3, 8)
    inserted = nn.LoRA.insert(model, ("W_q", "W_v"), rank=2)
    assert len(inserted) == 4
    learned = {name.split(".")[-1] for name, p in model.named_parameters() if p.requires_grad}
    assert learned == {"A", "B"}
    assert_equal(model(x).numpy(), plain(x).numpy())
    for lora in inserted:
        lora.B.data = 0.3 * ta.randn(*lora.B.shape)
    right = model(x).numpy()
    assert abs(right - plain(x).numpy()).max() > 0.01
    nn.LoRA.merge_all(model)
    assert not any(isinstance(module, nn.LoRA) for module in model.modules())
    assert_close(model(x).numpy(), right, 1e-5)
    assert list(model.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("training", [True, False])
def test_an_inserted_correction_is_in_the_mode_of_its_linear(training):
    model = nn.Sequential(nn.Linear(4, 4)).train(training)
    (lora,) = nn.LoRA.insert(model, "0", rank=2, dropout=0.5)
    assert {module.training for module in lora.modules()} == {training}
    lora.B.data = ta.randn(4, 2)
    x = ta.ones(100, 4)
    assert model(x).equal(model(x)) != training


def test_dropout_is_of_the_inputs_of_the_correction():
    """So hardly any output is without a correction, as half of them would be behind it."""
    lora, x = nn.LoRA(nn.Linear(16, 8), 4, dropout=0.5), ta.randn(50, 16)
    lora.B.data = ta.randn(8, 4)
    assert (lora(x) == lora.linear(x)).double().mean().item() < 0.05


def test_what_cannot_be_adapted_is_refused():
    with pytest.raises(TypeError, match=r"adapts an nn\.Linear, got Embedding"):
        nn.LoRA(nn.Embedding(3, 4))
    with pytest.raises(ValueError, match="rank"):
        nn.LoRA(nn.Linear(3, 4), 0)
    with pytest.raises(ValueError, match="scale must be a number >= 0"):
        nn.LoRA(nn.Linear(3, 4), 2, -1)
    model = nn.Sequential(nn.Linear(3, 4))
    with pytest.raises(ValueError, match=r"no Linear with a name of \['W_q'\]"):
        nn.LoRA.insert(model, ["W_q"])
    assert all(p.requires_grad for p in model.parameters())


# A weight that stands in two places


class Shared(nn.Module):
    """`kind` names what is shared: the head's weight, a Linear, its weight, a block."""

    def __init__(self, kind):
        super().__init__()
        self.words = nn.Embedding(10, 6)
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 10, bias=False)
        if kind == "head":
            self.head.weight = self.words.weight
        if kind == "linear":
            self.b = self.a
        if kind == "weight":
            self.b.weight = self.a.weight
        block = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.blocks = nn.ModuleList([block, block] if kind == "block" else [])

    def forward(self, ids):
        x = self.b(self.a(self.words(ids)).tanh())
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize("names", [("head",), ("a",), ("b", "0"), ("a", "b", "head", "0")])
@pytest.mark.parametrize("kind", ["head", "linear", "weight", "block"])
def test_a_weight_in_two_places_is_adapted_once(kind, names):
    model, ids = Shared(kind), [[1, 2, 3]]
    words, before = model.words.weight.numpy().copy(), model(ids).numpy()
    loras = nn.LoRA.insert(model, names, rank=2)
    assert len({id(lora.linear) for lora in loras}) == len(loras)
    assert_close(model(ids).numpy(), before, 1e-6)
    for lora in loras:
        lora.B.data = ta.randn(*lora.B.shape)
    right = model(ids).numpy()
    assert abs(right - before).max() > 0.01
    for lora in loras[::2]:
        lora.merge()
        assert_close(model(ids).numpy(), right, 1e-4)
    twin = copy.deepcopy(model)
    for lora in loras:
        lora.unmerge()
        assert_close(model(ids).numpy(), right, 1e-4)
    assert (kind != "head") or model.words.weight.equal(ta.tensor(words))
    for each in (model, twin):
        nn.LoRA.merge_all(each)
        assert not any(isinstance(module, nn.LoRA) for module in each.modules())
        assert_close(each(ids).numpy(), right, 1e-4)
        assert_equal(each.words.weight.numpy(), words)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_linear_in_two_places_gets_its_lora_in_both(name):
    """Also where one of its names was asked for."""
    model = Shared("linear")
    linear = model.a
    (lora,) = nn.LoRA.insert(model, name, rank=2)
    assert model.a is model.b is lora
    assert lora.linear is linear


def test_a_state_with_two_values_for_one_tensor_is_refused():
    """As of a tied head that was merged: the last name would win without a word."""
    tied, other = Shared("head"), Shared("")
    before = tied.words.weight.numpy().copy()
    with pytest.raises(CheckpointError, match=r"words\.weight and head\.weight are one tensor"):
        tied.load_state_dict(other.state_dict())
    assert_equal(tied.words.weight.numpy(), before)
    tied.load_state_dict(Shared("head").state_dict())


def test_what_is_inserted_later_leaves_the_first_corrections_learning():
    model = Shared("")
    (first,) = nn.LoRA.insert(model, "a", rank=2)
    with pytest.raises(ValueError, match="not in a LoRA yet"):
        nn.LoRA.insert(model, ("a",))
    (second,) = nn.LoRA.insert(model, ("a", "b"), rank=1)
    learned = [first.A, first.B, second.A, second.B]
    assert {id(p) for p in model.parameters() if p.requires_grad} == {id(p) for p in learned}
    assert type(first.linear) is nn.Linear
    with pytest.raises(ValueError, match="LoRA itself"):
        nn.LoRA.merge_all(first)


def test_a_merged_linear_is_not_written_to_where_it_was_shared():
    linear = nn.Linear(3, 3)
    lora, x = nn.LoRA(linear, 2), ta.randn(2, 3)
    lora.B.data = ta.randn(3, 2)
    before = linear(x).numpy()
    lora.merge()
    assert_equal(linear(x).numpy(), before)
    lora.unmerge()
    assert lora.linear is linear


def test_a_linear_in_a_list_of_its_parent_is_refused_and_stays():
    """Its forward calls the one in the list, so a LoRA beside it would learn nothing."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
            self.layers = [self.second]

    net = Net()
    before = net.second
    with pytest.raises(TypeError, match="'layers' is a list with modules"):
        nn.LoRA.insert(net, ("first", "second"))
    assert net.second is before
    assert isinstance(net.first, nn.Linear)
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_a_model_with_a_merged_lora_has_no_state() -> None:
    """Also where it is a part, and has the state again after `unmerge`."""
    model = nn.Sequential(nn.LoRA(nn.Linear(2, 3), 1), nn.Linear(3, 2))
    names = [*model.state_dict()]
    model[0].merge()
    for module in (model, model[0]):
        with pytest.raises(RuntimeError, match=r"^a LoRA that is merged has no state of its own"):
            module.state_dict()
    model[0].unmerge()
    assert [*model.state_dict()] == names


def test_the_state_of_a_model_has_the_name_of_each_number_of_a_lora():
    model = nn.Sequential(nn.LoRA(nn.Linear(2, 3), 1), nn.Sequential(nn.Tanh(), nn.Linear(3, 2)))
    nn.LoRA.insert(model[1], "1", rank=2)
    names = [name for name, _ in model.named_parameters()]
    assert [*model.state_dict()] == names
    assert {"0.A", "0.linear.weight", "1.1.B", "1.1.linear.bias"} <= set(names)
    other = copy.deepcopy(model)
    with ta.no_grad():
        for i, parameter in enumerate(other.parameters()):
            parameter += i + 1
    model.load_state_dict(other.state_dict())
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert_equal(ours.numpy(), theirs.numpy())


class Named(nn.Module):
    """Linears whose names begin and end alike."""

    def __init__(self):
        super().__init__()
        for name in ("W_v", "W", "W_q", "W_q2", "q"):
            setattr(self, name, nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("names", "right"),
    [
        ("W_q", ["W_q"]),
        ("q", ["q"]),
        (["W"], ["W"]),
        (("W_q", "W_v"), ["W_v", "W_q"]),
        ({"q": 1, "W_q2": 2, "no": 3}, ["W_q2", "q"]),
    ],
)
def test_a_name_is_a_whole_one_and_what_is_inserted_comes_in_the_order_of_the_model(names, right):
    model = Named()
    linears = [getattr(model, name) for name in right]
    inserted = nn.LoRA.insert(model, names, rank=1)
    found = [name for name, child in model.named_children() if isinstance(child, nn.LoRA)]
    assert found == right
    assert [lora.linear for lora in inserted] == linears
    assert [getattr(model, name) for name in right] == inserted


@pytest.mark.parametrize("scale", [0, 0.0, 2, 0.125])
def test_the_scale_is_that_of_the_correction_and_may_be_0(scale):
    model = nn.Sequential(nn.Linear(3, 2))
    (lora,) = nn.LoRA.insert(model, "0", 2, scale)
    lora.B.data = ta.tensor(signed(rng_of(0), 2, 2).astype(np.float32))
    x = ta.tensor(signed(rng_of(1), 4, 3).astype(np.float32))
    correction = x.numpy() @ lora.A.numpy().T @ lora.B.numpy().T
    assert lora.scale == scale
    assert_close(lora(x).numpy(), lora.linear(x).numpy() + scale * correction, 1e-6)


def test_what_is_no_module_and_what_are_no_names_is_said():
    model = nn.Sequential(nn.Linear(2, 2))
    said = 'names are attributes, such as ("W_q", "W_v"), got int 3'
    for call, right in (
        (lambda: nn.LoRA.insert(model, 3), said),
        (lambda: nn.LoRA.insert([model[0]], "0"), "a LoRA is put into a module, got list"),
        (lambda: nn.LoRA.merge_all([model]), "a LoRA is put into a module, got list"),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == right
    assert type(model[0]) is nn.Linear
    assert model[0].weight.requires_grad


@pytest.mark.parametrize("training", [True, False])
def test_merging_keeps_the_bias_and_goes_back_in_each_mode(training):
    model = nn.Sequential(nn.Linear(3, 2)).train(training)
    old = model[0]
    (lora,) = nn.LoRA.insert(model, "0", rank=1)
    lora.merge()
    assert lora.is_merged
    assert lora.linear.bias is old.bias
    lora.unmerge()
    assert not lora.is_merged
    assert lora.linear is old
    assert {module.training for module in model.modules()} == {training}
