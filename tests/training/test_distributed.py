"""Several ranks take the step that one process takes with the whole batch, or end with an error.

The functions of the first part run in each process of `mpiexec -n N python test_distributed.py
NAME`, and print a line if all is well; the tests below start them. Few processes are started, and
each run makes many checks, because a start takes a second.
"""

from __future__ import annotations

import importlib.util
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from common import FOLDERS, assert_close, assert_same, run_python
from stand_in import COMPILER

import tinyattn as ta
from tinyattn import distributed, masks, nn, optim
from tinyattn import functional as F
from tinyattn.errors import GraphError, ShapeError
from tinyattn.training.distributed import (
    DistributedDataParallel,
    all_reduce,
    get_rank,
    get_world_size,
)

IGNORE = -100
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


class Tagger(nn.Module):
    """An encoder with everything that a rank may have otherwise than another one."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        layer = nn.EncoderLayer(
            8, nn.MultiHeadedAttention(2, 8, 0.0), nn.PositionwiseFeedForward(8, 12, 0.0), 0.0
        )
        self.encoder = nn.Encoder(layer, 1)
        self.seldom = nn.Linear(8, 8)  # for a token that few samples have
        self.never = nn.Linear(2, 2)
        self.frozen = nn.Parameter(ta.randn(8), requires_grad=False)
        self.register_buffer("scale", ta.tensor(scale))

    def forward(self, ids: np.ndarray) -> ta.Tensor:
        x = self.encoder(self.embedding(ids) * self.frozen, mask=masks.padding(ids, 0))
        if (ids == 9).any():
            x = x + self.seldom(x) * ta.tensor((ids == 9)[:, :, None].astype(x.dtype))
        return (x * self.scale) @ self.embedding.weight.transpose(0, 1)  # used twice


def loss_of(model: nn.Module, ids: np.ndarray) -> tuple[ta.Tensor, int]:
    """The mean over the tokens that are no padding, and their number."""
    targets = np.where(ids == 0, IGNORE, (ids * 7) % 10)
    logits = model(ids).reshape(-1, 10)
    return F.cross_entropy(logits, targets.reshape(-1)), int((ids != 0).sum())


def batches() -> list[np.ndarray]:
    """The last has three samples, so the last of four ranks has none of it."""
    rng = np.random.default_rng(4)
    found = []
    for size in (7, 5, 3):
        ids = rng.integers(1, 9, (size, 6))
        ids[np.arange(6) >= rng.integers(1, 7, (size, 1))] = 0
        found.append(ids)
    found[1][1, 0] = found[2][0, 0] = 9
    return found


def largest_difference(model: nn.Module, other: nn.Module) -> float:
    states = model.state_dict().values(), other.state_dict().values()
    return max(float(np.abs(a.data - b.data).max()) for a, b in zip(*states, strict=True))


OPTIMIZERS = {
    "sgd": lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.1),
    # With its usual eps Adam divides rounding errors by themselves, where a gradient is 0.
    "adam": lambda parameters: optim.AdamW(parameters, 0.01, eps=1e-2),
}


def updates() -> None:
    """The parameters after each step, beside those of one process with the whole batch."""
    rank, size = get_rank(), get_world_size()
    for dtype, name in product(("float32", "float64"), OPTIMIZERS):
        ta.manual_seed(rank)
        model = Tagger(1.0 + rank).to(dtype)
        parallel = DistributedDataParallel(model)
        ta.manual_seed(0)
        single = Tagger().to(dtype)
        assert largest_difference(model, single) == 0, "not the parameters of rank 0"
        pairs = [(m, OPTIMIZERS[name]([p for p in m.parameters() if p.requires_grad]))
                 for m in (model, single)]  # fmt: skip
        for ids in batches():
            norms = []
            for m, optimizer in pairs:
                optimizer.zero_grad()
                if m is single:
                    loss_of(m, ids)[0].backward()
                else:
                    own = ids[rank::size]
                    parallel.backward(*(loss_of(m, own) if len(own) else (None, 0)))
                norms.append(optim.clip_grad_norm_(m.parameters(), 0.5))
                optimizer.step()
            assert norms[1] > 0.5, "nothing is clipped"
            assert abs(norms[0] - norms[1]) <= TOLERANCE[dtype] * norms[1]
            difference = largest_difference(model, single)
            assert difference <= TOLERANCE[dtype], (dtype, name, difference)
            same_everywhere(model)
            assert model.never.weight.grad is None
            assert (model.seldom.weight.grad is None) == (single.seldom.weight.grad is None)
    smaller_things()
    report()


def report() -> None:
    """Rank 0 prints, because lines of several ranks may get mixed."""
    number = int(all_reduce(1))
    if get_rank() == 0:
        print(f"{number} ranks are well")


def same_everywhere(model: nn.Module) -> None:
    """Bitwise: else the ranks would drift apart."""
    numbers = np.concatenate([p.numpy().reshape(-1) for p in model.parameters()]).tobytes()
    comm = distributed.world().comm
    assert comm is None or set(comm.allgather(numbers)) == {numbers}


def smaller_things() -> None:
    rank, size = get_rank(), get_world_size()
    ranks = np.arange(size)
    given = np.array([1.0, 2.0])
    assert_same(all_reduce(given), size * np.array([1.0, 2.0]))
    assert given.tolist() == [1.0, 2.0], "the array of the caller is changed"
    assert_same(all_reduce([rank, 1]), np.array([ranks.sum(), size], np.float64))
    for dtype, tolerance in (("float16", 2e-3), ("float64", 1e-15)):
        w, x = nn.Parameter([1.0], dtype=dtype), ta.tensor(2.0, dtype=dtype, requires_grad=True)
        module = nn.Module()
        module.w = w
        parallel = DistributedDataParallel(module)
        for times in (1, 2):  # a second call adds
            parallel.backward((w * x * (rank + 1)).sum(), weight=rank + 1)
            # sum over r of r * (2 r) / sum over r of r
            expected = times * 2 * ((ranks + 1) ** 2).sum() / (ranks + 1).sum()
            assert w.grad.dtype == dtype
            assert abs(w.grad.item() - expected) <= tolerance * expected
        assert size == 1 or x.grad is None
    sums_of_float16(rank, size)
    # The loss of a rank without samples is ignored, even one that is not finite.
    w.grad = None
    weight = float(rank == 0)
    parallel.backward((w * (1.0 if weight else np.nan)).sum(), weight)
    assert w.grad.item() == 1.0
    with pytest.raises(ValueError, match="no rank has a sample"):
        parallel.backward(None, 0)
    w.grad = None
    if size > 1:
        with pytest.raises(GraphError, match="no single gradient"):
            parallel.backward(w * ta.ones(3, dtype="float64"))


def sums_of_float16(rank: int, size: int) -> None:
    """2048 + 1 is 2048 in float16, so the numbers of many ranks are added up in float32."""
    module = nn.Module()
    module.w = nn.Parameter([0.0], dtype="float16")
    first = {3: 2}.get(size, 1)  # so that the shares of all ranks are exact
    weight, own = (first, 2048) if rank == 0 else (1, 1)
    slope = own * (first + size - 1) / weight
    DistributedDataParallel(module).backward((module.w * slope).sum(), weight)
    assert module.w.grad.item() == np.float16(2048 + size - 1)


def interrupted_by(rank: int, action: Any, steps: int = 1000) -> None:
    """Steps, of which the tenth meets an accident on one rank."""
    model = nn.Linear(3, 2)
    parallel = DistributedDataParallel(model)
    for step in range(steps):
        if step == 10 and get_rank() == rank:
            action()
        parallel.backward(model(ta.ones(2, 3)).sum())
    print(f"rank {get_rank()} finished")


def raises() -> None:
    def fail() -> None:
        raise LookupError("sample 17 is damaged")

    interrupted_by(1, fail)


def raises_at_the_start() -> None:
    if get_rank() == 1:
        raise FileNotFoundError("no data here")
    interrupted_by(1, lambda: None)


def is_killed() -> None:
    interrupted_by(1, lambda: os.kill(os.getpid(), signal.SIGKILL))


def ends_early() -> None:
    interrupted_by(1, sys.exit)


def waits_for_ctrl_c() -> None:
    if get_rank() == 0:
        print("ready", flush=True)
    interrupted_by(0, lambda: None, steps=10**9)


def disagrees() -> None:
    """What the ranks are told of: a shape, a dtype, a parameter more, one that is frozen, ..."""

    def layers(*widths: int) -> nn.Module:
        return nn.Sequential(*(nn.Linear(3, width) for width in widths))

    rank = get_rank()
    frozen = layers(2)
    frozen[0].weight.requires_grad = rank == 0
    counted = layers(2)
    counted.register_buffer("scale", ta.zeros(2 + rank))
    cases = {
        r"rank 1 has 0.weight \(5, 3\) float32 on cpu, trained where rank 0 has 0.weight \(4, 3\)":
            layers(4 + rank),
        r"rank 1 has 0.weight .* float64 .* where rank 0 has 0.weight .* float32":
            layers(2).to("float64" if rank else "float32"),
        r"rank 1 has 1.weight .* where rank 0 has nothing more": layers(*[2] * (1 + rank)),
        r"rank 1 has nothing more where rank 0 has 1.weight": layers(*[2] * (2 - rank)),
        r"rank 1 has 0.weight \(2, 3\) float32 on cpu where rank 0": frozen,
        r"rank 1 has 0 with p=0.1 where rank 0 has 0 with p=0.0":
            nn.Sequential(nn.Dropout(0.1 * rank), nn.Linear(2, 2)),
        r"rank 1 has scale \(3,\) float32 on cpu where rank 0 has scale \(2,\) float32": counted,
    }  # fmt: skip
    for text, model in cases.items():
        with pytest.raises(ShapeError, match=text):
            DistributedDataParallel(model)
    report()


def differs() -> None:
    """Every rank is told of what differs, no gradient changes, and the next equal call works."""
    model, twin = (nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)) for _ in range(2))
    parallel, other = DistributedDataParallel(model), DistributedDataParallel(twin)

    def backward(parallel: DistributedDataParallel = parallel) -> None:
        parallel.backward(ta.ones(1, requires_grad=True).sum())

    def after(name: str, value: Any, what: Any = model[1].bias) -> Any:
        """backward, after one attribute of this rank was changed."""

        def changed() -> None:
            old = getattr(what, name)
            setattr(what, name, value)
            try:
                backward()
            finally:
                setattr(what, name, old)

        return changed

    call = "rank 1 calls {} where rank 0 calls {}: all ranks must make the same calls"
    has = "rank 1 has {} where rank 0 has {}: build the same model"
    bias, weight = "1.bias (2,) float32 on cpu", "1.weight (2, 3) float32 on cpu, trained"
    flat = nn.Parameter(model[1].weight.data.T.copy())
    double = nn.Parameter([1.0, 2.0], dtype="float64")
    cases = [  # what rank 0 does, what rank 1 does, the error
        (lambda: all_reduce([1]), lambda: all_reduce([1, 2]),
         call.format("all_reduce of shape (2,)", "all_reduce of shape (1,)")),
        (lambda: all_reduce([1, 2]), lambda: all_reduce([[1, 2]]),
         call.format("all_reduce of shape (1, 2)", "all_reduce of shape (2,)")),
        (backward, lambda: all_reduce(1),
         call.format("all_reduce of shape ()", "step 1 of backward of model 0")),
        (lambda: backward(other), backward,
         call.format("step 1 of backward of model 0", "step 0 of backward of model 1")),
        (lambda: all_reduce(1), lambda: DistributedDataParallel(twin),
         call.format("DistributedDataParallel of model 2", "all_reduce of shape ()")),
        (backward, after("requires_grad", False), has.format(bias, bias + ", trained")),
        (after("requires_grad", False), backward, has.format(bias + ", trained", bias)),
        (backward, after("weight", flat, model[1]),
         has.format("1.weight (3, 2) float32 on cpu, trained", weight)),
        (backward, after("bias", double, model[1]),
         has.format("1.bias (2,) float64 on cpu, trained", bias + ", trained")),
        (backward, after("bias", None, model[1]),
         has.format("nothing more", bias + ", trained")),
        (backward, after("training", False, model),
         has.format("a module in evaluation mode", "a module in training mode")),
    ]  # fmt: skip
    parallel.backward(model(ta.ones(4, 2)).sum())
    before = model[1].weight.grad.numpy().tobytes()
    for *actions, text in cases:
        with pytest.raises((RuntimeError, ShapeError)) as found:
            actions[get_rank() == 1]()
        assert text in str(found.value), (text, str(found.value))
        assert model[1].weight.grad.numpy().tobytes() == before
        assert all_reduce([1.0, 2.0]).tolist() == [get_world_size(), 2 * get_world_size()]
    # Weights may differ, and a rank without samples takes part.
    parallel.backward(*((model(ta.ones(4, 2)).sum(), 2) if get_rank() == 1 else (None, 0)))
    assert_close(
        model[1].weight.grad.numpy(), 2 * np.frombuffer(before, np.float32).reshape(2, 3), 1e-6
    )
    report()


@ta.op
def acting(x: Any, *, action: Any) -> Any:
    """x, with an action in backward."""
    return x * 1


@acting.vjp("x")
def _(grad: Any, action: Any) -> Any:
    action()
    return grad


def catches(then: Any, steps: int = 12, everywhere: bool = False) -> None:
    """The third step of rank 1 fails in backward."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    parallel = DistributedDataParallel(model)

    def fail() -> None:
        raise LookupError("sample 17 is damaged")

    for step in range(steps):
        hidden = model[:2](ta.ones(4, 2))
        if step == 3 and get_rank() == 1:
            hidden = acting(hidden, action=fail)
        try:
            parallel.backward(model[2](hidden).sum())
        except Exception:
            if get_rank() != 1 and not everywhere:
                raise
            then()
    print(f"rank {get_rank()} finished")


