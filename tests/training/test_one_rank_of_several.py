"""What one rank sends, waits for and computes, beside a stand-in for MPI and the other rank.

test_distributed.py starts true ranks. Here one process is enough, so the answers of the other rank
can be chosen, and every message is seen.
"""

import atexit
import functools
import os
import sys
import traceback
from types import SimpleNamespace

import numpy as np
import pytest
from common import assert_same
from other_rank import Other, Request, Written

import tinyattn as ta
from tinyattn import distributed, nn
from tinyattn.base import backend
from tinyattn.errors import GraphError, ShapeError
from tinyattn.training.distributed import DistributedDataParallel, all_reduce, take_gpu

SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")  # of MPICH, Open MPI, Slurm


@pytest.fixture
def other(monkeypatch):
    """The other rank of a program whose rank 0 is this process."""
    other = Other()
    other.slept, other.at_exit, other.threads, other.now = [], [], [], 0.0

    def sleep(seconds):
        other.slept.append((round(other.now, 5), seconds))

    def clock():
        other.now += 0.00015
        return other.now

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr(distributed, "time", SimpleNamespace(perf_counter=clock, sleep=sleep))
    monkeypatch.setattr(atexit, "register", other.at_exit.append)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    system = SimpleNamespace(environ=os.environ, _exit=leave)
    monkeypatch.setattr(distributed, "os", system)
    monkeypatch.setattr(distributed, "get_num_threads", lambda: 7)
    monkeypatch.setattr(distributed, "set_num_threads", other.threads.append)
    monkeypatch.setattr(backend, "_cuda_module", None)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    for name in (*SIZES, "TINYATTN_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    monkeypatch.setenv("PMI_SIZE", "2")
    request = SimpleNamespace(Testall=Request.Testall)
    other.MPI = SimpleNamespace(
        COMM_WORLD=other, IN_PLACE="in place", COMM_TYPE_SHARED="shared", Request=request
    )
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=other.MPI))
    monkeypatch.setattr(distributed, "world", functools.cache(distributed.world.__wrapped__))
    return other


class Mixed(nn.Module):
    """Parameters of three dtypes, one of them frozen, one unused, one used by the other rank."""

    def __init__(self):
        super().__init__()
        self.single = nn.Parameter([0.5, -1.0])
        self.exact = nn.Parameter([[2.0, 1.0]], dtype="float64")
        self.frozen = nn.Parameter([1.0, 1.0, 1.0], requires_grad=False)
        self.unused = nn.Parameter([1.0, 1.0, 1.0])
        self.short = nn.Parameter([1.0], dtype="float16")
        self.seldom = nn.Parameter([3.0], dtype="float64")

    def forward(self):
        x = (self.single * ta.tensor([4.0, -12.0])).sum() + (self.short * 2).sum()
        return x + (self.exact * ta.tensor([[1 / 3, -8.0]], dtype="float64")).sum()


# The start and the end of a rank


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_joins_takes_its_part_of_the_machine(other, rank):
    other.rank = rank
    ranks = distributed.world()
    assert (distributed.get_rank(), distributed.get_world_size()) == (rank, 2)
    assert other.threads == [3]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "57"[rank]
    assert other.at_exit == [ranks.leave]
    assert sys.excepthook == ranks.end_all
    assert distributed.world() is ranks


def test_a_given_number_of_threads_stays_and_one_is_the_least(other, monkeypatch):
    monkeypatch.setattr(distributed, "get_num_threads", lambda: 1)
    distributed.world()
    assert other.threads == [1]
    monkeypatch.setenv("TINYATTN_NUM_THREADS", "5")
    distributed.world.__wrapped__()
    assert other.threads == [1]


@pytest.mark.parametrize("name", SIZES)
def test_the_environment_says_how_many_ranks_there_are(other, monkeypatch, name):
    monkeypatch.delenv("PMI_SIZE")
    assert distributed.world.__wrapped__().size == 1
    assert other.at_exit == []
    monkeypatch.setenv(name, "1")
    assert distributed.world.__wrapped__().size == 1
    assert other.at_exit == []
    monkeypatch.setenv(name, "2")
    assert distributed.world.__wrapped__().size == 2
    assert len(other.at_exit) == 1


