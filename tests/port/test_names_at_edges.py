"""The parts that torch_names is made of, called one by one: devices, marks, a GPU that is played,
and what the further functions say of arguments that do not fit."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from common import relative_error

import tinyattn as ta
import tinyattn.torch_names as ours
from tinyattn.base import random
from tinyattn.errors import DeviceError, DtypeError, ShapeError
from tinyattn.torch_names import functions, marks
from tinyattn.torch_names.devices import adapted, adapted_to, device
from tinyattn.torch_names.methods import GIVEN, give_methods, take_methods

# Devices


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("tpu",), "got 'tpu'$"),
        (("cuda", 3), "got 'cuda:3'; CUDA_VISIBLE_DEVICES chooses among GPUs"),
        (("cuda:3",), "got 'cuda:3'; CUDA_VISIBLE_DEVICES chooses among GPUs"),
        ((3,), "got 'cuda:3'; CUDA_VISIBLE_DEVICES chooses among GPUs"),
        (("cuda:x",), "got 'cuda:x'; CUDA_VISIBLE_DEVICES chooses among GPUs"),
        (("cpu", 1), "got 'cpu:1'$"),
    ],
)
def test_a_device_that_is_not_there_is_named(given: Any, named: str) -> None:
    with pytest.raises(DeviceError, match=f'^device must be "cpu" or "cuda", {named}'):
        device(*given)


def test_a_maker_gets_its_device_and_its_sizes_in_the_form_of_tinyattn() -> None:
    def of_sizes(*sizes: Any, **options: Any) -> Any:
        return sizes, options

    def of_one_size(size: Any, **options: Any) -> Any:
        return size, options

    def of_a_late_size(low: Any = 0, size: Any = None) -> Any:
        return low, size

    many, one = adapted(of_sizes), adapted(of_one_size)
    assert adapted(of_a_late_size)(size=(2, 3)) == (0, (2, 3))
    assert many(2, 3) == ((2, 3), {})
    assert many(size=(2, 3)) == (((2, 3),), {})
    assert one(size=(2, 3)) == ((2, 3), {})
    assert one(4, device=None) == (4, {"device": None})
    for given in ("cuda:0", 0, device("cuda", 0)):
        _, options = many(2, device=given, pin_memory=True, memory_format="any")
        assert options == {"device": "cuda"}
        assert isinstance(options["device"], device)


def test_a_generator_is_used_in_its_call_alone() -> None:
    drawn = adapted(lambda: random.of_block.get())
    generator = ours.Generator()
    before = random.of_block.get()
    assert drawn(generator=generator) is generator.numbers
    assert drawn() is random.of_block.get() is before


def test_a_generator_without_a_seed_begins_anywhere() -> None:
    """Two with one seed begin alike."""
    draws = [ours.randn(4, generator=ours.Generator()).tolist() for _ in range(3)]
    assert len({*map(tuple, draws)}) == 3
    seeded = [ours.Generator().manual_seed(seed) for seed in (0, 0, 1)]
    one, same, other = (ours.randn(4, generator=generator).tolist() for generator in seeded)
    assert one == same != other


def test_to_copies_when_it_is_asked_to(torch: Any) -> None:
    for space in (ours, torch):
        x = space.ones(2)
        for copy in (x.to("cpu", copy=True), x.to(space.float32, copy=True), x.clone()):
            copy[0] = 5.0
        assert x.tolist() == [1.0, 1.0]
        assert x.to("cpu") is x
        assert x.to("cpu", copy=False) is x
        assert x.to(device="cpu", non_blocking=True) is x
        double = x.to(space.float64, copy=True)
        assert str(double.dtype).rpartition(".")[2] == "float64"


def test_only_a_copy_that_is_asked_for_is_made() -> None:
    seen: list[Any] = []

    class Kept:
        def to(self, *targets: Any, **options: Any) -> Any:
            seen.append((targets, options))
            return self if targets == ("cpu",) else Kept()

        def clone(self) -> str:
            return "a copy"

    to, x = adapted_to(Kept.to), Kept()
    assert to(x, "cpu") is to(x, "cpu", non_blocking=True, memory_format="any") is x
    assert to(x, "cpu", copy=True) == "a copy"
    assert isinstance(to(x, "float64", copy=True), Kept)
    to(x, 0, True, device="cuda:0", dtype=np.float64)
    assert seen[-1] == (("cuda", True), {"device": "cuda", "dtype": np.float64})
    assert isinstance(seen[-1][0][0], device)


def test_taken_methods_leave_tinyattns_own() -> None:
    take_methods()
    before = {kind: dict(vars(kind)) for kind in GIVEN}
    own = {kind: [name for name in given if name in before[kind]] for kind, given in GIVEN.items()}
    assert own[ta.nn.Module]
    give_methods()
    for kind, given in GIVEN.items():
        assert {name: vars(kind)[name] for name in given} == given
    take_methods()
    assert {kind: dict(vars(kind)) for kind in GIVEN} == before
    for kind, names in own.items():
        assert [name for name in names if vars(kind)[name] is GIVEN[kind][name]] == []
    assert not hasattr(ta.Tensor, "lerp")
    with pytest.raises(TypeError, match="copy"):
        ta.ones(2).to("cpu", copy=True)


def test_a_class_of_a_dtype_is_itself_alone(torch: Any) -> None:
    for space in (ours, torch):
        kinds = [space.FloatTensor, space.LongTensor, space.DoubleTensor]
        for i, one in enumerate(kinds):
            for j, other in enumerate(kinds):
                assert (one == other) == (i == j)
                assert (one != other) == (i != j)
        assert type(space.ones(1)) == space.Tensor  # noqa: E721  as programs write it
        assert {space.FloatTensor: 1}[space.FloatTensor] == 1


# A GPU that is played


class Played:
    """Of CuPy what torch_names.cuda asks, and which calls there were."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.cuda = SimpleNamespace(
            Device=lambda: SimpleNamespace(synchronize=lambda: self.calls.append("synchronize")),
            runtime=SimpleNamespace(getDeviceProperties=lambda i: {"name": f"GPU {i}".encode()}),
        )

    def get_default_memory_pool(self) -> Any:
        free = self.calls.append
        return SimpleNamespace(
            used_bytes=lambda: 12, total_bytes=lambda: 34, free_all_blocks=lambda: free("free")
        )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    monkeypatch.setattr(ours.cuda, "is_available", lambda: True)
    monkeypatch.setattr(ours.cuda, "module_of", lambda name: played.calls.append(name) or played)
    return played


