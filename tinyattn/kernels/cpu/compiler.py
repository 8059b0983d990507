"""How kernels are compiled: `numba.njit` with one set of options, and a cache that is never stale.

A kernel is an ordinary Numba function: in a notebook, with `@numba.njit` above it, it runs too.
"""

import gc
import hashlib
import logging
import os
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numba

CONTRACT = {"contract"}  # a * b + c in one instruction
# Reordering sums lets them use vector instructions; nothing else is relaxed.
FAST_SUMS = {"reassoc", "contract", "nsz"}
SETTINGS = {"nogil": True, "error_model": "numpy"}
FOLDER = Path(__file__).parent
STAMP = "tinyattn_sources.sha256"
_kernels: list[Any] = []  # those whose code is kept
_is_warned = False


# For a function that only kernels call: it becomes part of their machine code.
inner = partial(numba.njit, fastmath=CONTRACT, **SETTINGS)
# So too, but Numba copies the code into each caller. For functions that take or give NamedTuples of
# arrays, because each array that is passed on costs two counts of references.
inlined = partial(inner, inline="always")


def jit(function: Any = None, *, fastmath: Any = CONTRACT) -> Any:
    """`numba.njit` for a kernel, which Python calls. Its machine code is kept on the disk."""
    if function is None:
        return partial(jit, fastmath=fastmath)
    try:
        kernel = inner(function, cache=True, fastmath=fastmath)
        _kernels.append(kernel)
        return kernel
    except RuntimeError:  # no folder for the cache can be written
        return inner(function, fastmath=fastmath)


def delete_stale_code(kernel: Any) -> None:
    """Delete the machine code that Numba keeps of kernels, if a file in this folder has changed.

    Numba compiles a kernel again when its own file has changed. It does not look at the files that
    this one imports (https://github.com/numba/numba/issues/1833): without this function, a change
    in row_functions.py would reach no softmax.
    """
    folder = folder_of(kernel)
    if folder is None:  # nothing is kept
        return
    sources = sorted(FOLDER.glob("*.py"))
    stamp = folder / STAMP
    # Another process may do the same, and the folder may be read-only: both do no harm.
    with suppress(OSError):
        current = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        if stamp.is_file() and stamp.read_text() == current:
            return
        delete_code(folder)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = stamp.with_suffix(f".{os.getpid()}")
        temporary.write_text(current)
        temporary.replace(stamp)


def folder_of(kernel: Any) -> Path | None:
    """Where Numba keeps the machine code of a kernel, if it does."""
    path = getattr(getattr(kernel, "stats", None), "cache_path", None)
    return None if path is None else Path(path)


def delete_code(folder: Path) -> None:
    """Delete the machine code of tinyattn's kernels that Numba keeps there."""
    with suppress(OSError):
        for source in FOLDER.glob("*.py"):
            for path in folder.glob(f"{source.stem}.*.nb[ic]"):
                path.unlink(missing_ok=True)


def is_from_cache(error: Exception) -> bool:
    """True if Numba raised this error while it loaded or saved machine code."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__") == "numba.core.caching" for frame, _ in frames)


def delete_all_code(error: Exception) -> None:
    """Delete the machine code of tinyattn's kernels after an error of the cache, and warn once.

    Numba loads before it compiles a kernel, and saves after. So the call can be repeated after
    this, because one file may be damaged. A Ctrl-C that comes while LLVM compiles is lost in a
    callback, and saving then finds no machine code: the interrupt is raised here.
    """
    global _is_warned
    if "no compiled object" in str(error):
        raise KeyboardInterrupt from None
    for folder in filter(None, set(map(folder_of, _kernels))):
        delete_code(folder)
    if not _is_warned:
        _is_warned = True
        warnings.warn(
            f"Numba cannot keep compiled kernels ({type(error).__name__}: {error}), so this "
            "process compiles those that it needs. NUMBA_CACHE_DIR names another folder for them",
            RuntimeWarning,
            stacklevel=4,
        )


def retrying(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls this one, and calls it again if Numba's cache has failed."""

    @wraps(function)  # which gives it the mark of `takes_formula` too
    def call(*arguments: Any) -> Any:
        for _ in _kernels:  # a call may need several, and each may fail once
            try:
                return function(*arguments)
            except Exception as error:
                if not is_from_cache(error):
                    raise
                delete_all_code(error)
        return function(*arguments)

    return call


def takes_formula(kernel: Any) -> Any:
    """A kernel whose first argument is its formula, for those numbers that it does not take."""
    kernel.takes_formula = True
    return kernel


def watch_compilation() -> None:
    """Log a line when the first kernel is compiled, because the caller waits for it. Pause the
    garbage collector meanwhile, which would search millions of Numba's objects again and again.
    And a fork waits until no thread compiles: its child would wait for ever for Numba's lock."""
    try:
        from numba.core import event
    except ImportError:  # another Numba
        return
    compiles = threading.RLock()  # held by who has Numba's lock, or waits for it
    collected: list[bool] = []  # before each function that is being compiled inside another

    class Lock(event.Listener):
        def on_start(self, _: Any) -> None:
            compiles.acquire()

        def on_end(self, _: Any) -> None:
            compiles.release()

    class Compilation(event.Listener):
        is_said = False

        def on_start(self, compilation: Any) -> None:
            collected.append(gc.isenabled())
            gc.disable()
            with suppress(AttributeError, KeyError, TypeError):  # another Numba's event
                function = compilation.data["dispatcher"].py_func
                if not self.is_said and function.__module__.startswith(__package__):
                    self.is_said = True
                    logger = logging.getLogger("tinyattn")
                    logger.warning("compiling kernels, each once: five to fifteen seconds in all")

        def on_end(self, _: Any) -> None:
            if collected.pop():
                gc.enable()

    event.register("numba:compiler_lock", Lock())
    event.register("numba:compile", Compilation())
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(
            before=compiles.acquire,
            after_in_parent=compiles.release,
            after_in_child=compiles.release,
        )
