"""Tests of `tinyattn.torch_names`: here Tensors and modules have PyTorch's further methods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tinyattn.torch_names  # noqa: F401
from tinyattn.torch_names.methods import give_methods, take_methods

take_methods()  # or the files that are collected next would see what the import gave


@pytest.fixture(autouse=True)
def methods(tinyattn_alone: None) -> Iterator[None]:
    give_methods()
    yield
    take_methods()
