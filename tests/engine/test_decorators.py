"""`no_grad`, `enable_grad`, `set_grad_enabled` and `op` above every kind of function."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import is_grad_enabled as recorded

SWITCHES: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "no_grad()": (lambda function: ta.no_grad()(function), False),
    "no_grad": (ta.no_grad, False),
    "enable_grad()": (lambda function: ta.enable_grad()(function), True),
    "enable_grad": (ta.enable_grad, True),
    "set_grad_enabled": (lambda function: ta.set_grad_enabled(False)(function), False),
}
switches = pytest.mark.parametrize("name", SWITCHES)


class Called:
    def __call__(self, x: int = 1) -> tuple[int, bool]:
        return x, recorded()


class Yields:
    def __call__(self, x: int = 1) -> Iterator[tuple[int, bool]]:
        yield x, recorded()


def plain(x: int = 1) -> tuple[int, bool]:
    return x, recorded()


def recursive(x: int = 1) -> tuple[int, bool]:
    return (x, recursive(x - 1)[1]) if x > 1 else (x, recorded())


async def awaited(x: int = 1) -> tuple[int, bool]:
    await asyncio.sleep(0)
    return x, recorded()


def yielded(x: int = 1) -> Iterator[tuple[int, bool]]:
    yield x, recorded()


def methods(switch: Callable[[Any], Any]) -> list[Callable[..., Any]]:
    class Owner:
        @switch
        def method(self, x: int = 1) -> Any:
            return x, recorded()

        @staticmethod
        @switch
        def static(x: int = 1) -> Any:
            return x, recorded()

        @classmethod
        @switch
        def of_class(cls, x: int = 1) -> Any:
            return x, recorded()

        @property
        @switch
        def attribute(self) -> Any:
            return 1, recorded()

        @functools.cached_property
        @switch
        def cached(self) -> Any:
            return 1, recorded()

        @switch
        def __getitem__(self, x: int) -> Any:
            return x, recorded()

    owner = Owner()
    return [owner.method, Owner.static, Owner.of_class, lambda x=1: owner[x],
            lambda x=1: (x, owner.attribute[1]), lambda x=1: (x, owner.cached[1])]  # fmt: skip


def result_of(value: Any) -> Any:
    return next(value) if inspect.isgenerator(value) else value


@switches
def test_every_kind_of_function_runs_under_the_switch(name: str) -> None:
    switch, expected = SWITCHES[name]
    kinds: list[Any] = [plain, recursive, yielded, Called(), Yields()]
    kinds += [lambda x=1: (x, recorded()), functools.partial(plain), functools.partial(yielded)]
    kinds += [Called().__call__]
    for function in [*map(switch, kinds), *methods(switch)]:
        for outer in (True, False):
            with ta.set_grad_enabled(outer):
                assert result_of(function()) == (1, expected)
                assert result_of(function(x=3)) == (3, expected)
                assert recorded() is outer


@switches
def test_the_decorated_function_looks_like_it(name: str) -> None:
    switch, _ = SWITCHES[name]
    for function in (plain, yielded):
        decorated = switch(function)
        assert decorated.__name__ == function.__name__
        assert inspect.signature(decorated) == inspect.signature(function)
        assert inspect.isgeneratorfunction(decorated) == inspect.isgeneratorfunction(function)


@switches
def test_what_is_no_function_is_refused(name: str) -> None:
    switch, _ = SWITCHES[name]

    async def values() -> AsyncIterator[int]:
        yield 1

    wrong = [Called, staticmethod(plain), classmethod(plain), property(plain), 5, "text"]
    for function in (*wrong, ta.ones(2)):
        with pytest.raises(TypeError, match="no_grad and enable_grad decorate a function, got"):
            switch(function)
    for function in (values, awaited, functools.partial(awaited)):
        with pytest.raises(
            TypeError, match=r"is asynchronous: write `with ta\.no_grad\(\):` inside"
        ):
            switch(function)
    assert recorded()


@pytest.mark.parametrize("wrong", ["no", None, 0.5, plain, [], np.ones(1)])
def test_a_switch_is_true_or_false(wrong: Any) -> None:
    with pytest.raises(TypeError, match="recording is switched by True or False, got"):
        ta.set_grad_enabled(wrong)
    assert recorded()
    with ta.set_grad_enabled(np.bool_(False)):
        assert not recorded()
    assert recorded()


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit])
def test_what_ends_a_program_reaches_the_body_of_a_generator(kind: type[BaseException]) -> None:
    caught: list[Any] = []

    @ta.no_grad()
    def waiting() -> Any:
        try:
            yield 1
        except BaseException as error:
            caught.append((error, recorded()))
            yield 2
        raise kind

    values, thrown = waiting(), kind()
    assert next(values) == 1
    assert values.throw(thrown) == 2
    assert caught == [(thrown, False)]
    with pytest.raises(kind):
        next(values)
    assert recorded()


def test_a_generator_gets_what_is_sent_and_thrown_and_returns_its_value() -> None:
    log: list[Any] = []

    @ta.no_grad()
    def echo() -> Any:
        got = yield recorded()
        while got != "end":
            try:
                got = yield got, recorded()
            except ValueError as error:
                got = str(error), recorded()
            finally:
                log.append(recorded())
        return "returned", recorded()

    values = echo()
    assert next(values) is False
    assert values.send("a") == ("a", False)
    assert values.throw(ValueError("thrown")) == (("thrown", False), False)
    assert recorded()
    with pytest.raises(StopIteration) as stop:
        values.send("end")
    assert stop.value.value == ("returned", False)
    values = echo()
    next(values)
    with pytest.raises(KeyError):
        values.throw(KeyError("not caught"))
    values = echo()
    next(values)
    values.send("b")
    values.close()
    assert log == [False, False, False]
    assert recorded()


def test_a_generator_that_yields_from_another() -> None:
    @ta.no_grad()
    def outer() -> Any:
        return (yield from yielded(7))

    assert list(outer()) == [(7, False)]


def test_tasks_that_wait_for_each_other_have_switches_of_their_own() -> None:
    async def without(steps: int) -> list[bool]:
        found = []
        with ta.no_grad():
            for _ in range(steps):
                found.append(recorded())
                await asyncio.sleep(0)
        return found

    async def nested() -> list[bool]:
        with ta.enable_grad():
            return [recorded(), *(await without(2)), recorded()]

    async def run() -> list[Any]:
        found = await asyncio.gather(without(3), nested(), without(1), awaited())
        return [*found, recorded()]

    assert asyncio.run(run()) == [
        [False] * 3, [True, False, False, True], [False], (1, True), True,
    ]  # fmt: skip


@switches
def test_an_error_passes_and_the_switch_is_set_back(name: str) -> None:
    switch, _ = SWITCHES[name]

    def fails() -> None:
        raise KeyError("inside")

    def fails_between() -> Iterator[int]:
        yield 1
        raise KeyError("inside")

    for call in (
        switch(fails),
        lambda: list(switch(fails_between)()),
    ):
        with pytest.raises(KeyError, match="inside"):
            call()
        assert recorded()


def test_threads_of_a_decorated_function() -> None:
    barrier, found = threading.Barrier(3), []

    @ta.no_grad()
    def inside() -> None:
        barrier.wait()
        found.append(recorded())

    def outside() -> None:
        barrier.wait()
        found.append(recorded())

    threads = [threading.Thread(target=target) for target in (inside, outside, inside)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False, False, True]


# op


@pytest.mark.parametrize(
    "wrong",
    [functools.partial(plain), Called(), Called, 3, staticmethod],
    ids=["a partial", "an object", "a class", "a number", "a decorator"],
)
def test_an_op_is_a_function_with_a_name(wrong: Any) -> None:
    with pytest.raises(TypeError, match="op takes a function with a name, got"):
        ta.op(wrong)
    with pytest.raises(TypeError, match="op takes a function with a name, got"):
        ta.op(promote=True)(wrong)


def test_an_option_that_op_does_not_have_is_named() -> None:
    wrong: dict[str, Any] = {"promot": True}
    with pytest.raises(TypeError, match=r"\bop\(\) got an unexpected keyword argument 'promot'"):
        ta.op(**wrong)
    with pytest.raises(TypeError, match=r"\bop\(\) got an unexpected keyword argument 'promot'"):
        ta.op(plain, **wrong)


def test_ops_of_many_kinds() -> None:
    x = np.array([1.0, 2.0])

    class Owner:
        @staticmethod
        @ta.op
        def twice(x: Any, factor: float = 2.0) -> Any:
            """Twice."""
            return x * factor

    for double in (ta.op(lambda x: 2 * x), Owner.twice, ta.op(promote=True)(lambda x, k=2: x * k)):
        assert double(ta.tensor(x)).tolist() == [2, 4]
    assert Owner.twice(ta.tensor(x), 3.0).tolist() == [3, 6]
    assert (Owner.twice.__name__, Owner.twice.__doc__) == ("twice", "Twice.")
    np.testing.assert_array_equal(ta.op(np.exp)(ta.tensor(x)).numpy(), np.exp(x))

    def values(x: Any) -> Iterator[Any]:
        yield x

    with pytest.raises(TypeError, match="must return an array, got generator"):
        ta.op(values)(ta.tensor(x))
