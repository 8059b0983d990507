"""What an attribute of a module becomes, whatever it was before; and what a module is not told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import GraphError


def with_old(kind: str) -> nn.Module:
    net = nn.Module()
    if kind == "buffer":
        net.register_buffer("part", ta.zeros(2))
    elif kind == "empty buffer":
        net.register_buffer("part", None)
    elif kind != "nothing":
        old = {"parameter": nn.Parameter([1.0]), "module": nn.Linear(1, 1), "tensor": ta.ones(3)}
        net.part = old.get(kind, 7)
    return net


OLD = ["nothing", "number", "tensor", "parameter", "module", "buffer", "empty buffer"]
NEW: dict[str, Callable[[], Any]] = {
    "parameter": lambda: nn.Parameter([5.0]), "frozen": lambda: nn.Parameter([5.0], False),
    "module": nn.ReLU, "tensor": lambda: ta.ones(1), "none": lambda: None, "zero": lambda: 0,
    "false": lambda: False, "list": list, "dict": dict, "text": str, "number": lambda: 2.5,
    "array": lambda: np.zeros(2), "class": lambda: nn.ReLU,
}  # fmt: skip


def found_in(net: nn.Module) -> tuple[list[str], ...]:
    kinds = net.named_parameters(), net.named_children(), net.named_buffers()
    return (*([name for name, _ in kind] for kind in kinds), list(net.state_dict()))


@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("old", OLD)
def test_an_attribute_becomes_what_it_is_given_or_stays(old: str, new: str) -> None:
    """A value of another kind is refused if something would be lost, an empty one too."""
    net, value = with_old(old), NEW[new]()
    before, is_buffer = dict(vars(net)), "buffer" in old
    is_part = isinstance(value, (nn.Parameter, nn.Module))
    takes_all = old in ("nothing", "number", "tensor")
    kind = type(value).__name__
    if is_part or value is None or takes_all or (is_buffer and new == "tensor"):
        net.part = value
        assert net.part is value
        name = ["part"]
        stays = is_buffer and new == "tensor"
        learned = name if isinstance(value, nn.Parameter) else []
        modules = name if isinstance(value, nn.Module) else []
        saved = name if learned or stays else []
        assert found_in(net) == (learned, modules, name if stays else [], saved)
        assert ("part" in net._buffer_names) == (is_buffer and not is_part)
        return
    message = {
        "parameter": f"'part' is a Parameter, got {kind}, which nobody would train: assign an "
        "nn.Parameter or None, or new values to part.data",
        "module": f"'part' is a module (Linear), got {kind}: assign a module or None",
    }.get(old, f"'part' is a buffer, got {kind}: assign a Tensor or None")
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        net.part = value
    assert vars(net) == before


@pytest.mark.parametrize("old", OLD[1:])
def test_a_name_is_free_after_its_attribute_is_deleted(old: str) -> None:
    for new, make in NEW.items():
        net, value = with_old(old), make()
        del net.part
        assert found_in(net) == ([], [], [], [])
        net.part = value
        learned = ["part"] if isinstance(value, nn.Parameter) else []
        modules = ["part"] if isinstance(value, nn.Module) else []
        assert found_in(net) == (learned, modules, [], learned), new
        with pytest.raises(AttributeError):
            del net.other


@pytest.mark.parametrize("kind", ["parameter", "module", "tensor", "buffer", "no buffer"])
def test_before_init_no_part_is_taken(kind: str) -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            if "buffer" in kind:
                self.register_buffer("part", ta.ones(1) if kind == "buffer" else None)
            else:
                self.part = NEW[kind]()
            super().__init__()

    if kind == "no buffer":
        assert found_in(Early()) == ([], [], [], [])
        return
    with pytest.raises(TypeError, match=r"^call super\(\).__init__\(\) before setting 'part'$"):
        Early()


CALLS = "named_children children named_modules modules parameters buffers state_dict eval double"


@pytest.mark.parametrize("call", CALLS.split())
@pytest.mark.parametrize("depth", [0, 1])
def test_each_call_notices_a_list_that_was_filled_later(call: str, depth: int) -> None:
    """Else what is in the list would not be moved, trained or saved, and nobody would be told."""
    outer = nn.Module()
    outer.inner = inner = nn.Module()
    owner = inner if depth else outer
    owner.parts = []
    if depth and call in ("named_children", "children"):  # those of `outer` alone
        outer = inner
    owner.parts.append(nn.ReLU())
    with pytest.raises(TypeError, match=r"parts.*ModuleList"):
        list(getattr(outer, call)() or ())


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("kind", ["tensor", "list", "dict", "tuple"])
def test_an_attribute_that_cannot_be_copied_is_named_with_its_path(kind: str, depth: int) -> None:
    computed = nn.Parameter([1.0]) * 2
    value = {"tensor": computed, "list": [1, computed], "dict": {"a": computed},
             "tuple": (computed,)}[kind]  # fmt: skip
    net = owner = nn.Sequential(nn.Linear(2, 2))
    for _ in range(depth):
        owner.below = nn.Linear(1, 1)
        owner = owner.below
    owner.seen, owner.other = value, [ta.ones(1)]
    path = "below." * depth + "seen"
    message = (
        f"Sequential is copied here, but its attribute {path} was computed and is part of a graph: "
        "keep its detach() instead, or None"
    )
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        nn.clones(net, 2)