def test_ranks_that_mpi_does_not_know_are_refused(other, monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "3")
    with pytest.raises(RuntimeError) as found:
        distributed.get_rank()
    assert str(found.value) == (
        "mpiexec started 3 ranks but mpi4py sees 2: they belong to different MPI libraries; use "
        "the mpiexec beside this Python"
    )
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError) as missing:
        distributed.get_rank()
    assert str(missing.value).startswith(
        "3 ranks need mpi4py and an MPI library: in a clone of tinyattn, "
        'pip install -e ".[mpi]" (import of mpi4py halted'
    )
    assert missing.value.__suppress_context__
    assert other.at_exit == []


def test_a_rank_that_ends_says_how_many_messages_it_had_begun(other):
    all_reduce(1)
    DistributedDataParallel(model := Mixed()).backward(model())
    other.slept.clear()
    distributed.world().leave()
    # Fingerprint and sum; fingerprint; fingerprint, what is used, and three dtypes.
    assert other.sent == [((0, 8), 0), ((0, 8), 1)]
    assert [seconds for _, seconds in other.slept] == [0.01, 0.01]


def test_an_error_is_shown_as_one_piece_before_all_ranks_end(other, monkeypatch):
    ranks = distributed.world()
    try:
        raise LookupError("sample 17 is damaged")
    except LookupError as caught:
        error = (LookupError, caught, caught.__traceback__)
    text = "".join(traceback.format_exception(*error))
    monkeypatch.setattr(sys, "stdout", Written())
    monkeypatch.setattr(sys, "stderr", Written())
    sys.stdout.write("step 3")
    with pytest.raises(SystemExit) as found:
        ranks.end_all(*error)
    assert found.value.code == 1
    assert other.aborted == [(1, "step 3", f"rank 0 of 2 ends all:\n{text}")]
    assert [seconds for _, seconds in other.slept] == [0.2]


