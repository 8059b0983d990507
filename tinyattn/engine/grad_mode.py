"""The switch that says whether operations are recorded."""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, overload

import numpy as np

from ..base.backend import Function

# The switch for recording; each thread and each asyncio task has its own.
recording: ContextVar[bool] = ContextVar("recording", default=True)


class Recording:
    """A setting of the switch, in a with-block or for a decorated function."""

    previous: Any = None  # (setting before, previous), because one object may be entered twice

    def __init__(self, enabled: bool) -> None:
        if not isinstance(enabled, (bool, int, np.bool_)):
            raise TypeError(f"recording is switched by True or False, got {enabled!r}")
        self.enabled = bool(enabled)

    def __enter__(self) -> None:
        enabled = recording.get()
        try:
            recording.set(self.enabled)
        except BaseException:  # an interrupt right after it
            recording.set(enabled)
            raise
        self.previous = (enabled, self.previous)

    def __exit__(self, *_: object) -> None:
        enabled, self.previous = self.previous
        recording.set(enabled)

    def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """function(*args, **kwargs) with this setting.

        No with-block, because KeyboardInterrupt may come before the first line of `__exit__`. It
        never comes between a call and `finally`.
        """
        previous = recording.get()
        try:
            recording.set(self.enabled)
            return function(*args, **kwargs)
        finally:
            recording.set(previous)

    def __call__(self, function: Function) -> Function:
        if not callable(function) or isinstance(function, (type, staticmethod, property)):
            raise TypeError(
                f"no_grad and enable_grad decorate a function, got {function!r}: write them below "
                "@staticmethod, @classmethod and @property, and above a method, not a class"
            )
        is_plain = inspect.isroutine(function) or isinstance(function, functools.partial)
        body: Any = function if is_plain else type(function).__call__
        if inspect.isasyncgenfunction(body) or inspect.iscoroutinefunction(body):
            raise TypeError(f"{function!r} is asynchronous: write `with ta.no_grad():` inside it")
        if inspect.isgeneratorfunction(body):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                # Only while its body runs, because between two values the caller's code runs.
                values = function(*args, **kwargs)
                step, argument = values.send, None
                while True:
                    try:
                        value = self.run(step, argument)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        step, argument = values.send, (yield value)
                    except GeneratorExit:
                        self.run(values.close)
                        raise
                    except BaseException as error:
                        step, argument = values.throw, error

            return generator  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return self.run(function, *args, **kwargs)

        return wrapped  # type: ignore[return-value]


@overload
def no_grad() -> Recording: ...
@overload
def no_grad(function: Function) -> Function: ...
def no_grad(function: Function | None = None) -> Recording | Function:
    """Record nothing: `with ta.no_grad():`, or `@ta.no_grad()` above a function.

    The decorated function keeps its signature for type checkers. Brackets may be left out:
    `@ta.no_grad`. A generator runs under the setting too. TypeError for a class and for an
    asynchronous function, which has a with-block inside.
    """
    return Recording(False) if function is None else Recording(False)(function)


@overload
def enable_grad() -> Recording: ...
@overload
def enable_grad(function: Function) -> Function: ...
def enable_grad(function: Function | None = None) -> Recording | Function:
    """Record again inside a `no_grad` block: `with ta.enable_grad():`, or as a decorator."""
    return Recording(True) if function is None else Recording(True)(function)


class set_grad_enabled(Recording):
    """Switch recording on or off: from now on, in a with-block, or for a decorated function."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self.before = recording.get()
        recording.set(self.enabled)

    def __enter__(self) -> None:
        recording.set(self.before)  # the setting that __exit__ brings back
        super().__enter__()

    def __call__(self, function: Function) -> Function:
        recording.set(self.before)
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """True if operations are recorded now, in this thread."""
    return recording.get()
