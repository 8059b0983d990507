"""Options at their edges: the value at which a forgotten or wrong branch is the only difference."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
from common import MAKERS, leaf

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.engine.op import registry
from tinyattn.errors import DeviceError, DtypeError, ShapeError


def takes(function: Any, argument: str) -> bool:
    try:
        return argument in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


@pytest.mark.parametrize("correction", [3, 4, 7])
def test_variance_of_fewer_numbers_than_the_correction_is_inf(
    correction: int,
) -> None:
    x = ta.tensor([[1.0, 2.0, 4.0]])
    assert x.var(1, correction=correction).tolist() == [np.inf]
    assert x.std(1, correction=correction).tolist() == [np.inf]
    assert np.isnan(ta.ones(1, 1).var(1, correction=correction).numpy()).all()


@pytest.mark.parametrize("correction", [0, 1, 2])
def test_numbers_of_none_are_nan(correction: int) -> None:
    for x, dim in ((ta.zeros(0), None), (ta.zeros(2, 0), 1), (ta.zeros(0, 2), 0)):
        for result in (x.var(dim, correction=correction), x.std(dim, correction=correction)):
            assert np.isnan(result.numpy()).all()
        assert np.isnan(x.mean(dim).numpy()).all()


REDUCTIONS = ["sum", "mean", "prod", "max", "min", "amax", "amin", "argmax", "argmin", "any", "all"]
REDUCTIONS += ["norm", "var", "std", "logsumexp"]


@pytest.mark.parametrize("word", ["keepdim", "keepdims"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_all_dimensions_are_kept_where_none_is_named(name: str, word: str) -> None:
    x = ta.tensor([[[1.0, 2.0, 4.0]], [[3.0, 0.0, 1.0]]], requires_grad=name not in ("any", "all"))
    kept, one = getattr(x, name)(**{word: True}), getattr(x, name)()
    assert kept.shape == (1, 1, 1)
    assert kept.dtype == one.dtype
    assert kept.item() == one.item()
    if one.requires_grad:
        (found,), (expected,) = ta.grad(kept, x), ta.grad(one, x)
        assert found.equal(expected)


@pytest.mark.parametrize("name", ["sum", "cumsum", "prod"])
def test_a_dtype_is_that_of_the_sum_and_not_of_its_result_alone(name: str) -> None:
    numbers = np.array([200.0, 300.5, 2.0], np.float16)
    dim = {"cumsum": (0,)}.get(name, ())
    wide = getattr(ta.tensor(numbers), name)(*dim, dtype=np.float32)
    assert wide.dtype == np.float32
    right = {"sum": np.sum, "cumsum": np.cumsum, "prod": np.prod}[name](numbers.astype(np.float64))
    np.testing.assert_allclose(wide.numpy(), right, rtol=1e-7)
    small = getattr(ta.tensor([1.9, 1.9, 1.9]), name)(*dim, dtype=np.int64)
    right = getattr(np, name)(np.ones(3, np.int64))
    assert small.tolist() == right.tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, np.bool_])
@pytest.mark.parametrize("name", ["sum", "cumsum", "prod"])
def test_integers_are_added_up_and_multiplied_in_64_bits(name: str, dtype: Any) -> None:
    x = np.array([100, 100, 100], dtype)
    for dim in (0, None) if name == "prod" else (0,):
        result = getattr(ta.tensor(x), name)(dim)
        assert result.dtype == np.int64
        assert result.tolist() == getattr(np, name)(x.astype(np.int64), axis=0).tolist()


@pytest.mark.parametrize("p", [1, 2, "fro", float("inf")])
def test_norms_of_negative_numbers_keep_the_dimension_if_told(p: Any) -> None:
    x = np.array([[-3.0, 1.0], [2.0, -5.0]])
    order = None if p == "fro" else p
    for dim in (0, 1, -1):
        right = np.linalg.norm(x, order, axis=dim, keepdims=True)
        np.testing.assert_allclose(ta.tensor(x).norm(p, dim, keepdim=True).numpy(), right)
        np.testing.assert_allclose(ta.tensor(x).norm(p, dim).numpy(), right.squeeze(dim))


def test_shapes_at_their_edges() -> None:
    x = ta.arange(6).reshape(2, 3)
    assert x.roll(1).tolist() == [[5, 0, 1], [2, 3, 4]]
    assert x.roll(-7).tolist() == [[1, 2, 3], [4, 5, 0]]
    assert ta.ones(1, 2, 1).squeeze(()).shape == (1, 2, 1)
    assert ta.ones(1, 2, 1).squeeze((0, 1)).shape == (2, 1)
    assert ta.tensor(3.0).repeat_interleave(2, 0).tolist() == [3, 3]
    assert ta.tensor(3.0).repeat_interleave(0).tolist() == []
    assert x.repeat_interleave(0, 1).shape == (2, 0)
    for start, end in ((1, 0), (2, 1), (-1, -2)):
        with pytest.raises(ShapeError, match=f"start_dim {start % 3} lies behind end_dim"):
            ta.ones(1, 2, 3).flatten(start, end)


@pytest.mark.parametrize("before", range(-4, 3))
@pytest.mark.parametrize("after", range(-4, 3))
def test_pad_takes_away_up_to_all_elements(before: int, after: int) -> None:
    """Also beside elements that are added, and with its gradient, which those that stay get."""
    x = leaf(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    if max(-before, 0) + max(-after, 0) > 3:
        with pytest.raises(ShapeError, match="of 3 elements away"):
            F.pad(x, (before, after))
        return
    out = F.pad(x, (before, after), value=7.0)
    kept = slice(max(-before, 0), 3 - max(-after, 0))
    around = ((0, 0), (max(before, 0), max(after, 0)))
    np.testing.assert_array_equal(
        out.numpy(), np.pad(x.numpy()[:, kept], around, constant_values=7.0), strict=True
    )
    out.backward(ta.ones_like(out))
    right = np.zeros((2, 3))
    right[:, kept] = 1
    np.testing.assert_array_equal(x.grad.numpy(), right)
    rows = F.pad(x.mT, (0, 0, before, after), value=7.0)
    np.testing.assert_array_equal(rows.numpy(), out.numpy().T, strict=True)


def small() -> ta.Tensor:
    return ta.tensor([[1e-6, 1e-6]])


ATTENTION = (ta.ones(1, 1, 2), ta.tensor([[[9.0, 9.0], [0.0, 0.0]]]), ta.tensor([[[1.0], [3.0]]]))
# What is asked for with a 0, and what it gives. None, or nothing, gives something else.
WITH_ZERO: dict[str, tuple[Any, Any]] = {
    "the eps of RMSNorm": (lambda: nn.RMSNorm(2, eps=0.0)(small()), [[1, 1]]),
    "the eps of rms_norm": (lambda: F.rms_norm(small(), 2, eps=0.0), [[1, 1]]),
    "the eps of LayerNorm": (lambda: nn.LayerNorm(2, eps=0.0).eps, 0),
    "the eps of a sublayer": (
        lambda: nn.SublayerConnection(4, 0.0, eps=0.0, norm_layer=nn.RMSNorm).norm.eps, 0),
    "the dropout of a sublayer": (lambda: nn.SublayerConnection(4, 0.0).dropout.p, 0),
    "the dropout of a network": (lambda: nn.PositionwiseFeedForward(2, 2, 0.0).dropout.p, 0),
    "the dropout of heads": (lambda: nn.MultiHeadedAttention(2, 4, 0.0).dropout.p, 0),
    "a probability": (lambda: nn.Dropout(0.0).p, 0),
    "padding": (lambda: nn.Embedding(3, 2, padding_idx=0)([0]), [[0, 0]]),
    "an ignored class": (
        lambda: nn.CrossEntropyLoss(ignore_index=0, reduction="none")(ta.ones(1, 2), [0]), [0]),
    "the scale of LoRA": (lambda: nn.LoRA(nn.Linear(2, 2), scale=0.0).scale, 0),
    "the scale of scores": (lambda: F.scaled_dot_product_attention(*ATTENTION, scale=0.0), [[[2]]]),
    "the value of pad": (lambda: F.pad(ta.ones(1), (0, 1), value=0), [1, 0]),
    "the length of samples": (
        lambda: F.pad_packed_sequence(ta.ones(0), [0, 0], length=0), [[], []]),
    "keys": (lambda: F.alibi_bias(1, 2, keys=0), [[[], []]]),
    "columns": (lambda: ta.eye(2, 0), [[], []]),
    "the end of arange": (lambda: ta.arange(2, 0, -1), [2, 1]),
    "the end of randint": (lambda: ta.randint(-1, 0, (2,)), [-1, -1]),
    "a correction": (lambda: ta.tensor([1.0, 3.0]).var(correction=0), 1),
    "the least number": (lambda: ta.tensor([-1.0, 2.0]).clamp(min=0), [0, 2]),
    "the largest number": (lambda: ta.tensor([-1.0, 2.0]).clamp(max=0), [-1, 0]),
    "the dim of a sum": (lambda: ta.ones(2, 3).sum(0), [2, 2, 2]),
    "the dim of argmax": (lambda: ta.eye(2).argmax(0), [0, 1]),
    "the dim of max": (lambda: ta.eye(2).max(0).values, [1, 1]),
    "the dim of roll": (lambda: ta.arange(4).reshape(2, 2).roll(1, 0), [[2, 3], [0, 1]]),
    "the dim of squeeze": (lambda: ta.ones(1, 1).squeeze(0), [1]),
    "the dim of copies": (lambda: ta.eye(2).repeat_interleave(1, 0), [[1, 0], [0, 1]]),
    "the size of a dimension": (lambda: ta.ones(2, 3).size(0), 2),
    "decay": (lambda: optim.AdamW([leaf(np.ones(1))], weight_decay=0.0).weight_decay, 0),
    "the eps of Adam": (lambda: optim.Adam([leaf(np.ones(1))], eps=0.0).eps, 0),
    "a rate": (lambda: optim.SGD([leaf(np.ones(1))], lr=0.0).lr, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_ZERO)
def test_a_zero_is_not_as_if_nothing_were_given(name: str) -> None:
    call, right = WITH_ZERO[name]
    found = call()
    found = found.detach().numpy() if isinstance(found, ta.Tensor) else found
    np.testing.assert_allclose(found, right, rtol=1e-6)


def test_the_device_counts_where_the_data_are_a_tensor_already() -> None:
    with pytest.raises(DeviceError):
        ta.as_tensor(ta.ones(2), device="cuda:no")
    x = ta.ones(2)
    assert ta.as_tensor(x, device="cpu") is x


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_random_numbers_are_below_one_in_every_dtype(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Largest:
        def random(self, sizes: Any, dtype: Any = np.float64) -> Any:
            return np.full(sizes, np.nextafter(dtype.type(1), dtype.type(0)))

    monkeypatch.setattr("tinyattn.base.random.generator", Largest)
    drawn = ta.rand(3, dtype=dtype)
    assert drawn.dtype == dtype
    assert (drawn < 1).all()
    assert (drawn > 0.99).all()


def test_whole_numbers_are_drawn_up_to_the_largest_of_their_dtype() -> None:
    assert set(ta.randint(254, 256, (200,), dtype=np.uint8).tolist()) == {254, 255}
    assert set(ta.randint(-128, -126, (200,), dtype=np.int8).tolist()) == {-128, -127}
    for low, high in ((-1, 2), (0, 257)):
        with pytest.raises(DtypeError):
            ta.randint(low, high, (2,), dtype=np.uint8)


@pytest.mark.parametrize("name", MAKERS)
def test_what_makes_a_tensor_takes_every_option(name: str) -> None:
    make, x = getattr(ta, name), ta.ones(2, 3, dtype=np.float64)
    arguments = MAKERS[name](x)
    same, options = make(*arguments), inspect.signature(make).parameters
    assert not same.requires_grad
    if "like" in name:
        assert (same.shape, same.dtype) == ((2, 3), np.float64)
    for dtype in (np.int16,) if name == "randint" else (np.float16, np.float64):
        if "dtype" in options:
            made = make(*arguments, dtype=dtype)
            assert (made.shape, made.dtype, made.requires_grad) == (same.shape, dtype, False)
    if "requires_grad" in options:
        assert make(*arguments, dtype=np.float16, requires_grad=True).requires_grad
    with pytest.raises(DeviceError):
        make(*arguments, device="no")


@pytest.mark.parametrize("past", [0, 1, 5])
def test_the_bias_of_alibi_is_that_of_the_last_queries(past: int) -> None:
    whole = F.alibi_bias(4, past + 3).numpy()
    np.testing.assert_array_equal(F.alibi_bias(4, 3, past=past).numpy(), whole[:, past:])


def test_copies_share_neither_gradients_nor_memory() -> None:
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    for frozen in (False, True):
        x.requires_grad = not frozen
        twin = copy.deepcopy(x)
        assert twin.grad is not x.grad
        assert not np.shares_memory(twin.grad.data, x.grad.data)
        assert twin.requires_grad is not frozen


def test_a_gradient_has_the_dtype_of_its_tensor() -> None:
    x = leaf([1.0, 2.0])
    for dtype in (np.float16, np.float64, np.int64):
        other = np.float32 if dtype == x.dtype else dtype
        with pytest.raises(DtypeError, match="grad must have dtype"):
            x.grad = ta.ones(2, dtype=other)
    with pytest.raises(ShapeError, match="grad must have shape"):
        x.grad = ta.ones(2, 1, dtype=x.dtype)


def test_a_leaf_that_was_frozen_meanwhile_gets_no_gradient() -> None:
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    out = (x * y).sum()
    x.requires_grad = False
    out.backward()
    assert x.grad is None
    assert y.grad.tolist() == [1, 2]


def test_a_pickle_from_a_machine_of_another_byte_order_is_native() -> None:
    x = ta.tensor([1.0, 2.0])
    attributes, slots = x.__reduce_ex__(2)[2]
    twin = object.__new__(type(x))
    twin.__setstate__((attributes, slots | {"_data": slots["_data"].astype(">f4")}))
    assert twin.dtype is np.dtype(np.float32)
    assert twin.tolist() == [1, 2]
    assert pickle.loads(pickle.dumps(twin)).tolist() == [1, 2]


def test_gradients_of_a_pickled_model_have_numpys_own_dtype() -> None:
    # Else no kernel takes them, and Adam rounds in another way than before.
    model = pickle.loads(
        pickle.dumps(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.RMSNorm(4)))
    )
    model(ta.ones(2, 3)).sum().backward()
    assert all(x.grad.dtype is np.dtype(np.float32) for x in model.parameters())


def test_kl_div_where_a_target_is_zero_or_one_and_of_three_dimensions() -> None:
    rng = np.random.default_rng(3)
    x = np.log(rng.dirichlet(np.ones(4), (2, 3)))
    target = rng.dirichlet(np.ones(4), (2, 3))
    terms = target * (np.log(target) - x)
    logs = ta.tensor(np.log(target))
    for options, given in (({}, ta.tensor(target)), ({"log_target": True}, logs)):
        found = F.kl_div(ta.tensor(x), given, reduction="batchmean", **options)
        np.testing.assert_allclose(found.item(), terms.sum() / 2)
    certain = ta.tensor([[0.0, -np.inf]])
    assert F.kl_div(certain, ta.tensor([[1.0, 0.0]]), reduction="sum").item() == 0
    x = ta.tensor([[-0.5, -1.0]])
    assert F.kl_div(x, certain, reduction="sum", log_target=True).item() == 0.5  # log 1 is 0


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_losses_of_float16_are_float16_and_do_not_overflow(reduction: str) -> None:
    scores = ta.tensor([[-4.0, -0.1], [-0.2, -3.0]]).half()
    weight = ta.tensor([0.5, 2.0]).half()
    for loss in (
        F.nll_loss(scores, [1, 0], reduction=reduction),
        F.nll_loss(scores, [1, 0], weight, reduction=reduction),
        F.cross_entropy(scores, [1, 0], weight, reduction=reduction),
    ):
        assert loss.dtype == np.float16
    x, target = ta.tensor([150.0, 0.0, 0.0, 0.0]).half(), ta.tensor([-150.0, 0.0, 0.0, 0.0]).half()
    mean = F.mse_loss(x, target)  # of a square that float16 does not have
    assert mean.dtype == np.float16
    assert mean.item() == pytest.approx(22500, rel=1e-3)
    many = F.mse_loss(ta.full((70_000,), 2e-4).half(), ta.zeros(70_000).half(), "sum")
    assert many.item() == pytest.approx(70_000 * 4e-8, rel=1e-2)  # each square is less than 6e-8


def test_class_zero_and_ignored_targets_with_one_class() -> None:
    scores = leaf(np.zeros((2, 1)))
    loss = F.nll_loss(scores, ta.tensor([0, -100]), reduction="sum")
    loss.backward()
    assert scores.grad.tolist() == [[-1], [0]]
    assert F.cross_entropy(scores, ta.tensor([0, -100]), label_smoothing=0.1).item() == 0


def test_dropout_of_nearly_everything_in_float16() -> None:
    p = 1 - 2.0**-17  # what is kept is multiplied by 131,072, which float16 does not have
    x = ta.full((2_000_000,), 2.0**-10).half()
    kept = F.dropout(x, p).numpy()
    assert set(np.unique(kept).tolist()) <= {0.0, 128.0}
    assert (kept == 128).any()


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.bool_])
def test_the_remainder_of_integers_by_floats(kind: Any) -> None:
    x, y = ta.tensor(np.array([1, 0, 1], kind)), ta.tensor([0.75, 2.0, -2.0])
    assert (x % y).tolist() == [0.25, 0, -1]
    assert (x // y).tolist() == [1, 0, -1]
    assert (x % y).dtype == np.float32


ROWS = np.arange(1200.0).reshape(2, 300, 2)
SQUARE = np.arange(90_000.0).reshape(300, 300)
# Calls in which n makes a small integer.
OF_SMALL_INTEGERS: dict[str, Any] = {
    "arange": lambda n: ta.arange(n(100), n(-100), n(-50)),
    "arange upwards": lambda n: ta.arange(n(-100), n(100), n(50)),
    "chunk": lambda n: ta.tensor(ROWS).chunk(n(3), n(1)),
    "diagonal": lambda n: ta.tensor(SQUARE).diagonal(n(1)),
    "diagonal below": lambda n: ta.tensor(SQUARE).diagonal(n(-100)),
    "eye": lambda n: ta.eye(n(100), n(120)),
    "expand": lambda n: ta.ones(1, 1).expand(n(100), n(100)),
    "flip": lambda n: ta.tensor(ROWS).flip(n(0), n(-1)),
    "layer_norm": lambda n: F.layer_norm(ta.tensor(ROWS), n(2)),
    "linspace": lambda n: ta.linspace(n(-100), n(100), n(5)),
    "one_hot": lambda n: F.one_hot(ta.tensor([1, 2]), n(100)),
    "pad": lambda n: F.pad(ta.tensor(ROWS), (n(100), n(1), n(0), n(100))),
    "randint": lambda n: (ta.manual_seed(0), ta.randint(n(10), n(100), (5,)))[1],
    "randint from 0": lambda n: (ta.manual_seed(0), ta.randint(n(100), (5,)))[1],
    "repeat": lambda n: ta.ones(2).repeat(n(100), n(2)),
    "repeat_interleave": lambda n: ta.tensor(ROWS).repeat_interleave(n(100), n(0)),
    "reshape": lambda n: ta.tensor(ROWS).reshape(n(100), n(-1)),
    "reshape to small sizes": lambda n: ta.tensor(SQUARE).reshape(n(100), n(100), n(9)),
    "rms_norm": lambda n: F.rms_norm(ta.tensor(ROWS), n(2)),
    "roll": lambda n: ta.tensor(ROWS).roll(n(-100), n(1)),
    "roll of several": lambda n: ta.tensor(ROWS).roll((n(1), n(-100)), (n(0), n(1))),
    "split": lambda n: ta.tensor(ROWS).split(n(100), n(1)),
    "split of sizes": lambda n: ta.tensor(ROWS).split([n(100), n(100), n(100)], n(1)),
    "topk": lambda n: ta.tensor(SQUARE).topk(n(100), n(0)),
    "tril": lambda n: ta.tensor(SQUARE).tril(n(100)),
    "triu": lambda n: ta.tensor(SQUARE).triu(n(-128)),
    "triu above": lambda n: ta.tensor(SQUARE).triu(n(1)),
    "var": lambda n: ta.tensor(SQUARE).var(n(0), correction=n(100)),
    "std": lambda n: ta.tensor(SQUARE).std(n(-1)),
    "squeeze": lambda n: ta.tensor(ROWS[:1]).squeeze(n(0)),
    "zeros": lambda n: ta.zeros(n(100), n(100)),
}


KINDS = [
    (name, kind)
    for name in OF_SMALL_INTEGERS
    for kind in (np.int8, np.uint8, np.int64, ta.tensor)
    if kind is not ta.tensor or "norm" not in name  # which take a tuple or a number
]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_integers_of_numpy_do_not_overflow(name: str, kind: Any) -> None:
    """A size or a place that was read from an array of int8, or that is a Tensor such as
    lengths.max(), is worth as much as one of Python."""

    def of_kind(value: int) -> Any:
        fits = kind is ta.tensor or np.iinfo(kind).min <= value
        return kind(value) if fits else np.int16(value)

    call = OF_SMALL_INTEGERS[name]
    found, right = (x if isinstance(x, tuple) else (x,) for x in (call(of_kind), call(int)))
    for one, other in zip(found, right, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.numpy(), other.numpy(), strict=True)


def test_an_offset_is_an_integer() -> None:
    for call in (ta.ones(2, 2).tril, ta.ones(2, 2).triu, ta.ones(2, 2).diagonal):
        for wrong in (1.0, None, True, "1"):
            with pytest.raises(TypeError, match=r"(diagonal|offset) must be an integer, got"):
                call(wrong)


OF_A_DIMENSION = {
    name: function
    for name, function in inspect.getmembers(ta.Tensor, callable)
    if not name.startswith("_") and name != "size" and takes(function, "dim")
}
NEEDED = {"chunk": 2, "one_hot": 9, "roll": 1, "split": 2, "topk": 1, "repeat_interleave": 2}


@pytest.mark.parametrize("name", OF_A_DIMENSION)
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.uint16, np.float16])
def test_a_negative_dimension_is_counted_from_the_end_in_every_dtype(name: str, dtype: Any) -> None:
    """The dimension is no number of the tensor: -1 must not fit into uint8."""
    x = ta.tensor(np.arange(6).reshape(2, 3).astype(dtype))

    def found(dim: int) -> Any:
        needed = (NEEDED[name],) if name in NEEDED else ()
        options = {"dims": dim} if name == "roll" else {"dim": dim}
        try:
            result = OF_A_DIMENSION[name](x, *needed, **options)
        except DtypeError as error:  # of an op of floats; and a missing argument
            return str(error)
        parts = result if isinstance(result, tuple) else (result,)
        return [(part.dtype, part.tolist()) for part in parts]

    try:
        right = found(1)
    except TypeError as error:
        assert "missing" in str(error) or "misses" in str(error)  # noqa: PT017
        return
    assert found(-2 if name == "unsqueeze" else -1) == right
    assert "fit" not in str(right)
    if isinstance(right, str):
        return
    with pytest.raises(IndexError, match="dim 70000 is out of range"):  # of float16 too
        found(70_000)


def test_complex_results_are_refused() -> None:
    x = ta.ones(2)
    for call in (
        lambda: x * 1j,
        lambda: x + np.ones(2) * 1j,
        lambda: x**1j,
        lambda: ta.op(promote=True)(lambda x, y: x * y)(x, 1j),
    ):
        with pytest.raises(DtypeError, match="real numbers, got complex"):
            call()


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("name", registry)
def test_no_op_takes_lists_alone(name: str, kind: type) -> None:
    """NumPy would: [1] + [2] is [1, 2], and np.maximum makes arrays, which record nothing."""
    spec = registry[name].spec
    lists = [kind([1.0, 2.0])] * (2 if spec.variadic else max(1, spec.required))
    with pytest.raises((TypeError, ValueError, AttributeError)):
        registry[name](*lists)


def test_grad_takes_a_list_of_tensors_alone() -> None:
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    for outputs, inputs in ((y, [x, 3.0]), (y, (x, None)), ([y, 1.0], x), (y, {"x": x})):
        with pytest.raises(TypeError, match="grad takes a Tensor or a sequence of Tensors, got"):
            ta.grad(outputs, inputs, retain_graph=True)
    with pytest.raises(TypeError, match="got list"):
        ta.grad(y, iter([x, 3.0]))
    assert ta.grad(y, [x])[0].tolist() == [2.0, 4.0]


@pytest.mark.parametrize("library", ["tinyattn", "torch"])
def test_grad_takes_the_parameters_of_a_module(library: str) -> None:
    """An iterator of them, or the values of a dict, as MAML and gradient penalties do."""
    torch = ta if library == "tinyattn" else pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)
    x = torch.tensor([[1.0, -3.0]])
    y = (torch.tensor([[2.0]]) * net(x)).sum()
    grads = torch.autograd.grad(y, net.parameters()) if torch is not ta else None
    grads = grads or ta.grad((z for z in [y]), filter(lambda p: p.requires_grad, net.parameters()))
    assert [g.tolist() for g in grads] == [[[2.0, -6.0]], [2.0]]
    weights = dict(net.named_parameters())
    y = net(x).sum()
    grad = torch.autograd.grad if torch is not ta else ta.grad
    assert [g.tolist() for g in grad(y, weights.values())] == [[[1.0, -3.0]], [1.0]]


@pytest.mark.parametrize("library", ["tinyattn", "torch"])
def test_grad_leaves_the_graph_beneath_its_inputs(library: str) -> None:
    """So that weights of an inner loop, which were computed themselves, learn in an outer one."""
    torch = ta if library == "tinyattn" else pytest.importorskip("torch")
    grad = ta.grad if torch is ta else torch.autograd.grad
    w = torch.tensor([1.0, -2.0], requires_grad=True)
    fast = w.exp() * 1.0
    for _ in range(2):
        (step,) = grad((fast**2).sum(), fast)
        fast = fast - 0.25 * step
    (torch.tensor([3.0, -5.0]) * fast).sum().backward()
    expected = np.exp([1.0, -2.0]) * [3.0, -5.0]
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("counts", [2, [2], [0], [1, 0, 2]])
def test_how_often_each_column_is_repeated(counts: Any) -> None:
    values, cotangent = np.arange(6.0).reshape(2, 3), np.random.default_rng(0)
    expected = np.repeat(values, counts, 1)
    for repeats in (counts, ta.tensor(counts)):
        x = ta.tensor(values, requires_grad=True)
        out = x.repeat_interleave(repeats, 1)
        np.testing.assert_array_equal(out.numpy(), expected)
        grad = cotangent.standard_normal(expected.shape)
        out.backward(ta.tensor(grad))
        columns = np.repeat(np.arange(3), counts)
        right = np.stack([grad[:, columns == j].sum(1) for j in range(3)], 1)
        np.testing.assert_allclose(x.grad.numpy(), right, rtol=1e-12)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
@pytest.mark.parametrize(
    "call",
    [
        lambda numbers: F.cross_entropy(ta.zeros(2, 2), numbers),
        lambda numbers: F.scaled_dot_product_attention(*[ta.ones(1, 2, 3)] * 3, attn_mask=numbers),
    ],
)
def test_an_array_keeps_its_dtype_and_numbers_of_python_have_none(call: Any, kind: Any) -> None:
    """An array of the scores' dtype and a list are taken, an array of another is not cast."""
    numbers = [[0.25, 0.75], [0.5, 0.5]]
    right = call(numbers).numpy()
    assert right.dtype == np.float32
    np.testing.assert_array_equal(call(np.array(numbers, np.float32)).numpy(), right)
    for data in (np.array(numbers, kind), ta.tensor(numbers, kind), [[kind(0.5)] * 2] * 2):
        with pytest.raises(DtypeError, match=np.dtype(kind).name):
            call(data)


