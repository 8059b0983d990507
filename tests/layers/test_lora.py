"""Low-rank adaptation of a Linear: its value, its gradients, merged and not, in whole models."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from common import HAS_TORCH, assert_close, assert_equal, rng_of, signed

import tinyattn as ta
from tinyattn import nn

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


@both_dtypes
def test_merged_it_is_a_linear_and_unmerged_what_it_was(dtype):
    layer = adapted(dtype)
    x, before = ta.tensor(signed(rng_of(3), 4, 7).astype(dtype)), layer.linear.weight.numpy().copy()
    right = layer(x).numpy()
    for _ in range(2):
        layer.merge()
        assert_close(layer(x).numpy(), right, TOLERANCE[dtype])
        assert_close(layer.linear(x).numpy(), right, TOLERANCE[dtype])
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
