"""Optimizers against PyTorch over 50 steps, schedules against their formulas, and saved states."""

from __future__ import annotations

import copy
import functools
import math
import pickle
import re

import make_torch_values as cases
import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_same,
    leaf,
    needs_torch,
    rng_of,
    signed,
    stored_case,
)

import tinyattn as ta
from tinyattn import nn, optim
from tinyattn.errors import CheckpointError, GraphError, InPlaceError, ShapeError

# 50 steps beside PyTorch

TOLERANCE = 1e-9


def make_problem(arrays, dtype=np.float64):
    weight, bias = (leaf(arrays[name].astype(dtype)) for name in ("weight", "bias"))
    x, y = (ta.tensor(arrays[name].astype(dtype)) for name in ("x", "y"))

    def loss():
        return (x @ weight + bias).tanh() - y

    return [weight, bias], lambda: (loss() ** 2).sum()


def train(optimizer, loss, steps, record=()):
    results = {}
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        if step in record:
            results[f"weight.{step}"] = optimizer.parameters[0].numpy()
            results[f"bias.{step}"] = optimizer.parameters[1].numpy()
    return results


@functools.cache
def our_results(name):
    kind, options = cases.OPTIMIZERS[name]
    parameters, loss = make_problem(cases.arrays_of(name))
    optimizer = getattr(optim, kind)(parameters, **options)
    return train(optimizer, loss, cases.STEPS, record=(1, 2, 10, cases.STEPS))


def compare(actual, expected):
    assert set(actual) == set(expected)
    assert f"weight.{cases.STEPS}" in expected
    for name, value in expected.items():
        error = np.abs(actual[name] - value).max()
        assert error <= TOLERANCE, f"{name}: {error:.3g}"


@pytest.mark.parametrize("name", cases.OPTIMIZERS)
def test_fifty_steps_agree_with_stored_pytorch_values(name):
    compare(our_results(name), stored_case(name))


@needs_torch
@pytest.mark.parametrize("name", cases.OPTIMIZERS)
def test_fifty_steps_agree_with_live_pytorch(name):
    compare(our_results(name), cases.torch_results(name))


def test_settings_of_the_cases_matter():
    """Each ends at another place, so that no option can be ignored unnoticed."""
    ends = {name: our_results(name)[f"weight.{cases.STEPS}"] for name in cases.OPTIMIZERS}
    for kind in ("sgd", "adam.", "adamw"):
        group = [end for name, end in ends.items() if name.startswith(kind)]
        for i, one in enumerate(group):
            for other in group[:i]:
                assert np.abs(one - other).max() > 1e-4


@pytest.mark.parametrize("name", cases.OPTIMIZERS)
def test_float32_follows_float64(name):
    """Fifty steps in single precision stay within single precision of the double one."""
    kind, options = cases.OPTIMIZERS[name]
    parameters, loss = make_problem(cases.arrays_of(name), np.float32)
    optimizer = getattr(optim, kind)(parameters, **options)
    found = train(optimizer, loss, 10, record=(10,))
    expected = our_results(name)
    assert found["weight.10"].dtype == np.float32
    for key in ("weight.10", "bias.10"):
        assert_close(found[key], expected[key], 1e-5)


# One step by hand


def one_step(optimizer_class, start, grad, **options):
    parameter = leaf(np.array(start))
    parameter.grad = ta.tensor(np.array(grad))
    optimizer = optimizer_class([parameter], **options)
    optimizer.step()
    return parameter.numpy()


def test_sgd_formula():
    assert one_step(optim.SGD, [1.0, 2.0], [3.0, -4.0], lr=0.1).tolist() == [0.7, 2.4]
    decayed = one_step(optim.SGD, [1.0, 2.0], [3.0, -4.0], lr=0.1, weight_decay=0.5)
    assert_close(decayed, [1 - 0.1 * 3.5, 2 + 0.1 * 3.0], 1e-15)


def test_dampening_begins_with_the_second_step():
    parameter = leaf([1.0], np.float64)
    sgd = optim.SGD([parameter], lr=0.1, momentum=0.5, dampening=0.25)
    found = []
    for grad in (2.0, 3.0):
        parameter.grad = ta.tensor(np.array([grad]))
        sgd.step()
        found.append(parameter.item())
    assert_close(found, [1 - 0.1 * 2, 1 - 0.1 * 2 - 0.1 * (0.5 * 2 + 0.75 * 3)], 1e-15)


def test_first_step_of_adam_is_lr_in_the_direction_of_the_sign():
    moved = one_step(optim.Adam, [1.0, 1.0, 1.0], [1e-3, -50.0, 0.0], lr=0.1, eps=1e-12)
    assert_close(moved, [0.9, 1.1, 1.0], 1e-8)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