def catches_and_goes_on() -> None:
    catches(lambda: None)


def all_catch_and_go_on() -> None:
    catches(lambda: None, everywhere=True)


def catches_and_sums() -> None:
    catches(lambda: all_reduce([1, 2]))


def catches_and_builds_another() -> None:
    catches(lambda: DistributedDataParallel(nn.Linear(2, 2)))


def catches_and_ends() -> None:
    catches(sys.exit)


def catches_in_the_last_step() -> None:
    catches(lambda: None, steps=4)


def catches_ctrl_c() -> None:
    """Rank 1 is interrupted while it waits for the others."""
    model = nn.Linear(2, 2)
    parallel = DistributedDataParallel(model)
    for step in range(5):
        if step == 2 and get_rank() == 1:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
        if step == 2 and get_rank() == 0:
            time.sleep(1)
        try:
            parallel.backward(model(ta.ones(1, 2)).sum())
        except KeyboardInterrupt:
            continue
    print(f"rank {get_rank()} finished")


def sums_in_backward() -> None:
    model = nn.Linear(2, 2)
    parallel = DistributedDataParallel(model)
    out = acting(model(ta.ones(1, 2)), action=lambda: all_reduce(1))
    parallel.backward(out.sum())
    print(f"rank {get_rank()} finished")


