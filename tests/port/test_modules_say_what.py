"""torch_names.nn: an error names the argument, a module shows its settings, and plain functions
have the values of their formulas."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
import tinyattn.torch_names as ours
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.torch_names import nn
from tinyattn.torch_names.nn import functional as F
from tinyattn.torch_names.nn.modules import module_of, takes
from tinyattn.torch_names.nn.windows import for_dims

IMAGE, TABLE = ta.ones(2, 3, 4, 4), ta.ones(2, 3)
WEIGHT = ta.ones(2, 3, 1, 1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.Conv2d(1, 2, (1, 2, 3)), ShapeError, "^kernel_size is one number or 2, got"),
        (lambda: nn.Conv2d(1, 2, 0), ShapeError, "^kernel_size must be an integer >= 1, got 0"),
        (lambda: nn.Conv2d(0, 2, 1), ShapeError, "^in_channels must be an integer >= 1, got 0"),
        (lambda: nn.Conv1d(1, 0, 1), ShapeError, "^out_channels must be an integer >= 1, got 0"),
        (lambda: nn.Conv2d(1, 2, 1, groups=0), ShapeError, "^groups must be an integer >= 1"),
        (lambda: nn.Conv2d(1, 2, 1, stride=0), ShapeError, "^stride must be an integer >= 1"),
        (lambda: nn.Conv1d(1, 2, 1, dilation=(1, 2)), ShapeError, "^dilation is one number or 1,"),
        (lambda: nn.Conv2d(1, 2, 1, padding=-1), ShapeError, "^padding must be an integer >= 0"),
        (lambda: nn.BatchNorm1d(0), ShapeError, "^num_features must be an integer >= 1, got 0"),
        (lambda: nn.BatchNorm2d(3, -1.0), ValueError, "^eps must be a number >= 0, got -1.0"),
        (lambda: nn.BatchNorm2d(3, momentum=2), ValueError, "^momentum lies between 0 and 1"),
        (lambda: nn.LazyLinear(2)(ta.tensor([[1, 2]])), DtypeError, "^input needs a floating"),
        (lambda: nn.MultiheadAttention(0, 2), ShapeError, "^embed_dim must be an integer >= 1"),
        (lambda: nn.MultiheadAttention(4, 0), ShapeError, "^num_heads must be an integer >= 1"),
        (lambda: nn.MultiheadAttention(7, 2), ShapeError, "the width 7 cannot be split into 2"),
        (lambda: nn.GRU(0, 1), ShapeError, "^input_size must be an integer >= 1, got 0"),
        (lambda: nn.LSTM(1, 0), ShapeError, "^hidden_size must be an integer >= 1, got 0"),
        (lambda: nn.RNN(1, 1, 0), ShapeError, "^num_layers must be an integer >= 1, got 0"),
        (lambda: nn.GRU(1, 1)(ta.ones(0, 1, 1)), ShapeError, "^GRU takes one position or more"),
        (lambda: nn.LSTM(1, 1)(ta.ones(1, 1).long()), DtypeError, "^x needs a floating dtype"),
        (lambda: nn.Embedding(0, 2), ShapeError, "^num_embeddings must be an integer >= 1"),
        (lambda: nn.Embedding(2, 0), ShapeError, "^embedding_dim must be an integer >= 1"),
        (lambda: nn.Embedding(2, 2, padding_idx=5), IndexError, "^padding_idx 5 is no row of a"),
        (lambda: nn.Embedding(2, 2, max_norm=1), ValueError, "an Embedding has no max_norm"),
        (lambda: nn.Embedding(2, 2, scale_grad_by_freq=True), ValueError, "scale_grad_by_freq"),
        (lambda: F.l1_loss(TABLE, TABLE[:1]), ShapeError,
         r"^l1_loss: x \(2, 3\) and target \(1, 3\) must have one shape"),
        (lambda: F.smooth_l1_loss(TABLE, TABLE[:1]), ShapeError, r"^smooth_l1_loss: x \(2, 3\)"),
        (lambda: F.binary_cross_entropy(TABLE, TABLE[:1]), ShapeError,
         r"^binary_cross_entropy: x \(2, 3\) and target \(1, 3\)"),
        (lambda: F.binary_cross_entropy_with_logits(TABLE, TABLE[:1]), ShapeError,
         r"^binary_cross_entropy_with_logits: x \(2, 3\) and target \(1, 3\)"),
        (lambda: F.binary_cross_entropy(2 * TABLE, TABLE), ValueError,
         "^binary_cross_entropy takes numbers from 0 to 1: call sigmoid before it"),
        (lambda: F.batch_norm(TABLE[:1], None, None, training=True), ValueError,
         r"^batch_norm needs two numbers per channel to train, x \(1, 3\)"),
        (lambda: F.conv1d(IMAGE, IMAGE), ShapeError,
         r"^conv1d takes an input \(B, C, L\) or \(C, L\), got \(2, 3, 4, 4\)"),
        (lambda: F.conv2d(TABLE, IMAGE), ShapeError,
         r"^conv2d takes an input \(B, C, H, W\) or \(C, H, W\), got \(2, 3\)"),
        (lambda: F.max_pool1d(TABLE[0], 1), ShapeError, r"^max_pool1d takes an input \(B, C, L\)"),
        (lambda: F.avg_pool2d(TABLE, 1), ShapeError, r"^avg_pool2d takes an input \(B, C, H, W\)"),
        (lambda: F.adaptive_avg_pool1d(IMAGE, 1), ShapeError, "^adaptive_avg_pool1d takes an in"),
        (lambda: F.conv2d(IMAGE.long(), IMAGE), DtypeError, "^input needs a floating dtype"),
        (lambda: F.conv2d(ta.ones(1, 2, 4, 4), ta.ones(3, 1, 1, 1), groups=2), ShapeError,
         r"^2 groups of a weight \(out, C / groups, \*K\) \(3, 1, 1, 1\) do not fit an input"),
        (lambda: F.conv2d(IMAGE, WEIGHT, padding=(1, 2, 3)), ShapeError, "^padding is one number"),
        (lambda: F.conv2d(IMAGE, WEIGHT, padding=-1), ShapeError, "^padding must be an integer"),
        (lambda: F.conv2d(IMAGE, WEIGHT, dilation=0), ShapeError, "^dilation must be an integer"),
        (lambda: F.max_pool2d(IMAGE, (1, 2, 3)), ShapeError, "^kernel_size is one number or 2"),
        (lambda: F.max_pool2d(IMAGE, 2, padding=-1), ShapeError, "^padding must be an integer"),
        (lambda: F.max_pool2d(IMAGE, 2, 1, 0, 0), ShapeError, "^dilation must be an integer >= 1"),
        (lambda: F.avg_pool2d(IMAGE, 2, 0), ShapeError, "^stride must be an integer >= 1, got 0"),
        (lambda: F.adaptive_avg_pool2d(IMAGE, 0), ShapeError, "^output_size must be an integer"),
        (lambda: F.adaptive_avg_pool2d(IMAGE, (1, 2, 3)), ShapeError, "^output_size is one number"),
        (lambda: F.adaptive_avg_pool2d(IMAGE, (2, 3)), ShapeError,
         r"^adaptive_avg_pool takes a multiple of \(2, 3\), got \(4, 4\)"),
        (lambda: F.adaptive_avg_pool2d(IMAGE, (3, 2)), ShapeError, r"a multiple of \(3, 2\), got"),
        (lambda: nn.init.trunc_normal_(ta.ones(2), 0, 1, 3, 2), ValueError, "between a=3 and b=2"),
        (lambda: nn.init.orthogonal_(ta.ones(3)), ShapeError, "a weight has at least two dim"),
    ],
)  # fmt: skip
def test_an_error_of_a_module_names_the_argument(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# Each constructor with arguments that fit.
MODULES: dict[str, tuple[Any, ...]] = {
    "BatchNorm1d": (2,), "BatchNorm2d": (2,), "Conv1d": (2, 4, 1), "Conv2d": (2, 4, 1),
    "Dropout": (), "Embedding": (3, 4), "GRU": (2, 4), "GRUCell": (2, 4), "LSTM": (2, 4),
    "LSTMCell": (2, 4), "LazyLinear": (3,), "MSELoss": (), "MultiheadAttention": (4, 2),
    "RNN": (2, 4), "ReLU": (), "Softmax": (), "Transformer": (4, 2, 1, 1, 4),
    "TransformerDecoderLayer": (4, 2, 4), "TransformerEncoderLayer": (4, 2, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_every_module_takes_a_device_and_a_dtype(name: str) -> None:
    kind, args = getattr(nn, name), MODULES[name]
    parameters = inspect.signature(kind).parameters
    assert list(parameters)[-2:] == ["device", "dtype"]
    assert parameters["device"].default is parameters["dtype"].default is None
    made = kind(*args, device="cpu", dtype=ta.float64)
    assert {x.dtype.name for x in made.parameters()} <= {"float64"}
    assert {x.dtype.name for x in kind(*args).parameters()} <= {"float32"}
    with pytest.raises(DtypeError, match=r"tpu.*devices are .cpu. and .cuda."):
        kind(*args, device="tpu")
    with pytest.raises(TypeError, match="quux"):
        kind(*args, quux=1)


def test_a_constructor_gets_all_its_arguments_and_the_defaults() -> None:
    seen: list[dict[str, Any]] = []

    class Own(ta.nn.Module):
        @takes("width, depth=3")
        def __init__(self, arguments: Any) -> None:
            seen.append(vars(arguments))
            self.weight = ta.nn.Parameter(ta.ones(2))

    plain, wide = Own(2), Own(width=3, depth=5, dtype=ta.float64)
    assert seen == [
        {"self": plain, "width": 2, "depth": 3, "device": None, "dtype": None},
        {"self": wide, "width": 3, "depth": 5, "device": None, "dtype": ta.float64},
    ]
    assert (plain.weight.dtype, wide.weight.dtype) == (ta.float32, ta.float64)
    with pytest.raises(DtypeError, match="tpu"):
        Own(2, device="tpu")
    assert list(inspect.signature(Own).parameters) == ["width", "depth", "device", "dtype"]


def test_a_function_becomes_a_module() -> None:
    def scaled(input: Any, factor: Any = 2.0, shift: Any = 1.0, dtype: Any = None) -> Any:
        return input * factor + shift

    kind = module_of("Scaled", scaled)
    assert (kind.__name__, kind.__module__) == ("Scaled", "tinyattn.torch_names.nn")
    assert kind.__doc__ == "`scaled` of F as a module, with its options."
    assert list(inspect.signature(kind).parameters) == ["factor", "shift", "device", "dtype"]
    assert kind(shift=0.0)(TABLE[0]).tolist() == [2.0, 2.0, 2.0]
    assert kind(3.0)(input=TABLE[0]).tolist() == [4.0, 4.0, 4.0]
    assert repr(kind(3.0)) == "Scaled(factor=3.0, shift=1.0)"
    of_a_tensor = kind(ta.tensor([2.0]))
    assert [name for name, _ in of_a_tensor.named_buffers()] == ["factor"]
    assert of_a_tensor.to("float64").factor.dtype == ta.float64

    def pooled(input: Any, kernel_size: Any, output_size: Any, other: Any) -> Any:
        return input

    assert list(inspect.signature(module_of("Pooled", pooled)).parameters)[:2] == [
        "kernel_size", "output_size",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Conv2d(4, 8, 3, 2, 1, groups=2, bias=False),
         "Conv2d(4, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), groups=2, bias=False)"),
        (nn.Conv1d(4, 8, 3), "Conv1d(4, 8, kernel_size=(3,))"),
        (nn.GRU(3, 4, 2, batch_first=True), "GRU(3, 4, num_layers=2, batch_first=True)"),
        (nn.LazyLinear(3, bias=False), "LazyLinear(out_features=3, bias=False)"),
        (nn.Softplus(2.0), "Softplus(beta=2.0, threshold=20.0)"),
        (nn.CrossEntropyLoss(),
         "CrossEntropyLoss(weight=None, ignore_index=-100, reduction='mean', label_smoothing=0.0)"),
        (nn.MaxPool2d(2), None),
    ],
)  # fmt: skip
def test_a_module_shows_its_settings(module: Any, text: str | None) -> None:
    assert repr(module) == text or (text is None and "kernel_size=2" in repr(module))


def test_modules_and_functions_have_their_names() -> None:
    for name in ("ReLU", "MSELoss", "Softplus", "CrossEntropyLoss", "L1Loss"):
        assert getattr(nn, name).__module__ == "tinyattn.torch_names.nn"
    for name in ("conv1d", "conv2d", "max_pool1d", "avg_pool2d", "adaptive_avg_pool2d"):
        assert getattr(F, name).__name__ == getattr(F, name).__qualname__ == name


def test_a_lazy_layer_has_its_sizes_after_a_call(torch: Any) -> None:
    for space in (ours, torch):
        layer = space.nn.LazyLinear(3)
        layer(space.ones(2, 5))
        assert (layer.in_features, layer.out_features) == (5, 3)
    with pytest.raises(ValueError, match="a lazy layer has no weight yet: call the model"):
        _ = nn.LazyLinear(3).in_features


def values(shape: Any, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal(shape)


def same(found: Any, right: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(found.detach().numpy(), right, tolerance, tolerance)


def test_functions_of_each_element() -> None:
    x = np.linspace(-3, 3, 25)
    given, sigmoid = ta.tensor(x), 1 / (1 + np.exp(-x))
    same(F.relu(given), np.maximum(x, 0))
    same(F.silu(given), x * sigmoid)
    same(F.leaky_relu(given), np.where(x > 0, x, 0.01 * x))
    same(F.leaky_relu(given, 0.3), np.where(x > 0, x, 0.3 * x))
    same(F.elu(given), np.where(x > 0, x, np.expm1(x)))
    same(F.elu(given, 0.7), np.where(x > 0, x, 0.7 * np.expm1(x)))
    same(F.logsigmoid(given), np.log(sigmoid))
    same(F.glu(given[:24]), x[:12] * sigmoid[12:24])
    same(F.softplus(given, 2.0), np.log1p(np.exp(2 * x)) / 2)


def test_softplus_is_exact_above_its_threshold() -> None:
    """From 20 on PyTorch gives x itself; the formula is as near as float64 can be."""
    x = np.array([15.0, 19.5, 20.5, 25.0, 700.0])
    for given in ({}, {"threshold": 20}, {"threshold": 30}):
        same(F.softplus(ta.tensor(x), **given), np.logaddexp(0, x), 3e-16)
    found = F.softplus(ta.tensor([9.0, 11.0], dtype=ta.float64), 1.0, 10.0)
    assert found.tolist()[1] == 11.0
    assert found.tolist()[0] == pytest.approx(np.logaddexp(0, 9.0), rel=1e-15)


def test_a_low_temperature_sharpens_a_gumbel_sample() -> None:
    logits = ta.tensor(values((4, 5)))
    samples = []
    for tau in (1.0, 0.25, 2.0):
        ta.manual_seed(7)
        samples.append(F.gumbel_softmax(logits, tau).numpy())
    for tau, found in zip((0.25, 2.0), samples[1:], strict=True):
        powers = samples[0] ** (1 / tau)
        np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True), rtol=1e-9)


def test_an_orthogonal_matrix_times_its_gain() -> None:
    for shape in ((3, 5), (5, 3), (4, 2, 2)):
        found = nn.init.orthogonal_(ta.zeros(shape, dtype=ta.float64), gain=2.0).numpy()
        rows = found.reshape(len(found), -1)
        square = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
        np.testing.assert_allclose(square, 4 * np.eye(len(square)), atol=1e-12)


@pytest.mark.parametrize("dtype", [None, "float64", "float32"])
def test_the_causal_mask_has_its_dtype(torch: Any, dtype: str | None) -> None:
    found = []
    for space in (ours, torch):
        options = {} if dtype is None else {"dtype": getattr(space, dtype)}
        found.append(space.nn.Transformer.generate_square_subsequent_mask(3, **options).numpy())
    assert found[0].dtype == found[1].dtype == (dtype or "float32")
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("kind", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_an_activation_is_a_function_or_its_name(torch: Any, kind: str) -> None:
    x = values((3, 2, 4)).astype(np.float32)
    state: dict[str, np.ndarray] = {}
    found = []
    for space in (ours, torch):
        functions = space.nn.functional
        for activation in ("relu", "gelu", functions.relu, functions.silu, space.tanh):
            layer = getattr(space.nn, kind)(4, 2, 6, 0.0, activation)
            for i, (name, parameter) in enumerate(layer.state_dict().items()):
                state.setdefault(name, values(tuple(parameter.shape), i).astype(np.float32))
            layer.load_state_dict({name: space.tensor(x) for name, x in state.items()})
            inputs = [space.tensor(x)] * (1 if "Encoder" in kind else 2)
            found.append(layer(*inputs).detach().numpy())
    for mine, right in zip(found[:5], found[5:], strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-4)
    assert abs(found[0] - found[4]).max() > 1e-3
    with pytest.raises(
        ValueError, match=r'^activation is "relu", "gelu" or a function, got .tanh.'
    ):
        getattr(nn, kind)(4, 2, activation="tanh")


@pytest.mark.parametrize("diagonal", [-1, 0, 1, 2])
@pytest.mark.parametrize("lower", [True, False])
def test_masks_of_one_half(torch: Any, diagonal: int, lower: bool) -> None:
    """The causal mask, its opposite, and their neighbours. A query without a key is left out."""
    hidden = np.tri(4, k=diagonal, dtype=bool) == lower
    visible = ~hidden.all(1)
    x = values((4, 1, 4)).astype(np.float32)
    state: dict[str, np.ndarray] = {}
    found = []
    for space in (ours, torch):
        layer = space.nn.MultiheadAttention(4, 2)
        for i, (name, parameter) in enumerate(layer.state_dict().items()):
            state.setdefault(name, values(tuple(parameter.shape), i).astype(np.float32))
        layer.load_state_dict({name: space.tensor(x) for name, x in state.items()})
        for mask in (hidden, np.where(hidden, -np.inf, 0.0).astype(np.float32)):
            for needed in (True, False):
                out, _ = layer(
                    *[space.tensor(x)] * 3, attn_mask=space.tensor(mask), need_weights=needed
                )
                found.append(out.detach().numpy()[visible])
    for mine, right in zip(found[:4], found[4:], strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-4)


def test_evaluation_draws_no_random_numbers() -> None:
    x = ta.tensor(values((3, 2, 4)).astype(np.float32))
    for module in (
        nn.TransformerEncoderLayer(4, 2, 4, 0.5).eval(),
        nn.TransformerEncoderLayer(4, 2, 4, 0.0),
        nn.MultiheadAttention(4, 2, 0.5).eval(),
        nn.MultiheadAttention(4, 2, 0.0),
        nn.GRU(4, 4, 2, dropout=0.5).eval(),
    ):
        attention = isinstance(module, nn.MultiheadAttention)
        for options in [{"need_weights": False}, {}] if attention else [{}]:
            ta.manual_seed(1)
            right = ta.rand(2).tolist()
            ta.manual_seed(1)
            module(*[x] * (3 if attention else 1), **options)
            assert ta.rand(2).tolist() == right, module


@pytest.mark.parametrize("dims", [1, 2])
def test_padding_by_its_name(torch: Any, dims: int) -> None:
    x, weight = values((2, 3, *[5] * dims)), values((4, 3, *[3] * dims), 1)
    for padding in ("valid", "same", 0, 1):
        found, right = (
            getattr(space.nn.functional, f"conv{dims}d")(
                space.tensor(x), space.tensor(weight), padding=padding
            )
            for space in (ours, torch)
        )
        same(found, right.numpy())


@pytest.mark.parametrize("name", ["conv", "max_pool", "avg_pool", "adaptive_avg_pool"])
@pytest.mark.parametrize("dims", [1, 2])
def test_a_sample_alone_is_a_batch_of_one(name: str, dims: int) -> None:
    x = ta.tensor(values((2, *[4] * dims)))
    function = getattr(F, f"{name}{dims}d")
    given = ta.tensor(values((3, 2, *[2] * dims), 1)) if name == "conv" else 2
    same(function(x, given), function(x[None], given)[0].numpy())
    assert function(x, given).ndim == dims + 1


@pytest.mark.parametrize("dims", [1, 2])
def test_a_function_of_samples_takes_one_alone(dims: int) -> None:
    def doubled(x: Any, more: Any = 0) -> Any:
        assert x.ndim == dims + 2
        return 2 * x + more

    function = for_dims(dims, doubled)
    assert function.__name__ == function.__qualname__ == f"doubled{dims}d"
    batch = ta.tensor(values((3, 2, *[4] * dims)))
    same(function(batch, more=1), 2 * batch.numpy() + 1)
    same(function(batch[0], 1), 2 * batch.numpy()[0] + 1)
    shape = ("(B, C, L) or (C, L)", "(B, C, H, W) or (C, H, W)")[dims - 1]
    for wrong in (batch[None], batch[0, 0]):
        message = f"doubled{dims}d takes an input {shape}, got {wrong.shape}"
        with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
            function(wrong)


@pytest.mark.parametrize("name", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("directions", [1, 2])
def test_the_forms_of_a_sequence(name: str, directions: int) -> None:
    """One after another, samples first, and of one sample: the same numbers."""
    layers = [
        getattr(nn, name)(3, 4, 2, bidirectional=directions > 1, batch_first=first)
        for first in (False, True)
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    x = ta.tensor(values((5, 2, 3)).astype(np.float32))
    out = layers[0](x)[0].detach().numpy()
    assert out.shape == (5, 2, 4 * directions)
    same(layers[1](x.transpose(0, 1))[0], out.transpose(1, 0, 2), 1e-5)
    for i in range(2):
        same(layers[0](x[:, i])[0], out[:, i], 1e-5)
        same(layers[1](x[:, i])[0], out[:, i], 1e-5)
    if directions > 1:  # the second half runs from the end
        first = getattr(nn, name)(3, 4)
        first.load_state_dict(
            {
                key.replace("_reverse", ""): value
                for key, value in layers[0].state_dict().items()
                if key.endswith("_l0_reverse")
            }
        )
        one = getattr(nn, name)(3, 4, bidirectional=True)
        one.load_state_dict(
            {key: value for key, value in layers[0].state_dict().items() if "_l0" in key}
        )
        same(one(x)[0][:, :, 4:], first(x.flip(0))[0].flip(0).detach().numpy(), 1e-5)


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (1, 3)])
def test_a_mask_of_other_numbers_of_queries_and_keys_is_no_causal_one(
    sizes: tuple[int, int],
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(2, n, 4)) for n in (sizes[0], sizes[1], sizes[1])]
    mask = np.tri(*sizes) == 0
    theirs = torch.nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
    layer = nn.MultiheadAttention(4, 2, batch_first=True, dtype=ours.float64)
    layer.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    for heads in (1, 4):  # one mask for all, or one for each head of each sample
        given = mask if heads == 1 else np.stack([mask] * heads)
        found = layer(*map(ours.tensor, arrays), attn_mask=ours.tensor(given))[0]
        expected = theirs(*map(torch.tensor, arrays), attn_mask=torch.tensor(given))[0]
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), 1e-10, 1e-12)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_no_other_mask_is_the_causal_one(
    need_weights: bool, average: bool, batch_first: bool
) -> None:
    """is_causal=True without attn_mask is refused beside every other argument; with it no query
    sees a later key."""
    attention, x = nn.MultiheadAttention(4, 2, batch_first=batch_first), ta.randn(3, 3, 4)
    options = {"need_weights": need_weights, "average_attn_weights": average}
    padding = ta.tensor([[False, False, True]] * 3)
    for mask in (None, padding, ta.zeros(3, 3).bool(), ta.zeros(3, 3)):
        with pytest.raises(ValueError) as raised:  # noqa: PT011  the whole sentence is compared
            attention(x, x, x, mask, is_causal=True, **options)
        assert str(raised.value) == (
            "with is_causal=True attention takes the causal attn_mask too"
        )  # fmt: skip
        causal = ta.ones(3, 3).triu(1).bool()
        out, weights = attention(x, x, x, mask, attn_mask=causal, is_causal=True, **options)
        right, _ = attention(x, x, x, mask, attn_mask=causal, **options)
        assert out.equal(right)
        assert weights is None or not (weights * causal).any()
