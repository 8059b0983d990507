"""Parts of PyTorch's modules that programs call or override: each is there and is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyattn.torch_names as port
import tinyattn.torch_names.nn as nn

RNG = np.random.default_rng(0)
# Each with parameters of its own.
RESET: dict[str, tuple[Any, ...]] = {
    "Linear": (3, 4), "Embedding": (3, 4), "LayerNorm": (3,), "RMSNorm": (3,),
    "Conv1d": (3, 4, 2), "Conv2d": (3, 4, 2), "BatchNorm1d": (3,), "BatchNorm2d": (3,),
    "RNN": (3, 4, 2), "LSTM": (3, 4, 2), "GRU": (3, 4), "LSTMCell": (3, 4), "GRUCell": (3, 4),
}  # fmt: skip


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("name", RESET)
def test_weights_are_reset_for_the_next_fold(name: str, torch: Any) -> None:
    """As `if hasattr(m, "reset_parameters"): m.reset_parameters()` in many programs."""
    assert hasattr(getattr(torch.nn, name), "reset_parameters")
    module = getattr(nn, name)(*RESET[name])
    with port.no_grad():
        for parameter in module.parameters():
            parameter.fill_(7.0)
        for buffer in module.buffers():
            buffer.fill_(7)
    module.reset_parameters()
    assert not any(bool((x == 7).any()) for x in module.state_dict().values())
    for key, new in getattr(nn, name)(*RESET[name]).state_dict().items():
        found, expected = module.state_dict()[key].numpy(), new.numpy()
        if expected.min() == expected.max():  # as the ones of a norm
            assert found.tolist() == expected.tolist()
        else:
            assert found.std() > 0.1 * expected.std()


def test_running_stats_are_reset_alone() -> None:
    norm = nn.BatchNorm1d(2)
    norm(port.randn(5, 2) + 3)
    port.nn.init.constant_(norm.weight, 5.0)
    norm.reset_running_stats()
    assert norm.running_mean.tolist() == [0, 0]
    assert norm.running_var.tolist() == [1, 1]
    assert int(norm.num_batches_tracked) == 0
    assert norm.weight.tolist() == [5, 5]
    nn.BatchNorm1d(2, track_running_stats=False).reset_running_stats()
    nn.BatchNorm1d(2, affine=False).reset_parameters()


def test_the_starting_values_of_a_seed_are_those_of_a_reset() -> None:
    port.manual_seed(3)
    layer = nn.LSTM(3, 4, 2, bidirectional=True)
    before = {name: x.tolist() for name, x in layer.state_dict().items()}
    port.manual_seed(3)
    layer.reset_parameters()
    assert {name: x.tolist() for name, x in layer.state_dict().items()} == before


def started(library: Any, base: str, method: str, *args: Any) -> Any:
    """A module of a class that gives its parameters the values 0.5 under `method`."""

    def reset(self: Any) -> None:
        for parameter in self.parameters():
            library.nn.init.constant_(parameter, 0.5)

    return type("Started", (getattr(library.nn, base),), {method: reset})(*args)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(
    ("base", "method", "args"),
    [
        *((name, "reset_parameters", RESET[name]) for name in RESET if "rm" not in name),
        *((name, "reset_parameters", RESET[name]) for name in ("BatchNorm1d", "BatchNorm2d")),
        ("MultiheadAttention", "_reset_parameters", (4, 2)),
        ("Transformer", "_reset_parameters", (4, 2, 1, 1, 8)),
    ],
)
def test_a_class_gives_its_own_starting_values(
    base: str, method: str, args: tuple[Any, ...], torch: Any
) -> None:
    ours, theirs = (started(library, base, method, *args) for library in (port, torch))
    expected = {name: x.tolist() for name, x in theirs.named_parameters()}
    assert {name: x.tolist() for name, x in ours.named_parameters()} == expected


def gated(library: Any, base: str, block: str) -> Any:
    """A layer whose block of this name has another formula, and keeps what it computes."""

    def changed(self: Any, x: Any, *inputs: Any, **named: Any) -> Any:
        self.kept = getattr(super(made, self), block)(x, *inputs, **named)
        return self.kept * x.sigmoid()

    made = type("Gated", (getattr(library.nn, base),), {block: changed})
    options = {"dim_feedforward": 8, "dropout": 0.0, "batch_first": True, "dtype": library.float64}
    return made(4, 2, **options)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("base", "block"),
    [
        ("TransformerEncoderLayer", "_sa_block"),
        ("TransformerEncoderLayer", "_ff_block"),
        ("TransformerDecoderLayer", "_sa_block"),
        ("TransformerDecoderLayer", "_mha_block"),
        ("TransformerDecoderLayer", "_ff_block"),
    ],
)
def test_a_block_of_a_layer_can_be_overridden(
    base: str, block: str, training: bool, torch: Any
) -> None:
    theirs = gated(torch, base, block).train(training)
    ours = gated(port, base, block).train(training)
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    arrays = [RNG.normal(size=(2, n, 4)) for n in ((3,) if "Encoder" in base else (3, 5))]
    x, y = ([library.tensor(array) for array in arrays] for library in (port, torch))
    x[0].requires_grad_()
    y[0].requires_grad_()
    found, expected = ours(*x), theirs(*y)
    cotangent = RNG.normal(size=found.shape)
    found.backward(port.tensor(cotangent))
    expected.backward(torch.tensor(cotangent))
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), 1e-9, 1e-12)
    np.testing.assert_allclose(x[0].grad.numpy(), y[0].grad.numpy(), 1e-8, 1e-11)
    np.testing.assert_allclose(
        ours.kept.detach().numpy(), theirs.kept.detach().numpy(), 1e-9, 1e-12
    )


@pytest.mark.parametrize("base", ["Conv1d", "Conv2d"])
def test_the_formula_of_a_convolution_can_be_overridden(base: str, torch: Any) -> None:
    """As Whisper's Conv1d does, which converts the weight to the dtype of x."""

    def made(library: Any) -> Any:
        def _conv_forward(self: Any, x: Any, weight: Any, bias: Any) -> Any:
            assert self.padding_mode == "zeros"  # which PyTorch's own body asks first
            return super(kind, self)._conv_forward(x, weight * 2, None if bias is None else -bias)

        kind = type("Own", (getattr(library.nn, base),), {"_conv_forward": _conv_forward})
        return kind(2, 3, 2, padding=1, dtype=library.float64)

    ours, theirs = made(port), made(torch)
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    array = RNG.normal(size=(2, 2, *[4] * int(base[4])))
    found, expected = ours(port.tensor(array)), theirs(torch.tensor(array))
    cotangent = RNG.normal(size=found.shape)
    found.backward(port.tensor(cotangent))
    expected.backward(torch.tensor(cotangent))
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), 1e-12)
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), 1e-10)
    np.testing.assert_allclose(ours.bias.grad.numpy(), theirs.bias.grad.numpy(), 1e-10)


