"""A print in any forward is reached: no layer computes around a module that it holds."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest
from common import assert_close, assert_equal, pull, rng_of, signed

import tinyattn as ta
from tinyattn import nn

D = 8


def x(*shape):
    return ta.tensor(signed(rng_of(0), *(shape or (2, 3, D))).astype(np.float32))


def encoder_layer():
    return nn.EncoderLayer(D, nn.MultiHeadedAttention(2, D), nn.PositionwiseFeedForward(D, 6))


def decoder():
    attentions = [nn.MultiHeadedAttention(2, D) for _ in range(2)]
    return nn.Decoder(nn.DecoderLayer(D, *attentions, nn.PositionwiseFeedForward(D, 6)), 2)


def embedding():
    return nn.Sequential(nn.Embedding(5, D), nn.PositionalEncoding(D, dropout=0.1))


IDS = np.array([[1, 2, 0], [3, 4, 1]])
# For each module of nn that holds others: how it is made, and its arguments.
CASES = {
    "Sequential": lambda: (nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Dropout(0.1)), (x(),)),
    "DotProductAttention": lambda: (nn.DotProductAttention(0.1), (x(), x(), x())),
    "AdditiveAttention": lambda: (nn.AdditiveAttention(D, D, 4, 0.1), (x(), x(), x())),
    "MultiHeadAttention": lambda: (
        nn.MultiHeadAttention(D, D, D, D, 2, 0.1, rotary=nn.RotaryEmbedding(4)),
        (x(), x(), x()),
    ),
    "MultiHeadedAttention": lambda: (nn.MultiHeadedAttention(2, D), (x(), x(), x())),
    "SelfAttention": lambda: (nn.SelfAttention(D, 4), (x(),)),
    "PositionalEncoding": lambda: (nn.PositionalEncoding(D, 0.1), (x(),)),
    "LoRA": lambda: (nn.LoRA(nn.Linear(D, 6), 2), (x(),)),
    "LearnedPositionalEncoding": lambda: (nn.LearnedPositionalEncoding(D, 0.1), (x(),)),
    "PositionwiseFeedForward": lambda: (nn.PositionwiseFeedForward(D, 6), (x(),)),
    "SwiGLU": lambda: (nn.SwiGLU(D, 6), (x(),)),
    "SublayerConnection": lambda: (nn.SublayerConnection(D), (x(), lambda y: y)),
    "EncoderLayer": lambda: (encoder_layer(), (x(),)),
    "Encoder": lambda: (nn.Encoder(encoder_layer(), 2), (x(),)),
    "DecoderLayer": lambda: (decoder().layers[0], (x(), x())),
    "Decoder": lambda: (decoder(), (x(), x())),
    "EncoderDecoder": lambda: (
        nn.EncoderDecoder(
            nn.Encoder(encoder_layer(), 1), decoder(), embedding(), embedding(), nn.Linear(D, 5)
        ),
        (IDS, IDS),
    ),
}
# Their users call the parts by hand.
CONTAINERS = {"ModuleList", "ModuleDict", "Module"}


def modules_of_nn():
    return {n: c for n, c in vars(nn).items() if inspect.isclass(c) and issubclass(c, nn.Module)}


def test_every_module_that_holds_others_has_a_case():
    makers = {name: case()[0] for name, case in CASES.items()}
    assert {type(module).__name__ for module in makers.values()} == set(makers)
    alone = set(modules_of_nn()) - set(makers) - CONTAINERS
    for name in alone:
        source = inspect.getsource(modules_of_nn()[name].__init__)
        holds = [part for part in ("Linear(", "Dropout(") if part in source]
        assert holds == [], f"{name} holds others: add how it is made and called to CASES"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("training", [True, False])
def test_every_forward_that_a_module_holds_is_called(name, training, monkeypatch):
    """The classes' own forwards, as if somebody had put a print into the source.

    A kernel of attention calls `Dropout.draw` instead.
    """
    module, arguments = CASES[name]()
    module.train(training)
    called = set()

    def announced(forward):
        def call(self, *args, **options):
            called.add(id(self))
            return forward(self, *args, **options)

        return call

    parts = [part for part in module.modules() if type(part).__name__ not in CONTAINERS]
    # The activations' forwards are static: their class calls the function of their name.
    for kind in {type(part) for part in parts}:
        if not isinstance(inspect.getattr_static(kind, "forward"), staticmethod):
            monkeypatch.setattr(kind, "forward", announced(kind.forward))
        else:
            called |= {id(part) for part in parts if type(part) is kind}
    monkeypatch.setattr(nn.Dropout, "draw", announced(nn.Dropout.draw))
    module(*arguments)
    unused = {id(module.generator)} if name == "EncoderDecoder" else set()  # as its docstring says
    assert {id(part) for part in parts} - called == unused


ATTENTIONS = {
    "dot product": lambda p: nn.DotProductAttention(p),
    "additive": lambda p: nn.AdditiveAttention(D, D, 4, p),
    "heads": lambda p: nn.MultiHeadAttention(D, D, D, D, 2, p, num_kv_heads=1),
}
kinds = pytest.mark.parametrize("kind", ATTENTIONS)


@kinds
def test_a_hook_of_the_dropout_sees_the_weights(kind):
    module, seen = ATTENTIONS[kind](0.5), []
    module.dropout.register_forward_hook(lambda m, args, out: seen.append((args[0], out)))
    module(x(), x(), x(), valid_lens=[2, 3])
    ((weights, dropped),) = seen
    heads = weights.shape[1]
    right = module.attention_weights.reshape(2, heads, 3, 3)
    assert_close(weights.numpy(), right.numpy(), 1e-6)
    kept = dropped.numpy() != 0
    assert_close(dropped.numpy()[kept], 2 * weights.numpy()[kept], 1e-6)


class Halved(nn.Dropout):
    """A Dropout of one's own, with a forward of its own."""

    def forward(self, weights):
        return weights * 0.5


