"""Encoder layers as three operations, and the kernel beneath: as the modules, only faster."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from common import rng_of, signed

import tinyattn as ta
from tinyattn import kernels, nn, ops
from tinyattn.nn import fused
from tinyattn.ops import positionwise

cpu = kernels.jitted()
needs_kernel = pytest.mark.skipif(cpu is None, reason="without Numba there is no such kernel")
ROWS = (1, 2, 15, 16, 17, 40, 300)  # of the last, backward sums gradients in several groups
WIDTHS = ((16, 16, 16), (32, 16, 48), (16, 48, 32), (64, 64, 256))  # of x, heads, hidden layer
DROPPED = {"rates": (0.3, 0.5, 0.2), "seeds": (2**50 + 7, 3, 2**40 + 1)}
NAMES = (
    "x", "heads", "weight_o", "bias_o", "norm_weight", "norm_bias", "weight_1", "bias_1",
    "weight_2", "bias_2",
)  # fmt: skip


def arrays_of(seed: int, shape: tuple[int, ...], heads: int, hidden: int) -> list[np.ndarray]:
    """What `add_norm_feed_forward` takes, in its order."""
    rng, width = rng_of(seed), shape[-1]
    arrays = [
        signed(rng, *shape),
        signed(rng, *shape[:-1], heads),
        signed(rng, width, heads) / np.sqrt(heads),
        signed(rng, width),
        1 + 0.3 * signed(rng, width),
        signed(rng, width),
        signed(rng, hidden, width) / np.sqrt(width),
        signed(rng, hidden),
        signed(rng, width, hidden) / np.sqrt(hidden),
        signed(rng, width),
    ]
    return [array.astype(np.float32) for array in arrays]


def results(arrays: list[Any], **options: Any) -> dict[str, np.ndarray]:
    """The output and all gradients, under a random signed cotangent."""
    tensors = [None if a is None else ta.tensor(a, requires_grad=True) for a in arrays]
    if len(tensors) == 5:
        out = ops.norm_linear(*tensors, eps=1e-5)
        names: tuple[str, ...] = ("x", *NAMES[4:8])
    else:
        out, names = ops.add_norm_feed_forward(*tensors, eps=1e-5, **options), NAMES
    out.backward(ta.tensor(signed(rng_of(99), *out.shape).astype(out.dtype)))
    found = {"out": out.numpy()}
    for name, tensor in zip(names, tensors, strict=True):
        if tensor is not None:
            found[name] = tensor.grad.numpy()
    return found


@pytest.fixture
def by_steps(monkeypatch):
    """The same function, one operation after another."""

    def run(*arguments: Any, **options: Any) -> dict[str, np.ndarray]:
        with monkeypatch.context() as patch:
            patch.setattr(positionwise, "LARGEST", -1)
            return results(*arguments, **options)

    return run


@pytest.fixture
def calls(monkeypatch):
    """How often the kernel was called."""
    counted = []
    real = cpu.positionwise

    def spy(*arguments: Any) -> Any:
        counted.append(1)
        return real(*arguments)

    monkeypatch.setattr(cpu, "positionwise", spy)
    return counted


def error_of(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(found - exact).max(initial=0) / max(1e-30, np.abs(exact).max(initial=0)))


# The kernel


@needs_kernel
@pytest.mark.parametrize("options", [{}, DROPPED], ids=["", "dropout"])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("rows", ROWS)
def test_kernel_is_as_exact_as_the_steps(rows, widths, options, by_steps, calls):
    """Against float64: at most twice their error, or 8 units in the last place."""
    width, heads, hidden = widths
    whole = arrays_of(rows, (rows, width), heads, hidden)
    for arrays in (whole, [whole[0], *whole[4:8]]):
        settings = options if arrays is whole else {}
        exact = by_steps([a.astype(np.float64) for a in arrays], **settings)
        plain = by_steps(arrays, **settings)
        assert not calls
        found = results(arrays, **settings)
        assert calls.pop() == 1
        assert found.keys() == exact.keys()
        for name, right in exact.items():
            assert found[name].dtype == np.float32, name
            assert found[name].shape == right.shape, name
            allowed = max(2 * error_of(plain[name], right), 8 * np.finfo(np.float32).eps)
            assert error_of(found[name], right) <= allowed, name


@needs_kernel
def test_dropout_of_the_kernel_is_that_of_the_steps(by_steps):
    """With the seeds of the call, element by element: whatever is zero in one is in the other."""
    arrays = arrays_of(1, (20, 16), 16, 32)
    zeros = np.zeros_like(arrays[0])
    arrays[0] = zeros  # so that nothing is added to what was dropped
    arrays[2][:] = arrays[3][:] = 0
    for rates in ((0.0, 0.0, 0.5), (0.0, 0.9, 0.5)):
        options = {"rates": rates, "seeds": (1, 2**33, 3)}
        found, wanted = results(arrays, **options), by_steps(arrays, **options)
        dropped = wanted["out"] == 0
        assert 0.3 < dropped.mean() < 0.7
        assert np.array_equal(found["out"] == 0, dropped)


@needs_kernel
@pytest.mark.parametrize("missing", [(3,), (5,), (7,), (9,), (3, 5, 7, 9)], ids=str)
def test_biases_may_be_missing(missing, by_steps, calls):
    arrays: list[Any] = arrays_of(2, (18, 16), 32, 16)
    for place in missing:
        arrays[place] = None
    found, wanted = results(arrays, **DROPPED), by_steps(arrays, **DROPPED)
    assert len(calls) == 1
    assert found.keys() == wanted.keys() == {"out", *NAMES} - {NAMES[place] for place in missing}
    for name, right in wanted.items():
        assert error_of(found[name], right) < 2e-6, name
    small = [arrays[0], arrays[4], arrays[5], arrays[6], arrays[7]]
    found, wanted = results(small), by_steps(small)
    assert len(calls) == 2
    for name, right in wanted.items():
        assert error_of(found[name], right) < 2e-6, name


@needs_kernel
@pytest.mark.parametrize("shape", [(16,), (1, 16), (2, 9, 16), (2, 1, 3, 16)], ids=str)
def test_leading_dimensions_are_rows(shape, by_steps, calls):
    arrays = arrays_of(3, shape, 32, 16)
    found, wanted = results(arrays, **DROPPED), by_steps(arrays, **DROPPED)
    assert len(calls) == 1
    for name, right in wanted.items():
        assert found[name].shape == right.shape, name
        assert error_of(found[name], right) < 2e-6, name


@needs_kernel
def test_any_layout_of_memory_is_taken(calls):
    arrays = arrays_of(4, (21, 16), 32, 48)
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
        out = ops.add_norm_feed_forward(*leaves, eps=1e-5)
        out.backward(ta.tensor(signed(rng_of(99), *out.shape).astype(np.float32)))
        assert np.array_equal(out.numpy(), wanted["out"])
        for name, leaf in zip(NAMES, leaves, strict=True):
            assert np.array_equal(leaf.grad.numpy(), wanted[name]), name
    assert len(calls) == 4


@needs_kernel
@pytest.mark.parametrize("number", [2, 3, 5])
def test_no_bit_depends_on_the_number_of_threads(number, monkeypatch):
    """Of arrays that are large enough to be divided, however threads wait."""
    from tinyattn import threads

    arrays = arrays_of(5, (3001, 32), 32, 64)
    before = ta.get_num_threads()
    try:
        ta.set_num_threads(1)
        alone = results(arrays, **DROPPED), results([arrays[0], *arrays[4:8]])
        parts = []
        real = threads.in_parts

        def spy(*given: Any) -> None:
            parts.append(given[0])
            real(*given)

        monkeypatch.setattr(sys.modules["tinyattn.kernels.cpu.positionwise"], "in_parts", spy)
        monkeypatch.setattr(threads, "WORTH_A_THREAD", 1000)
        ta.set_num_threads(number)
        together = results(arrays, **DROPPED), results([arrays[0], *arrays[4:8]])
    finally:
        ta.set_num_threads(before)
    assert len(parts) == 4
    assert min(parts) >= number
    for one, many in zip(alone, together, strict=True):
        for name, right in one.items():
            assert np.array_equal(many[name], right), name


@needs_kernel
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1], ids=NAMES[:2])
def test_odd_numbers_stay_in_their_row(value, place, by_steps):
    """And in the gradients of weights, as they do in the steps."""
    arrays = arrays_of(6, (20, 16), 16, 16)
    arrays[place][17, 3] = value
    found, wanted = results(arrays), by_steps(arrays)
    others = np.arange(20) != 17
    for name in ("out", "x", "heads"):
        assert np.isfinite(found[name][others]).all(), name
        assert np.array_equal(np.isnan(found[name]), np.isnan(wanted[name])), name


@needs_kernel
def test_what_backward_needs_cannot_be_written_to():
    tensors = [ta.tensor(a, requires_grad=True) for a in arrays_of(7, (5, 16), 16, 16)]
    out = ops.add_norm_feed_forward(*tensors, eps=1e-5)
    for name, tensor in zip(NAMES, tensors, strict=True):
        array = tensor.data
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        assert array.any(), name
    out.backward(ta.ones(*out.shape))
    tensors[0].data[...] = 0


def test_second_derivatives_are_those_of_the_steps(monkeypatch):
    """d/dx of (gradient . direction), where the first gradient may come from the kernel."""
    arrays = arrays_of(8, (4, 16), 16, 32)
    rng = rng_of(9)
    cotangent, directions = signed(rng, 4, 16), [signed(rng, *a.shape) for a in arrays]
    found = []
    for largest, dtype in ((positionwise.LARGEST, np.float32), (-1, np.float64)):
        monkeypatch.setattr(positionwise, "LARGEST", largest)
        tensors = [ta.tensor(a.astype(dtype), requires_grad=True) for a in arrays]
        out = ops.add_norm_feed_forward(*tensors, eps=1e-5, **DROPPED)
        first = ta.grad(out, tensors, ta.tensor(cotangent.astype(dtype)), create_graph=True)
        slope = sum(
            (g * ta.tensor(d.astype(dtype))).sum() for g, d in zip(first, directions, strict=True)
        )
        found.append(ta.grad(slope, tensors, allow_unused=True))
    for name, single, double in zip(NAMES, *found, strict=True):
        if double is None or not np.abs(double.numpy()).max():
            assert single is None or not np.abs(single.numpy()).max(), name
        else:
            assert error_of(single.numpy(), double.numpy()) < 1e-5, name


def test_second_derivatives_where_heads_come_from_x():
    """As they do in a layer: then x has two ways to the output, and each counts once."""
    arrays = [a.astype(np.float64) for a in arrays_of(12, (2, 4), 4, 3)]
    arrays[7] *= 6  # the hidden units far from where relu has its kink
    rest = [ta.tensor(a) for a in arrays[2:]]
    x = ta.tensor(arrays[0], requires_grad=True)
    assert ta.gradgradcheck(lambda x: ops.add_norm_feed_forward(x, x.tanh(), *rest, eps=1e-5), x)


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
    assert np.array_equal(one["next"], other["next"])
    largest = max(np.abs(g).max() for name, g in other.items() if name.endswith("bias"))
    for name, right in other.items():
        if name.endswith("W_k.bias"):  # whose true gradient is 0
            assert max(np.abs(one[name]).max(), np.abs(right).max()) < 1e-5 * largest
        else:
            assert error_of(one[name], right) < 3e-6, name


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
    assert len(calls) == 2  # and none of them in the second way
    check_alike(ways(layer.eval(), x, **OPTIONS[form]))


@needs_kernel
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("causal", [False, True])
def test_packed_layer_is_what_its_modules_are(causal, p, ways, calls):
    layer = layer_of(p=p)
    x = signed(rng_of(4), 11, 16).astype(np.float32)
    check_alike(ways(layer, x, valid_lens=[4, 0, 6, 1], is_causal=causal))
    assert len(calls) == 2


@needs_kernel
def test_layers_without_biases_are_fused_too(ways, calls):
    layer = layer_of()
    layer.self_attn = nn.MultiHeadAttention(16, 16, 16, 16, 2, bias=False)
    for connection in layer.sublayer:
        connection.norm = nn.LayerNorm(16, bias=False)
    check_alike(ways(layer, signed(rng_of(5), 2, 6, 16).astype(np.float32)))
    assert len(calls) == 2


@needs_kernel
def test_rates_of_dropout_may_differ(ways, calls):
    layer = layer_of()
    layer.sublayer[0].dropout.p, layer.sublayer[1].dropout.p = 0.6, 0.2
    layer.feed_forward.dropout.p = 0.3
    layer.sublayer[1].dropout.eval()
    check_alike(ways(layer, signed(rng_of(6), 2, 6, 16).astype(np.float32)))
    assert len(calls) == 2


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
    assert len(calls) == 2
    CHANGES[change](layer)
    if "whole class" in change:
        monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x * 3)
    x = x.to(next(iter(layer.parameters())).dtype)
    ta.manual_seed(3)
    out = layer(x).numpy()
    assert len(calls) == 2
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
@pytest.mark.parametrize("widths", [(16, 32, 48), (64, 64, 256)], ids=str)
def test_memory_that_is_kept(widths):
    """Beside inputs: the sum after attention, the hidden layer, and two float64 for each row."""
    width, heads, hidden = widths
    tensors = [ta.tensor(a, requires_grad=True) for a in arrays_of(3, (20, width), heads, hidden)]
    node = ops.add_norm_feed_forward(*tensors, eps=1e-5)._node
    kept = [part for value in node.saved if isinstance(value, tuple) for part in value]
    own = [a for a in kept if isinstance(a, np.ndarray)]
    assert sum(a.nbytes for a in own) == 20 * (4 * (width + hidden) + 16)


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
    assert len(calls) == 2


@needs_kernel
def test_frozen_parts_get_no_gradient(ways, calls):
    layer = layer_of()
    layer.self_attn.requires_grad_(False)
    layer.feed_forward.w_1.bias.requires_grad = False
    x = ta.tensor(signed(rng_of(11), 2, 5, 16).astype(np.float32))
    layer(x).sum().backward()
    assert len(calls) == 2
    frozen = {id(p) for p in (*layer.self_attn.parameters(), layer.feed_forward.w_1.bias)}
    for name, parameter in layer.named_parameters():
        assert (parameter.grad is None) == (id(parameter) in frozen), name


@needs_kernel
def test_empty_input_is_left_to_the_modules(calls):
    layer = layer_of()
    for shape in ((0, 5, 16), (2, 0, 16)):
        assert layer(ta.zeros(*shape)).shape == shape
    assert not calls
