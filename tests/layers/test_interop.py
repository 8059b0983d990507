"""State dicts of both sides: outputs, gradients, and what is refused."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
from common import assert_same, rng_of, run_python, signed

import tinyattn as ta
from tinyattn import interop, nn
from tinyattn.errors import CheckpointError, DtypeError, ShapeError

WIDTH, HEADS, INNER = 12, 4, 20  # with an odd number of heads PyTorch has no fast path
KEEP = np.arange(5) < np.array([5, 2, 3])[:, None]  # (B, N)
# Differences are relative to the largest number of an output, or of all gradients of a model: the
# exact gradient of the keys' bias is 0, and both sides have rounding errors there. Measured: 8 eps.
TOLERANCE = {dtype: 16 * np.finfo(dtype).eps for dtype in ("float32", "float64")}

# The activations of a layer that are functions, and the options of single modules.
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}
OPTIONS = {
    "Dropout": ("p",),
    "Embedding": ("num_embeddings", "embedding_dim", "padding_idx"),
    "GELU": ("approximate",),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "Linear": ("in_features", "out_features", "bias"),
    "RMSNorm": ("normalized_shape", "eps", "elementwise_affine"),
    "Softmax": ("dim",),
}


def fill(module, seed=3):
    """Signed numbers for the parameters of a module of either side."""
    rng = rng_of(seed)
    for parameter in module.parameters():
        values = signed(rng, *parameter.shape)
        values /= math.sqrt(parameter.shape[-1]) if parameter.ndim > 1 else 1.0
        if isinstance(parameter, ta.Tensor):
            parameter.data = values.astype(parameter.dtype)
        else:
            parameter.data.copy_(parameter.new_tensor(values))
    return module


def arrays_of(dtype, *shapes):
    rng = rng_of(4)
    return [signed(rng, *shape).astype(dtype) for shape in shapes]


def by_torch_names(ours, array_of):
    own = dict(ours.named_parameters())
    return {
        name: np.concatenate([array_of(own[part]) for part in parts])
        for name, parts in interop.torch_names(ours).items()
    }


def compare(torch, theirs, ours, inputs, here=None, there=None):
    """The output and the gradients of all inputs and parameters, for a random cotangent."""
    x = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in inputs]
    y = [ta.tensor(a, requires_grad=a.dtype.kind == "f") for a in inputs]
    expected, found = theirs(*x, **(there or {})), ours(*y, **(here or {}))
    expected = expected[0] if isinstance(expected, tuple) else expected
    cotangent = signed(rng_of(5), *found.shape).astype(found.dtype)
    for tensor in (*theirs.parameters(), *ours.parameters()):
        tensor.grad = None
    expected.backward(torch.tensor(cotangent))
    found.backward(ta.tensor(cotangent))
    wanted = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    wanted |= {f"input {i}": a.grad.numpy() for i, a in enumerate(x) if a.requires_grad}
    given = by_torch_names(ours, lambda parameter: parameter.grad.numpy())
    given |= {f"input {i}": a.grad.numpy() for i, a in enumerate(y) if a.requires_grad}
    assert {n: (a.dtype, a.shape) for n, a in given.items()} == {
        n: (a.dtype, a.shape) for n, a in wanted.items()
    }
    out = expected.detach().numpy()
    largest = max((np.abs(a).max() for a in wanted.values()), default=1)
    errors = {name: np.abs(given[name] - a).max() / largest for name, a in wanted.items()}
    errors["out"] = np.abs(found.numpy() - out).max() / np.abs(out).max()
    worst = max(errors, key=errors.get)
    assert errors[worst] <= TOLERANCE[found.dtype.name], f"{worst}: {errors[worst]}"


def made_here(theirs):
    """A module of tinyattn's with the options of one of PyTorch's, and with new arrays."""
    name = type(theirs).__name__
    if name == "Sequential":
        return nn.Sequential(*map(made_here, theirs))
    if name == "MultiheadAttention":
        sizes = (theirs.kdim, theirs.embed_dim, theirs.vdim, theirs.embed_dim)
        bias = theirs.in_proj_bias is not None
        return nn.MultiHeadAttention(*sizes, theirs.num_heads, 0.0, bias)
    if name.endswith("Layer"):
        kind, blanks = name.removeprefix("Transformer"), [nn.Identity(), nn.Identity()]
        blanks = blanks[: 1 + ("Decoder" in name)]
        order = "pre" if theirs.norm_first else "post"
        ours = getattr(nn, kind)(WIDTH, *blanks, nn.PositionwiseFeedForward(1, 1), 0.0, order)
        for their_path, path in interop.PARTS[kind].items():
            interop.put(ours, path, made_here(getattr(theirs, their_path)))
        ours.feed_forward.dropout.p = 0.0
        function = getattr(theirs.activation, "__name__", None)  # or a module
        activation = made_here(theirs.activation) if function is None else ACTIVATIONS[function]()
        ours.feed_forward.activation = activation
        return ours
    if name in ("TransformerEncoder", "TransformerDecoder"):
        layers = [made_here(layer) for layer in theirs.layers]
        ours = getattr(nn, name.removeprefix("Transformer"))(layers[0], 1)
        ours.layers[:] = layers
        ours.norm = None if theirs.norm is None else made_here(theirs.norm)
        return ours
    options = {option: getattr(theirs, option) for option in OPTIONS.get(name, ())}
    if "bias" in OPTIONS.get(name, ()):
        options["bias"] = theirs.bias is not None
    return getattr(nn, name)(**options)


def converted(theirs):
    """A module of tinyattn's with the options and the arrays of one of PyTorch's."""
    ours = made_here(theirs).train(theirs.training)
    for parameter in theirs.parameters():
        ours.to(str(parameter.dtype).removeprefix("torch."))
    interop.load_torch_state_dict(ours, theirs.state_dict())
    return ours


def compare_both_ways(torch, theirs, inputs, here=None, there=None):
    """PyTorch's state here, then the state of the result with other numbers in PyTorch's module."""
    ours = converted(fill(theirs))
    compare(torch, theirs, ours, inputs, here, there)
    theirs.load_state_dict(interop.torch_state_dict(fill(ours, seed=6)))
    compare(torch, theirs, ours, inputs, here, there)


# Outputs and gradients

ENCODERS = list(
    itertools.product(
        ("float32", "float64"), ("pre", "post"), ("relu", "gelu"), (True, False), (True, False)
    )
)


def torch_encoder(torch, dtype, norm, activation, bias=True, last=True):
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, 0.0, activation, 1e-3, True, norm == "pre", bias
    )
    final = torch.nn.LayerNorm(WIDTH, 1e-2, bias=bias) if last else None
    encoder = torch.nn.TransformerEncoder(layer, 2, final, enable_nested_tensor=False)
    return encoder.to(getattr(torch, dtype))


@pytest.mark.parametrize("case", ENCODERS, ids=lambda case: ".".join(map(str, case)))
def test_encoders_compute_the_same(torch, case):
    theirs, inputs = torch_encoder(torch, *case), arrays_of(case[0], (3, 5, WIDTH))
    compare_both_ways(torch, theirs, inputs)
    padding = {"src_key_padding_mask": torch.tensor(~KEEP)}
    compare_both_ways(torch, theirs, inputs, {"mask": KEEP}, padding)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    compare_both_ways(torch, theirs, inputs, {"is_causal": True}, {"mask": hidden})


@pytest.mark.parametrize("case", ENCODERS, ids=lambda case: ".".join(map(str, case)))
def test_decoders_compute_the_same(torch, case):
    dtype, norm, activation, bias, last = case
    layer = torch.nn.TransformerDecoderLayer(
        WIDTH, HEADS, INNER, 0.0, activation, 1e-3, True, norm == "pre", bias
    )
    final = torch.nn.LayerNorm(WIDTH, 1e-2, bias=bias) if last else None
    theirs = torch.nn.TransformerDecoder(layer, 2, final).to(getattr(torch, dtype))
    inputs = arrays_of(dtype, (3, 4, WIDTH), (3, 5, WIDTH))
    hidden = {"tgt_mask": torch.ones(4, 4, dtype=torch.bool).triu(1)}
    compare_both_ways(torch, theirs, inputs, {}, hidden)
    padding = {"memory_key_padding_mask": torch.tensor(~KEEP), **hidden}
    compare_both_ways(torch, theirs, inputs, {"src_mask": KEEP}, padding)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kdim", "vdim"), [(12, 12), (5, 7), (12, 7), (5, 12)])
def test_attentions_compute_the_same(torch, kdim, vdim, bias, dtype):
    theirs = torch.nn.MultiheadAttention(
        WIDTH, HEADS, kdim=kdim, vdim=vdim, bias=bias, batch_first=True
    )
    theirs.to(getattr(torch, dtype))
    inputs = arrays_of(dtype, (3, 4, WIDTH), (3, 5, kdim), (3, 5, vdim))
    compare_both_ways(torch, theirs, inputs)
    padding = {"key_padding_mask": torch.tensor(~KEEP)}
    compare_both_ways(torch, theirs, inputs, {"mask": KEEP}, padding)
    per_query = rng_of(8).uniform(size=(4, 5)) < 0.6
    per_query[:, 1] = True
    hidden = {"attn_mask": torch.tensor(~per_query)}
    compare_both_ways(torch, theirs, inputs, {"mask": per_query[None]}, hidden)


def activations(torch):
    F, t = torch.nn.functional, torch.nn
    return {
        "F.relu": F.relu, "torch.relu": torch.relu, "F.gelu": F.gelu, "ReLU": t.ReLU(),
        "GELU": t.GELU(), "tanh": t.GELU("tanh"), "SiLU": t.SiLU(), "Tanh": t.Tanh(),
    }  # fmt: skip


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    "name", ["F.relu", "torch.relu", "F.gelu", "ReLU", "GELU", "tanh", "SiLU", "Tanh"]
)
def test_layers_compute_the_same_with_every_activation(torch, name, norm):
    theirs = torch_encoder(torch, "float64", norm, activations(torch)[name]).layers[0]
    (x,) = arrays_of("float64", (3, 5, WIDTH))
    compare_both_ways(torch, theirs, [x])


def simple_modules(torch):
    t = torch.nn
    return {
        "Linear": (t.Linear(6, 4), (3, 6)),
        "Linear without bias": (t.Linear(6, 4, bias=False), (3, 6)),
        "LayerNorm": (t.LayerNorm(6, 1e-2), (3, 6)),
        "LayerNorm of two": (t.LayerNorm((3, 6), 1e-2), (2, 3, 6)),
        "LayerNorm without bias": (t.LayerNorm(6, bias=False), (3, 6)),
        "LayerNorm without arrays": (t.LayerNorm(6, 0.1, elementwise_affine=False), (3, 6)),
        "RMSNorm": (t.RMSNorm(6), (3, 6)),
        "RMSNorm with eps": (t.RMSNorm((3, 6), 0.1), (2, 3, 6)),
        "RMSNorm without arrays": (t.RMSNorm(6, elementwise_affine=False), (3, 6)),
        "Softmax": (t.Softmax(1), (2, 3, 4)),
        **{name: (getattr(t, name)(), (3, 6))
           for name in ("ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Identity")},
        "GELU by tanh": (t.GELU("tanh"), (3, 6)),
        "Dropout": (t.Dropout(0.3).eval(), (3, 6)),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_simple_modules_compute_the_same(torch, dtype):
    for theirs, shape in simple_modules(torch).values():
        compare_both_ways(torch, theirs.to(getattr(torch, dtype)), arrays_of(dtype, shape))


@pytest.mark.parametrize("padding_idx", [None, 0, 3, -2])
def test_embeddings_compute_the_same(torch, padding_idx):
    ids = np.array([[0, 3, 3, 1, 0, 3], [4, 4, 0, 3, 1, 1]])
    theirs = torch.nn.Embedding(5, 4, padding_idx, dtype=torch.float64)
    compare_both_ways(torch, theirs, [ids])


def classifier(torch):
    """A Sequential inside a Sequential."""
    t = torch.nn
    head = t.Sequential(t.LayerNorm(WIDTH), t.Dropout(0.0), t.Linear(WIDTH, 2, bias=False))
    encoder = torch_encoder(torch, "float64", "pre", "gelu")
    return t.Sequential(t.Embedding(7, WIDTH), encoder, t.Tanh(), head).double()


def test_a_sequential_computes_the_same(torch):
    compare_both_ways(torch, classifier(torch), [np.array([[0, 3, 3], [6, 1, 0]])])


# What is kept


def test_every_bit_comes_back(torch):
    special = [-0.0, np.inf, -np.inf, np.nan, 5e-324, 1e300]
    theirs = fill(classifier(torch))
    with torch.no_grad():
        theirs[0].weight[0, :6] = torch.tensor(special, dtype=torch.float64)
        theirs[1].layers[1].self_attn.in_proj_bias[7:13] = torch.tensor(special)
    ours = converted(theirs)
    back = interop.torch_state_dict(ours)
    again = converted(fill(classifier(torch), seed=9))
    assert repr(again) == repr(ours)
    interop.load_torch_state_dict(again, back)
    state, other = ours.state_dict(), again.state_dict()
    assert list(state) == list(other)
    for name in state:
        assert_same(other[name].numpy(), state[name].numpy())
    state = theirs.state_dict()
    assert list(back) == list(state)
    for name in state:
        assert_same(back[name].numpy(), state[name].numpy())


def our_encoder(norm="post", eps=1e-6):
    layer = nn.EncoderLayer(
        WIDTH,
        nn.MultiHeadedAttention(HEADS, WIDTH, dropout=0.1),
        nn.PositionwiseFeedForward(WIDTH, INNER, 0.2, activation="gelu_tanh"),
        dropout=0.3,
        norm=norm,
        eps=eps,
    )
    return nn.Encoder(layer, 2)


def test_arrays_are_copies(torch):
    theirs = torch.nn.Linear(2, 2)
    ours = converted(theirs)
    kept = ours.weight.numpy()
    with torch.no_grad():
        theirs.weight.add_(1)
    assert_same(ours.weight.numpy(), kept)
    arrays = interop.torch_state_dict(ours)
    arrays["weight"].add_(1)
    assert_same(ours.weight.numpy(), kept)
    interop.load_torch_state_dict(ours, arrays)
    arrays["weight"].add_(1)
    assert_same(ours.weight.numpy(), kept + 1)


@pytest.mark.parametrize("theirs", ["bfloat16", "float16"])
def test_short_dtypes(torch, theirs):
    module = torch.nn.MultiheadAttention(4, 2, batch_first=True).to(getattr(torch, theirs))
    ours = nn.MultiHeadedAttention(2, 4)
    interop.load_torch_state_dict(ours, module.state_dict())
    expected = module.in_proj_weight.detach().float().numpy()
    assert_same(by_torch_names(ours, lambda p: p.numpy())["in_proj_weight"], expected)


def test_a_layer_that_pytorch_does_not_have_keeps_its_names():
    """Its attention is PyTorch's; its feed-forward has a third matrix."""
    layer = nn.EncoderLayer(WIDTH, nn.MultiHeadedAttention(2, WIDTH), nn.SwiGLU(WIDTH, 6))
    names = interop.torch_names(layer)
    assert sorted(part for parts in names.values() for part in parts) == sorted(layer.state_dict())
    assert {name for name, parts in names.items() if parts == [name]} == {
        name for name in layer.state_dict() if not name.startswith("self_attn.")
    }


