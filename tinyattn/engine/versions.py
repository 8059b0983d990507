"""Changes in place are noticed: each memory counts its changes, and `backward` compares counts.

Two kinds of writes are not always noticed. One comes through an object that shares the memory of a
Tensor and is no view of it: an array of another library, or a second Tensor that `from_numpy` made
of the array. The other comes from another thread while this one writes or reads: w * w may then see
two values of w, and its gradient is that of neither. So let threads that share a tensor wait for
each other.
"""

from __future__ import annotations

from operator import is_
from threading import get_ident
from typing import Any
from weakref import getweakrefs, ref

from ..base.backend import namespace, owner_of
from ..errors import InPlaceError


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


# Views


UNREACHED = "another tensor shows this memory and cannot follow: write y = y + x, or y = y.clone()"


class View(ref):
    """How a Tensor shows memory of another: `call` made it of the Tensor `viewed`.

    It is a weak reference to the array that owns the memory, because Python lists all of these. So
    the Tensors that show one memory are found from any of them. The view holds it.

    call      the function, or None if it cannot be called again; the arguments behind `viewed`; the
              options
    viewed    a weak reference, as `tensor`, the view, is
    before    the View of `viewed`, or None
    """

    __slots__ = ("before", "call", "tensor", "viewed")


def note_view(tensor: Any, viewed: Any, *call: Any) -> None:
    """Note that this call made `tensor` of `viewed`."""
    view: Any = View(owner_of(tensor._data))
    view.tensor, view.viewed, view.before, view.call = ref(tensor), ref(viewed), viewed._view, call
    tensor._view = view


def sharing(tensor: Any) -> dict[Any, tuple[Any, ...]]:
    """The Tensors that show elements of this one, itself included, each before its views.

    Each with how it was made: a reference to the first one, and Views from there on. Two columns of
    one matrix count as if they shared elements, because memory is compared by its bounds.
    """
    array, members = tensor._data, {}
    views: list[Any] = [x for x in getweakrefs(owner_of(array)) if isinstance(x, View)]
    pairs = [(view.tensor, view) for view in views] + [(x.viewed, x.before) for x in views]
    for reference, view in [(ref(tensor), tensor._view), *pairs]:
        other = reference()
        if other is not None and namespace(array).may_share_memory(other._data, array):
            members[other] = made_by(reference, view)
    return dict(sorted(members.items(), key=lambda member: len(member[1])))


def made_by(reference: Any, view: Any) -> tuple[Any, ...]:
    views = []
    while view is not None:
        views.append(view)
        reference, view = view.viewed, view.before
    return (reference, *reversed(views))


def views_between(first: tuple[Any, ...], last: tuple[Any, ...]) -> tuple[Any, ...]:
    """The Views that lead from one Tensor to another; InPlaceError if none can."""
    rest = last[len(first) :]
    if not all(map(is_, first, last)) or not all(view.call[0] for view in rest):
        raise InPlaceError(UNREACHED)
    return rest


def remade(tensor: Any, views: tuple[Any, ...]) -> Any:
    """The view of `tensor` that the same calls make."""
    for view in views:
        function, args, options = view.call
        tensor = function(tensor, *args, **options)
    return tensor
