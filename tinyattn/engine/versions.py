"""Changes in place are noticed: each memory counts its changes, and `backward` compares counts.

Not seen: a write that no Tensor knows of, by another library that shares the memory; and two
threads that write to one tensor at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import get_ident
from typing import Any

from ..errors import InPlaceError


class Version:
    """A count: how often the memory of a tensor has been changed in place.

    A gradient computed from a changed array would be wrong, and nobody would notice. So a node
    notes the counts of the arrays that it saves, and `backward` compares them. All views of one
    memory share one Version.

    A change counts when it begins and when it ends, because another thread may record a graph
    between. `writer` is the thread that changes the memory now, or 0. An interrupt may leave it
    as it is; it then refuses the graphs of other threads alone, until the next change.
    """

    __slots__ = ("changes", "writer")

    def __init__(self) -> None:
        self.changes = 0
        self.writer = 0

    def begin_change(self) -> None:
        self.writer = get_ident()
        self.changes += 1

    def end_change(self) -> None:
        self.changes += 1
        self.writer = 0


def check_versions(nodes: Iterable[Any]) -> None:
    """Raise InPlaceError if an array that the rules need has been changed since the forward."""
    this_thread = get_ident()
    for node in nodes:
        for version, changes in node.versions:
            if version is None:
                continue
            writer = version.writer  # read first: a change that ends now has counted already
            if writer not in (0, this_thread) or version.changes != changes:
                raise InPlaceError(
                    f"an array that {node.plan.name} needs for its gradient has been changed in "
                    "place since: call backward() before the change, or change a clone()"
                )
