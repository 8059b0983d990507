"""Without Numba, without its compiler, without a cache; and nothing is left behind in any case."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from common import (
    FOLDERS,
    assert_close,
    assert_same,
    rng_of,
    run_python,
    signed,
)
from kernel_checks import (
    cpu,
    needs_numba,
)
from kernel_table import kernel_tour
from test_tiled_attention import compiled

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
from kernel_table import kernel_tour
results = kernel_tour()
{after}
np.savez(sys.argv[1], **results)
"""


def tour_elsewhere(tmp_path, before="", after="", env=None, **options):
    path = tmp_path / "tour.npz"
    run_python(TOUR.format(before=before, after=after), env=env, args=[path], **options)
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_kernels_agree_with_the_switch_off(tmp_path):
    # Large arrays too, because some kernels are asked for by name, without a formula.
    found = tour_elsewhere(
        tmp_path,
        after="import tinyattn as ta\n"
        "ta.functional.silu(ta.ones(5000, dtype=ta.float16))\n"
        "assert 'numba' not in sys.modules",
        env={"TINYATTN_JIT": "0"},
    )
    compare_tours(found, kernel_tour())


# What may be missing: how a process is made to miss it, and what it is told, once.
MISSING = {
    "Numba": ("sys.modules['numba'] = None", "tinyattn computes with plain NumPy"),
    "SciPy": ("sys.modules['scipy'] = None", "tinyattn computes with plain NumPy"),
    "SciPy's linear algebra": (
        "sys.modules['scipy.linalg.cython_blas'] = None",
        "tinyattn computes with plain NumPy",
    ),
    "threadpoolctl": ("sys.modules['threadpoolctl'] = None", None),
    "Numba's events": (
        "import numba.core.event; del numba.core.event; sys.modules['numba.core.event'] = None",
        None,
    ),
    "Numba's lock": (
        "import numba; numba.njit(lambda x: x)(1)\n"
        "sys.modules['numba.core.compiler_lock'] = type(sys)('empty')",
        None,
    ),
    "the statistics of kernels": (
        "from numba.core.dispatcher import Dispatcher; del Dispatcher.stats",
        None,
    ),
}


@needs_numba
@pytest.mark.parametrize("name", MISSING)
def test_kernels_agree_where_something_is_missing(tmp_path, name):
    """With the reason said once, or as fast as before."""
    before, said = MISSING[name]
    found = tour_elsewhere(
        tmp_path,
        before="import warnings\n"
        "record = warnings.catch_warnings(record=True)\n"
        "messages = record.__enter__(); warnings.simplefilter('always')\n" + before,
        after=f"texts = [str(m.message) for m in messages]; said = {said!r}\n"
        "assert len(texts) == (said is not None), texts\n"
        "assert said is None or texts[0].startswith(said), texts",
        env={"TINYATTN_JIT": "1"},
    )
    compare_tours(found, kernel_tour())


@needs_numba
def test_a_kernel_is_compiled_without_the_data_of_events(tmp_path):
    """They are looked at only while a kernel is compiled, so one without a cache is enough."""
    code = """
import numpy as np
from numba.core import event
del event.Event.data
from common import kernels
x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
found, expected = kernels.softmax(x), np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
assert np.abs(found - expected).max() < 1e-6
"""
    run_python(code, env={"TINYATTN_JIT": "1", "NUMBA_CACHE_DIR": str(tmp_path)})


