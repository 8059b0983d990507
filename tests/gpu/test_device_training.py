"""Layers, optimizers, checkpoints and whole training steps on "cuda", against those on the CPU.

On the stand-in for CuPy, or with `-m gpu` on a GPU.
"""

from __future__ import annotations

import copy
import importlib
from pathlib import Path

import numpy as np
import pytest
import stand_in
from common import assert_close, assert_same, random_parameters, rng_of, run_python, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, optim
from tinyattn.errors import CheckpointError, DeviceError, MaskError

SIZES = (2, 5, 8)  # B, N, D


def inputs(*shapes):
    rng = rng_of(3)
    return [signed(rng, *shape) for shape in shapes or [SIZES]]


MODULES = {
    "Linear": (lambda: nn.Linear(8, 3), {}),
    "LayerNorm": (lambda: nn.LayerNorm(8), {}),
    "LayerNorm, two dimensions, no bias": (lambda: nn.LayerNorm((5, 8), bias=False), {}),
    "Dropout": (lambda: nn.Dropout(0.3), {}),
    "ReLU": (lambda: nn.ReLU(), {}),
    "GELU": (lambda: nn.GELU(), {}),
    "PositionalEncoding": (lambda: nn.PositionalEncoding(8, 0.1), {}),
    "LearnedPositionalEncoding": (lambda: nn.LearnedPositionalEncoding(8, 0.1), {}),
    "PositionwiseFeedForward": (lambda: nn.PositionwiseFeedForward(8, 16, 0.1), {}),
    "SelfAttention": (lambda: nn.SelfAttention(8, 4), {"valid_lens": [3, 5]}),
    "DotProductAttention": (lambda: nn.DotProductAttention(0.2), {"valid_lens": [0, 4]}),
    "DotProductAttention, a mask": (
        lambda: nn.DotProductAttention(), {"mask": np.tri(5, dtype=bool)[None]}
    ),
    "AdditiveAttention": (
        lambda: nn.AdditiveAttention(8, 8, 6, 0.2), {"valid_lens": [2, 5]}
    ),
    "MultiHeadAttention": (
        lambda: nn.MultiHeadAttention(8, 8, 8, 8, 2, 0.2), {"valid_lens": [3, 5], "is_causal": True}
    ),
    "MultiHeadedAttention": (
        lambda: nn.MultiHeadedAttention(4, 8), {"mask": np.arange(5) < [[3], [5]]}
    ),
    "EncoderLayer": (
        lambda: nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), feed_forward(), 0.1), {}
    ),
    "Encoder": (
        lambda: nn.Encoder(
            nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), feed_forward(), 0.1, norm="post"), 2
        ),
        {"mask": np.arange(5) < [[3], [5]]},
    ),
    "Encoder, padding is skipped": (
        lambda: nn.Encoder(
            nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8, 0.2), feed_forward(), 0.1), 2, True
        ),
        {"valid_lens": [3, 5]},
    ),
}  # fmt: skip


def feed_forward():
    return nn.PositionwiseFeedForward(8, 16, 0.1)


def run(module, device, options, dtype=ta.float64):
    """Output, gradients of input and parameters, weights if there are any; dropout is on."""
    ta.manual_seed(11)
    module = copy.deepcopy(module).to(dtype).to(device)
    attention = isinstance(module, (nn.DotProductAttention, nn.AdditiveAttention,
                                    nn.MultiHeadAttention))  # fmt: skip
    (array,) = inputs()
    x = ta.tensor(array, dtype=dtype, device=device, requires_grad=True)
    out = module(*[x] * (3 if attention else 1), **options)
    assert out.device == device
    (grad,) = inputs(out.shape)
    out.backward(ta.tensor(grad, dtype=dtype, device=device))
    found = {"out": out, "d.x": x.grad}
    found |= {f"d.{name}": p.grad for name, p in module.named_parameters()}
    if hasattr(module, "attention_weights"):
        found["weights"] = module.attention_weights
    assert {t.device for t in found.values()} == {device}
    return {name: tensor.numpy() for name, tensor in found.items()}