@pytest.mark.parametrize("dtype", [ta.int64, ta.bool, ta.uint8])
@pytest.mark.parametrize(
    "make",
    [
        lambda dtype: ta.rand(0, dtype=dtype),
        lambda dtype: ta.randn(0, dtype=dtype),
        lambda dtype: F.alibi_bias(2, 0, dtype=dtype),
        lambda dtype: F.alibi_bias(2, 1, dtype=dtype),
        lambda dtype: F.softmax(ta.zeros(0), dtype=dtype),
        lambda dtype: F.log_softmax(ta.zeros(0), dtype=dtype),
        lambda dtype: nn.Parameter([], False, dtype),
        lambda dtype: ta.zeros(0, dtype=dtype, requires_grad=True),
        lambda dtype: ta.zeros(0, dtype=dtype).mean(),
        lambda dtype: ta.zeros(0, dtype=dtype).var(),
        lambda dtype: nn.Linear(1, 1).to(dtype),
        lambda dtype: nn.init.constant_(ta.zeros(0, dtype=dtype), 1.0),
    ],
)
def test_a_dtype_without_fractions_is_refused_though_no_number_has_one(
    make: Any, dtype: Any
) -> None:
    with pytest.raises(DtypeError, match=f"floating dtype.*{np.dtype(dtype).name}"):
        make(dtype)