def test_questions_with_a_gpu(gpu: Played) -> None:
    cuda = ours.cuda
    assert cuda.device_count() == 1
    assert cuda.current_device() == 0
    assert cuda.memory_allocated() == 12
    assert cuda.memory_reserved() == cuda.max_memory_reserved() == 34
    assert cuda.get_device_name() == cuda.get_device_name(0) == "GPU 0"
    assert cuda.current_accelerator() == device("cuda")
    assert cuda.is_bf16_supported() is False
    assert set(gpu.calls) == {"cuda"}


def test_what_is_done_with_a_gpu(gpu: Played) -> None:
    ours.cuda.empty_cache()
    ours.cuda.synchronize()
    assert [call for call in gpu.calls if call != "cuda"] == ["free", "synchronize"]
    ours.cuda.set_device(0)
    assert gpu.calls[-1] == "cuda"
    numbers = []
    for _ in range(2):
        ours.cuda.manual_seed(3)
        numbers.append(ta.rand(3).tolist())
    assert numbers[0] == numbers[1]


@pytest.mark.skipif(ours.cuda.is_available(), reason="there is a GPU")
def test_a_seed_of_no_gpu_changes_nothing() -> None:
    ta.manual_seed(3)
    right = ta.rand(3).tolist()
    ta.manual_seed(3)
    ours.cuda.manual_seed(4)
    ours.cuda.manual_seed_all(5)
    ours.cuda.empty_cache()
    assert ta.rand(3).tolist() == right
    assert ours.cuda.device_count() == 0
    assert ours.cuda.current_accelerator() is None