def test_adam_of_float16_is_rounded_nowhere_but_in_the_weights(kind, decay):
    """In float16, eps is 0 and so is the square of a gradient below 2e-4."""
    scales = np.array([0.0, 1e-7, 1e-4, 1.0, 4e4])
    grads = [(scales * signed(rng_of(step), 5)).astype(np.float16) for step in range(30)]
    start = np.linspace(-2, 2, 5).astype(np.float16)
    parameter = ta.tensor(start, requires_grad=True)
    optimizer = kind([parameter], lr=0.01, weight_decay=decay)
    w, m, v = start.astype(np.float64), np.zeros(5), np.zeros(5)
    for step, grad in enumerate(grads, 1):
        parameter.grad = ta.tensor(grad)
        optimizer.step()
        g = grad.astype(np.float64) + (decay * w if kind is optim.Adam else 0)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w * (1 - 0.01 * decay) if kind is optim.AdamW else w
        w = w - 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        w = w.astype(np.float16).astype(np.float64)
    assert parameter.dtype == np.float16
    np.testing.assert_allclose(parameter.numpy(), w, rtol=2**-10, atol=0)
    assert {a.dtype for a in optimizer.state_dict()["arrays"].values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 1e-7},
        {"lr": 1e-7, "weight_decay": 3e4},
        {"lr": 1e-7, "momentum": 0.9},
        {"lr": 1e-7, "momentum": 0.9, "dampening": 0.3, "weight_decay": 3e4},
        {"lr": 1e-7, "momentum": 0.9, "nesterov": True},
    ],
    ids=repr,
)
def test_sgd_of_float16_is_rounded_nowhere_but_in_the_weights(options):
    """In float16, the rate 1e-7 has one digit, and the decay of a weight may be inf."""
    start = np.linspace(-1e-2, 1e-2, 5).astype(np.float16)
    grads = [(4e4 * signed(rng_of(step), 5)).astype(np.float16) for step in range(20)]
    parameter = ta.tensor(start, requires_grad=True)
    optimizer = optim.SGD([parameter], **options)
    settings = {"momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False} | options
    w, velocity = start.astype(np.float64), None
    for grad in grads:
        parameter.grad = ta.tensor(grad)
        optimizer.step()
        g = grad.astype(np.float64) + settings["weight_decay"] * w
        if velocity is None:
            velocity = g
        else:
            velocity = settings["momentum"] * velocity + (1 - settings["dampening"]) * g
        step = g + settings["momentum"] * velocity if settings["nesterov"] else velocity
        with np.errstate(over="ignore"):
            w = (w - settings["lr"] * step).astype(np.float16).astype(np.float64)
    assert parameter.dtype == np.float16
    np.testing.assert_allclose(parameter.numpy(), w, rtol=2**-10, atol=0)


def test_a_state_in_another_dtype_is_converted():
    """What has been learned so far is not forgotten when the parameters change their dtype."""
    parameter = ta.tensor([1.0, -1.0], requires_grad=True)
    optimizer = optim.SGD([parameter], lr=0.5, momentum=0.5)
    for dtype, expected in ((ta.float32, [0.5, -1.5]), (ta.float64, [-0.25, -2.25]),
                            (ta.float16, [-1.125, -3.125])):  # fmt: skip
        parameter.data = parameter.numpy().astype(dtype)
        parameter.grad = ta.ones(2, dtype=dtype)
        optimizer.step()
        assert parameter.tolist() == expected


def test_adamw_takes_decay_off_the_weights_not_the_gradient():
    moved = one_step(optim.AdamW, [2.0], [0.0], lr=0.1, weight_decay=0.5)
    assert_close(moved, [2 * (1 - 0.05)], 1e-15)
    moved = one_step(optim.Adam, [2.0], [0.0], lr=0.1, weight_decay=0.5)
    assert_close(moved, [1.9], 1e-6)


def test_defaults_are_pytorchs():
    parameter = leaf(np.ones(1))
    adam, adamw = optim.Adam([parameter]), optim.AdamW([parameter])
    for optimizer, decay in ((adam, 0.0), (adamw, 0.01)):
        found = (optimizer.lr, optimizer.betas, optimizer.eps, optimizer.weight_decay)
        assert found == (1e-3, (0.9, 0.999), 1e-8, decay)
    sgd = optim.SGD([parameter])
    assert (sgd.lr, sgd.momentum, sgd.weight_decay, sgd.nesterov) == (1e-3, 0, 0, False)


# What a step touches


def test_parameters_without_gradient_stay_and_do_not_count():
    moved, still = leaf(np.ones(2)), leaf(np.ones(2))
    optimizer = optim.AdamW([moved, still], lr=0.1)
    moved.grad = ta.tensor(np.ones(2))
    optimizer.step()
    optimizer.step()
    assert_same(still.numpy(), np.ones(2))
    assert (moved.numpy() < 1).all()
    assert optimizer.steps == [2, 0]
    optimizer.zero_grad()
    assert moved.grad is None
    still.grad = ta.tensor(np.ones(2))
    optimizer.step()
    assert_close(still.numpy(), (1 - 0.1 * 0.01) - 0.1 * np.ones(2), 1e-6)


def test_gradients_are_left_as_they_are():
    for make in (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: optim.Adam(p, weight_decay=0.1),
        optim.AdamW,
    ):
        parameter = leaf(np.arange(3.0))
        parameter.grad = ta.tensor(np.array([1.0, -2.0, 3.0]))
        optimizer = make([parameter])
        for _ in range(3):
            optimizer.step()
        assert parameter.grad.tolist() == [1.0, -2.0, 3.0]


def test_a_step_while_a_graph_is_alive_is_noticed():
    """As in PyTorch: the graph needs the weights as they were, and refuses."""
    w = leaf(np.array([2.0]))
    x = leaf(np.array([3.0]))
    first, second, product = (w * x).sum(), (w * x).sum(), (w * 4).sum()
    first.backward()
    optimizer = optim.SGD([w], lr=1.0)
    optimizer.step()
    assert w.item() == -1
    with pytest.raises(InPlaceError, match="mul needs"):
        second.backward()
    assert x.grad.item() == 2
    product.backward()  # needs no weights
    assert w.grad.item() == 3 + 4


def test_step_is_not_recorded():
    w = leaf(np.ones(2))
    (w * w).sum().backward()
    optim.Adam([w]).step()
    assert w.is_leaf
    assert w.requires_grad


def test_not_finite_gradients_stay_where_they_are():
    for make in (optim.SGD, optim.Adam, optim.AdamW):
        parameter = leaf(np.ones(3, np.float32))
        parameter.grad = ta.tensor(np.array([1.0, np.nan, 1.0], np.float32))
        make([parameter], lr=0.1).step()
        assert np.isnan(parameter.numpy()).tolist() == [False, True, False]


def test_strided_parameters_train_like_contiguous_ones():
    values = signed(rng_of(0), 4, 6)
    ends = []
    for array in (values, np.asfortranarray(values)):
        parameter = leaf(array)
        optimizer = optim.AdamW([parameter], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            (parameter.tanh() ** 2).sum().backward()
            optimizer.step()
        ends.append(parameter.numpy())
    assert_close(ends[1], ends[0], 1e-15)
    assert np.abs(ends[0] - values).max() > 0.1


def test_empty_and_scalar_parameters():
    empty, scalar = leaf(np.ones((0, 3), np.float32)), leaf(np.float32(2.0))
    for parameter in (empty, scalar):
        parameter.grad = ta.ones_like(parameter)
    optimizer = optim.Adam([empty, scalar], lr=0.5)
    optimizer.step()
    assert empty.shape == (0, 3)
    assert abs(scalar.item() - 1.5) < 1e-6


# Schedules


def rates_of(schedule, optimizer, steps):
    found = []
    for _ in range(steps):
        found.append(optimizer.lr)
        schedule.step()
    return np.array(found)


@pytest.mark.parametrize(
    ("d_model", "warmup", "factor"), [(512, 400, 1.0), (64, 1, 2.0), (8, 50, 1)]
)
def test_noam_schedule(d_model, warmup, factor):
    optimizer = optim.Adam([leaf(np.ones(1))], lr=77.0)
    schedule = optim.WarmupSchedule(optimizer, d_model, warmup=warmup, factor=factor)
    found = rates_of(schedule, optimizer, 3 * warmup)
    step = np.arange(1, 3 * warmup + 1)
    expected = factor * d_model**-0.5 * np.minimum(step**-0.5, step * warmup**-1.5)
    assert_close(found, expected, 1e-14)
    assert found.argmax() == warmup - 1
    assert abs(found.max() - factor / math.sqrt(d_model * warmup)) < 1e-12


@pytest.mark.parametrize(
    ("total", "warmup", "final"), [(100, 10, 0.0), (50, 0, 1e-4), (10, 9, 0.0), (1, 0, 0.0)]
)
def test_cosine_schedule(total, warmup, final):
    peak = 0.3
    optimizer = optim.SGD([leaf(np.ones(1))], lr=peak)
    schedule = optim.CosineSchedule(optimizer, total, warmup=warmup, final=final)
    found = rates_of(schedule, optimizer, total + 5)
    for step in range(1, total + 6):
        if step <= warmup:
            expected = peak * step / warmup
        else:
            progress = min(1.0, (step - warmup) / (total - warmup))
            expected = final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2
        assert abs(found[step - 1] - expected) < 1e-15, step
    assert abs(found[total - 1] - final) < 1e-15
    assert (found[total:] == found[total - 1]).all()
    if warmup:
        assert found[warmup - 1] == peak


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["noam", "cosine"])
def test_schedule_resumes_whether_made_before_or_after_the_optimizer_is_loaded(kind, when):
    make = {
        "noam": lambda optimizer: optim.WarmupSchedule(optimizer, 16, warmup=8),
        "cosine": lambda optimizer: optim.CosineSchedule(optimizer, 20, warmup=4),
    }[kind]
    optimizer = optim.Adam([leaf(np.ones(1))], lr=0.1)
    schedule = make(optimizer)
    for _ in range(7):
        schedule.step()
    saved = (optimizer.state_dict(), schedule.state_dict())
    expected = rates_of(schedule, optimizer, 20)
    second = optim.Adam([leaf(np.ones(1))], lr=0.1)
    if when == "before":
        resumed = make(second)
        second.load_state_dict(saved[0])
    else:
        second.load_state_dict(saved[0])
        resumed = make(second)
    resumed.load_state_dict(saved[1])
    assert_same(rates_of(resumed, second, 20), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: optim.WarmupSchedule(o, 0),
        lambda o: optim.WarmupSchedule(o, 8, warmup=0),
        lambda o: optim.CosineSchedule(o, 0),
        lambda o: optim.CosineSchedule(o, 10, warmup=10),
        lambda o: optim.CosineSchedule(o, 10, warmup=-1),
    ],
)
def test_schedules_refuse_impossible_lengths(make):
    with pytest.raises(ValueError, match=r"warmup|d_model"):
        make(optim.SGD([leaf(np.ones(1))], lr=0.1))


# Clipping


def clip(name, variant):
    arrays = cases.arrays_of(name)
    parameters = []
    for key in ("a", "b"):
        parameter = leaf(np.zeros(arrays[key].shape))
        parameter.grad = ta.tensor(arrays[key])
        parameters.append(parameter)
    total = optim.clip_grad_norm_(parameters, variant)
    return {
        "norm": np.array(total),
        "a": parameters[0].grad.numpy(),
        "b": parameters[1].grad.numpy(),
    }


def clip_cases():
    return [(name, cases.CASES[name][1][0]) for name in cases.names("clip")]


def compare_clip(actual, expected):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert_close(actual[name], value)