@pytest.mark.parametrize("lengths", [[4, 0, 3], [7], [0, 0], []], ids=str)
@pytest.mark.parametrize("place", ["a list", "on the host", "on the device"])
def test_packed_attention(lengths, place, cuda):
    """Output, gradients and weights of the CPU, wherever the lengths are; dropout is on."""
    ta.manual_seed(5)
    module = random_parameters(nn.MultiHeadAttention(8, 8, 8, 8, 2, 0.2).to(ta.float64), rng_of(1))
    array, grad = inputs((sum(lengths), 8), (sum(lengths), 8))
    results = []
    for device in ("cpu", "cuda"):
        ta.manual_seed(11)
        twin = copy.deepcopy(module).to(device)
        lens = lengths
        if place != "a list":
            lens = ta.tensor(np.array(lengths, np.int64))
            lens = lens.to(device) if place == "on the device" else lens
        x = ta.tensor(array, device=device, requires_grad=True)
        out = twin(x, x, x, valid_lens=lens, is_causal=True)
        out.backward(ta.tensor(grad, device=device))
        found = [out, x.grad, twin.attention_weights, *(p.grad for p in twin.parameters())]
        assert {t.device for t in found} == {device}
        results.append([t.numpy() for t in found])
    for actual, right in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(actual, right, rtol=0, atol=1e-11)
    assert not sum(lengths) or np.abs(results[0][0]).max() > 0.1


@pytest.mark.parametrize("lengths", [[3, 6], [3, -1]], ids=str)
def test_lengths_on_the_device_are_checked_before_anything_is_packed(lengths, cuda):
    x = ta.ones(2, 5, 3).to("cuda")
    lens = ta.tensor(lengths).to("cuda")
    bad = max(lengths, key=lambda n: abs(n - 3))
    with pytest.raises(MaskError, match=f"between 0 and .*5, got {bad}"):
        F.pack_padded_sequence(x, lens)
    assert F.pack_padded_sequence(x, ta.tensor([3, 5]).to("cuda")).shape == (8, 3)


@pytest.mark.parametrize("name", MODULES)
def test_modules(name, cuda):
    """Values and gradients of the CPU, with the same seed for dropout."""
    build, options = MODULES[name]
    ta.manual_seed(5)
    module = random_parameters(build(), rng_of(1))
    expected, found = run(module, "cpu", options), run(module, "cuda", options)
    # Beside the largest: the gradient of keys' biases, for one, is zero but for rounding.
    largest = max(np.abs(right).max() for right in expected.values())
    for key, right in expected.items():
        np.testing.assert_allclose(found[key], right, rtol=0, atol=1e-11 * largest, err_msg=key)


def test_a_module_moves_there_and_back(cuda):
    module = nn.Encoder(nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), feed_forward()), 1)
    before = {name: p.numpy() for name, p in module.state_dict().items()}
    module.to("cuda")
    assert {p.device for p in module.parameters()} == {"cuda"}
    module.to("cpu")
    for name, value in module.state_dict().items():
        assert_same(value.numpy(), before[name])


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "SGD alone": lambda p: optim.SGD(p, 0.1),
    "SGD, dampened": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.3),
    "Adam": lambda p: optim.Adam(p, 0.1, weight_decay=0.1),
    "AdamW": lambda p: optim.AdamW(p, 0.1, (0.9, 0.98)),
}


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, clipped, cuda):
    """Five steps on parameters of several dtypes and sizes, one of them without a gradient."""
    after = {}
    for device in ("cpu", "cuda"):
        rng = rng_of(2)
        shapes = [(3, 5), (), (5000,), (0, 4), (7,), (2, 2)]
        kinds = [np.float64, np.float64, np.float32, np.float64, np.float16, np.float32]
        parameters = [
            ta.tensor(signed(rng, *shape).astype(kind), device=device, requires_grad=True)
            for shape, kind in zip(shapes, kinds, strict=True)
        ]
        optimizer, norms = OPTIMIZERS[name](parameters), []
        for step in range(5):
            for parameter in parameters[: 6 - step % 2]:  # the last one has only every other step
                grad = signed(rng, *parameter.shape)
                parameter.grad = ta.tensor(grad, dtype=parameter.dtype, device=device)
            if clipped:
                norms.append(float(optim.clip_grad_norm_(parameters, 3.0)))
            optimizer.step()
            optimizer.zero_grad()
        after[device] = [p.numpy() for p in parameters], norms
    for found, right in zip(after["cuda"][0], after["cpu"][0], strict=True):
        # Element by element, a few roundings for each step.
        allowed = 20 * np.finfo(right.dtype).eps
        np.testing.assert_allclose(found, right, rtol=allowed, atol=allowed)
    np.testing.assert_allclose(after["cuda"][1], after["cpu"][1], rtol=1e-12)