# State dicts


class Tagger(nn.Module):
    """A class of the user's, with names of its own and modules that PyTorch has inside."""

    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(7, WIDTH)
        self.scale = nn.Parameter([2.0])
        self.register_buffer("count", ta.tensor(3))
        self.encoder = our_encoder("pre")


def test_state_dicts_fit_pytorchs_modules(torch):
    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.word = torch.nn.Embedding(7, WIDTH)
            self.scale = torch.nn.Parameter(torch.ones(1))
            self.register_buffer("count", torch.tensor(0))
            self.encoder = torch_encoder(torch, "float32", "pre", "gelu")

    theirs, ours, other = Theirs(), fill(Tagger()), Tagger()
    theirs.load_state_dict(interop.torch_state_dict(ours))
    assert theirs.count.item() == 3
    interop.load_torch_state_dict(other, theirs.state_dict())
    for name, value in ours.state_dict().items():
        assert_same(other.state_dict()[name].numpy(), value.numpy())


def test_a_state_dict_is_converted_to_the_dtype_of_the_module():
    layer = nn.Linear(2, 1).double()
    state = {"weight": np.array([[0.1, 2]], np.float32), "bias": ta.tensor([0.5])}
    interop.load_torch_state_dict(layer, state)
    assert_same(layer.weight.numpy(), np.array([[np.float32(0.1), 2]], np.float64))
    assert layer.bias.tolist() == [0.5]


