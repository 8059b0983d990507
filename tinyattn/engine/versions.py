"""Changes in place are noticed: each memory counts its changes, and `backward` compares counts.

Two kinds of writes are not always noticed. One comes through an object that shares the memory of a
Tensor and is no view of it: an array of another library, or a second Tensor that `from_numpy` made
of the array. The other comes from another thread while this one writes or reads: w * w may then see
two values of w, and its gradient is that of neither. So let threads that share a tensor wait for
each other.
"""

from __future__ import annotations

from threading import get_ident


class Version:
    """A count: how often the memory of a tensor has been changed in place.

    A gradient computed from a changed array would be wrong, and nobody would notice. So a node
    notes the counts of the arrays that it saves, and `backward` compares them. All views of a
    Tensor share its Version.

    A change counts when it begins and when it ends, because another thread may record a graph
    between. `writer` is the thread that changes the memory now, or 0. An interrupt may leave it
    as it is; it then refuses the graphs of other threads alone, until the next change.
    """

    changes = 0
    writer = 0

    def begin_change(self) -> None:
        self.writer = get_ident()
        self.changes += 1

    def end_change(self) -> None:
        self.changes += 1
        self.writer = 0


# A Version, and how many changes it had when it was noted.
NotedVersion = tuple[Version | None, int]
# Of memory that is never written to: results of recorded ops are read-only, numbers have none.
NO_VERSION: NotedVersion = (None, 0)