# Marks


def plain(a: Any, b: Any, y: Any = None, **more: Any) -> Any:
    return a, b, y, more


def with_an_operand(x: Any, y: Any, logits: Any = 0) -> Any:
    return x, y, logits


def of_a_dimension(x: Any, dim: int = 0) -> Any:
    return x, dim


def a_loss(logits: Any, target: Any, reduction: str = "mean") -> Any:
    return logits, target, reduction


class OfMarks:
    def method_(self) -> None:
        raise ValueError


def test_a_mark_keeps_what_it_marked() -> None:
    mark, other = marks.Mark(), marks.Mark()
    assert mark(plain) is plain
    assert other(a_loss, "a hint") is a_loss
    names = {"plain": plain, "a_loss": a_loss, "number": 3, "others": [plain], "more": OfMarks}
    assert marks.rows(names, mark) == {"plain": plain}
    assert marks.rows(names, mark, other) == {"plain": plain, "a_loss": a_loss}
    assert marks.rows(names) == {}


def test_a_function_made_for_a_row_has_its_name() -> None:
    made = marks.with_name(lambda: 1 / 0, "halved")
    assert made.__name__ == made.__qualname__ == made.__code__.co_name == "halved"
    assert made.__code__.co_qualname == "halved"
    with pytest.raises(ZeroDivisionError) as raised:
        made()
    assert raised.traceback[-1].name == "halved"
    assert marks.with_name(OfMarks.method_, "method_").__qualname__ == "method_"
    assert marks.with_name(plain, "another").__name__ == plain.__qualname__ == "plain"
    assert plain.__code__.co_name == "plain"
    value = [1]
    assert marks.with_name(value, "list") is value


def test_what_has_pytorchs_names_stays_as_it_is() -> None:
    assert marks.under_their_names(3, "three") == 3
    assert marks.under_their_names(OfMarks, "OfMarks") is OfMarks
    assert marks.under_their_names(plain, "plain") is plain
    renamed = marks.under_their_names(with_an_operand, "with_an_operand")
    assert marks.under_their_names(renamed, "anything") is renamed


def test_the_first_two_arguments_have_pytorchs_names() -> None:
    call = marks.under_their_names(with_an_operand, "with_an_operand")
    assert call(1, 2) == call(input=1, other=2) == call(x=1, y=2) == call(1, other=2) == (1, 2, 0)
    assert call(1, 2, logits=3) == (1, 2, 3)
    assert list(inspect.signature(call).parameters) == ["input", "other", "logits"]
    assert marks.other_names(call) == {"input": "x", "other": "y"}
    with pytest.raises(TypeError, match=r"with_an_operand\(\) got 'x' and 'input', names of one"):
        call(1, x=1, input=2)
    along = marks.under_their_names(of_a_dimension, "of_a_dimension")
    assert along(input=1, axis=2) == along(1, dim=2) == (1, 2)
    assert list(inspect.signature(along).parameters) == ["input", "dim"]


def test_a_loss_takes_the_old_names_of_its_reduction() -> None:
    loss = marks.under_their_names(a_loss, "a_loss")
    for options, right in [
        ({}, "mean"),
        ({"size_average": True}, "mean"),
        ({"size_average": None}, "mean"),
        ({"size_average": False}, "sum"),
        ({"reduce": True}, "mean"),
        ({"reduce": None}, "mean"),
        ({"reduce": False}, "none"),
        ({"size_average": False, "reduce": True}, "sum"),
        ({"size_average": False, "reduce": False}, "none"),
        ({"reduction": "none"}, "none"),
    ]:
        assert loss(input=1, target=2, **options) == (1, 2, right), options
    assert {"size_average", "reduce", "input"} <= marks.other_names(loss).keys()


def test_the_names_of_a_class_are_those_of_its_constructor() -> None:
    names = marks.other_names(ours.nn.MSELoss)
    assert {"size_average", "reduce"} <= names.keys()
    assert marks.other_names(OfMarks) == {}


# Functions


