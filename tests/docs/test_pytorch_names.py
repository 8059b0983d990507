"""The table of PyTorch's names: what is left out is really missing, and says what to write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.base.names import DIFFERS, EXPRESSIONS, LEFT_OUT

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


@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_compute_what_pytorch_computes(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    values = {
        "x": np.array([[2.5, 0, -3.5], [0, 1, 2.5], [2, 0, 4]]).astype(dtype),
        "y": np.array([[1, 2, 2], [3, 3.5, -2.5], [2, 3, 1]]).astype(dtype),
    }
    if name == "mv":
        values["y"] = values["y"][0]
    used = [letter for letter in "xy" if re.search(rf"\b{letter}\b", EXPRESSIONS[name])]
    theirs = getattr(torch, name)(*(torch.as_tensor(values[letter]) for letter in used))
    ours = {"x": ta.tensor(values["x"]), "y": ta.tensor(values["y"]), "np": np}
    np.testing.assert_allclose(np.asarray(eval(EXPRESSIONS[name], ours)), theirs.numpy())


def test_the_tables_of_the_page_have_two_columns() -> None:
    """Because `x | y` in a cell would end it."""
    page = Path(__file__).parents[2] / "docs/notebooks/from_pytorch.ipynb"
    outputs = [o for c in json.loads(page.read_text())["cells"] for o in c.get("outputs", [])]
    tables = [o["data"]["text/markdown"] for o in outputs if "data" in o]
    assert [len(table) - 2 for table in tables] == [len(DIFFERS), len(LEFT_OUT)]
    for row in (row for table in tables for row in table):
        assert len(re.split(r"(?<!\\)\|", row.strip())) == 4, row