@pytest.mark.parametrize("wrong", [True, np.True_, 2.0, np.float64(2), "2", None])
@pytest.mark.parametrize(
    "call",
    [
        lambda n: ta.zeros(n),
        lambda n: ta.ones(2, n),
        lambda n: ta.full((n,), 1.0),
        lambda n: ta.empty(2, n),
        lambda n: ta.rand(n),
        lambda n: ta.randn(2, n),
        lambda n: ta.randint(0, 5, (n,)),
        lambda n: ta.ones(2).reshape(n, 2),
        lambda n: ta.ones(2).reshape((n, 2)),
        lambda n: ta.ones(2).expand(n, 2),
        lambda n: ta.ones(2).repeat(n, 2),
        lambda n: ta.ones(2, 2).permute(n, 0),
        lambda n: ta.ones(2, 2).flip(n),
        lambda n: ta.ones(2, 2).transpose(n, 0),
        lambda n: ta.ones(2, 2).unsqueeze(n),
    ],
)
def test_sizes_and_dimensions_are_integers(call: Any, wrong: Any) -> None:
    """A truth value is an integer of Python, and no size."""
    with pytest.raises(TypeError):
        call(wrong)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(0, 3), (0, 0), (0, 3, 2), (2, 3, 0), (0, 0, 2)])
