"""Public modules have the paths that users import."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from common import run_python

import tinyattn as ta

PUBLIC = {
    "errors": "ShapeError",
    "functional": "softmax",
    "generation": "generate",
    "interop": "load_torch_state_dict",
    "masks": "causal",
    "models": "SentenceEncoder",
    "nn": "Linear",
    "ops": "matmul",
    "optim": "Adam",
    "testing": "check_op",
    "viz": "show_heatmaps",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_is_found_in_each_way(name):
    module = importlib.import_module(f"tinyattn.{name}")
    assert getattr(ta, name) is module
    assert hasattr(module, PUBLIC[name])
    real = importlib.import_module(module.__name__)  # the name of its file
    assert real is module
    assert module.__spec__.name == module.__name__
    assert importlib.import_module(f"tinyattn.{name}") is module


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_is_the_first_that_is_imported(name):
    code = f"""
from tinyattn.{name} import {PUBLIC[name]} as first
import tinyattn as ta
from tinyattn import {name}
assert {name}.{PUBLIC[name]} is first is ta.{name}.{PUBLIC[name]}
"""
    run_python(code)


@pytest.mark.parametrize("name", ["batches", "checkpoint", "distributed"])
def test_a_file_of_training_is_an_attribute_of_the_package(name):
    run_python(f"""
from tinyattn import {name}
import tinyattn as ta, tinyattn.training.{name} as file
assert ta.{name} is {name} is file
""")


def test_a_module_that_does_not_exist_is_refused_as_anywhere():
    with pytest.raises(ModuleNotFoundError, match=r"tinyattn\.nothing"):
        importlib.import_module("tinyattn.nothing")


def test_import_tinyattn_loads_none_of_them_early():
    code = (
        "import sys, tinyattn; print(*sorted(n for n in sys.modules if n.startswith('tinyattn')))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    late = ("tinyattn.training", "tinyattn.models", "tinyattn.viz", "tinyattn.testing")
    assert "tinyattn.nn.attention" in loaded
    assert not [name for name in loaded if name.startswith(late)]


def test_import_tinyattn_loads_little_of_pythons_library():
    """importlib.abc alone would bring tempfile, random and compression, 10 ms in all."""
    code = "import numpy, sys; before = {*sys.modules}; import tinyattn; "
    code += "print(*sorted({*sys.modules} - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "tinyattn" in loaded
    # `inspect` comes with newer versions of NumPy anyway.
    assert {"importlib.abc", "tempfile", "shutil", "numba"}.isdisjoint(loaded)


def test_dir_offers_what_a_user_calls():
    """Tab completion asks `dir`: late names are there, names for the package's own use are not."""
    assert {"save", "gradcheck", "viz", "testing", "batches", "zeros"} <= set(dir(ta))
    assert {"Any", "importlib", "TYPE_CHECKING"}.isdisjoint([*dir(ta), *dir(ta.nn)])
    assert all(hasattr(ta, name) for name in dir(ta))
    assert all(hasattr(ta.nn, name) for name in dir(ta.nn))