@pytest.mark.parametrize(("name", "max_norm"), clip_cases())
def test_clip_grad_norm_agrees_with_stored_pytorch_values(name, max_norm):
    compare_clip(clip(name, max_norm), stored_case(name))


@needs_torch
@pytest.mark.parametrize(("name", "max_norm"), clip_cases())
def test_clip_grad_norm_agrees_with_live_pytorch(name, max_norm):
    compare_clip(clip(name, max_norm), cases.torch_results(name))


def test_clip_grad_norm_by_hand():
    a, b, free = leaf(np.zeros(2)), leaf(np.zeros(1)), leaf(np.zeros(1))
    a.grad, b.grad = ta.tensor(np.array([2.0, -3.0])), ta.tensor(np.array([6.0]))
    held = a.grad
    assert optim.clip_grad_norm_(iter([a, b, free]), 3.5) == 7.0
    assert_close(a.grad.numpy(), [1.0, -1.5], 1e-6)
    assert_close(b.grad.numpy(), [3.0], 1e-6)
    assert free.grad is None
    assert held is a.grad
    total = math.sqrt(sum(float((p.grad.numpy() ** 2).sum()) for p in (a, b)))
    assert total <= 3.5
    assert optim.clip_grad_norm_(a, 100.0) < 2
    assert optim.clip_grad_norm_([free], 1.0) == 0.0


def test_clip_grad_norm_does_not_overflow_and_leaves_infinity_alone():
    big = leaf(np.zeros(4, np.float32))
    big.grad = ta.tensor(np.full(4, 1e30, np.float32))
    assert abs(optim.clip_grad_norm_(big, 1.0) / 2e30 - 1) < 1e-6
    assert_close(big.grad.numpy(), np.full(4, 0.5), 1e-5)
    for value in (np.inf, np.nan):
        big.grad = ta.tensor(np.array([1.0, value, 2.0, 3.0], np.float32))
        assert not math.isfinite(optim.clip_grad_norm_(big, 1.0))
        assert big.grad.numpy()[[0, 2, 3]].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("max_norm", [-1.0, float("nan"), "1", None])
def test_clip_grad_norm_refuses_what_is_no_norm(max_norm):
    with pytest.raises(ValueError, match="max_norm"):
        optim.clip_grad_norm_([leaf(np.ones(1))], max_norm)


# State


@pytest.mark.parametrize("name", cases.OPTIMIZERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_state_dict_round_trip_continues_bitwise(name, dtype):
    kind, options = cases.OPTIMIZERS[name]
    parameters, loss = make_problem(cases.arrays_of(name), dtype)
    optimizer = getattr(optim, kind)(parameters, **options)
    train(optimizer, loss, 5)
    state = optimizer.state_dict()
    middle = [p.numpy() for p in parameters]
    train(optimizer, loss, 7)
    ends = [p.numpy() for p in parameters]
    resumed, loss = make_problem(cases.arrays_of(name), dtype)
    for parameter, value in zip(resumed, middle, strict=True):
        parameter.data = value
    second = getattr(optim, kind)(resumed, **{**options, "lr": 5.0})
    second.load_state_dict(state)
    train(second, loss, 7)
    for parameter, end in zip(resumed, ends, strict=True):
        assert_same(parameter.numpy(), end)


def test_state_dict_is_a_copy():
    parameters, loss = make_problem(cases.arrays_of("adam.plain"))
    optimizer = optim.Adam(parameters)
    train(optimizer, loss, 2)
    state = optimizer.state_dict()
    arrays = {name: tensor.numpy() for name, tensor in state["arrays"].items()}
    assert len(arrays) == 4
    train(optimizer, loss, 2)
    for name, array in arrays.items():
        assert_same(state["arrays"][name].numpy(), array)
    assert state["steps"] == [2, 2]
    second = optim.Adam(parameters)
    second.load_state_dict(state)
    train(second, loss, 1)
    for name, array in arrays.items():
        assert_same(state["arrays"][name].numpy(), array)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("groups"),
        lambda s: s["groups"][0].pop("lr"),
        lambda s: s.pop("steps"),
        lambda s: s.pop("arrays"),
        lambda s: s["groups"][0].update(lr="fast"),
        lambda s: s["groups"][0].update(lr=-1.0),
        lambda s: s.update(steps=[1]),
        lambda s: s.update(steps=[9, -9]),
        lambda s: s.update(steps=[9, 9.5]),
        lambda s: s["arrays"].pop("v.1"),
        lambda s: [s["arrays"].pop(name) for name in ("v.0", "v.1")],
        lambda s: s["arrays"].clear(),
        lambda s: s.update(steps=[0, 0]),
        lambda s: s["arrays"].update({"q.0": s["arrays"]["m.0"]}),
        lambda s: s["arrays"].update({"m.00": s["arrays"]["m.0"]}),
        lambda s: s["arrays"].update({5: s["arrays"]["m.0"]}),
        lambda s: s["arrays"].update({"m.\N{SUPERSCRIPT TWO}": s["arrays"]["m.0"]}),
        lambda s: s["arrays"].update({"m.0": s["arrays"]["m.0"].long()}),
        lambda s: s.update(steps=None),
        lambda s: s["arrays"].update({"m.0": ta.ones(2)}),
        lambda s: s["arrays"].update({"m.7": ta.ones(4, 3)}),
        lambda s: s["arrays"].update({"m": ta.ones(4, 3)}),
        lambda s: s["arrays"].update({"m.0": "words"}),
        lambda s: s["arrays"].update({"m.0": None}),
        lambda s: s.update(arrays=[1, 2]),
    ],
)
def test_state_that_does_not_fit_is_refused_whole(change):
    parameters, loss = make_problem(cases.arrays_of("adam.plain"))
    optimizer = optim.Adam(parameters)
    train(optimizer, loss, 2)
    before = {name: t.numpy() for name, t in optimizer.state_dict()["arrays"].items()}
    state = optimizer.state_dict()
    state["groups"][0]["lr"] = 9.0
    state["steps"] = [9, 9]
    state["arrays"] = {name: tensor + 1 for name, tensor in state["arrays"].items()}
    change(state)
    with pytest.raises(CheckpointError):
        optimizer.load_state_dict(state)
    assert optimizer.lr == 1e-3
    assert optimizer.steps == [2, 2]
    after = optimizer.state_dict()["arrays"]
    assert set(after) == set(before)
    for name, array in before.items():
        assert_same(after[name].numpy(), array)