def test_adam_is_one_launch_for_each_dtype(cuda):
    if cuda is not stand_in.MODULE:
        pytest.skip("launches are counted by the stand-in")
    parameters = [ta.ones(n, device="cuda", requires_grad=True) for n in range(1, 30)]
    for parameter in parameters:
        parameter.grad = ta.ones(parameter.shape[0], device="cuda")
    optimizer = optim.Adam(parameters)
    before = len(stand_in.launches)
    optim.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    assert stand_in.launches[before:] == ["adam"]


def test_a_norm_that_is_not_finite_scales_nothing(cuda):
    for special in (np.inf, np.nan):
        x = ta.ones(3, device="cuda", requires_grad=True)
        x.grad = ta.tensor([5.0, special, 1.0], device="cuda")
        assert not np.isfinite(float(optim.clip_grad_norm_([x], 1.0)))
        np.testing.assert_array_equal(x.grad.numpy(), np.array([5, special, 1], np.float32))


def test_gradients_below_the_largest_norm_stay_as_they_are(cuda):
    x = ta.ones(2, device="cuda", requires_grad=True)
    x.grad = ta.tensor([0.3, -0.4], device="cuda")
    assert float(optim.clip_grad_norm_([x], 1.0)) == pytest.approx(0.5)
    np.testing.assert_array_equal(x.grad.numpy(), np.array([0.3, -0.4], np.float32))


