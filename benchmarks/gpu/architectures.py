"""What NVIDIA documents of its architectures and cards, and what follows from it by arithmetic."""

from __future__ import annotations

from typing import NamedTuple


class Architecture(NamedTuple):
    """Limits of a multiprocessor: NVIDIA, "CUDA C++ Programming Guide", Compute Capabilities."""

    name: str
    threads: int
    blocks: int
    shared: int  # bytes for all blocks
    per_block: int  # bytes of shared memory for one block, at most
    reserved: int  # bytes that each block takes beside its own


REGISTERS = 65536  # of a multiprocessor, given to warps in units of 256; of a thread at most 255
ARCHITECTURES = (
    Architecture("sm_75", 1024, 16, 64 * 1024, 64 * 1024, 0),
    Architecture("sm_80", 2048, 32, 164 * 1024, 163 * 1024, 1024),
    Architecture("sm_90", 2048, 32, 228 * 1024, 227 * 1024, 1024),
)


def occupancy(architecture: Architecture, threads: int, registers: int, shared: int) -> float:
    """The part of a multiprocessor's warps that may be there at once."""
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // 256) * 256
    # Each of the four parts of a multiprocessor has a quarter of the registers.
    by_registers = REGISTERS // 4 // of_warp * 4 // warps
    taken = -(-shared // 256) * 256 + architecture.reserved  # units of 256 bytes, or of 128
    by_memory = architecture.shared // taken if taken else architecture.blocks
    blocks = min(architecture.blocks, architecture.threads // threads, by_registers, by_memory)
    return blocks * warps * 32 / architecture.threads
