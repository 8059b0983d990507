"""Devices as objects, random generators of one's own, and the functions that make tensors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from ..base import random
from ..base.backend import module_of
from ..base.checks import names_device
from ..tensors import create


class device(str):
    """A device: `torch.device("cuda")`, `torch.device("cuda", 0)`. DeviceError if there is none.

    Differs from PyTorch: it is a string too, "cpu" or "cuda", and the index does not count when two
    are compared.

    In tinyattn: devices are strings: "cpu" and "cuda"

        >>> d = device("cuda:0")
        >>> d.type, d.index, d == "cuda"
        ('cuda', 0, True)
    """

    type: str
    index: int | None  # type: ignore[assignment]  # a string has a method of this name

    def __new__(cls, type: Any, index: int | None = None) -> device:
        if isinstance(type, device):
            return type
        name, _, number = (f"cuda:{type}" if isinstance(type, int) else str(type)).partition(":")
        index = int(number) if number.isdecimal() else index
        if name not in ("cpu", "cuda") or index not in (0, None) or (number and index is None):
            module_of(f"{type}" if index is None else f"{name}:{index}")  # raises DeviceError
        made = super().__new__(cls, name)
        made.type, made.index = name, index
        return made

    def __repr__(self) -> str:
        return f"device(type={self.type!r}{'' if self.index is None else f', index={self.index}'})"


as_device = device  # because arguments have the name of the class


class Generator:
    """Random numbers apart from those of `torch.manual_seed`, for arguments `generator=`.

    In tinyattn: write ta.manual_seed, ta.get_rng_state and ta.set_rng_state
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device = as_device(device)
        self.numbers = np.random.Generator(np.random.PCG64())

    def manual_seed(self, seed: int) -> Generator:
        """Start anew from this seed. Returns self."""
        self.numbers = np.random.Generator(np.random.PCG64(seed))
        return self

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let tinyattn draw its random numbers from this generator inside a with-block."""
        token = random.of_block.set(self.numbers)
        try:
            yield
        finally:
            random.of_block.reset(token)


def adapted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with PyTorch's arguments: any way to write a device, generator=, and what only
    says how memory is laid out; also size=, where it takes sizes one after another."""
    parameters = inspect.signature(function).parameters.values()
    takes_sizes = any(p.kind is p.VAR_POSITIONAL for p in parameters)

    @functools.wraps(function)
    def call(
        *args: Any,
        generator: Generator | None = None,
        pin_memory: bool = False,  # all memory is the same to a GPU here
        memory_format: Any = None,
        **options: Any,
    ) -> Any:
        if options.get("device") is not None:
            options["device"] = device(options["device"])
        if takes_sizes and "size" in options:
            args += (options.pop("size"),)
        with nullcontext() if generator is None else generator.drawing():
            return function(*args, **options)

    return call


def target_of(target: Any) -> Any:
    """What tinyattn's `to` takes, from what PyTorch's takes."""
    is_device = names_device(target) or (isinstance(target, int) and not isinstance(target, bool))
    return device(target) if is_device else target


def adapted_to(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The method `to`, also with PyTorch's arguments non_blocking and copy."""

    @functools.wraps(plain)
    def to(self, *targets, non_blocking=False, copy=False, memory_format=None, **o):
        options = {name: target_of(target) for name, target in o.items()}
        result = plain(self, *map(target_of, targets), **options)
        return result.clone() if copy and result is self else result

    return to


NAMES = """arange as_tensor empty eye full full_like linspace ones ones_like rand rand_like randint
    randn randn_like randperm tensor zeros zeros_like"""
MAKERS = {name: adapted(getattr(create, name)) for name in NAMES.split()}
