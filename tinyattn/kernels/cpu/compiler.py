"""How kernels are compiled: `numba.njit` with our settings, and a cache that does not go stale.

A kernel is an ordinary Numba function: in a notebook, with `@numba.njit` above it, it runs too.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numba

COMPILED = not numba.config.DISABLE_JIT  # else kernels run as Python
CONTRACT = {"contract"}  # a * b + c in one instruction
# Reordering sums lets them use vector instructions; nothing else is relaxed.
FAST_SUMS = {"reassoc", "contract", "nsz"}
SETTINGS = {"nogil": True, "error_model": "numpy"}
FOLDER = Path(__file__).parent
STAMP = "tinyattn_sources.sha256"


def jit(function: Any = None, *, fastmath: Any = CONTRACT) -> Any:
    """`numba.njit` for a kernel, which Python calls. Its machine code is kept on the disk."""
    if function is None:
        return partial(jit, fastmath=fastmath)
    try:
        return numba.njit(cache=True, fastmath=fastmath, **SETTINGS)(function)
    except RuntimeError:  # no folder for the cache can be written
        return numba.njit(fastmath=fastmath, **SETTINGS)(function)


def inner(function: Any = None, *, fastmath: Any = CONTRACT) -> Any:
    """`numba.njit` for a function that only kernels call: it becomes part of their machine code."""
    if function is None:
        return partial(inner, fastmath=fastmath)
    return numba.njit(fastmath=fastmath, **SETTINGS)(function)


def delete_stale_code(kernel: Any) -> None:
    """Delete the machine code that Numba keeps of kernels, if a file in this folder has changed.

    Numba compiles a kernel again when its own file has changed. It does not look at the files that
    this one imports (https://github.com/numba/numba/issues/1833): without this function, a change
    in row_functions.py would reach no softmax.
    """
    folder = getattr(getattr(kernel, "stats", None), "cache_path", None)
    if folder is None:  # nothing is kept
        return
    sources = sorted(FOLDER.glob("*.py"))
    stamp = Path(folder, STAMP)
    # Another process may do the same, and the folder may be read-only: both do no harm.
    with suppress(OSError):
        current = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        if stamp.is_file() and stamp.read_text() == current:
            return
        for source in sources:
            for path in stamp.parent.glob(f"{source.stem}.*.nb[ic]"):
                path.unlink(missing_ok=True)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        temporary = stamp.with_suffix(f".{os.getpid()}")
        temporary.write_text(current)
        temporary.replace(stamp)


def announce_compilation() -> None:
    """Log a line when the first kernel is compiled, because the caller waits for it."""
    try:
        from numba.core import event

        class Announcement(event.Listener):
            is_said = False

            def on_start(self, compilation: Any) -> None:
                with suppress(AttributeError, KeyError, TypeError):  # another Numba's event
                    function = compilation.data["dispatcher"].py_func
                    if not self.is_said and function.__module__.startswith(__package__):
                        self.is_said = True
                        logger = logging.getLogger("tinyattn")
                        logger.warning("compiling kernels, once: about ten seconds")

            def on_end(self, compilation: Any) -> None:
                """Nothing to say."""

        event.register("numba:compile", Announcement())
    except (ImportError, AttributeError):  # another Numba has no such event: nothing is said
        return