def has_no_data() -> None:
    parallel = DistributedDataParallel(model := nn.Linear(2, 2))
    for _ in range(0 if get_rank() == 1 else 3):
        parallel.backward(model(ta.ones(1, 2)).sum())
    print(f"rank {get_rank()} finished")


def has_no_data_and_reports() -> None:
    parallel = DistributedDataParallel(model := nn.Linear(2, 2))
    for _ in range(0 if get_rank() == 1 else 3):
        parallel.backward(model(ta.ones(1, 2)).sum())
    all_reduce([1.0, 2.0])
    print(f"rank {get_rank()} finished")


def skips_a_step() -> None:
    interrupted_by(1, lambda: None, steps=20 - get_rank())


def ends_before_the_model() -> None:
    if get_rank() == 1:
        sys.exit()
    interrupted_by(1, lambda: None)


def leaves_without_a_word() -> None:
    interrupted_by(1, lambda: os._exit(0))


def leaves_with_an_error() -> None:
    interrupted_by(1, lambda: os._exit(3))


def shares() -> None:
    """Each rank of a machine takes its part of the cores, and one GPU."""
    sys.stderr.write(f"{get_rank()} {ta.get_num_threads()} {os.environ['CUDA_VISIBLE_DEVICES']}\n")


def saves_all_the_time() -> None:
    """Rank 0 saves a state after every step; a rank is killed at some time."""
    rank, path = get_rank(), Path(sys.argv[2])
    model = nn.Linear(64, 64)
    parallel = DistributedDataParallel(model)
    for step in range(10**9):
        parallel.backward(model(ta.ones(2, 64)).sum())
        if rank == 0:
            ta.save({"model": model.state_dict(), "step": step}, path)
            if step == 5:
                print(os.getpid(), flush=True)