def as_arrays(state):
    return {name: value.numpy() for name, value in state.items()}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"norm.weight": None}, CheckpointError, ["missing norm.weight", "unexpected nothing"]),
        ({"layers.2.norm1.bias": np.ones(WIDTH)}, CheckpointError, ["layers.2.norm1.bias"]),
        (
            {"layers.0.self_attn.in_proj_weight": np.ones((12, 36))},
            ShapeError,
            ["layers.0.self_attn.in_proj_weight has shape (36, 12), got (12, 36)"],
        ),
        (
            {"layers.1.linear1.weight": np.ones((20, 5)), "norm.bias": np.ones(7)},
            ShapeError,
            ["layers.1.linear1.weight", "(20, 12)", "(20, 5)", "norm.bias", "(12,)", "(7,)"],
        ),
        ({"norm.bias": np.ones(WIDTH, np.int64)}, DtypeError, ["norm.bias", "int64"]),
        ({"norm.bias": np.array(["a"] * WIDTH)}, DtypeError, ["<U1"]),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(torch, change, error, words):
    module = our_encoder("pre")
    state = as_arrays(interop.torch_state_dict(fill(copy.deepcopy(module))))
    before = as_arrays(module.state_dict())
    state = {n: a for n, a in {**state, **change}.items() if a is not None}
    with pytest.raises(error) as caught:
        interop.load_torch_state_dict(module, state)
    for word in words:
        assert word in str(caught.value)
    for name, value in module.state_dict().items():
        assert_same(value.numpy(), before[name])
    for wrong in (list(state), None):
        with pytest.raises(TypeError, match="dict of tensors"):
            interop.load_torch_state_dict(module, wrong)


