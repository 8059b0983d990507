"""The table of PyTorch's names: what is left out is really missing, and says what to write."""

from __future__ import annotations

from typing import Any

import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.names import DIFFERS, LEFT_OUT

SPACES = {"ta": ta, "Tensor": ta.ones(2), "nn": nn, "F": F, "optim": optim}


def beside(torch: Any) -> dict[str, Any]:
    """What PyTorch calls the same."""
    return {
        "ta": torch, "Tensor": torch.ones(2, 2), "nn": torch.nn,
        "F": torch.nn.functional, "optim": torch.optim,
    }  # fmt: skip


def split(name: str) -> tuple[Any, str]:
    owner, _, attribute = name.partition(".")
    return SPACES[owner], attribute


@pytest.mark.parametrize("name", sorted(name for name in LEFT_OUT if name.count(".") == 1))
def test_what_is_left_out_says_what_to_write(name: str) -> None:
    space, attribute = split(name)
    assert not hasattr(space, attribute)
    with pytest.raises(AttributeError) as caught:
        getattr(space, attribute)
    assert str(caught.value) == f"tinyattn has no {name}: {LEFT_OUT[name]}"


@pytest.mark.parametrize("name", sorted(DIFFERS))
def test_what_differs_is_there(name: str) -> None:
    space, attribute = split(name)
    assert hasattr(space, attribute)
    if attribute != "__iadd__":  # docs/course/03_the_real_engine.md says it
        space = ta.Tensor if space is SPACES["Tensor"] else space
        assert "PyTorch" in getattr(space, attribute).__doc__


@pytest.mark.parametrize("owner", SPACES)
def test_what_a_docstring_says_to_differ_is_in_the_table(owner: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = SPACES[owner], beside(torch)[owner]
    space = ta.Tensor if owner == "Tensor" else ours
    found = [
        name
        for name in dir(space)
        if not name.startswith("__")
        and getattr(space, name) is not ta.Tensor
        and "Differs from PyTorch" in (getattr(space, name).__doc__ or "")
        and hasattr(theirs, name)
    ]
    assert found
    # A function made from a method has the row of the method.
    missing = [name for name in found if not {f"{owner}.{name}", f"Tensor.{name}"} & set(DIFFERS)]
    assert not missing


@pytest.mark.parametrize("name", sorted({*LEFT_OUT, *DIFFERS}))
def test_pytorch_has_the_name(name: str) -> None:
    torch = pytest.importorskip("torch")
    owner, _, attribute = name.partition(".")
    assert hasattr(beside(torch)[owner], attribute)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Tensor.add_", r"write x \+= y under ta.no_grad\(\)"),
        ("Tensor.exp_", r"write x = x.exp\(...\), or x\[...\] = value under ta.no_grad\(\)"),
        ("Tensor.scatter_", "methods do not change x; write x"),
        ("Tensor.reshap", "did you mean reshape"),
        ("ta.arrange", "did you mean arange"),
        ("nn.LayerNrom", "did you mean LayerNorm"),
        ("F.sofmax", "did you mean .*softmax"),
        ("optim.Adma", "did you mean Adam"),
        ("Tensor.gt_of", r"has no Tensor.gt_of$"),
        ("ta.xyz", "tinyattn has no ta.xyz$"),
    ],
)
def test_other_names_get_those_that_are_close(name: str, message: str) -> None:
    space, attribute = split(name)
    with pytest.raises(AttributeError, match=message):
        getattr(space, attribute)


def test_names_that_python_asks_for_are_simply_missing() -> None:
    for space in SPACES.values():
        with pytest.raises(AttributeError, match=r"__xyz__$"):
            getattr(space, "__xyz__")  # noqa: B009
