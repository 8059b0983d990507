"""Each option of a call reaches the attention inside, by its name and by its place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import assert_same, rng_of, signed

import tinyattn as ta
from tinyattn import nn
from tinyattn.nn.cache import KeyValueCache

B, N, D, HEADS = 2, 4, 8, 2


def numbers(seed: int, *shape: int) -> ta.Tensor:
    return ta.tensor(signed(rng_of(seed), *(shape or (B, N, D))))


def cache_of(module: nn.Module) -> KeyValueCache:
    """One that has two positions; each call needs its own."""
    cache, x = KeyValueCache(grows=True), numbers(9, B, 2, D)
    module(x, x, x, cache=cache)
    return cache


# A value of each option with which the output is another one.
OPTIONS: dict[str, Callable[[nn.Module], Any]] = {
    "mask": lambda module: np.array([[True, True, False, True], [False, True, True, True]]),
    "valid_lens": lambda module: [3, 2],
    "is_causal": lambda module: True,
    "bias": lambda module: numbers(5, HEADS, N, N),
    "cache": cache_of,
    "positions": lambda module: np.array([[0, 2, 3, 7], [1, 1, 0, 5]]),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotary": nn.RotaryEmbedding(D // HEADS, base=10.0)},
    "window": {"window": 2},
    "shared heads": {"num_kv_heads": 1},
}


def pair(setting: str) -> tuple[nn.MultiHeadAttention, nn.MultiHeadedAttention]:
    """The same attention by both names."""
    options = SETTINGS[setting]
    one = nn.MultiHeadAttention(D, D, D, D, HEADS, bias=True, **options).double().eval()
    other = nn.MultiHeadedAttention(HEADS, D, **options).double().eval()
    other.load_state_dict(one.state_dict())
    return one, other


def names_of(module: nn.Module) -> list[str]:
    return [*inspect.signature(module.forward).parameters][3:]


# Without a rotary, positions are an error.
CASES = [(o, s) for o in OPTIONS for s in SETTINGS if o != "positions" or s == "rotary"]


@pytest.mark.parametrize(("option", "setting"), CASES)
def test_both_names_of_an_attention_take_each_option(option: str, setting: str) -> None:
    ta.manual_seed(1)
    one, other = pair(setting)
    assert set(names_of(one)) == set(names_of(other)) == set(OPTIONS)
    qkv = [numbers(i) for i in range(3)]
    make = OPTIONS[option]
    right = one(*qkv, **{option: make(one)})
    weights = one.attention_weights
    plain = one(*qkv)
    assert abs(right - plain).max().item() > 1e-3
    for module in (one, other):
        by_place = [None] * len(names_of(module))
        by_place[names_of(module).index("is_causal")] = False  # type: ignore[call-overload]
        assert_same(module(*qkv, *by_place).numpy(), plain.numpy())
        by_place[names_of(module).index(option)] = make(module)
        assert_same(module(*qkv, *by_place).numpy(), right.numpy())
        assert_same(module(*qkv, **{option: make(module)}).numpy(), right.numpy())
        assert_same(module.attention_weights.numpy(), weights.numpy())


@pytest.mark.parametrize("setting", ["plain", "window", "shared heads"])
def test_positions_without_a_rotary_are_an_error(setting: str) -> None:
    for module in pair(setting):
        with pytest.raises(
            ValueError, match=r"^positions are for an attention with `rotary`, this"
        ):
            module(*[numbers(0)] * 3, positions=range(N))


class Recording(nn.Module):
    """An attention that keeps what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []

    def forward(
        self, queries: ta.Tensor, keys: ta.Tensor, values: ta.Tensor, **options: Any
    ) -> Any:
        assert keys is values
        self.calls.append(options)
        return queries


def encoder_layer() -> nn.EncoderLayer:
    return nn.EncoderLayer(D, Recording(), nn.Identity(), norm_layer=nn.Identity)


def decoder_layer() -> nn.DecoderLayer:
    return nn.DecoderLayer(D, Recording(), Recording(), nn.Identity(), norm_layer=nn.Identity)