def on_gpus() -> None:
    """A step on "cuda", a stand-in for it, beside one process on the CPU."""
    import stand_in

    ta.base.backend.register_cuda(stand_in.MODULE)
    rank, size = get_rank(), get_world_size()
    for dtype in TOLERANCE:
        ta.manual_seed(0)
        single, model = Tagger().to(dtype), Tagger(1.0 + rank).to("cuda", dtype)
        if rank == 0:
            model.load_state_dict(single.state_dict())
        parallel = DistributedDataParallel(model)
        ids = batches()[0]
        loss_of(single, ids)[0].backward()
        parallel.backward(*loss_of(model, ids[rank::size]))
        grads: list[list[np.ndarray]] = [[], []]  # of all parameters, because some are 0
        for mine, expected in zip(model.parameters(), single.parameters(), strict=True):
            assert (mine.grad is None) == (expected.grad is None)
            if mine.grad is not None:
                assert mine.grad.device == "cuda"
                for found, grad in zip(grads, (mine.grad, expected.grad), strict=True):
                    found.append(grad.numpy().reshape(-1))
        assert_close(*map(np.concatenate, grads), TOLERANCE[dtype])
    report()


def example() -> None:
    """train_encoder.py with 500 words. Rank STOP, if there is one, presses Ctrl-C."""
    import matplotlib as mpl

    mpl.use("Agg")
    sys.path.insert(0, str(EXAMPLES))
    import stress_data
    import train_encoder
    import training

    stop, sys.argv = int(sys.argv[2]), sys.argv[2:]
    lines = lzma.decompress(stress_data.DATA.read_bytes()).decode("ascii").splitlines()
    words = {line.split()[0]: line.split()[1:] for line in lines[::200]}
    words |= {w: p for w, *p in map(str.split, lines) if w in train_encoder.SHOWN}
    stress_data.read = lambda _: words
    train_encoder.draw = lambda model, shown, path: path.touch(exist_ok=False)  # once
    record = training.Run.record

    def record_and_stop(run: Any, *arguments: Any) -> None:
        record(run, *arguments)
        if len(run.losses) == 3 and get_rank() == stop:
            os.kill(os.getpid(), signal.SIGINT)

    training.Run.record = record_and_stop
    training.run_program(train_encoder.main)


