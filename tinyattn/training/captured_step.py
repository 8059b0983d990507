"""A training step as one launch: recorded once as a CUDA graph, then launched as a whole.

A step of a small model is hundreds of launches of a few microseconds each, and asking for them
takes longer than running them. A graph is asked for once:

    step = ta.capture(step, ids, targets)
    for ids, targets in batches:
        loss = step(ids, targets)

A graph repeats launches with the same addresses and numbers. So everything that changes from step
to step must be read from memory of the device: the inputs, which are copied into fixed arrays; the
number of replays, from which dropout computes another mask each time; the rate of Adam and its
corrections. All memory of the step comes from a pool of its own, because nobody else may use it
between replays.

The rest of tinyattn knows of this only through `backend.capturing.step`, the step that this thread
captures. It is asked where a captured step differs: in `backend.to_device`,
`kernels.matmul.matrix_product`, `drop_arguments` and `adam` of `kernels/gpu`, and `Optimizer.step`.
Distributed training and Adam with amsgrad ask too, and refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import backend
from ..base.backend import Array
from ..base.checks import check_type, is_integer
from ..engine.autograd import wrap
from ..errors import DtypeError, GraphError, ShapeError
from ..kernels import range_checks
from ..kernels.gpu.cublas import Handle
from ..optim import Adam, Optimizer
from ..tensors.tensor import Tensor


def capture(step: Callable[..., Any], *inputs: Any, warm_up: int = 2) -> Captured:
    """A function that does what `step(*inputs)` does, by launching a CUDA graph of it.

    step: a training step on "cuda": forward, zero_grad(), backward(), clip_grad_norm_ if wanted,
        optimizer.step(); returns a Tensor, None, or a tuple, list or dict of them. Adam and AdamW
        can be captured.
    inputs: arrays or Tensors of the shapes and dtypes that every later call has; the step gets
        them as Tensors on "cuda".
    warm_up: how often the step runs before it is recorded, because the first runs compile kernels
        and allocate memory. These are steps like any other: the model learns from `inputs`.

    A call overwrites the result of the call before, in place. Learning rates may change between
    calls, by a schedule for instance. Anything else that Python does in the step happens in the
    warm-up and when the step is recorded, and not in a call. Raises GraphError if the step waits
    for the device (`item()`, printing, a boolean index), or uses another optimizer.
    """
    return Captured(step, inputs, warm_up)


class Captured:
    """The result of `capture`."""

    def __init__(self, step: Callable[..., Any], inputs: Sequence[Any], warm_up: int) -> None:
        check_type("step must be a function", step, Callable)
        if not is_integer(warm_up) or warm_up < 1:
            raise ValueError(f"capture needs at least one step of warm_up, got {warm_up!r}")
        self.xp = xp = backend.module_of("cuda")
        if backend.capturing.step is not None:
            raise GraphError("a step that is being captured cannot capture another one")
        self.stream = xp.cuda.Stream(non_blocking=True)
        self.uploads = xp.cuda.Stream(non_blocking=True)
        self.pool = xp.cuda.MemoryPool()
        self.recording = False
        self.needed: list[Any] = []  # arrays that the graph reads and that nobody else may hold
        self.replays: list[Callable[[], None]] = []  # Python's part of each step
        self.outputs: Any = None
        current = xp.cuda.get_current_stream()
        self.wait(current, self.stream)
        with xp.cuda.using_allocator(self.pool.malloc), self.stream:
            self.inputs = [Tensor(value, device="cuda") for value in inputs]
            self.draws = xp.zeros((), np.int64)
            self.blas = Handle(xp, self.stream.ptr)
            backend.capturing.step = self
            try:
                for _ in range(warm_up):
                    self.run(step)
                self.stream.synchronize()
                self.record(step)
            finally:
                backend.capturing.step = None
                # After an error too, because the steps of warm-up may still run.
                self.wait(self.stream, current)

    def run(self, step: Callable[..., Any]) -> None:
        self.replays.clear()
        self.outputs = detached(step(*self.inputs))
        self.draws += 1

    def record(self, step: Callable[..., Any]) -> None:
        """Record the launches of the step, and launch them, because recording runs nothing."""
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
        self.needed.append(range_checks.slots_of_graph())
        self.graph.launch(self.stream)

    def __call__(self, *inputs: Any) -> Any:
        """Copy the inputs to the arrays that the graph reads, and launch it."""
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
        range_checks.expect_numbers()
        self.wait(self.stream, current)
        for tensor in tensors_in(self.outputs):
            tensor._version.changes += 1
        return self.outputs

    @staticmethod
    def wait(first: Any, then: Any) -> None:
        """Work that stream `then` gets from now on starts after all work that `first` has."""
        then.wait_event(first.record())

    # Asked through `backend.capturing.step`, while the step runs and while it is recorded

    def matmul(self, x: Array, y: Array) -> Array:
        """x @ y. CuPy multiplies integers itself, but for floats it calls cuBLAS; see cublas.py."""
        return self.blas.matmul(x, y) if x.dtype.kind == "f" else x @ y

    def upload(self, array: np.ndarray) -> Array:
        """A constant of the step, on the device. A recorded copy would read the memory of the host
        again in each replay, and by then that memory has other contents."""
        if not self.recording:
            return self.xp.asarray(array)
        with self.uploads:
            constant = self.xp.asarray(array)
        self.uploads.synchronize()
        self.needed.append(constant)
        return constant

    def numbers(self, compute: Callable[[], Sequence[float]]) -> Array:
        """Numbers that change with every step, float64: computed anew before each launch."""
        array = self.upload(np.array(compute(), np.float64))
        if self.recording:
            self.replays.append(lambda: array.set(np.array(compute(), np.float64), self.stream))
        return array

    def optimizer_step(self, optimizer: Optimizer, updates: list[tuple[int, Array, Array]]) -> None:
        """Refuse an update that a replay would not repeat, and count the steps of the replays."""
        if not isinstance(optimizer, Adam):
            raise GraphError(
                f"{type(optimizer).__name__} cannot be captured as a CUDA graph; Adam and AdamW can"
            )
        for i, array, _ in updates:
            if type(array) is np.ndarray or not array.flags.c_contiguous:
                raise GraphError(
                    f"parameter {i} {array.shape} is not in C order on the device, which a "
                    "captured step needs: give it a .data that is"
                )
        parameters = optimizer.parameters

        def count() -> None:
            optimizer.check_groups()
            for i, *_ in updates:
                optimizer.steps[i] += 1
                parameters[i]._version.changes += 1

        self.replays.append(count)


def tensors_in(outputs: Any) -> list[Tensor]:
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if isinstance(outputs, (tuple, list)):
        return [tensor for output in outputs for tensor in tensors_in(output)]
    return [outputs] if isinstance(outputs, Tensor) else []


def detached(outputs: Any) -> Any:
    """Tensors without their graph, because backward has freed it."""
    if isinstance(outputs, Tensor):
        return wrap(outputs._data)
    if isinstance(outputs, Mapping):
        return {name: detached(output) for name, output in outputs.items()}
    if isinstance(outputs, (tuple, list)):
        found = [detached(output) for output in outputs]
        return type(outputs)(*found) if hasattr(outputs, "_fields") else type(outputs)(found)
    return outputs
