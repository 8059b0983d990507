"""Freed memory stays in the process, where malloc is glibc's and the user has not chosen."""

from __future__ import annotations

import os
import sys

import pytest
from common import run_python

CODE = """
import resource
import numpy as np
from tinyattn.kernels.compiled import cpu_kernels

cpu_kernels()  # what the first array asks for

def faults():  # pages that the system gave
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = faults()
for _ in range(20):
    [np.ones(1 << 20, np.uint8) for _ in range(8)]  # 2048 pages
print(faults() - before)
"""
IS_GLIBC = sys.platform == "linux" and "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "")
FREE = [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]


@pytest.mark.skipif(not IS_GLIBC, reason="the malloc of glibc")
def test_freed_arrays_are_used_again_unless_the_user_chose(monkeypatch):
    for name in FREE:
        monkeypatch.delenv(name)
    assert int(run_python(CODE, env={"TINYATTN_JIT": "0"})) < 4000
    chosen = {"TINYATTN_JIT": "0", "MALLOC_MMAP_THRESHOLD_": "131072"}
    assert int(run_python(CODE, env=chosen)) > 30000


@pytest.mark.parametrize("version", [None, "", ValueError, AttributeError])
def test_another_c_library_is_left_alone(monkeypatch, version):
    from tinyattn.kernels import malloc

    def confstr(name):
        if isinstance(version, type):
            raise version(name)
        return version

    for name in FREE:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "confstr", confstr)
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: pytest.fail("mallopt was called"))
    malloc.keep_freed_memory()
