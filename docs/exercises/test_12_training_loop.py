"""Grades exercise 12."""

import tempfile
from typing import Any

import numpy as np
from grading import close, exercise, expect, needs, run

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim

yours = exercise("ex_12_training_loop")
IGNORE = -100
Parts = list[tuple[ta.Tensor, ta.Tensor]]


class Watched(nn.Sequential):
    """Notes whether a call was made with dropout on, and whether a graph was recorded."""

    def __init__(self, dropout: float) -> None:
        super().__init__(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))
        self.modes: list[bool] = []
        self.recorded: list[bool] = []

    def forward(self, x: ta.Tensor) -> ta.Tensor:
        self.modes.append(self.training)
        out = super().forward(x)
        self.recorded.append(out.requires_grad)
        return out


class Counted(optim.SGD):
    calls = 0

    def step(self) -> None:
        super().step()
        self.calls += 1


def samples() -> Parts:
    """Parts with one target, none, and six targets."""
    rng, parts = np.random.default_rng(12), []
    for size, used in ((5, 1), (2, 0), (6, 6)):
        targets = rng.integers(0, 3, size)
        targets[used:] = IGNORE
        parts.append((ta.tensor(rng.standard_normal((size, 4))), ta.tensor(targets)))
    return parts


def constant(n: int) -> float:
    return 1.0


def falling(n: int) -> float:
    return 1 / (n + 1)


def new_run(
    dropout: float = 0.0, lr: float = 0.5, kind: Any = Counted, rate: Any = constant
) -> Any:
    ta.manual_seed(12)
    model = Watched(dropout).to(ta.float64)
    optimizer = kind(model.parameters(), lr)
    return model, optimizer, optim.LambdaLR(optimizer, rate)


def flat(tensors: Any) -> np.ndarray:
    return np.concatenate([x.numpy().ravel() for x in tensors])


def gradients(model: nn.Module) -> np.ndarray:
    """Of those parameters that have one."""
    return flat([ta.zeros(0), *(p.grad for p in model.parameters() if p.grad is not None)])


def whole(model: nn.Module, parts: Parts) -> ta.Tensor:
    inputs, targets = (ta.cat(list(column)) for column in zip(*parts, strict=True))
    return F.cross_entropy(model(inputs), targets, ignore_index=IGNORE)


def gradient_of(model: nn.Module, parts: Parts) -> np.ndarray:
    whole(model, parts).backward()
    gradient = flat(p.grad for p in model.parameters())
    model.zero_grad()
    return gradient


def mean_of_means(model: nn.Module, parts: Parts) -> float:
    used = [part for part in parts if (part[1] != IGNORE).any().item()]
    return float(np.mean([whole(model, [part]).item() for part in used]))


def test_gradient() -> None:
    """With SGD the way of the weights is the gradient."""
    model, optimizer, schedule = new_run()
    right, gradient = whole(model, samples()).item(), gradient_of(model, samples())
    last = gradient_of(model, samples()[-1:])
    of_parts = gradient_of(model, samples()[:1]) + last
    means, before = mean_of_means(model, samples()), flat(model.parameters())
    for parameter in model.parameters():
        parameter.grad = ta.ones_like(parameter)  # of a step before
    loss = run(yours.train_step, model, optimizer, schedule, samples(), 1e9)
    moved = (before - flat(model.parameters())) / 0.5
    expect(isinstance(loss, float), f"train_step returns the loss as a float, not {loss!r}")
    expect(np.isfinite(moved).all() and np.isfinite(loss), "a part without a target gives nan: a "
           "mean over no targets is nan, a sum is 0")  # fmt: skip
    expect(
        not close(np.linalg.norm(moved), 1e9, 1.0),
        "a gradient with a norm below max_norm is made longer: clipping only makes it shorter",
    )
    expect(moved.any(), "the weights do not move: where is optimizer.step()?")
    expect(
        optimizer.calls == 1,
        f"the optimizer makes {optimizer.calls} steps: it makes one, with the sum of the gradients",
    )
    expect(not close(moved, gradient + 1), "the gradients of the step before are still there")
    cosine = moved @ last / (np.linalg.norm(moved) * np.linalg.norm(last))
    expect(cosine < 1 - 1e-9, "the gradient of the last part alone moves the weights: zero_grad() "
           "comes before the first part, not between parts")  # fmt: skip
    expect(
        np.linalg.norm(moved) < 1.5 * np.linalg.norm(gradient),
        "the step is too long: divide the sums by the number of targets of all parts",
    )
    positions = "the sum is divided by 13 positions, of which 6 are no targets"
    expect(not close(moved * 13, gradient * 7), positions)
    cosine = moved @ of_parts / (np.linalg.norm(moved) * np.linalg.norm(of_parts))
    expect(
        cosine < 1 - 1e-9,
        "the gradient is not that of the mean over all targets: a part with one target counts as "
        "much as a part with six",
    )
    expect(
        close(moved, gradient), "the step is not along the gradient of the mean over all targets"
    )
    expect(not close(loss, means), "the loss is the mean of the parts' means")
    expect(not close(loss * 13, right * 7), positions)
    expect(close(loss, right), f"the loss before the step is {right:.4f}, not {loss}")


