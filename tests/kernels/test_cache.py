"""The folder of compiled kernels may be full or damaged; Ctrl-C and forks while they compile."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
from common import run_python
from kernel_checks import needs_numba

# A kernel of float32 that gives [0.5, 0.5], and one that changes its arrays in place.
PROGRAM = """
import warnings
with warnings.catch_warnings(record=True) as messages:
    warnings.simplefilter("always")
    import tinyattn as ta
    from tinyattn import functional as F, optim
    print(F.softmax(ta.zeros(1, 2)).tolist())
    w, v = ta.ones(2, requires_grad=True), ta.ones(2, dtype=ta.float64, requires_grad=True)
    w.grad, v.grad = ta.ones(2), ta.ones(2, dtype=ta.float64)
    optim.SGD([w, v], lr=0.5).step()
    optim.Adam([w, v], lr=0.25).step()
    print([round(x, 4) for x in w.tolist() + v.tolist()])
print([str(m.message)[:34] for m in messages])
"""
RIGHT = ["[[0.5, 0.5]]", "[0.25, 0.25, 0.25, 0.25]"]
WARNING = "['Numba cannot keep compiled kernels']"


def lines_of(program, folder):
    env = {"TINYATTN_JIT": "1", "NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(folder)}
    return run_python(program, env=env).strip().splitlines()


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder of compiled kernels, to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    assert lines_of(PROGRAM, folder) == [*RIGHT, "[]"]
    return folder


@needs_numba
@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
@pytest.mark.parametrize("length", [0, 40, -1])
def test_a_damaged_file_is_compiled_anew_with_one_warning(filled, tmp_path, ending, length):
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    files = list(tmp_path.rglob(f"*{ending}"))
    assert len(files) > 1
    for file in files:
        file.write_bytes(file.read_bytes()[:length])
    assert lines_of(PROGRAM, tmp_path) == [*RIGHT, WARNING]
    assert lines_of(PROGRAM, tmp_path) == [*RIGHT, "[]"]


@needs_numba
@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no file sizes")
def test_a_full_disk_costs_one_warning(tmp_path):
    """No file may be longer than 3,000 bytes: the system says so, as if the disk were full."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
    assert lines_of(limit + PROGRAM, tmp_path) == [*RIGHT, WARNING]


@needs_numba
@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no file sizes")
def test_a_full_disk_repeats_no_chunk_that_is_finished(tmp_path):
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
import warnings
warnings.simplefilter("ignore")
import numpy as np, tinyattn as ta
from tinyattn import optim
ta.set_num_threads(2)
w = ta.zeros(2_000_000, requires_grad=True)
w.grad = ta.ones(2_000_000)
adam = optim.Adam([w])
adam.step()
print(np.unique(adam.state["m"][0].round(4)).tolist() == [np.float32(0.1)])
"""
    assert lines_of(program, tmp_path) == ["True"]


@needs_numba
def test_an_error_of_the_kernel_itself_is_raised_as_it_is():
    from tinyattn.kernels.cpu import compiler

    calls = []

    def failing():
        calls.append(1)
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        compiler.retrying(failing)()
    assert len(calls) == 1


INTERRUPTED = """
import llvmlite.binding as llvm
import tinyattn as ta
from tinyattn import functional as F

interrupts, found = True, llvm.ExecutionEngine._find_module_ptr
def find(self, pointer):
    if interrupts:
        raise KeyboardInterrupt  # as Ctrl-C does; ctypes prints it and goes on
    return found(self, pointer)
llvm.ExecutionEngine._find_module_ptr = find
try:
    F.softmax(ta.zeros(1, 2))
except KeyboardInterrupt:
    print("interrupted")
interrupts = False
print(F.softmax(ta.zeros(1, 2)).tolist())
"""


@needs_numba
def test_ctrl_c_while_llvm_compiles_is_a_keyboard_interrupt(tmp_path):
    assert lines_of(INTERRUPTED, tmp_path) == ["interrupted", RIGHT[0]]


FORKED = """
import os, sys, threading, time
import tinyattn as ta
from tinyattn import functional as F
from tinyattn.kernels import cpu
from numba.core import event

class Begun(event.Listener):
    begun = threading.Event()
    def on_start(self, compilation):
        self.begun.set()
    def on_end(self, compilation):
        pass

event.register("numba:compile", Begun())
thread = threading.Thread(target=lambda: F.softmax(ta.zeros(1, 2)))
thread.start()
Begun.begun.wait()
child = os.fork()
if child == 0:
    print(F.log_softmax(ta.zeros(1, 1)).tolist(), flush=True)
    os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


@needs_numba
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_while_another_thread_compiles_does_not_hang(tmp_path):
    assert lines_of(FORKED, tmp_path) == ["[[0.0]]"]