def test_an_optimizer_of_ones_own_may_keep_different_arrays_for_different_parameters():
    class Own(optim.Optimizer):
        def update(self, i, parameter, grad):
            self.slot("a", i, parameter)[...] += grad
            if parameter.ndim == 2:
                self.slot("b", i, parameter)[...] += grad * grad
            parameter -= self.lr * self.state["a"][i]

    found = []
    for again in (False, True):
        parameters, loss = make_problem(cases.arrays_of("adam.plain"))
        optimizer = Own(parameters, 0.1)
        train(optimizer, loss, 2)
        if again:
            state = optimizer.state_dict()
            optimizer = Own(parameters, 0.7)
            optimizer.load_state_dict(state)
        train(optimizer, loss, 2)
        found.append([parameter.numpy() for parameter in parameters])
    for one, other in zip(*found, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize(
    "change",
    [{"step_count": 0}, {"step_count": 2.5}, {"step_count": "x"}, {"warmup": None},
     {"factor": float("nan")}, {"factor": -1.0}],
    ids=str,
)  # fmt: skip
def test_state_of_a_schedule_that_does_not_fit_is_refused_whole(change):
    optimizer = optim.SGD(P, lr=0.1)
    schedule = optim.WarmupSchedule(optimizer, 16, 10)
    state, rate = schedule.state_dict(), optimizer.lr
    with pytest.raises(CheckpointError):
        schedule.load_state_dict({**state, **change})
    assert schedule.state_dict() == state
    assert optimizer.lr == rate
    for other in (None, 5, [1]):
        with pytest.raises(CheckpointError, match=r"has .*step_count"):
            schedule.load_state_dict(other)


def test_a_gradient_that_is_shared_is_clipped_once():
    a, b = leaf(np.ones(2)), leaf(np.ones(2))
    a.grad = ta.tensor(np.array([3.0, 4.0]))
    b.grad = a.grad.detach()
    assert optim.clip_grad_norm_([a, b, a], 1.0) == pytest.approx(5.0)
    for x in (a, b):
        np.testing.assert_allclose(x.grad.numpy(), [0.6, 0.8], rtol=1e-5)


def test_state_of_another_optimizer_is_refused():
    """Adam's means are no velocity: taken over, training would silently start from rest."""
    parameters, loss = make_problem(cases.arrays_of("adam.plain"))
    adam, sgd = optim.Adam(parameters), optim.SGD(parameters, momentum=0.9)
    train(adam, loss, 2)
    train(sgd, loss, 2)
    with pytest.raises(CheckpointError):
        sgd.load_state_dict(adam.state_dict())
    with pytest.raises(CheckpointError):
        adam.load_state_dict(sgd.state_dict())
    with pytest.raises(CheckpointError, match=r"not a state_dict\(\) of this AdamW: .*of Adam"):
        optim.AdamW(parameters).load_state_dict(adam.state_dict())


# Refusals


P = [leaf(np.ones(1))]


@pytest.mark.parametrize(
    ("make", "error", "word"),
    [
        (lambda: optim.SGD([]), ValueError, "empty"),
        (lambda: optim.SGD(P[0]), TypeError, "iterable"),
        (lambda: optim.SGD([np.ones(2)]), TypeError, "ndarray"),
        (lambda: optim.SGD([P[0], P[0]]), ValueError, "twice"),
        (lambda: optim.SGD([P[0] * 2]), GraphError, "leaves"),
        (lambda: optim.SGD(P, lr=-1.0), ValueError, "lr"),
        (lambda: optim.SGD(P, lr="fast"), ValueError, "lr"),
        (lambda: optim.SGD(P, lr=float("nan")), ValueError, "lr"),
        (lambda: optim.SGD(P, lr=True), ValueError, "lr"),
        (lambda: optim.CosineSchedule(optim.SGD(P), 9, final=-0.1), ValueError, "final"),
        (lambda: optim.CosineSchedule(optim.SGD(P), 9, final="a"), ValueError, "final"),
        (lambda: optim.CosineSchedule(optim.SGD(P), "a"), ValueError, "total .* got 'a'"),
        (lambda: optim.CosineSchedule(optim.SGD(P), 9, "a"), ValueError, "warmup .* got 'a'"),
        (lambda: optim.WarmupSchedule(optim.SGD(P), "a"), ValueError, "d_model .* got 'a'"),
        (lambda: optim.WarmupSchedule(optim.SGD(P), 9, "a"), ValueError, "warmup .* got 'a'"),
        (lambda: optim.WarmupSchedule(optim.SGD(P), 9, 9, "a"), ValueError, "factor .* got 'a'"),
        (lambda: optim.CosineSchedule(P[0], 10), TypeError, "takes an optimizer, got T"),
        (lambda: optim.LambdaLR(P[0], abs), TypeError, "takes an optimizer, got Tensor"),
        (
            lambda: optim.SGD([("a", P[0]), P[0]]),
            TypeError,
            "parameter 0 must be a Tensor, got tuple",
        ),
        (lambda: optim.SGD([("a", 5)]), TypeError, "parameter 0 must be a Tensor, got int"),
        (lambda: optim.SGD(P).step(5), TypeError, "closure is a function, got int"),
        (lambda: optim.SGD(P, momentum=-0.1), ValueError, "momentum"),
        (lambda: optim.SGD(P, weight_decay=-0.1), ValueError, "weight_decay"),
        (lambda: optim.SGD(P, nesterov=True), ValueError, "nesterov"),
        (lambda: optim.Adam(P, betas=(1.0, 0.9)), ValueError, r"betas\[0\]"),
        (lambda: optim.Adam(P, betas=(0.9, -0.1)), ValueError, r"betas\[1\]"),
        (lambda: optim.Adam(P, eps=-1e-8), ValueError, "eps"),
        (lambda: optim.AdamW(P, weight_decay=-1.0), ValueError, "weight_decay"),
    ],
)
def test_bad_arguments_are_refused(make, error, word):
    with pytest.raises(error, match=word):
        make()


SETTINGS = [
    (kind, name)
    for kind in (optim.SGD, optim.Adam, optim.AdamW)
    for name, value in kind(P).defaults.items()
    if type(value) is float
]


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "a", None, True])
@pytest.mark.parametrize(("kind", "name"), SETTINGS)
def test_each_number_of_an_optimizer_is_checked_wherever_it_is_given(kind, name, value):
    words = f"{name} must be a number >= 0"
    with pytest.raises(ValueError, match=words):
        kind(P, **{name: value})
    with pytest.raises(ValueError, match=words):
        kind([{"params": P, name: value}])
    optimizer = kind(P)
    optimizer.param_groups[0][name] = value
    with pytest.raises(ValueError, match=words):
        optimizer.step()


@pytest.mark.parametrize("lr", [np.float32(0.5), np.float64(0.5), np.int64(1), 1])
def test_numbers_of_numpy_are_taken(lr):
    for optimizer in (optim.SGD(P, lr=lr), optim.Adam(P, betas=(np.float32(0.5), 0.9))):
        optimizer.lr = lr
        assert optimizer.lr == lr
        assert type(optimizer.lr) is float
        assert all(type(beta) is float for beta in getattr(optimizer, "betas", ()))


@pytest.mark.parametrize("lr", [-0.1, float("nan"), "fast", np.ones(1), None, ta.ones(1)])
def test_a_rate_that_is_none_is_refused_when_it_is_set(lr):
    """And not by the next step, when some parameters may have moved."""
    optimizer = optim.Adam(P, lr=0.5)
    with pytest.raises(ValueError, match="lr must be a number >= 0, got"):
        optimizer.lr = lr
    assert optimizer.lr == 0.5


def test_optimizer_works_on_a_module():
    ta.manual_seed(0)
    module = nn.Linear(3, 1)
    optimizer = optim.SGD(module.parameters(), lr=0.1)
    x = ta.randn(64, 3)
    target = x @ ta.tensor([[1.0], [-2.0], [0.5]]) + 0.25
    for _ in range(300):
        optimizer.zero_grad()
        ((module(x) - target) ** 2).mean().backward()
        optimizer.step()
    assert_close(module.weight.numpy(), [[1.0, -2.0, 0.5]], 1e-3)
    assert abs(module.bias.item() - 0.25) < 1e-3
    optimizer.zero_grad()
    assert all(p.grad is None for p in module.parameters())


def test_frozen_row_of_an_embedding_stays_zero():
    module = nn.Embedding(4, 3, padding_idx=1)
    optimizer = optim.AdamW(module.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (module([0, 1, 1, 2]) ** 2).sum().backward()
        optimizer.step()
    assert_all_zero(module.weight.numpy()[1])


@pytest.mark.parametrize(
    "kind", [optim.Adam, optim.AdamW, functools.partial(optim.SGD, momentum=0.9)]
)
def test_a_parameter_of_another_shape_is_refused_and_nothing_moves(kind):
    """What belongs to the old one would be read behind its end."""
    first, second = (ta.ones(n, requires_grad=True) for n in (2, 3))
    optimizer = kind([first, second], lr=0.1)
    for shape in ((3000,), (1, 3), (2,)):
        first.grad, second.data, second.grad = ta.ones(2), np.ones(3, np.float32), ta.ones(3)
        optimizer.step()
        second.data, second.grad = np.ones(shape, np.float32), ta.ones(*shape)
        steps, before = list(optimizer.steps), first.numpy().copy()
        with pytest.raises(ShapeError, match=r"parameter 1 had shape \(3,\) in its last step"):
            optimizer.step()
        assert optimizer.steps == steps
        assert_same(first.numpy(), before)
        assert_same(second.numpy(), np.ones(shape, np.float32))


# Parameter groups


GROUPS = [
    ("SGD", {"lr": 0.1}, {"momentum": 0.9}, {"lr": 0.03, "weight_decay": 0.2}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}, {"dampening": 0.3}, {"nesterov": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}, {"nesterov": True}, {"momentum": 0.5}),
    ("Adam", {"lr": 0.1}, {"betas": (0.5, 0.9)}, {"eps": 1e-3, "weight_decay": 0.2}),
    ("AdamW", {"lr": 0.1}, {"weight_decay": 0.0}, {"lr": 0.02}),
]


