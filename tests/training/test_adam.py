"""Adam moves each parameter as if it were alone, and keeps its state through copies and files."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from common import assert_close, assert_same, leaf, rng_of, signed

import tinyattn as ta
from tinyattn import optim


def several(seed=3):
    """Parameters of many sizes, one in float64."""
    rng = rng_of(seed)
    shapes = [(3, 5), (7,), (), (0, 4), (70, 70), (2, 3, 4), (1,)]
    singles = [leaf(signed(rng, *shape).astype(np.float32)) for shape in shapes]
    return [*singles, leaf(signed(rng, 6))]


def give_gradients(parameters, rng, without=()):
    for i, parameter in enumerate(parameters):
        gradient = signed(rng, *parameter.shape).astype(parameter.dtype)
        parameter.grad = None if i in without else ta.tensor(gradient)


def moments(optimizer):
    return {name: x.numpy() for name, x in optimizer.state_dict()["arrays"].items()}


def after_steps(optimizers, number, without=lambda step: ()):
    """Where the parameters of the optimizers, each with its part of them, are after some steps."""
    parameters = [parameter for optimizer in optimizers for parameter in optimizer.parameters]
    for step in range(number):
        give_gradients(parameters, rng_of(step), without(step))
        for optimizer in optimizers:
            optimizer.step()
    return [parameter.numpy() for parameter in parameters]


def assert_same_lists(found, wanted):
    for x, y in zip(found, wanted, strict=True):
        assert_same(x, y)


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
@pytest.mark.parametrize(
    "without",
    [
        lambda step: (),
        lambda step: (0, 4) if step % 2 else (1,),
        lambda step: range(step // 3),
        lambda step: range(7 - step // 3, 7),
    ],
    ids=["all", "coming and going", "fewer at the front", "fewer at the end"],
)
def test_parameters_together_move_as_each_alone(kind, without):
    together = kind(several(), lr=0.1, weight_decay=0.2)
    moved = after_steps([together], 12, without)
    alone = [kind([parameter], lr=0.1, weight_decay=0.2) for parameter in several()]
    assert_same_lists(moved, after_steps(alone, 12, without))
    for i, optimizer in enumerate(alone):
        for name in ("m", "v"):
            assert_same(moments(together)[f"{name}.{i}"], moments(optimizer)[f"{name}.0"])
    assert not np.allclose(together.parameters[0].numpy(), several()[0].numpy())


def test_copies_of_an_optimizer_go_their_own_ways():
    optimizer = optim.Adam(several(), lr=0.1)
    after_steps([optimizer], 2)
    twin = copy.deepcopy(optimizer)
    twin_moments = moments(twin)
    moved = after_steps([optimizer], 3)
    assert_same_lists(moments(twin).values(), twin_moments.values())
    assert_same_lists(after_steps([twin], 3), moved)
    assert_same_lists(moments(twin).values(), moments(optimizer).values())


@pytest.mark.parametrize("steps", [0, 2])
def test_a_state_loaded_into_an_optimizer_that_has_moved(steps):
    first, second = optim.Adam(several(), lr=0.1), optim.Adam(several(), lr=0.1)
    after_steps([first], steps)
    state = first.state_dict()
    wanted = after_steps([first], 3)
    after_steps([second], 4)
    second.load_state_dict(state)
    for parameter, start in zip(second.parameters, several(), strict=True):
        parameter.data = start.numpy()
    fresh = optim.Adam(several(), lr=0.1)
    fresh.load_state_dict(state)
    assert_same_lists(after_steps([second], 3), after_steps([fresh], 3))
    if steps == 0:
        assert_same_lists([p.numpy() for p in second.parameters], wanted)
    assert_same_lists(moments(second).values(), moments(first).values())


@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[:1]], ids=["all", "part"])
def test_memory_that_two_parameters_share_is_moved_for_both(part):
    first = leaf(np.ones((2, 3), np.float32))
    second = part(first.detach())
    second.requires_grad = True
    optimizer = optim.Adam([first, second, leaf(np.ones(2, np.float32))], lr=0.1)
    for _ in range(2):  # both times by lr, since the gradient stays
        for parameter in optimizer.parameters:
            parameter.grad = ta.ones(*parameter.shape)
        optimizer.step()
    assert_close(second.numpy(), np.full(second.shape, 0.6), 1e-5)
    assert_close(first.numpy()[1], np.full(3, 0.6 if second.shape == (2, 3) else 0.8), 1e-5)


def test_pickles_hold_each_array_once():
    optimizer = optim.Adam([leaf(np.ones(1000, np.float32)) for _ in range(5)], lr=0.1)
    after_steps([optimizer], 3)
    content = pickle.dumps(optimizer.state)
    assert len(content) < 2.1 * 4 * 5000
    without = ("_checked", "_groups")
    whole = pickle.dumps({k: v for k, v in optimizer.__getstate__().items() if k not in without})
    assert len(whole) < len(content) + 1000


def test_a_subclass_may_keep_more_than_two_moments():
    class MaximumAdam(optim.Adam):
        slots = ("m", "v", "largest")

        def update_all(self, updates):
            super().update_all(updates)
            for i, parameter, _ in updates:
                largest = self.slot("largest", i, parameter)
                np.maximum(largest, self.slot("v", i, parameter), out=largest)

    optimizer, plain = MaximumAdam(several(), lr=0.1), optim.Adam(several(), lr=0.1)
    assert_same_lists(after_steps([optimizer], 3), after_steps([plain], 3))
    assert (optimizer.state["largest"][0] >= optimizer.state["v"][0]).all()


def test_an_array_put_into_the_state_is_used():
    optimizer, other = optim.Adam(several(), lr=0.1), optim.Adam(several(), lr=0.1)
    for one in (optimizer, other):
        after_steps([one], 2)
    optimizer.state["v"][1] = optimizer.state["v"][1] * 100
    other.state["v"][1] *= 100
    moved = after_steps([optimizer], 2)
    assert_same_lists(moved, after_steps([other], 2))
    assert optimizer.state["v"][1].max() > 1e-3
