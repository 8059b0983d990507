"""The machine code of the CUDA kernels, without a GPU: NVRTC compiles it, nvdisasm reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from tinyattn.kernels.gpu.launch import source

from .architectures import Architecture

BY_CUPY = ("-ftz=true", "--device-as-default-execution-space")  # what it adds to our options
MISSING = 'NVRTC and nvdisasm are missing, install them with: pip install -e ".[nvrtc]"'
PRODUCTS = 8  # a block of instructions with fewer FFMA is no inner loop of a matrix product


def nvdisasm() -> Path | None:
    """The program of NVIDIA's wheel, or the one of a CUDA toolkit."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in Path(folder).glob("*/bin/nvdisasm*"):
            return path
    found = shutil.which("nvdisasm")
    return Path(found) if found else None


def nvrtc() -> Any | None:
    """CuPy's module of that name, if the library is there."""
    if find_spec("cupy") is None:
        return None
    from cupy.cuda import nvrtc

    try:
        nvrtc.getVersion()
    except Exception:
        return None
    return nvrtc


class Instruction(NamedTuple):
    label: str  # in front of it, or ""
    predicate: str
    opcode: str
    operands: str

    @property
    def is_product(self) -> bool:
        """a * b + c of float32, all of them in registers: exp has FFMAs with constants."""
        of_registers = re.fullmatch(r"(-?R\w+(\.reuse)?(, |$)){4}", self.operands)
        return self.opcode.startswith("FFMA") and of_registers is not None

    @property
    def is_float64(self) -> bool:
        return bool(re.match(r"D(ADD|MUL|FMA|SETP|MNMX)|.*F64|MUFU\.\w+64", self.opcode))


class Kernel(NamedTuple):
    """What one kernel needs, and its instructions."""

    name: str
    registers: int
    spills: int  # bytes that are stored to local memory and read again
    shared: int  # bytes that the kernel itself declares
    code: tuple[Instruction, ...]

    def loops(self) -> list[tuple[int, int]]:
        """The first and the last instruction of each loop: a branch goes back to a label."""
        places = {line.label: i for i, line in enumerate(self.code) if line.label}
        found = []
        for i, line in enumerate(self.code):
            to = re.search(r"\.L_x_\d+", line.operands) if line.opcode.startswith("BRA") else None
            if to and places.get(to[0], i + 1) <= i:
                found.append((places[to[0]], i))
        return found

    def blocks(self) -> Iterator[tuple[Instruction, ...]]:
        """The instructions of loops, in pieces that run from their beginning to their end."""
        inside = {i for first, last in self.loops() for i in range(first, last + 1)}
        block: list[Instruction] = []
        for i, line in enumerate(self.code):
            if line.label or i not in inside:
                yield tuple(block)
                block = []
            if i in inside:
                block.append(line)
            if line.opcode.startswith(("BRA", "BAR", "BSYNC", "WARPSYNC")):
                yield tuple(block)
                block = []

    def per_product(self) -> tuple[float, float]:
        """Instructions per FFMA in the inner loops of products: where all numbers are finite, and
        where each product has a condition, because NaN may be there. NaN without such a loop."""
        counts = {True: [0, 0], False: [0, 0]}
        for block in self.blocks():
            products = [line for line in block if line.is_product]
            if len(products) >= PRODUCTS:
                conditional = sum(bool(line.predicate) for line in products) > len(products) / 2
                counts[conditional][0] += len(block)
                counts[conditional][1] += len(products)
        finite, conditional = (
            instructions / products if products else float("nan")
            for instructions, products in (counts[False], counts[True])
        )
        return finite, conditional

    def float64(self) -> tuple[int, int]:
        """The instructions of float64: all, and those in loops that read global memory."""
        over_elements: set[int] = set()
        for first, last in self.loops():
            if any(line.opcode.startswith("LDG") for line in self.code[first : last + 1]):
                over_elements |= set(range(first, last + 1))
        wide = [i for i, line in enumerate(self.code) if line.is_float64]
        return len(wide), len(over_elements.intersection(wide))


def kernels_of(
    file: str, architecture: Architecture, scalar: int = 32, defines: tuple[str, ...] = ()
) -> list[Kernel]:
    """The kernels of a .cu file, as CuPy compiles them for one element type."""
    compiler, reader = nvrtc(), nvdisasm()
    if compiler is None or reader is None:
        raise RuntimeError(MISSING)
    options = ("--std=c++17", f"-DSCALAR={scalar}", *defines, *BY_CUPY)
    program = compiler.createProgram(source(file), f"{file}.cu", (), ())
    try:
        compiler.compileProgram(program, (*options, f"-arch={architecture.name}", "-Xptxas=-v"))
        report = compiler.getProgramLog(program)
        binary = compiler.getCUBIN(program) + b"\0"  # the last byte, which CuPy leaves out
    finally:
        compiler.destroyProgram(program)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(binary)
        command = [str(reader), "-c", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [
        Kernel(name, *resources(report, name), instructions(section))
        for name, section in re.findall(
            r"^\.text\.(\w+):\n(.*?)(?=^\s*\.section|\Z)", text, re.S | re.M
        )
    ]


def resources(report: str, name: str) -> tuple[int, int, int]:
    """Registers, bytes of spills, and bytes of shared memory, from what ptxas reports."""
    found = re.search(
        rf"properties for {name}\n.* (\d+) bytes spill stores, (\d+) bytes spill loads\n"
        r".*Used (\d+) registers(.*)",
        report,
    )
    assert found is not None, report
    shared = re.search(r"(\d+) bytes smem", found[4])
    return int(found[3]), int(found[1]) + int(found[2]), int(shared[1]) if shared else 0


def instructions(section: str) -> tuple[Instruction, ...]:
    found, label = [], ""
    for line in section.splitlines():
        if named := re.match(r"(\.L_\w+):", line):
            label = named[1]
        elif parts := re.match(r"\s+/\*\w+\*/\s+(@!?\w+)?\s*([\w.]+)\s*(.*?)\s*;", line):
            found.append(Instruction(label, parts[1] or "", parts[2], parts[3]))
            label = ""
    return tuple(found)