def grouped(kind, common, first, second, dtype=np.float64):
    (weight, bias), loss = make_problem(cases.arrays_of("adam.plain"), dtype)
    groups = [{"params": [weight], **first}, {"params": [bias], **second}]
    return getattr(optim, kind)(groups, **common), loss


@needs_torch
@pytest.mark.parametrize(("kind", "common", "first", "second"), GROUPS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_groups_are_pytorchs(kind, common, first, second, dtype, tolerance, torch):
    """Fifteen steps, with the rate of the second group changed on the way."""
    optimizer, loss = grouped(kind, common, first, second, dtype)
    arrays = {n: a.astype(dtype) for n, a in cases.arrays_of("adam.plain").items()}
    weight, bias = (torch.tensor(arrays[n], requires_grad=True) for n in ("weight", "bias"))
    x, y = (torch.tensor(arrays[n]) for n in ("x", "y"))
    groups = [{"params": [weight], **first}, {"params": [bias], **second}]
    theirs = getattr(torch.optim, kind)(groups, **common)
    for step in range(15):
        for one in (optimizer, theirs):
            one.param_groups[1]["lr"] *= 0.5 if step == 7 else 1.0
            one.zero_grad()
        loss().backward()
        (((x @ weight + bias).tanh() - y) ** 2).sum().backward()
        optimizer.step()
        theirs.step()
    for ours, right in zip(optimizer.parameters, (weight, bias), strict=True):
        assert_close(ours.numpy(), right.detach().numpy(), tolerance)


def test_one_group_with_all_parameters_is_no_other_optimizer():
    found = []
    for wrap in (list, lambda p: [{"params": p}], iter):
        parameters, loss = make_problem(cases.arrays_of("adam.plain"))
        train(optim.AdamW(wrap(parameters), lr=0.1), loss, 5)
        found.append([p.numpy() for p in parameters])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert_same(a, b)


def test_a_copy_of_an_optimizer_has_groups_of_its_own():
    optimizer, _ = grouped(*GROUPS[0])
    copied = copy.deepcopy(optimizer)
    copied.param_groups[1]["lr"] = 0.25
    weight, bias = copied.parameters
    for parameter in (weight, bias):
        parameter.grad = ta.ones(*parameter.shape, dtype=ta.float64)
    before = bias.numpy()
    copied.step()
    assert_close(bias.numpy(), before - 0.25 * (1 + 0.2 * before), 1e-15)
    assert optimizer.param_groups[1]["lr"] == 0.03


def test_settings_of_all_groups_are_set_at_once():
    optimizer, _ = grouped(*GROUPS[0])
    assert (optimizer.lr, optimizer.momentum, optimizer.weight_decay) == (0.1, 0.9, 0.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.03]
    optimizer.lr = 0.5
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]
    for name in ("lr", "momentum", "weight_decay"):
        before = [group[name] for group in optimizer.param_groups]
        with pytest.raises(ValueError, match=name):
            setattr(optimizer, name, -1.0)
        assert [group[name] for group in optimizer.param_groups] == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", -1.0), ("lr", "fast"), ("momentum", -1), ("weight_decay", None), ("nesterov", True)],
)
def test_a_wrong_setting_of_a_group_ends_its_next_step(name, value):
    """Before any parameter has moved, and until the setting is right again."""
    optimizer, loss = grouped(*GROUPS[0])
    train(optimizer, loss, 1)
    before = optimizer.state_dict(), [p.numpy() for p in optimizer.parameters]
    group = optimizer.param_groups[1]
    right, group[name] = group[name], value
    if name == "nesterov":
        group["momentum"] = 0.0
    for _ in range(2):
        with pytest.raises(ValueError, match=name):
            optimizer.step()
    assert optimizer.steps == before[0]["steps"]
    for parameter, values in zip(optimizer.parameters, before[1], strict=True):
        assert_same(parameter.numpy(), values)
    group[name] = right
    optimizer.step()


@pytest.mark.parametrize(
    ("groups", "error", "word"),
    [
        ([{"params": []}], ValueError, "empty"),
        ([{"lr": 0.1}], TypeError, "'params'"),
        ([{"params": P}, P[0]], TypeError, "'params'"),
        ([{"params": P}, {"params": P}], ValueError, "twice"),
        ([{"params": P, "rate": 0.1}], ValueError, "rate"),
        ([{"params": P, "lr": -1.0}], ValueError, "lr"),
        ([{"params": P, "nesterov": True}], ValueError, "nesterov"),
        ([{"params": 1.0}], TypeError, "takes parameters"),
        ([{"params": P, "betas": 0.9}], ValueError, "betas"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups, error, word):
    with pytest.raises(error, match=word):
        optim.SGD(groups)


@pytest.mark.parametrize(("kind", "common", "first", "second"), GROUPS)
def test_states_with_groups_continue_bitwise(kind, common, first, second, tmp_path):
    optimizer, loss = grouped(kind, common, first, second)
    optimizer.param_groups[1]["lr"] = 0.007
    train(optimizer, loss, 4)
    ta.save(optimizer.state_dict(), tmp_path / "state")
    middle = [p.numpy() for p in optimizer.parameters]
    train(optimizer, loss, 4)
    resumed, loss = grouped(kind, {"lr": 9.0}, {}, {})
    for parameter, value in zip(resumed.parameters, middle, strict=True):
        parameter.data = value
    resumed.load_state_dict(ta.load(tmp_path / "state"))
    train(resumed, loss, 4)
    for a, b in zip(optimizer.parameters, resumed.parameters, strict=True):
        assert_same(a.numpy(), b.numpy())


@pytest.mark.parametrize(
    "change",
    [
        lambda groups: groups.pop(),
        lambda groups: groups.append(dict(groups[0])),
        lambda groups: groups.reverse(),
        lambda groups: groups[1].update(lr=-1.0),
        lambda groups: groups[1].update(betas=None),
        lambda groups: groups[1].update(betas=[0.9]),
        lambda groups: groups.__setitem__(1, "group"),
    ],
)
def test_states_with_groups_that_do_not_fit_are_refused_whole(change):
    weight, bias, more = (leaf(np.ones(2)) for _ in range(3))
    groups = [{"params": [weight, bias], "lr": 0.5}, {"params": [more]}]
    optimizer = optim.Adam(groups, lr=0.1)
    state = optimizer.state_dict()
    state["groups"][0]["lr"] = 7.0
    change(state["groups"])
    with pytest.raises(CheckpointError):
        optimizer.load_state_dict(state)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.1]


def test_zero_grad_may_fill_with_zeros():
    one, other = leaf(np.ones(2)), leaf(np.ones(2))
    optimizer = optim.SGD([one, other])
    one.grad = ta.tensor([np.nan, 1.0], dtype=ta.float64)
    optimizer.zero_grad(set_to_none=False)
    assert one.grad.tolist() == [0.0, 0.0]
    assert other.grad is None
    optimizer.zero_grad()
    assert one.grad is None


def test_a_schedule_of_ones_own():
    class Halved(optim.Schedule):
        def rate(self, step):
            return 0.5**step

    weights = [leaf(np.ones(2)) for _ in range(2)]
    groups = [{"params": weights[:1]}, {"params": weights[1:], "lr": 3.0}]
    schedule = Halved(optim.SGD(groups, lr=1.0))
    for step in (1, 2, 3):
        rates = [group["lr"] for group in schedule.optimizer.param_groups]
        assert rates == [0.5**step, 3 * 0.5**step]
        schedule.step()
    with pytest.raises(TypeError, match=r"^Schedule defines no rate\(\)"):
        optim.Schedule(optim.SGD(weights, lr=1.0))


# LambdaLR


@needs_torch
def test_lambda_lr_is_pytorchs(torch):
    optimizer, loss = grouped(*GROUPS[0])
    train(optimizer, loss, 1)
    parameters = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.03}]
    theirs = torch.optim.SGD(groups, lr=0.1)
    noam = lambda n: min((n + 1) ** -0.5, (n + 1) * 4**-1.5)  # noqa: E731
    schedule = optim.LambdaLR(optimizer, lr_lambda=noam)
    right = torch.optim.lr_scheduler.LambdaLR(theirs, lr_lambda=noam)
    for _ in range(9):
        assert schedule.get_last_lr() == pytest.approx(right.get_last_lr(), rel=1e-15)
        assert schedule.get_last_lr() == [group["lr"] for group in optimizer.param_groups]
        theirs.step()
        schedule.step()
        right.step()


