"""What optimizers, schedules, loaders and loops refuse, word for word: the words name the cause."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn, optim
from tinyattn.errors import CheckpointError, GraphError, ShapeError
from tinyattn.training import DataLoader, TrainingLoop, Windows, pad_sequence


def weight() -> ta.Tensor:
    return ta.ones(2, requires_grad=True)


def refuses(error: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error) as found:
        call()
    assert str(found.value) == text


NO_LIST = (
    "an optimizer takes parameters, not the module or one Tensor: an iterable such as "
    "model.parameters(), got "
)


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        (weight(), TypeError, f"{NO_LIST}Tensor"),
        ({"a": weight()}, TypeError, f"{NO_LIST}dict"),
        (nn.Linear(1, 1), TypeError, f"{NO_LIST}Linear"),
        (nn.ModuleList([nn.Linear(1, 1)]), TypeError, f"{NO_LIST}ModuleList"),
        ([nn.Linear(1, 1)], TypeError, f"{NO_LIST}list"),
        (5, TypeError, f"{NO_LIST}int"),
        ({weight()}, TypeError, "an optimizer takes a list, got set"),
        ([], ValueError, "an optimizer needs parameters, got an empty list"),
        ([("a", weight(), 1)], TypeError, "parameter 0 must be a Tensor, got tuple"),
        ([("a",)], TypeError, "parameter 0 must be a Tensor, got tuple"),
        ([weight(), "b"], TypeError, "parameter 1 must be a Tensor, got str"),
    ],
)
def test_what_is_no_list_of_parameters_is_named(
    parameters: Any, error: type[Exception], text: str
) -> None:
    refuses(error, text, lambda: optim.SGD(parameters, lr=0.1))
    refuses(error, text, lambda: optim.decay_groups(parameters, 0.1))
    if not isinstance(parameters, ta.Tensor):  # one Tensor is a group, and is clipped
        refuses(error, text, lambda: optim.clip_grad_norm_(parameters, 1.0))
        optimizer = optim.SGD([weight()], lr=0.1)
        refuses(error, text, lambda: optimizer.add_param_group({"params": parameters}))


@pytest.mark.parametrize("group", [5, "params", ["params"], {"lr": 1.0}])
def test_what_is_no_group_is_shown(group: Any) -> None:
    optimizer = optim.SGD([weight()])
    text = f"a parameter group is a dict with the key 'params', got {group!r}"
    refuses(TypeError, text, lambda: optimizer.add_param_group(group))
    assert len(optimizer.param_groups) == 1


def test_a_group_names_the_settings_that_it_may_have() -> None:
    text = (
        "a parameter group has ['params', 'lr', 'betas', 'eps', 'weight_decay'], "
        "got ['lr', 'betas', 'eps', 'weight_decay', 'params', 'rate']"
    )
    refuses(ValueError, text, lambda: optim.Adam([{"params": [weight()], "rate": 1.0}]))


def test_a_parameter_that_was_computed_is_counted() -> None:
    text = "parameter 1 was computed; only leaves can be optimized"
    refuses(GraphError, text, lambda: optim.SGD([weight(), weight() * 2]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"betas": 0.9}, "betas are two numbers, got 0.9"),
        ({"betas": {0.9: 1, 0.5: 2}}, "betas are two numbers, got {0.9: 1, 0.5: 2}"),
        ({"betas": "ab"}, "betas are two numbers, got 'ab'"),
        ({"betas": (0.9,)}, "betas are two numbers, got (0.9,)"),
        ({"betas": (0.9, 0.9, 0.9)}, "betas are two numbers, got (0.9, 0.9, 0.9)"),
        ({"betas": (1.0, 0.9)}, "betas[0] must be a number in [0, 1), got 1.0"),
        ({"betas": (-0.5, 0.9)}, "betas[0] must be a number in [0, 1), got -0.5"),
        ({"betas": (0.9, 1.0)}, "betas[1] must be a number in [0, 1), got 1.0"),
        ({"betas": (0.9, 1.5)}, "betas[1] must be a number in [0, 1), got 1.5"),
        ({"betas": (0.9, -0.5)}, "betas[1] must be a number in [0, 1), got -0.5"),
        ({"eps": -0.5}, "eps must be a number >= 0, got -0.5"),
        ({"lr": -0.5}, "lr must be a number >= 0, got -0.5"),
        ({"weight_decay": -0.5}, "weight_decay must be a number >= 0, got -0.5"),
    ],
)
def test_each_wrong_setting_of_adam_is_named(options: dict[str, Any], text: str) -> None:
    refuses(ValueError, text, lambda: optim.Adam([weight()], **options))
    optimizer = optim.AdamW([{"params": [weight()]}, {"params": [weight()]}])
    optimizer.param_groups[1].update(options)
    refuses(ValueError, text, optimizer.step)


@pytest.mark.parametrize("name", ["lr", "momentum", "dampening", "weight_decay"])
def test_each_wrong_setting_of_gradient_descent_is_named(name: str) -> None:
    text = f"{name} must be a number >= 0, got -0.5"
    refuses(ValueError, text, lambda: optim.SGD([weight()], **{name: -0.5}))
    refuses(ValueError, text, lambda: setattr(optim.SGD([weight()]), name, -0.5))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((-1.0,), "max_norm must be a number >= 0, got -1.0"),
        (("a",), "max_norm must be a number >= 0, got 'a'"),
        ((float("nan"),), "max_norm must be a number >= 0, got nan"),
        ((1.0, -1.0), "norm_type must be a number >= 0, got -1.0"),
        ((1.0, "nuc"), "norm_type must be a number >= 0, got 'nuc'"),
        ((1.0, 0), "norm_type must be a number > 0, got 0"),
    ],
)
def test_clipping_names_the_number_that_is_no_norm(arguments: tuple[Any, ...], text: str) -> None:
    refuses(ValueError, text, lambda: optim.clip_grad_norm_([weight()], *arguments))


def test_a_closure_and_an_optimizer_of_ones_own_are_functions() -> None:
    refuses(TypeError, "a closure is a function, got int 5", lambda: optim.SGD([weight()]).step(5))

    class Own(optim.Optimizer):
        pass

    parameter = weight()
    parameter.grad = ta.ones(2)
    refuses(TypeError, "Own defines no update()", Own([parameter], lr=0.1).step)
    assert parameter.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("kind", "change", "text"),
    [
        (optim.SGD, {"steps": [1]}, "ValueError('it is for 1 parameters of 2')"),
        (optim.SGD, {"steps": [1, 1, 1]}, "ValueError('it is for 3 parameters of 2')"),
        (
            optim.SGD,
            {"steps": [0, -1]},
            "ShapeError('a number of steps must be an integer >= 0, got -1')",
        ),
        (
            optim.SGD,
            {"steps": [0.5, 1]},
            "ShapeError('a number of steps must be an integer >= 0, got 0.5')",
        ),
        (optim.SGD, {"kind": "Adam"}, "ValueError('it is of Adam')"),
        (optim.Adam, {"steps": [1, 1]}, "ValueError(\"'m.0' is missing\")"),
        (
            optim.Adam,
            {"arrays": {"v.1": ta.ones(2), "m.1": ta.ones(2)}},
            "ValueError(\"'m.1' is there before its parameter has moved\")",
        ),
    ],
)
def test_what_does_not_fit_in_a_saved_optimizer_is_named(
    kind: Any, change: dict[str, Any], text: str
) -> None:
    optimizer = kind([weight(), weight()], lr=0.1)
    state = optimizer.state_dict()
    text = f"not a state_dict() of this {kind.__name__}: {text}"
    refuses(CheckpointError, text, lambda: optimizer.load_state_dict(state | change))
    assert optimizer.state_dict() == state


def test_of_many_missing_arrays_the_first_by_name_is_named() -> None:
    """Whatever the order of a set of texts is in this process."""
    optimizer = optim.Adam([weight() for _ in range(20)])
    state = optimizer.state_dict() | {"steps": [1] * 20}
    for left_out in range(6):
        arrays = {f"{name}.{i}": ta.ones(2) for name in "mv" for i in range(20)}
        names = sorted(arrays)[left_out:]
        some = {name: array for name, array in arrays.items() if name not in names}
        with pytest.raises(CheckpointError, match=f"'{names[0]}' is missing"):
            optimizer.load_state_dict(state | {"arrays": some})


@pytest.mark.parametrize("state", [None, "text", [], 5, {}])
def test_what_is_no_state_of_an_optimizer_is_refused(state: Any) -> None:
    optimizer = optim.SGD([weight()], lr=0.1)
    with pytest.raises(CheckpointError, match=r"^not a state_dict\(\) of this SGD: "):
        optimizer.load_state_dict(state)
    saved = optimizer.state_dict()
    for groups in ([], saved["groups"] * 2):
        with pytest.raises(CheckpointError, match=r"^not a state_dict\(\) of this SGD: "):
            optimizer.load_state_dict(saved | {"groups": groups})


@pytest.mark.parametrize("part", ["kind", "groups", "steps", "arrays"])
@pytest.mark.parametrize(
    "value",
    [None, 5, "text", [], (), [5, 5], ["ab"], [("m.0", 1)], {"a": 1}, {0: {}}, [{}], [None]],
)
def test_what_is_no_part_of_a_state_is_refused_whatever_error_it_would_be(
    part: str, value: Any
) -> None:
    optimizer = optim.Adam([weight()])
    optimizer.parameters[0].grad = ta.ones(2)
    optimizer.step()
    state = optimizer.state_dict()
    for wrong in (state | {part: value}, {key: x for key, x in state.items() if key != part}):
        with pytest.raises(CheckpointError, match=r"^not a state_dict\(\) of this Adam: "):
            optimizer.load_state_dict(wrong)
        found = optimizer.state_dict()
        assert (found["groups"], found["steps"]) == (state["groups"], [1])
        assert found["arrays"]["m.0"].tolist() == state["arrays"]["m.0"].tolist()


class Constant(optim.Schedule):
    """A schedule whose rate is one number, right or wrong."""

    def __init__(self, optimizer: optim.Optimizer, value: Any) -> None:
        self.value = value
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        return self.value


def sgd(*rates: float) -> optim.Optimizer:
    return optim.SGD([{"params": [weight()], "lr": rate} for rate in rates or (0.1,)])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: optim.CosineSchedule(sgd(), -1), "total must be a number >= 0, got -1"),
        (lambda: optim.CosineSchedule(sgd(), 5, -1), "warmup must be a number >= 0, got -1"),
        (lambda: optim.CosineSchedule(sgd(), 5, 5), "warmup must lie in [0, total), got 5 of 5"),
        (lambda: optim.CosineSchedule(sgd(), 5, 0, -1), "final must be a number >= 0, got -1"),
        (lambda: optim.WarmupSchedule(sgd(), 0), "d_model must be a number >= 1, got 0"),
        (lambda: optim.WarmupSchedule(sgd(), 8, 0), "warmup must be a number >= 1, got 0"),
        (lambda: optim.WarmupSchedule(sgd(), 8, 9, -1), "factor must be a number >= 0, got -1"),
        (lambda: Constant(sgd(), -1.0), "lr must be a number >= 0, got -1.0"),
        (lambda: Constant(sgd(), "a"), "lr must be a number >= 0, got 'a'"),
        (lambda: Constant(sgd(0.1, 100.0), 1e306), "lr must be a number >= 0, got inf"),
        (
            lambda: optim.LambdaLR(sgd(1e300), lambda n: 1e300),
            "lr must be a number >= 0, got inf",
        ),
        (
            lambda: optim.LambdaLR(sgd(), lambda n: -1),
            "what lr_lambda returns must be a number >= 0, got -1",
        ),
        (
            lambda: optim.CosineSchedule(sgd(0.0, 0.1, 0.0), 9),
            "a schedule keeps the proportion of the groups' rates, but the first is 0 and the "
            "others are [0.1, 0.0]",
        ),
    ],
)
def test_each_wrong_number_of_a_schedule_is_named(make: Callable[[], Any], text: str) -> None:
    refuses(ValueError, text, make)


@pytest.mark.parametrize("value", [None, "Adam", [weight()], weight()])
def test_a_schedule_names_what_is_no_optimizer(value: Any) -> None:
    text = f"a schedule takes an optimizer, got {type(value).__name__}"
    for make in (
        lambda: optim.CosineSchedule(value, 9),
        lambda: optim.WarmupSchedule(value, 9),
        lambda: optim.LambdaLR(value, abs),
        lambda: Constant(value, 1.0),
    ):
        refuses(TypeError, text, make)


def test_a_schedule_names_what_is_no_function() -> None:
    text = "lr_lambda is one function of the steps, got list"
    refuses(TypeError, text, lambda: optim.LambdaLR(sgd(), [abs]))
    refuses(TypeError, "Schedule defines no rate()", lambda: optim.Schedule(sgd()))


def test_a_schedule_names_what_is_no_state_of_it() -> None:
    schedule = optim.CosineSchedule(sgd(), 9)
    state = schedule.state_dict()
    has = f"a CosineSchedule has {[*state]}, got "
    for wrong, text in (
        ("text", f"{has}str"),
        (None, f"{has}NoneType"),
        ({"total": 1}, f"{has}['total']"),
        (
            state | {"step_count": 0},
            "not a CosineSchedule's state: step_count must be an integer >= 1, got 0",
        ),
        (
            state | {"step_count": 0.5},
            "not a CosineSchedule's state: step_count must be an integer >= 1, got 0.5",
        ),
    ):
        refuses(CheckpointError, text, lambda wrong=wrong: schedule.load_state_dict(wrong))
        assert schedule.state_dict() == state


@pytest.mark.parametrize("step", [1, 3, 10**400])
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (optim.CosineSchedule, {"total": 2, "warmup": 2}),
        (optim.CosineSchedule, {"peak": 10**400}),
        (optim.CosineSchedule, {"final": 10**400, "warmup": 0}),
        (optim.CosineSchedule, {"peak": "a"}),
        (optim.CosineSchedule, {"warmup": None}),
        (optim.CosineSchedule, {"proportions": [10**400]}),
        (optim.CosineSchedule, {"proportions": [1.0, 1.0]}),
        (optim.CosineSchedule, {"proportions": 5}),
        (optim.WarmupSchedule, {"warmup": 0}),
        (optim.WarmupSchedule, {"d_model": 0}),
        (optim.WarmupSchedule, {"factor": 10**400}),
        (optim.WarmupSchedule, {"d_model": "a"}),
        (optim.WarmupSchedule, {"proportions": []}),
    ],
)
def test_numbers_of_a_schedule_that_cannot_be_are_refused(
    kind: Any, change: dict[str, Any], step: int
) -> None:
    """Also by errors of arithmetic: a division by 0, and what is beyond a float."""
    optimizer = sgd()
    schedule = kind(optimizer, 9, 5)
    state, rates = schedule.state_dict(), schedule.get_last_lr()
    wrong = state | change | {"step_count": step}
    if change == {"total": 2, "warmup": 2} and step == 1:
        schedule.load_state_dict(wrong)  # a warm-up without end has a first rate
        return
    with pytest.raises(CheckpointError, match=f"^not a {kind.__name__}'s state: "):
        schedule.load_state_dict(wrong)
    assert (schedule.state_dict(), schedule.get_last_lr()) == (state, rates)


HINT = "give DataLoader a collate_fn that makes a batch of them; it may call pad_sequence"


@pytest.mark.parametrize(
    ("samples", "first", "second"),
    [
        ([(1, 2), (1, 2, 3)], "a tuple of 2 fields", "a tuple of 3 fields"),
        ([(1, 2), [1, 2]], "a tuple of 2 fields", "a list of 2 fields"),
        ([1, "a"], "a number", "a text"),
        ([ta.ones(2), np.ones(2)], "a Tensor of shape (2,)", "an array of shape (2,)"),
        ([ta.ones(2), ta.ones(3)], "a Tensor of shape (2,)", "a Tensor of shape (3,)"),
        (
            [{"b": 1, "a": 2}, {"c": 1, "a": 2}],
            """a dict with the keys ["'a'", "'b'"]""",
            """a dict with the keys ["'a'", "'c'"]""",
        ),
    ],
)
def test_samples_of_two_kinds_are_named(samples: list[Any], first: str, second: str) -> None:
    text = f"sample 0 of a batch is {first}, and sample 1 is {second}: {HINT}"
    refuses(ShapeError, text, lambda: list(DataLoader(samples, 2)))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: DataLoader([1], 0),
            ShapeError,
            "batch_size must be an integer >= 1, got 0",
        ),
        (
            lambda: DataLoader([1], collate_fn=5),
            TypeError,
            "collate_fn must be a function, got int 5",
        ),
        (
            lambda: list(DataLoader([object()])),
            TypeError,
            f"samples of type object are not made a batch: {HINT}",
        ),
        (
            lambda: DataLoader((ta.ones(2), ta.ones(3))),
            ShapeError,
            "data in a tuple are columns of one length, got [(2,), (3,)]: pass samples as a list",
        ),
        (lambda: Windows([1, 2], 1, 1), TypeError, "ids must be an array, got list"),
        (
            lambda: Windows(np.arange(9), 0, 1),
            ShapeError,
            "length must be an integer >= 1, got 0",
        ),
        (
            lambda: Windows(np.arange(9), 2, 0),
            ShapeError,
            "batch_size must be an integer >= 1, got 0",
        ),
        (lambda: pad_sequence(5), TypeError, "pad_sequence takes a list, got int"),
        (
            lambda: pad_sequence([]),
            ShapeError,
            "pad_sequence takes one or more sequences (L, ...) that differ in L only, got []",
        ),
    ],
)
def test_what_makes_no_batches_is_named(
    make: Callable[[], Any], error: type[Exception], text: str
) -> None:
    refuses(error, text, make)


@pytest.mark.parametrize(
    ("parts", "error", "text"),
    [
        ([nn.Linear(1, 1)], TypeError, "parts is a dict of names to parts, got list"),
        ({"model": 5}, TypeError, "the part 'model' has a state_dict(), got int"),
        (
            {"model": nn.Linear},
            TypeError,
            "the part 'model' has a state_dict(), got the class Linear (write Linear(...))",
        ),
        *(
            (
                {name: nn.Linear(1, 1)},
                ValueError,
                f"a checkpoint has {name!r} of the loop itself: rename the part",
            )
            for name in ("losses", "held_out", "settings", "best", "elapsed", "random")
        ),
    ],
)
def test_what_is_no_part_of_a_loop_is_named(
    parts: Any, error: type[Exception], text: str, tmp_path: Path
) -> None:
    refuses(error, text, lambda: TrainingLoop(tmp_path / "run.safetensors", parts))


def test_a_loop_names_what_a_checkpoint_lacks(tmp_path: Path) -> None:
    path, model = tmp_path / "run.safetensors", nn.Linear(1, 1)
    loop = TrainingLoop(path, {"model": model, "sgd": optim.SGD(model.parameters())})
    loop.save()
    state = ta.load(path)
    with ta.no_grad():
        model.weight[...] = 7.0
    for name in ("model", "sgd", "losses", "held_out", "random"):
        some = {key: value for key, value in state.items() if key != name}
        text = f"a checkpoint of this loop has {[name]}, got {[*some]}"
        refuses(CheckpointError, text, partial(loop.restore, some))
        assert model.weight.tolist() == [[7]]
    for name in ("best", "elapsed", "settings"):  # which older checkpoints do not have
        loop.restore({key: value for key, value in state.items() if key != name})
        assert model.weight.tolist() != [[7]]