# The tests

EXAMPLES = Path(__file__).parents[2] / "examples"
HAS_MPI = importlib.util.find_spec("mpi4py") is not None
MPIEXEC = shutil.which(
    "mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
)
needs_mpi = pytest.mark.skipif(
    not (HAS_MPI and MPIEXEC), reason='mpi4py or mpiexec is missing: pip install -e ".[mpi]"'
)
PATHS = os.pathsep.join([str(Path(ta.__file__).parents[1]), *FOLDERS])


@contextmanager
def started(
    number: int,
    *command: object,
    seconds: int = 60,
    environment: Mapping[str, str | None] = MappingProxyType({}),
) -> Iterator[subprocess.Popen[str]]:
    """A program on some ranks. It is ended if it hangs, and fails the test."""
    settings = {**os.environ, "PYTHONPATH": PATHS, "TINYATTN_NUM_THREADS": "1", **environment}
    process = subprocess.Popen(
        [str(MPIEXEC), "-n", str(number), sys.executable, *map(str, command)],
        env={name: value for name, value in settings.items() if value is not None},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)  # at which mpiexec ends its ranks
        process.communicate(timeout=seconds)


def run(
    number: int,
    *command: object,
    seconds: int = 60,
    environment: Mapping[str, str | None] = MappingProxyType({}),
) -> tuple[int, str, str]:
    """The exit status of such a program, and what it printed."""
    with started(number, *command, environment=environment) as process:
        out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


@needs_mpi
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_updates_are_those_of_one_process_with_the_whole_batch(number: int) -> None:
    status, out, err = run(number, __file__, "updates")
    assert status == 0, err[-3000:]
    assert out == f"{number} ranks are well\n"


@needs_mpi
def test_ranks_that_disagree_are_told_by_name() -> None:
    status, out, err = run(2, __file__, "disagrees")
    assert status == 0, err[-3000:]
    assert out == "2 ranks are well\n"


@needs_mpi
@pytest.mark.parametrize("number", [2, 3])
def test_ranks_that_make_other_calls_are_told_what_differs(number: int) -> None:
    status, out, err = run(number, __file__, "differs")
    assert status == 0, err[-3000:]
    assert out == f"{number} ranks are well\n"


