"""Each setting of each optimizer at its limits: when it is made, in a group, and before a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import optim
from tinyattn.torch_names.optim import RMSprop

NAN, INF = float("nan"), float("inf")
SETTINGS: dict[Any, tuple[str, ...]] = {
    optim.SGD: ("lr", "momentum", "dampening", "weight_decay"),
    optim.Adam: ("lr", "eps", "weight_decay"),
    optim.AdamW: ("lr", "eps", "weight_decay"),
    RMSprop: ("lr", "eps", "weight_decay", "momentum"),
}
NUMBERS = [(kind, name) for kind, names in SETTINGS.items() for name in (*names, "initial_lr")]


def weight() -> ta.Tensor:
    return ta.ones(2, requires_grad=True)


def ways(kind: Any, name: str) -> dict[str, Callable[[Any], Any]]:
    """How a setting gets into an optimizer."""

    def later(value: Any) -> Any:
        made = kind([weight()], lr=0.5)
        made.param_groups[0][name] = value
        made.step()
        return made

    def added(value: Any) -> Any:
        made = kind([weight()], lr=0.5)
        made.add_param_group({"params": [weight()], name: value})
        return made

    found: dict[str, Callable[[Any], Any]] = {
        "group": lambda value: kind([{"params": [weight()], name: value}], lr=0.5),
        "later": later,
        "added": added,
    }
    if name != "initial_lr":
        found["made"] = lambda value: kind([weight()], **{"lr": 0.5, name: value})
    return found


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_a_setting_is_a_number_that_is_not_below_zero(kind: Any, name: str) -> None:
    for way, make in ways(kind, name).items():
        for value in (0, 0.0, 1e-300, 0.25, 3):
            found = make(value).param_groups[-1][name]
            assert found == value
            assert type(found) is float or way == "later", way
        for value in (-1e-300, -1, NAN, INF, -INF, "0.1", None):
            with pytest.raises((ValueError, TypeError)) as raised:
                make(value)
            assert str(raised.value) == f"{name} must be a number >= 0, got {value!r}", way


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
def test_each_of_the_betas_lies_between_zero_and_one(kind: Any, place: int) -> None:
    for make in ways(kind, "betas").values():
        for value in (0, 0.5, 0.999999):
            betas: list[Any] = [0.25, 0.75]
            betas[place] = value
            for form in (list, tuple):
                assert make(form(betas)).param_groups[-1]["betas"] == tuple(betas)
        for value in (-1e-9, 1 + 1e-9, 2, NAN, "0.5", None):
            betas = [0.25, 0.75]
            betas[place] = value
            with pytest.raises((ValueError, TypeError), match=rf"^betas\[{place}\] "):
                make(tuple(betas))
        for wrong in ((0.5,), (0.5, 0.5, 0.5), 0.5, None, "ab"):
            with pytest.raises(ValueError) as raised:  # noqa: PT011  the whole sentence
                make(wrong)
            assert str(raised.value) == f"betas are two numbers, got {wrong!r}"


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_step_uses_what_its_closure_has_set(kind: Any) -> None:
    """The settings are checked after it, and a wrong one moves nothing."""
    with ta.no_grad():
        w, right = weight(), weight()
    optimizer, other = kind([w], lr=0.5), kind([right], lr=0.125)

    def closure(rate: Any) -> Any:
        def compute() -> str:
            assert ta.is_grad_enabled()
            optimizer.zero_grad()
            (w * ta.tensor([1.0, -2.0])).sum().backward()
            optimizer.param_groups[0]["lr"] = rate
            return "the loss"

        return compute

    right.grad = ta.tensor([1.0, -2.0])
    other.step()
    with pytest.raises(ValueError, match=r"^lr must be a number >= 0, got -1$"):
        optimizer.step(closure(-1))
    assert w.tolist() == [1.0, 1.0]
    with ta.no_grad():
        assert optimizer.step(closure(0.125)) == "the loss"
        assert not ta.is_grad_enabled()
    assert w.tolist() == right.tolist() != [1.0, 1.0]


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_parameter_is_in_one_place_alone(kind: Any) -> None:
    a, b, c = weight(), weight(), weight()
    for wrong in ([a, a], [a, b, a], [{"params": [a, b]}, {"params": [c, b]}]):
        with pytest.raises(ValueError, match=r"^a parameter is listed twice$"):
            kind(wrong, lr=0.5)
    made = kind([a, b], lr=0.5)
    for wrong in ([a], [c, b], [c, c]):
        with pytest.raises(ValueError, match=r"^a parameter is listed twice$"):
            made.add_param_group({"params": wrong})
        assert [id(x) for x in made.parameters] == [id(a), id(b)]
    made.add_param_group({"params": [c]})
    assert [len(group["params"]) for group in made.param_groups] == [2, 1]


@pytest.mark.parametrize("kind", SETTINGS)
def test_steps_after_a_state_was_loaded_leave_it_as_it_is(kind: Any) -> None:
    options = {"momentum": 0.5} if kind in (optim.SGD, RMSprop) else {}
    w, other = weight(), weight()
    made, again = kind([w], lr=0.5, **options), kind([other], lr=0.25, **options)

    def step(optimizer: Any, x: ta.Tensor) -> list[float]:
        x.grad = ta.tensor([1.0, -2.0])
        optimizer.step()
        return x.tolist()

    step(made, w)
    state = made.state_dict()
    before = {name: x.tolist() for name, x in state["arrays"].items()}
    assert before
    other.data = w.data.clone() if isinstance(w.data, ta.Tensor) else w.data.copy()
    again.load_state_dict(state)
    assert again.param_groups[0]["lr"] == 0.5
    for _ in range(2):
        assert step(again, other) == step(made, w)
        assert {name: x.tolist() for name, x in state["arrays"].items()} == before
        assert (state["steps"], state["groups"][0]["lr"]) == ([1], 0.5)


@pytest.mark.parametrize("decay", [0.0, 0.25])
@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov"),
    [(0, 0, False), (0, 0.5, False), (0.5, 0, False), (0.5, 0.25, False), (0.5, 0, True)],
)
def test_steps_of_sgd_are_those_of_the_formula(
    momentum: float, dampening: float, nesterov: bool, decay: float
) -> None:
    x = ta.tensor([1.0, -2.0], dtype=ta.float64, requires_grad=True)
    optimizer = optim.SGD([x], 0.125, momentum, dampening, decay, nesterov)
    w, velocity = np.array([1.0, -2.0]), None
    for step in range(4):
        g = np.array([0.5, -1.0]) * (step + 1)
        x.grad = ta.tensor(g)
        optimizer.step()
        g = g + decay * w
        if momentum:
            velocity = g if velocity is None else momentum * velocity + (1 - dampening) * g
            g = g + momentum * velocity if nesterov else velocity
        w = w - 0.125 * g
        np.testing.assert_allclose(x.detach().numpy(), w, rtol=1e-14)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("CosineSchedule", {"total": 3, "warmup": 3}, "warmup must lie in [0, total), got 3 of 3"),
        ("CosineSchedule", {"total": 3, "warmup": 4}, "warmup must lie in [0, total), got 4 of 3"),
        ("CosineSchedule", {"total": 0}, "warmup must lie in [0, total), got 0 of 0"),
        ("CosineSchedule", {"total": -1}, "total must be a number >= 0, got -1"),
        ("CosineSchedule", {"total": 3, "warmup": -1}, "warmup must be a number >= 0, got -1"),
        ("CosineSchedule", {"total": 3, "final": -0.1}, "final must be a number >= 0, got -0.1"),
        ("WarmupSchedule", {"d_model": 0}, "d_model must be a number >= 1, got 0"),
        ("WarmupSchedule", {"d_model": 4, "warmup": 0}, "warmup must be a number >= 1, got 0"),
        ("WarmupSchedule", {"d_model": 4, "factor": -1}, "factor must be a number >= 0, got -1"),
    ],
)
def test_a_schedule_says_which_number_does_not_fit(
    kind: str, settings: dict[str, Any], message: str
) -> None:
    optimizer = optim.SGD([weight()], lr=0.5)
    with pytest.raises(ValueError) as raised:  # noqa: PT011  the whole sentence is compared
        getattr(optim, kind)(optimizer, **settings)
    assert str(raised.value) == message
    assert optimizer.lr == 0.5


def test_schedules_take_their_least_numbers() -> None:
    for settings, rates in (
        ({"total": 1}, [0.0, 0.0]), ({"total": 2, "warmup": 1}, [0.5, 0.0]),
        ({"total": 2, "final": 0.25}, [0.375, 0.25]), ({"total": 3, "warmup": 2}, [0.25, 0.5]),
    ):  # fmt: skip
        schedule = optim.CosineSchedule(optim.SGD([weight()], lr=0.5), **settings)
        assert schedule.get_last_lr() == pytest.approx(rates[:1])
        schedule.step()
        assert schedule.get_last_lr() == pytest.approx(rates[1:])
    schedule = optim.WarmupSchedule(optim.SGD([weight()], lr=0.5), 1, 1)
    for n in range(1, 4):
        assert schedule.get_last_lr() == pytest.approx([n**-0.5])
        schedule.step()
