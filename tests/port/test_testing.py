"""torch.testing, and what changes nothing, as in PyTorch without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyattn.torch_names as ours
from tinyattn.errors import DeviceError
from tinyattn.torch_names.testing import assert_close

RIGHT = [
    ([1.0, 2.0], [1.0, 2.000002]), ([1.0], [1.0]), ({"a": [1.0], "b": 2}, {"b": 2, "a": [1.0]}),
    ((1, [2.0, 3.0]), (1, [2.0, 3.0])), (2, 2), (1.0, 1.0 + 1e-8), (0.1 + 0.2, 0.3),
]  # fmt: skip
WRONG = [
    ([1.0, 2.0], [1.0, 2.0001]), ([1.0, 2.0], [1.0]), ({"a": 1}, {"b": 1}), ([1, 2], [1, 3]),
    (float("nan"), float("nan")), ([[1.0]], [1.0]), (1.0, 1.000001),
    ((1.0,), (1.000001,)), (1, 1.0),
]  # fmt: skip


def tensors(space: Any, value: Any) -> Any:
    """Lists of numbers as tensors of float32."""
    if isinstance(value, dict):
        return {key: tensors(space, part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(tensors(space, part) for part in value)
    return space.tensor(value) if isinstance(value, list) else value


@pytest.mark.parametrize(("pair", "is_right"), [(p, p in RIGHT) for p in (*RIGHT, *WRONG)])
def test_assert_close_is_pytorchs(torch: Any, pair: Any, is_right: bool) -> None:
    for space in (ours, torch):
        actual, expected = tensors(space, pair[0]), tensors(space, pair[1])
        if is_right:
            space.testing.assert_close(actual, expected)
        else:
            with pytest.raises(AssertionError):
                space.testing.assert_close(actual, expected)


def test_one_tolerance_alone_is_refused(torch: Any) -> None:
    for space in (ours, torch):
        for options in ({"rtol": 1e-3}, {"atol": 1e-3}):
            with pytest.raises(ValueError, match=r"rtol.*atol"):
                space.testing.assert_close(space.ones(2), space.ones(2), **options)


def test_options_of_assert_close(torch: Any) -> None:
    for space in (ours, torch):
        close, nan = space.testing.assert_close, space.tensor([float("nan")])
        x = space.tensor([1.0], requires_grad=True)
        close(nan, nan, equal_nan=True)
        close(x, space.tensor([1.05]), rtol=0.1, atol=0.0)
        close(x, space.tensor([1.0], dtype=space.float64), check_dtype=False)
        with pytest.raises(AssertionError, match="dtype"):
            close(x, space.tensor([1.0], dtype=space.float64))
        double = space.tensor([1.0], dtype=space.float64)
        for one, other in (([x], [double]), ((2, x), (2, double)), ({"a": x}, {"a": double})):
            close(one, other, check_dtype=False)
            with pytest.raises(AssertionError, match="dtype"):
                close(one, other)
        with pytest.raises(AssertionError, match="mine"):
            close(x, space.tensor([2.0]), msg="mine")
        with pytest.raises(ValueError, match="rtol"):
            close(x, x, rtol=0.1)


def test_the_largest_error_that_is_close() -> None:
    """The tolerances are those of PyTorch's table: of float32 1.3e-6 and 1e-5."""
    for dtype, rtol, atol in (
        ("float16", 1e-3, 1e-5), ("float32", 1.3e-6, 1e-5), ("float64", 1e-7, 1e-7),
    ):  # fmt: skip
        one, zero = (np.full(1, n, np.float64) for n in (1.0, 0.0))
        for start in (one, zero):
            limit = atol + rtol * start
            x = ours.tensor(start).to(dtype)
            assert_close(ours.tensor(start + 0.8 * limit), x, check_dtype=False)
            with pytest.raises(AssertionError):
                assert_close(ours.tensor(start + 3 * limit).to(dtype), x)


def test_what_changes_nothing(torch: Any) -> None:
    for space in (ours, torch):
        space.set_float32_matmul_precision("highest")
    with pytest.raises(ValueError, match='"highest", "high" or "medium", got'):
        ours.set_float32_matmul_precision("low")
    model = ours.nn.Linear(2, 2)
    assert ours.compile(model, mode="max-autotune") is model
    assert ours.compile(dynamic=True)(abs) is abs


@pytest.mark.skipif(ours.cuda.is_available(), reason="there is a GPU")
def test_questions_without_a_gpu() -> None:
    """As in PyTorch: no bytes are used, and there is no name of a GPU."""
    cuda = ours.cuda
    for count in (cuda.memory_allocated, cuda.memory_reserved, cuda.max_memory_reserved):
        assert count() == 0
    for question in (cuda.current_device, cuda.get_device_name, lambda: cuda.set_device(0)):
        with pytest.raises(DeviceError):
            question()