def test_lambda_lr_takes_one_function():
    optimizer, _ = grouped(*GROUPS[0])
    with pytest.raises(TypeError, match=r"one function of the steps, got list"):
        optim.LambdaLR(optimizer, [lambda n: 1.0, lambda n: 0.5])


def test_lambda_lr_resumes_without_its_function():
    optimizer, _ = grouped(*GROUPS[0])
    schedule = optim.LambdaLR(optimizer, lambda n: 1 / (n + 1))
    schedule.step()
    state = schedule.state_dict()
    assert state == {"base_lrs": [0.1, 0.03], "step_count": 2}
    again, _ = grouped(*GROUPS[0])
    again.lr = 5.0
    resumed = optim.LambdaLR(again, lambda n: 1 / (n + 1))
    resumed.load_state_dict(state)
    assert resumed.get_last_lr() == schedule.get_last_lr() == [0.05, 0.015]
    with pytest.raises(CheckpointError):
        resumed.load_state_dict({**state, "base_lrs": [1.0, 1.0, 1.0]})
    assert resumed.get_last_lr() == [0.05, 0.015]


def test_a_state_from_before_the_first_schedule_forgets_the_first_rate():
    """Else a schedule after it would begin with the rate that a trial before had."""
    optimizer = optim.SGD([leaf(np.ones(2))], lr=0.1)
    saved = optimizer.state_dict()
    optimizer.lr = 1e-7
    optim.LambdaLR(optimizer, lambda n: 2.0**n).step()
    with_first = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    assert optim.LambdaLR(optimizer, lambda n: 0.5).get_last_lr() == [0.05]
    optimizer.load_state_dict(with_first)
    optimizer.param_groups[0]["lr"] = 0.3
    optimizer.step()  # which checks the settings, and keeps the first rate
    assert optim.LambdaLR(optimizer, lambda n: 0.5).get_last_lr() == [0.5e-7]
    with pytest.raises(CheckpointError):
        optimizer.load_state_dict({**saved, "groups": [{**saved["groups"][0], "lr": -1.0}]})
    assert optimizer.param_groups[0]["initial_lr"] == 1e-7  # a refused state changes nothing


SCHEDULES = {
    "noam": lambda o: optim.WarmupSchedule(o, 16, 10),
    "cosine": lambda o: optim.CosineSchedule(o, 10, warmup=2, final=1e-7),
    "lambda": lambda o: optim.LambdaLR(o, lambda n: 1 / (n + 1)),
}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_schedule_keeps_the_proportion_of_the_groups_rates(kind):
    """As with a small rate for a trained part of a model and a large one for a new part."""
    groups = [{"params": [leaf(np.ones(2))], "lr": rate} for rate in (1e-5, 1e-2, 2e-5)]
    optimizer = optim.SGD(groups)
    schedule = SCHEDULES[kind](optimizer)
    saved = schedule.state_dict()
    for _ in range(12):
        first, second, third = schedule.get_last_lr()
        assert (second, third) == pytest.approx((1000 * first, 2 * first), rel=1e-12)
        assert first > 0
        schedule.step()
    schedule.load_state_dict(saved)
    assert schedule.get_last_lr()[1] == pytest.approx(1000 * schedule.get_last_lr()[0])


@needs_torch
def test_the_cosine_of_each_group_is_pytorchs(torch):
    rates = (1e-3, 1e-1)
    ours = optim.SGD([{"params": [leaf(np.ones(2))], "lr": rate} for rate in rates])
    theirs = torch.optim.SGD([{"params": [torch.ones(2)], "lr": rate} for rate in rates])
    schedule = optim.CosineSchedule(ours, 10)
    right = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, 10)
    for _ in range(9):
        theirs.step()
        right.step()  # there the first rate is that of step 0
        assert schedule.get_last_lr() == pytest.approx(right.get_last_lr(), rel=1e-12)
        schedule.step()


def test_groups_that_a_schedule_cannot_serve_are_refused():
    groups = [{"params": [leaf(np.ones(2))], "lr": rate} for rate in (0.0, 0.1)]
    optimizer = optim.SGD(groups)
    with pytest.raises(ValueError, match=r"the first is 0 and the others are \[0\.1\]"):
        optim.CosineSchedule(optimizer, 10)
    optimizer = optim.SGD([leaf(np.ones(2))], lr=0.1)
    schedule = SCHEDULES["lambda"](optimizer)
    optimizer.add_param_group({"params": [leaf(np.ones(1))], "lr": 0.2})
    before = [group["lr"] for group in optimizer.param_groups]
    count = schedule.step_count
    with pytest.raises(ValueError, match="made for 1 parameter groups, the optimizer has 2"):
        schedule.step()
    assert schedule.step_count == count
    assert [group["lr"] for group in optimizer.param_groups] == before


@pytest.mark.parametrize("kind", ["noam", "cosine"])
def test_rates_of_other_hands_are_multiplied(kind):
    """A group that is added, a rate set by hand, and a second schedule, as in PyTorch."""
    optimizer, alone = (optim.SGD([leaf(np.ones(2))], lr=0.1) for _ in range(2))
    schedule, right = SCHEDULES[kind](optimizer), SCHEDULES[kind](alone)
    found, halved = [], 1.0
    for n in range(9):
        if n == 2:
            optimizer.add_param_group({"params": [leaf(np.ones(1))], "lr": 3 * optimizer.lr})
        if n == 4:
            optimizer.param_groups[0]["lr"] /= 2
            halved = 0.5
        if n == 6:  # it is kept by a state, whether the schedule has stepped since or not
            optimizer.param_groups[0]["lr"] /= 2
            halved = 0.25
            again = optim.SGD([leaf(np.ones(2))], lr=0.1)
            again.add_param_group({"params": [leaf(np.ones(1))], "lr": 0.3})
            resumed = SCHEDULES[kind](again)
            resumed.load_state_dict(schedule.state_dict())
            optimizer, schedule = again, resumed
        found = [group["lr"] for group in optimizer.param_groups]
        expected = [halved * alone.lr, 3 * alone.lr]
        assert found == pytest.approx(expected[: len(found)], rel=1e-12)
        schedule.step()
        right.step()
    assert len(found) == 2


def test_two_schedules_on_one_optimizer_are_multiplied():
    rates = []
    makers = [SCHEDULES["noam"], lambda o: optim.CosineSchedule(o, 10, warmup=2)]
    for made in (makers[:1], makers[1:], makers):
        optimizer = optim.SGD([leaf(np.ones(2))], lr=0.1)
        schedules = [make(optimizer) for make in made]
        rates.append([])
        for _ in range(9):
            rates[-1].append(optimizer.lr)
            for schedule in schedules:
                schedule.step()
    noam, cosine, together = map(np.array, rates)
    np.testing.assert_allclose(together / together[0], noam * cosine / (noam * cosine)[0])


def test_a_rate_that_is_none_changes_no_group():
    optimizer, _ = grouped(*GROUPS[0])
    with pytest.raises(ValueError, match="lr"):
        optim.LambdaLR(optimizer, lambda n: -1.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.03]


def test_groups_of_one_tensor_and_from_a_generator():
    a, b = leaf(np.ones(2)), leaf(np.ones(2))
    optimizer = optim.SGD([{"params": a, "weight_decay": 0.1}, {"params": b}], lr=0.5)
    assert [group["params"] for group in optimizer.param_groups] == [(a,), (b,)]
    generated = optim.SGD(({"params": [x]} for x in (a, b)), lr=0.5)
    assert [group["params"] for group in generated.param_groups] == [(a,), (b,)]
    with pytest.raises(ValueError, match="betas are two numbers"):
        optim.Adam([a], betas=(0.9, 0.99, 0.5))


# The parameters of an optimizer are one list


def two_parameters():
    return leaf(np.ones(2)), leaf(np.full(3, 2.0))