GOES_ON = (
    "rank 1 calls step 3 of backward of model 0, but its step 3 of backward of model 0 has not"
)


@needs_mpi
@pytest.mark.parametrize(
    ("accident", "texts"),
    [
        ("catches_and_goes_on", [GOES_ON, "LookupError: sample 17 is damaged"]),
        ("all_catch_and_go_on", [GOES_ON, "LookupError: sample 17 is damaged"]),
        ("catches_and_sums", ["rank 1 calls all_reduce of shape (2,), but its step 3 of backward"]),
        (
            "catches_and_builds_another",
            ["rank 1 calls DistributedDataParallel of model 1, but its"],
        ),
        ("catches_and_ends", ["rank 1 has ended, and rank 0 waits for it"]),
        ("catches_in_the_last_step", ["rank 1 has ended, and rank 0 waits for it"]),
        ("catches_ctrl_c", ["rank 1 calls step 2 of backward of model 0, but its step 2"]),
        (
            "sums_in_backward",
            ["calls all_reduce of shape (), but its step 0 of backward of model 0"],
        ),
        ("has_no_data", ["rank 1 has ended, and rank 0 waits for it"]),
        ("has_no_data_and_reports", ["rank 1 calls all_reduce of shape (2,) where rank 0 calls"]),
        ("skips_a_step", ["rank 1 has ended, and rank 0 waits for it"]),
        ("ends_before_the_model", ["rank 1 has ended, and rank 0 waits for it"]),
        ("leaves_without_a_word", []),
        ("leaves_with_an_error", []),
    ],
)
def test_a_rank_that_is_out_of_step_ends_all(accident: str, texts: list[str]) -> None:
    status, out, err = run(2, __file__, accident, seconds=40)
    assert status != 0 or accident == "leaves_without_a_word"  # mpiexec itself says 0 then
    assert [text for text in texts if text not in err] == [], err[-3000:]
    assert "rank 0 finished" not in out


@needs_mpi
@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"TINYATTN_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "5,7"}, ["0 4 5", "1 4 7"]),
        ({"TINYATTN_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "4"}, ["0 4 4", "1 4 4"]),
        ({"TINYATTN_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": ""}, ["0 4 ", "1 4 "]),
        ({"TINYATTN_NUM_THREADS": None}, ["0 2 0", "1 2 1"]),
    ],
)
def test_ranks_share_cores_and_gpus(environment: dict[str, str | None], told: list[str]) -> None:
    code = (
        "import sys, tinyattn as ta; ta.set_num_threads(4); "
        "sys.argv = ['', 'shares']; import test_distributed as t; t.shares()"
    )
    status, _, err = run(2, "-c", code, environment=environment)
    assert status == 0, err[-3000:]
    assert sorted(err.splitlines()) == told


@needs_mpi
def test_gradients_on_gpus_are_summed() -> None:
    if COMPILER is None:
        pytest.skip("no g++, which compiles the CUDA kernels for the host")
    status, out, err = run(2, __file__, "on_gpus", seconds=200)
    assert status == 0, err[-3000:]
    assert out == "2 ranks are well\n"


@needs_mpi
@pytest.mark.parametrize(
    ("accident", "text"),
    [
        ("raises", "LookupError: sample 17 is damaged"),
        ("raises_at_the_start", "FileNotFoundError: no data here"),
        ("is_killed", ""),
        ("ends_early", "rank 1 has ended, and rank 0 waits for it"),
    ],
)
def test_a_rank_that_fails_ends_all(accident: str, text: str) -> None:
    status, out, err = run(2, __file__, accident, seconds=40)
    assert status != 0
    assert text in err
    assert "finished" not in out


@needs_mpi
def test_ctrl_c_ends_all() -> None:
    with started(2, __file__, "waits_for_ctrl_c") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        _, err = process.communicate(timeout=40)
        assert process.returncode != 0
        assert "KeyboardInterrupt" in err


@needs_mpi
def test_a_checkpoint_is_whole_whenever_a_rank_is_killed(tmp_path: Path) -> None:
    for delay in (0.0, 0.01, 0.05):
        path = tmp_path / f"{delay}.safetensors"
        with started(2, __file__, "saves_all_the_time", path) as process:
            assert process.stdout is not None
            pid = int(process.stdout.readline())
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)
            process.communicate(timeout=40)
            assert process.returncode != 0
        state = ta.load(path)
        assert state["step"] >= 5
        assert state["model"]["weight"].shape == (64, 64)