@pytest.mark.parametrize("dtype", [ta.float16, ta.float32, ta.float64])
def test_losses_of_nothing(dtype: Any, shape: tuple[int, ...], reduction: str) -> None:
    """The sum is 0 and the mean NaN, of logits without a row or without a class."""
    places = (shape[0], *shape[2:])
    for loss in (F.cross_entropy, F.nll_loss, F.mse_loss, F.kl_div):
        x = ta.zeros(*shape, dtype=dtype).requires_grad_()
        by_class = loss in (F.cross_entropy, F.nll_loss)
        target = ta.zeros(*places, dtype=ta.int64) if by_class else ta.zeros(*shape, dtype=dtype)
        out = loss(x, target, reduction=reduction)
        assert out.dtype == dtype
        if reduction == "none":
            assert out.shape == (places if by_class else shape)
        else:
            np.testing.assert_equal(out.item(), 0.0 if reduction == "sum" else np.nan)
        out.sum().backward()
        assert x.grad.shape == shape


@pytest.mark.parametrize("dtype", [ta.float16, ta.float32, ta.float64])
@pytest.mark.parametrize("number", [0.1, -1e4, 1 / 3])
@pytest.mark.parametrize("length", [3, 10, 1000])
def test_equal_numbers_have_no_deviation(dtype: Any, number: float, length: int) -> None:
    """Exactly 0, because programs ask `std == 0`: so a column that never changes is not divided by
    1e-17. The gradient at this kink is 0."""
    column = ta.full((length, 2), number, dtype=dtype)
    for x, dim in ((column, 0), (column.T.contiguous(), 1), (column, None)):
        x = x.clone().requires_grad_()
        assert not x.var(dim).any()
        deviation = x.std(dim)
        assert not deviation.any()
        deviation.sum().backward()
        assert x.grad is not None
        assert not x.grad.any()