def test_clipping() -> None:
    model, optimizer, schedule = new_run()
    inputs, targets = samples()[-1]
    halves = [(inputs[:3], targets[:3]), (inputs[3:], targets[3:])]
    gradient = gradient_of(model, halves)
    before, most = flat(model.parameters()), 0.1 * float(np.linalg.norm(gradient))
    run(yours.train_step, model, optimizer, schedule, halves, most)
    moved = (before - flat(model.parameters())) / 0.5
    if optimizer.calls != 1:
        return  # `test_gradient` tells it
    norm = np.linalg.norm(moved)
    along = moved @ gradient / norm / np.linalg.norm(gradient) > 1 - 1e-9
    if not along:
        needs(test_gradient)
    expect(
        not close(moved, gradient),
        "the gradients are not clipped when the optimizer uses them: clip after the last backward, "
        "before optimizer.step()",
    )
    expect(
        along or norm < 1.01 * most or np.abs(moved).max() > 1.01 * most,
        "max_norm is for the norm of all gradients together, not for each number or each parameter",
    )
    expect(
        along or norm > 1.01 * most,
        "the clipped gradient has another direction: clip once, when the gradients of all parts "
        "are added",
    )
    expect(
        close(norm, most, 1e-5),
        f"the clipped gradient has a norm of {norm:.4f}, and max_norm is {most:.4f}: clip the "
        "gradient of the mean, with max_norm itself",
    )


def test_schedule() -> None:
    model, optimizer, schedule = new_run(rate=falling)
    before, gradient = flat(model.parameters()), gradient_of(model, samples())
    run(yours.train_step, model, optimizer, schedule, samples(), 1e9)
    count = schedule.step_count - 1
    expect(count == 1, f"a step of training is one step of the schedule, not {count}")
    expect(
        not close(flat(model.parameters()), before - 0.25 * gradient),
        "the first step has the rate of the second one: schedule.step() comes after "
        "optimizer.step()",
    )


def test_modes() -> None:
    for training in (True, False):
        model, optimizer, schedule = new_run(dropout=0.5)
        run(yours.train_step, model.train(training), optimizer, schedule, samples(), 1e9)
        expect(all(model.modes), "train_step after an evaluation trains without dropout")
        model.train(training).modes.clear()
        model.recorded.clear()
        before, gradient = flat(model.parameters()), gradients(model)
        run(yours.evaluate, model, samples())
        expect(model.modes, "evaluate does not call the model")
        expect(not any(model.modes), "evaluate leaves dropout on")
        expect(not any(model.recorded), "evaluate records a graph: use ta.no_grad()")
        mode = "training" if training else "evaluation"
        expect(model.training is training, f"evaluate does not leave the model in {mode} mode")
        expect(
            all(part.training is training for part in model.modules()),
            f"the model is in {mode} mode again, but its layers are not: use model.train(before)",
        )
        changed = not np.array_equal(before, flat(model.parameters()))
        changed |= not np.array_equal(gradient, gradients(model))
        expect(not changed, "evaluate changes weights or gradients")


def test_evaluation() -> None:
    model, *_ = new_run(dropout=0.5)
    found = run(yours.evaluate, model, samples())
    expect(isinstance(found, float), f"evaluate returns a float, not {found!r}")
    right = whole(model.eval(), samples()).item()
    expect(np.isfinite(found), "a part without a target makes the loss nan: add sums, and divide "
           "once by the number of all targets")  # fmt: skip
    expect(not close(found, mean_of_means(model, samples())), "the loss is a mean of means: a part "
           "with one target counts as much as a part with six")  # fmt: skip
    expect(not close(found * 13, right * 7), "the sum is divided by 13 positions, of which 6 are "
           "no targets")  # fmt: skip
    expect(close(found, right), f"the mean over all targets is {right:.4f}, not {found:.4f}")


def test_checkpoint() -> None:
    """A run that stops after three steps and goes on in new objects, from a file."""

    def steps(model: nn.Module, optimizer: Any, schedule: Any, number: int) -> None:
        for _ in range(number):
            optimizer.zero_grad()
            whole(model.train(), samples()).backward()
            optimizer.step()
            schedule.step()

    first = new_run(0.5, 0.01, optim.Adam, falling)
    steps(*first, 3)
    state = run(yours.checkpoint, *first)
    with tempfile.TemporaryDirectory() as folder:
        run(ta.save, state, f"{folder}/run.safetensors")
        state = ta.load(f"{folder}/run.safetensors")
    weights, draw = flat(first[0].parameters()), ta.get_rng_state()
    arrays = first[1].state_dict()["arrays"]
    count, rate = first[2].step_count, first[1].lr
    steps(*first, 3)

    second = new_run(0.5, 0.02, optim.Adam, falling)
    ta.manual_seed(13)
    for parameter in second[0].parameters():
        parameter.data = ta.zeros_like(parameter)
    run(yours.resume, state, *second)
    expect(np.array_equal(weights, flat(second[0].parameters())), "the weights do not come back")
    found = second[1].state_dict()["arrays"]
    expect(
        found.keys() == arrays.keys()
        and all(np.array_equal(found[name].numpy(), arrays[name].numpy()) for name in arrays),
        "Adam begins anew: its means of gradients and of squares belong to the checkpoint",
    )
    expect(second[2].step_count == count, "the schedule begins anew: its step belongs to the "
           "checkpoint")  # fmt: skip
    expect(second[1].lr == rate, f"the learning rate was {rate:.4f}, and is {second[1].lr:.4f}")
    expect(ta.get_rng_state() == draw, "dropout draws other numbers than in the run that does not "
           "stop: ta.get_rng_state() belongs to the checkpoint")  # fmt: skip
    steps(*second, 3)
    expect(
        np.array_equal(flat(first[0].parameters()), flat(second[0].parameters())),
        "everything comes back, but three steps later the weights differ",
    )
