"""Lengths, masks, causality and windows in every combination, and NaN in what they all hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import assert_close, assert_equal, leaf, pull, random_parameters, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn

B, H, Q, K, D = 3, 2, 4, 5, 6
STEPS = np.arange(K)
LENGTHS: dict[str, Any] = {
    "no lengths": None,
    "of samples": np.array([5, 0, 2]),
    "of queries": np.array([[1, 5, 2, 4], [3, 0, 5, 2], [2, 4, 3, 5]]),
}
MASKS: dict[str, tuple[int, ...]] = {
    "no mask": (),
    "keys": (B, K),
    "keys of all samples": (1, K),
    "queries": (B, Q, K),
    "queries of all samples": (1, Q, K),
    "whole queries": (B, Q, 1),
    "heads": (B, H, Q, K),
    "heads of all samples": (1, H, 1, K),
}


def mask_of(name: str) -> tuple[Any, np.ndarray]:
    """A mask, and the same for all scores (B, H, Q, K)."""
    shape = MASKS[name]
    mask = rng_of(len(name)).uniform(size=shape) < 0.7
    lifted = mask.reshape(*shape[:1], *(1,) * (4 - len(shape)), *shape[1:])
    return (mask if shape else None), np.broadcast_to(lifted | (not shape), (B, H, Q, K))


def seen_through(
    lengths: str, mask: np.ndarray, is_causal: bool, window: int | None, past: int = 0
) -> np.ndarray:
    seen, lens = mask.copy(), LENGTHS[lengths]
    positions = np.arange(Q)[:, None] + past
    if lens is not None:
        seen &= STEPS < (lens[:, None, None, None] if lens.ndim == 1 else lens[:, None, :, None])
    if is_causal:
        seen &= positions >= STEPS
    if window is not None:
        seen &= abs(positions - STEPS) < window
    return seen


def weights_of(scores: np.ndarray, seen: np.ndarray) -> np.ndarray:
    powers = np.where(seen, np.exp(scores), 0.0)
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total, total, 1.0)


@pytest.mark.parametrize("window", [None, 1, 2, 9])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_key_is_visible_if_each_option_says_so(
    lengths: str, is_causal: bool, window: int | None
) -> None:
    """With the weights and without, which other code computes; the gradients too."""
    rng = rng_of(0)
    q, k, v = (signed(rng, B, H, n, D) for n in (Q, K, K))
    grad = signed(rng, B, H, Q, D)
    options = {"valid_lens": LENGTHS[lengths], "is_causal": is_causal, "window": window}
    for name in MASKS:
        mask, full = mask_of(name)
        weights = weights_of(
            q @ k.swapaxes(-1, -2) / np.sqrt(D), seen_through(lengths, full, is_causal, window)
        )
        dweights = grad @ v.swapaxes(-1, -2)
        dscores = weights * (dweights - (weights * dweights).sum(-1, keepdims=True)) / np.sqrt(D)
        right = [dscores @ k, dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ grad]
        for return_weights in (False, True):
            tensors = [leaf(x) for x in (q, k, v)]
            out = F.scaled_dot_product_attention(
                *tensors, mask=mask, return_weights=return_weights, **options
            )
            if return_weights:
                assert_close(out[1].numpy(), weights, 1e-12)
                out = out[0]
            assert_close(out.detach().numpy(), weights @ v, 1e-12)
            pull(out, grad)
            for tensor, expected in zip(tensors, right, strict=True):
                np.testing.assert_allclose(tensor.grad.numpy(), expected, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("past", [0, 1, 3])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_masked_softmax_has_the_weights_of_what_each_option_shows(
    lengths: str, is_causal: bool, past: int
) -> None:
    scores, grad = signed(rng_of(1), B, H, Q, K), signed(rng_of(2), B, H, Q, K)
    for name in MASKS:
        mask, full = mask_of(name)
        seen = seen_through(lengths, full, is_causal, None, past if is_causal else 0)
        weights = weights_of(scores, seen)
        x = leaf(scores)
        out = F.masked_softmax(x, LENGTHS[lengths], mask, is_causal, past if is_causal else 0)
        np.testing.assert_allclose(out.detach().numpy(), weights, atol=1e-12, err_msg=name)
        pull(out, grad)
        right = weights * (grad - (weights * grad).sum(-1, keepdims=True))
        np.testing.assert_allclose(x.grad.numpy(), right, atol=1e-12, err_msg=name)


# What no query sees: the last key of each sample. Heads and queries see others of the rest.
HIDING: dict[str, dict[str, Any]] = {
    "lengths": {"valid_lens": np.array([4, 4, 4])},
    "lengths of queries": {"valid_lens": np.array([[1, 4, 2, 3]] * B)},
    "keys": {"mask": np.tile(STEPS < 4, (B, 1))},
    "queries": {"mask": np.eye(Q, K, dtype=bool)[None] | (STEPS < 1)},
    "other keys of each head": {
        "mask": np.array([STEPS < 2, (STEPS > 1) & (STEPS < 4)])[None, :, None]
    },
    "keys of the last head alone": {"mask": np.array([STEPS < 0, STEPS < 4])[None, :, None]},
    "causality": {"is_causal": True},
    "a window": {"window": 1},
}
# The same where each key has a query of its own, so causality alone hides none.
BESIDE_CAUSALITY: dict[str, dict[str, Any]] = {
    "lengths": HIDING["lengths"],
    "keys": HIDING["keys"],
    "other keys of each head": HIDING["other keys of each head"],
    "lengths of queries": {"valid_lens": np.array([[1, 4, 2, 3, 4, 4]] * B)},
}


KINDS = ["module", "module of one group", "heads", "heads of one group"]


def attention_of(kind: str, window: int | None = None) -> Any:
    """With one group, both heads of queries share one of keys and values."""
    groups = H // 2 if kind.endswith("one group") else H
    if kind.startswith("module"):
        module = nn.MultiHeadAttention(D, D, D, D, H, bias=True, num_kv_heads=groups, window=window)
        return random_parameters(module.double(), rng_of(3))

    def call(q: ta.Tensor, *of_keys: ta.Tensor, **options: Any) -> ta.Tensor:
        heads = [x[..., : D // H * groups].reshape(B, K, groups, -1) for x in of_keys]
        heads = [x.permute(0, 2, 1, 3) for x in (q.reshape(B, -1, H, D // H), *heads)]
        options |= {} if window is None else {"window": window}
        return F.scaled_dot_product_attention(*heads, enable_gqa=True, **options)

    return call


def results_of(kind: str, arrays: list[np.ndarray], given: dict[str, Any]) -> dict[str, np.ndarray]:
    """The output, and the gradients of the arrays and of all parameters."""
    options = dict(given)
    attention = attention_of(kind, options.pop("window", None))
    tensors = [leaf(x) for x in arrays]
    of_keys = tensors[1:] * (2 if len(tensors) == 2 else 1)
    out = attention(tensors[0], *of_keys, **options)
    pull(out, signed(rng_of(4), *out.shape))
    found = {"out": out.detach().numpy()}
    found |= {f"d{i}": tensor.grad.numpy() for i, tensor in enumerate(tensors)}
    if isinstance(attention, nn.Module):
        found |= {name: p.grad.numpy() for name, p in attention.named_parameters()}
    return found


def assert_hidden(kind: str, content: str, queries: int, options: dict[str, Any]) -> None:
    """The last key of each sample, whatever it holds, has the influence of zeros."""
    results = []
    for poison in (0.0, np.nan, np.inf, -np.inf):
        q, keys, values = (signed(rng_of(5 + i), B, n, D) for i, n in enumerate((queries, K, K)))
        keys[:, -1] = keys[:, -1] if content == "values" else poison
        values[:, -1] = poison if content in ("values", "both") else values[:, -1]
        arrays = [q, keys] if content == "one tensor" else [q, keys, values]
        results.append(results_of(kind, arrays, options))
    right, *others = results
    assert max(abs(right[name]).max() for name in right if name in ("d1", "d2")) > 0.1
    for name, expected in right.items():
        assert np.isfinite(expected).all(), name
        for found in others:
            assert_equal(found[name], expected)


every_content = pytest.mark.parametrize("content", ["keys", "values", "both", "one tensor"])


@every_content
@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_hidden_by_any_option_is_as_if_it_were_zero(
    kind: str, hiding: str, content: str
) -> None:
    """In the keys alone, in the values alone, in both, and in one tensor that is both."""
    assert_hidden(kind, content, Q, HIDING[hiding])


@every_content
@pytest.mark.parametrize("hiding", BESIDE_CAUSALITY)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_hidden_beside_causality_is_as_if_it_were_zero(
    kind: str, hiding: str, content: str
) -> None:
    assert_hidden(kind, content, K + 1, {"is_causal": True, **BESIDE_CAUSALITY[hiding]})


@pytest.mark.parametrize("window", [None, 1, 2, 9])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lens", [[4], [3, 1, 4], [2, 0, 2], [0, 5], [2, 2], [1, 1, 1, 6]], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_packed_samples_are_each_sample_alone(
    lens: list[int], is_causal: bool, window: int | None, groups: int
) -> None:
    attention = random_parameters(
        nn.MultiHeadAttention(D, D, D, D, H, num_kv_heads=groups, window=window).double(), rng_of(3)
    )
    numbers, grad = (signed(rng_of(seed), sum(lens), D) for seed in (0, 1))
    x = leaf(numbers)
    out = attention(x, x, x, valid_lens=lens, is_causal=is_causal)
    pull(out, grad)
    of_weights = [p.grad.numpy().copy() for p in attention.parameters()]
    attention.zero_grad()
    weights, first = attention.attention_weights.numpy(), 0
    for i, length in enumerate(lens):
        rows = slice(first, first + length)
        first += length
        if not length:
            continue
        alone = leaf(numbers[None, rows])
        one = attention(alone, alone, alone, is_causal=is_causal)
        pull(one, grad[None, rows])
        assert_close(out.detach().numpy()[rows], one.detach().numpy()[0], 1e-12)
        assert_close(x.grad.numpy()[rows], alone.grad.numpy()[0], 1e-11)
        assert_close(weights[i, :, :length, :length], attention.attention_weights.numpy()[0], 1e-12)
        assert not weights[i, :, :length, length:].any()
    for found, parameter in zip(of_weights, attention.parameters(), strict=True):
        np.testing.assert_allclose(found, parameter.grad.numpy(), atol=1e-11)