def recordings(module: nn.Module) -> list[Recording]:
    return [part for part in module.modules() if isinstance(part, Recording)]


ENCODERS: dict[str, Callable[[], Any]] = {
    "layer": encoder_layer,
    "stack": lambda: nn.Encoder(encoder_layer(), 2),
}
DECODERS: dict[str, Callable[[], Any]] = {
    "layer": decoder_layer,
    "stack": lambda: nn.Decoder(decoder_layer(), 2),
}
NOTHING = {"mask": None, "valid_lens": None}


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_passes_on_what_it_is_given(kind: str) -> None:
    """And nothing else, because an attention of one's own may not take it."""
    given = {"mask": object(), "valid_lens": object(), "is_causal": True, "positions": object()}
    module = ENCODERS[kind]()
    found = recordings(module)
    for name, value in given.items():
        by_place = [given[n] if n == name else d for n, d in (("mask", None), ("valid_lens", None))]
        by_place += [name == "is_causal", None, value if name == "positions" else None]
        for call in (
            lambda value=value, name=name: module(numbers(0), **{name: value}),
            lambda by_place=by_place: module(numbers(0), *by_place),
        ):
            call()
            assert [part.calls.pop() for part in found] == [NOTHING | {name: value}] * len(found)
    module(numbers(0), **given)
    assert [part.calls.pop() for part in found] == [given] * len(found)
    module(numbers(0))
    assert [part.calls for part in found] == [[NOTHING]] * len(found)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_passes_on_what_it_is_given(kind: str) -> None:
    names = ["src_mask", "tgt_mask", "src_valid_lens", "tgt_valid_lens"]
    module = DECODERS[kind]()
    found = recordings(module)
    for chosen in (*([name] for name in names), names):
        given = {name: object() if name in chosen else None for name in names}
        to_target = {
            "mask": given["tgt_mask"], "valid_lens": given["tgt_valid_lens"], "is_causal": True,
        }  # fmt: skip
        to_source = {"mask": given["src_mask"], "valid_lens": given["src_valid_lens"]}
        module(numbers(0), numbers(1), **given)
        module(numbers(0), numbers(1), *given.values())
        for part, right in zip(found, [to_target, to_source] * (len(found) // 2), strict=True):
            assert part.calls == [right, right]
            part.calls.clear()


@pytest.mark.parametrize("kind", ["layer", "stack"])
def test_each_attention_gets_its_own_cache(kind: str) -> None:
    stack = nn.Decoder(decoder_layer(), 2)
    cache = stack.new_cache()
    if kind == "stack":
        stack(numbers(0), numbers(1), cache=cache)
        layers = list(zip(stack.layers, cache.layers, strict=True))
    else:
        stack.layers[1](numbers(0), numbers(1), cache=cache.layers[1])
        layers = [(stack.layers[1], cache.layers[1])]
    for layer, of_layer in layers:
        for part, right in zip(recordings(layer), of_layer, strict=True):
            assert part.calls.pop()["cache"] is right
    encoder = nn.Encoder(encoder_layer(), 2)
    cache = encoder.new_cache()
    encoder(numbers(0), is_causal=True, cache=cache)
    for layer, of_layer in zip(encoder.layers, cache.layers, strict=True):
        assert layer.self_attn.calls.pop()["cache"] is of_layer.self_attn


@pytest.mark.parametrize("option", ["mask", "valid_lens"])
def test_self_attention_passes_on_what_it_is_given(option: str) -> None:
    ta.manual_seed(2)
    module, x = nn.SelfAttention(D, 6).double(), numbers(0)
    value = OPTIONS[option](module)
    projected = [part(x) for part in (module.linear_q, module.linear_k, module.linear_v)]
    right = nn.DotProductAttention()(*projected, **{option: value})
    by_place = {"valid_lens": None, "mask": None, option: value}
    assert_same(module(x, **{option: value}).numpy(), right.numpy())
    assert_same(module(x, *by_place.values()).numpy(), right.numpy())
    assert abs(right - module(x)).max().item() > 1e-3