CHANGES_OF_PARAMETERS = {
    "append to a group": lambda o, p: o.param_groups[0]["params"].append(p),
    "extend a group": lambda o, p: o.param_groups[0]["params"].extend([p]),
    "add to a group": lambda o, p: o.param_groups[0]["params"].__iadd__([p]),
    "insert into a group": lambda o, p: o.param_groups[0]["params"].insert(0, p),
    "replace one": lambda o, p: o.param_groups[0]["params"].__setitem__(0, p),
    "delete one": lambda o, p: o.param_groups[0]["params"].__delitem__(0),
    "remove one": lambda o, p: o.param_groups[0]["params"].remove(p),
    "pop one": lambda o, p: o.param_groups[0]["params"].pop(),
    "clear a group": lambda o, p: o.param_groups[0]["params"].clear(),
    "reverse a group": lambda o, p: o.param_groups[0]["params"].reverse(),
    "another list": lambda o, p: o.param_groups[0].__setitem__("params", [p]),
    "another list by update": lambda o, p: o.param_groups[0].update(params=[p]),
    "another list by |=": lambda o, p: o.param_groups[0].__ior__({"params": [p]}),
    "another list and a rate": lambda o, p: (
        o.param_groups[0].update(params=[p]),
        setattr(o, "lr", 0.2),
    ),
    "delete the list": lambda o, p: o.param_groups[0].__delitem__("params"),
    "pop the list": lambda o, p: o.param_groups[0].pop("params"),
    "clear the settings": lambda o, p: o.param_groups[0].clear(),
    "delete a setting": lambda o, p: o.param_groups[0].__delitem__("lr"),
    "append a group": lambda o, p: o.param_groups.append({"params": [p]}),
    "delete a group": lambda o, p: o.param_groups.__delitem__(0),
    "other groups": lambda o, p: setattr(o, "param_groups", [{"params": [p]}]),
    "other parameters": lambda o, p: setattr(o, "parameters", [p]),
    "delete the groups": lambda o, p: delattr(o, "param_groups"),
}


@pytest.mark.parametrize("copied", ["itself", "deepcopy", "pickle"])
@pytest.mark.parametrize("change", CHANGES_OF_PARAMETERS)
def test_parameters_are_not_changed_behind_an_optimizer(change, copied):
    """Python refuses it, because tuples stay as they are, or the next step does."""
    a, b = two_parameters()
    optimizer = optim.Adam([a], lr=0.1)
    if copied == "deepcopy":
        optimizer = copy.deepcopy(optimizer)
    elif copied == "pickle":
        optimizer = pickle.loads(pickle.dumps(optimizer))
    own = optimizer.parameters[0]
    own.grad, b.grad = ta.ones(2, dtype=ta.float64), ta.ones(3, dtype=ta.float64)
    words = {AttributeError: "no attribute|no setter|param_groups", TypeError: "add_param_group",
             ValueError: "a parameter group has"}  # fmt: skip

    def change_and_step():
        CHANGES_OF_PARAMETERS[change](optimizer, b)
        optimizer.step()

    with pytest.raises(tuple(words)) as caught:
        change_and_step()
    assert re.search(words[caught.type], str(caught.value))
    assert optimizer.steps == [0]
    assert_same(own.numpy(), np.ones(2))
    assert_same(b.numpy(), np.full(3, 2.0))


def test_an_unknown_setting_of_a_group_is_refused():
    optimizer = optim.SGD([leaf(np.ones(2))], lr=0.1)
    group = optimizer.param_groups[0]
    group["learning_rate"] = 0.5
    with pytest.raises(ValueError, match=r"group has \['params', 'lr', .* got .*learning_rate"):
        optimizer.step()
    del group["learning_rate"]
    with pytest.raises(ValueError, match="nesterov needs"):
        optimizer.nesterov = True
    assert not optimizer.nesterov
    group |= {"momentum": 0.9, "nesterov": True}
    optimizer.step()
    with pytest.raises(ValueError, match="nesterov needs"):
        optimizer.momentum = 0.0
    assert optimizer.momentum == 0.9


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW])
def test_an_added_group_is_trained_like_one_that_was_there(kind):
    """After three steps of the first; and it is saved and loaded."""
    found = []
    for is_added in (True, False):
        a, b = two_parameters()
        groups = [{"params": [a]}, {"params": [b], "lr": 0.5}]
        optimizer = kind(groups[:1] if is_added else groups, lr=0.1)
        for _ in range(3):
            a.grad = ta.ones(2, dtype=ta.float64)
            optimizer.step()
        if is_added:
            optimizer.add_param_group({"params": (p for p in [b]), "lr": 0.5})
        for _ in range(3):
            a.grad, b.grad = ta.ones(2, dtype=ta.float64), -ta.ones(3, dtype=ta.float64)
            optimizer.step()
        found.append([a.numpy(), b.numpy()])
        again = kind([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.1)
        again.load_state_dict(optimizer.state_dict())
        assert again.steps == [6, 3]
    for one, other in zip(*found, strict=True):
        assert_same(one, other)
    assert found[0][1].min() > 2.5


def test_a_group_that_does_not_fit_is_refused_whole():
    a, b = two_parameters()
    optimizer = optim.SGD([a], lr=0.1)
    for group, kind, text in (
        ({"params": [a]}, ValueError, "listed twice"),
        ({"params": [b, b]}, ValueError, "listed twice"),
        ({"params": []}, ValueError, "empty list"),
        ({"lr": 0.1}, TypeError, "the key 'params'"),
        ([b], TypeError, "a parameter group is a dict"),
        ({"params": [b * 2]}, ta.errors.GraphError, "was computed"),
        ({"params": [1.0]}, TypeError, "parameter 0 must be a Tensor, got float"),
        ({"params": [b], "lr": -1}, ValueError, "lr must be"),
        ({"params": [b], "betas": (0, 0)}, ValueError, "betas"),
        ({"params": [b], "nesterov": True}, ValueError, "nesterov needs"),
    ):
        with pytest.raises(kind, match=text):
            optimizer.add_param_group(group)
        assert (len(optimizer.parameters), len(optimizer.param_groups)) == (1, 1)


def test_the_state_of_pytorchs_optimizer_is_named():
    optimizer = optim.Adam([leaf(np.ones(2))])
    state = {"state": {0: {"step": 1}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    with pytest.raises(ta.errors.CheckpointError, match="optimizer of PyTorch"):
        optimizer.load_state_dict(state)


# Clipping


@needs_torch
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3, 0.5, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 100.0, math.inf])
def test_every_norm_is_pytorchs(norm_type, max_norm, dtype, torch):
    rng = np.random.default_rng(5)
    shapes = [(3, 4), (5,), (), *([(0,)] if norm_type != math.inf else [])]  # an error there
    grads = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    ours = [leaf(np.zeros(g.shape, dtype)) for g in grads]
    theirs = [torch.zeros(g.shape, dtype=torch.tensor(grads[0]).dtype) for g in grads]
    for mine, other, grad in zip(ours, theirs, grads, strict=True):
        mine.grad, other.grad = ta.tensor(grad), torch.tensor(grad)
    norm = optim.clip_grad_norm_((p for p in ours), max_norm, norm_type)
    right = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    assert norm == pytest.approx(right.item(), rel=1e-5)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine.grad.numpy(), other.grad.numpy(), 1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("norm_type", [2, 3, 50, 1000, "inf"])
@pytest.mark.parametrize("size", [1e-200, 1e-3, 1.0, 1e10, 1e200])
def test_a_norm_is_right_where_powers_leave_the_range_of_floats(norm_type, size):
    a = leaf(np.zeros(3))
    a.grad = ta.tensor([size, -size, 0.5 * size], dtype=ta.float64)
    p = float(norm_type)
    expected = size * (2 + 0.5**p) ** (1 / p)
    assert optim.clip_grad_norm_([a], 0.5 * size, norm_type) == pytest.approx(
        expected, rel=1e-14, abs=0
    )
    if size > 1e-3:  # beside 1e-6, which is added to the norm
        scale = 0.5 * size / (expected + 1e-6)
        assert_close(a.grad.numpy(), scale * size * np.array([1, -1, 0.5]), 1e-12)


def test_infinity_as_the_largest_norm_only_measures():
    a = leaf(np.ones(2))
    a.grad = ta.tensor([3e30, -4e30], dtype=ta.float64)
    assert optim.clip_grad_norm_([a], math.inf) == 5e30
    assert a.grad.tolist() == [3e30, -4e30]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_is_an_error_if_asked_for(bad):
    a = leaf(np.ones(2))
    a.grad = ta.tensor([3.0, bad], dtype=ta.float64)
    for norm_type in (1, 2, math.inf):
        assert not math.isfinite(optim.clip_grad_norm_([a], 1.0, norm_type))
    with pytest.raises(RuntimeError, match="nothing was scaled"):
        optim.clip_grad_norm_([a], 1.0, error_if_nonfinite=True)
    assert a.grad.tolist()[0] == 3.0
    with pytest.raises(ValueError, match="norm_type must be"):
        optim.clip_grad_norm_([a], 1.0, 0)
    with pytest.raises(TypeError, match="parameter 0 must be a Tensor, got str"):
        optim.clip_grad_norm_(["a"], 1.0)


def test_a_factor_too_small_for_float16_still_scales():
    """The factor is 1e-8, which is 0 in float16."""
    a = leaf(np.zeros(1000, np.float16))
    a.grad = ta.full((1000,), 60000.0, dtype=ta.float16)
    optim.clip_grad_norm_([a], 1e-2)
    assert_close(a.grad.numpy(), np.full(1000, 1e-2 / math.sqrt(1000)), 1e-3)


@pytest.mark.parametrize("kind", ["noam", "cosine"])
def test_a_schedule_made_at_rate_0_gets_its_proportions_from_its_state(kind):
    def make():
        groups = [{"params": [leaf(np.ones(2))], "lr": rate} for rate in (1e-3, 1e-1)]
        return optim.SGD(groups)

    optimizer = make()
    schedule = SCHEDULES[kind](optimizer)
    state, rates = schedule.state_dict(), schedule.get_last_lr()
    again = make()
    again.lr = 0.0
    resumed = SCHEDULES[kind](again)
    resumed.load_state_dict(state)
    assert resumed.get_last_lr() == rates


def test_a_state_of_a_schedule_is_a_copy():
    optimizer = optim.SGD([leaf(np.ones(2))], lr=0.1)
    schedule = optim.LambdaLR(optimizer, lambda n: 1.0)
    state = schedule.state_dict()
    state["base_lrs"][0] = 7.0
    assert schedule.base_lrs == [0.1]
    schedule.load_state_dict(state)
    state["base_lrs"][0] = 9.0
    assert schedule.base_lrs == [7.0]


def test_a_set_of_parameters_is_refused():
    for kind in (set, frozenset):
        with pytest.raises(TypeError, match="an optimizer takes a list, got"):
            optim.SGD(kind([leaf(np.ones(2))]))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s["groups"][0].update(amsgrad=True), "amsgrad"),
    ],
)
def test_a_state_that_says_two_things_is_refused(change, text):
    optimizer = optim.Adam([leaf(np.ones(2))], lr=0.1)
    state = optimizer.state_dict()
    change(state)
    with pytest.raises(ta.errors.CheckpointError, match=text):
        optimizer.load_state_dict(state)
    assert optimizer.lr == 0.1