@pytest.mark.parametrize("base", ["BatchNorm1d", "BatchNorm2d"])
def test_batch_norm_stops_to_track_between_two_calls(base: str, torch: Any) -> None:
    """As virtual adversarial training does around its second forward."""
    array = RNG.normal(size=(5, 3) if base == "BatchNorm1d" else (5, 3, 2, 2)) + 2
    found = []
    for library in (port, torch):
        norm, x = getattr(library.nn, base)(3).double(), library.tensor(array)
        outs = [norm(x)]
        norm.track_running_stats = False
        outs += [norm(x * 3), norm.eval()(x)]
        norm.track_running_stats = True
        outs.append(norm.train()(x - 1))
        norm.running_mean = norm.running_var = None  # as at the time of a test with other data
        outs += [norm(x), norm.eval()(x * 2)]
        found.append([*(out.tolist() for out in outs), int(norm.num_batches_tracked)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-9)


def test_a_buffer_is_registered_by_pytorchs_names(torch: Any) -> None:
    for library in (port, torch):
        module = library.nn.Module()
        module.register_buffer(name="mask", tensor=library.ones(2), persistent=False)
        assert module.mask.tolist() == [1, 1]
        assert not module.state_dict()


def test_batch_norm_tracks_nothing_where_it_has_no_running_numbers(torch: Any) -> None:
    array = RNG.normal(size=(5, 3))
    outs = []
    for library in (port, torch):
        norm = library.nn.BatchNorm1d(3, track_running_stats=False).double()
        norm.track_running_stats ^= True
        outs.append(norm(library.tensor(array)).tolist())
    np.testing.assert_allclose(outs[0], outs[1], 1e-9)


def test_starting_values_know_the_nonlinearity() -> None:
    class Own(nn.RNN):
        def reset_parameters(self) -> None:
            for parameter in self.parameters():
                nn.init.constant_(parameter, nn.init.calculate_gain(self.nonlinearity))

    assert Own(1, 1, nonlinearity="relu").weight_ih_l0.item() == np.float32(np.sqrt(2))


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("base", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_each_part_of_a_layer_ends_with_its_dropout(
    base: str, norm_first: bool, torch: Any
) -> None:
    """With a probability of 1 the layer is its norms."""
    made = [
        getattr(library.nn, base)(4, 2, 8, 0.0, norm_first=norm_first, dtype=library.float64)
        for library in (port, torch)
    ]
    made[0].load_state_dict({name: x.numpy() for name, x in made[1].state_dict().items()})
    number = 3 if "Encoder" in base else 4
    array = RNG.normal(size=(3, 2, 4))
    for i in range(number):
        outs = []
        for library, layer in zip((port, torch), made, strict=True):
            for j in range(number):
                dropout = getattr(layer, f"dropout{j or ''}")
                dropout.p = float(i == j)
            x = library.tensor(array)
            outs.append(layer(*[x] * (number - 2)).tolist())
        np.testing.assert_allclose(outs[0], outs[1], 1e-9)
