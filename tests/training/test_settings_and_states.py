"""Settings and states of optimizers and schedules: what they show, save and begin with."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from common import assert_close, assert_same, leaf, rng_of, signed
from formulas import kernels, reference
from test_words_of_refusals import refuses, weight

import tinyattn as ta
from tinyattn import nn, optim
from tinyattn.errors import CheckpointError
from tinyattn.optim.updates import AdamStep


def weights(*sizes: int) -> list[ta.Tensor]:
    return [ta.ones(n, requires_grad=True) for n in sizes]


def step_with_ones(optimizer: optim.Optimizer, *parameters: ta.Tensor) -> None:
    """A step in which these parameters alone have a gradient."""
    optimizer.zero_grad()
    for parameter in parameters:
        parameter.grad = ta.ones(*parameter.shape)
    optimizer.step()


# What is shown


def test_an_optimizer_shows_its_groups_and_settings() -> None:
    (a,) = weights(2)
    assert repr(optim.SGD([a], lr=0.5)) == (
        "SGD(tensors=1, parameters=2, lr=0.5, momentum=0.0, dampening=0.0, weight_decay=0.0, "
        "nesterov=False)"
    )
    matrix = ta.ones(2, 3, requires_grad=True)
    groups: list[dict[str, Any]] = [{"params": [matrix]}, {"params": weights(4, 1), "lr": 0.5}]
    rest = "betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01"
    assert repr(optim.AdamW(groups)) == (
        "AdamW(\n"
        f"  group 0: tensors=1, parameters=6, lr=0.001, {rest}\n"
        f"  group 1: tensors=2, parameters=5, lr=0.5, {rest}\n"
        ")"
    )


@pytest.mark.parametrize(
    ("kind", "name", "first", "later"),
    [
        (optim.SGD, "lr", 0.25, 0.5),
        (optim.SGD, "momentum", 0.25, 0.5),
        (optim.SGD, "dampening", 0.25, 0.5),
        (optim.SGD, "weight_decay", 0.25, 0.5),
        (optim.SGD, "nesterov", False, False),
        (optim.Adam, "lr", 0.25, 0.5),
        (optim.Adam, "betas", (0.5, 0.75), (0.25, 0.5)),
        (optim.AdamW, "eps", 0.25, 0.5),
        (optim.AdamW, "weight_decay", 0.25, 0.5),
    ],
)
def test_a_setting_is_read_from_the_first_group_and_set_in_all(
    kind: Any, name: str, first: Any, later: Any
) -> None:
    groups = [{"params": weights(1), name: first}, {"params": weights(2), name: later}]
    optimizer = kind(groups)
    assert getattr(optimizer, name) == first
    assert [group[name] for group in optimizer.param_groups] == [first, later]
    setattr(optimizer, name, later)
    assert [group[name] for group in optimizer.param_groups] == [later, later]
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]


# What is saved


def test_a_state_counts_the_steps_of_each_parameter_from_zero() -> None:
    for kind in (optim.SGD, optim.Adam):
        a, b, c = weights(1, 2, 3)
        optimizer = kind([a, b], lr=0.1)
        assert optimizer.state_dict()["steps"] == [0, 0]
        step_with_ones(optimizer, b)
        optimizer.add_param_group({"params": [c]})
        assert optimizer.state_dict()["steps"] == [0, 1, 0]
        step_with_ones(optimizer, a, b)
        step_with_ones(optimizer, b, c)
        assert optimizer.state_dict()["steps"] == [1, 3, 1]


def test_a_state_lists_its_arrays_in_the_order_of_the_parameters() -> None:
    """Also where the last one moved first: the same state gives the same file."""
    parameters = weights(1, 2, 3)
    for optimizer, names in (
        (optim.SGD(parameters, 0.1, momentum=0.9), ["velocity"]),
        (optim.Adam(parameters), ["m", "v"]),
    ):
        for parameter in parameters[::-1]:
            step_with_ones(optimizer, parameter)
        state = optimizer.state_dict()
        assert [*state["arrays"]] == [f"{name}.{i}" for name in names for i in range(3)]
        assert [group["params"] for group in state["groups"]] == [3]


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
def test_an_optimizer_whose_state_is_emptied_begins_anew(kind: Any) -> None:
    a, b = weights(3, 3)
    used, new = kind([a], lr=0.1), kind([b], lr=0.1)
    for scale in (1.0, -3.0, 2.0):
        a.grad = ta.ones(3) * scale
        used.step()
    used.state.clear()
    assert used.state_dict()["steps"] == [0]
    a.data = b.data
    for _ in range(2):
        for optimizer, parameter in ((used, a), (new, b)):
            step_with_ones(optimizer, parameter)
        assert_same(a.numpy(), b.numpy())
    assert used.state_dict()["steps"] == [2]


# What is refused


KINDS = [optim.SGD, optim.Adam, optim.AdamW]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_setting_that_a_group_lacks_is_named_at_once(kind: Any, place: int) -> None:
    """In a saved state and before a step. Nothing is changed then, in the other group neither."""
    optimizer = kind([{"params": [weight()], "lr": lr} for lr in (0.25, 0.5)])
    group, state = optimizer.param_groups[place], optimizer.state_dict()
    for parameter in optimizer.parameters:
        parameter.grad = ta.ones(2)
    for name in optimizer.defaults:
        words = f"a parameter group has {['params', *optimizer.defaults]}, got "
        words += repr([other for other in group if other != name])
        saved = optimizer.state_dict()
        saved["groups"][1 - place]["lr"] = 0.75
        del saved["groups"][place][name]
        text = f"not a state_dict() of this {kind.__name__}: {ValueError(words)!r}"
        refuses(CheckpointError, text, partial(optimizer.load_state_dict, saved))
        assert optimizer.state_dict() == state
        kept = dict(group)
        del group[name]
        refuses(ValueError, words, optimizer.step)
        group.clear()
        group.update(kept)
        assert optimizer.state_dict() == state
    saved = optimizer.state_dict()
    del saved["groups"][place]["params"]
    text = f"not a state_dict() of this {kind.__name__}: KeyError('params')"
    refuses(CheckpointError, text, lambda: optimizer.load_state_dict(saved))
    assert [parameter.tolist() for parameter in optimizer.parameters] == [[1, 1]] * 2
    optimizer.step()
    assert [parameter.tolist() != [1, 1] for parameter in optimizer.parameters] == [True] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_from_before_a_schedule_may_be_in_a_group_or_not(kind: Any) -> None:
    """It is the one setting that a state may have or lack; no other is taken."""
    optimizer = kind([weight()], lr=0.5)
    state = optimizer.state_dict()
    state["groups"][0]["initial_lr"] = 0.25
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["initial_lr"] == 0.25
    del state["groups"][0]["initial_lr"]
    optimizer.load_state_dict(state)
    assert "initial_lr" not in optimizer.param_groups[0]
    for name in ("initial", "foreach", "Lr", "param"):
        wrong = optimizer.state_dict()
        wrong["groups"][0][name] = 0.25
        with pytest.raises(CheckpointError, match=rf"a parameter group has .* got .*'{name}'"):
            optimizer.load_state_dict(wrong)
        with pytest.raises(ValueError, match=rf"^a parameter group has .*'{name}'"):
            optimizer.add_param_group({"params": [weight()], name: 0.25})
    assert optimizer.state_dict() == state


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_read_and_written_by_the_names_of_its_arrays(kind: Any) -> None:
    """A program of PyTorch writes to the dict of a parameter, which would change nothing here."""
    parameter = weight()
    options = {"momentum": 0.5} if kind is optim.SGD else {}
    optimizer = kind([parameter], 0.5, **options)
    for names in ([], [*optimizer.slots] or ["velocity"]):
        has = f"state has arrays by name and number, here {names}, got "
        for key, shown in (
            *((key, repr(key)) for key in (0, 1.5, None, True, b"m", ("m", 0))),
            (parameter, "float32[2]"),
        ):
            for call in (
                lambda key=key: optimizer.state[key],
                lambda key=key: optimizer.state.__setitem__(key, {}),
            ):
                with pytest.raises(KeyError) as found:
                    call()
                assert found.value.args == (f"{has}{shown}",)
        with pytest.raises(KeyError, match="state has arrays by name and number"):
            optimizer.state["exp_avg"]
        assert [*optimizer.state] == names
        parameter.grad = ta.ones(2)
        optimizer.step()
    optimizer.state["own"] = {0: np.ones(2)}
    assert optimizer.state["own"][0].tolist() == [1, 1]


# What is not moved


def test_a_step_writes_into_no_memory_of_others() -> None:
    """A detached tensor shows that of a result, and an expanded one has one number for many."""
    result = ta.ones(2, requires_grad=True) * 2
    one = ta.zeros(1)
    for parameter, after in ((result.detach(), [1.5, 1.5]), (one.expand(2), [-0.5, -1.0])):
        parameter.requires_grad = True
        parameter.grad = ta.tensor([0.5, 0.5 if after[1] == 1.5 else 1.0])
        optim.SGD([parameter], lr=1.0).step()
        assert parameter.tolist() == after
    assert (result.tolist(), one.tolist()) == ([2, 2], [0])


def test_without_decay_an_infinite_weight_stays_infinite() -> None:
    """As in PyTorch: 0 times the weight is not added, which would be no number."""
    for momentum in (0.0, 0.5):
        parameter = ta.tensor([math.inf, 1.0, -math.inf], requires_grad=True)
        optimizer = optim.SGD([parameter], lr=0.5, momentum=momentum, weight_decay=0.0)
        step_with_ones(optimizer, parameter)
        assert parameter.tolist() == [math.inf, 0.5, -math.inf]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decay", [0.0, 0.25])
@pytest.mark.parametrize("decoupled", [False, True])
def test_a_step_of_adam_is_its_formula(decoupled: bool, decay: float, dtype: Any) -> None:
    """The kernel and the formula without it, against the definition in float64."""
    rng = rng_of(6)
    m, v, w, grad = (signed(rng, 4, 3).astype(dtype) for _ in range(4))
    v = abs(v)
    numbers = AdamStep(0.125, 0.75, 0.875, 1e-3, decay, decoupled, 3)
    m64, v64, w64, g64 = (array.astype(np.float64) for array in (m, v, w, grad))
    if decoupled:
        w64 = w64 - 0.125 * decay * w64
    elif decay:
        g64 = g64 + decay * w64
    m64 = 0.75 * m64 + 0.25 * g64
    v64 = 0.875 * v64 + 0.125 * g64**2
    step = 0.125 * (m64 / (1 - 0.75**3)) / (np.sqrt(v64 / (1 - 0.875**3)) + 1e-3)
    w64 = w64 - step
    for adam in (kernels.adam, reference.adam):
        found = [array.copy() for array in (m, v, w, grad)]
        adam(*found, numbers)
        for actual, expected in zip(found, (m64, v64, w64, grad), strict=True):
            assert actual.dtype == dtype
            close = 1e-5 if dtype == np.float32 else 1e-12
            np.testing.assert_allclose(actual, expected, rtol=close, atol=close)


# Clipping


@pytest.mark.parametrize("p", [1, 2, 3.5, math.inf, "inf"])
def test_one_tensor_an_empty_one_and_no_gradient_are_clipped(p: Any) -> None:
    numbers = np.array([3.0, -4.0, 1.0, -4.0])
    order = math.inf if p == "inf" else p
    norm = (abs(numbers) ** order).sum() ** (1 / order) if order < math.inf else 4.0
    one, empty, without = leaf(numbers), leaf(np.empty(0)), leaf(np.ones(2))
    one.grad, empty.grad = ta.tensor(numbers), ta.tensor(np.empty(0))
    assert optim.clip_grad_norm_(one, math.inf, p) == pytest.approx(norm, rel=1e-14)
    assert_same(one.grad.numpy(), numbers)
    assert optim.clip_grad_norm_([empty, one, without], 2.0, p) == pytest.approx(norm, rel=1e-14)
    assert_close(one.grad.numpy(), numbers * (2 / (norm + 1e-6)), 1e-14)
    assert without.grad is None
    for nothing in ([empty], [without]):
        assert optim.clip_grad_norm_(nothing, 2.0, p) == 0


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("p", [1, 2, 3.5, math.inf])
def test_a_norm_below_the_largest_and_one_that_is_not_finite_scale_nothing(
    p: float, checked: bool
) -> None:
    """Neither up nor down; of a norm that is not finite an error says so, if it is asked for."""
    for numbers, norm in (
        ([0.0, 0.0], 0.0),
        ([0.25, 0.0], 0.25),
        ([0.0, -0.75], 0.75),
        ([0.0, 1 - 1e-5], 1 - 1e-5),
        ([1.0, math.inf], math.inf),
        ([-math.inf, 1.0], math.inf),
        ([math.nan, 1.0], math.nan),
    ):
        parameter = leaf(np.ones(2))
        parameter.grad = ta.tensor(np.array(numbers))
        if checked and not math.isfinite(norm):
            text = f"the joint norm of the gradients is {norm}: nothing was scaled"
            with pytest.raises(RuntimeError, match=f"^{text}$"):
                optim.clip_grad_norm_([parameter], 1.0, p, error_if_nonfinite=True)
        else:
            found = optim.clip_grad_norm_([parameter], 1.0, p, error_if_nonfinite=checked)
            np.testing.assert_array_equal(found, norm)
        assert_same(parameter.grad.numpy(), np.array(numbers))


@pytest.mark.parametrize(
    ("p", "checked", "waits"), [(2, False, False), (2, True, True), (1, False, True)]
)
def test_a_norm_on_cuda_is_waited_for_only_where_it_must_be(
    p: float, checked: bool, waits: bool, cuda: Any
) -> None:
    """Else it is a Tensor there. Gradients of other shapes and dtypes keep theirs."""
    arrays = [np.array([[3.0, -4.0]]), np.array(2.0, np.float32), np.array([1.0, 5.0], np.float16)]
    parameters = [ta.tensor(x, device="cuda", requires_grad=True) for x in arrays]
    right = np.linalg.norm([3, 4, 2, 1, 5], p)
    for largest in (1e9, 1.5):
        for parameter, array in zip(parameters, arrays, strict=True):
            parameter.grad = ta.tensor(array, device="cuda")
        found = optim.clip_grad_norm_(parameters, largest, p, error_if_nonfinite=checked)
        assert isinstance(found, float if waits else ta.Tensor)
        if isinstance(found, ta.Tensor):
            assert (found.device, found.shape) == ("cuda", ())
        assert float(found) == pytest.approx(right, rel=1e-6)
        for parameter, array in zip(parameters, arrays, strict=True):
            grad = parameter.grad
            assert grad is not None
            assert (grad.device, grad.dtype, grad.shape) == ("cuda", array.dtype, array.shape)
            factor = min(1.0, largest / (right + 1e-6))
            assert_close(grad.numpy(), array * factor, 1e-3 if array.dtype == "float16" else 1e-6)
    parameters[0].grad = ta.tensor([[math.inf, 1.0]], dtype=np.float64, device="cuda")
    if checked:
        with pytest.raises(RuntimeError, match="the joint norm of the gradients is inf"):
            optim.clip_grad_norm_(parameters, 1.0, p, error_if_nonfinite=True)
    else:
        assert float(optim.clip_grad_norm_(parameters, 1.0, p)) == math.inf
    assert parameters[0].grad.tolist() == [[math.inf, 1.0]]


# Schedules


class Listed(optim.Schedule):
    """A schedule with these rates, one after another."""

    def __init__(self, optimizer: optim.Optimizer, rates: list[float]) -> None:
        self.listed = rates
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        return self.listed[step - 1]


def test_the_first_schedule_notes_the_rates_from_before_it() -> None:
    groups = [{"params": weights(1), "lr": 0.5}, {"params": weights(1), "lr": 0.25}]
    for make in (
        lambda o: optim.CosineSchedule(o, 9, warmup=4),
        lambda o: optim.WarmupSchedule(o, 8),
        lambda o: optim.LambdaLR(o, lambda n: 0.125),
        lambda o: Listed(o, [0.125]),
    ):
        optimizer = optim.SGD(groups)
        make(optimizer)
        assert [group["initial_lr"] for group in optimizer.param_groups] == [0.5, 0.25]
        optim.LambdaLR(optimizer, lambda n: 3.0)
        assert [group["lr"] for group in optimizer.param_groups] == [1.5, 0.75]


def test_a_rate_of_zero_forgets_what_others_set_during_it() -> None:
    """No proportion to 0 can be taken over: the next rates are as if nothing had been set."""
    groups = [{"params": weights(1), "lr": 0.5}, {"params": weights(1), "lr": 0.25}]
    optimizer = optim.SGD(groups)
    schedule = Listed(optimizer, [1.0, 0.0, 1.0, 2.0])
    schedule.step()
    assert schedule.get_last_lr() == [0, 0]
    optimizer.lr = 7.0
    schedule.step()
    assert schedule.get_last_lr() == [1.0, 0.5]
    schedule.step()
    assert schedule.get_last_lr() == [2.0, 1.0]


def test_groups_whose_rates_are_all_zero_get_one_rate() -> None:
    groups = [{"params": weights(1), "lr": 0.0} for _ in range(3)]
    schedule = optim.WarmupSchedule(optim.SGD(groups), 16, 4)
    assert schedule.get_last_lr() == [0.25 * 0.125] * 3


@pytest.mark.parametrize("factor", [0, 0.25, 0.5, 1, 3])
def test_the_warmup_schedule_is_its_factor_times_the_formula(factor: float) -> None:
    optimizer = optim.SGD([{"params": weights(1), "lr": rate} for rate in (0.1, 0.3)])
    schedule = optim.WarmupSchedule(optimizer, 16, 4, factor)
    for n in range(1, 9):
        right = factor * 16**-0.5 * min(n**-0.5, n * 4**-1.5)
        assert_close(schedule.get_last_lr(), [right, right * 3], 1e-14)
        schedule.step()


@pytest.mark.parametrize("warmup", [0, 1, 2, 3, 7])
@pytest.mark.parametrize(("peak", "final"), [(0.1, 0.03), (0.7, 0.1), (0.3, 0.0), (0.1, 0.2)])
def test_the_warmup_of_the_cosine_ends_at_the_rate(warmup: int, peak: float, final: float) -> None:
    """Before it the rates are on a line, and after it on a cosine."""
    schedule = optim.CosineSchedule(optim.SGD(weights(1), lr=peak), 8, warmup, final)
    rates = []
    for _ in range(10):
        rates += schedule.get_last_lr()
        schedule.step()
    for n, rate in enumerate(rates, 1):
        if n <= warmup:
            right = peak * n / warmup
        else:
            part = min(1, (n - warmup) / (8 - warmup))
            right = final + (peak - final) * (1 + math.cos(math.pi * part)) / 2
        assert rate == pytest.approx(right, rel=1e-13, abs=1e-17)


def test_an_array_of_the_state_may_be_replaced() -> None:
    parameter = nn.Parameter([1.0, -2.0])
    optimizer = optim.SGD([parameter], 0.5, momentum=0.5)
    parameter.grad = ta.tensor([1.0, 1.0])
    optimizer.step()
    optimizer.state["velocity"] = {0: np.array([4.0, 8.0], np.float32)}
    optimizer.step()
    assert parameter.tolist() == [1.0 - 0.5 - 0.5 * 3, -2.0 - 0.5 - 0.5 * 5]


@pytest.mark.parametrize("dimensions", [*range(5)])
def test_what_has_two_or_more_dimensions_decays(dimensions: int) -> None:
    """The weights of a convolution too. No other group is made."""
    parameter = ta.ones(*(2,) * dimensions, requires_grad=True)
    frozen = ta.ones(2, 2)
    (group,) = optim.decay_groups([frozen, parameter], 0.25)
    assert group["params"] == [parameter]
    assert group["weight_decay"] == (0.25 if dimensions > 1 else 0.0)


# Parameters that are frozen during a training


@pytest.mark.parametrize("frozen", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
        (optim.Adam, {}),
        (optim.AdamW, {"weight_decay": 0.1}),
    ],
)
def test_a_frozen_parameter_keeps_its_place_among_the_others(
    kind: Any, options: dict[str, Any], frozen: int
) -> None:
    """Each parameter goes on as in an optimizer of its own, and the frozen one stays."""
    rng = rng_of(frozen)
    rates, values = (0.1, 0.2, 0.3), [signed(rng, n) for n in (2, 3, 4)]
    together, alone = ([leaf(value.copy()) for value in values] for _ in range(2))
    pairs = list(zip(together, rates, strict=True))
    joint = kind([{"params": [x], "lr": lr} for x, lr in pairs], **options)
    separate = [kind([x], lr=lr, **options) for x, lr in zip(alone, rates, strict=True)]
    for step in range(6):
        if step == 2:
            together[frozen].requires_grad = False
            stays = together[frozen].tolist()
        if step == 4:
            together[frozen].requires_grad = True
        for i, (x, y) in enumerate(zip(together, alone, strict=True)):
            grad = ta.tensor(signed(rng, *x.shape))
            is_frozen = i == frozen and step in (2, 3)
            x.grad, y.grad = (None, None) if is_frozen else (grad, grad.clone())
        joint.step()
        for i, optimizer in enumerate(separate):
            if alone[i].grad is not None:
                optimizer.step()
        if step in (2, 3):
            assert together[frozen].tolist() == stays
        for x, y in zip(together, alone, strict=True):
            assert_same(x.detach().numpy(), y.detach().numpy())
        for i, x in enumerate(joint.parameters):
            assert x is together[i]
