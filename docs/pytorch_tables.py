"""The tables of from_pytorch.md: what tinyattn lacks, and what differs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import tinyattn as ta
from tinyattn import hints, nn, optim
from tinyattn import torch_names as torch
from tinyattn.base.names import OF_TORCH_NAMES
from tinyattn.torch_names import methods, scan

SPACES: dict[str, Any] = {"Tensor": ta.Tensor, "ta": ta, "nn": nn, "Module": nn.Module}
SPACES |= {"F": ta.functional, "nn.init": nn.init, "optim": optim}
SPACES |= {name: attrgetter(name)(torch) for name in OF_TORCH_NAMES}
OTHERS = {"batches": ta.batches, "distributed": ta.distributed}
HERE = {"ta": torch, "nn": torch.nn, "F": torch.nn.functional, "optim": torch.optim}
# A docstring that many names have stands beside this one of them.
FIRST = ("Tensor.add_", "ta.LongTensor")


@contextmanager
def tinyattn_alone() -> Iterator[None]:
    """Tensor and Module without the methods of torch_names, inside a with-block."""
    methods.take_methods()
    yield
    methods.give_methods()


def missing() -> dict[str, str]:
    """PyTorch's names that tinyattn lacks, with what to write instead, or ""."""
    with tinyattn_alone():
        keys = [key.rpartition(".")[::2] for key in sorted(hints.absent() | hints.added())]
        return {
            f"{owner}.{name}": hints.instead(owner, name, dir(SPACES[owner]))
            for owner, name in keys
            if not hasattr(SPACES[owner], name)
        }


def differences() -> dict[str, str]:
    """How the names that PyTorch has too differ, from their docstrings."""
    spaces = SPACES | OTHERS
    with tinyattn_alone():
        parts = [(f"{o}.{n}", getattr(spaces[o], n)) for o in spaces for n in dir(spaces[o])]
    parts += [(f"Tensor.{name}", part) for name, part in methods.GIVEN[ta.Tensor].items()]
    parts += [(f"{o}.{name}", part) for o in HERE for name, part in vars(HERE[o]).items()]
    found: dict[str, tuple[str, str]] = {}
    for name, part in sorted(parts, key=lambda pair: (pair[0] not in FIRST, ".__" in pair[0])):
        if (text := scan.difference(part)) and name != "Tensor.tensor_class":  # which is ta.Tensor
            found.setdefault(part.__doc__, (name, text.removesuffix(".")))
    return dict(sorted(found.values()))
