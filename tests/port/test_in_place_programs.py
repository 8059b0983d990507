"""Random programs that change tensors in place, here and in PyTorch.

Each makes tensors, views, slices, rows and detached copies, changes some of them with and without
recording, and runs backward. After each step all tensors must hold PyTorch's values. A step may be
refused here, with a sentence; then it changes nothing, and PyTorch does not make it either.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import torch_names
from tinyattn.errors import GraphError, InPlaceError

torch = pytest.importorskip("torch")
SHAPES = [(3,), (2, 3), (3, 2), (2, 2, 3), (1, 3), (2, 1)]
Pair = tuple[Any, Any]

VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x.view(-1),
    lambda x: x.reshape(-1),
    lambda x: x.T if x.ndim == 2 else x[None],
    lambda x: x.transpose(0, -1),
    lambda x: x[0],
    lambda x: x[-1:],
    lambda x: x[..., 1:],
    lambda x: x[..., 0],
    lambda x: x.unsqueeze(0),
    lambda x: x.flatten(),
    lambda x: x.squeeze(),
    lambda x: x[...],
    lambda x: x.expand(2, *x.shape),
    lambda x: x.permute(*reversed(range(x.ndim))),
    lambda x: x.unbind(0)[0],
    lambda x: x.split(1)[-1],
    lambda x: x.detach(),
    lambda x: x.data,
    lambda x: [*x][-1],
]
COPIES: list[Callable[[Any], Any]] = [
    lambda x: x * 2.0,
    lambda x: x.sin(),
    lambda x: x.clone(),
    lambda x: x.flip(0),
    lambda x: x.sum(0),
    lambda x: x + x,
    lambda x: x * x,
    lambda x: x.repeat(1, *([1] * (x.ndim - 1))),
]


def add_to(x: Any, y: Any) -> None:
    x += y


def multiply_by(x: Any, y: Any) -> None:
    x *= y


def add_to_first(x: Any, y: Any) -> None:
    x[0] += y


def add_to_data(x: Any, y: Any) -> None:
    x.data -= y


def add_to_rows(x: Any, y: Any) -> None:
    for row in x:
        row += y


def write_by(index: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
    def write(x: Any, y: Any) -> None:
        x[index(x)] = y

    return write


CHANGES: list[Callable[[Any, Any], Any]] = [
    add_to,
    add_to,
    multiply_by,
    add_to_first,
    add_to_data,
    add_to_rows,
    lambda x, y: x.fill_(0.5),
    lambda x, y: x.zero_(),
    lambda x, y: x.mul_(y),
    lambda x, y: x.add_(y),
    lambda x, y: x[0].mul_(y),
    lambda x, y: x.copy_(x * 2.0),
    lambda x, y: x.data.add_(y),
    lambda x, y: x.masked_fill_(x > 0, 2.0),
    write_by(lambda x: 0),
    write_by(lambda x: ...),
    write_by(lambda x: slice(1, None)),
    write_by(lambda x: (..., 0)),
    write_by(lambda x: x > 0),
    write_by(lambda x: [0]),
]


class Program:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pairs: list[Pair] = []
        self.leaves: list[Pair] = []
        self.changes = self.refused = 0
        self.create()

    def create(self) -> None:
        values = np.array([self.rng.choice([-2.0, -1.0, 0.5, 1.0, 3.0]) for _ in range(24)])
        shape = self.rng.choice(SHAPES)
        values = values[: int(np.prod(shape))].reshape(shape)
        learns = self.rng.random() < 0.5
        pair = (
            ta.tensor(values, requires_grad=learns),
            torch.tensor(values, requires_grad=learns),
        )
        self.leaves += [pair] * learns
        self.keep(pair)

    def keep(self, pair: Pair) -> None:
        self.pairs.append(pair)
        if len(self.pairs) > 7:
            self.pairs.pop(self.rng.randrange(6))

    def pick(self) -> Pair:
        return self.pairs[-1] if self.rng.random() < 0.4 else self.rng.choice(self.pairs)

    def derive(self) -> None:
        x, t = self.pick()
        function = self.rng.choice(VIEWS if self.rng.random() < 0.7 else COPIES)
        records = self.rng.random() < 0.85
        with ta.set_grad_enabled(records), torch.set_grad_enabled(records):
            try:
                theirs = function(t)
            except (RuntimeError, IndexError, TypeError):
                return
            try:
                ours = function(x)
            except (ta.errors.ShapeError, IndexError, TypeError):  # of a view that PyTorch can take
                return
        if theirs.numel() <= 48:
            self.keep((ours, theirs))

    def change(self) -> bool:
        """Whether PyTorch did it too."""
        x, t = self.pick()
        y, u = self.pick() if self.rng.random() < 0.6 else (2.0, 2.0)
        try:
            if not isinstance(y, float) and y.ndim:
                y, u = y.sum() * 0.25, u.sum() * 0.25
        except RuntimeError:  # PyTorch does not look at a view of a changed memory
            return False
        function = self.rng.choice(CHANGES)
        records = self.rng.random() < 0.6
        with ta.set_grad_enabled(records), torch.set_grad_enabled(records):
            try:
                function(x, y)
            except (InPlaceError, GraphError, IndexError, TypeError, ta.errors.ShapeError):
                self.refused += 1
                return function is not add_to_rows  # which may have changed some rows
            try:
                function(t, u)
            except (RuntimeError, IndexError, TypeError):
                return False
        self.changes += 1
        return True

    def same(self) -> None:
        for x, t in self.pairs:
            np.testing.assert_allclose(x.numpy(), t.detach().numpy(), 1e-12, 1e-12)

    def backward(self) -> bool:
        total, theirs = 0.0, 0.0
        try:
            for x, t in self.pairs:
                if x.requires_grad and t.requires_grad:
                    sign = np.array([self.rng.choice([-1.5, 1.5]) for _ in range(x.numel())])
                    sign = sign.reshape(x.shape)
                    theirs = theirs + (t * torch.tensor(sign)).sum()
                    total = total + (x * ta.tensor(sign)).sum()
            if isinstance(total, float):
                return False
            theirs.backward()
        except RuntimeError:  # one of a changed memory, or of several views of one
            return False
        try:
            total.backward()
        except InPlaceError:
            return False
        for x, t in self.leaves:
            grad = np.zeros(x.shape) if x.grad is None else x.grad.numpy()
            expected = np.zeros(x.shape) if t.grad is None else t.grad.numpy()
            np.testing.assert_allclose(grad, expected, 1e-10, 1e-10)
        return True


def run(seed: int, steps: int = 12) -> Program:
    program = Program(seed)
    for _ in range(steps):
        choice = program.rng.random()
        if choice < 0.15:
            program.create()
        elif choice < 0.55:
            program.derive()
        elif not program.change():
            return program
        program.same()
    program.compared = program.backward()  # type: ignore[attr-defined]
    return program


@pytest.mark.parametrize("seed", [7382, 7461])
def test_flatten_of_one_dimension_is_the_tensor_itself(seed: int) -> None:
    """Without recording too, as in these two programs: what is computed from it later learns."""
    run(seed, steps=14)
    for space in (ta, torch):
        x = space.ones(3, requires_grad=True)
        with space.no_grad():
            y, z = x.flatten(), (x * 2).reshape(3, 1).flatten(1)
        (y * 2.0).sum().backward()
        assert (y is x, z.shape, x.grad.tolist()) == (True, (3, 1), [2.0, 2.0, 2.0])


def test_a_recorded_change_of_a_detached_tensor_reaches_its_views_or_is_refused() -> None:
    """Its views, or the tensor that it is a view of, had the values and lost the gradient."""

    def grad(space: Any, change: Callable[[Any, Any, Any], Any]) -> Any:
        x, y = space.tensor([1.0, 2.0, 3.0]), space.tensor(5.0, requires_grad=True)
        detached = x.detach()
        view = detached[:2]
        change(detached, view, y)
        (detached.sum() + view.sum() * -3.0 + y).backward()
        return y.grad.item(), x.tolist()

    for change in (
        lambda d, view, y: d[0].mul_(y),
        lambda d, view, y: view.mul_(y),
        lambda d, view, y: d.mul_(y),
        lambda d, view, y: view.__setitem__(0, y),
    ):
        assert grad(torch, change)[0] != 1.0
        with pytest.raises(InPlaceError, match="shows this memory and cannot follow"):
            grad(ta, change)
    for change in (lambda d, view, y: None, lambda d, view, y: view.mul_(y.detach())):
        assert grad(ta, change) == grad(torch, change)


def test_a_recorded_change_of_a_detached_tensor_reaches_what_was_detached_of_it() -> None:
    """As a state of which a program keeps copies by detach(): they need no gradient."""
    found = []
    for space in (torch, ta):
        x, y = space.tensor([1.0, 2.0, 3.0]), space.tensor(5.0, requires_grad=True)
        state = x.detach()
        kept, part = state.detach(), state[1:].detach()
        state.mul_(y)
        (state.sum() + kept.sum() * y + part.sum()).backward()
        found.append((kept.tolist(), part.tolist(), x.tolist(), y.grad.item()))
        assert (kept.requires_grad, part.requires_grad) == (False, False)
        kept.add_(1)  # in the memory that all show
        found[-1] += (state.tolist(), part.tolist(), x.tolist())
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded")  # of PyTorch
@pytest.mark.parametrize("part", range(4))
def test_programs_in_place_are_those_of_pytorch(part: int) -> None:
    assert torch_names.tensor is not None
    changes = compared = 0
    for seed in range(500 * part, 500 * (part + 1)):
        try:
            program = run(seed)
        except AssertionError as error:
            raise AssertionError(f"program {seed}: {error}") from None
        changes += program.changes
        compared += getattr(program, "compared", False)
    assert changes > 1000
    assert compared > 100
