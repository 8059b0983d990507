"""Numbers near the ends of float16 and float32, and rows of 70,000, against float64.

A line of the table is tried with numbers near the largest, near the smallest, and with many of
them. The result and the gradient are those of float64, rounded once more: a step between that
overflows, loses its digits or rounds a count to inf would show.
"""

from __future__ import annotations

import functools
import warnings
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import ops, optim
from tinyattn.base.backend import quietly
from tinyattn.engine.autograd import wrap
from tinyattn.engine.op import registry
from tinyattn.kernels import twins
from tinyattn.torch_names.methods import take_methods
from tinyattn.torch_names.nn.recurrent import gru_state, lstm_state

take_methods()  # or the files that are collected next would see what the import gave

Array = np.ndarray
MANY = 70_000  # more than float16 can count
DTYPES = ["float16", "float32"]


class Line(NamedTuple):
    function: Callable[..., Any]
    arguments: str  # a word of ARGUMENTS for each
    rtol: float = 4.0  # times the epsilon of the dtype, of each element
    of_largest: bool = False  # of the largest element instead, where a row adds elements up
    one_rounding: bool = False  # of float16, because it is computed in float32


def signs(rng: np.random.Generator, *shape: int) -> Array:
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.0, shape)


# Numbers by a word: each gets the generator, and the limits of the dtype.
ARGUMENTS: dict[str, Callable[[np.random.Generator, Any], Array]] = {
    "ones": lambda rng, info: signs(rng, 3, 4),
    "positive": lambda rng, info: np.abs(signs(rng, 3, 4)),
    "large": lambda rng, info: signs(rng, 3, 4) * float(info.max) * 0.9,
    "large positive": lambda rng, info: np.abs(signs(rng, 3, 4)) * float(info.max) * 0.9,
    "root of large": lambda rng, info: signs(rng, 3, 4) * float(info.max) ** 0.5,
    "small": lambda rng, info: signs(rng, 3, 4) * float(info.tiny) * 4,
    "small positive": lambda rng, info: np.abs(signs(rng, 3, 4)) * float(info.tiny) * 4,
    "tens": lambda rng, info: signs(rng, 3, 40) * 10,
    "tens of 4": lambda rng, info: signs(rng, 3, 4) * 10,
    "spread": lambda rng, info: np.linspace(-12, 12, 97),
    "many": lambda rng, info: signs(rng, MANY),
    "many positive": lambda rng, info: np.abs(signs(rng, MANY)),
    "many large": lambda rng, info: np.abs(signs(rng, MANY)) * float(info.max) * 0.9,
    "many of both ends": lambda rng, info: (
        np.where(rng.random(MANY) < 0.9, -0.9, 0.9) * float(info.max)
    ),
    "one thousand": lambda rng, info: np.eye(1, MANY)[0] * 1000.0,
    "many small": lambda rng, info: np.abs(signs(rng, MANY)) * float(info.tiny) * 4,
    "many in 3 rows": lambda rng, info: signs(rng, 3, MANY),
    "many rows": lambda rng, info: signs(rng, MANY, 3),
    "many rows of large logs": lambda rng, info: -np.abs(signs(rng, MANY, 3)) * float(info.max),
    "many large rows": lambda rng, info: signs(rng, MANY, 3) * float(info.max) * 0.4,
    "many rows of logs": lambda rng, info: -np.abs(signs(rng, MANY, 3)),
    "many rows positive": lambda rng, info: np.abs(signs(rng, MANY, 3)),
    "many rows of 4": lambda rng, info: signs(rng, MANY, 4),
    "many rows of tens": lambda rng, info: signs(rng, MANY, 3) * 10,
}
CLASSES = np.random.RandomState(0).randint(3, size=MANY)
IGNORED = np.where(np.arange(MANY) % 3, CLASSES, -100)


def line(
    function: Callable[..., Any],
    *sets: str,
    rtol: float = 4.0,
    row: bool = False,
    one_rounding: bool = False,
) -> list[Line]:
    """A line for each set of arguments, whose words are separated by commas."""
    return [Line(function, arguments, rtol, row, one_rounding) for arguments in sets]


