"""Training in several processes, each with a part of the batch: `mpiexec -n 4 python train.py`.

    rank 0   its samples -> loss -> gradients --+
    rank 1   its samples -> loss -> gradients --+-- all-reduce --> the same sum on every rank
    rank 2   its samples -> loss -> gradients --+

Every process, called a rank, has the whole model. `backward` gives every rank the gradients of the
whole batch, so all ranks take the same step, and their parameters stay equal. Before arrays are
summed, the ranks compare a fingerprint of what they are about to do. MPI (by mpi4py) moves the
arrays, those of GPUs through the memory of the host. In a program with one rank nothing of this is
imported, and `backward` is `loss.backward`.
"""

import atexit
import functools
import os
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import numpy as np

from ..base import backend
from ..base.backend import FLOAT16, Array, module_of, quiet, to_device
from ..base.checks import check_number, check_type
from ..engine.autograd import propagate, root_of, starting_gradient, wrap
from ..engine.grad_mode import no_grad
from ..errors import ShapeError
from ..kernels import FLOAT32
from ..kernels.threads import get_num_threads, set_num_threads
from ..nn import Dropout, Module, Parameter
from ..tensors.tensor import Tensor

# What mpiexec or srun writes into the environment: the number of ranks.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")

# For so many seconds a rank asks without a pause, because that is fastest. After them it gives up
# its core between two questions, because the rank that it waits for may need it.
AWAKE = 2e-4