def test_whole_model_trains_without_numba_and_agrees(tmp_path):
    code = """
import sys, warnings
sys.modules["numba"] = None
warnings.simplefilter("ignore")
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
from tinyattn.kernels import cpu
from tinyattn.kernels.visibility import of_padded
assert tinyattn.__file__.startswith(sys.argv[1]), tinyattn.__file__
x = np.array([[0.0, 0.0, 5.0]], np.float32).reshape(1, 1, 1, 3)
softmax = cpu.kernel("softmax.masked_softmax")
print(softmax(x, of_padded(x.shape, limits=np.array([[2]]))).tolist())
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


ONE_SMALL_KERNEL = """
import numpy as np
from tinyattn.kernels import cpu_kernel
x = np.array([-1.0, 2.0], np.float32)
print(cpu_kernel("elementwise.relu_backward")(x, x).tolist())
"""


@needs_numba
@compiled
def test_a_change_in_a_file_that_kernels_import_reaches_them(tmp_path):
    """Numba looks only at the file in which a kernel itself stands."""
    package = copied_package(tmp_path)
    source = package / "kernels" / "cpu" / "row_functions.py"
    env = {"PYTHONPATH": str(package.parent), "TINYATTN_JIT": "1", "NUMBA_CACHE_DIR": ""}
    code = """
import numpy as np
from tinyattn.kernels import cpu_kernel
print(cpu_kernel("softmax.softmax")(np.zeros((1, 2), np.float32)).tolist()[0])
"""
    text, results = source.read_text(), []
    for change in (text, text, text.replace("return sum_of_lanes(lanes)", "return 1.0"), text):
        source.write_text(change)
        results.append(eval(run_python(code, env=env, flags=("-P",)))[0])
    assert results == [0.5, 0.5, 1.0, 0.5]


@needs_numba
@compiled
def test_stale_code_is_deleted_and_nothing_else(tmp_path):
    from tinyattn.kernels.cpu import compiler

    class Kernel:
        class stats:
            cache_path = str(tmp_path / "cache")

    folder = tmp_path / "cache"
    compiler.delete_stale_code(Kernel)  # the folder is missing: Numba may make it later
    names = [
        "softmax.masked_softmax_rows-12.py311.nbi", "softmax.masked_softmax_rows-12.py311.1.nbc",
        "tiled_attention.attention_heads-1.py311.nbi", "other.kernel-1.py311.nbi",
        "softmax.cpython.pyc", "softmaxes.rows-1.py311.nbi",
    ]  # fmt: skip

    def fill():
        for name in names:
            (folder / name).write_text("code")

    def left():
        return {path.name for path in folder.iterdir()} - {compiler.STAMP}

    fill()
    compiler.delete_stale_code(Kernel)  # the stamp is there, and right
    assert left() == set(names)
    (folder / compiler.STAMP).write_text("of yesterday")
    compiler.delete_stale_code(Kernel)
    assert left() == set(names[3:])
    fill()
    (folder / compiler.STAMP).unlink()
    compiler.delete_stale_code(Kernel)
    assert left() == set(names[3:])
    assert len((folder / compiler.STAMP).read_text()) == 64


@needs_numba
def test_a_folder_of_machine_code_that_cannot_be_written_does_no_harm(tmp_path):
    from tinyattn.kernels.cpu import compiler

    class Kernel:
        class stats:
            cache_path = str(tmp_path / "file" / "cache")

    (tmp_path / "file").write_text("not a folder")
    compiler.delete_stale_code(Kernel)
    assert (tmp_path / "file").read_text() == "not a folder"


@needs_numba
@compiled
def test_two_processes_delete_stale_code_at_once(tmp_path):
    """Both compute; and the next one finds what they compiled."""
    env = {"TINYATTN_JIT": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    stamp = "tinyattn_sources.sha256"
    run_python(ONE_SMALL_KERNEL, env=env)
    (found,) = tmp_path.rglob(stamp)
    for _ in range(2):
        found.write_text("of yesterday")
        with ThreadPoolExecutor(2) as pool:
            outs = list(pool.map(lambda _: run_python(ONE_SMALL_KERNEL, env=env), range(2)))
        assert outs == ["[0.0, 2.0]\n"] * 2
    code = ONE_SMALL_KERNEL + "\nfrom tinyattn.kernels.cpu.elementwise import relu_elements\n"
    code += "assert sum(relu_elements.stats.cache_hits.values()) == 1\n"
    run_python(ONE_SMALL_KERNEL, env=env)
    run_python(code, env=env)
    assert [path.name for path in found.parent.glob("*sha256*")] == [stamp]


@needs_numba
@compiled
def test_a_line_says_that_kernels_are_compiled_only_where_they_are(tmp_path):
    code = """