ENDS = ("large", "small", "ones", "spread")
LINES: dict[str, list[Line]] = {
    # A number beside them
    "times a large number": line(lambda x: x * 1e5, "small", "ones"),
    "times a small number": line(lambda x: x * 1e-8, "large", "many large"),
    "times a number of few digits": line(lambda x: x * 1e-7, "large"),
    "times a huge number": line(lambda x: x * 1e39, "small"),
    "times a tiny number": line(lambda x: x * 1e-42, "large"),
    "through a count": line(lambda x: x / 70_000, "large", "many large"),
    "through a tiny number": line(lambda x: x / 1e-8, "small"),
    "a number through them": line(lambda x: 1e5 / x, "large", "tens"),
    "plus": line(lambda x: x + 1e5, "large", "ones"),
    "a number less them": line(lambda x: 1e5 - x, "large", "ones"),
    "remainder": line(lambda x: x % 7e4, "large positive", "ones"),
    "pow": line(lambda x: x**2, "root of large", "ones"),
    "pow 3": line(lambda x: x**3, "ones", "small"),
    "pow -1": line(lambda x: x**-1, "large", "ones"),
    "powers of numbers": line(lambda x: 2.0**x, "ones", "tens", rtol=16),
    "maximum": line(lambda x: ta.maximum(x, 1e5), "large", "ones"),
    "minimum": line(lambda x: ta.minimum(x, 1e-8), "small positive", "ones"),
    "clamp": line(lambda x: x.clamp(-1e5, 1e5), "large", "ones"),
    "where": line(lambda x: ta.where(x > 1e-8, x, 0.5), "small positive", "ones"),
    # Two of them
    "add": line(lambda x, y: x + y, "large,small", "ones,ones"),
    "sub": line(lambda x, y: x - y, "large,small", "ones,ones"),
    "mul": line(lambda x, y: x * y, "large,positive", "root of large,ones", "large,small"),
    "div": line(lambda x, y: x / y, "root of large,positive", "large,large", rtol=8),
    "two powers": line(lambda x, y: x**y, "positive,ones", "large positive,ones", rtol=16),
    "matmul": line(lambda x, y: x @ y.mT, "root of large,ones", "small,ones", row=True),
    "linear": line(F.linear, "root of large,ones", "small,ones", "ones,many rows of 4", row=True),
    # Functions of each
    "exp": line(lambda x: x.exp(), "tens", "small", rtol=8),
    "expm1": line(lambda x: x.expm1(), "tens", "small", rtol=8),
    "log": line(lambda x: x.log(), "large positive", "positive", rtol=8),
    "log1p": line(lambda x: x.log1p(), "large positive", "small", "positive", rtol=8),
    "sqrt": line(lambda x: x.sqrt(), "large positive", "small positive"),
    "rsqrt": line(lambda x: x.rsqrt(), "large positive", "positive", rtol=8),
    "reciprocal": line(lambda x: x.reciprocal(), "large", "ones"),
    "sin": line(lambda x: x.sin(), "small", "ones"),
    "cos": line(lambda x: x.cos(), "small", "ones"),
    "tanh": line(lambda x: x.tanh(), *ENDS, row=True),
    "sigmoid": line(lambda x: x.sigmoid(), *ENDS, row=True),
    "softplus": line(F.softplus, *ENDS, rtol=8, one_rounding=True),
    "silu": line(F.silu, *ENDS, row=True, one_rounding=True),
    "erf": line(lambda x: x.erf(), *ENDS, row=True),
    "relu": line(F.relu, *ENDS),
    "abs": line(lambda x: x.abs(), *ENDS),
    "neg": line(lambda x: -x, *ENDS),
    "gelu": line(F.gelu, *ENDS, rtol=8, row=True, one_rounding=True),
    "gelu_tanh": line(lambda x: F.gelu(x, "tanh"), *ENDS, rtol=16, row=True),
    "clone": line(lambda x: x.clone(), *ENDS),
    "cast": line(lambda x: x.double().to(x.dtype), *ENDS),
    "dropout": line(lambda x: ops.dropout(x, p=0.4, seed=7), *ENDS),
    "dropout of nearly all": line(
        lambda x: ops.dropout(x, p=0.99999, seed=7), "many small", "many"
    ),
    # Over rows
    "sum": line(lambda x: x.sum(), "many positive", "many small", row=True),
    "sum_to": line(lambda x: x.sum_to((1,)), "many", "many small", row=True),
    "mean": line(lambda x: x.mean(), "many large", "many small", "large", "many"),
    "mean of columns": line(lambda x: x.mean(0), "many rows", "large", row=True),
    "var": line(lambda x: x.var(), "many", "root of large", row=True),
    "std": line(lambda x: x.std(), "many large", "many of both ends", "many", "large", row=True),
    "norm": line(lambda x: x.norm(), "small", "large", "many", "many small", row=True),
    "norm 1": line(lambda x: x.norm(1), "small", "many", row=True),
    "largest": line(lambda x: x.norm(float("inf")), "large", "many"),
    "max": line(lambda x: x.amax(), "large", "many"),
    "min": line(lambda x: x.amin(), "large", "many"),
    "prod": line(lambda x: x.prod(), "ones", row=True),
    "prod of both ends": line(
        lambda x, y: ta.cat([x, y])[[0, 3, 1, 4]].prod(0), "large,small", row=True
    ),
    "cumsum": line(lambda x: x.cumsum(0), "many", "many small", row=True),
    "logsumexp": line(lambda x: x.logsumexp(), "many", "large", "many large", row=True),
    "logsumexp of rows": line(lambda x: x.logsumexp(1, True), "ones", "many rows", row=True),
    "softmax": line(lambda x: x.softmax(0), "many", "large", "tens", rtol=8, row=True),
    "log_softmax": line(lambda x: x.log_softmax(0), "many", "tens", rtol=8, row=True),
    "masked_softmax": line(
        lambda x: F.masked_softmax(x[None], mask=np.ones((1, 1, 4), bool)), "large", row=True
    ),
    # Losses
    **{
        f"{name} {reduction}": line(
            functools.partial(loss, reduction=reduction),
            *sets,
            rtol=8,
            row=True,
            one_rounding=True,
        )
        for name, loss, sets in [
            (
                "cross_entropy",
                lambda x, reduction: F.cross_entropy(x, CLASSES, reduction=reduction),
                ["many rows", "many rows of tens", "many large rows"],
            ),
            (
                "cross_entropy with ignored",
                lambda x, reduction: F.cross_entropy(x, IGNORED, reduction=reduction),
                ["many rows", "many rows of tens"],
            ),
            (
                "cross_entropy smoothed",
                lambda x, reduction: F.cross_entropy(
                    x, IGNORED, reduction=reduction, label_smoothing=0.1
                ),
                ["many rows", "many rows of tens"],
            ),
            (
                "cross_entropy weighted",
                lambda x, reduction: F.cross_entropy(
                    x, CLASSES, ta.tensor([1.0, 2.0, 0.5]).to(x.dtype), reduction=reduction
                ),
                ["many rows", "many rows of tens"],
            ),
            (
                "cross_entropy with probabilities",
                lambda x, p, reduction: F.cross_entropy(x, p, reduction=reduction),
                ["many rows,many rows positive"],
            ),
            (
                "nll_loss",
                lambda x, reduction: F.nll_loss(x, IGNORED, reduction=reduction),
                ["many rows of logs", "many rows of large logs"],
            ),
            (
                "mse_loss",
                F.mse_loss,
                ["many,many", "many small,many positive", "one thousand,many small"],
            ),
            ("kl_div", F.kl_div, ["many rows of logs,many rows positive"]),
            (
                "binary_cross_entropy_with_logits",
                F.binary_cross_entropy_with_logits,
                ["many,many positive", "ones,positive"],
            ),
        ]
        for reduction in ("mean", "sum", "none")
    },
    "kl_div batchmean": line(
        lambda x, y: F.kl_div(x, y, "batchmean"),
        "many rows of logs,many rows positive",
        "many,many positive",
        rtol=8,
        row=True,
        one_rounding=True,
    ),
    # Layers
    "layer_norm": line(
        lambda x: F.layer_norm(x, x.shape[-1]), "large", "ones", "many in 3 rows", rtol=8, row=True
    ),
    "layer_norm learned": line(
        lambda x, w: F.layer_norm(x, 4, w[0], w[1]), "large,ones", "ones,ones", rtol=8, row=True
    ),
    "rms_norm": line(
        lambda x: F.rms_norm(x, x.shape[-1], eps=1e-6),
        *("large", "ones", "many in 3 rows"),
        rtol=8,
        row=True,
    ),
    "normalize": line(F.normalize, "large", "ones", "many in 3 rows", rtol=8, row=True),
    "normalize 1": line(
        lambda x: F.normalize(x, p=1), "large", "ones", "many in 3 rows", rtol=8, row=True
    ),
    "embedding": line(lambda x: F.embedding(np.zeros(MANY, int), x), "ones", row=True),
    "scatter_rows": line(
        lambda x: registry["scatter_rows"](
            x, ta.tensor(np.zeros(MANY, int)), num_rows=2, skip=None
        ),
        "many rows",
        row=True,
    ),
    "attention": line(
        lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None]),
        "ones,ones,root of large",
        "ones,ones,tens of 4",
        "ones,many rows of 4,many rows of 4",
        rtol=8,
        row=True,
    ),
    "lstm_state": line(
        lambda x, c: lstm_state(ta.cat([x, x, x, x], 1), c),
        "ones,ones",
        "large,ones",
        rtol=16,
        row=True,
    ),
    "gru_state": line(
        lambda x, h, state: gru_state(ta.cat([x, x, x], 1), ta.cat([h, h, h], 1), state),
        "ones,ones,ones",
        "large,ones,large",
        rtol=16,
        row=True,
    ),
    "sum_rows": line(registry["sum_rows"], "many rows", row=True),
    "gather": line(lambda x: x.gather(0, ta.tensor(np.zeros(MANY, int))), "many", row=True),
    "scatter_along": line(
        lambda x: ops.scatter_along(x, np.zeros(MANY, int), dim=0, target=(1,)), "many", row=True
    ),
    "index": line(lambda x: x[np.zeros(MANY, int)], "ones", row=True),
    "expand": line(lambda x: x[0, 0].expand(MANY), "ones", row=True),
    "cat": line(lambda x, y: ta.cat([x, y]), "large,small"),
    "reshape": line(lambda x: x.reshape(-1), "large"),
    "permute": line(lambda x: x.T, "small"),
    "roll": line(lambda x: x.roll(1, 0), "large"),
}
# They move elements, or stand in the graph only with others of the table.
WITHOUT_ARITHMETIC = {
    *("transfer", "pack", "unpack", "putitem", "setitem", "rotate_pairs", "weighted_sum")
}
EACH = [(name, line) for name, lines in LINES.items() for line in lines]
each = pytest.mark.parametrize(
    ("name", "line"), EACH, ids=[f"{name}-{line.arguments}" for name, line in EACH]
)