X = ta.ones(3, 4)
ROWS = ta.tensor([0, 1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ours.isinf([1.0]), TypeError, "isinf: input must be a Tensor, got list"),
        (lambda: ours.isclose([1.0], [1.0]), TypeError, "isclose: input must be a Tensor"),
        (lambda: ours.isin([1.0], X), TypeError, "isin: input must be a Tensor"),
        (lambda: ours.argwhere([1.0]), TypeError, "argwhere: input must be a Tensor"),
        (lambda: ours.nonzero([1.0]), TypeError, "nonzero: input must be a Tensor"),
        (lambda: ours.where([1.0]), TypeError, "where: condition must be a Tensor"),
        (lambda: ours.log2([1.0]), TypeError, "log2: input must be a Tensor"),
        (lambda: ours.log10([1.0]), TypeError, "log10: input must be a Tensor"),
        (lambda: ours.div(X, 2, rounding_mode="up"), ValueError,
         'rounding_mode must be "trunc" or "floor", got .up.'),
        (lambda: ours.narrow(X, 0, "a", 2), DtypeError, "start must be an integer, got 'a'"),
        (lambda: ours.narrow(X, 0, 0, "b"), DtypeError, "length must be an integer, got 'b'"),
        (lambda: ours.narrow(ta.ones(1).sum(), 0, 0, 1), ShapeError, "narrow"),
        (lambda: ours.select(X, 0, 1.5), DtypeError, "index must be an integer, got 1.5"),
        (lambda: ours.index_add(X, 0, ROWS, X), ShapeError,
         r"index_add takes a source of shape \(2, 4\), got \(3, 4\)"),
        (lambda: ours.index_copy(X, 0, ROWS, X), ShapeError,
         r"index_copy takes a source of shape \(2, 4\), got \(3, 4\)"),
        (lambda: ours.index_add(X, 0, ROWS[None], X), ShapeError,
         r"an index along one dimension is \(N,\), got \(1, 2\)"),
        (lambda: ours.index_fill(X, 1, ROWS + 8, 2.0), IndexError,
         r"index 8 is out of range for 4 elements \(dim 1\)"),
        (lambda: ours.index_select(X, 0, ROWS - 1), IndexError,
         r"index -1 is out of range for 3 elements \(dim 0\)"),
        (lambda: ours.index_fill(X, 0, ROWS - 4, 2.0), IndexError, "index -4 is out of range"),
        (lambda: ours.scatter(X, 1, [0], 2.0), TypeError, "scatter: index must be a Tensor"),
        (lambda: ours.scatter(X, 1, ROWS[None] + 8, 2.0), IndexError,
         r"scatter: index 8 is out of range for 4 elements \(dim 1\)"),
        (lambda: ours.scatter(X, 1, ROWS[None], ta.ones(1, 1)), ShapeError,
         r"scatter takes a source of at least \(1, 2\), got \(1, 1\)"),
        (lambda: ours.scatter(X, 1, ROWS[None], 1.0, reduce="mul"), ValueError,
         'scatter takes reduce="add" or none, got .mul.'),
        (lambda: ours.bernoulli(X * 2), ValueError, "bernoulli takes numbers from 0 to 1$"),
        (lambda: ours.bernoulli(X, -0.1), ValueError, "bernoulli takes numbers from 0 to 1$"),
        (lambda: ours.set_default_dtype(np.float64), DtypeError, "the default dtype is float32"),
        (lambda: ours.set_float32_matmul_precision("low"), ValueError, "precision must be"),
    ],
)  # fmt: skip
def test_an_error_of_a_function_names_its_argument(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        call()


def test_a_product_has_its_dimensions() -> None:
    for name, args, dims, shape in [
        ("mm", (X[None], X), 2, (1, 3, 4)),
        ("mm", (X, X[0]), 2, (4,)),
        ("mv", (X, X), 1, (3, 4)),
        ("mv", (X[0], X[0]), 2, (4,)),
        ("trace", (X[0],), 2, (4,)),
    ]:
        message = f"here a tensor of {dims} dimensions is expected, got shape {shape}"
        with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
            getattr(ours, name)(*args)


@pytest.mark.parametrize("base", [2, 10])
def test_a_logarithm_of_a_base(rng: Any, base: int) -> None:
    function = functions.logarithm(base)
    x = rng.uniform(0.1, 9, 6)
    cotangent = rng.normal(size=6)
    given = ta.tensor(x, requires_grad=True)
    found = function(given)
    found.backward(ta.tensor(cotangent))
    assert relative_error(found.numpy(), np.log(x) / np.log(base)) < 1e-14
    assert relative_error(given.grad.numpy(), cotangent / (x * np.log(base))) < 1e-14
    of_integers = function(ta.tensor([1, base, base**3]))
    assert of_integers.dtype == ta.float32
    assert of_integers.tolist() == [0.0, 1.0, 3.0]


@pytest.mark.parametrize("weight", [0.5, -0.5, 0.4999, 0.75, -0.75])
def test_lerp_rounds_as_pytorchs(torch: Any, rng: Any, weight: float) -> None:
    """From the end if the weight is 0.5; float32 shows which of the two it was."""
    x, y = rng.integers(-4096, 4096, (2, 300)).astype(np.float32) / np.float32(4096)
    x[::2] *= 3e7  # so that one half of the sum is lost
    right = torch.lerp(torch.tensor(x), torch.tensor(y), weight).numpy()
    from_input = x + np.float32(weight) * (y - x)
    from_end = y - (y - x) * np.float32(1 - weight)
    nearer = from_input if abs(weight) < 0.5 else from_end
    assert (from_input != from_end).any()
    for w in (weight, ta.full((300,), weight)):
        found = ours.lerp(ta.tensor(x), ta.tensor(y), w).numpy()
        assert (found == nearer).all()
        assert relative_error(found, right) < 1e-6


@pytest.mark.parametrize("diagonal", [-2, -1, 0, 1, 2])
def test_a_diagonal_beside_the_middle(rng: Any, diagonal: int) -> None:
    x, cotangent = rng.normal(size=3), rng.normal(size=(3 + abs(diagonal),) * 2)
    given = ta.tensor(x, requires_grad=True)
    found = ours.diag(given, diagonal)
    found.backward(ta.tensor(cotangent))
    assert (found.numpy() == np.diag(x, diagonal)).all()
    assert (given.grad.numpy() == np.diagonal(cotangent, diagonal)).all()
    matrix = ta.tensor(cotangent)
    assert (ours.diag(matrix, diagonal).numpy() == np.diag(cotangent, diagonal)).all()


@pytest.mark.parametrize("name", ["ceil", "floor", "round", "trunc"])
def test_steps_of_numbers(torch: Any, name: str) -> None:
    for values in (np.array([-2.5, -0.4, 0.5, 1.5, 3.7]), np.array([-3, 0, 5])):
        found = functions.stepwise(name)(ta.tensor(values))
        assert found.equal(getattr(ours, name)(ta.tensor(values)))
        right = getattr(torch, name)(torch.tensor(values))
        assert found.dtype == right.numpy().dtype
        assert found.tolist() == right.tolist()
    integers = ta.tensor([1, 2])
    functions.stepwise(name)(integers)[0] = 9
    assert integers.tolist() == [1, 2]


def test_parts_that_unique_is_asked_for(torch: Any) -> None:
    for space in (ours, torch):
        x = space.tensor([3, 1, 3, 2, 1, 3])
        assert space.unique(x).tolist() == [1, 2, 3]
        values, inverse = space.unique(x, return_inverse=True)
        assert values[inverse].tolist() == x.tolist()
        values, counts = space.unique(x, return_counts=True)
        assert counts.tolist() == [2, 1, 3]
        _, inverse, counts = space.unique(x, return_inverse=True, return_counts=True)
        assert inverse.tolist() == [2, 0, 2, 1, 0, 2]
        rows = space.tensor([[1, 2], [1, 2], [0, 5]])
        assert space.unique(rows, dim=0).tolist() == [[0, 5], [1, 2]]