class Tagger(nn.Module):
    """An embedding, positions, two encoder layers with dropout, a projection."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8, padding_idx=0)
        self.positions = nn.PositionalEncoding(8, 0.1)
        layer = nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), feed_forward(), 0.1)
        self.encoder = nn.Encoder(layer, 2)
        self.output = nn.Linear(8, 3)

    def forward(self, ids):
        x = self.positions(self.embedding(ids))
        return self.output(self.encoder(x, mask=masks.padding(ids, 0)))


def test_masks_are_joined_on_the_device_of_one_of_them(cuda):
    """`causal` and `window` are made on the host, `padding` where the ids are."""
    ids = ta.tensor([[5, 7, 0], [3, 0, 0]])
    expected = masks.padding(ids) & masks.causal(3) | masks.prefix([1, 2], 3)
    there, lens = masks.padding(ids.to("cuda")), ta.tensor([1, 2], device="cuda")
    for joined in (
        there & masks.causal(3) | masks.prefix([1, 2], 3),
        masks.causal(3) & there | masks.prefix(lens, 3),
        masks.combine(masks.causal(3), there) | masks.prefix(lens, 3),
    ):
        assert joined.device == "cuda"
        assert_same(joined, expected)


def batch(device=None):
    """Ids and targets, on the host as they come from a file, or on a device."""
    rng = rng_of(4)
    ids = rng.randint(1, 11, (3, 6))
    ids[0, 4:] = 0
    targets = np.where(ids == 0, -100, rng.randint(0, 3, (3, 6)))
    if device is None:
        return ids, targets
    return ta.tensor(ids, device=device), ta.tensor(targets, device=device)


def step(model, optimizer, ids, targets):
    loss = F.cross_entropy(model(ids).reshape(-1, 3), targets.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optim.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def trained(device, steps=4, where=None, dtype=ta.float32):
    ta.manual_seed(0)
    model = Tagger().to(dtype).to(device)
    optimizer = optim.AdamW(model.parameters(), 1e-2)
    losses = [step(model, optimizer, *batch(where)) for _ in range(steps)]
    return model, optimizer, [loss.item() for loss in losses]


@pytest.mark.parametrize("where", [None, "cuda"], ids=["from the host", "from the device"])
def test_training(where, cuda):
    """Losses and weights after some steps are those of the CPU, dropout included."""
    expected, _, right = trained("cpu", dtype=ta.float64)
    model, _, losses = trained("cuda", where=where, dtype=ta.float64)
    np.testing.assert_allclose(losses, right, rtol=1e-10)
    for name, value in expected.state_dict().items():
        assert_close(model.state_dict()[name].numpy(), value.numpy(), 1e-8)


def test_equal_seeds_give_bitwise_equal_runs(cuda):
    models = [trained("cuda")[0] for _ in range(2)]
    for one, other in zip(*(m.state_dict().values() for m in models), strict=True):
        assert_same(one.numpy(), other.numpy())


@pytest.mark.parametrize("where", [None, "cuda"], ids=["from the host", "from the device"])
def test_a_training_step_never_waits_for_the_device(where, cuda):
    if cuda is not stand_in.MODULE:
        pytest.skip("waiting is counted by the stand-in")
    model = Tagger().to("cuda")
    optimizer = optim.AdamW(model.parameters(), 1e-2)
    ids, targets = batch(where)
    stand_in.synchronisations.reasons.clear()
    loss = step(model, optimizer, ids, targets)
    step(model, optimizer, ids, targets)
    assert stand_in.synchronisations.reasons == []
    assert np.isfinite(loss.item())
    assert stand_in.synchronisations.reasons


VISIBLE = {
    "lengths on the host": {"valid_lens": [3, 5], "is_causal": True},
    "lengths on the device": {"valid_lens": ta.tensor([3, 5])},
    "a mask of integers on the device": {"mask": ta.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])},
}


@pytest.mark.parametrize("kind", VISIBLE)
@pytest.mark.parametrize("name", ["MultiHeadAttention", "AdditiveAttention"])
def test_attention_never_waits_for_the_device(name, kind, cuda):
    """Lengths or masks, on the host or on the device."""
    if cuda is not stand_in.MODULE:
        pytest.skip("waiting is counted by the stand-in")
    if name == "AdditiveAttention" and "is_causal" in VISIBLE[kind]:
        pytest.skip("additive attention has no is_causal")
    module = MODULES[name][0]().to("cuda")
    visible = {
        key: value.to("cuda") if isinstance(value, ta.Tensor) else value
        for key, value in VISIBLE[kind].items()
    }
    x = ta.tensor(inputs()[0], dtype=ta.float32, device="cuda", requires_grad=True)
    stand_in.synchronisations.reasons.clear()
    module(x, x, x, **visible).sum().backward()
    assert stand_in.synchronisations.reasons == []
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("kind", VISIBLE)
def test_attention_of_wide_heads_never_waits_either(kind, cuda):
    """Those that fit no tile, with dropout."""
    if cuda is not stand_in.MODULE:
        pytest.skip("waiting is counted by the stand-in")
    x = ta.tensor(inputs((2, 1, 5, 1500))[0], dtype=ta.float32, device="cuda", requires_grad=True)
    stand_in.synchronisations.reasons.clear()
    visible = {
        key: value.to("cuda") if isinstance(value, ta.Tensor) else value
        for key, value in VISIBLE[kind].items()
    }
    F.scaled_dot_product_attention(x, x, x, dropout_p=0.1, **visible).sum().backward()
    assert stand_in.synchronisations.reasons == []
    assert np.isfinite(x.grad.numpy()).all()


def test_skipping_padding_never_waits_for_the_device_if_lengths_are_on_the_host(cuda):
    if cuda is not stand_in.MODULE:
        pytest.skip("waiting is counted by the stand-in")
    module = MODULES["Encoder, padding is skipped"][0]().to("cuda")
    x = ta.tensor(inputs()[0], dtype=ta.float32, device="cuda", requires_grad=True)
    stand_in.synchronisations.reasons.clear()
    module(x, valid_lens=[3, 5]).sum().backward()
    assert stand_in.synchronisations.reasons == []
    module(x, valid_lens=ta.tensor([3, 5]).to("cuda"))
    assert stand_in.synchronisations.reasons  # the host has to know how many rows there are
    assert np.isfinite(x.grad.numpy()).all()


def test_checkpoints_are_device_neutral(cuda, tmp_path):
    """Saved on the device, loaded on the CPU and on the device; training goes on the same."""
    model, optimizer, _ = trained("cuda", dtype=ta.float64)
    ta.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "file")
    state = ta.load(tmp_path / "file")
    assert {t.device for t in state["model"].values()} == {"cpu"}
    after = {}
    for device in ("cpu", "cuda"):
        fresh = Tagger().to(ta.float64).to(device)
        fresh_optimizer = optim.AdamW(fresh.parameters(), 1e-2)
        fresh.load_state_dict(state["model"])
        fresh_optimizer.load_state_dict(state["optimizer"])
        for name, value in fresh.state_dict().items():
            assert value.device == device
            assert_same(value.numpy(), model.state_dict()[name].numpy())
        ta.manual_seed(9)
        step(fresh, fresh_optimizer, *batch())
        after[device] = {name: t.numpy() for name, t in fresh.state_dict().items()}
    ta.manual_seed(9)
    step(model, optimizer, *batch())
    for name, value in model.state_dict().items():
        assert_same(value.numpy(), after["cuda"][name])
        assert_close(after["cpu"][name], value.numpy(), 1e-8)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CheckpointError):
        ta.load(tmp_path / "file")


# What cannot be right


def test_mixed_devices_are_refused(cuda):
    """The error says what is where."""
    here, there = ta.ones(2, 3), ta.ones(2, 3, device="cuda")
    weight = ta.ones(4, 3)
    both = r"float32\[2, 3\].*float32\[2, 3\] on cuda"
    for call in (lambda: here + there, lambda: here * there, lambda: ta.maximum(here, there)):
        with pytest.raises(DeviceError, match=both):
            call()
    with pytest.raises(DeviceError, match=r"on cuda.*move one"):
        here @ there.T
    with pytest.raises(DeviceError, match="x is on cuda, weight on cpu"):
        F.linear(there, weight)
    with pytest.raises(DeviceError, match="query is on cpu, key on cuda"):
        F.scaled_dot_product_attention(*(t.reshape(1, 2, 3) for t in (here, there, there)))
    with pytest.raises(DeviceError, match="ids is on cpu, weight on cuda"):
        F.embedding(ta.tensor([0]), there)
    with pytest.raises(DeviceError, match="logits is on cuda, target on cpu"):
        F.cross_entropy(there, ta.tensor([0, 1]))
    with pytest.raises(DeviceError, match="gradient is on cpu, the tensor on cuda"):
        ta.ones(2, 3, device="cuda", requires_grad=True).backward(here)
    with pytest.raises(DeviceError, match=r"one device, got .*cpu.*cuda"):
        ta.cat([here, there])


def test_numbers_out_of_range_on_the_device_are_found_when_next_read(cuda):
    """Nobody waits for the check; the first value that is read brings the error."""
    weight = ta.ones(4, 3, device="cuda")
    out = F.embedding(ta.tensor([1, 4], device="cuda"), weight)
    with pytest.raises(IndexError, match=r"token id 4 is out of range: .*4 rows.*position 1"):
        out.numpy()
    below = F.embedding(ta.tensor([2, -1], device="cuda"), weight)
    with pytest.raises(IndexError, match=r"token id -1 is out of range"):
        below.numpy()
    loss = F.cross_entropy(weight, ta.tensor([0, 1, 2, 3], device="cuda"))
    with pytest.raises(IndexError, match="class 3 is out of range for 3 classes"):
        loss.item()
    softmax = F.masked_softmax(weight[None], valid_lens=ta.tensor([9], device="cuda"))
    with pytest.raises(MaskError, match="between 0 and the number of keys, 3, got 9"):
        softmax.tolist()
    ones = ta.tensor([[1, 0, 1, 1]], device="cuda")
    looks_like_a_mask = F.masked_softmax(ta.zeros(1, 4, 4, device="cuda"), ones)
    with pytest.raises(MaskError, match="nothing but 0 and 1"):
        looks_like_a_mask.tolist()
    lengths = F.masked_softmax(ta.zeros(1, 4, 4, device="cuda"), ones * 2)
    assert lengths.tolist()[0] == [[0.5, 0.5, 0, 0], [0] * 4, *[[0.5, 0.5, 0, 0]] * 2]
    with pytest.raises(IndexError, match="index -1 is out of range for 4 elements"):
        weight.gather(0, ta.tensor([[-1]], device="cuda")).numpy()
    assert weight.sum().item() == 12


def test_numbers_out_of_range_on_the_host_are_found_at_once(cuda):
    weight = ta.ones(4, 3, device="cuda")
    with pytest.raises(IndexError, match="token id 4 is out of range"):
        F.embedding([1, 4], weight)
    with pytest.raises(IndexError, match="class 3 is out of range"):
        F.cross_entropy(weight, [0, 1, 2, 3])
    with pytest.raises(MaskError, match="got 9"):
        F.masked_softmax(weight[None], valid_lens=[9])


def test_gradcheck_on_the_device(cuda):
    x = ta.tensor(signed(rng_of(0), 2, 3), device="cuda", requires_grad=True)
    assert ta.gradcheck(lambda x: F.softmax(x) * x.exp(), [x])
    assert ta.gradgradcheck(lambda x: F.softmax(x) * x.exp(), [x])


def test_without_cupy_the_error_says_what_to_install():
    code = """