def results(function: Callable[..., Any], arrays: list[Array], cotangent: Any) -> list[Array]:
    """The value, and the gradient of each argument."""
    tensors = [wrap(array.copy()).requires_grad_() for array in arrays]
    out = function(*tensors)
    grads = ta.grad(out, tensors, wrap(cotangent(out.shape).astype(out.dtype)), allow_unused=True)
    assert {g.dtype for g in grads if g is not None} <= {arrays[0].dtype}
    return [out.numpy(), *(g.numpy() for g in grads if g is not None)]


def assert_rounded(actual: Array, exact: Array, rtol: float, of_largest: bool) -> None:
    """Equal but for roundings: of numbers below the smallest normal one, in its last place."""
    info = np.finfo(actual.dtype)
    assert actual.shape == exact.shape
    size = np.abs(exact).max(initial=0.0) if of_largest else np.abs(exact)
    allowed = rtol * float(info.eps) * np.minimum(size, float(info.max))
    allowed = allowed + float(info.smallest_subnormal)
    limited = np.clip(exact, -float(info.max), float(info.max))  # beyond, inf is right too
    error = np.abs(np.clip(actual.astype(np.float64), -float(info.max), float(info.max)) - limited)
    wrong = ~(error <= allowed)
    assert not wrong.any(), f"{actual[wrong][:4]} should be {exact[wrong][:4]}"