def test_a_setting_is_changed_in_all_groups_or_in_none():
    a, b = two_parameters()
    optimizer = optim.SGD([{"params": [a], "momentum": 0.9}, {"params": [b]}], lr=0.1)
    with pytest.raises(ValueError, match="nesterov needs"):
        optimizer.nesterov = True
    assert [group["nesterov"] for group in optimizer.param_groups] == [False, False]


# As in programs written for PyTorch


@needs_torch
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_params_pairs_and_closures_are_taken_as_in_pytorch(kind, torch):
    rng = rng_of(11)
    arrays = {name: rng.normal(size=(3,)) for name in ("weight", "bias")}
    results, values = [], []
    for space, of in ((ta, optim), (torch, torch.optim)):
        named = [(n, space.tensor(array, requires_grad=True)) for n, array in arrays.items()]
        options = {"lr": 0.1, "weight_decay": 0.01}
        optimizer = getattr(of, kind)(params=named, **options)
        weight, bias = (tensor for _, tensor in named)

        def closure(optimizer=optimizer, weight=weight, bias=bias):
            optimizer.zero_grad()
            loss = ((weight * weight + bias) ** 2).sum()
            loss.backward()
            return loss

        with space.no_grad():  # the closure records all the same
            losses = [optimizer.step(closure) for _ in range(5)]
        values.append([loss.item() for loss in losses])
        results.append([tensor.tolist() for _, tensor in named])
    np.testing.assert_allclose(*values, rtol=1e-12)
    np.testing.assert_allclose(*results, rtol=1e-12)


def test_groups_take_named_parameters():
    layer, head = nn.Linear(2, 3), nn.Linear(3, 1)
    groups = [{"params": layer.named_parameters()}, {"params": head.named_parameters(), "lr": 0.5}]
    found = optim.SGD(groups, lr=0.1).param_groups
    assert [group["params"] for group in found] == [
        tuple(layer.parameters()),
        tuple(head.parameters()),
    ]


@pytest.mark.parametrize("make", [optim.Adam, lambda p: optim.SGD(p, 0.1, momentum=0.9)])
def test_arrays_that_fit_no_parameter_are_refused(make):
    def moved():
        tensors = [ta.ones(2, requires_grad=True), ta.ones(3, requires_grad=True)]
        optimizer = make(tensors)
        (tensors[0].sum() + tensors[1].sum()).backward()
        optimizer.step()
        return optimizer

    state, optimizer = moved().state_dict(), moved()
    before = copy.deepcopy(optimizer.state_dict())
    key = min(state["arrays"])
    name = key.rpartition(".")[0]
    for wrong in (
        {f"{name}.2": ta.ones(2)}, {f"{name}.x": ta.ones(2)}, {f"{name}.-1": ta.ones(3)},
        {key: ta.ones(3)}, {key: ta.ones(2).long()}, {key: [1.0, 1.0]}, {3: ta.ones(2)},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{min(wrong)}'? fits no parameter"):
            optimizer.load_state_dict(state | {"arrays": state["arrays"] | wrong})
    fewer = {k: x for k, x in state["arrays"].items() if k != key}
    if optimizer.slots:  # SGD begins a velocity with the first gradient
        with pytest.raises(ValueError, match=f"{key}' is missing"):
            optimizer.load_state_dict(state | {"arrays": fewer})
    after = optimizer.state_dict()
    assert {k: x.tolist() for k, x in after["arrays"].items()} == {
        k: x.tolist() for k, x in before["arrays"].items()
    }


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1)])
def test_a_state_with_groups_of_other_sizes_is_refused(sizes):
    def made(sizes):
        groups = [
            {"params": [ta.ones(2, requires_grad=True) for _ in range(n)], "lr": 0.1 * (i + 1)}
            for i, n in enumerate(sizes)
        ]
        return optim.SGD(groups, lr=0.1)

    optimizer = made(sizes)
    with pytest.raises(CheckpointError, match=f"a group has {sizes[0]} parameters"):
        optimizer.load_state_dict(made(sizes[::-1]).state_dict())
    optimizer.load_state_dict(made(sizes).state_dict())


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW])
def test_an_optimizer_keeps_its_parameters_in_their_order(kind):
    """Its arrays are those of the first, the second, and so on."""
    a, b, c = (leaf(np.ones(2)) for _ in range(3))
    optimizer = kind([{"params": [a, b]}, {"params": [c], "lr": 0.5}], lr=0.1)
    first, second = optimizer.param_groups
    rest = {name: value for name, value in first.items() if name != "params"}
    for wrong in (
        [],
        [first],
        [second, first],
        [{"params": [b, a], **rest}, second],
        [{"params": [a], **rest}, second],
        [{"params": [a, b, a], **rest}, second],
        [{"params": [a, b], **rest}, {**second, "params": [leaf(np.ones(2))]}],
    ):
        with pytest.raises(TypeError, match="keeps its parameters"):
            optimizer.param_groups = wrong
        assert list(optimizer.param_groups) == [first, second]
    optimizer.param_groups = [{"params": [a, b], **rest, "lr": 0.25}, second]
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.5]