def test_a_rank_takes_one_gpu_of_those_it_may_see(other, monkeypatch):
    # CUDA has not begun, and a question to it would begin it.
    monkeypatch.setattr(backend, "cuda_is_available", lambda: pytest.fail("CUDA was asked"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    take_gpu(4, 3)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    for rank, visible, expected in ((1, "5,7", "7"), (2, "5,7", "5"), (2, "GPU-a", "GPU-a")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        take_gpu(rank, 3)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == expected
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # which hides all
    take_gpu(1, 3)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("begun_by", ["tinyattn", "the program"])
def test_once_cuda_has_begun_its_device_is_set(other, monkeypatch, begun_by):
    used = []
    cuda = SimpleNamespace(
        runtime=SimpleNamespace(getDeviceCount=lambda: 3),
        Device=lambda number: SimpleNamespace(use=lambda: used.append(number)),
    )
    module = SimpleNamespace(cuda=cuda)
    if begun_by == "tinyattn":
        monkeypatch.setattr(backend, "_cuda_module", module)
    else:
        monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(distributed, "module_of", {"cuda": module}.__getitem__)
    monkeypatch.setattr(backend, "cuda_is_available", lambda: True)
    for rank in (0, 1, 5):
        take_gpu(rank, 6)
    assert used == [0, 1, 2]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,7"
    monkeypatch.setattr(backend, "cuda_is_available", lambda: False)
    take_gpu(1, 6)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"


# What ranks do together


def test_a_sum_is_complete_when_it_is_returned(other):
    other.arrays = [np.array([10.0, 20.0])]
    assert_same(all_reduce([1, 2.5]), np.array([11.0, 22.5]))
    assert_same(all_reduce(3), np.array(6.0))
    assert [array.tolist() for array in other.sums] == [[1.0, 2.5], 3.0]


def test_what_is_summed_stays_as_it_was(other):
    for dtype in (np.float64, np.float32, np.int64):
        other.arrays = [np.array([10.0, 20.0])]
        given = np.array([1, 3], dtype)
        assert_same(all_reduce(given), np.array([11.0, 23.0]))
        assert_same(given, np.array([1, 3], dtype))


def test_a_rank_gives_up_its_core_only_when_it_has_waited(other):
    all_reduce(1)
    # The clock is read at the start, and then after each question that had no answer.
    assert other.slept == [(0.00045, 0), (0.0009, 0)]


def test_a_rank_that_has_ended_is_told_of_when_it_is_missed(other):
    other.messages = [(1, 2)]
    assert all_reduce(1).item() == 2.0  # it took part before it ended
    other.silent = True
    with pytest.raises(RuntimeError) as found:
        all_reduce(1)
    assert str(found.value) == (
        "rank 1 has ended, and rank 0 waits for it: all ranks must take the same number of steps; "
        "a rank without samples calls backward(None, 0)"
    )
    # MPI may still write to the array of the request.
    assert [request.asked for request in distributed.world().requests] == [1]


def test_a_call_after_a_caught_error_ends_all(other, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Written())
    monkeypatch.setattr(sys, "stderr", Written())
    all_reduce([1, 2])
    with pytest.raises(LookupError), distributed.world().together("the first call"):
        raise LookupError("sample 17 is damaged")
    with pytest.raises(SystemExit):
        all_reduce(1)
    ((code, _, text),) = other.aborted
    assert code == 1
    assert text.index("LookupError: sample 17 is damaged") < text.index(
        "RuntimeError: rank 0 calls all_reduce of shape (), but its the first call has not ended: "
        "either its error was caught, or a hook in it makes this call. The other ranks may still "
        "wait for its gradients, so do not catch errors of calls to all ranks\n"
    )


def test_a_call_inside_another_ends_all(other, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Written())
    monkeypatch.setattr(sys, "stderr", Written())
    with pytest.raises(SystemExit), distributed.world().together("the first call"):
        all_reduce(1)
    assert "a hook in it makes this call" in other.aborted[0][2]


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_with_other_calls_are_told_and_may_go_on(other, rank):
    other.rank = rank
    other.differs = ["step 3 of backward of model 0"]
    calls = ["all_reduce of shape (2,)", *other.differs]
    first, second = calls if rank == 0 else calls[::-1]
    for _ in range(2):
        with pytest.raises(RuntimeError) as found:
            all_reduce([1, 2])
        assert str(found.value) == (
            f"rank 1 calls {second} where rank 0 calls {first}: all ranks must make the same calls "
            "in the same order; a rank without samples calls backward(None, 0)"
        )
    assert other.sums == []
    other.differs = None
    assert all_reduce(1).item() == 2.0


def test_the_first_word_that_differs_is_shown(other):
    layer = nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.25))
    layer[0].bias.requires_grad = False
    words = [
        "DistributedDataParallel of model 0",
        "a module in training mode",
        "1 with p=0.25",
        "0.weight (1, 2) float32 on cpu, trained",
        "0.bias (1,) float32 on cpu",
    ]
    for line in range(1, 5):
        other.differs = [*words[:line], "something else", "and more"]
        with pytest.raises(ShapeError) as found:
            DistributedDataParallel(layer)
        assert str(found.value) == (
            f"rank 1 has something else where rank 0 has {words[line]}: build the same model on "
            "every rank, and change it in the same way"
        )
    for theirs, text in (
        (words[:-1], f"rank 1 has nothing more where rank 0 has {words[-1]}: build"),
        ([*words, "a buffer"], "rank 1 has a buffer where rank 0 has nothing more: build"),
    ):
        other.differs = theirs
        with pytest.raises(ShapeError) as found:
            DistributedDataParallel(layer)
        assert text in str(found.value)
    layer.eval()
    other.differs = ["DistributedDataParallel of model 0", "?"]
    with pytest.raises(ShapeError, match="where rank 0 has a module in evaluation mode"):
        DistributedDataParallel(layer)


# Gradients


def test_a_model_starts_with_the_parameters_of_rank_0(other):
    model = nn.Linear(2, 1)
    model.register_buffer("scale", ta.tensor([3.0]))
    DistributedDataParallel(model)
    assert {name: x.tolist() for name, x in other.state.items()} == {
        name: x.tolist() for name, x in model.state_dict().items()
    }
    other.rank = 1
    other.state = {name: x + 1 for name, x in other.state.items()}
    DistributedDataParallel(model)
    for name, x in model.state_dict().items():
        assert_same(x.numpy(), other.state[name])


def test_the_gradients_of_this_rank_are_weighted_and_those_of_the_other_are_added(other):
    model = Mixed()
    parallel = DistributedDataParallel(model)
    other.weights = [3.0]
    other.arrays = [
        np.array([1.0, 0, 0, 1, 1]),
        np.array([1.0, 2, 0, 0, 0]),
        np.array([0.0, 0, -7]),
        np.array([5.0]),
    ]
    parallel.backward(model())  # the usual weight is 1
    used, single, double, half = other.sums
    assert used.tolist() == [1, 1, 0, 1, 0]
    assert_same(single, np.array([1, -3, 0, 0, 0], np.float32))  # nothing is sent of the frozen
    assert_same(double, np.array([1 / 12, -2, 0]))
    assert_same(half, np.array([0.5], np.float32))
    assert_same(model.single.grad.numpy(), np.array([2, -1], np.float32))
    assert_same(model.exact.grad.numpy(), np.array([[1 / 12, -2]]))
    assert_same(model.short.grad.numpy(), np.array([5.5], np.float16))
    assert_same(model.seldom.grad.numpy(), np.array([-7.0]))
    assert model.unused.grad is None
    assert model.frozen.grad is None
    # The same once more is added; now the other rank does what this one does.
    parallel.backward(model(), weight=2)
    assert_same(model.single.grad.numpy(), np.array([6, -13], np.float32))
    assert_same(model.exact.grad.numpy(), np.array([[1 / 12 + 1 / 3, -10]]))
    assert_same(model.short.grad.numpy(), np.array([7.5], np.float16))
    assert_same(model.seldom.grad.numpy(), np.array([-7.0]))


@pytest.mark.parametrize("loss", ["none", "not finite"])
def test_a_rank_without_samples_gets_the_gradients_of_the_other(other, loss):
    model = nn.Linear(2, 1)
    parallel = DistributedDataParallel(model)
    other.weights = [3.0]
    other.arrays = [np.array([1.0, 1.0]), np.array([1.0, 2.0, 3.0])]
    parallel.backward(None if loss == "none" else (model.weight * np.nan).sum(), 0)
    assert [array.tolist() for array in other.sums] == [[0, 0], [0, 0, 0]]
    assert model.weight.grad.tolist() == [[1.0, 2.0]]
    assert model.bias.grad.tolist() == [3.0]
    with pytest.raises(ValueError, match=r"^no rank has a sample: the weight is 0 on every rank"):
        parallel.backward(None, 0)
    assert model.weight.grad.tolist() == [[1.0, 2.0]]


def test_a_wrong_loss_is_told_before_the_other_rank_waits(other):
    model = nn.Linear(2, 1)
    parallel = DistributedDataParallel(model)
    other.gathered.clear()
    for loss in (model(ta.ones(3, 2)), ta.tensor(1.0)):
        with pytest.raises(GraphError):
            parallel.backward(loss)
    with pytest.raises(
        TypeError, match=r"^loss must be a Tensor, got NoneType; None goes with weight 0$"
    ):
        parallel.backward(None, 2)
    with pytest.raises(ValueError, match=r"^weight must be a number >= 0"):
        parallel.backward(model(ta.ones(1, 2)).sum(), -1)
    with pytest.raises(ValueError, match=r"^weight must be a number >= 0"):
        parallel.accumulate([lambda: None], ["3"])
    with pytest.raises(TypeError, match=r"^module must be an nn\.Module, got int 3$"):
        DistributedDataParallel(3)
    assert other.gathered == []
    parallel.backward(model(ta.ones(1, 2)).sum())


def test_models_and_their_steps_are_counted_from_0(other):
    models = [nn.Linear(2, 1) for _ in range(3)]
    parallels = [DistributedDataParallel(model) for model in models]
    for number, (model, parallel) in enumerate(zip(models, parallels, strict=True)):
        for step in range(number + 1):
            other.differs = ["?"]
            with pytest.raises(RuntimeError) as found:
                parallel.backward(model(ta.ones(1, 2)).sum())
            assert f"rank 0 calls step {step} of backward of model {number}:" in str(found.value)
            assert model.weight.grad is None or step
            other.differs = None
            parallel.backward(model(ta.ones(1, 2)).sum())


def test_what_decides_a_gradient_is_in_the_fingerprint(other):
    parallel = DistributedDataParallel(nn.Linear(2, 1))

    def numbers(**changed):
        usual = {"shape": (2,), "dtype": np.dtype("f4"), "device": "cpu", "requires_grad": True}
        return parallel.numbers([SimpleNamespace(**usual | changed)])

    shape, dtype = numbers(shape=(1, 2)), numbers(dtype=np.dtype("f8"))
    found = {numbers(), shape, dtype, numbers(device="cuda"), numbers(requires_grad=False)}
    parallel.module.eval()
    assert len({*found, numbers()}) == 6


def test_parts_count_by_the_samples_of_both_ranks(other):
    model = nn.Module()
    model.weight = nn.Parameter([2.0])
    parallel = DistributedDataParallel(model)
    other.weights = [0.0, 1.0, 3.0, 0.0]
    one, zero = np.array([1.0]), np.array([0.0])
    other.arrays = [np.array([1.0, 3.0, 0.0]), one, np.array([0.5]), one, zero, np.array(10.0)]

    def loss():
        return (model.weight * 4).sum()

    # This rank has 2 samples in the first part, the other one 1 and 3; none has one in the third.
    assert parallel.accumulate([loss, loss, loss], [2, 0, 0]) == (8 * 2 + 10) / 6
    weights, first_used, first, second_used, second, total = other.sums
    assert weights.tolist() == [2, 0, 0]
    assert [first_used.item(), second_used.item(), second.item()] == [1, 0, 0]
    assert first.item() == np.float32(4 * (3 / 6) * (2 / 3))
    assert total.item() == 16
    assert model.weight.grad.item() == np.float32(first.item() + 0.5)
    with pytest.raises(ValueError, match=r"^no rank has a sample: the weight is 0 in every part"):
        parallel.accumulate([loss], [0])
    for losses, weights in (([loss], [1, 1]), ([loss, loss], [1])):
        with pytest.raises(ValueError, match="zip"):
            parallel.accumulate(losses, weights)


def test_all_that_ranks_compare_of_a_model_is_in_its_words(other):
    model = Mixed()
    model.drop = nn.ModuleDict({"a": nn.Dropout(0.25), "b": nn.ReLU(), "c": nn.Dropout(0.0)})
    model.register_buffer("steps", ta.tensor([3, 4]))
    model.drop.b.register_buffer("table", ta.zeros(2, 1, dtype="float64"), persistent=False)
    parameters = [
        "single (2,) float32 on cpu, trained", "exact (1, 2) float64 on cpu, trained",
        "frozen (3,) float32 on cpu", "unused (3,) float32 on cpu, trained",
        "short (1,) float16 on cpu, trained", "seldom (1,) float64 on cpu, trained",
    ]  # fmt: skip
    buffers = ["steps (2,) int64 on cpu", "drop.b.table (2, 1) float64 on cpu"]
    dropouts = ["drop.a with p=0.25", "drop.c with p=0.0"]
    parallel = DistributedDataParallel(model)
    words = ["a module in training mode", *dropouts, *parameters, *buffers]
    assert parallel.words() == words
    model.eval()
    assert parallel.words() == ["a module in evaluation mode", *words[1:]]
