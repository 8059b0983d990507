"""ModuleList and Sequential beside a Python list, ModuleDict beside a dict, at every index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tinyattn as ta
from tinyattn import nn

N = 4
PLACES = [*range(-N - 2, N + 3)]
SLICES = [
    slice(start, stop, step)
    for start in (None, -5, -3, 0, 1, 5)
    for stop in (None, -6, -1, 2, 4, 6)
    for step in (None, -3, -2, -1, 1, 2, 3)
]
KINDS: dict[str, Callable[[list[nn.Module]], Any]] = {
    "ModuleList": nn.ModuleList,
    "Sequential": lambda modules: nn.Sequential(*modules),
}
both_kinds = pytest.mark.parametrize("kind", KINDS)


def both(kind: str) -> tuple[Any, list[nn.Module]]:
    parts: list[nn.Module] = [nn.ReLU() for _ in range(N)]
    return KINDS[kind](parts), parts


def outcome(change: Callable[[Any], Any], of: Any) -> Any:
    """What it gives, or the kind of its error."""
    try:
        return change(of)
    except (IndexError, ValueError) as error:
        return type(error)


def compare(kind: str, change: Callable[[Any], Any], gives_itself: bool = False) -> None:
    """The same call on both ends in the same way, and the names are the places."""
    made, parts = both(kind)
    found, right = outcome(change, made), outcome(change, parts)
    assert (found is made) if gives_itself else (found is right)
    assert list(made) == parts
    assert list(made._modules) == [str(i) for i in range(len(parts))]
    assert len(made) == len(parts)


@both_kinds
@pytest.mark.parametrize("place", PLACES)
def test_each_place_is_that_of_a_list(kind: str, place: int) -> None:
    new = nn.Tanh()
    compare(kind, lambda x: x[place])
    compare(kind, lambda x: x.insert(place, new))
    compare(kind, lambda x: x.__setitem__(place, new))
    compare(kind, lambda x: x.__delitem__(place))
    compare(kind, lambda x: x.pop(place))


@both_kinds
def test_each_slice_is_that_of_a_list(kind: str) -> None:
    for part in SLICES:
        made, parts = both(kind)
        found = made[part]
        assert type(found) is type(made)
        assert list(found) == parts[part], part
        assert list(found._modules) == [str(i) for i in range(len(parts[part]))]
        assert list(made) == parts


@both_kinds
def test_each_slice_is_set_and_deleted_as_in_a_list(kind: str) -> None:
    for part in SLICES:
        compare(kind, lambda x, part=part: x.__delitem__(part))
        for count in range(N):
            new = [nn.Tanh() for _ in range(count)]
            compare(kind, lambda x, part=part, new=new: x.__setitem__(part, new))


@both_kinds
def test_other_methods_are_those_of_a_list(kind: str) -> None:
    new = [nn.Tanh(), nn.GELU()]
    compare(kind, lambda x: x.pop())
    compare(kind, lambda x: x.reverse())
    compare(kind, lambda x: x.clear())
    compare(kind, lambda x: x.remove(x[2]))
    compare(kind, lambda x: x.remove(new[0]))
    compare(kind, lambda x: x.index(x[2]))
    compare(kind, lambda x: x.index(x[1], 2))
    compare(kind, lambda x: x.count(x[3]))
    compare(kind, lambda x: x[1] in x)
    compare(kind, lambda x: new[0] in x)
    for change in (lambda x: x.append(new[0]), lambda x: x.extend(new)):
        made, parts = both(kind)
        assert change(made) is made  # so that calls may follow
        change(parts)
        assert list(made) == parts
    made, parts = both(kind)
    assert list(reversed(made)) == parts[::-1]
    assert list(made + new) == parts + new
    made += new
    assert list(made) == parts + new
    assert list(made._modules) == ["0", "1", "2", "3", "4", "5"]


def test_an_element_may_be_left_out_of_a_module_list_alone() -> None:
    made = nn.ModuleList([nn.Linear(1, 2), None, nn.Linear(2, 3)])  # type: ignore[list-item]
    assert len(made) == 3
    assert made[1] is None
    assert list(made.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    del made[0]
    assert list(made.state_dict()) == ["1.weight", "1.bias"]
    made[0] = nn.ReLU()
    assert [type(part) for part in made] == [nn.ReLU, nn.Linear]
    with pytest.raises(TypeError, match=r"^a Sequential holds modules, got NoneType$"):
        nn.Sequential(nn.ReLU()).append(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", range(3))
def test_an_element_with_a_name_keeps_it_wherever_others_come(place: int) -> None:
    net = nn.Sequential({"up": nn.Linear(2, 3), "down": nn.Linear(3, 2)})
    up, down, new = net.up, net.down, nn.ReLU()
    net.insert(place, new)
    expected = [("up", up), ("down", down)]
    expected.insert(place, (str(place), new))
    assert list(net.named_children()) == expected


def test_a_module_with_a_name_that_comes_twice_has_a_number_at_its_second_place() -> None:
    net = nn.Sequential({"up": nn.Linear(2, 2), "act": nn.ReLU()})
    up, act = net.up, net.act
    net.append(up)
    assert list(net) == [up, act, up]
    assert list(net._modules.items()) == [("up", up), ("act", act), ("2", up)]


def test_a_module_dict_is_a_dict_in_each_call() -> None:
    parts: dict[str, nn.Module] = {name: nn.ReLU() for name in ("a", "b", "c")}
    new = nn.Tanh()
    changes: list[Callable[[Any], Any]] = [
        lambda x: x["b"],
        lambda x: x["d"],
        lambda x: x.get("b"),
        lambda x: x.get("d"),
        lambda x: x.__setitem__("b", new),
        lambda x: x.__setitem__("d", new),
        lambda x: x.__delitem__("a"),
        lambda x: x.__delitem__("d"),
        lambda x: x.pop("a"),
        lambda x: x.pop("d"),
        lambda x: x.pop("d", new),
        lambda x: x.setdefault("b", new),
        lambda x: x.setdefault("d", new),
        lambda x: x.update(b=new, d=new),
        lambda x: x.update({"d": new}),
        lambda x: x.clear(),
        lambda x: "b" in x,
        lambda x: "d" in x,
        len,
    ]
    for number, change in enumerate(changes):
        made, right = nn.ModuleDict(parts), dict(parts)
        results = []
        for of in (made, right):
            try:
                results.append(change(of))
            except KeyError as error:
                results.append(error.args)
        assert results[0] == results[1], number
        assert list(made.items()) == list(right.items()), number
        assert dict(made._modules) == right, number


class OfWidths(nn.Sequential):
    """Its constructor takes something else than modules."""

    def __init__(self, first: int, *widths: int) -> None:
        sizes = [first, *widths]
        super().__init__(*map(nn.Linear, sizes, widths))


class Residual(nn.Sequential):
    """Its forward is its own."""

    def forward(self, input: ta.Tensor) -> ta.Tensor:
        return input + super().forward(input)


class Blocks(nn.ModuleList):
    """Its constructor makes its modules."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__([nn.Linear(size, size) for _ in range(count)])


