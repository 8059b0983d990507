"""Without Numba, without its compiler, without a cache; and nothing is left behind in any case."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import numpy as np
from common import (
    FOLDERS,
    assert_close,
    assert_same,
    kernel_tour,
    rng_of,
    run_python,
    signed,
)
from kernel_checks import (
    cpu,
    needs_numba,
)

import tinyattn as ta
from tinyattn import functional as F


def compare_tours(actual, expected):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        found = actual[name]
        if name.startswith("dropout"):
            assert_same(found, value)
        else:
            eps = np.finfo(np.float32 if "float32" in name else np.float64).eps
            assert_close(found, value, 30 * eps)


TOUR = """
import sys
import numpy as np
{before}
import common
results = common.kernel_tour()
{after}
np.savez(sys.argv[1], **results)
"""


def tour_elsewhere(tmp_path, before="", after="", env=None, **options):
    path = tmp_path / "tour.npz"
    run_python(TOUR.format(before=before, after=after), env=env, args=[path], **options)
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_kernels_agree_with_the_switch_off(tmp_path):
    found = tour_elsewhere(
        tmp_path,
        after="assert 'numba' not in sys.modules",
        env={"TINYATTN_JIT": "0"},
    )
    compare_tours(found, kernel_tour())


def test_kernels_agree_without_numba(tmp_path):
    """As if it were not installed."""
    found = tour_elsewhere(tmp_path, before="sys.modules['numba'] = None")
    compare_tours(found, kernel_tour())


def test_whole_model_trains_without_numba_and_agrees(tmp_path):
    code = """
import sys
sys.modules["numba"] = None
import test_without_numba
print(test_without_numba.train_a_little())
"""
    assert_close(
        np.array(eval(run_python(code))),
        np.array(train_a_little()),
        1e-4,
    )


def train_a_little():
    """Losses of a tiny encoder with dropout: seeds are the same with and without Numba."""
    from tinyattn import nn, optim

    ta.manual_seed(3)
    attention = nn.MultiHeadedAttention(2, 8, 0.2)
    layer = nn.EncoderLayer(8, attention, nn.PositionwiseFeedForward(8, 16, 0.2, "gelu"), 0.2)
    model = nn.Sequential(nn.Embedding(7, 8), nn.PositionalEncoding(8), nn.Encoder(layer, 1))
    head = nn.Linear(8, 7)
    optimizer = optim.AdamW([*model.parameters(), *head.parameters()], lr=0.02)
    ids = np.array([[1, 2, 3, 4], [5, 6, 0, 0]])
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(head(model(ids)).reshape(8, 7), ids.reshape(8), ignore_index=0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@needs_numba
def test_kernels_agree_with_numba_s_compiler_disabled(tmp_path):
    """NUMBA_DISABLE_JIT=1 runs the loops as Python: for debugging, and for coverage."""
    found = tour_elsewhere(
        tmp_path,
        after="import numba; assert numba.config.DISABLE_JIT; "
        "assert 'tinyattn.kernels.cpu' in sys.modules",
        env={"NUMBA_DISABLE_JIT": "1", "TINYATTN_JIT": "1"},
    )
    compare_tours(found, kernel_tour())


def copied_package(tmp_path):
    """A copy of the package, so that its folders can be spoiled."""
    source = Path(ta.__file__).parent
    target = tmp_path / "site" / "tinyattn"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


ONE_KERNEL = """
import sys
import numpy as np
import tinyattn
from tinyattn import kernels
from tinyattn.kernels import cpu
assert tinyattn.__file__.startswith(sys.argv[1]), tinyattn.__file__
x = np.array([[0.0, 0.0, 5.0]], np.float32).reshape(1, 1, 1, 3)
print(kernels.masked_softmax(x, np.array([[2]]), None).tolist())
"""


@needs_numba
def test_kernels_run_where_no_cache_can_be_written(tmp_path):
    """Where __pycache__ and the home folder are files: even root cannot write below them."""
    package = copied_package(tmp_path)
    (package / "kernels" / "cpu" / "__pycache__").write_text("not a folder")
    home = tmp_path / "home"
    home.write_text("not a folder")
    env = {
        "TINYATTN_JIT": "1",
        "NUMBA_DISABLE_JIT": "0",
        "PYTHONPATH": os.pathsep.join([str(package.parent), *FOLDERS]),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "LOCALAPPDATA": str(home),
        "NUMBA_CACHE_DIR": "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    flags = ("-P", "-W", "error")  # -P: not the folder we are in, but the copy
    out = run_python(ONE_KERNEL, env=env, args=[package.parent], flags=flags)
    assert out.strip() == "[[[[0.5, 0.5, 0.0]]]]"


def test_import_is_lean_and_leaves_no_trace():
    code = """
import os, random, signal, sys, threading, warnings
import numpy as np
def threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
def state():
    return (np.geterr(), np.random.get_state()[1].tolist(), random.getstate(),
            list(warnings.filters), dict(os.environ), np.get_printoptions(),
            sys.getrecursionlimit(), sorted(sys.path), sys.excepthook, os.getcwd(),
            signal.getsignal(signal.SIGINT), threading.active_count(), threads())
np.random.seed(5); random.seed(5)
before = state()
loaded = set(sys.modules)
import tinyattn
heavy = {"numba", "matplotlib", "safetensors", "cupy", "torch", "scipy", "tqdm", "sklearn",
         "hypothesis", "pytest", "tinyattn.viz", "tinyattn.kernels.cpu", "llvmlite"}
assert not heavy & (set(sys.modules) - loaded), heavy & set(sys.modules)
from tinyattn import nn, optim, functional, masks
assert not heavy & (set(sys.modules) - loaded), heavy & set(sys.modules)
x = tinyattn.randn(3, 4)
assert not heavy & (set(sys.modules) - loaded), heavy & set(sys.modules)
after = state()
for one, two in zip(before, after):
    assert one == two, (one, two)
"""
    run_python(code)


def test_computing_leaves_no_trace_either():
    before = np.geterr(), np.random.get_state()[1].tolist(), np.get_printoptions()
    environment = dict(os.environ)
    kernel_tour()
    with contextlib.suppress(ValueError):
        F.masked_softmax(ta.zeros(1, 1, 2), [5])
    F.softmax(ta.tensor([float("inf"), 1.0]))
    F.dropout(ta.ones(100), 0.5)
    after = np.geterr(), np.random.get_state()[1].tolist(), np.get_printoptions()
    assert before == after
    assert environment == dict(os.environ)


@needs_numba
def test_compiled_kernels_run_in_threads_and_give_what_one_thread_gives():
    """They release the GIL and share nothing."""
    from concurrent.futures import ThreadPoolExecutor

    rng = rng_of(19)
    inputs = [signed(rng, 2, 2, 16, 33).astype(np.float32) for _ in range(16)]
    expected = [cpu.masked_softmax(x, None, None) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda x: cpu.masked_softmax(x, None, None), inputs))
            for one, two in zip(found, expected, strict=True):
                assert_same(one, two)
