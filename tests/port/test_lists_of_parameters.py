"""ParameterList: a list whose elements are the program's own parameters, whatever is done to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tinyattn as ta
from tinyattn.torch_names import nn

A, B, C, D = (nn.Parameter(ta.full((n,), float(n))) for n in (1, 2, 3, 4))


def changed(change: Callable[[Any], Any]) -> Any:
    parameters = nn.ParameterList([A, B])
    change(parameters)
    return parameters


def assign(index: Any, value: Any) -> Callable[[Any], None]:
    return lambda parameters: parameters.__setitem__(index, value)


# What is done to [A, B], and what it is then.
CHANGES: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "nothing": (lambda p: None, [A, B]),
    "append": (lambda p: p.append(C), [A, B, C]),
    "extend": (lambda p: p.extend(x for x in (C, D)), [A, B, C, D]),
    "extend by another": (lambda p: p.extend(nn.ParameterList([C, D])), [A, B, C, D]),
    "+=": (lambda p: p.__iadd__([C]), [A, B, C]),
    "insert": (lambda p: p.insert(1, C), [A, C, B]),
    "insert first": (lambda p: p.insert(0, C), [C, A, B]),
    "set": (assign(0, C), [C, B]),
    "set last": (assign(-1, C), [A, C]),
    "set a slice": (assign(slice(0, 1), [C, D]), [C, D, B]),
    "delete": (lambda p: p.__delitem__(0), [B]),
    "pop": (lambda p: p.pop(), [A]),
    "reverse": (lambda p: p.reverse(), [B, A]),
    "clear": (lambda p: p.clear(), []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_its_elements_are_the_parameters_themselves(name: str) -> None:
    """So that one which another module has too gets one gradient, and an optimizer finds it."""
    change, expected = CHANGES[name]
    found = changed(change)
    assert len(found) == len(expected)
    for i, parameter in enumerate(expected):
        assert found[i] is parameter
        assert found[i - len(expected)] is parameter
    assert all(x is y for x, y in zip(found, expected, strict=True))
    named = list(found.named_parameters())
    assert [key for key, _ in named] == [str(i) for i in range(len(expected))]
    assert all(x is y for (_, x), y in zip(named, expected, strict=True))


@pytest.mark.parametrize("part", [slice(1), slice(1, None), slice(None), slice(2, 2),
                                  slice(None, None, -1)], ids=str)  # fmt: skip
def test_a_slice_is_a_list_of_parameters_too(part: slice) -> None:
    """As prompts of the first layers; and the sum of two lists is one."""
    for of, elements in [
        (nn.ParameterList, [A, B, C]), (nn.ModuleList, [nn.Linear(1, 1), None, nn.ReLU()]),
    ]:  # fmt: skip
        whole = of(elements)
        found, joined = whole[part], whole[part] + [elements[0]]
        assert type(found) is type(joined) is of
        assert all(x is y for x, y in zip(found, elements[part], strict=True))
        assert all(x is y for x, y in zip(joined, [*elements[part], elements[0]], strict=True))
        assert len(whole) == 3


def test_of_a_tensor_it_makes_a_parameter_with_its_numbers() -> None:
    tensor = ta.tensor([1.0, 2.0])
    for parameters in (
        nn.ParameterList([A, tensor]), changed(assign(1, tensor)),
        changed(lambda p: (p.pop(), p.append(tensor))),
    ):  # fmt: skip
        assert parameters[0] is A
        assert type(parameters[1]) is nn.Parameter
        assert parameters[1].tolist() == [1.0, 2.0]
        assert parameters[1].requires_grad


def test_a_shared_parameter_gets_the_gradient_of_both_places() -> None:
    shared = nn.Parameter(ta.tensor([1.0, -2.0]))
    model = nn.Module()
    model.first, model.prompts = shared, nn.ParameterList([shared, ta.ones(2)])
    assert [name for name, _ in model.named_parameters()] == ["first", "prompts.1"]
    (3 * model.first - 5 * model.prompts[0]).sum().backward()
    assert shared.grad.tolist() == [-2.0, -2.0]
