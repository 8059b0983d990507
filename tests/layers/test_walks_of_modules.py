"""What a module finds inside itself: each thing once, with its name, in order; and how it looks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from common import needs_torch

import tinyattn as ta
from tinyattn import nn


def tree(library: Any, nn: Any) -> Any:
    """Parameters and buffers at each of three depths; some of all kinds have two names."""

    class Part(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.scale = nn.Parameter(library.ones(size))
            self.register_buffer("table", library.zeros(size))
            self.register_buffer("steps", library.zeros(size), persistent=False)
            self.nothing = None

    root = Part(1)
    root.first, root.second = Part(2), Part(3)
    root.first.inner = nn.ModuleList([Part(4), Part(5)])
    root.second.inner = root.first.inner[1]  # a module with two names
    root.shift = root.scale  # a parameter with two names in one module
    root.second.scale = root.first.scale  # and in two modules
    root.register_buffer("other", root.table)
    root.second.register_buffer("table", root.first.table)
    root.again = root.first
    return root


def by_hand(module: Any, kind: str, prefix: str, recurse: bool) -> list[tuple[str, Any]]:
    """Everything of a kind with all of its names, from the attributes themselves."""

    def walk(part: Any, name: str) -> Iterator[tuple[str, Any]]:
        own = vars(part).items()
        if kind == "modules":
            yield name, part
        for key, value in own:
            is_buffer = key in part._buffer_names and value is not None
            is_parameter = isinstance(value, nn.Parameter)
            if is_parameter if kind == "parameters" else is_buffer and kind == "buffers":
                yield f"{name}.{key}" if name else key, value
        for key, value in own if recurse else ():
            if isinstance(value, nn.Module):
                yield from walk(value, f"{name}.{key}" if name else key)

    seen: dict[int, tuple[str, Any]] = {}
    for name, found in walk(module, prefix):
        seen.setdefault(id(found), (name, found))
    return list(seen.values())


@pytest.mark.parametrize("kind", ["parameters", "buffers"])
@pytest.mark.parametrize("recurse", [True, False])
@pytest.mark.parametrize("prefix", ["", "model"])
def test_each_thing_comes_once_and_in_order(kind: str, recurse: bool, prefix: str) -> None:
    root = tree(ta, nn)
    for module in root.modules():
        right = by_hand(module, kind, prefix, recurse)
        found = list(getattr(module, f"named_{kind}")(prefix, recurse=recurse))
        assert [name for name, _ in found] == [name for name, _ in right]
        assert all(x is y for (_, x), (_, y) in zip(found, right, strict=True))
        alone = list(getattr(module, kind)(recurse=recurse))
        assert list(map(id, alone)) == [id(x) for _, x in right]
        if recurse:  # which is the default
            assert list(map(id, getattr(module, kind)())) == [id(x) for _, x in right]
            assert list(getattr(module, f"named_{kind}")(prefix)) == found


@pytest.mark.parametrize("prefix", ["", "model"])
def test_each_module_comes_once_and_in_order(prefix: str) -> None:
    root = tree(ta, nn)
    for module in root.modules():
        assert list(module.named_modules(prefix)) == by_hand(module, "modules", prefix, True)
        children = by_hand(module, "modules", "", True)[1:]
        assert list(module.named_children()) == [x for x in children if "." not in x[0]]
        assert list(module.children()) == [part for _, part in module.named_children()]
        assert list(module.modules()) == [part for _, part in module.named_modules()]


@needs_torch
@pytest.mark.parametrize("recurse", [True, False])
def test_the_names_are_those_of_pytorch(recurse: bool, torch: Any) -> None:
    ours, theirs = tree(ta, nn), tree(torch, torch.nn)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for kind in ("named_parameters", "named_buffers"):
        for prefix in ("", "model"):
            found, right = (
                [name for name, _ in getattr(root, kind)(prefix, recurse=recurse)]
                for root in (ours, theirs)
            )
            assert found == right
    for kind in ("named_modules", "named_children"):
        assert [x for x, _ in getattr(ours, kind)()] == [x for x, _ in getattr(theirs, kind)()]


def test_a_change_reaches_everything_and_each_thing_once() -> None:
    root = tree(ta, nn)
    visited: list[nn.Module] = []
    root.apply(visited.append)
    assert {id(part) for part in visited} == {id(part) for part in root.modules()}
    assert visited[-1] is root
    for mode in (False, True):
        root.train(mode)
        assert {part.training for part in root.modules()} == {mode}
        root.requires_grad_(mode)
        assert {p.requires_grad for p in root.parameters()} == {mode}
    root.to(ta.float64)
    assert {x.dtype for x in (*root.parameters(), *root.buffers())} == {np.dtype(np.float64)}
    for p in root.parameters():
        p.grad = ta.ones_like(p)
    root.zero_grad(set_to_none=False)
    assert {float(abs(p.grad).max()) for p in root.parameters()} == {0.0}
    root.zero_grad()
    assert {p.grad for p in root.parameters()} == {None}


# The repr


def test_a_module_with_two_names_is_shown_under_both() -> None:
    """The computation has it twice, as PyTorch shows it."""
    layer, model = nn.Linear(2, 2), nn.Module()
    model.encode = model.decode = layer
    line = "Linear(2, 2, bias=True)"
    assert repr(model) == f"Module(\n  (encode): {line}\n  (decode): {line}\n)"
    assert repr(nn.Sequential(layer, layer)) == f"Sequential(\n  (0-1): 2 x {line}\n)"
    assert repr(nn.Sequential(layer, nn.ReLU(), layer)) == (
        f"Sequential(\n  (0): {line}\n  (1): ReLU()\n  (2): {line}\n)"
    )


SHOWN: dict[str, tuple[Any, str]] = {
    "no part": (nn.ModuleList(), "ModuleList()"),
    "one": (nn.Sequential(nn.ReLU()), "Sequential(\n  (0): ReLU()\n)"),
    "equal ones": (nn.ModuleList([nn.ReLU()] * 3), "ModuleList(\n  (0-2): 3 x ReLU()\n)"),
    "equal ones apart": (
        nn.Sequential(nn.ReLU(), nn.ReLU(), nn.Tanh(), nn.ReLU()),
        "Sequential(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n  (3): ReLU()\n)",
    ),
    "equal ones with names": (
        nn.ModuleDict({"a": nn.ReLU(), "b": nn.ReLU()}),
        "ModuleDict(\n  (a): ReLU()\n  (b): ReLU()\n)",
    ),
    "other options": (
        nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.25)),
        "Sequential(\n  (0): Dropout(p=0.5)\n  (1): Dropout(p=0.25)\n)",
    ),
    "three depths": (
        nn.ModuleDict({"blocks": nn.ModuleList(nn.Sequential(nn.ReLU()) for _ in range(2))}),
        "ModuleDict(\n  (blocks): ModuleList(\n    (0-1): 2 x Sequential(\n      (0): ReLU()\n"
        "    )\n  )\n)",
    ),
    "text and parts": (
        nn.SublayerConnection(4, dropout=0.0, norm="post", norm_layer=nn.RMSNorm),
        "SublayerConnection(norm='post'\n"
        "  (norm): RMSNorm((4,), eps=None, elementwise_affine=True)\n"
        "  (dropout): Dropout(p=0.0)\n)",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_repr_shows_each_part_in_its_place(name: str) -> None:
    module, text = SHOWN[name]
    assert repr(module) == text


@pytest.mark.parametrize("name", ["_part", "__part", "_", "part_", "a1", "_0", "0", "Teil", "层"])
def test_a_part_is_found_whatever_its_name_is(name: str) -> None:
    for kind in ("parameters", "buffers", "modules"):
        root, last = nn.Module(), nn.Linear(1, 2)
        if kind == "parameters":
            setattr(root, name, nn.Parameter([1.0, 2.0]))
        elif kind == "buffers":
            root.register_buffer(name, ta.ones(2))
        else:
            setattr(root, name, nn.Linear(2, 2))
        root.last = last
        part = getattr(root, name)
        names = [f"{name}.{x}" for x in ("weight", "bias")] if kind == "modules" else [name]
        assert list(root.state_dict()) == [*names, "last.weight", "last.bias"]
        assert dict(getattr(root, f"_{kind}"))[name] is part
        assert dict(getattr(root, f"named_{kind}")())[name] is part
        if kind == "modules":
            assert list(root.named_children()) == [(name, part), ("last", last)]
            assert list(root.children()) == [part, last]
            assert repr(root).splitlines()[1] == f"  ({name}): {part!r}"
            assert not (root.eval() and part.training)
            visited: list[nn.Module] = []
            root.apply(visited.append)
            assert visited == [part, last, root]
        state = {key: x + 1 for key, x in root.state_dict().items()}
        root.load_state_dict(state)
        root.double()
        for key, x in root.state_dict().items():
            assert (x.dtype, x.tolist()) == (np.float64, state[key].tolist())
        delattr(root, name)
        assert list(root.state_dict()) == ["last.weight", "last.bias"]


@pytest.mark.parametrize("mode", [1, 0, np.bool_(True), "yes", None], ids=str)
def test_a_mode_is_true_or_false_in_each_part(mode: Any) -> None:
    root = tree(ta, nn)
    assert root.train(not mode) is root
    assert root.train(mode) is root
    assert all(part.training is bool(mode) for part in root.modules())
    assert root.train() is root
    assert all(part.training is True for part in root.modules())
    assert root.eval() is root
    assert all(part.training is False for part in root.modules())
