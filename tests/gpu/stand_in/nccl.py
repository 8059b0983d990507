"""The few names of `cupy.cuda.nccl` that tinyattn uses, on the memory of the host and over MPI."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .graphs import get_current_stream

NCCL_SUM, NCCL_FLOAT32, NCCL_FLOAT64 = 0, 7, 8
DTYPES: dict[int, type] = {NCCL_FLOAT32: np.float32, NCCL_FLOAT64: np.float64}
NAMES = ("NCCL_SUM", "NCCL_FLOAT32", "NCCL_FLOAT64", "get_unique_id", "NcclCommunicator.allReduce")


def get_unique_id() -> tuple[int, ...]:
    return tuple(range(128))


class NcclCommunicator:
    calls = 0

    def __init__(self, ndev: int, commId: tuple[int, ...], rank: int) -> None:
        from mpi4py import MPI

        self.MPI, self.comm = MPI, MPI.COMM_WORLD
        assert (ndev, rank) == (self.comm.size, self.comm.rank)
        assert commId == get_unique_id()

    def allReduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: Any
    ) -> None:
        assert op == NCCL_SUM
        assert stream == get_current_stream().ptr, "not after what computes the array"
        assert sendbuf == recvbuf
        dtype = np.dtype(DTYPES[datatype])
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(sendbuf)
        self.comm.Allreduce(self.MPI.IN_PLACE, np.frombuffer(memory, dtype))
        NcclCommunicator.calls += 1
