"""A module as text: the tree that is its repr, and a table of its parts and their parameters.

module.py imports this file, so a module is `Any` here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from ..base.checks import check_size


def joined(names: list[str], text: str) -> tuple[str, str]:
    """The name and the text of a part, or of several equal ones: ("0-5", "6 x Linear")."""
    if len(names) == 1:
        return names[0], text
    return f"{names[0]}-{names[-1]}", f"{len(names)} x {text}"


def tree_of(head: str, parts: Mapping[str, Any]) -> str:
    """The repr of a module: its head, and its parts in lines of their own.

    Numbered parts that follow one another and have the same repr are shown once.
    """
    pairs = [(name, repr(part)) for name, part in parts.items()]
    lines = []
    for _, equal in groupby(pairs, lambda pair: pair[1] if pair[0].isdecimal() else pair):
        names, texts = zip(*equal, strict=True)
        name, text = joined(list(names), texts[0])
        lines.append(f"({name}): {text}".replace("\n", "\n  "))
    return head + ("\n  " + "\n  ".join(lines) + "\n)" if lines else ")")


class Part(NamedTuple):
    """A module in a summary."""

    kind: str
    tensors: tuple[str, ...]  # such as "weight (2, 3)"
    parameters: int  # of this part and its parts, without those that stand above it
    parts: tuple[tuple[str, Part], ...]


def part_of(module: Any, seen: set[int]) -> Part:
    """seen: the ids of the parameters that stand above, to which those of the module are added."""
    texts, number = [], 0
    for name, x in (module._parameters | module._buffers).items():
        note = " buffer" if name in module._buffers else "" if x.requires_grad else " frozen"
        if id(x) in seen:
            note = " shared"
        elif name in module._parameters:
            seen.add(id(x))
            number += x.numel()
        texts.append(f"{name} {tuple(x.shape)}{note}")
    parts = tuple((name, part_of(child, seen)) for name, child in module._modules.items())
    number += sum(part.parameters for _, part in parts)
    return Part(type(module).__name__, tuple(texts), number, parts)


def has_tensors(part: Part) -> bool:
    return bool(part.tensors) or any(has_tensors(other) for _, other in part.parts)


def rows_of(part: Part, level: int, depth: int) -> Iterator[tuple[int, str, str, str]]:
    """(level, name and kind, parameters, tensors) of the parts of a part that have tensors."""
    parts = [(name, other) for name, other in part.parts if has_tensors(other)]
    for _, equal in groupby(parts, lambda pair: pair[1] if pair[0].isdecimal() else pair):
        names, (other, *_) = zip(*equal, strict=True)
        name, kind = joined(list(names), other.kind)
        _, number = joined(list(names), f"{other.parameters:,}")
        yield level, f"{name}: {kind}", number, ", ".join(other.tensors)
        if level < depth:
            yield from rows_of(other, level + 1, depth)


class Summary:
    """What `Module.summary` returns: a table as text."""

    def __init__(self, module: Any, depth: int | None = None) -> None:
        depth = 10**6 if depth is None else check_size("depth", depth)
        whole = part_of(module, set())
        first = 0, whole.kind, f"{whole.parameters:,}", ", ".join(whole.tensors)
        self.rows = [first, *rows_of(whole, 1, depth)]
        parameters = list(module.parameters())
        trainable = sum(x.numel() for x in parameters if x.requires_grad)
        size = sum(x.numel() * x.dtype.itemsize for x in parameters) / 1024
        memory = f"{size:.1f} KiB" if size < 1024 else f"{size / 1024:.1f} MiB"
        self.last = f"{whole.parameters:,} parameters, {trainable:,} of them trainable; {memory}"

    def __repr__(self) -> str:
        names = ["part", *("  " * level + name for level, name, *_ in self.rows)]
        numbers = ["parameters", *(row[2] for row in self.rows)]
        tensors = ["tensors", *(row[3] for row in self.rows)]
        width, digits = max(map(len, names)), max(map(len, numbers))
        lines = [
            f"{name:{width}}  {number:>{digits}}  {text}".rstrip()
            for name, number, text in zip(names, numbers, tensors, strict=True)
        ]
        return "\n".join([*lines, self.last])
