"""Grades exercise 11."""

import numpy as np
from grading import close, exercise, expect, run

import tinyattn as ta
from tinyattn import nn

yours = exercise("ex_11_encoder")
SIZE = 6


def parts(seed: int = 0) -> tuple[nn.Module, nn.Module]:
    ta.manual_seed(seed)
    return nn.MultiHeadedAttention(2, SIZE, 0.0), nn.PositionwiseFeedForward(SIZE, 12, 0.0)


def layer_of(norm: str, dropout: float = 0.0, seed: int = 0) -> nn.Module:
    """Your layer; its norms have different weights and biases, to tell one from the other."""
    layer = run(yours.EncoderLayer, SIZE, *parts(seed), dropout=dropout, norm=norm)
    for name in ("norm_1", "norm_2"):
        found = getattr(layer, name, None)
        expect(isinstance(found, nn.LayerNorm), f"your layer has no nn.LayerNorm self.{name}")
        found.weight.data = 1 + 0.5 * ta.randn(SIZE).data
        found.bias.data = ta.randn(SIZE).data
    expect(
        layer.norm_1 is not layer.norm_2,
        "norm_1 and norm_2 are one module: each sublayer has a norm of its own",
    )
    if not dropout:
        x = ta.arange(2.0 * SIZE).reshape(1, 2, SIZE)
        first, second = (run(layer.forward, x) for _ in range(2))
        expect(
            not isinstance(first, ta.Tensor) or first.allclose(second, equal_nan=True),
            "with dropout=0.0 two calls give different numbers: give nn.Dropout your argument",
        )
    return layer


def composed(
    layer: nn.Module, norm: str, x: ta.Tensor, change: str = "", where: tuple[int, ...] = ()
) -> np.ndarray:
    """What a layer gives that is right but for one change in some sublayers, from its norms."""
    attention, feed_forward = parts()
    norms = (layer.norm_1, layer.norm_2)
    for number, sublayer in enumerate((lambda y: attention(y, y, y), feed_forward)):
        changed = change if number in where else ""
        normed = norms[number if changed != "the other norm" else 1 - number]
        y = normed(x) if norm == "pre" else x
        out = sublayer(y)
        if changed != "no residual":
            out = out + (y if changed == "residual of the norm" else x)
        x = normed(out) if norm == "post" else out
    return x.detach().numpy()


SENTENCES = {
    "no residual": "a residual is missing: add x to what the sublayer gives",
    "residual of the norm": "norm(x) is added to what the sublayer gives; with pre-norm that is x",
    "the other norm": "norm_1 belongs to the attention, norm_2 to the feed-forward network",
}


def check_order(norm: str) -> None:
    layer = layer_of(norm)
    x = ta.randn(2, 4, SIZE)
    found = run(layer.forward, x)
    expect(isinstance(found, ta.Tensor), f"forward returns a Tensor, not {type(found).__name__}")
    expect(found.shape == x.shape, f"x {x.shape} gives {x.shape}, not {found.shape}")
    found, right = found.detach().numpy(), composed(layer, norm, x)
    for change, sentence in SENTENCES.items():
        for where in ((0,), (1,), (0, 1)):
            wrong = composed(layer, norm, x, change, where)
            is_wrong = close(found, wrong, 1e-5) and not close(right, wrong, 1e-5)
            expect(not is_wrong, f'norm="{norm}": {sentence}')
    other = composed(layer, "post" if norm == "pre" else "pre", x)
    expect(not close(found, other, 1e-5), f'norm="{norm}" gives what the other order gives')
    formula = "x + sublayer(norm(x))" if norm == "pre" else "norm(x + sublayer(x))"
    expect(
        close(found, right, 1e-5),
        f'norm="{norm}" is not {formula}, first with the attention and then with the feed-forward '
        "network, which takes what the attention's sublayer gave",
    )


def test_pre_norm() -> None:
    check_order("pre")


def test_post_norm() -> None:
    check_order("post")


def test_mask() -> None:
    for norm in ("pre", "post"):
        layer, x = layer_of(norm), ta.randn(2, 4, SIZE)
        mask = ta.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
        changed = x.clone()
        changed[1, 3] = 5.0
        before, after = (run(layer.forward, y, mask=mask).detach().numpy() for y in (x, changed))
        expect(
            close(before[1, :2], after[1, :2], 1e-6),
            f'norm="{norm}": padding has influence: pass the mask on',
        )


