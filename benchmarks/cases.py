"""A case is one computation. It is written once, and every library of `libraries.py` runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

BOTH = ("torch", "tinyattn")
# "torch plain" writes attention as separate products; the report takes the faster of the two.
FASTER = ("torch", "torch plain", "tinyattn")
# The peers that compile a whole model or step, at the first call.
COMPILED = ("torch.compile", "jax")
ALONE, BUSY = "alone", "beside a loop"  # the parts of a case on a machine with one busy core


@dataclass
class Run:
    """A case with its arrays, which can be timed.

    phases  by the name of the part they measure; each gets the result of the phase before it
    reset   is called between repetitions, outside the measured time
    check   gives numbers that must be equal for all libraries; None where chance decides
    per     how many operations one repetition holds; times are divided by it
    memory  gives bytes of a GPU's memory; without it the process's own memory is measured
    clock   what tells the time
    """

    phases: dict[str, Callable[[Any], Any]]
    reset: Callable[[], None] = lambda: None
    check: Callable[[], list[float]] | None = None
    per: int = 1
    memory: Callable[[], int] | None = None
    clock: Callable[[], float] = perf_counter


@dataclass(frozen=True)
class Case:
    """build(library) makes the Run; limit() makes the Run of the least work that NumPy must do.

    parts    the names of the Run's phases, perhaps "together"; with `memory` also "peak memory"
    process  cases with the same process name are measured one after the other in one process
    """

    section: str
    name: str
    detail: str
    build: Callable[[Any], Run]
    limit: Callable[[], Run] | None = None
    parts: tuple[str, ...] = ("forward", "backward")
    sides: tuple[str, ...] = BOTH
    process: str = ""
    memory: bool = False
    rows: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        parts = (*self.parts, "peak memory") if self.memory else self.parts
        object.__setattr__(self, "rows", tuple(f"{self.name} {part}".strip() for part in parts))


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def digest(tensors: Sequence[Any]) -> list[float]:
    """Two numbers for each tensor; a wrong value or a wrong position changes them."""
    numbers = []
    for tensor in tensors:
        values = np.asarray(tensor.detach().cpu().numpy(), np.float64).reshape(-1)
        numbers += [float(values @ np.cos(np.arange(values.size))), float(np.linalg.norm(values))]
    return numbers


def forward_backward(
    lib: Any, forward: Callable[[], Any], leaves: list[Any], deterministic: bool = True
) -> Run:
    """The two phases of a function: its value, and the gradients of its leaves."""
    gradient = lib.tensor(random(*forward().shape, seed=1))

    def reset() -> None:
        for leaf in leaves:
            leaf.grad = None

    def check() -> list[float]:
        out = forward()
        out.backward(gradient)
        numbers = digest([out, *[leaf.grad for leaf in leaves if leaf.grad is not None]])
        reset()
        return numbers

    return Run(
        {"forward": lambda _: forward(), "backward": lambda out: out.backward(gradient)},
        reset,
        check if deterministic else None,
    )


def lengths_of(batch: int, full: int) -> np.ndarray:
    """Lengths between half and full; the longest is full."""
    lengths = np.random.default_rng(3).integers(full // 2, full + 1, batch)
    lengths[0] = full
    return lengths
