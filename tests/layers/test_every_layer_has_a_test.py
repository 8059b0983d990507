"""Every layer, optimizer and kind of mask is tried in a file of tests of its own subject."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tinyattn import masks, nn, optim

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("module", "folders"),
    [(nn, ("layers", "attention")), (optim, ("training",)), (masks, ("attention",))],
    ids=["layers", "optimizers", "masks"],
)
def test_every_layer_has_a_test(module: ModuleType, folders: tuple[str, ...]) -> None:
    """A new public name of tinyattn.nn, optim or masks is named here until such a test uses it."""
    files = [file for folder in folders for file in (TESTS / folder).glob("test_*.py")]
    words = set(re.findall(r"\w+", "".join(file.read_text("utf-8") for file in files)))
    found = {getattr(module, name) for name in module.__all__}
    names = {x.__name__ for x in found if callable(x)}
    assert names
    assert names - words == set(), f"write a test in tests/{' or tests/'.join(folders)}"