import contextlib, io, sys
import numba, numpy as np
said = io.StringIO()
with contextlib.redirect_stderr(said):
    import tinyattn as ta
    from tinyattn import functional as F
    from tinyattn.kernels.compiled import cpu_kernels
    cpu_kernels()
    numba.njit(lambda x: x + 1)(1)  # not ours
    assert not said.getvalue()
    F.dropout(F.softmax(ta.ones(2, 3)), 0.5), F.layer_norm(ta.ones(2, 3), (3,))
print(said.getvalue())
"""
    env = {"TINYATTN_JIT": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert (
        run_python(code, env=env).strip()
        == "compiling kernels, each once: five to fifteen seconds in all"
    )
    assert run_python(code, env=env).strip() == ""


@needs_numba
@compiled
def test_garbage_is_collected_as_before_after_kernels_are_compiled_and_not_meanwhile(tmp_path):
    code = """
import gc
from numba.core import event
import tinyattn as ta
from tinyattn import functional as F
from tinyattn.kernels.compiled import cpu_kernels
cpu_kernels()

class Seen(event.Listener):
    collected = []
    def on_start(self, compilation):
        self.collected.append(gc.isenabled())
    def on_end(self, compilation):
        pass

event.register("numba:compile", Seen())
F.sigmoid(ta.ones(3))
assert gc.isenabled()
gc.disable()
F.layer_norm(ta.ones(2, 3), (3,))
print(gc.isenabled(), set(Seen.collected), len(Seen.collected) > 1)
"""
    env = {"TINYATTN_JIT": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert run_python(code, env=env).strip() == "False {False} True"


def test_a_program_for_pytorch_runs_without_scipy():
    code = """
import sys
sys.modules["scipy"] = None
import tinyattn.torch_names as torch
model = torch.nn.Linear(2, 1)
torch.nn.init.xavier_uniform_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(3, 2)).sum().backward()
optimizer.step()
"""
    run_python(code, env={"TINYATTN_JIT": "0"})


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
         "threadpoolctl", "hypothesis", "pytest", "llvmlite", "tinyattn.viz",
         "tinyattn.kernels.cpu"}
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
    rng = rng_of(19)
    inputs = [signed(rng, 2, 2, 16, 33).astype(np.float32) for _ in range(16)]
    expected = [cpu.masked_softmax(x, None) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda x: cpu.masked_softmax(x, None), inputs))
            for one, two in zip(found, expected, strict=True):
                assert_same(one, two)


@needs_numba
@compiled
def test_another_thread_runs_while_a_kernel_does():
    """Because it releases the GIL, for which Python would make the other wait 1,000 seconds here.
    On a busy machine some kernels end before another thread is awake."""
    from tinyattn.kernels.cpu.layout import as_rows
    from tinyattn.kernels.cpu.softmax import log_softmax_rows

    x, out = as_rows(np.zeros((4000, 1000), np.float32)), np.empty((4000, 1000), np.float32)
    log_softmax_rows(x[:1], out[:1])
    gate, first = threading.Lock(), []

    def compute():
        gate.release()
        log_softmax_rows(x, out)
        first.append("the kernel")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        with ThreadPoolExecutor(1) as pool:
            for _ in range(50):
                first.clear()
                gate.acquire()
                kernel = pool.submit(compute)
                with gate:
                    first.append("another thread")
                kernel.result()
                if first[0] == "another thread":
                    break
    finally:
        sys.setswitchinterval(before)
    assert first == ["another thread", "the kernel"]
