"""The table of PyTorch's names: what is left out is really missing, and says what to write."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import tinyattn
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


# Where PyTorch has a name that another module has here, or what it calls otherwise.
ELSEWHERE = {
    "F.pack_padded_sequence": "nn.utils.rnn.pack_padded_sequence",
    "F.pad_packed_sequence": "nn.utils.rnn.pad_packed_sequence",
    "batches.DataLoader": "utils.data.DataLoader",
    "distributed.DistributedDataParallel": "nn.parallel.DistributedDataParallel",
    "distributed.all_reduce": "distributed.all_reduce",
    "nn.DecoderLayer": "nn.TransformerDecoderLayer",
    "nn.MultiHeadAttention": "nn.MultiheadAttention",
    "optim.CosineSchedule": "optim.lr_scheduler.CosineAnnealingLR",
    "optim.LambdaLR": "optim.lr_scheduler.LambdaLR",
    "optim.clip_grad_norm_": "nn.utils.clip_grad_norm_",
    "ta.gradcheck": "autograd.gradcheck",
}


def says_differs(text: Any) -> bool:
    return "differs from pytorch" in " ".join(str(text or "").split()).lower()


def docstring_of(name: str) -> str:
    """The docstring of a name in the table, such as "nn.Module.state_dict"."""
    owner, _, path = name.partition(".")
    elsewhere = {"batches": ta.batches, "distributed": ta.distributed}
    spaces = SPACES | {"Tensor": ta.Tensor, **elsewhere}
    return attrgetter(path)(spaces[owner]).__doc__


def documented() -> Iterator[tuple[str, str]]:
    """Each docstring of the package, with its name: of modules, classes, functions, methods."""
    for info in pkgutil.walk_packages(tinyattn.__path__, "tinyattn."):
        module = importlib.import_module(info.name)
        yield info.name, module.__doc__ or ""
        for name, part in vars(module).items():
            if getattr(part, "__module__", None) != info.name or isinstance(part, TypeVar):
                continue
            yield f"{info.name}.{name}", part.__doc__ or ""
            for member, value in vars(part).items() if isinstance(part, type) else ():
                yield f"{info.name}.{name}.{member}", getattr(value, "__doc__", None) or ""


def test_the_whole_package_is_searched() -> None:
    names = [name for name, _ in documented()]
    for name in (
        "nn.module.Module.state_dict", "tensors.values.Values.data", "functional.losses.kl_div",
        "testing.finite_differences.gradcheck", "training.distributed.all_reduce",
        "optim.LambdaLR", "viz.show_graph", "models.interop.from_torch", "masks.causal",
    ):  # fmt: skip
        assert names.count(f"tinyattn.{name}") == 1


def test_what_a_docstring_says_to_differ_is_in_the_table() -> None:
    # A function made from a method has the docstring of the method, and so has its op.
    rows = {docstring_of(name) for name in DIFFERS}
    assert [name for name, text in documented() if says_differs(text) and text not in rows] == []


@pytest.mark.parametrize("name", sorted(DIFFERS))
def test_what_is_in_the_table_is_said_by_a_docstring(name: str) -> None:
    assert says_differs(docstring_of(name))


@pytest.mark.parametrize("name", sorted({*LEFT_OUT, *DIFFERS}))
def test_pytorch_has_the_name(name: str) -> None:
    torch = pytest.importorskip("torch")
    owner, _, path = name.partition(".")
    space = torch if name in ELSEWHERE else beside(torch)[owner]
    attrgetter(ELSEWHERE.get(name, path))(space)


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
