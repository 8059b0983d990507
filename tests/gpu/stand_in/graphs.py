"""Streams and CUDA graphs of the stand-in.

Everything runs at once, but on a device work of one stream may begin long after that of another. So
each memory notes its last use, and work of another stream that is not ordered behind it, by an
event or because the host waited, is an error.

While a stream captures, everything asked of the device is noted; launching the graph runs it, on
the same arrays and with the arguments it had. It is run while it is noted, too, for the shapes of
results, but then all arrays get back what was in them. What may not be captured on the device
fails: waiting for a value, CuPy's own matrix products, copies from the host's memory.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Clock = dict[int, int]  # of each stream, how many of its tasks are over


class OrderError(Exception):
    """Work of two streams on one memory, in no order."""


def join(clock: Clock, other: Clock) -> None:
    for stream, tasks in other.items():
        clock[stream] = max(tasks, clock.get(stream, 0))


class Memory:
    """What an array and its views share: where its last use stands in the work of a stream."""

    def __init__(self) -> None:
        self.stream, self.task = 0, 0


class State:
    """Whose turn it is: the current stream, the pool that memory comes from."""

    def __init__(self) -> None:
        self.stream: Any = None
        self.pool: list[Any] | None = None
        self.alive: Any = weakref.WeakValueDictionary()  # every array of the device, by id
        self.depth = 0  # of functions of the device that call each other
        self.finished: Clock = {}  # what the host has waited for
        self.tasks: list[str] | None = None  # names of what was asked of the device, if counted

    @property
    def recording(self) -> bool:
        return self.stream is not None and self.stream.notes is not None


state = State()


def note(action: Callable[[], Any]) -> None:
    """Add `action` to what a launch of the captured graph does."""
    if state.recording and state.depth == 0:
        state.stream.notes.append(action)


def refuse_while_recording(what: str) -> None:
    if state.recording:
        raise RuntimeError(f"{what}: operation not permitted when stream is capturing")


def arrays_in(value: Any) -> list[np.ndarray]:
    if isinstance(value, (list, tuple)):
        return [array for part in value for array in arrays_in(part)]
    found = getattr(value, "array", None)
    return [found] if isinstance(found, np.ndarray) else []


def memories_in(value: Any) -> list[Memory]:
    if isinstance(value, (list, tuple)):
        return [memory for part in value for memory in memories_in(part)]
    return [value.memory] if isinstance(getattr(value, "memory", None), Memory) else []


def use(memories: list[Memory], stream: Stream | None = None) -> None:
    """A task of a stream reads or writes these."""
    stream = stream or get_current_stream()
    if stream.notes is not None:  # a task of the graph
        stream.used += memories
        return
    join(stream.clock, state.finished)
    stream.clock[stream.ptr] = task = stream.clock.get(stream.ptr, 0) + 1
    for memory in memories:
        if memory.task > stream.clock.get(memory.stream, 0):
            raise OrderError("a stream uses memory that another one has not finished with")
        memory.stream, memory.task = stream.ptr, task


def recorded(function: Callable[..., Any]) -> Any:
    """A function of the device: noted while a stream captures."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        state.depth += 1
        try:
            result = function(*args, **kwargs)
        finally:
            state.depth -= 1
        if state.depth == 0:
            use(memories_in([*args, *kwargs.values(), result]))
        if state.depth == 0 and (state.recording or state.tasks is not None):
            given = arrays_in(list(args) + list(kwargs.values()))
            # A view of an argument changes with it.
            made = [r for r in arrays_in(result) if not any(np.shares_memory(r, g) for g in given)]

            def again() -> None:
                result = function(*args, **kwargs)  # named, because it must live until it is copied
                if made:
                    for old, new in zip(made, arrays_in(result), strict=True):
                        old[...] = new

            if made or not arrays_in(result) or function.__name__.startswith("in_place"):
                note(again)
                if state.tasks is not None and (not made or any(array.size for array in made)):
                    state.tasks.append(getattr(args[0], "name", function.__name__))
        return result

    return call


class Event:
    def __init__(self, clock: Clock) -> None:
        self.clock = dict(clock)

    def synchronize(self) -> None:
        join(state.finished, self.clock)


class Graph:
    def __init__(self, notes: list[Callable[[], Any]], used: list[Memory]) -> None:
        self.notes, self.used = notes, used
        self.launches = 0

    def launch(self, stream: Any = None) -> None:
        self.launches += 1
        use(self.used, stream)
        for action in self.notes:
            action()


class Stream:
    def __init__(self, *, non_blocking: bool = False) -> None:
        self.non_blocking = non_blocking
        self.notes: list[Callable[[], Any]] | None = None
        self.before: list[tuple[np.ndarray, np.ndarray]] = []
        self.ptr = id(self)
        self.clock: Clock = {}
        self.used: list[Memory] = []  # by what is being captured
        self.outer: list[Any] = []

    def __enter__(self) -> Stream:
        self.outer.append(state.stream)
        state.stream = self
        return self

    def __exit__(self, *_: object) -> None:
        state.stream = self.outer.pop()

    def record(self) -> Event:
        return Event(self.clock)

    def wait_event(self, event: Event) -> None:
        join(self.clock, event.clock)

    def synchronize(self) -> None:
        if self.notes is not None:
            raise RuntimeError("synchronize: operation not permitted when stream is capturing")
        join(state.finished, self.clock)

    def begin_capture(self) -> None:
        assert self.non_blocking
        self.notes, self.used = [], []
        self.before = [(array, array.copy()) for array in list(state.alive.values())]

    def end_capture(self) -> Graph:
        notes, self.notes = self.notes, None
        assert notes is not None
        for array, content in self.before:
            if array.flags.writeable:
                array[...] = content
        self.before = []
        return Graph(notes, self.used)


class MemoryPool:
    """Keeps what was made from it, as a pool of the device keeps its memory."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def malloc(self, size: int) -> None: ...


@contextmanager
def using_allocator(malloc: Any) -> Iterator[None]:
    before, state.pool = state.pool, malloc.__self__.held
    try:
        yield
    finally:
        state.pool = before


default_stream = Stream()


def get_current_stream() -> Stream:
    return state.stream or default_stream
