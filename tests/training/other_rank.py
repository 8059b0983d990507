"""A stand-in for MPI and the other of two ranks, whose answers a test can choose."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import numpy as np


class Request:
    """It is done when it was asked for the third time, not before."""

    def __init__(self, action):
        self.action, self.asked = action, 0

    def Test(self):
        self.asked += 1
        assert self.asked < 1000, "the rank waits for ever"
        if self.asked == 3 and self.action:
            self.action()
        return self.asked >= 3 and self.action is not None

    @staticmethod
    def Testall(requests):
        return sum(request.Test() for request in requests) == len(requests)


class Other:
    """The other rank, as the communicator of rank 0. Where no answer is set it does the same."""

    rank, size = 0, 2

    def __init__(self):
        self.weights, self.arrays = [], []  # its next answers
        self.differs = None  # its words, if its fingerprint is another
        self.state = None  # what rank 0 sends to it, or it sends as rank 0
        self.silent = False
        self.messages = []  # of ranks that have ended
        self.gathered, self.sums, self.sent, self.aborted = [], [], [], []

    def Iallgather(self, mine, all_ranks):
        self.gathered.append(mine.copy())

        def answer():
            all_ranks[:] = mine
            if self.weights:
                all_ranks[1 - self.rank].view(np.float64)[1] = self.weights.pop(0)
            if self.differs:
                all_ranks[1 - self.rank, 0] += 1

        return Request(None if self.silent else answer)

    def Iallreduce(self, place, array):
        assert place == "in place"
        self.sums.append(array.copy())

        def answer():
            array[...] += self.arrays.pop(0) if self.arrays else array

        return Request(None if self.silent else answer)

    def allgather(self, words):
        return [words, self.differs] if self.rank == 0 else [self.differs, words]

    def bcast(self, state):
        self.state = state if self.rank == 0 else self.state
        return self.state

    def Dup(self):
        return self

    def Split_type(self, kind):
        assert kind == "shared"
        return SimpleNamespace(rank=self.rank, size=self.size)

    def isend(self, message, rank):
        self.sent.append((message, rank))

    def Ibarrier(self):
        return Request(lambda: None)

    def Iprobe(self):
        return bool(self.messages)

    def recv(self):
        return self.messages.pop(0)

    def Abort(self, code):
        self.aborted.append((code, sys.stdout.getvalue(), sys.stderr.getvalue()))


class Written(io.StringIO):
    """A stream that shows what was flushed."""

    flushed = ""

    def flush(self):
        self.flushed = super().getvalue()

    def getvalue(self):
        return self.flushed
