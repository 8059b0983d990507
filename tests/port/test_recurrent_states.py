"""The first states that recurrent layers and cells take, and those that they refuse."""

from __future__ import annotations

from typing import Any

import pytest

import tinyattn as ta
from tinyattn.errors import ShapeError
from tinyattn.torch_names import nn

X = {"layer": (4, 3, 5), "sample": (4, 5), "cell": (3, 5), "one": (5,)}  # (L, B, D) and so on
STATE = {"layer": (2, 3, 6), "sample": (2, 6), "cell": (3, 6), "one": (6,)}
CALLS = [
    *((name, form) for name in ("RNN", "GRU", "LSTM") for form in ("layer", "sample")),
    *((name, form) for name in ("GRUCell", "LSTMCell") for form in ("cell", "one")),
]


def made(name: str) -> Any:
    return getattr(nn, name)(5, 6) if name.endswith("Cell") else getattr(nn, name)(5, 6, 2)


def parts_of(name: str) -> int:
    return 2 if name.startswith("LSTM") else 1


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize(("name", "form"), CALLS)
def test_a_first_state_has_its_number_of_parts(name: str, form: str, number: int) -> None:
    """A pair (h, c) of an LSTM is no state of a GRU, and a list of one h is."""
    module, x, shape = made(name), ta.randn(X[form]), STATE[form]
    parts = [ta.randn(shape) for _ in range(number)]
    what = "a state is a pair (h, c), each" if parts_of(name) == 2 else "a state is"
    for state in (tuple(parts), parts, *(parts if number == 1 else [])):
        if number == parts_of(name):
            module(x, state)
            continue
        with pytest.raises(ShapeError) as raised:
            module(x, state)
        assert str(raised.value) == f"{what} {shape}, got {[shape] * number}"


@pytest.mark.parametrize(("name", "form"), CALLS)
def test_each_part_of_a_first_state_has_its_shape(name: str, form: str) -> None:
    module, x, shape = made(name), ta.randn(X[form]), STATE[form]
    wrong = [(*shape[:i], shape[i] + step, *shape[i + 1 :]) for i in range(len(shape))
             for step in (-1, 1)]  # fmt: skip
    for other in (*wrong, (1, *shape), shape[1:]):
        for place in range(parts_of(name)):
            shapes = [other if i == place else shape for i in range(parts_of(name))]
            with pytest.raises(ShapeError) as raised:
                module(x, [ta.randn(each) for each in shapes])
            assert str(raised.value).endswith(f" {shape}, got {shapes}")


@pytest.mark.parametrize(("name", "form"), CALLS)
def test_each_part_of_a_first_state_counts(name: str, form: str) -> None:
    """Zeros are what is taken without it, and any other number of any part changes the result."""
    module, x, shape = made(name), ta.randn(X[form]), STATE[form]

    def out(*state: Any) -> list[float]:
        found = module(x, *state)
        return (found[0] if isinstance(found, tuple) else found).reshape(-1).tolist()

    zeros = [ta.zeros(shape) for _ in range(parts_of(name))]
    assert out(zeros) == out() == out(None)
    for place in range(parts_of(name)):
        for row in range(shape[0]):
            state = [ta.zeros(shape) for _ in range(parts_of(name))]
            state[place][row] = 2.0
            assert out(state) != out()
