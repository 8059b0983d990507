"""The stand-in's RawModule: a kernel's own source, compiled for the host and run thread by thread.

Every array goes to the kernel within margins that no kernel may touch, filled with NaN: a read
beside the array shows in the result, a write beside it is an error. Arguments are checked against
the kernel's parameters, which on the device nobody does.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import ndarray
from .functions import Device
from .tasks import task

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")
MARGIN = 512
orders = itertools.count(1)  # the order of the threads differs from launch to launch
launches: list[str] = []  # the kernels that ran


class CompileError(Exception):
    """The compiler refuses the source."""


class KernelError(Exception):
    """A kernel did what on the device is undefined."""


def build_folder() -> Path:
    """Where compiled sources are kept, by their content, from one run to the next."""
    folder = Path(os.environ.get("TINYATTN_TEST_CACHE", Path(tempfile.gettempdir())))
    folder = folder / f"tinyattn-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class Races:
    """Whether launches look for races, which takes some ten times as long."""

    looked_for = False


@functools.cache
def compiled(code: str, options: tuple[str, ...], races: bool) -> ctypes.CDLL:
    if COMPILER is None:
        raise CompileError("no g++ here")
    names = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\(.*?\) )?(\w+)', code)
    source = f'#include "{HERE / "block.h"}"\n' + code
    source += "".join(f"\nEXPORT({name})" for name in names)
    flags = ["-O1", "-std=c++17", "-fPIC", "-ffp-contract=off", "-w", "-U_FORTIFY_SOURCE", *options]
    # Or the shared memory of one library would be that of another with the same functions.
    flags += ["-fno-gnu-unique"]
    flags += ["-fsanitize=thread"] if races else []
    content = source + (HERE / "block.h").read_text() + " ".join(flags)
    key = hashlib.sha256(content.encode()).hexdigest()[:24]
    library = build_folder() / f"{key}.so"
    if not library.exists():
        # Its own name first: two runs may be compiling the same source.
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            path = Path(folder) / "kernel.cpp"
            path.write_text(source)
            # In two steps, because one would add the compiler's own functions for races.
            object_file, shared = f"{folder}/kernel.o", f"{folder}/kernel.so"
            for command in (
                [COMPILER, *flags, "-c", str(path), "-o", object_file],
                [COMPILER, "-shared", object_file, "-o", shared],
            ):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise CompileError(done.stderr)
            os.replace(shared, library)
    return ctypes.CDLL(str(library))


def strides_follow(array: ndarray, rest: tuple[Any, ...]) -> bool:
    """Whether the next arguments are the strides of an array, all but the last, which is 1."""
    strides = [stride // array.itemsize for stride in array.strides]
    told = [number for number in rest[: array.ndim - 1] if type(number) is int]
    return told == strides[:-1] and (strides[-1] == 1 or array.shape[-1] == 1)


def margined(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Memory with margins around a copy of an array, and the copy, with the array's strides."""
    strides = array.strides
    if array.flags.c_contiguous:  # then the strides of single elements may be anything
        strides = np.empty(array.shape, array.dtype).strides
    if any(stride < 0 for stride in strides):
        raise KernelError("an array that lies backwards")
    span = array.itemsize + sum(
        (n - 1) * stride for n, stride in zip(array.shape, strides, strict=True)
    )
    memory = np.full((span if array.size else 0) + 2 * MARGIN, 0xFF, np.uint8)
    inside = np.ndarray(array.shape, array.dtype, memory, MARGIN, strides)
    inside[...] = array
    return memory, inside


class RawModule:
    """cupy.RawModule(code=..., options=...)."""

    def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
        self.code = code
        self.options = tuple(option for option in options if option.startswith("-D"))

    def get_function(self, name: str) -> RawKernel:
        return RawKernel(self, name)


class RawKernel:
    """cupy.RawKernel: called with a grid, a block and arguments."""

    def __init__(self, module: RawModule, name: str) -> None:
        self.module, self.name = module, name
        signature = getattr(self.library(), f"signature_{name}")
        signature.restype = ctypes.c_char_p
        self.kinds = signature().decode().split()
        self.asked: dict[int, int] = {}  # the shared memory that each device was asked for

    def library(self) -> ctypes.CDLL:
        return compiled(self.module.code, self.module.options, Races.looked_for)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """That of the current device, as in CuPy."""
        return self.asked.get(Device.current, 48 * 1024)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        if size > Device.shared_memory:
            raise KernelError(f"{self.name}: the device has less than {size} bytes to share")
        self.asked[Device.current] = size

    @task
    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        if len(args) != len(self.kinds):
            raise KernelError(f"{self.name} takes {len(self.kinds)} arguments, got {len(args)}")
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise KernelError(f"{self.name}: nobody asked for {shared_mem} bytes of shared memory")
        values: list[Any] = []
        guarded: list[tuple[ndarray, np.ndarray, np.ndarray]] = []
        for place, kind in enumerate(self.kinds):
            values.append(self.value(place, kind, args, guarded))
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.pointer(value), ctypes.c_void_p) for value in values)
        )
        geometry = (*grid, 1, 1)[:3] + (*block, 1, 1)[:3]
        launches.append(self.name)
        run = getattr(self.library(), f"launch_{self.name}")
        run.restype = ctypes.c_char_p
        message = run(pointers, (ctypes.c_uint * 6)(*geometry), shared_mem, next(orders))
        if message:
            raise KernelError(f"{self.name}: {message.decode()}")
        for array, memory, inside in guarded:
            end = memory.size - MARGIN
            if (memory[:MARGIN] != 0xFF).any() or (memory[end:] != 0xFF).any():
                raise KernelError(f"{self.name} wrote beside an array of shape {array.shape}")
            if inside.tobytes() != array.array.tobytes():
                array.array[...] = inside

    def value(self, place: int, kind: str, args: tuple[Any, ...], guarded: list[Any]) -> Any:
        arg = args[place]
        if isinstance(arg, ndarray):
            if kind != arg.dtype.name:
                raise KernelError(
                    f"{self.name}: parameter {place} is {kind}, the array {arg.dtype.name}"
                )
            for array, memory, _ in guarded:
                if array is arg:
                    return ctypes.c_void_p(memory.ctypes.data + MARGIN)
            if not arg.flags.c_contiguous and not strides_follow(arg, args[place + 1 :]):
                raise KernelError(
                    f"{self.name}: parameter {place} does not lie in C order, and its strides "
                    "do not follow"
                )
            memory, inside = margined(arg.array)
            guarded.append((arg, memory, inside))
            return ctypes.c_void_p(memory.ctypes.data + MARGIN)
        if type(arg) is float and kind == "float":
            return ctypes.c_double(arg)
        if type(arg) is int and (kind == "int" or (arg == 0 and kind != "float")):
            return ctypes.c_longlong(arg)  # a 0 is a null pointer
        raise KernelError(f"{self.name}: parameter {place} is {kind}, got {arg!r}")