@kinds
def test_a_dropout_of_ones_own_is_what_runs(kind):
    """The output is linear in the weights, so a half of them gives a half of it, and gradients."""
    module, q = ATTENTIONS[kind](0.0), x()
    plain = ATTENTIONS[kind](0.0)
    plain.load_state_dict(module.state_dict())
    module.dropout = Halved(0.9)
    grad = signed(rng_of(4), 2, 3, D).astype(np.float32)
    results = []
    for attention, factor in ((plain, 0.5), (module, 1.0)):
        leaf = q.detach().clone().requires_grad_()
        # The last projection is linear too, and has no bias.
        out = attention(leaf, x() + 1, x() - 1, valid_lens=[2, 3]) * factor
        pull(out, grad)
        results.append((out.numpy(), leaf.grad.numpy()))
    for one, other in zip(*results, strict=True):
        assert_close(one, other, 1e-5)


MASK = np.array([[True, False, True]] * 2 + [[True, True, False]])[None].repeat(2, 0)
OF_HEADS = {
    "lengths": {"valid_lens": [2, 3]},
    "a mask": {"mask": MASK},
    "causal": {"is_causal": True},
    "a bias": {"bias": ta.tensor(signed(rng_of(9), 2, 2, 3, 3).astype(np.float32))},
    "all": {"valid_lens": [2, 3], "mask": MASK, "is_causal": True, "bias": ta.ones(1, 2, 3, 3)},
}


@pytest.mark.parametrize("name", OF_HEADS)
def test_each_option_of_heads_reaches_a_dropout_of_ones_own(name):
    """As it reaches the kernel, which drops nothing here; outputs, gradients and weights."""
    plain, options = nn.MultiHeadAttention(D, D, D, D, 2), OF_HEADS[name]
    module = nn.MultiHeadAttention(D, D, D, D, 2)
    module.load_state_dict(plain.state_dict())
    module.dropout = Halved()
    q, without = x(), plain(x(), x() + 1, x() - 1)
    grad = signed(rng_of(4), 2, 3, D).astype(np.float32)
    results = []
    for attention, factor in ((plain, 0.5), (module, 1.0)):
        leaf = q.detach().clone().requires_grad_()
        out = attention(leaf, x() + 1, x() - 1, **options) * factor
        pull(out, grad)
        results.append((out.numpy(), leaf.grad.numpy(), attention.attention_weights.numpy()))
    for one, other in zip(*results, strict=True):
        assert_close(one, other, 1e-5)
    assert not np.allclose(2 * results[0][0], without.numpy(), atol=1e-3)


@kinds
def test_identity_takes_dropout_out(kind):
    module = ATTENTIONS[kind](0.7)
    right = module.eval()(x(), x(), x())
    module.train().dropout = nn.Identity()
    assert_equal(module(x(), x(), x()).numpy(), right.numpy())


def test_the_kernel_drops_what_the_module_would_have_dropped():
    """One seed, one mask: whether the kernel drops or the module does."""
    fused, hooked = (
        nn.MultiHeadAttention(D, D, D, D, 2, 0.4),
        nn.MultiHeadAttention(D, D, D, D, 2, 0.4),
    )
    hooked.load_state_dict(fused.state_dict())
    hooked.dropout.register_forward_hook(lambda *_: None)
    outputs = []
    for module in (fused, hooked):
        ta.manual_seed(8)
        outputs.append(module(x(), x(), x()).numpy())
    assert_close(*outputs, 1e-6)


def test_packed_rows_go_through_a_module_of_ones_own_too():
    module = nn.MultiHeadAttention(D, D, D, D, 2)
    plain = module(x(5, D), x(5, D), x(5, D), valid_lens=[2, 3])
    module.dropout = Halved()
    out = module(x(5, D), x(5, D), x(5, D), valid_lens=[2, 3])
    assert_close(2 * out.numpy(), plain.numpy(), 1e-5)


@kinds
def test_a_copy_has_not_been_called(kind):
    """Neither a copy nor what was pickled remembers the call of another module."""
    module = ATTENTIONS[kind](0.0)
    module(x(), x(), x())
    for twin in (copy.deepcopy(module), copy.copy(module), pickle.loads(pickle.dumps(module))):
        with pytest.raises(AttributeError, match="has not been called"):
            twin.attention_weights  # noqa: B018
    assert module.attention_weights.shape[-1] == 3