@pytest.mark.parametrize("dtype", DTYPES)
@each
def test_as_in_float64(name: str, line: Line, dtype: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    words = line.arguments.split(",")
    arrays = [ARGUMENTS[word](rng, np.finfo(dtype)).astype(dtype) for word in words]
    seed = int(rng.integers(1 << 30))

    def cotangent(shape: tuple[int, ...]) -> Array:
        return signs(np.random.default_rng(seed), *shape).astype(dtype)

    found = results(line.function, arrays, cotangent)
    exact = results(line.function, [x.astype(np.float64) for x in arrays], cotangent)
    for actual, right in zip(found, exact, strict=True):
        assert actual.dtype == dtype
        rtol = 1.0 if line.one_rounding and dtype == "float16" else line.rtol
        assert_rounded(actual, right, rtol, line.of_largest)


def test_the_table_has_every_operation() -> None:
    reached: set[str] = set()
    for line, *_ in LINES.values():
        rng = np.random.default_rng(0)
        words = line.arguments.split(",")
        arrays = [ARGUMENTS[word](rng, np.finfo("float32")).astype("float32") for word in words]
        nodes = [line.function(*(wrap(x).requires_grad_() for x in arrays)).grad_fn]
        while nodes:
            node = nodes.pop()
            if node is not None and node.plan is not None:
                reached.add(node.name)
                nodes += node.parents
    with_a_derivative = {name for name, op in registry.items() if op.spec.rules}
    assert with_a_derivative - WITHOUT_ARITHMETIC == reached & with_a_derivative


# Optimizers

WEIGHT, GRAD = [0.5, -2.0, 1e-3, 3e4], [1e-6, 2e4, -1e-3, -2e-2]
OPTIMIZERS: dict[str, Callable[[list[ta.Tensor]], Any]] = {
    "SGD": lambda w: optim.SGD(w, lr=0.1),
    "SGD, small rate": lambda w: optim.SGD(w, lr=1e-6),
    "SGD, decay": lambda w: optim.SGD(w, lr=1.0, weight_decay=1e-6),
    "SGD, momentum": lambda w: optim.SGD(w, lr=1e-6, momentum=0.9),
    "SGD, dampening": lambda w: optim.SGD(w, lr=1e-3, momentum=0.5, dampening=1e-6),
    "SGD, nesterov": lambda w: optim.SGD(
        w, lr=1e-6, momentum=0.9, nesterov=True, weight_decay=1e-7
    ),
    "Adam": lambda w: optim.Adam(w, lr=0.1),
    "Adam, decay": lambda w: optim.Adam(w, lr=0.1, weight_decay=1e-6),
    "AdamW": lambda w: optim.AdamW(w, lr=1e-3, weight_decay=1e-5),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_as_in_float64(name: str, dtype: str) -> None:
    """Three steps, each from the weights that the last one has rounded."""

    def trained(kind: str, starts: list[Array] | None) -> list[Array]:
        w = ta.tensor(np.array(WEIGHT, dtype), kind, requires_grad=True)
        optimizer, after = OPTIMIZERS[name]([w]), []
        for step in range(3):
            if starts is not None and step:
                with ta.no_grad():
                    w[...] = starts[step - 1]
            w.grad = ta.tensor(np.array(GRAD, dtype), kind) * (step + 1)
            optimizer.step()
            after.append(w.numpy())
        return after

    found = trained(dtype, None)
    for actual, exact in zip(found, trained("float64", found), strict=True):
        assert_rounded(actual, exact, 2.0, False)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_with_infinite_gradients_is_the_same_under_every_setting(name: str) -> None:
    """A warning that is an error would end the step in the middle."""

    def stepped() -> bytes:
        w = ta.tensor([1.0, 2.0], requires_grad=True)
        optimizer = OPTIMIZERS[name]([w])
        for value in (np.inf, -np.inf):
            w.grad = ta.tensor([value, 1.0])
            optimizer.step()
        return w.numpy().tobytes()

    results = []
    for action, setting in (("ignore", "warn"), ("error", "warn"), ("ignore", "raise")):
        with warnings.catch_warnings(), np.errstate(all=setting):
            warnings.simplefilter(action)
            results.append(stepped())
    assert len(set(results)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_norm", [1e-7, 1.0, 1e3])
def test_clipped_gradients_as_in_float64(max_norm: float, dtype: str) -> None:
    """The factor is smaller than the numbers of the dtype."""
    large = float(np.finfo(dtype).max) * 0.9
    w = ta.zeros(MANY, dtype=dtype, requires_grad=True)
    w.grad = ta.full((MANY,), large, dtype=dtype)
    norm = optim.clip_grad_norm_([w], max_norm)
    exact = np.full(MANY, max_norm / (norm + 1e-6)) * float(w.grad.dtype.type(large))
    assert norm == pytest.approx(large * MANY**0.5, rel=1e-3)
    assert w.grad.dtype == dtype
    assert_rounded(w.grad.numpy(), exact, 2.0, False)


# Derivatives of second order

KINKS: dict[str, Callable[[ta.Tensor], ta.Tensor]] = {
    "norm": lambda x: x.norm() ** 2,
    "norm along a dimension": lambda x: (x.norm(dim=0, keepdim=True) ** 2).sum(),
    "std": lambda x: x.std() ** 2,
}


@pytest.mark.parametrize("name", KINKS)
def test_a_length_has_no_second_derivative_at_0(name: str) -> None:
    """The first is 0 there. The second of its square would be 2, and 0 would be a wrong number."""
    x = ta.zeros(3, requires_grad=True)
    (grad,) = ta.grad(KINKS[name](x), x, create_graph=True)
    assert grad.tolist() == [0.0, 0.0, 0.0]
    (second,) = ta.grad(grad, x, ta.tensor([1.0, -2.0, 0.5]))
    assert np.isnan(second.numpy()).all()


@pytest.mark.parametrize("name", KINKS)
def test_the_second_derivative_of_a_squared_length_elsewhere(name: str) -> None:
    x = ta.tensor([1.0, -2.0, 4.0], dtype=ta.float64, requires_grad=True)
    (grad,) = ta.grad(KINKS[name](x), x, create_graph=True)
    pulled = np.array([1.0, -2.0, 0.5])
    (second,) = ta.grad(grad, x, ta.tensor(pulled))
    exact = pulled - pulled.mean() if name == "std" else 2 * pulled
    np.testing.assert_allclose(second.numpy(), exact, rtol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "gelu", "gelu_tanh", "erf"])
def test_second_derivatives_as_in_float64(name: str, dtype: str) -> None:
    # 1 - sigmoid(2 u) has the digits of 1, and the second derivative multiplies it by u'^2 x.
    rtol = 64.0 if name == "gelu_tanh" else 16.0
    array = np.linspace(-4, 4, 33).astype(dtype)
    pulled = signs(np.random.default_rng(5), 33)
    found = []
    for kind in (dtype, "float64"):
        x = ta.tensor(array, kind, requires_grad=True)
        out = registry[name](x)
        (grad,) = ta.grad(out, x, ta.ones_like(out), create_graph=True)
        assert grad.dtype == kind
        found.append(ta.grad(grad, x, ta.tensor(pulled.astype(dtype), kind))[0].numpy())
    assert_rounded(found[0], found[1], rtol, True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_formula_of_gelu_tanhs_gradient_at_the_ends(dtype: str) -> None:
    """Kernels of Numba need not be there, and the formula is what the others are compared with."""
    x = np.array([99.0, 101.0, 1e30, np.finfo(dtype).max], dtype)
    for sign, expected in ((1, [1, 1, 1, 1]), (-1, [0, 0, 0, 0])):
        found = quietly(twins["gelu_tanh_backward"], np.ones_like(x), sign * x)
        np.testing.assert_array_equal(found, expected)


def test_the_slope_of_a_sigmoid_in_float16_has_the_digits_of_its_result() -> None:
    x = ta.tensor([6.0, -6.0, 3.0], dtype=ta.float16, requires_grad=True)
    x.sigmoid().backward(ta.tensor([1.0, -1.0, 1.0], dtype=ta.float16))
    exact = np.array([1.0, -1.0, 1.0]) / (2 + 2 * np.cosh([6.0, 6.0, 3.0]))
    np.testing.assert_allclose(x.grad.numpy(), exact, rtol=0.013)  # as PyTorch's
