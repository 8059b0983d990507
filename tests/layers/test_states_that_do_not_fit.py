"""`load_state_dict`: each value that does not fit, at each place, with and without `strict`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError, DtypeError, GraphError, ShapeError

BIAS, TABLE = "1.bias", "0.table"
SHAPES = [(), (1,), (3, 1), (1, 3), (2,), (4,), (0,), (3, 3)]
VALUES: dict[str, tuple[str, Any, type[Exception], str]] = {
    **{
        f"shape {shape}": (
            BIAS, ta.ones(*shape), ShapeError,
            f"Sequential: {BIAS} has shape (3,), got {shape}",
        )
        for shape in SHAPES
    },
    "array": (BIAS, np.ones(1), ShapeError, f"Sequential: {BIAS} has shape (3,), got (1,)"),
    "list": (BIAS, [1.0], ShapeError, f"Sequential: {BIAS} has shape (3,), got (1,)"),
    "number": (BIAS, 1.0, ShapeError, f"Sequential: {BIAS} has shape (3,), got ()"),
    "integers": (BIAS, ta.ones(3).long(), DtypeError, f"{BIAS} is float32, got int64"),
    "booleans": (BIAS, ta.ones(3).bool(), DtypeError, f"{BIAS} is float32, got bool"),
    "buffer": (TABLE, ta.zeros(1), ShapeError, f"Sequential: {TABLE} has shape (2,), got (1,)"),
}  # fmt: skip


def model() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3))
    net[0].register_buffer("table", ta.ones(2))
    return net


def assert_unchanged(net: nn.Module, before: dict[str, ta.Tensor]) -> None:
    after = net.state_dict()
    assert list(after) == list(before)
    for name, value in before.items():
        assert after[name].equal(value), name


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_does_not_fit_changes_nothing(name: str, strict: bool, others: bool) -> None:
    """Neither itself, by broadcasting, nor those that fit and come before it."""
    net = model()
    before = net.state_dict()
    where, value, error, message = VALUES[name]
    state = {key: x + 1 for key, x in before.items()} if others or strict else {}
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        net.load_state_dict(state | {where: value}, strict=strict)
    assert_unchanged(net, before)


@pytest.mark.parametrize("missing", ["0.weight", "0.table", "1.bias"])
@pytest.mark.parametrize("extra", ["0.bia", "scale"])
def test_names_that_one_side_lacks(missing: str, extra: str) -> None:
    net = model()
    before = net.state_dict()
    state = {name: x + 1 for name, x in before.items() if name != missing} | {extra: ta.ones(1)}
    message = f"^state does not fit Sequential: missing .*{missing}.*, unexpected .*{extra}"
    with pytest.raises(CheckpointError, match=message):
        net.load_state_dict(state)
    assert_unchanged(net, before)
    loaded = net.load_state_dict(state, strict=False)
    assert (loaded.missing_keys, loaded.unexpected_keys) == ([missing], [extra])
    kept = {name: x if name == missing else state[name] for name, x in before.items()}
    assert_unchanged(net, kept)


@pytest.mark.parametrize("strict", [True, False])
def test_a_shared_tensor_takes_one_value(strict: bool) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].bias = net[0].bias
    before = net.state_dict()
    state = {name: x + 1 for name, x in before.items()}
    state["1.bias"] = state["1.bias"] + 1
    with pytest.raises(CheckpointError, match=r"^0\.bias and 1\.bias are one tensor here"):
        net.load_state_dict(state, strict=strict)
    assert_unchanged(net, before)
    state["1.bias"] = state["0.bias"]
    net.load_state_dict(state, strict=strict)
    assert_unchanged(net, state)


@pytest.mark.parametrize("strict", [True, False])
def test_a_buffer_that_was_computed_takes_none(strict: bool) -> None:
    net = model()
    net[0].table = net[0].weight.sum(0)
    state = {name: x + 1 for name, x in net.state_dict().items()}
    before = net.state_dict()
    with pytest.raises(GraphError, match=r"^0\.table was computed by a recorded op"):
        net.load_state_dict(state, strict=strict)
    assert_unchanged(net, before)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("wrong", [3, "path.npz", [("0.weight", 1)], None])
def test_what_is_no_dict_is_no_state(wrong: Any, strict: bool) -> None:
    with pytest.raises(
        TypeError, match=r"^load_state_dict takes a dict of tensors, got .*ta\.load"
    ):
        model().load_state_dict(wrong, strict=strict)
