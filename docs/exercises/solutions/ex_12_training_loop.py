"""A solution of exercise 12."""

from typing import Any

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim

IGNORE = -100


def train_step(
    model: nn.Module,
    optimizer: optim.Optimizer,
    schedule: optim.Schedule,
    parts: list[tuple[ta.Tensor, ta.Tensor]],
    max_norm: float,
) -> float:
    model.train()
    total = sum(count(targets) for _, targets in parts)
    loss = 0.0
    optimizer.zero_grad()
    for inputs, targets in parts:
        part = F.cross_entropy(model(inputs), targets, ignore_index=IGNORE, reduction="sum") / total
        part.backward()
        loss += part.item()
    optim.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    schedule.step()
    return loss


def evaluate(model: nn.Module, parts: list[tuple[ta.Tensor, ta.Tensor]]) -> float:
    before = model.training
    model.eval()
    loss, total = 0.0, 0
    with ta.no_grad():
        for inputs, targets in parts:
            scores = model(inputs)
            loss += F.cross_entropy(scores, targets, ignore_index=IGNORE, reduction="sum").item()
            total += count(targets)
    model.train(before)
    return loss / total


def count(targets: ta.Tensor) -> int:
    return int((targets != IGNORE).sum().item())


def checkpoint(
    model: nn.Module, optimizer: optim.Optimizer, schedule: optim.Schedule
) -> dict[str, Any]:
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "random": ta.get_rng_state(),
    }


def resume(
    state: dict[str, Any],
    model: nn.Module,
    optimizer: optim.Optimizer,
    schedule: optim.Schedule,
) -> None:
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    ta.set_rng_state(state["random"])
