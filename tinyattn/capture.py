"""A training step captured as a CUDA graph: recorded once, then launched as a whole.

A small model's step is hundreds of launches of a few microseconds each, and asking for them takes
longer than running them. A graph is asked for once:

    step = ta.capture(step, ids, targets)
    for ids, targets in batches:
        loss = step(ids, targets)

What a graph replays are the launches, with the addresses and numbers they had. So what changes from
step to step has to lie on the device: the inputs, which are copied into fixed arrays; the number of
replays, from which dropout makes a fresh mask each time; Adam's corrections and rate. All memory of
the step comes from a pool of its own, which nobody else is given memory from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import backend
from .autograd import wrap
from .backend import Array
from .errors import DtypeError, GraphError, ShapeError
from .kernels import late_errors
from .tensor import Tensor


def capture(step: Callable[..., Any], *inputs: Any, warm_up: int = 2) -> Captured:
    """A function that does what `step(*inputs)` does, by launching a CUDA graph of it.

    step: a training step on "cuda": forward, zero_grad(), backward(), clip_grad_norm_ if wanted,
        optimizer.step(); returns a Tensor, several, or None. Adam and AdamW can be captured.
    inputs: arrays or Tensors of the shapes and dtypes every later call will have; the step gets
        them as Tensors on "cuda".
    warm_up: how often the step is run before it is recorded, to make its memory and compile its
        kernels. These are steps like any other: the model learns from `inputs`.

    What the returned function gives is overwritten by its next call. Learning rates may change
    between calls, by a schedule for instance. Anything else that Python does in the step happens
    once, when it is recorded. Raises GraphError if the step waits for the device (`item()`,
    printing, a boolean index), or uses another optimizer.
    """
    return Captured(step, inputs, warm_up)


class Captured:
    """What `capture` returns. While the step is recorded, the rest of tinyattn finds this object
    in `backend.capture` and asks it for what is different in a graph."""

    def __init__(self, step: Callable[..., Any], inputs: Sequence[Any], warm_up: int) -> None:
        if warm_up < 1:
            raise ValueError(f"capture needs at least one step of warm_up, got {warm_up}")
        self.xp = xp = backend.module_of("cuda")
        if backend.capture is not None:
            raise GraphError("a step that is being captured cannot capture another one")
        self.stream = xp.cuda.Stream(non_blocking=True)
        self.uploads = xp.cuda.Stream(non_blocking=True)
        self.pool = xp.cuda.MemoryPool()
        self.recording = False
        self.kept: list[Any] = []  # what the graph reads and nobody else may hold any more
        self.replays: list[Callable[[], None]] = []  # what Python has to do before each launch
        self.outputs: Any = None
        from .kernels.gpu.cublas import Handle

        self.wait(xp.cuda.get_current_stream(), self.stream)
        with xp.cuda.using_allocator(self.pool.malloc), self.stream:
            self.inputs = [Tensor(value, device="cuda") for value in inputs]
            self.draws = xp.zeros((), np.int64)
            self.blas = Handle(xp, self.stream.ptr)
            backend.capture = self
            try:
                for _ in range(warm_up):
                    self.run(step)
                self.stream.synchronize()
                self.record(step)
            finally:
                backend.capture = None
        self.wait(self.stream, xp.cuda.get_current_stream())

    def run(self, step: Callable[..., Any]) -> None:
        self.replays.clear()
        self.outputs = detached(step(*self.inputs))
        self.draws += 1

    def record(self, step: Callable[..., Any]) -> None:
        """The step's launches as a graph; then launched, so that the recording is a step too."""
        self.stream.begin_capture()
        self.recording = True
        error: Exception | None = None
        try:
            self.run(step)
        except Exception as caught:
            error = caught
        self.recording = False
        try:
            self.graph = self.stream.end_capture()
        except Exception as caught:
            error = error or caught
        if error is not None:
            raise GraphError(
                f"the step cannot be captured: {error} (does it read a value back, with item() or "
                "a boolean index, or use an optimizer other than Adam and AdamW?)"
            ) from error
        self.kept.append(late_errors.notes())
        self.graph.launch(self.stream)

    def __call__(self, *inputs: Any) -> Any:
        """Copy the inputs to where the graph reads them, and launch it."""
        if len(inputs) != len(self.inputs):
            raise TypeError(f"the captured step takes {len(self.inputs)} inputs, got {len(inputs)}")
        arrays = [value._data if isinstance(value, Tensor) else value for value in inputs]
        arrays = [array if backend.is_array(array) else np.asarray(array) for array in arrays]
        for i, (array, fixed) in enumerate(zip(arrays, self.inputs, strict=True)):
            if array.shape != fixed.shape:
                raise ShapeError(f"input {i} was captured as {fixed.shape}, got {array.shape}")
            if array.dtype != fixed.dtype:
                raise DtypeError(f"input {i} was captured as {fixed.dtype}, got {array.dtype}")
        current = self.xp.cuda.get_current_stream()
        self.wait(current, self.stream)
        with self.stream:
            for array, fixed in zip(arrays, self.inputs, strict=True):
                if type(array) is np.ndarray:
                    fixed._data.set(np.asarray(array, order="C"), self.stream)
                else:
                    fixed._data[...] = array
            for replay in self.replays:
                replay()
            self.graph.launch(self.stream)
        self.wait(self.stream, current)
        return self.outputs

    @staticmethod
    def wait(first: Any, then: Any) -> None:
        """What is asked of stream `then` from now on comes after all that was asked of `first`."""
        then.wait_event(first.record())

    # What the library asks while a step is recorded

    def matmul(self, x: Array, y: Array) -> Array:
        return self.blas.matmul(x, y)

    def upload(self, array: np.ndarray) -> Array:
        """A constant of the step on the device. Were the copy recorded, each replay would read the
        host's memory again, which by then is somebody else's."""
        if not self.recording:
            return self.xp.asarray(array)
        with self.uploads:
            found = self.xp.asarray(array)
        self.uploads.synchronize()
        self.kept.append(found)
        return found

    def numbers(self, compute: Callable[[], Sequence[float]]) -> Array:
        """Numbers that change with every step, computed anew before each launch: float64."""
        found = self.upload(np.array(compute(), np.float64))
        if self.recording:
            self.replays.append(lambda: found.set(np.array(compute(), np.float64), self.stream))
        return found


def detached(outputs: Any) -> Any:
    """Tensors without their graph, which has been freed by backward."""
    if isinstance(outputs, Tensor):
        return wrap(outputs._data)
    if isinstance(outputs, (tuple, list)):
        return type(outputs)(detached(output) for output in outputs)
    return outputs