# What is refused


def changed(module, path, value):
    interop.put(module, path, value)
    return module


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.MultiHeadAttention(4, 5, 4, 4, 2), ["one width", "W_q 5, 4"]),
        (
            lambda: changed(nn.MultiHeadedAttention(2, 4), "W_q.bias", None),
            ["no place", "W_k.bias"],
        ),
        (lambda: changed(nn.MultiHeadedAttention(2, 4), "W_q", nn.Identity()), ["W_q", "Identity"]),
        (lambda: changed(nn.MultiHeadedAttention(2, 4), "W_k", nn.Linear(4, 2)), ["W_k 4, 2"]),
    ],
)
def test_arrays_that_pytorch_joins_have_one_form(torch, make, words):
    with pytest.raises((TypeError, ShapeError)) as caught:
        interop.torch_state_dict(make())
    for word in words:
        assert word in str(caught.value)


def test_arrays_without_a_place_in_pytorchs_module_are_named(torch):
    module = nn.MultiHeadedAttention(2, 4)
    module.slope = nn.Parameter([1.0])
    for call in (interop.torch_state_dict, lambda m: interop.load_torch_state_dict(m, {})):
        with pytest.raises(TypeError, match=r"no place for \['slope'\]"):
            call(module)
        with pytest.raises(TypeError, match=r"module of tinyattn's, got numpy.ndarray"):
            call(np.ones(2))


# PyTorch is needed here only, and not before it is used


def test_pytorch_is_imported_when_it_is_needed():
    code = """
import sys
sys.modules["torch"] = None
import tinyattn as ta
layer = ta.nn.Linear(2, 1)
ta.interop.load_torch_state_dict(layer, {"weight": [[1.0, 2.0]], "bias": [3.0]})
print(layer(ta.ones(2)).item())
try:
    ta.interop.torch_state_dict(layer)
except ImportError as error:
    print(error)
"""
    lines = run_python(code).splitlines()
    said = 'tinyattn.interop needs PyTorch: in a clone of tinyattn, pip install -e ".[torch]"'
    assert lines == ["6.0", said]


def test_a_state_of_pytorch_names_what_reads_it() -> None:
    state = {"in_proj_weight": ta.zeros(24, 8), "out_proj.weight": ta.zeros(8, 8)}
    with pytest.raises(CheckpointError, match=r"ta\.interop\.load_torch_state_dict"):
        nn.MultiHeadAttention(8, 8, 8, 8, 2).load_state_dict(state)