def test_dropout() -> None:
    """With p = 1 a branch is dropped as a whole, so what is left tells where dropout stands."""
    for norm in ("pre", "post"):
        layer, x = layer_of(norm, dropout=1.0), ta.randn(1, 3, SIZE)
        found = run(layer.forward, x).detach().numpy()
        residuals = x if norm == "pre" else layer.norm_2(layer.norm_1(x))
        residuals = residuals.detach().numpy()
        plain = layer_of(norm)
        if not close(run(plain.forward, x).detach().numpy(), composed(plain, norm, x), 1e-5):
            continue  # dropout is not the cause: `check_order` tells it
        expect(found.any(), "dropout of all also drops x: it belongs on the sublayer, not the sum")
        layer.eval()
        without = run(layer.forward, x).detach().numpy()
        expect(
            close(without, composed(layer, norm, x), 1e-5),
            "dropout is on in evaluation too: use an nn.Dropout",
        )
        expect(
            close(found, residuals, 1e-5),
            f'norm="{norm}": with dropout 1 only the residuals are left, so dropout stands on what '
            "each sublayer gives, before it is added",
        )


class Noted(nn.Module):
    """Gives what it gets, and notes it."""

    given, mask = np.ones(1), None

    def forward(self, x: ta.Tensor, *others: ta.Tensor, mask: ta.Tensor | None = None) -> ta.Tensor:
        self.given, self.mask = x.detach().numpy(), others[0] if others else mask
        return x


def test_what_a_sublayer_gets() -> None:
    for norm in ("pre", "post"):
        sublayers = Noted(), Noted()
        layer = run(yours.EncoderLayer, SIZE, *sublayers, dropout=1.0, norm=norm)
        run(layer.forward, ta.randn(1, 3, SIZE))
        expect(
            all(sublayer.given.any() for sublayer in sublayers),
            f'norm="{norm}": dropout acts on the input of a sublayer: it belongs on its output',
        )


def encoder_of(norm: str) -> tuple[nn.Module, list[nn.Module]]:
    layers = [layer_of(norm, seed=seed) for seed in (0, 1, 2)]
    return run(yours.Encoder, list(layers), SIZE, norm=norm), layers


def test_encoder() -> None:
    for norm in ("pre", "post"):
        (encoder, layers), x = encoder_of(norm), ta.randn(2, 4, SIZE)
        found = run(encoder.forward, x).detach().numpy()
        right = x
        for layer in layers:
            right = run(layer.forward, right)
        without = right.detach().numpy()
        if norm == "pre":
            expect(not close(found, without, 1e-5), "with pre-norm the sum of all sublayers comes "
                   "out as it is: one more norm belongs at the end")  # fmt: skip
            right = nn.LayerNorm(SIZE)(right)
        else:
            again = nn.LayerNorm(SIZE)(right).detach().numpy()
            expect(not close(found, again, 1e-5), "with post-norm the last layer has normalized "
                   "already: no norm at the end")  # fmt: skip
        expect(close(found, right.detach().numpy(), 1e-5), "the layers do not follow each other")


def test_parameters_of_the_encoder() -> None:
    encoder, layers = encoder_of("pre")
    inside = sum(p.numel() for layer in layers for p in layer.parameters())
    found = sum(p.numel() for p in encoder.parameters())
    expect(
        found == inside + 2 * SIZE,
        f"an optimizer finds {found} numbers to train, not {inside + 2 * SIZE}: keep all "
        "layers, each once, in an nn.ModuleList",
    )


def test_mask_of_the_encoder() -> None:
    layers = [Noted(), Noted()]
    encoder = run(yours.Encoder, list(layers), SIZE, norm="post")
    run(encoder.forward, ta.randn(1, 4, SIZE), mask=ta.tensor([[1, 1, 1, 0]]).bool())
    given = [layer.mask is not None for layer in layers]
    expect(all(given), "the encoder gives a layer no mask")


def test_gradients() -> None:
    """In both orders every parameter has a gradient, and x has one that is not 0."""
    for norm in ("pre", "post"):
        (encoder, _), x = encoder_of(norm), ta.randn(2, 4, SIZE, requires_grad=True)
        cotangent = ta.tensor(np.random.default_rng(11).choice([-1.0, 1.0], (2, 4, SIZE)))
        run(encoder.forward, x).backward(cotangent.float())
        unused = "norm." if norm == "post" else " "  # a norm at the end that is not called
        names = {name: p for name, p in encoder.named_parameters() if not name.startswith(unused)}
        missing = [name for name, p in names.items() if p.grad is None]
        expect(not missing, f"no gradient reaches {missing}")
        expect(x.grad is not None and x.grad.numpy().any(), "no gradient reaches x")