import sys
sys.modules["cupy"] = None
import tinyattn as ta
assert not ta.cuda_is_available()
try:
    ta.ones(2, device="cuda")
except ta.errors.DeviceError as error:
    print(error)
"""
    assert 'in a clone of tinyattn, pip install -e ".[cuda13]"' in run_python(code)


# The examples

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--device", "cuda", "--steps", "3", "--batch-size", "4", "--d-model", "8",
         "--heads", "2", "--layers", "1", "--dropout", "0.1"]  # fmt: skip


def few(words):
    """The first words of a data set."""
    return type(words)(*(part[:12] for part in words))


@pytest.mark.parametrize("name", ["train_encoder", "train_digits"])
def test_examples(name, cuda, tmp_path, monkeypatch, capsys):
    """A short run with --device cuda, picked up again on the CPU from its checkpoint."""
    pytest.importorskip("sklearn", reason="the examples need scikit-learn")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.syspath_prepend(EXAMPLES)
    program = importlib.import_module(name)
    if name == "train_encoder":  # which else reads all the words held out
        training, test = program.stress_data.load()
        monkeypatch.setattr(program.stress_data, "load", lambda: (training, few(test)))
    command = [name, "--out", str(tmp_path), *SMALL]
    monkeypatch.setattr("sys.argv", command)
    program.main()
    before = ta.load(tmp_path / "checkpoint.safetensors")
    assert before["losses"].shape == (3,)
    command[command.index("cuda")] = "cpu"
    monkeypatch.setattr("sys.argv", [*command, "--resume"])
    program.main()
    after = ta.load(tmp_path / "checkpoint.safetensors")
    for key, value in before["model"].items():
        assert_same(value.numpy(), after["model"][key].numpy())
    assert "attention.png" in capsys.readouterr().out