def test_a_slice_is_of_the_same_class_and_calls_no_constructor() -> None:
    made, blocks = OfWidths(2, 3, 5, 7), Blocks(3, 2)
    for whole in (made, blocks, Residual(*map(nn.Linear, (2, 2, 2), (2, 2, 2)))):
        modules = list(whole)
        for part in SLICES[::5]:
            found = whole[part]
            assert type(found) is type(whole)
            assert list(found) == modules[part]
        assert list(whole) == modules  # a slice takes nothing away
    assert made[1:](ta.ones(4, 3)).shape == (4, 7)
    assert Residual(nn.ReLU(), nn.ReLU())[:1](ta.ones(1)).item() == 2


def test_a_sum_of_lists_is_plain_as_in_pytorch() -> None:
    blocks, more = Blocks(3, 2), [nn.ReLU()]
    found = blocks + more
    assert type(found) is nn.ModuleList
    assert list(found) == [*blocks, *more]
    residual = Residual(nn.Identity(), nn.Identity())
    joined = residual.__add__((nn.ReLU(),))
    assert type(joined) is nn.Sequential
    assert list(joined) == [*residual, joined[2]]
    assert (residual(ta.ones(1)).item(), joined(ta.ones(1)).item()) == (2, 1)
    assert len(residual) == 2
    with pytest.raises(TypeError, match="a Sequential holds modules"):
        residual.__add__([1])
    for wrong, kind in ((7, IndexError), (-3, IndexError)):
        with pytest.raises(kind):
            residual[wrong] = nn.ReLU()
    with pytest.raises(TypeError, match="a Sequential holds modules, got int"):
        residual[0] = 3  # type: ignore[call-overload]


