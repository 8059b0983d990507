"""Exercise 12: a training step in parts, an evaluation, and a checkpoint.

Write the four functions, then `pytest docs/exercises/test_12_training_loop.py` says what is wrong.
About 30 minutes. The page is docs/course/12_training_loop.md, with three hints at its end.

A part is a tuple (inputs, targets). `model(inputs)` gives scores (N, C), targets are (N,) integers,
and a target of IGNORE does not count.
"""

from typing import Any

import tinyattn as ta
from tinyattn import functional as F  # noqa: F401
from tinyattn import nn, optim

IGNORE = -100


def train_step(
    model: nn.Module,
    optimizer: optim.Optimizer,
    schedule: optim.Schedule,
    parts: list[tuple[ta.Tensor, ta.Tensor]],
    max_norm: float,
) -> float:
    """One step with a batch that comes in parts, as if it came in one: dropout is on, the gradient
    is that of the mean over all targets of all parts. If its norm, that of all parameters together,
    is larger than max_norm, the gradient is made shorter, so that its norm is max_norm.

    Returns the loss before the step. A part may have no target at all.
    """
    raise NotImplementedError


def evaluate(model: nn.Module, parts: list[tuple[ta.Tensor, ta.Tensor]]) -> float:
    """The mean cross-entropy over all targets of all parts, without dropout and without a graph.

    Afterwards the model is in the mode, training or not, in which it was before.
    """
    raise NotImplementedError


def checkpoint(
    model: nn.Module, optimizer: optim.Optimizer, schedule: optim.Schedule
) -> dict[str, Any]:
    """Everything that a run needs to go on bitwise as if it had not stopped; `ta.save` takes it."""
    raise NotImplementedError


def resume(
    state: dict[str, Any],
    model: nn.Module,
    optimizer: optim.Optimizer,
    schedule: optim.Schedule,
) -> None:
    """Give a new model, optimizer and schedule the state of a checkpoint."""
    raise NotImplementedError