def test_a_list_may_leave_a_module_out(torch: Any) -> None:
    """As the layers of many programs do: [attention, None, feed_forward]."""
    for space in (ours, torch):
        nn = space.nn
        layers = nn.ModuleList([nn.Linear(2, 3), None])
        layers.append(nn.ModuleList([None, nn.Linear(3, 1, bias=False)]))
        assert layers[1] is None
        assert [type(layer).__name__ for layer in layers] == ["Linear", "NoneType", "ModuleList"]
        assert list(layers.state_dict()) == ["0.weight", "0.bias", "2.1.weight"]
        assert len(layers) == 3
    with pytest.raises(TypeError, match="a Sequential holds modules, got NoneType"):
        ours.nn.Sequential(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrap", [list, tuple])
@pytest.mark.parametrize("numbers", [([1.0, 2.0], [1.0]), ([1.0], [1.0, 2.0])])
def test_sequences_of_unlike_lengths_are_not_close(wrap: Any, numbers: Any) -> None:
    actual, expected = map(wrap, numbers)
    with pytest.raises(AssertionError, match=f"^{len(actual)} are not {len(expected)}$"):
        assert_close(actual, expected)
    with pytest.raises(AssertionError, match=r"^of two runs$"):
        assert_close(actual, expected, msg="of two runs")
    with pytest.raises(AssertionError, match=r"^\['a'\] are not \['b'\]$"):
        assert_close({"a": 1.0}, {"b": 1.0})


# Places for a value, and what is said of one place more or less than expected.
AROUND: dict[str, Any] = {
    "alone": lambda x: x,
    "in a list": lambda x: [1, x],
    "in a tuple": lambda x: (x, 1),
    "in a dict": lambda x: {"a": 1, "b": x},
    "deep": lambda x: {"a": [(1, {"b": x})]},
}


@pytest.mark.parametrize("place", AROUND)
@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, "['a', 'b'] are not ['a']"),
        ({"a": 1}, {"a": 1, "b": 2}, "['a'] are not ['a', 'b']"),
        ({"a": 1}, {}, "['a'] are not []"),
        ({}, {"a": 1}, "[] are not ['a']"),
        ({"a": 1, "c": 2}, {"a": 1, "b": 2}, "['a', 'c'] are not ['a', 'b']"),
        ([1, 2], [1], "2 are not 1"),
        ([1], [1, 2], "1 are not 2"),
        ((1,), (), "1 are not 0"),
        ((), (1,), "0 are not 1"),
    ],
)  # fmt: skip
def test_neither_more_nor_less_than_expected_is_close(
    place: str, actual: Any, expected: Any, message: str
) -> None:
    around = AROUND[place]
    for msg in (None, "of two runs"):
        with pytest.raises(AssertionError) as raised:
            assert_close(around(actual), around(expected), msg=msg)
        assert str(raised.value) == (msg or message)
    assert_close(around(expected), around(expected))


@pytest.mark.parametrize("place", AROUND)
def test_the_relative_tolerance_is_a_part_of_what_is_expected(place: str) -> None:
    around = AROUND[place]
    for small, large in ((1.0, 2.0), (-1.0, -2.0), (0.0, 3.0)):
        one, other = (around(ours.tensor([x])) for x in (small, large))
        part = (large - small) / large * 1.001
        assert_close(one, other, rtol=part, atol=0.0)
        with pytest.raises(AssertionError) as raised:
            assert_close(other, one, rtol=part, atol=0.0)
        text = str(raised.value)
        assert text.index(f"[{large:g}.]") < text.index(f"[{small:g}.]")  # ACTUAL, then DESIRED
        limit = abs(large - small)
        for x, y in ((one, other), (other, one)):
            assert_close(x, y, rtol=0.0, atol=limit)
            with pytest.raises(AssertionError):
                assert_close(x, y, rtol=0.0, atol=0.99 * limit)


@pytest.mark.parametrize("place", AROUND)
def test_options_reach_each_place(place: str) -> None:
    around, nan, inf = AROUND[place], float("nan"), float("inf")
    x = around(ours.tensor([nan, 1.0]))
    assert_close(x, x, equal_nan=True)
    with pytest.raises(AssertionError):
        assert_close(x, x)
    assert_close(around(ours.tensor([inf, -inf])), around(ours.tensor([inf, -inf])))
    with pytest.raises(AssertionError):
        assert_close(around(ours.tensor([inf])), around(ours.tensor([-inf])))
    one, two = around(ours.ones(1)), around(ours.ones(1, dtype=ours.float64))
    for a, b, names in ((one, two, "float32 is not float64"), (two, one, "float64 is not float32")):
        assert_close(a, b, check_dtype=False)
        with pytest.raises(AssertionError) as raised:
            assert_close(a, b)
        assert str(raised.value) == f"the dtype {names}"
    with pytest.raises(AssertionError) as raised:
        assert_close(one, around(ours.ones(1, 1)))
    assert str(raised.value) == "the shape (1,) is not (1, 1)"
    with pytest.raises(ValueError) as wrong:  # noqa: PT011  the whole sentence is compared
        assert_close(one, one, rtol=0.5)
    assert str(wrong.value) == "rtol and atol go together, got 0.5 and None"