def test_a_slice_has_hooks_of_its_own() -> None:
    for whole in (nn.Sequential(nn.ReLU(), nn.ReLU()), Residual(nn.ReLU(), nn.ReLU())):
        calls: list[str] = []
        whole.register_forward_hook(lambda *_, calls=calls: calls.append("whole"))
        part = whole[:1]
        part.register_forward_hook(lambda *_, calls=calls: calls.append("part"))
        part(ta.ones(1))
        whole(ta.ones(1))
        assert calls == ["part", "whole"]


# Words that are no number of an element, though some of them have digits.
NAMES = ["layer_1", "a1", "1a", "_", "é", "层", "²", "two words", "-1", "1_0", "x-y"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_that_is_no_number_is_kept_and_a_number_is_that_of_the_place(name: str) -> None:
    a, b, c, new = (nn.ReLU() for _ in range(4))

    def made() -> nn.Sequential:
        return nn.Sequential({"7": a, name: b, "3": c})

    expected = [("7", a), (name, b), ("3", c)]
    assert list(made().named_children()) == expected
    changes: dict[str, tuple[Callable[[Any], Any], list[tuple[str, Any]]]] = {
        "append": (lambda net: net.append(new), [("0", a), (name, b), ("2", c), ("3", new)]),
        "first": (lambda net: net.insert(0, new), [("0", new), ("1", a), (name, b), ("3", c)]),
        "delete": (lambda net: net.__delitem__(0), [(name, b), ("1", c)]),
        "set": (lambda net: net.__setitem__(0, new), [("7", new), (name, b), ("3", c)]),
        "replace": (lambda net: net.__setitem__(-2, new), [("7", a), (name, new), ("3", c)]),
        "slice": (
            lambda net: net.__setitem__(slice(1, 2), [new]),
            [("0", a), ("1", new), ("2", c)],
        ),
        "extend": (lambda net: net.extend([new]), [("0", a), (name, b), ("2", c), ("3", new)]),
        "reverse": (lambda net: net.reverse(), [("7", c), (name, b), ("3", a)]),
    }
    for which, (change, right) in changes.items():
        net = made()
        change(net)
        assert list(net.named_children()) == right, which
        assert list(net) == [part for _, part in right]
        replaced = {"replace": new, "slice": None}
        assert getattr(net, name, None) is replaced.get(which, b)
    layers = nn.ModuleList([a, c])
    setattr(layers, name, b)  # an attribute, and no element
    assert (len(layers), list(layers), layers[-1]) == (2, [a, c], c)
    layers.append(new)
    assert list(layers.named_children()) == [(name, b), ("0", a), ("1", c), ("2", new)]
    parts = nn.ModuleDict({name: b, "7": a})
    assert (list(parts), parts[name], len(parts)) == ([name, "7"], b, 2)
