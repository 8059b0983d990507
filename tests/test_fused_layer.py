"""Encoder layers as one operation, and the kernel beneath: as the modules, only faster."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest
from common import rng_of, signed

import tinyattn as ta
from tinyattn import kernels, nn, ops
from tinyattn.nn import fused
from tinyattn.ops.encoder_layer import PARTS
from tinyattn.threads import ALONE

# Not ops.encoder_layer, which is the operation.
module = sys.modules["tinyattn.ops.encoder_layer"]
cpu = kernels.jitted()
needs_kernel = pytest.mark.skipif(cpu is None, reason="without Numba there is no such kernel")
LENGTHS = ([1], [2, 0, 5], [16], [17, 3], [40, 1, 13], [64] * 20)  # the last sums in eight groups
WIDTHS = ((1, 16, 16, 16), (2, 32, 16, 48), (3, 16, 48, 32), (4, 64, 64, 128))
NAMES = ("x", *(f"{part}.{kind}" for part in PARTS for kind in ("weight", "bias")))
DROPPED = {"rates": (0.1, 0.3, 0.5, 0.2), "seeds": (2**50 + 7, 3, 2**40 + 1, 11)}


def arrays_of(seed: int, shape: tuple[int, ...], wide: int, hidden: int) -> list[np.ndarray]:
    """x and the parameters, in the order of the operation."""
    rng, width = rng_of(seed), shape[-1]

    def norm() -> list[np.ndarray]:
        return [1 + 0.3 * signed(rng, width), signed(rng, width)]

    def linear(out: int, size: int) -> list[np.ndarray]:
        return [signed(rng, out, size) / np.sqrt(size), signed(rng, out)]

    projections = [array for _ in range(3) for array in linear(wide, width)]
    arrays = [
        signed(rng, *shape), *norm(), *projections, *linear(width, wide), *norm(),
        *linear(hidden, width), *linear(width, hidden),
    ]  # fmt: skip
    return [array.astype(np.float32) for array in arrays]


def results(arrays: list[Any], **options: Any) -> dict[str, np.ndarray]:
    """The output and all gradients, under a random signed cotangent."""
    tensors = [None if a is None else ta.tensor(a, requires_grad=True) for a in arrays]
    out = ops.encoder_layer(*tensors, **{"heads": 2, **options})
    out.backward(ta.tensor(signed(rng_of(99), *out.shape).astype(out.dtype)))
    found = {"out": out.numpy()}
    for name, tensor in zip(NAMES, tensors, strict=True):
        if tensor is not None:
            found[name] = tensor.grad.numpy()
    return found


@pytest.fixture
def by_steps(monkeypatch):
    """The same function, one operation after another."""

    def run(*arguments: Any, **options: Any) -> dict[str, np.ndarray]:
        with monkeypatch.context() as patch:
            patch.setattr(module, "LARGEST", -1)
            return results(*arguments, **options)

    return run


@pytest.fixture
def calls(monkeypatch):
    """How often the kernel was called."""
    counted = []
    real = cpu.encoder_layer

    def spy(*arguments: Any) -> Any:
        counted.append(1)
        return real(*arguments)

    monkeypatch.setattr(cpu, "encoder_layer", spy)
    return counted


def error_of(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(found - exact).max(initial=0) / max(1e-30, np.abs(exact).max(initial=0)))


def check_close(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], most: float) -> None:
    """But for W_k.bias, whose true gradient is 0: it adds the same to all scores of a query."""
    largest = max(np.abs(right).max() for right in wanted.values())
    assert found.keys() == wanted.keys()
    for name, right in wanted.items():
        assert found[name].shape == right.shape, name
        if name.endswith("W_k.bias"):
            assert max(np.abs(found[name]).max(), np.abs(right).max()) < 1e-5 * largest
        else:
            assert error_of(found[name], right) < most, name


# The kernel


@needs_kernel
@pytest.mark.parametrize("options", [{}, DROPPED], ids=["", "dropout"])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_kernel_is_as_exact_as_the_steps(lengths, widths, options, by_steps, calls):
    """Against float64: at most twice their error, or 16 units in the last place."""
    heads, width, wide, hidden = widths
    options = {**options, "heads": heads, "lengths": np.array(lengths)}
    arrays = arrays_of(len(lengths), (sum(lengths), width), wide, hidden)
    exact = by_steps([a.astype(np.float64) for a in arrays], **options)
    plain = by_steps(arrays, **options)
    assert not calls
    found = results(arrays, **options)
    assert len(calls) == 1
    assert found.keys() == exact.keys()
    scale = max(np.abs(exact[name]).max() for name in exact if name.endswith("bias"))
    for name, right in exact.items():
        assert found[name].dtype == np.float32, name
        assert found[name].shape == right.shape, name
        if name == "W_k.bias" or (max(lengths) == 1 and name.startswith(("W_q", "W_k"))):
            assert np.abs(found[name]).max() < 1e-6 * scale  # of which every term cancels
            continue
        allowed = max(2 * error_of(plain[name], right), 16 * np.finfo(np.float32).eps)
        assert error_of(found[name], right) <= allowed, name


@needs_kernel
def test_dropout_of_the_kernel_is_that_of_the_steps(by_steps):
    """With the seeds of the call, element by element: whatever is zero in one is in the other."""
    arrays = arrays_of(1, (4, 5, 16), 16, 32)
    zeros = np.zeros_like(arrays[0])
    arrays[0] = zeros  # so that nothing is added to what was dropped
    arrays[9][:] = arrays[10][:] = 0  # nor comes out of attention
    for rates in ((0.0, 0.0, 0.0, 0.5), (0.5, 0.0, 0.9, 0.5)):
        options = {"rates": rates, "seeds": (5, 1, 2**33, 3)}
        found, wanted = results(arrays, **options), by_steps(arrays, **options)
        dropped = wanted["out"] == 0
        assert 0.3 < dropped.mean() < 0.7
        assert np.array_equal(found["out"] == 0, dropped)


@needs_kernel
@pytest.mark.parametrize(
    "missing", ["norm_1", "W_q", "W_k", "W_v", "W_o", "norm_2", "w_1", "w_2", ""]
)
def test_biases_may_be_missing(missing, by_steps, calls):
    """One of them, or all."""
    arrays: list[Any] = arrays_of(2, (2, 9, 16), 32, 16)
    for place, name in enumerate(NAMES):
        if name.endswith("bias") and name.startswith(missing):
            arrays[place] = None
    found, wanted = results(arrays, **DROPPED), by_steps(arrays, **DROPPED)
    assert len(calls) == 1
    check_close(found, wanted, 3e-6)


HIDING: dict[str, Any] = {
    "a length per sample": {"limits": np.array([[2], [0], [7]])},
    "a length per query": {"limits": np.array([[1, 7, 0, 3, 2, 2, 5]])},
    "a mask": {"mask": rng_of(3).random((3, 2, 7, 7)) < 0.6},
    "a mask of keys": {"mask": rng_of(4).random((1, 1, 1, 7)) < 0.6},
}


@needs_kernel
@pytest.mark.parametrize("hidden", HIDING)
def test_hidden_keys_are_those_of_the_steps(hidden, by_steps, calls):
    arrays, options = arrays_of(13, (3, 7, 16), 16, 32), {**DROPPED, **HIDING[hidden]}
    found, wanted = results(arrays, **options), by_steps(arrays, **options)
    assert len(calls) == 1
    check_close(found, wanted, 3e-6)


@needs_kernel
def test_any_layout_of_memory_is_taken(calls):
    arrays = arrays_of(4, (3, 7, 16), 32, 48)
    wanted = results(arrays)
    changes = (
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a[::-1][::-1],
    )
    for change in changes:
        tensors = [ta.tensor(a).detach() for a in arrays]
        leaves = []
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor._data = change(array)
            tensor.requires_grad = True
            leaves.append(tensor)
        out = ops.encoder_layer(*leaves, heads=2)
        out.backward(ta.tensor(signed(rng_of(99), *out.shape).astype(np.float32)))
        assert np.array_equal(out.numpy(), wanted["out"])
        for name, leaf in zip(NAMES, leaves, strict=True):
            assert np.array_equal(leaf.grad.numpy(), wanted[name]), name
    assert len(calls) == 4


@needs_kernel
@pytest.mark.parametrize(("backward", "loop"), [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)])
def test_a_loop_waits_for_all_of_the_one_before(backward, loop, monkeypatch):
    """Of which the last piece is with another thread here, until it says that it is done."""
    called = []

    def alone(count: int, nanoseconds: float, kernel: Any, *arguments: Any) -> None:
        called.append((kernel, arguments))
        kernel(*arguments, *np.zeros((2, 1), np.int64), ALONE)

    monkeypatch.setattr(sys.modules[cpu.encoder_layer.__module__], "together", alone)
    results(arrays_of(5, (40, 32), 32, 64), lengths=np.array([10, 30]))
    kernel, arguments = called[backward]
    board = arguments[-1]
    counts = board[:, 1].copy()
    assert (counts > 0).all()
    board[:, :2] = 0
    board[loop, :2] = counts[loop], counts[loop] - 1
    thread = threading.Thread(
        target=kernel, args=(*arguments, *np.zeros((2, 1), np.int64), ALONE), daemon=True
    )
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    assert board[: loop + 1, 1].tolist() == [*counts[:loop], counts[loop] - 1]
    assert not board[loop + 1 :, :2].any()
    board[loop, 1] += 1
    thread.join(60)
    assert not thread.is_alive()
    assert board[:, 1].tolist() == counts.tolist()


@needs_kernel
@pytest.mark.parametrize("lone_blas", [False, True], ids=["asleep", "awake"])
@pytest.mark.parametrize("number", [2, 3, 5])
def test_no_bit_depends_on_the_number_of_threads(number, lone_blas, monkeypatch):
    """Whoever takes which piece, however threads wait, and again and again."""
    from tinyattn import threads

    arrays = arrays_of(5, (901, 32), 32, 64)
    options = {**DROPPED, "lengths": np.array([300, 1, 0, 250, 350])}
    before = ta.get_num_threads()
    monkeypatch.setattr(threads, "_stay_awake", lone_blas)
    parts = []
    real = threads.at_once

    def spy(function: Any, calls: Any, *given: Any, **named: Any) -> None:
        parts.append(len(calls))
        real(function, calls, *given, **named)

    try:
        ta.set_num_threads(1)
        alone = results(arrays, **options)
        monkeypatch.setattr(threads, "WORTH_A_THREAD", 1000)
        monkeypatch.setattr(threads, "at_once", spy)
        ta.set_num_threads(number)
        for _ in range(5):
            parts.clear()
            together = results(arrays, **options)
            assert parts == [number, number]
            for name, right in alone.items():
                assert np.array_equal(together[name], right), name
    finally:
        ta.set_num_threads(before)


@needs_kernel
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_odd_numbers_stay_in_their_sample(value, by_steps, calls):
    """And in the gradients of weights, as they do in the steps."""
    arrays = arrays_of(6, (2, 10, 16), 16, 16)
    arrays[0][1, 7, 3] = value
    found, wanted = results(arrays), by_steps(arrays)
    assert len(calls) == 1
    for name in ("out", "x"):
        assert np.isfinite(found[name][0]).all(), name
        assert np.array_equal(np.isnan(found[name]), np.isnan(wanted[name])), name


@needs_kernel
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("hidden", ["a length per query", "a mask"])
def test_odd_numbers_behind_a_mask_reach_nothing(hidden, backward, by_steps, monkeypatch):
    """The kernel does not keep them apart: where there are any the steps run."""
    arrays, options = arrays_of(14, (3, 7, 16), 16, 32), HIDING[hidden]
    if backward:
        cotangent = signed(rng_of(99), 3, 7, 16)
        cotangent[1, 4, 2] = np.inf
        monkeypatch.setattr(sys.modules[__name__], "signed", lambda rng, *shape: cotangent)
    else:
        arrays[0][1, 4, 2] = np.nan
    found, wanted = results(arrays, **options), by_steps(arrays, **options)
    for name, right in wanted.items():
        assert np.array_equal(np.isfinite(found[name]), np.isfinite(right)), name
    assert np.isfinite(found["out"]).any()
    assert np.isfinite(found["x"]).any()


@needs_kernel
def test_what_backward_needs_cannot_be_written_to():
    tensors = [ta.tensor(a, requires_grad=True) for a in arrays_of(7, (1, 5, 16), 16, 16)]
    out = ops.encoder_layer(*tensors, heads=2)
    for name, tensor in zip(NAMES, tensors, strict=True):
        array = tensor.data
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        assert array.any(), name
    out.backward(ta.ones(*out.shape))
    tensors[0].data[...] = 0


@needs_kernel
def test_projections_are_handed_out():
    """To be looked at: what is done to them changes no gradient."""
    arrays = arrays_of(15, (2, 5, 16), 32, 16)
    wanted, projections = results(arrays), []
    assert np.array_equal(results(arrays, projections=projections)["x"], wanted["x"])
    (qkv,) = projections
    with pytest.raises(ValueError, match="read-only"):
        qkv[...] = 0
    by_hand = ta.functional.layer_norm(ta.tensor(arrays[0]), (16,), *map(ta.tensor, arrays[1:3]))
    parts = [by_hand @ ta.tensor(arrays[i]).T + ta.tensor(arrays[i + 1]) for i in (3, 5, 7)]
    assert error_of(qkv, np.concatenate([part.numpy() for part in parts], axis=-1)) < 1e-6


def test_second_derivatives_are_those_of_the_steps(monkeypatch):
    """d/dx of (gradient . direction), where the first gradient may come from the kernel."""
    arrays = arrays_of(8, (1, 4, 16), 16, 32)
    rng = rng_of(9)
    cotangent, directions = signed(rng, 1, 4, 16), [signed(rng, *a.shape) for a in arrays]
    found = []
    for largest, dtype in ((module.LARGEST, np.float32), (-1, np.float64)):
        monkeypatch.setattr(module, "LARGEST", largest)
        tensors = [ta.tensor(a.astype(dtype), requires_grad=True) for a in arrays]
        out = ops.encoder_layer(*tensors, heads=2, **DROPPED)
        first = ta.grad(out, tensors, ta.tensor(cotangent.astype(dtype)), create_graph=True)
        slope = sum(
            (g * ta.tensor(d.astype(dtype))).sum() for g, d in zip(first, directions, strict=True)
        )
        found.append(ta.grad(slope, tensors, allow_unused=True))
    for name, single, double in zip(NAMES, *found, strict=True):
        if double is None or not np.abs(double.numpy()).max():
            assert single is None or not np.abs(single.numpy()).max(), name
        elif name != "W_k.bias":
            assert error_of(single.numpy(), double.numpy()) < 1e-5, name


def test_second_derivatives_where_a_parameter_comes_from_x():
    """Then x has two ways to the output, and each counts once."""
    arrays = [a.astype(np.float64) for a in arrays_of(12, (1, 2, 4), 4, 3)]
    arrays[14] *= 6  # the hidden units far from where relu has its kink
    rest = [ta.tensor(a) for a in arrays[2:]]
    x = ta.tensor(arrays[0], requires_grad=True)

    def layer(x: ta.Tensor) -> ta.Tensor:
        return ops.encoder_layer(x, x[0, 0].tanh(), *rest, heads=2)

    assert ta.gradgradcheck(layer, x)


# The layer


def layer_of(seed: int = 1, heads: int = 2, width: int = 16, ff: int = 32, p: float = 0.0) -> Any:
    ta.manual_seed(seed)
    attention = nn.MultiHeadedAttention(heads, width, p)
    layer = nn.EncoderLayer(width, attention, nn.PositionwiseFeedForward(width, ff, p), p)
    rng = rng_of(seed)
    for parameter in layer.parameters():  # norms begin with ones and zeros, which hide mistakes
        parameter.data += 0.2 * signed(rng, *parameter.shape).astype(np.float32)
    return layer


@pytest.fixture
def ways(monkeypatch):
    """By the kernel, and module by module: output, gradients, weights, the next random number."""

    def run(layer: Any, x: np.ndarray, **options: Any) -> list[dict[str, Any]]:
        found = []
        for takes in (fused.is_fusible, lambda *_: False):
            monkeypatch.setattr("tinyattn.nn.transformer.is_fusible", takes)
            ta.manual_seed(5)
            for parameter in layer.parameters():
                parameter.grad = None
            tensor = ta.tensor(x, requires_grad=True)
            out = layer(tensor, **options)
            out.backward(ta.tensor(signed(rng_of(7), *out.shape).astype(np.float32)))
            gradients = {name: p.grad.numpy() for name, p in layer.named_parameters()}
            weights = layer.self_attn.attention_weights.numpy()
            kept = {"out": out.numpy(), "x": tensor.grad.numpy(), **gradients, "weights": weights}
            found.append({**kept, "next": ta.rand(2).numpy()})
        monkeypatch.setattr("tinyattn.nn.transformer.is_fusible", fused.is_fusible)
        return found

    return run


def check_alike(ways: list[dict[str, Any]]) -> None:
    one, other = ways
    assert np.array_equal(one.pop("next"), other.pop("next"))
    check_close(one, other, 3e-6)


OPTIONS: dict[str, Any] = {
    "": {},
    "lengths": {"valid_lens": [3, 5, 1]},
    "a length per query": {"valid_lens": [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [2, 2, 2, 2, 2]]},
    "mask": {"mask": np.array([[1, 0, 1, 1, 1], [0, 1, 1, 0, 1], [1, 1, 1, 1, 0]], bool)},
    "causal": {"is_causal": True},
    "both": {"is_causal": True, "valid_lens": [5, 2, 4]},
}


@needs_kernel
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("form", OPTIONS)
def test_layer_is_what_its_modules_are(form, p, ways, calls):
    layer = layer_of(p=p)
    x = signed(rng_of(3), 3, 5, 16).astype(np.float32)
    check_alike(ways(layer, x, **OPTIONS[form]))
    assert len(calls) == 1  # and none of them in the second way
    check_alike(ways(layer.eval(), x, **OPTIONS[form]))


@needs_kernel
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("causal", [False, True])
def test_packed_layer_is_what_its_modules_are(causal, p, ways, calls):
    layer = layer_of(p=p)
    x = signed(rng_of(4), 11, 16).astype(np.float32)
    check_alike(ways(layer, x, valid_lens=[4, 0, 6, 1], is_causal=causal))
    assert len(calls) == 1


@needs_kernel
def test_layers_without_biases_are_fused_too(ways, calls):
    layer = layer_of()
    layer.self_attn = nn.MultiHeadAttention(16, 16, 16, 16, 2, bias=False)
    for connection in layer.sublayer:
        connection.norm = nn.LayerNorm(16, bias=False)
    check_alike(ways(layer, signed(rng_of(5), 2, 6, 16).astype(np.float32)))
    assert len(calls) == 1


@needs_kernel
def test_rates_of_dropout_may_differ(ways, calls):
    layer = layer_of()
    layer.sublayer[0].dropout.p, layer.sublayer[1].dropout.p = 0.6, 0.2
    layer.feed_forward.dropout.p = 0.3
    layer.sublayer[1].dropout.eval()
    check_alike(ways(layer, signed(rng_of(6), 2, 6, 16).astype(np.float32)))
    assert len(calls) == 1


@needs_kernel
def test_each_norm_has_its_eps(ways, calls):
    layer = layer_of()
    layer.sublayer[0].norm.eps, layer.sublayer[1].norm.eps = 0.7, 0.1
    check_alike(ways(layer, signed(rng_of(6), 2, 6, 16).astype(np.float32)))
    assert len(calls) == 1


class Doubled(nn.Linear):
    def forward(self, x: ta.Tensor) -> ta.Tensor:
        return super().forward(x) * 2


def replaced(path: str, module: Any) -> Any:
    def change(layer: Any) -> None:
        *names, last = path.split(".")
        for name in names:
            layer = getattr(layer, name)
        setattr(layer, last, module() if isinstance(module, type) else module)

    return change


def patched(path: str) -> Any:
    def change(layer: Any) -> None:
        for name in path.split("."):
            layer = getattr(layer, name)
        plain = layer.forward
        object.__setattr__(layer, "forward", lambda *given, **named: plain(*given, **named) * 2)

    return change


CHANGES: dict[str, Any] = {
    **{
        f"another class: {path}": replaced(path, Doubled(*sizes))
        for path, sizes in {
            "self_attn.W_q": (16, 16),
            "self_attn.W_o": (16, 16),
            "feed_forward.w_1": (16, 32),
            "feed_forward.w_2": (32, 16),
        }.items()
    },
    **{
        f"another forward: {path}": patched(path)
        for path in (
            "self_attn",
            "self_attn.W_k",
            "self_attn.W_o",
            "feed_forward",
            "feed_forward.w_1",
            "feed_forward.w_2",
            "feed_forward.activation",
            "feed_forward.dropout",
            "sublayer.0",
            "sublayer.0.norm",
            "sublayer.0.dropout",
            "sublayer.1",
            "sublayer.1.norm",
            "sublayer.1.dropout",
        )
    },
    "gelu": replaced("feed_forward.activation", nn.GELU),
    "no activation": replaced("feed_forward.activation", nn.Sequential),
    "another sublayer": replaced("feed_forward", nn.Sequential(nn.Linear(16, 16))),
    "post-norm": lambda layer: [setattr(part, "order", "post") for part in layer.sublayer],
    "a forward for the whole class": lambda layer: None,  # see the test
    "norm without weight": replaced("sublayer.1.norm.weight", None),
    "float64": lambda layer: layer.to(ta.float64),
    "everything is dropped": lambda layer: setattr(layer.sublayer[0].dropout, "p", 1.0),
}


@needs_kernel
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_is_left_to_the_modules(change, calls, monkeypatch):
    """Whoever derives from a part, or replaces it, finds it called."""
    layer, x = layer_of(), ta.tensor(signed(rng_of(8), 2, 5, 16).astype(np.float32))
    before = layer(x).numpy()
    assert len(calls) == 1
    CHANGES[change](layer)
    if "whole class" in change:
        monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x * 3)
    x = x.to(next(iter(layer.parameters())).dtype)
    ta.manual_seed(3)
    out = layer(x).numpy()
    assert len(calls) == 1
    monkeypatch.setattr("tinyattn.nn.transformer.is_fusible", lambda *_: False)
    ta.manual_seed(3)
    assert np.array_equal(out, layer(x).numpy())
    if change != "float64":
        assert not np.allclose(out, before, atol=1e-3)


@needs_kernel
@pytest.mark.parametrize(
    "sizes", [(2, 24, 32), (2, 16, 40), (3, 15, 32), (2, 128, 512)], ids=["D", "ff", "odd", "large"]
)
def test_other_widths_are_left_to_the_modules(sizes, calls):
    heads, width, ff = sizes
    layer = layer_of(heads=heads, width=width, ff=ff)
    assert layer(ta.randn(2, 5, width)).shape == (2, 5, width)
    assert not calls


@needs_kernel
@pytest.mark.parametrize("place", [0, 1])
def test_a_norm_over_more_dimensions_is_left_to_the_modules(place, calls):
    layer = layer_of()
    layer.sublayer[place].norm = nn.LayerNorm((16, 16))
    assert layer(ta.randn(2, 16, 16)).shape == (2, 16, 16)
    assert not calls


WRONG: dict[str, tuple[Any, Any]] = {
    "p below 0": (lambda layer: setattr(layer.sublayer[0].dropout, "p", -0.5), "0 and 1, got -0.5"),
    "p of another type": (lambda layer: setattr(layer.feed_forward.dropout, "p", "a"), "got 'a'"),
    "w_1": (replaced("feed_forward.w_1", nn.Linear(48, 32)), "whose last dimension is 48"),
    "W_o": (replaced("self_attn.W_o", nn.Linear(32, 16)), "whose last dimension is 32"),
    "norm": (replaced("sublayer.1.norm", nn.LayerNorm(32)), r"\(32,\)"),
}


@needs_kernel
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_by_the_module(name, calls):
    layer = layer_of()
    change, words = WRONG[name]
    change(layer)
    with pytest.raises(ValueError, match=words):
        layer(ta.randn(2, 5, 16))
    assert not calls


@needs_kernel
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_memory_that_is_kept(widths):
    """Queries, keys and values, attention's output, the sum after it, the hidden layer; of each
    head a float32 and a float64 for each row, of each norm two float64; and the vectors once."""
    heads, width, wide, hidden = widths
    tensors = [ta.tensor(a, requires_grad=True) for a in arrays_of(3, (2, 10, width), wide, hidden)]
    node = ops.encoder_layer(*tensors, heads=heads)._node
    kept = [part for value in node.saved if isinstance(value, tuple) for part in value]
    own = [a for a in kept if isinstance(a, np.ndarray)]
    numbers, exact = 4 * wide + width + hidden + heads, heads + 4
    vectors = 3 * wide + 6 * width + hidden
    assert sum(a.nbytes for a in own) == 20 * (4 * numbers + 8 * exact) + 4 * vectors


@needs_kernel
def test_nan_behind_a_mask_reaches_nothing(calls):
    """Such input is left to the modules, which know how to keep it apart."""
    layer = layer_of()
    x = signed(rng_of(10), 2, 5, 16).astype(np.float32)
    x[0, 3:] = np.nan
    x[1, 4:] = np.inf
    attended = layer.sublayer[0](
        ta.tensor(x), lambda y: layer.self_attn(y, y, y, valid_lens=[3, 4])
    )
    assert np.isfinite(attended.numpy()[0, :3]).all()
    out = layer(ta.tensor(x), valid_lens=[3, 4])
    assert not calls
    assert np.isfinite(out.numpy()[0, :3]).all()
    assert np.isfinite(out.numpy()[1, :4]).all()
    assert np.isnan(layer(ta.tensor(x)).numpy()).all()  # seen by all, and nobody is kept apart
    assert len(calls) == 1


@needs_kernel
def test_frozen_parts_get_no_gradient(ways, calls):
    layer = layer_of()
    layer.self_attn.requires_grad_(False)
    layer.feed_forward.w_1.bias.requires_grad = False
    x = ta.tensor(signed(rng_of(11), 2, 5, 16).astype(np.float32))
    layer(x).sum().backward()
    assert len(calls) == 1
    frozen = {id(p) for p in (*layer.self_attn.parameters(), layer.feed_forward.w_1.bias)}
    for name, parameter in layer.named_parameters():
        assert (parameter.grad is None) == (id(parameter) in frozen), name


@needs_kernel
def test_empty_input_is_left_to_the_modules(calls):
    layer = layer_of()
    for shape in ((0, 5, 16), (2, 0, 16)):
        assert layer(ta.zeros(*shape)).shape == shape
    assert not calls