@needs_mpi
def test_the_example_prints_once_and_is_resumed_on_another_number_of_ranks(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the examples need scikit-learn")
    small = ["--steps", 6, "--batch-size", 32, "--d-model", 8, "--heads", 2, "--layers", 1]

    def trained(ranks: int, stop: int, out: Path, *options: object) -> tuple[int, str, str]:
        return run(ranks, __file__, "example", stop, "--out", out, *small, *options, seconds=200)

    alone, together = tmp_path / "alone", tmp_path / "together"
    assert trained(1, -1, alone)[0] == 0
    status, out, err = trained(2, 1, together)
    assert status == 130, err[-3000:]
    assert out.count("stopped after 3 of 6 steps") == out.count("mpiexec -n 2 python") == 1
    status, out, err = trained(3, -1, together, "--resume")
    assert status == 0, err[-3000:]
    assert out.count("parameters") == out.count("on held-out words") == 1
    assert out.count("3 ranks train") == 1
    first, second = (ta.load(path / "checkpoint.safetensors") for path in (alone, together))
    for name in ("losses", "held_out"):
        np.testing.assert_allclose(second[name].numpy(), first[name].numpy(), rtol=1e-4)
    assert {path.name for path in together.iterdir()} == {path.name for path in alone.iterdir()}
    status, _, err = trained(2, -1, tmp_path / "tiny", "--batch-size", 1)
    assert status == 2
    assert "a batch of 1 is too small for 2 ranks" in err


@needs_mpi
def test_an_mpiexec_of_another_library_is_told() -> None:
    code = """
from tinyattn.training.distributed import get_rank
try:
    get_rank()
except RuntimeError as error:
    print(error)
"""
    told = run_python(code, env={"SLURM_STEP_NUM_TASKS": "2"})
    assert "mpiexec started 2 ranks but mpi4py sees 1" in told


# Without MPI


def test_one_rank_computes_as_before_and_imports_nothing() -> None:
    run_python(
        """
import sys
import numpy as np
import tinyattn as ta
from tinyattn import nn
from tinyattn.training.distributed import *

model, other = (nn.Linear(3, 2) for _ in range(2))
other.load_state_dict(model.state_dict())
x = ta.randn(4, 3)
DistributedDataParallel(model).backward(model(x).exp().mean(), weight=17)
other(x).exp().mean().backward()
assert model.weight.grad.data.tobytes() == other.weight.grad.data.tobytes()
assert (get_rank(), get_world_size()) == (0, 1)
assert all_reduce([1.5, 2]).tolist() == [1.5, 2.0]
assert not {"mpi4py", "cupy"} & set(sys.modules)
"""
    )


def test_ending_all_ranks_does_not_return(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MPI's Abort may return, and the program must not go on."""
    codes: list[int] = []

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    ranks = distributed.World()
    ranks.comm = SimpleNamespace(Abort=codes.append)
    with pytest.raises(SystemExit):
        ranks.end_all(RuntimeError, RuntimeError("lost"), None)
    assert codes == [1]
    assert capsys.readouterr().err == "rank 0 of 1 ends all:\nRuntimeError: lost\n"


def test_bad_input_is_refused() -> None:
    with pytest.raises(TypeError, match=r"module must be an nn\.Module, got list"):
        DistributedDataParallel([nn.Linear(2, 2)])  # type: ignore[arg-type]
    model = nn.Linear(2, 1)
    parallel = DistributedDataParallel(model)
    for weight in (-1, np.nan, np.inf, "3", None):
        with pytest.raises(ValueError, match="weight must be a number >= 0"):
            parallel.backward(model(ta.ones(2)).sum(), weight)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="loss must be a Tensor, got NoneType"):
        parallel.backward(None)
    with pytest.raises(ValueError, match="no rank has a sample"):
        parallel.backward(None, 0)
    assert model.weight.grad is None


def test_ranks_without_mpi4py_are_told_what_to_install() -> None:
    code = """
import sys
sys.modules["mpi4py"] = None
from tinyattn.training.distributed import get_rank
try:
    get_rank()
except ImportError as error:
    print(error)
"""
    assert "2 ranks need mpi4py and an MPI library" in run_python(code, env={"PMI_SIZE": "2"})


if __name__ == "__main__":
    globals()[sys.argv[1]]()
