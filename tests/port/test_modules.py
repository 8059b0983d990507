"""The modules that `torch_names.nn` adds, beside PyTorch's: values, gradients, names, states."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
import tinyattn.torch_names as port
import tinyattn.torch_names.nn as nn
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.torch_names.nn import functional as F
from tinyattn.torch_names.nn.recurrent import recurrent_states

# PyTorch warns that it does without nested tensors, and of masks of two kinds.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:Support for mis")
B, N, E, H = 3, 4, 8, 2
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal(shape)


def parts(out: Any) -> list[Any]:
    """The tensors of an output: of a tuple, and of tuples in it."""
    if isinstance(out, tuple):
        return [part for each in out for part in parts(each)]
    return [] if out is None else [out]


def assert_equal(ours: Any, theirs: Any, tolerance: float) -> None:
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    scale = max(1.0, np.abs(theirs).max(initial=0.0))
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=tolerance * scale)


def twins(torch: Any, name: str, *args: Any, dtype: str = "float64", **options: Any) -> Any:
    """One module of each library, with the same values; states are loaded both ways."""
    theirs = getattr(torch.nn, name)(*args, **options).to(getattr(torch, dtype))
    ours = getattr(nn, name)(*args, **options).to(dtype)
    state = {key: value.numpy() for key, value in theirs.state_dict().items()}
    for i, (key, value) in enumerate(state.items()):
        if value.dtype.kind == "f":  # no number of batches
            state[key] = (value + numbers(i, *value.shape) / 4).astype(dtype)
    theirs.load_state_dict({key: torch.tensor(value) for key, value in state.items()})
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    back = {key: torch.tensor(value.numpy()) for key, value in ours.state_dict().items()}
    theirs.load_state_dict(back)
    assert [key for key, _ in ours.named_parameters()] == [
        key for key, _ in theirs.named_parameters()
    ]
    return ours, theirs


def compare(
    ours: Any, theirs: Any, torch: Any, inputs: list[Any], dtype: str = "float64", **options: Any
) -> None:
    """Values, and the gradients of inputs and parameters for random cotangents.

    Options are arrays; inputs are arrays of floats, or None, or the same array twice.
    """
    tolerance = TOLERANCE[dtype]

    def tensors(make: Callable[[np.ndarray], Any]) -> tuple[list[Any], dict[str, Any]]:
        once: dict[int, Any] = {}
        for x in inputs:
            if x is not None:
                once.setdefault(id(x), make(x.astype(dtype)))
        for x in once.values():
            x.requires_grad_(True) if hasattr(x, "requires_grad_") else setattr(
                x, "requires_grad", True
            )
        chosen = {}
        for key, value in options.items():
            is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
            value = value.astype(dtype) if is_float else value
            chosen[key] = make(value) if isinstance(value, np.ndarray) else value
        return [None if x is None else once[id(x)] for x in inputs], chosen

    our_inputs, our_options = tensors(ta.tensor)
    their_inputs, their_options = tensors(torch.tensor)
    our_out, their_out = (
        parts(ours(*our_inputs, **our_options)),
        parts(theirs(*their_inputs, **their_options)),
    )
    assert len(our_out) == len(their_out)
    our_total, their_total = (
        ta.tensor(0.0, dtype=dtype),
        torch.tensor(0.0, dtype=getattr(torch, dtype)),
    )
    for i, (a, b) in enumerate(zip(our_out, their_out, strict=True)):
        assert_equal(a, b, tolerance)
        cotangent = numbers(90 + i, *a.shape).astype(dtype)
        our_total = our_total + (a * ta.tensor(cotangent)).sum()
        their_total = their_total + (b * torch.tensor(cotangent)).sum()
    our_total.backward()
    their_total.backward()
    for a, b in zip(our_inputs, their_inputs, strict=True):
        if a is not None:
            assert_equal(a.grad, b.grad, tolerance)
    if isinstance(ours, nn.Module):
        for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            assert b.grad is not None, name
            assert_equal(a.grad, b.grad, tolerance)


X = numbers(1, B, N, E)
P = 1 / (1 + np.exp(-numbers(2, B, N, E)))  # from 0 to 1
Q = 1 / (1 + np.exp(-numbers(3, B, N, E)))


SMALL: list[tuple[str, list[Any], dict[str, Any], list[np.ndarray]]] = [
    ("ReLU", [], {"inplace": False}, [X]),
    ("SiLU", [], {}, [X]),
    ("LeakyReLU", [], {}, [X]),
    ("LeakyReLU", [0.3], {}, [X]),
    ("ELU", [0.7], {}, [X]),
    ("GLU", [], {"dim": 1}, [X]),
    ("Softplus", [], {}, [X]),
    ("Softplus", [0.5], {}, [9 * X]),
    ("Softplus", [2.0], {"threshold": 1.5}, [X]),
    ("Softplus", [1.0, 0.0], {}, [X]),
    ("LogSoftmax", [], {"dim": 1}, [X]),
    ("Flatten", [], {}, [X]),
    ("Flatten", [0, 1], {}, [X]),
    ("CosineSimilarity", [], {}, [X, P]),
    ("CosineSimilarity", [2], {"eps": 1e-6}, [X, P]),
    ("CosineSimilarity", [-1], {}, [X, P[..., :1]]),
    ("CosineSimilarity", [0], {}, [X, P[0]]),
    ("L1Loss", [], {}, [X, P]),
    ("L1Loss", [], {"reduction": "none"}, [X, P]),
    ("SmoothL1Loss", [], {"reduction": "sum"}, [X, P]),
    ("SmoothL1Loss", [], {"beta": 0.3}, [X, P]),
    ("SmoothL1Loss", [], {"beta": 0.0}, [X, P]),
    ("BCELoss", [], {}, [P, Q]),
    ("BCELoss", [], {"reduction": "none"}, [P, Q]),
    ("BCEWithLogitsLoss", [], {}, [X, Q]),
    ("BCEWithLogitsLoss", [], {"reduction": "sum"}, [X, Q]),
]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("name", "args", "options", "inputs"), SMALL)
def test_small_modules(
    torch: Any, name: str, args: list[Any], options: dict[str, Any], inputs: list[Any], dtype: str
) -> None:
    ours, theirs = twins(torch, name, *args, dtype=dtype, **options)
    compare(ours, theirs, torch, inputs, dtype)


@pytest.mark.parametrize("name", ["BCELoss", "BCEWithLogitsLoss"])
def test_the_weights_of_a_loss_are_buffers(torch: Any, name: str) -> None:
    """The weight comes first, as in PyTorch; pos_weight by name."""
    weights = {"weight": Q[0], "pos_weight": 3 * P[0]} if "Logits" in name else {"weight": Q[0]}
    weight, *_ = weights.values()
    rest = {key: value for key, value in weights.items() if key != "weight"}
    ours = getattr(nn, name)(ta.tensor(weight), **{k: ta.tensor(v) for k, v in rest.items()})
    theirs = getattr(torch.nn, name)(
        torch.tensor(weight), **{k: torch.tensor(v) for k, v in rest.items()}
    )
    compare(ours, theirs, torch, [P, Q])
    assert list(ours.state_dict()) == list(theirs.state_dict()) == list(weights)


def test_nll_loss(torch: Any) -> None:
    classes = np.array([1, 0, 3])
    for options in ({}, {"ignore_index": 0}, {"reduction": "sum"}):
        ours, theirs = nn.NLLLoss(**options), torch.nn.NLLLoss(**options)
        compare(
            lambda x, loss=ours: loss(x, ta.tensor(classes)),
            lambda x, loss=theirs: loss(x, torch.tensor(classes)),
            torch, [numbers(4, 3, 5)],
        )  # fmt: skip
    weight = np.arange(1.0, 6.0)
    compare(
        lambda x: nn.NLLLoss(ta.tensor(weight))(x, ta.tensor(classes)),
        lambda x: torch.nn.NLLLoss(torch.tensor(weight))(x, torch.tensor(classes)),
        torch,
        [numbers(4, 3, 5)],
    )


@pytest.mark.parametrize("wrong", [1.5, -0.1, float("nan"), float("inf")])
def test_binary_cross_entropy_of_what_is_no_probability(torch: Any, wrong: float) -> None:
    """As logits are, where the sigmoid was forgotten."""
    x, target = np.array([0.0, 1.0, wrong], np.float32), np.array([0.0, 1.0, 1.0], np.float32)
    for loss in (F.binary_cross_entropy, nn.BCELoss()):
        with pytest.raises(ValueError, match="takes numbers from 0 to 1: call sigmoid before"):
            loss(ta.tensor(x), ta.tensor(target))
        with pytest.raises(ValueError, match="takes numbers from 0 to 1: call sigmoid before"):
            loss(ta.tensor(wrong), ta.tensor(1.0))
        assert abs(loss(ta.tensor(0.5), ta.tensor(1.0)).item() - np.log(2)) < 1e-6
    with pytest.raises(RuntimeError):
        torch.nn.functional.binary_cross_entropy(torch.tensor(x), torch.tensor(target))
    F.binary_cross_entropy(ta.zeros(0, 2), ta.zeros(0, 2), reduction="sum")


def test_a_saturated_binary_cross_entropy_is_100(torch: Any) -> None:
    x, target = [0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]
    losses = F.binary_cross_entropy(ta.tensor(x), ta.tensor(target), reduction="none")
    theirs = torch.nn.functional.binary_cross_entropy(
        torch.tensor(x), torch.tensor(target), reduction="none"
    )
    assert_equal(losses, theirs, 1e-6)
    leaf = ta.tensor(x, requires_grad=True)
    F.binary_cross_entropy(leaf, ta.tensor(target)).backward()
    assert np.isfinite(leaf.grad.numpy()).all()
    large = ta.tensor([1000.0, -1000.0])
    far = F.binary_cross_entropy_with_logits(large, ta.tensor([1.0, 0.0]), reduction="none")
    assert far.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "name",
    ["logsigmoid", "sigmoid", "tanh", "softplus", "silu", "gelu", "relu", "leaky_relu", "elu"],
)
def test_a_function_of_large_numbers_has_a_value_and_a_slope(
    torch: Any, name: str, dtype: str
) -> None:
    """Where exp overflows, and where what is added to 1 is lost beside it."""
    x = np.array([-1e4, -800.0, -100.0, -20.0, -1e-8, 0.0, 1e-8, 20.0, 100.0, 800.0, 1e4], dtype)
    ours, theirs = ta.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    found, right = getattr(F, name)(ours), getattr(torch.nn.functional, name)(theirs)
    found.sum().backward()
    right.sum().backward()
    for mine, its in ((found, right), (ours.grad, theirs.grad)):
        np.testing.assert_allclose(mine.numpy(), its.detach().numpy(), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("relu", []), ("leaky_relu", [0.1]), ("elu", [0.5]), ("silu", []), ("dropout", [1.0])],
)
def test_inplace_changes_the_input(
    torch: Any, name: str, arguments: list[float], recorded: bool
) -> None:
    """So a shortcut around an activation has the new values too."""
    kind = {"leaky_relu": "LeakyReLU", "relu": "ReLU", "elu": "ELU", "silu": "SiLU"}

    def run(library: Any, functions: Any) -> Any:
        x = library.tensor([[-1.0, 2.0], [0.5, -3.0]], requires_grad=recorded)
        given, other = x * 1.0, x * 2.0
        activation = getattr(library.nn, kind.get(name, "Dropout"))(*arguments, inplace=True)
        assert activation(given) is given
        row = other[0]
        assert getattr(functions, name)(row, *arguments, inplace=True) is row
        if recorded:
            (given * given + other).sum().backward()
            with pytest.raises(RuntimeError):
                activation(x)
        return [
            *(z.detach().numpy() for z in (given, other, row)),
            x.grad.numpy() if recorded else 0,
        ]

    for found, right in zip(run(port, F), run(torch, torch.nn.functional), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 3])
def test_glu_has_two_equal_halves(size: int) -> None:
    """Of three, two and one would be broadcast."""
    with pytest.raises(ShapeError, match=f"do not add up to {size} "):
        F.glu(ta.ones(2, size))


@pytest.mark.parametrize(("shape", "dim"), [((0, 8), -1), ((0, 8), 1), ((2, 0), 1), ((4, 0), 0)])
def test_glu_of_nothing(torch: Any, shape: tuple[int, int], dim: int) -> None:
    """Of an empty batch, whose other sizes no reshape can infer."""
    expected = torch.nn.functional.glu(torch.ones(shape), dim)
    assert F.glu(ta.ones(shape), dim).shape == tuple(expected.shape)


@pytest.mark.parametrize("dims", range(5))
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_without_a_dim_softmax_goes_over_pytorchs(torch: Any, name: str, dims: int) -> None:
    """Which depends on the number of dimensions; and the gradient too."""
    x, cotangent = (np.asarray(numbers(seed, *(2, 3, 4, 5)[:dims])) for seed in range(2))
    function = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}[name]
    theirs = torch.tensor(x, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch would rather have a dim
        right = getattr(torch.nn.functional, function)(theirs)
    right.backward(torch.tensor(cotangent))
    for call in (getattr(F, function), getattr(nn, name)()):
        ours = ta.tensor(x, requires_grad=True)
        found = call(ours)
        found.backward(ta.tensor(cotangent))
        np.testing.assert_allclose(found.numpy(), right.detach().numpy(), 1e-6, 1e-7)
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), 1e-5, 1e-6)


def test_gumbel_softmax_samples_the_distribution() -> None:
    ta.manual_seed(0)
    logits = ta.tensor(np.log([0.2, 0.3, 0.5]), requires_grad=True)
    many = logits.expand(20_000, 3)
    hard = F.gumbel_softmax(many, hard=True)
    assert set(hard.detach().numpy().round(6).ravel()) == {0.0, 1.0}
    np.testing.assert_allclose(hard.detach().numpy().mean(0), [0.2, 0.3, 0.5], atol=0.015)
    soft = F.gumbel_softmax(many, tau=0.5)
    np.testing.assert_allclose(soft.detach().numpy().sum(1), 1.0, rtol=1e-12)
    assert 0.01 < soft.detach().numpy().max(1).min() < 0.99
    columns = F.gumbel_softmax(ta.tensor(numbers(5, 4, 6)), hard=True, dim=0)
    np.testing.assert_allclose(columns.numpy().sum(0), 1.0, rtol=1e-12)
    for dim in (0, 1, -1):
        boxes = F.gumbel_softmax(ta.tensor(numbers(5, 2, 3, 4)), hard=True, dim=dim)
        assert boxes.shape == (2, 3, 4)
        np.testing.assert_allclose(boxes.numpy().sum(dim), 1.0, rtol=1e-12)
    hard.backward(ta.tensor(numbers(6, 20_000, 3)))
    assert logits.grad.abs().sum().item() > 0  # the gradient of the soft sample


@pytest.mark.parametrize("mask", [None, "bool", "float", "learned"])
def test_scaled_dot_product_attention_in_pytorchs_order(torch: Any, mask: str | None) -> None:
    q, k, v = (numbers(i, B, H, N, E) for i in (7, 8, 9))
    visible = np.tril(np.ones((N, N), bool))
    given = {
        None: None,
        "bool": visible,
        "float": np.where(visible, 0.5, -np.inf),
        "learned": numbers(10, H, N, N),
    }[mask]
    ours, theirs = F.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
    if mask == "learned":
        compare(ours, theirs, torch, [q, k, v, given])
        return
    compare(
        lambda *x: ours(*x, None if given is None else ta.tensor(given), 0.0, mask is None),
        lambda *x: theirs(*x, None if given is None else torch.tensor(given), 0.0, mask is None),
        torch, [q, k, v],
    )  # fmt: skip
    compare(ours, theirs, torch, [q, k, v], scale=0.3)
    compare(ours, theirs, torch, [q, k[:, :1], v[:, :1]], enable_gqa=True)


def test_dropout_p_is_the_fifth_argument_of_attention() -> None:
    x = ta.randn(1, 2, 8, 4)
    assert not F.scaled_dot_product_attention(x, x, x, None, 0.5).equal(
        F.scaled_dot_product_attention(x, x, x, None, 0.0)
    )


# Embedding, lists of parameters, buffers, lazy layers


def test_embedding(torch: Any) -> None:
    ours, theirs = twins(torch, "Embedding", 5, E, -1)
    ids = np.array([[0, 4], [2, 4]])
    compare(lambda: ours(ta.tensor(ids)), lambda: theirs(torch.tensor(ids)), torch, [])
    ours(ta.tensor(ids)).backward(ta.tensor(numbers(1, 2, 2, E)))
    theirs(torch.tensor(ids)).backward(torch.tensor(numbers(1, 2, 2, E)))
    assert_equal(ours.weight.grad, theirs.weight.grad, 1e-10)
    assert ours.padding_idx == theirs.padding_idx == 4
    assert nn.Embedding(5, E, sparse=True).weight.shape == (5, E)
    for options in ({"max_norm": 1.0}, {"scale_grad_by_freq": True}):
        with pytest.raises(ValueError, match="has no max_norm and no scale_grad_by_freq"):
            nn.Embedding(5, E, **options)


@pytest.mark.parametrize("place", [-5, -1, 0, 4])
def test_padding_of_an_embedding_counts_from_both_ends(torch: Any, place: int) -> None:
    ours, theirs = twins(torch, "Embedding", 5, E, place)
    assert ours.padding_idx == theirs.padding_idx == place % 5
    for wrong in (-6, 5):
        with pytest.raises(IndexError, match="padding_idx"):
            nn.Embedding(5, E, wrong)


def test_an_embedding_of_given_rows() -> None:
    rows = ta.tensor(numbers(1, 5, E))
    frozen = nn.Embedding.from_pretrained(rows)
    assert not frozen.weight.requires_grad
    assert frozen(ta.tensor([3])).equal(rows[3:4])
    learned = nn.Embedding.from_pretrained(rows, freeze=False, padding_idx=0)
    assert learned.weight.requires_grad
    assert learned.weight.equal(rows)
    assert learned.padding_idx == 0


def test_a_lazy_layer_gets_its_size_from_the_first_input(torch: Any) -> None:
    ours, theirs = nn.LazyLinear(3), torch.nn.LazyLinear(3)
    names = [name for name, _ in ours.named_parameters()]
    assert names == [name for name, _ in theirs.named_parameters()] == ["weight", "bias"]
    assert isinstance(ours.weight, nn.UninitializedParameter)
    assert str(ours.weight) == str(theirs.weight)
    assert str(ours) == "LazyLinear(out_features=3, bias=True)"
    weight, optimizer = ours.weight, ta.optim.SGD(ours.parameters(), lr=0.1)
    x = ta.tensor(numbers(1, 2, 5), dtype=ta.float32)
    out = ours(x)
    assert type(ours) is nn.Linear
    assert type(weight) is nn.Parameter
    assert ours.weight is weight
    assert weight.shape == (3, 5)
    assert 0 < weight.abs().max().item() <= 5**-0.5
    np.testing.assert_allclose(out.numpy(), (x @ weight.mT + ours.bias).numpy(), rtol=1e-5)
    before = weight.numpy()
    ours(x).backward(ta.ones(2, 3))
    optimizer.step()  # the optimizer has it, although it was made before the first call
    np.testing.assert_allclose(weight.numpy(), before - 0.1 * weight.grad.numpy(), rtol=1e-6)
    linear = torch.nn.Linear(5, 3)
    ours.load_state_dict({key: value.numpy() for key, value in linear.state_dict().items()})
    assert_equal(ours(x), linear(torch.tensor(x.numpy())), 1e-5)


def test_a_lazy_layer_that_was_not_called_says_so() -> None:
    model = nn.Sequential(
        nn.LazyLinear(3, dtype=ta.float64), nn.ReLU(), nn.LazyLinear(2, bias=False)
    )
    for use in (
        lambda: nn.init.xavier_uniform_(model[0].weight),
        lambda: nn.init.zeros_(model[0].bias),
        lambda: nn.Linear(5, 3).load_state_dict(model[0].state_dict()) and model[0].weight.shape,
        lambda: model[0].load_state_dict(nn.Linear(5, 3).state_dict()),
    ):
        with pytest.raises((ValueError, ShapeError)) as caught:
            use()
    assert "no weight yet: call the model on a batch first" in str(caught.value)
    twin = copy.deepcopy(model)
    for each in (model, twin):
        each[0](ta.randn(2, 5).double())
        assert each[0].weight.dtype == ta.float64
    assert not model[0].weight.equal(twin[0].weight)


# Starting values


def test_trunc_normal_is_the_distribution_between_its_limits() -> None:
    stats = pytest.importorskip("scipy.stats")
    ta.manual_seed(0)
    for mean, std, a, b in (
        (0.0, 1.0, -2.0, 2.0),
        (0.0, 0.02, -2.0, 2.0),
        (1.0, 2.0, 0.0, 1.5),
        (0.0, 1.0, 6.0, 7.0),
    ):
        w = nn.init.trunc_normal_(ta.empty(200, 100).double(), mean, std, a, b).numpy().ravel()
        assert a <= w.min()
        assert w.max() <= b
        right = stats.truncnorm((a - mean) / std, (b - mean) / std, mean, std)
        assert stats.kstest(w, right.cdf).pvalue > 1e-3
    with pytest.raises(ValueError, match="no number of N"):
        nn.init.trunc_normal_(ta.empty(2), 0.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    w = nn.init.orthogonal_(ta.empty(*shape).double(), gain=2.0).numpy().reshape(shape[0], -1)
    product = w @ w.T if len(w) <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)
    with pytest.raises(ShapeError, match="two dimensions"):
        nn.init.orthogonal_(ta.empty(3))


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (2, 3), (3, 1)])
def test_all_orthogonal_matrices_are_equally_probable(shape: tuple[int, ...]) -> None:
    """So each element has both signs: a matrix times -1 in one row is as probable as it is."""
    ta.manual_seed(0)
    drawn = [nn.init.orthogonal_(ta.empty(*shape)).numpy() > 0 for _ in range(200)]
    shares = np.mean(drawn, axis=0)
    assert (shares > 0.35).all()
    assert (shares < 0.65).all()


def test_gains_and_old_names(torch: Any) -> None:
    for name in ("linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert nn.init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    theirs = torch.nn.init.calculate_gain("leaky_relu", 0.3)
    assert nn.init.calculate_gain("leaky_relu", 0.3) == pytest.approx(theirs)
    with pytest.raises(ValueError, match="nonlinearity must be"):
        nn.init.calculate_gain("cosine")
    assert nn.init.xavier_uniform is nn.init.xavier_uniform_
    assert nn.init.orthogonal is nn.init.orthogonal_
    with pytest.raises(AttributeError, match=r"has no nn\.init\.dirac_"):
        nn.init.dirac_  # noqa: B018


# nn.utils


def test_clip_grad_value(torch: Any) -> None:
    ours, theirs = nn.Parameter([1.0, 2.0, 3.0]), torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    for x, library in ((ours, ta), (theirs, torch)):
        (x * library.tensor([5.0, -5.0, 0.2])).sum().backward()
    nn.utils.clip_grad_value_(iter([ours, nn.Parameter([1.0])]), 0.5)
    torch.nn.utils.clip_grad_value_([theirs], 0.5)
    assert ours.grad.tolist() == theirs.grad.tolist()
    with pytest.raises(TypeError, match="not the module or one Tensor"):
        nn.utils.clip_grad_value_(nn.Linear(2, 2), 0.5)
    nn.utils.clip_grad_value_(ours, 0.1)
    assert ours.grad.tolist() == pytest.approx([0.1, -0.1, 0.1])
    assert nn.utils.clip_grad_norm_(ours, 1.0).item() == pytest.approx(0.03**0.5)


@pytest.mark.parametrize(
    "dtypes", [[], ["float32"], ["float64"], ["float32", "float64", "float32"], ["float16"]]
)
def test_the_norm_has_the_dtype_of_the_gradients(torch: Any, dtypes: list[str]) -> None:
    found = []
    for library in (ta, torch):
        kinds = [getattr(library, dtype) for dtype in dtypes]
        tensors = [library.zeros(2, dtype=kind, requires_grad=True) for kind in kinds]
        for tensor in tensors:
            tensor.grad = tensor.detach() + 1 / 3
        of = nn.utils if library is ta else torch.nn.utils
        found.append(of.clip_grad_norm_(iter([library.zeros(2), *tensors]), 0.5, foreach=False))
    # Of float16 ours is float32, because a norm of 65,520 or more would be inf.
    expected = "torch.float32" if dtypes == ["float16"] else str(found[1].dtype)
    assert f"torch.{found[0].dtype}" == expected
    digits = {"float16": 1e-3, "float64": 1e-15}.get(dtypes[0] if len(dtypes) == 1 else "", 1e-7)
    assert found[0].item() == pytest.approx(found[1].item(), rel=digits)


# Recurrent layers

RECURRENT = [
    ("GRU", {}), ("LSTM", {}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"}),
    ("GRU", {"num_layers": 3, "batch_first": True}),
    ("GRU", {"bias": False}),
    ("GRU", {"num_layers": 2, "bidirectional": True}),
    ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("name", "options"), RECURRENT)
def test_recurrent_layers(torch: Any, name: str, options: dict[str, Any], dtype: str) -> None:
    ours, theirs = twins(torch, name, E, 5, dtype=dtype, **options)
    compare(ours, theirs, torch, [X], dtype)
    batch = B if options.get("batch_first") else N
    layers = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    states = [numbers(20 + i, layers, batch, 5) for i in range(1 + (name == "LSTM"))]

    def with_states(module: Any) -> Callable[..., Any]:
        return lambda x, *h: module(x, h if name == "LSTM" else h[0])

    compare(with_states(ours), with_states(theirs), torch, [X, *states], dtype)
    one = [state[:, 0] for state in states]
    compare(with_states(ours), with_states(theirs), torch, [X[0], *one], dtype)
    compare(ours, theirs, torch, [X[:1, :1]], dtype)
    assert ours._flat_weights_names == theirs._flat_weights_names


CELLS = [("GRUCell", {}), ("LSTMCell", {}), ("GRUCell", {"bias": False})]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("name", "options"), CELLS)
def test_cells(torch: Any, name: str, options: dict[str, Any], dtype: str) -> None:
    """Two steps in turn, from no state and from one that is given; with a batch and without."""
    ours, theirs = twins(torch, name, E, 5, dtype=dtype, **options)
    assert repr(ours) == repr(theirs)
    is_lstm = name == "LSTMCell"
    states = [numbers(20 + i, B, 5) for i in range(1 + is_lstm)]

    def steps(module: Any) -> Callable[..., Any]:
        def run(x: Any, *state: Any) -> Any:
            first = module(x, (state if is_lstm else state[0]) if state else None)
            return module(x * 2, first)

        return run

    compare(steps(ours), steps(theirs), torch, [X[:, 0]], dtype)
    compare(steps(ours), steps(theirs), torch, [X[:, 0], *states], dtype)
    compare(steps(ours), steps(theirs), torch, [X[0, 0], *(h[0] for h in states)], dtype)


def test_bad_arguments_of_cells() -> None:
    with pytest.raises(ShapeError, match=r"this GRUCell takes x \(..., 8\), got \(3, 7\)"):
        nn.GRUCell(E, 5)(ta.randn(B, 7))
    with pytest.raises(ShapeError, match=r"this GRUCell takes x \(..., 8\), got \(1, 3, 8\)"):
        nn.GRUCell(E, 5)(ta.randn(1, B, E))
    with pytest.raises(ShapeError, match=r"a state is \(3, 5\), got \[\(1, 5\)\]"):
        nn.GRUCell(E, 5)(ta.randn(B, E), ta.zeros(1, 5))


@pytest.mark.parametrize(("kind", "gates", "parts"), [("GRU", 3, 1), ("LSTM", 4, 2), ("RNN", 1, 1)])
def test_the_states_have_their_derivatives(kind: str, gates: int, parts: int) -> None:
    """Against finite differences, the second ones too, which compute the gates again."""
    sizes = [(2, 2, 3 * gates), (3 * gates, 3), (3 * gates,), (parts, 2, 3)]
    inputs = [ta.tensor(numbers(i, *size)) for i, size in enumerate(sizes)]
    states = partial(recurrent_states, kind=kind)
    ta.testing.check_op(states, [inputs], second_order=True, smooth=True)


def test_bad_arguments_of_recurrent_layers() -> None:
    with pytest.raises(ShapeError, match=r"this GRU takes x \(..., 8\), got \(3, 4, 7\)"):
        nn.GRU(E, 5)(ta.randn(B, N, 7))
    with pytest.raises(ShapeError, match=r"a state is \(1, 4, 5\), got \[\(1, 3, 5\)\]"):
        nn.GRU(E, 5)(ta.randn(B, N, E), ta.zeros(1, B, 5))
    with pytest.raises(ShapeError, match=r"a pair \(h, c\), each \(1, 4, 5\), got \[\(1, 4, 5\)\]"):
        nn.LSTM(E, 5)(ta.randn(B, N, E), ta.zeros(1, N, 5))
    with pytest.raises(ValueError, match='nonlinearity must be "tanh" or "relu"'):
        nn.RNN(E, 5, 1, "sigmoid")
    with pytest.raises(ShapeError, match="hidden_size must be an integer >= 1"):
        nn.GRU(E, 0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'proj_size'"):
        nn.LSTM(E, 5, proj_size=2)
    dropped = nn.GRU(E, 5, 2, dropout=1.0)
    dropped.flatten_parameters()
    assert dropped(ta.randn(B, N, E))[0].equal(dropped(ta.randn(B, N, E))[0])
    assert not dropped.eval()(ta.randn(B, N, E))[0].equal(dropped(ta.randn(B, N, E))[0])


# What takes a probability of dropout, and an eps.
WITH_DROPOUT: dict[str, Callable[[Any], Any]] = {
    "F.dropout": lambda p: nn.functional.dropout(ta.ones(3), p),
    "Dropout": nn.Dropout,
    "GRU": lambda p: nn.GRU(4, 2, 2, dropout=p),
    "LSTM": lambda p: nn.LSTM(4, 2, 2, dropout=p),
    "RNN": lambda p: nn.RNN(4, 2, 2, dropout=p),
    "MultiheadAttention": lambda p: nn.MultiheadAttention(4, 2, p),
    "TransformerEncoderLayer": lambda p: nn.TransformerEncoderLayer(4, 2, 8, p),
    "TransformerDecoderLayer": lambda p: nn.TransformerDecoderLayer(4, 2, 8, p),
    "Transformer": lambda p: nn.Transformer(4, 2, 1, 1, 8, p),
}
WITH_EPS: dict[str, Callable[[Any], Any]] = {
    "BatchNorm1d": lambda eps: nn.BatchNorm1d(4, eps),
    "BatchNorm2d": lambda eps: nn.BatchNorm2d(4, eps),
    "LayerNorm": lambda eps: nn.LayerNorm(4, eps),
    "RMSNorm": lambda eps: nn.RMSNorm(4, eps),
    "TransformerEncoderLayer": lambda eps: nn.TransformerEncoderLayer(4, 2, layer_norm_eps=eps),
    "Transformer": lambda eps: nn.Transformer(4, 2, 1, 1, 8, layer_norm_eps=eps),
}


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_a_probability_of_dropout_is_checked_when_a_module_is_made(name: str) -> None:
    for right in (0, 0.0, 0.5, 1.0, 1):
        WITH_DROPOUT[name](right)
    for wrong in (-0.1, 1.5, 2, float("nan"), float("inf"), "0.1", None, True):
        with pytest.raises((ValueError, TypeError)):
            WITH_DROPOUT[name](wrong)


@pytest.mark.parametrize("name", WITH_EPS)
def test_an_eps_is_checked_when_a_module_is_made(name: str) -> None:
    for right in (0, 1e-12, 1):
        WITH_EPS[name](right)
    for wrong in (-1e-5, float("nan"), float("inf"), "1e-5", True):
        with pytest.raises((ValueError, TypeError)):
            WITH_EPS[name](wrong)


# MultiheadAttention

PADDING = np.zeros((B, N), bool)
PADDING[1, 2:] = PADDING[2, 3:] = True
CAUSAL = np.triu(np.ones((N, N), bool), 1)
PER_HEAD = np.random.RandomState(5).uniform(size=(B * H, N, N)) < 0.4
PER_HEAD[..., 0] = False
ADDED = np.where(CAUSAL, -np.inf, numbers(11, N, N))
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "float padding": {"key_padding_mask": np.where(PADDING, -np.inf, 0.5)},
    "causal": {"attn_mask": CAUSAL},
    "hint": {"attn_mask": CAUSAL, "is_causal": True},
    "causal of floats": {"attn_mask": np.where(CAUSAL, -np.inf, 0.0)},
    "other": {"attn_mask": CAUSAL[::-1, ::-1].copy()},
    "per head": {"attn_mask": PER_HEAD},
    "added": {"attn_mask": ADDED},
    "added per head": {"attn_mask": numbers(12, B * H, N, N)},
    "both": {"attn_mask": CAUSAL, "key_padding_mask": PADDING},
    "both of floats": {"attn_mask": ADDED, "key_padding_mask": np.where(PADDING, -np.inf, 0.5)},
    "both, per head": {"attn_mask": PER_HEAD, "key_padding_mask": PADDING},
    # Numbers of one sign, as those of ALiBi, and one number alone.
    "added, below 0": {"attn_mask": -abs(numbers(13, N, N))},
    "added, above 0": {"attn_mask": abs(numbers(13, N, N))},
    "added below 0 and causal": {"attn_mask": np.where(CAUSAL, -np.inf, -abs(numbers(14, N, N)))},
    "added below 0 per head": {"attn_mask": -abs(numbers(15, B * H, N, N))},
    "one number": {"attn_mask": np.where(np.arange(N * N).reshape(N, N) == 4, -0.5, 0.0)},
    "float padding below 0": {"key_padding_mask": np.where(PADDING, -np.inf, -0.5)},
    "padding that is weighed": {"key_padding_mask": -np.arange(B * N).reshape(B, N) / 10},
    "both below 0": {
        "attn_mask": -abs(numbers(16, N, N)), "key_padding_mask": np.where(PADDING, -np.inf, -0.5)
    },
}  # fmt: skip
WEIGHTS = [{}, {"average_attn_weights": False}, {"need_weights": False}]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "no bias": {"bias": False, "batch_first": True},
    "widths": {"kdim": 5, "vdim": 7, "batch_first": True},
    "kdim": {"kdim": 5},
}


def inputs_of(options: dict[str, Any], keys: int = N) -> list[np.ndarray]:
    widths = E, options.get("kdim", E), options.get("vdim", E)
    arrays = [
        numbers(30 + i, B, n, d)
        for i, (n, d) in enumerate(zip((N, keys, keys), widths, strict=True))
    ]
    first = options.get("batch_first")
    return arrays if first else [x.transpose(1, 0, 2).copy() for x in arrays]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_multihead_attention(torch: Any, kind: str, mask: str) -> None:
    ours, theirs = twins(torch, "MultiheadAttention", E, H, **KINDS[kind])
    inputs = inputs_of(KINDS[kind])
    for weights in WEIGHTS:
        compare(ours, theirs, torch, inputs, **MASKS[mask], **weights)
        if KINDS[kind].keys() <= {"batch_first", "bias"}:
            compare(ours, theirs, torch, [inputs[0]] * 3, **MASKS[mask], **weights)
            compare(
                ours, theirs, torch, [inputs[0], inputs[1], inputs[1]], **MASKS[mask], **weights
            )


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((2, 3), (1, 5), (1, 5)), ((1, 3), (2, 5), (2, 5)), ((2, 3), (2, 5), (2, 1)),
        ((2, 3), (2, 5), (1, 5)), ((4, 3), (4, 5), (5, 4)), ((4, 3), (5, 4), (4, 5)),
        ((3, 4), (4, 3), (4, 3)),
    ],
)  # fmt: skip
def test_inputs_of_other_samples_or_lengths_are_refused(
    query: Any, key: Any, value: Any, weights: bool
) -> None:
    """Those of as many rows in all too, as keys (4, 5) and values (5, 4)."""
    for batch_first in (True, False):
        attention = nn.MultiheadAttention(E, H, batch_first=batch_first)
        inputs = [ta.randn(*size, E) for size in (query, key, value)]
        inputs = inputs if batch_first else [x.transpose(0, 1) for x in inputs]
        shapes = re.escape(str([x.shape for x in inputs]))
        with pytest.raises(ShapeError, match=f"have the same B, .* got {shapes}"):
            attention(*inputs, need_weights=weights)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("kind", ["plain", "batch_first", "no bias", "widths"])
def test_multihead_attention_of_other_sizes(torch: Any, kind: str, weights: dict[str, Any]) -> None:
    """Fewer keys than queries, one sample without a dimension for it, and float32."""
    ours, theirs = twins(torch, "MultiheadAttention", E, H, **KINDS[kind])
    compare(ours, theirs, torch, inputs_of(KINDS[kind], 2), **weights)
    compare(
        ours, theirs, torch, inputs_of(KINDS[kind], 2), key_padding_mask=PADDING[:, 1:3], **weights
    )
    first = KINDS[kind].get("batch_first")
    one = [x[0] if first else x[:, 0].copy() for x in inputs_of(KINDS[kind])]
    compare(ours, theirs, torch, one, **weights)
    compare(ours, theirs, torch, one, key_padding_mask=PADDING[2], attn_mask=CAUSAL, **weights)
    compare(ours, theirs, torch, one, attn_mask=PER_HEAD[:H], **weights)
    ours, theirs = twins(torch, "MultiheadAttention", E, H, dtype="float32", **KINDS[kind])
    compare(
        ours, theirs, torch, inputs_of(KINDS[kind]), "float32", key_padding_mask=PADDING, **weights
    )


def test_a_query_without_a_key_gets_zeros(torch: Any) -> None:
    hidden = CAUSAL | np.eye(N, dtype=bool)
    ours, theirs = twins(torch, "MultiheadAttention", E, H, bias=False, batch_first=True)
    x = ta.tensor(X, requires_grad=True)
    for need_weights in (True, False):
        out, weights = ours(x, x, x, attn_mask=ta.tensor(hidden), need_weights=need_weights)
        assert (out[:, 0] == 0).all()
        assert weights is None or (weights[:, 0] == 0).all()
        out.backward(ta.tensor(X))
        assert np.isfinite(x.grad.numpy()).all()
    their_x = torch.tensor(X)
    assert theirs(their_x, their_x, their_x, attn_mask=torch.tensor(hidden))[0][:, 0].isnan().all()


def test_added_keys_are_refused() -> None:
    for option in ({"add_bias_kv": True}, {"add_zero_attn": True}):
        with pytest.raises(ValueError, match="add_bias_kv, add_zero_attn are not there"):
            nn.MultiheadAttention(E, H, **option)


def test_dropout_of_attention() -> None:
    attention, x = nn.MultiheadAttention(E, H, dropout=0.5), ta.randn(N, B, E)
    for need_weights in (True, False):
        outs = [attention(x, x, x, need_weights=need_weights)[0] for _ in range(2)]
        assert not outs[0].equal(outs[1])
    _, weights = attention(x, x, x, average_attn_weights=False)
    assert 0 < (weights == 0).sum().item() < weights.numel()
    attention.eval()
    for need_weights in (True, False):
        outs = [attention(x, x, x, need_weights=need_weights)[0] for _ in range(2)]
        assert outs[0].equal(outs[1])


def test_a_learned_mask_gets_a_gradient(torch: Any) -> None:
    ours, theirs = twins(torch, "MultiheadAttention", E, H)
    for weights in WEIGHTS:
        compare(
            lambda x, mask, options=weights: ours(x, x, x, attn_mask=mask, **options),
            lambda x, mask, options=weights: theirs(x, x, x, attn_mask=mask, **options),
            torch, [X.transpose(1, 0, 2).copy(), numbers(13, N, N)],
        )  # fmt: skip
    zeros = ta.zeros(N, N, dtype=ta.float64, requires_grad=True)
    x = ta.tensor(X.transpose(1, 0, 2))
    ours(x, x, x, attn_mask=zeros, need_weights=False)[0].backward(x)
    assert zeros.grad.abs().sum().item() > 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"is_causal": True}, ValueError, "takes the causal attn_mask too"),
        ({"attn_mask": CAUSAL[:3]}, ShapeError, r"attn_mask is \(4, 4\) or \(6, 4, 4\), of bool"),
        ({"attn_mask": CAUSAL[None]}, ShapeError, r"got bool \(1, 4, 4\)"),
        ({"attn_mask": CAUSAL.astype(np.int64)}, DtypeError, "or of floats that are added"),
        ({"key_padding_mask": PADDING.T.copy()}, ShapeError, r"key_padding_mask is \(3, 4\)"),
        ({"key_padding_mask": PADDING.astype(np.uint8)}, DtypeError, r"got uint8 \(3, 4\)"),
    ],
)
def test_bad_masks(call: dict[str, Any], error: type[Exception], message: str) -> None:
    attention, x = nn.MultiheadAttention(E, H, batch_first=True), ta.randn(B, N, E)
    options = {key: ta.tensor(v) if isinstance(v, np.ndarray) else v for key, v in call.items()}
    with pytest.raises(error, match=message):
        attention(x, x, x, **options)


def test_bad_inputs_of_attention() -> None:
    attention, x = nn.MultiheadAttention(E, H, batch_first=True), ta.randn(B, N, E)
    for inputs in ([x, x[0], x[0]], [x[None]] * 3, [x[0, 0]] * 3):
        with pytest.raises(ShapeError, match=r"are \(N, B, D\), or all \(N, D\), got"):
            attention(*inputs)
    for inputs in ([x, x[:2], x[:2]], [x, x, x[:, :2]], [x, x[..., :5], x], [x[..., :5], x, x]):
        with pytest.raises(ShapeError):
            attention(*inputs)
    with pytest.raises(DtypeError, match="needs a floating dtype, got int64"):
        attention(x, x.long(), x)
    with pytest.raises(ShapeError, match="heads"):
        nn.MultiheadAttention(E, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'head'"):
        nn.MultiheadAttention(E, H, head=2)
    with pytest.raises(TypeError, match="missing a required argument: 'num_heads'"):
        nn.MultiheadAttention(E)


# Transformer

SIZES = (E, H, 16, 0.0)
LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "norm_first": {"norm_first": True, "activation": "gelu"},
    "no bias": {"bias": False, "layer_norm_eps": 0.1, "batch_first": True},
}
ENCODER_MASKS: list[dict[str, Any]] = [
    {},
    {"src_key_padding_mask": PADDING},
    {"src_mask": CAUSAL},
    {"src_mask": CAUSAL, "is_causal": True},
    {"src_mask": ADDED, "src_key_padding_mask": np.where(PADDING, -np.inf, 0.0)},
]
DECODER_MASKS: list[dict[str, Any]] = [
    {},
    {"tgt_mask": CAUSAL, "memory_key_padding_mask": PADDING},
    {"tgt_mask": CAUSAL, "tgt_is_causal": True, "tgt_key_padding_mask": PADDING},
    {"memory_mask": PER_HEAD, "tgt_mask": np.where(CAUSAL, -np.inf, 0.0)},
]


def swapped(x: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    return x if options.get("batch_first") else x.transpose(1, 0, 2).copy()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_transformer_layers(torch: Any, kind: str, training: bool) -> None:
    options = LAYERS[kind]
    src, memory = swapped(X, options), swapped(numbers(14, B, N, E), options)
    encoder = twins(torch, "TransformerEncoderLayer", *SIZES, **options)
    decoder = twins(torch, "TransformerDecoderLayer", *SIZES, **options)
    for module in (*encoder, *decoder):
        module.train(training)
    for masks in ENCODER_MASKS:
        compare(*encoder, torch, [src], **masks)
    for masks in DECODER_MASKS:
        compare(*decoder, torch, [src, memory], **masks)
    compare(*encoder, torch, [X[0]])
    compare(
        *decoder, torch, [X[0], memory[0] if options.get("batch_first") else memory[:, 0].copy()]
    )
    names = [name for name, _ in decoder[0].named_modules()]
    assert names == [name for name, _ in decoder[1].named_modules()]


def stacks(torch: Any, kind: str, library: Any, norm: bool) -> tuple[Any, Any]:
    options = LAYERS[kind] | {"dtype": torch.float64 if library is torch.nn else ta.float64}
    more = {"dtype": options["dtype"]}
    last = [
        library.LayerNorm(E, **more) if library is torch.nn else library.LayerNorm(E).double()
        for _ in range(2)
    ]
    encoder = library.TransformerEncoder(
        library.TransformerEncoderLayer(*SIZES, **options),
        2,
        last[0] if norm else None,
        enable_nested_tensor=False,
    )
    decoder = library.TransformerDecoder(
        library.TransformerDecoderLayer(*SIZES, **options),
        num_layers=2,
        norm=last[1] if norm else None,
    )
    return encoder, decoder


@pytest.mark.parametrize("kind", LAYERS)
def test_stacks_of_layers(torch: Any, kind: str) -> None:
    options = LAYERS[kind]
    src, memory = swapped(X, options), swapped(numbers(14, B, N, E), options)
    for norm in (True, False) if kind == "plain" else (True,):
        pairs = list(
            zip(stacks(torch, kind, nn, norm), stacks(torch, kind, torch.nn, norm), strict=True)
        )
        for ours, theirs in pairs:
            ours.load_state_dict({key: x.numpy() for key, x in theirs.state_dict().items()})
            assert list(ours.state_dict()) == list(theirs.state_dict())
        for masks in ENCODER_MASKS:
            masks = {"mask" if key == "src_mask" else key: mask for key, mask in masks.items()}
            compare(*pairs[0], torch, [src], **masks)
        for masks in DECODER_MASKS:
            compare(*pairs[1], torch, [src, memory], **masks)
    layers = pairs[0][0].layers
    assert len(layers) == 2
    assert layers[0].linear1.weight.equal(layers[1].linear1.weight)
    assert layers[0].linear1.weight is not layers[1].linear1.weight


@pytest.mark.parametrize(
    "name",
    ["LSTM", "GRUCell", "Conv2d", "BatchNorm1d", "Dropout", "Flatten", "MultiheadAttention",
     "TransformerEncoder", "TransformerDecoder", "TransformerDecoderLayer", "Transformer"],
)  # fmt: skip
def test_the_input_of_a_call_has_pytorchs_name(torch: Any, name: str) -> None:
    """As in decoder(tgt=x, memory=y)."""
    ours, theirs = (
        list(inspect.signature(getattr(library, name).forward).parameters)[1]
        for library in (nn, torch.nn)
    )
    assert ours == theirs


@pytest.mark.parametrize("options", [{}, {"batch_first": True, "norm_first": True, "bias": False}])
def test_transformer(torch: Any, options: dict[str, Any]) -> None:
    ours, theirs = twins(torch, "Transformer", E, H, 2, 1, 16, 0.0, "gelu", **options)
    causal = ours.generate_square_subsequent_mask(N, dtype=ta.float64)
    src, tgt = swapped(X, options), swapped(numbers(15, B, N, E), options)
    compare(ours, theirs, torch, [src, tgt])
    compare(
        ours, theirs, torch, [src, tgt], tgt_mask=causal.numpy(), src_key_padding_mask=PADDING,
        tgt_key_padding_mask=PADDING, memory_key_padding_mask=PADDING, tgt_is_causal=True,
    )  # fmt: skip
    compare(
        ours, theirs, torch, [src, tgt], src_mask=CAUSAL, src_is_causal=True, memory_mask=PER_HEAD
    )
    names = [name for name, _ in ours.named_modules()]
    assert names == [name for name, _ in theirs.named_modules()]
    assert (ours.d_model, ours.nhead) == (E, H)


@pytest.mark.parametrize("word", ["src_is_causal", "tgt_is_causal", "memory_is_causal"])
def test_a_hint_of_a_causal_mask_needs_the_mask(word: str) -> None:
    """In a Transformer, its stacks and their layers."""
    x = ta.ones(N, B, E)
    whole = nn.Transformer(E, H, 1, 1, 16)
    calls = [lambda **hint: whole(x, x, **hint)]
    if word == "src_is_causal":
        calls += [lambda src_is_causal: whole.encoder(x, is_causal=src_is_causal)]
        calls += [lambda src_is_causal: whole.encoder.layers[0](x, is_causal=src_is_causal)]
    else:
        calls += [lambda **hint: whole.decoder(x, x, **hint)]
        calls += [lambda **hint: whole.decoder.layers[0](x, x, **hint)]
    for call in calls:
        assert call(**{word: False}).shape == (N, B, E)
        with pytest.raises(ValueError, match="is_causal=True attention takes the causal attn_mask"):
            call(**{word: True})


def test_the_causal_mask(torch: Any) -> None:
    for mask in (
        nn.Transformer.generate_square_subsequent_mask(3),
        nn.Transformer(E, H, 1, 1).generate_square_subsequent_mask(3),
    ):
        assert mask.tolist() == torch.nn.Transformer.generate_square_subsequent_mask(3).tolist()


def test_encoder_layers_drop_in_training_alone() -> None:
    x = ta.randn(N, B, E)
    dropped = nn.TransformerEncoderLayer(E, H, 16, 0.5)
    assert not dropped(x).equal(dropped(x))
    assert dropped.eval()(x).equal(dropped(x))
    with pytest.raises(ValueError, match='activation is "relu", "gelu" or a function'):
        nn.TransformerEncoderLayer(E, H, activation="tanh")
    with pytest.raises(ShapeError, match="num_layers must be an integer >= 1"):
        nn.TransformerEncoder(dropped, 0)


# All of them


def test_starting_values_are_pytorchs(torch: Any) -> None:
    """The same distribution: quantiles of each parameter, and its mean square."""
    ta.manual_seed(0)
    torch.manual_seed(0)
    parts = [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1]
    for name, args, options in (
        ("MultiheadAttention", (64, 2), {}),
        ("MultiheadAttention", (64, 2), {"kdim": 48}),
        ("GRU", (32, 64), {}), ("LSTM", (32, 64), {}), ("RNN", (32, 128), {}),
        ("GRU", (16, 64, 2), {"bidirectional": True}),
        ("GRUCell", (32, 64), {}), ("LSTMCell", (32, 64), {}), ("Embedding", (64, 64), {}),
        ("Linear", (64, 128), {}), ("LayerNorm", (64,), {}), ("BatchNorm1d", (64,), {}),
        ("Conv1d", (32, 64, 5), {}), ("Conv2d", (32, 64, 3), {"groups": 2}),
        ("TransformerEncoderLayer", (64, 2, 128), {}),
        ("TransformerDecoderLayer", (64, 2, 128), {}), ("Transformer", (64, 2, 1, 1, 128), {}),
    ):  # fmt: skip
        theirs, ours = (
            getattr(torch.nn, name)(*args, **options),
            getattr(nn, name)(*args, **options),
        )
        for (key, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            expected, found = b.detach().numpy(), a.detach().numpy()
            size = float(np.sqrt(np.square(expected).mean()))
            assert np.sqrt(np.square(found).mean()) == pytest.approx(size, rel=0.25), (name, key)
            # 64 numbers of one distribution differ so much at most, but for the longest tails.
            ends = slice(None) if abs(expected).max() < 2 * size else slice(1, -1)
            far = abs(np.quantile(found, parts) - np.quantile(expected, parts))[ends]
            assert far.max() <= 0.7 * size, (name, key)


def test_a_dtype_is_that_of_all_parameters() -> None:
    for module in (
        nn.MultiheadAttention(E, H, dtype=ta.float64), nn.GRU(E, 5, dtype=ta.float64),
        nn.TransformerEncoderLayer(E, H, device="cpu", dtype=ta.float64),
        nn.Transformer(E, H, 1, 1, dtype=ta.float64), nn.Embedding(3, E, dtype=ta.float64),
    ):  # fmt: skip
        assert {x.dtype for x in module.parameters()} == {np.dtype("float64")}


def test_modules_can_be_copied_and_pickled() -> None:
    x = ta.randn(N, B, E)
    for module in (nn.GRU(E, 5), nn.TransformerEncoderLayer(E, H, 16, 0.0), nn.LeakyReLU(0.2)):
        for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            first, second = parts(module(x))[0], parts(twin(x))[0]
            assert first.equal(second)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_dropout_is_between_the_layers_of_a_recurrent_network(kind: str) -> None:
    """Neither before the first nor behind the last: a single layer drops nothing."""
    one, two = (getattr(nn, kind)(5, 7, num_layers=n, dropout=0.5) for n in (1, 2))
    x = ta.randn(4, 3, 5)
    assert one(x)[0].equal(one(x)[0])
    first, second = two(x), two(x)
    assert not first[0].equal(second[0])
    states = [state if kind != "LSTM" else state[0] for _, state in (first, second)]
    assert states[0][0].equal(states[1][0])
    assert bool((first[0] != 0).all())


@pytest.mark.parametrize(
    "module",
    [nn.MaxPool1d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.GELU(), nn.BCELoss(), nn.ELU()],
)
def test_modules_that_call_a_function_are_pickled(module: Any) -> None:
    """As deep learning programs save whole models, and send them to another process."""
    assert type(pickle.loads(pickle.dumps(nn.Sequential(module)))[0]) is type(module)


def test_a_list_of_parameters(torch: Any) -> None:
    found = []
    for space in (ta, torch):
        lists = nn if space is ta else torch.nn
        parameters = lists.ParameterList([lists.Parameter(space.ones(1)), space.ones(2)])
        parameters.append(lists.Parameter(space.zeros(3)))
        parameters.extend(space.ones(n) for n in (4, 5))
        parameters[0] = lists.Parameter(space.ones(6))
        model = lists.Sequential(lists.Linear(1, 1, bias=False))
        model[0].prompts = parameters
        sum((p * p).sum() for p in parameters).backward()
        assert all(isinstance(p, lists.Parameter) for p in parameters)
        assert len(parameters) == 5
        found.append(
            [
                [tuple(p.shape) for p in parameters],
                [(name, tuple(p.shape)) for name, p in model.named_parameters()],
                list(model.state_dict()),
                [p.grad.sum().item() for p in parameters],
                tuple(copy.deepcopy(parameters)[-1].shape),
            ]
        )
    assert found[0] == found[1]
    with pytest.raises(TypeError):
        nn.ParameterList(["a"])


def test_names_of_parameters_with_a_prefix(torch: Any) -> None:
    for t in (nn, torch.nn):
        layer = t.Sequential(t.Linear(2, 2), t.BatchNorm1d(2))
        names = [name for name, _ in layer.named_parameters(prefix="net")]
        assert names == ["net.0.weight", "net.0.bias", "net.1.weight", "net.1.bias"]
        assert [n for n, _ in layer[0].named_parameters("a", False)] == ["a.weight", "a.bias"]
        assert next(layer.named_buffers("b"))[0] == "b.1.running_mean"


def test_a_container_is_of_one_kind_alone(torch: Any) -> None:
    """A walk over a model skips what is a ModuleList before it asks for a Sequential."""
    names = ("ModuleList", "ModuleDict", "ParameterList", "Sequential")
    for t in (nn, torch.nn):
        kinds = [getattr(t, name) for name in names]
        assert [[issubclass(a, b) for b in kinds] for a in kinds] == np.eye(4).tolist()
