"""Corners that a search for faults has found."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.errors import MaskError, ShapeError


def half(*shape: int, requires_grad: bool = True) -> ta.Tensor:
    values = np.random.default_rng(0).normal(size=shape)
    return ta.tensor(values, dtype=ta.float16, requires_grad=requires_grad)


def attention_of(x: ta.Tensor) -> ta.Tensor:
    return F.scaled_dot_product_attention(x[None], x[None], x[None])[0]


@pytest.mark.parametrize("function", [lambda x: x.softmax(1), attention_of])
def test_second_order_of_softmax_in_float16(function) -> None:
    x, cotangent, direction = half(3, 4), half(3, 4, requires_grad=False), half(3, 4)
    wide = x.detach().double().requires_grad_()
    found = []
    for leaf in (x, wide):
        (slope,) = ta.grad(function(leaf), leaf, cotangent.to(leaf.dtype), create_graph=True)
        found += ta.grad(slope, leaf, direction.detach().to(leaf.dtype))
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), atol=2e-2)


def test_mean_of_more_elements_than_float16_counts() -> None:
    x = ta.ones(80_000, dtype=ta.float16, requires_grad=True)
    (slope,) = ta.grad(x.mean(), x)
    np.testing.assert_allclose(slope.numpy(), 1 / 80_000, rtol=5e-3)
    x = ta.tensor(np.tile([1, 2], 40_000), dtype=ta.float16, requires_grad=True)
    (slope,) = ta.grad(x.var(), x, ta.tensor(60_000, dtype=ta.float16))
    np.testing.assert_allclose(abs(slope.numpy()), 0.75, rtol=5e-3)


def test_gelu_of_large_numbers_in_float16() -> None:
    x = ta.tensor([1000.0, -1000.0, 3.25], dtype=ta.float16, requires_grad=True)
    (slope,) = ta.grad(F.gelu(x, "tanh"), x, ta.ones(3, dtype=ta.float16))
    np.testing.assert_allclose(slope.numpy(), [1, 0, 1.0056], atol=1e-3)


def test_masked_mean_does_not_overflow_in_float16() -> None:
    x = ta.full((1, 100, 1), 1000.0, dtype=ta.float16)
    mean = F.masked_mean(x, valid_lens=[99])
    assert mean.item() == 1000
    assert mean.dtype == np.float16


def test_argmax_takes_one_dimension() -> None:
    x = ta.arange(6).reshape(2, 3)
    for method in (x.argmax, x.argmin):
        with pytest.raises(ShapeError, match=r"one dimension, or None for all elements, got"):
            method(dim=(0, 1))
    assert x.argmax(dim=(1,)).tolist() == [2, 2]


def test_grad_keeps_what_it_does_not_walk() -> None:
    x, w = (ta.tensor([value], requires_grad=True) for value in (2.0, 3.0))
    h = w.exp()
    loss = (x * x).sum() + h.sum()
    assert ta.grad(loss, x)[0].item() == 4
    (h * 2).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * np.exp(3.0), rtol=1e-6)


def test_a_refused_call_leaves_the_cache_of_a_decoder_as_it_was() -> None:
    ta.manual_seed(0)
    attention = [nn.MultiHeadedAttention(2, 8) for _ in range(2)]
    layer = nn.DecoderLayer(8, *attention, nn.PositionwiseFeedForward(8, 8))
    decoder = nn.Decoder(layer, 2).eval()
    x, memory = ta.randn(2, 3, 8), ta.randn(2, 4, 8)
    cache, outputs = decoder.new_cache(), []
    for t in range(3):
        with pytest.raises(MaskError):
            decoder(x[:, t : t + 1], memory, src_mask=ta.ones(2, 5).bool(), cache=cache)
        assert cache.length == t
        outputs.append(decoder(x[:, t : t + 1], memory, cache=cache))
    np.testing.assert_allclose(ta.cat(outputs, 1).numpy(), decoder(x, memory).numpy(), atol=1e-5)


def test_the_first_velocity_has_no_dampening() -> None:
    """Also if the momentum is set after some steps, as in PyTorch."""
    w = ta.tensor([1.0, -2.0], requires_grad=True)
    sgd = optim.SGD([w], lr=0.1, dampening=0.5)
    expected, velocity = np.array([1.0, -2.0]), None
    for step in range(4):
        sgd.param_groups[0]["momentum"] = momentum = 0.0 if step < 2 else 0.9
        sgd.zero_grad()
        (w * w).sum().backward()
        sgd.step()
        grad = 2 * expected
        if momentum:
            velocity = grad if velocity is None else momentum * velocity + 0.5 * grad
            grad = velocity
        expected = expected - 0.1 * grad
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5)


def test_an_optimizer_names_its_mistake_for_a_module_that_is_a_list() -> None:
    with pytest.raises(TypeError, match="parameters, not the module"):
        optim.Adam(nn.Sequential(nn.Linear(2, 2)))


def test_a_state_of_random_numbers_that_are_too_large_is_refused() -> None:
    state = ta.get_rng_state()
    with pytest.raises(ValueError, match="not a state"):
        ta.set_rng_state({**state, "uinteger": 2**40})
    ta.set_rng_state(state)


def test_a_state_with_one_part_that_is_wrong_is_refused_and_changes_nothing() -> None:
    before = ta.get_rng_state()
    wrong: list[Any] = [np.random.RandomState(0).get_state(False), {}, None, 5, "state", [before]]
    for value in (None, "a", [1], {}, 2**40):  # each part is another one, or not there
        wrong += [{**before, name: value} for name in before]
    wrong += [{**before, "state": value} for value in (5, -1.5, {"state": "1"}, {"inc": "1"})]
    wrong += [{key: before[key] for key in before if key != name} for name in before]
    for number in ("a", None, "-1", str(2**128), np.nan, [1]):
        wrong += [{**before, "state": {**before["state"], n: number}} for n in ("state", "inc")]
    for state in wrong:
        with pytest.raises(ValueError, match=r"^not a state of get_rng_state\(\): ") as refused:
            ta.set_rng_state(state)
        assert str(refused.value).endswith(repr(state))
        assert ta.get_rng_state() == before


def test_a_state_of_random_numbers_is_the_same_after_json_of_any_reader() -> None:
    """Many keep integers of 53 bits only; text is text everywhere."""
    ta.manual_seed(7)
    ta.rand(3)
    state = ta.get_rng_state()
    read = json.loads(json.dumps(state), parse_int=lambda digits: int(float(digits)))
    assert read == state
    following = ta.randn(5).tolist()
    ta.set_rng_state(read)
    assert ta.randn(5).tolist() == following


def test_a_refused_generate_does_not_start_the_model() -> None:
    class Scores:
        starts = 0

        def start(self) -> None:
            self.starts += 1

        def __call__(self, ids: ta.Tensor) -> ta.Tensor:
            return F.one_hot(ids[:, -1], 6).float()

    scores = Scores()
    with pytest.raises(TypeError, match="stop is an integer id"):
        ta.generation.generate(scores, [[1]], max_len=3, stop="x")
    assert scores.starts == 0
    ta.generation.generate(scores, [[1]], max_len=3)
    assert scores.starts == 1


@pytest.mark.parametrize("name", ["any", "all", "std", "var", "sum"])
def test_reductions_take_the_names_of_numpy(name: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    options = {"ddof": 1} if name in ("std", "var") else {}
    expected = getattr(np, name)(x, axis=0, keepdims=True, **options)
    found = getattr(ta.tensor(x), name)(axis=0, keepdims=True)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_norms_take_an_integer_of_numpy() -> None:
    x = ta.randn(3, 4)
    for norm in (F.layer_norm, F.rms_norm):
        np.testing.assert_array_equal(norm(x, np.int64(4)).numpy(), norm(x, 4).numpy())
