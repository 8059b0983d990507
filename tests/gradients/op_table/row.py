"""What a row of the table holds, and the samples it is tried on."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from samples import Sample

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.engine.op import registry
from tinyattn.torch_names.methods import take_methods
from tinyattn.torch_names.nn import recurrent  # noqa: F401, because it declares an op

from .extremes import Extreme

take_methods()  # or the files that are collected next would see what the import gave

ops = SimpleNamespace(**registry)
Samples = Callable[[np.random.Generator, np.dtype], list[Sample]]


@dataclass(frozen=True)
class ErrorInput:
    """A call that must raise `exception` (or a subclass) with a message that `match` finds."""

    call: Callable[[], Any]
    exception: type[Exception]
    match: str


@dataclass(frozen=True, eq=False, repr=False)
class OpRow:
    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    torch: Callable[..., Any] | str
    samples: Samples
    errors: Sequence[ErrorInput]
    covers: tuple[str, ...] = ()
    spellings: dict[str, Callable[..., Any]] = field(default_factory=dict)
    reaches: tuple[str, ...] = ()
    differentiable: tuple[int, ...] | str = (0,)  # positions among the inputs, or "all"
    dtype: str = "same"  # of the result: that of the inputs, or a name
    special_torch: str = ""  # why NaN and inf may come out otherwise than in PyTorch
    elementwise: bool = False  # each element's error counts by itself, not beside the largest
    cancels: float = 1.0  # how many times larger than the gradient the terms are that make it up
    steps: int = 1  # operations one after another; their roundings add up as a random walk does
    extremes: Sequence[Extreme] = ()  # calls with numbers near the ends of float16 and float32
    keeps: str = ""  # what the graph holds for the derivative; see test_saved_arrays.py
    broadcasts: bool = False  # two inputs that broadcast: also tried on random pairs of shapes

    def __repr__(self) -> str:
        return f"the row {self.name!r}"

    def positions(self, sample: Sample) -> tuple[int, ...]:
        """The inputs of this sample that have derivatives."""
        if self.differentiable == "all":
            return tuple(range(len(sample.inputs)))
        return tuple(i for i in self.differentiable if i < len(sample.inputs))  # type: ignore

    def public_names(self) -> set[str]:
        """What the row names, with every other name of the same functions."""
        names = {*self.covers, *self.spellings, *(f"ops.{name}" for name in self.reaches)}
        functions = [public(name) for name in names if " " not in name]
        return set().union(*(names_of(function) for function in (self.function, *functions)))

    def writings(self) -> dict[str, Callable[..., Any]]:
        """Everything that must give bitwise what `function` gives, and is another function."""
        covered = {name: public(name) for name in self.covers}
        others = {name: value for name, value in covered.items() if value is not self.function}
        return {**others, **self.spellings}


SPACES = {"ta": ta, "F": F, "ops": ops, "Tensor": ta.Tensor}
NAMED = [
    (f"{space}.{name}", getattr(owner, name)) for space, owner in SPACES.items()
    for name in dir(owner)
]  # fmt: skip


def public(name: str) -> Callable[..., Any]:
    """The callable behind a name such as `F.softmax` or `Tensor.exp`."""
    space, _, attribute = name.partition(".")
    return getattr(SPACES[space], attribute)


def names_of(value: Any) -> set[str]:
    """All public names of one object: the op `exp` is ops.exp, Tensor.exp and ta.exp."""
    return {name for name, other in NAMED if other is value}


@cache
def samples_of(row: OpRow, dtype: str = "float64") -> list[Sample]:
    """The samples of a row: always the same ones, and read-only."""
    found = row.samples(np.random.default_rng(zlib.crc32(row.name.encode())), np.dtype(dtype))
    for sample in found:
        for array in sample.inputs:
            array.setflags(write=False)
    return found