class World:
    """All ranks, and how they talk. `comm` is MPI's communicator, or None for one rank.

    begun       the number of messages to all ranks that this rank has begun
    ended       for each rank whose program has ended, how many it had begun
    unfinished  the call to all ranks that has begun here and has not ended
    error       what ended it, if that was an error
    models      the number of DistributedDataParallel objects
    """

    def __init__(self, MPI: Any = None) -> None:
        self.MPI, self.comm = MPI, MPI and MPI.COMM_WORLD
        self.rank: int = self.comm.rank if MPI else 0
        self.size: int = self.comm.size if MPI else 1
        self.begun = 0
        self.ended: dict[int, int] = {}
        self.unfinished = ""
        self.error: BaseException | None = None
        self.models = 0

    def join(self) -> None:
        """Share cores and GPUs with the ranks on this machine, and end all ranks on an error."""
        self.exits = self.comm.Dup()
        local = self.comm.Split_type(self.MPI.COMM_TYPE_SHARED)
        if "TINYATTN_NUM_THREADS" not in os.environ:
            set_num_threads(max(1, get_num_threads() // local.size))
        take_gpu(local.rank, local.size)
        atexit.register(self.leave)
        sys.excepthook = self.end_all

    def end_all(self, *error: Any) -> None:
        """Show the error of this rank and end every rank, because they would wait for this one."""
        text = "".join(traceback.format_exception(*error))
        note = f"rank {self.rank} of {self.size} ends all:\n{text}"
        print("", end="", flush=True)
        print(note, end="", file=sys.stderr, flush=True)  # as one piece
        time.sleep(0.2)  # because what mpiexec has not read by then may be lost
        self.comm.Abort(1)
        os._exit(1)  # because Abort may return before mpiexec ends this process

    def leave(self) -> None:
        """Tell the others that this program ends. Wait asleep, because MPI waits awake."""
        self.sent = [self.exits.isend((self.rank, self.begun), rank) for rank in range(self.size)]
        barrier = self.exits.Ibarrier()
        while not barrier.Test():
            time.sleep(0.01)

    @contextmanager
    def together(
        self,
        call: str,
        numbers: tuple[Any, ...] = (),
        words: Callable[[], list[str]] = list,
        weight: float = 0.0,
        error: type[Exception] = RuntimeError,
    ) -> Iterator[float]:
        """Around what every rank must do now. Gives the sum of the weights of all ranks.

        call: what is done, in words
        numbers: what else must be equal on all ranks, as numbers
        words: the same in words, of which the message shows the first that differs

        First the ranks compare a fingerprint of `call` and `numbers`. If two differ, every rank
        raises `error`, and nothing was summed. If an error ends the block on one rank, the others
        may wait for the rest of it. So if that rank catches the error and begins another call, it
        ends all ranks.
        """
        if self.size == 1:
            yield weight
            return
        if self.unfinished:
            self.end_unfinished(call)
        self.unfinished = call
        try:
            # Python's hash of numbers is the same in every process; that of texts is not.
            fingerprint = hash((zlib.crc32(call.encode()), numbers))
            mine, all_ranks = np.empty(2, np.int64), np.empty((self.size, 2), np.int64)
            # In one message: the weight is a float64 in the memory of the second integer.
            mine[0], mine.view(np.float64)[1] = fingerprint, weight
            self.begun += 1
            self.wait([self.comm.Iallgather(mine, all_ranks)])
            alike = (all_ranks[:, 0] == fingerprint).all()
            if alike:
                yield float(all_ranks.view(np.float64)[:, 1].sum())
            else:
                descriptions = self.comm.allgather([call, *words()])
        except BaseException as caught:
            self.error = caught
            raise
        self.unfinished = ""
        if not alike:
            raise error(first_difference(descriptions))

    def end_unfinished(self, call: str) -> None:
        """End all ranks, because the others may wait for a message that this rank never sends."""
        error = RuntimeError(
            f"rank {self.rank} calls {call}, but its {self.unfinished} has not ended: either its "
            "error was caught, or a hook in it makes this call. The other ranks may still wait for "
            "its gradients, so do not catch errors of calls to all ranks"
        )
        error.__cause__ = self.error
        self.end_all(RuntimeError, error, None)

    def begin_sum(self, array: np.ndarray) -> Any:
        """Replace `array` by its sum over all ranks, at some time before `wait` returns."""
        self.begun += 1
        return self.comm.Iallreduce(self.MPI.IN_PLACE, array)

    def wait(self, requests: list[Any]) -> None:
        """Until the sums are there; an error if a rank has ended and takes no part in one."""
        self.requests = requests  # after an error too, because MPI may still write to their arrays
        awake = time.perf_counter() + AWAKE
        while not self.MPI.Request.Testall(requests):
            if time.perf_counter() > awake:
                time.sleep(0)
            while self.exits.Iprobe():
                rank, begun = self.exits.recv()
                self.ended[rank] = begun
            early = [rank for rank, begun in self.ended.items() if begun < self.begun]
            if early:
                raise RuntimeError(
                    f"rank {early[0]} has ended, and rank {self.rank} waits for it: all ranks must "
                    "take the same number of steps; a rank without samples calls backward(None, 0)"
                )


def take_gpu(rank: int, ranks: int) -> None:
    """One GPU for this rank of those on its machine."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":  # which hides all GPUs
        return
    # CUDA reads the variable when it begins, so once CuPy is imported it may be too late.
    has_begun = backend._cuda_module is not None or "cupy" in sys.modules
    if has_begun and backend.cuda_is_available():
        cuda = module_of("cuda").cuda
        cuda.Device(rank % cuda.runtime.getDeviceCount()).use()
        return
    gpus = visible.split(",") if visible else range(ranks)
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpus[rank % len(gpus)])


def first_difference(descriptions: list[list[str]]) -> str:
    """Where a rank differs from rank 0 first. Line 0 of a description is its call."""
    first, *others = descriptions
    line, rank, theirs, ours = next(
        (line, rank, theirs, ours)
        for rank, other in enumerate(others, 1)
        for line, (theirs, ours) in enumerate(zip_longest(other, first, fillvalue="nothing more"))
        if theirs != ours
    )
    if line == 0:
        return (
            f"rank {rank} calls {theirs} where rank 0 calls {ours}: all ranks must make the same "
            "calls in the same order; a rank without samples calls backward(None, 0)"
        )
    return (
        f"rank {rank} has {theirs} where rank 0 has {ours}: build the same model on every rank, "
        "and change it in the same way"
    )


@functools.cache
def world() -> World:
    """The ranks that this program was started with."""
    size = int(next((os.environ[name] for name in SIZES if name in os.environ), 1))
    if size == 1:
        return World()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError if there is no library of MPI
        raise ImportError(
            f"{size} ranks need mpi4py and an MPI library: in a clone of tinyattn, "
            f'pip install -e ".[mpi]" ({error})'
        ) from None
    if MPI.COMM_WORLD.size != size:
        raise RuntimeError(
            f"mpiexec started {size} ranks but mpi4py sees {MPI.COMM_WORLD.size}: they belong to "
            "different MPI libraries; use the mpiexec beside this Python"
        )
    ranks = World(MPI)
    ranks.join()
    return ranks


def get_rank() -> int:
    """The number of this process, from 0.

    >>> from tinyattn import distributed
    >>> distributed.get_rank(), distributed.get_world_size()
    (0, 1)
    """
    return world().rank


def get_world_size() -> int:
    """The number of ranks; 1 without mpiexec. The example of `get_rank` shows both."""
    return world().size


def all_reduce(values: Any) -> np.ndarray:
    """The sums over all ranks of some numbers, in float64. Every rank must call it.

    Raises RuntimeError, on every rank, if two ranks pass other shapes or make other calls.
    Differs from PyTorch: it takes numbers and returns an array; nothing is changed in place.

        >>> from tinyattn import distributed
        >>> loss, tokens = 0.5, 20
        >>> total, count = distributed.all_reduce([loss * tokens, tokens])
        >>> print(total / count)
        0.5
    """
    sums = np.array(values, np.float64)
    with world().together(f"all_reduce of shape {sums.shape}"):
        if world().size > 1:
            world().wait([world().begin_sum(sums)])
    return sums


class DistributedDataParallel:
    """Gradients of the whole batch, on every rank.

    At the start every rank gets the parameters and buffers of rank 0. After that the parameters
    stay equal, because every rank takes the same steps; do the same on every rank to other things
    that change them. Only rank 0 should print and save.

    module: the model; it is used as before, and saved without this object.

    Raises ShapeError, on every rank, if two ranks have different parameters or buffers, or another
    probability of dropout. What a rank computes with its samples is not compared.
    Source: Li et al., "PyTorch Distributed", 2020.
    Differs from PyTorch: it is no Module, and `backward` is called here, because it takes a weight.
    Gradients of leaves that are no parameters of the module are not computed.

        >>> from tinyattn.training.distributed import DistributedDataParallel
        >>> from tinyattn.training.distributed import get_rank, get_world_size
        >>> model = nn.Linear(3, 1)
        >>> parallel = DistributedDataParallel(model)
        >>> x, y = (ta.randn(8, n)[get_rank() :: get_world_size()] for n in (3, 1))  # its part
        >>> parallel.backward(F.mse_loss(model(x), y), weight=len(x))
        >>> model.weight.grad.shape
        (1, 3)
    """

    def __init__(self, module: Module) -> None:
        check_type("module must be an nn.Module", module, Module)
        self.module, self.number, self.steps = module, world().models, 0
        words = self.words()
        call = f"DistributedDataParallel of model {self.number}"
        digest = zlib.crc32("\n".join(words).encode())
        with world().together(call, (digest,), lambda: words, error=ShapeError):
            world().models += 1
            if world().size > 1:
                state = {name: x.cpu().numpy() for name, x in module.state_dict().items()}
                module.load_state_dict(world().comm.bcast(state))

    def words(self) -> list[str]:
        """What must be equal on all ranks, to be read by people."""
        tensors = [
            f"{name} {x.shape} {x.dtype} on {x.device}{', trained' * x.requires_grad}"
            for pairs in (self.module.named_parameters(), self.module.named_buffers())
            for name, x in pairs
        ]
        dropouts = [
            f"{name} with p={module.p}"
            for name, module in self.module.named_modules()
            if isinstance(module, Dropout)
        ]
        mode = "training" if self.module.training else "evaluation"
        return [f"a module in {mode} mode", *dropouts, *tensors]

    def numbers(self, parameters: list[Parameter]) -> tuple[Any, ...]:
        """What decides which gradients are summed, as numbers."""
        kinds = [(p.shape, p.dtype.num, p.device == "cpu", p.requires_grad) for p in parameters]
        return (self.module.training, *kinds)

    @quiet
    @no_grad()
    def backward(self, loss: Any, weight: float = 1.0) -> None:
        """Add the gradients of the loss of the whole batch to `.grad`. Every rank must call it.

        loss: the mean over the samples of this rank, as one number; None if it has none
        weight: the number of these samples. For a mean over tokens without padding, the number of
            those tokens. A rank with weight 0 has no sample, and its loss is ignored.

        With the weight w and the loss L of each rank, the loss of the whole batch is
        sum(w * L) / sum(w). Each rank starts backward with w / sum(w) in place of 1, and the
        gradients of all ranks are added.

        Raises ValueError if no rank has a sample, GraphError if the loss is not one number. Raises
        RuntimeError, on every rank, if two ranks train other parameters, or make another call. Do
        not catch an error of backward on one rank and go on: the next call ends all ranks.
        """
        weight = check_number("weight", weight, 0)
        if weight:
            check_type("loss must be a Tensor", loss, Tensor, "; None goes with weight 0")
            if world().size == 1:
                return loss.backward()
            # What is wrong with a loss is told before other ranks wait for its gradients.
            starting_gradient(loss, None, False)
            root_of(loss)
        call = f"step {self.steps} of backward of model {self.number}"
        parameters = list(self.module.parameters())
        with world().together(call, self.numbers(parameters), self.words, weight) as total:
            if total:
                trained = [p for p in parameters if p.requires_grad]
                self.sum_gradients(loss, weight / total, trained)
        if total == 0:
            raise ValueError("no rank has a sample: the weight is 0 on every rank")
        self.steps += 1

    def accumulate(self, losses: Iterable[Callable[[], Any]], weights: Sequence[float]) -> float:
        """`backward` of a batch in parts, which need less memory, and the loss of the whole batch.

        losses: functions; each computes the mean loss of a part, which its backward frees again.
        weights: of each part on this rank; all ranks have equally many parts. With the weight w
            and the loss L of each part the loss of the batch is sum(w * L) / sum(w).
        """
        weights = [check_number("weight", weight, 0) for weight in weights]
        sums = all_reduce(weights)
        total = sums.sum()
        if not total:
            raise ValueError("no rank has a sample: the weight is 0 in every part")
        whole = 0.0
        for loss_of, weight, part in zip(losses, weights, sums.tolist(), strict=True):
            loss = loss_of() if weight else None
            whole += 0.0 if loss is None else loss.item() * weight
            if part:
                self.backward(None if loss is None else loss * (part / total), weight)
        return float(all_reduce(whole)) / float(total)

    def sum_gradients(self, loss: Any, share: float, trained: list[Parameter]) -> None:
        """Add to `.grad` the sum over all ranks of the gradients of `share` times `loss`."""
        own: dict[Any, Array] = {}
        leaves: list[Any] = [p._node for p in trained]
        if share:
            start = starting_gradient(loss, None, False)
            start *= share
            own = propagate([root_of(loss)], [start], leaves)
        used = np.array([leaf in own for leaf in leaves], np.float64)
        requests, parts = [world().begin_sum(used)], {}
        for dtype in dict.fromkeys(p.dtype for p in trained):
            # In one array on the host, where MPI reads it: one long message takes less time than a
            # hundred short ones. float16 is summed as float32.
            alike = [p for p in trained if p.dtype == dtype]
            ends = np.cumsum([p.numel() for p in alike])
            sums = np.zeros(ends[-1], FLOAT32 if dtype == FLOAT16 else dtype)
            for p, part in zip(alike, np.split(sums, ends[:-1]), strict=True):
                parts[p] = part.reshape(p.shape)
                if p._node in own:
                    parts[p][...] = to_device(own.pop(p._node), "cpu")
            requests.append(world().begin_sum(sums))
        world().wait(requests)
        for p, number in zip(trained, used, strict=True):
            if number:  # as in one process, what no rank has used gets no gradient
                leaf: Any = p._node
                grad = wrap(to_device(parts[p].astype(p.dtype, copy=False), p.device))
                leaf.grad = grad if leaf.grad is None else leaf.grad + grad
