"""Every layer is tried in one of the files of tests of layers and of attention."""

from __future__ import annotations

import re
from inspect import isclass
from pathlib import Path

from tinyattn import nn

TESTS = Path(__file__).parents[1]


def test_every_layer_has_a_test() -> None:
    """A new public class of tinyattn.nn is named here until a test beside this one uses it."""
    files = [*(TESTS / "layers").glob("*.py"), *(TESTS / "attention").glob("*.py")]
    words = set(re.findall(r"\w+", "".join(file.read_text("utf-8") for file in files)))
    layers = {name for name in nn.__all__ if isclass(getattr(nn, name))}
    assert layers
    assert layers - words == set(), "write a test in tests/layers or tests/attention"
