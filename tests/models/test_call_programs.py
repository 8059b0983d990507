"""Random sequences of calls of a model with memory, against one call of everything."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gguf_writer import CHAT_TEMPLATE
from test_causal import LLAMA, kinds, needs_jinja, random_model

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import ShapeError
from tinyattn.generation import generate
from tinyattn.models import causal_files
from tinyattn.models.chat import chat_prompt
from tinyattn.models.sentence import pooled
from tinyattn.nn.int8 import Int8Linear


@kinds
@pytest.mark.parametrize("seed", range(6))
def test_calls_selections_and_refusals_in_any_order(kind: str, seed: int) -> None:
    rng, model = np.random.default_rng(seed), random_model(kind)
    ids = rng.integers(0, 40, (3, 2))
    cache = model.new_cache(length=int(rng.choice([0, 5, 32])))
    known = 0
    while ids.shape[1] < 30:
        kept = rng.random() < 0.5
        with ta.no_grad() if kept else ta.enable_grad():
            out = model(ids[:, known:], cache=cache)
        right = model(ids)[:, known:]
        np.testing.assert_allclose(out.numpy(), right.numpy(), rtol=1e-9, atol=1e-11)
        known = ids.shape[1]
        if rng.random() < 0.3:
            with pytest.raises(ShapeError):
                model(np.zeros((len(ids) + 1, 1), int), cache=cache)
        if rng.random() < 0.3:
            with pytest.raises((ShapeError, IndexError)):
                model(np.zeros((len(ids), 33 - known), int), cache=cache)
        assert cache.length == known
        if rng.random() < 0.6:
            rows = rng.integers(0, len(ids), rng.integers(1, 5))
            cache.select(rows)
            ids = ids[rows]
        ids = np.concatenate([ids, rng.integers(0, 40, (len(ids), rng.integers(1, 4)))], 1)


@kinds
@pytest.mark.parametrize("side", ["left", "right", "middle"])
def test_padded_prompts_that_are_selected_and_begun_again(kind: str, side: str) -> None:
    model, rng = random_model(kind), np.random.default_rng(5)
    ids, mask = rng.integers(1, 40, (3, 5)), np.ones((3, 5), bool)
    gaps = {"left": slice(0, 2), "right": slice(3, 5), "middle": slice(2, 4)}
    mask[1, gaps[side]] = False
    mask[2, gaps[side]] = [False, True] if side == "left" else [True, False]
    scores = model.next_scores(mask)
    for _ in range(2):  # of which the second begins again
        scores.start()
        rows = np.arange(3)
        for added, order in enumerate(([0, 1, 2], [2, 0, 1], [1, 1, 0])):
            if added:
                scores.select(order)
                rows = rows[order]
            sevens = np.full((3, added), 7)
            found = scores(ta.tensor(np.concatenate([ids[rows], sevens], 1)))
            for i, row in enumerate(rows):
                own = np.concatenate([ids[row][mask[row]], sevens[i]])[None]
                right = model(own)[0, -1].numpy()
                np.testing.assert_allclose(found[i].numpy(), right, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [(0, 0), (1, 2), (3, 4)])
def test_a_weight_that_is_not_finite_has_no_int8_numbers(wrong: float, place: tuple) -> None:
    weight = np.ones((4, 5), np.float32)
    weight[place] = wrong
    with pytest.raises(ValueError, match="not finite"):
        Int8Linear(ta.tensor(weight))


def test_tiny_negative_weights_keep_their_size_and_sign() -> None:
    layer = Int8Linear(ta.tensor(np.full((2, 3), -190 * 2.0**-149, np.float32)))
    assert layer.numbers.tolist() == [[-127] * 3] * 2


def test_an_id_of_probability_zero_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, ids in ((0.0, [1, 0]), (0.5, [2, 1]), (np.nextafter(1.0, 0.0), [2, 1])):
        stand_in = SimpleNamespace(random=lambda shape, number=number: np.full(shape, number))
        monkeypatch.setattr("tinyattn.base.random.generator", lambda stand_in=stand_in: stand_in)
        weights = ta.tensor([[0.0, 0.5, 0.5, 0.0], [0.5, 0.5, 0.0, 0.0]])
        assert weights.multinomial(1, replacement=True)[:, 0].tolist() == ids


def test_int8_layers_record_only_where_gradients_are_recorded() -> None:
    """They refused recorded tensors before a LoRA could learn beside them."""
    layer = Int8Linear(ta.tensor(np.ones((2, 3), np.float32)))
    x = ta.ones(1, 3, requires_grad=True)
    with ta.no_grad():
        assert layer(x).shape == (1, 2)
        assert not layer(x).requires_grad
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0, 2.0, 2.0]]


@needs_jinja
def test_the_first_message_alone_decides_on_the_system_message() -> None:
    def prompt(*roles: str) -> str:
        return chat_prompt(CHAT_TEMPLATE, [{"role": role, "content": "text"} for role in roles])

    own = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert prompt("user", "system", "user").count(own) == 1
    assert prompt("user", "assistant", "system").startswith(f"<|im_start|>system\n{own}")
    assert own not in prompt("system", "user")
    assert own not in prompt("system", "user", "system")
    assert prompt().count("<|im_start|>") == 1


def test_a_text_that_ends_within_a_character_is_shown_to_its_end() -> None:
    class Tokenizer:
        """Each id is a letter and the first byte of the next character."""

        def encode(self, text: str) -> SimpleNamespace:
            return SimpleNamespace(ids=[ord(letter) - 97 for letter in text])

        def decode(self, ids: list[int]) -> str:
            return "".join(chr(97 + i % 26) for i in ids) + "\ufffd"

    model = random_model("llama")
    model._new_tokenizer = Tokenizer
    for count in (1, 2, 5):
        text = "".join(model.generate_text("abc", count))
        assert len(text) == count + 1
        assert text.endswith("\ufffd")


@pytest.mark.parametrize("prompt", ["中文", "é", "a", "x中"])
def test_a_character_of_several_ids_before_the_text_is_not_shown(prompt: str) -> None:
    class Tokenizer:
        """Each byte is an id."""

        def encode(self, text: str) -> SimpleNamespace:
            return SimpleNamespace(ids=list(text.encode()))

        def decode(self, ids: list[int]) -> str:
            return bytes(ids).decode(errors="replace")

    model = ta.models.CausalLM(LLAMA | {"vocab_size": 256}).eval()
    model._new_tokenizer = Tokenizer
    ids = list(prompt.encode())
    longer = generate(model.next_scores(), [ids], len(ids) + 6, pad=-1)[0].tolist()
    shown = "".join(model.generate_text(prompt, 6))
    assert prompt + shown == Tokenizer().decode(longer)


def test_every_stop_of_a_config_ends_a_text() -> None:
    for stops in ([3, 5], [5], 5):
        config = causal_files.checked_config(LLAMA | {"eos_token_id": stops})
        assert causal_files.stops_of(config) == (stops if isinstance(stops, list) else [stops])
    with pytest.raises(ValueError, match="eos_token_id must be a token id"):
        causal_files.checked_config(LLAMA | {"eos_token_id": [3, "5"]})


def test_masks_and_buffers_of_older_folders_are_left_out() -> None:
    names = ["h.0.attn.bias", "h.0.attn.masked_bias", "a.rotary_emb.inv_freq", "lm_head.weight"]
    state = {name: ta.ones(1) for name in [*names, "h.0.attn.c_attn.bias"]}
    assert list(causal_files.used_tensors(state, True, "file")) == ["h.0.attn.c_attn.bias"]


def test_a_text_that_is_cut_within_its_prompt_has_no_mean() -> None:
    hidden = ta.ones(3, 6, 2)
    found = pooled(hidden, np.array([2, 4, 6]), ("mean",), 4)
    assert found.tolist() == [[0, 0], [0, 0], [1, 1]]
    assert pooled(hidden, None, ("mean", "max", "cls"), 5).shape == (3, 6)


def test_ended_samples_repeat_their_last_id_to_the_model_and_prompts_stay() -> None:
    seen: list[list[list[int]]] = []

    def scores(ids: ta.Tensor) -> ta.Tensor:
        seen.append(ids.tolist())
        out = np.zeros((len(ids), 4))
        out[:, 2] = 1
        return ta.tensor(out)

    found = generate(scores, [[1, -1, -1, -1], [3, 2, 3, 1]], 6, stop=2, pad=-1)
    assert found.tolist() == [[1, 2, -1, -1, -1], [3, 2, 3, 1, 2]]
    assert [row[1] for row in seen[-1:]] == [[3, 2, 3, 1]]
    found = generate(scores, [[1, -1, -1], [3, 0, 1]], 3, pad=-1)
    assert found.tolist() == [[1, 2, 2], [3, 0, 1]]
    assert seen[-1][1] == [3, 0]


def test_ties_at_the_edge_of_top_k_take_the_first_alone() -> None:
    ta.manual_seed(0)
    logits = np.array([[1.0, 3.0, 3.0, 3.0, 0.0]])

    def scores(ids: ta.Tensor) -> ta.Tensor:
        return ta.tensor(np.repeat(logits, len(ids), 0))

    for k, allowed in ((1, {1}), (2, {1, 2}), (3, {1, 2, 3}), (4, {0, 1, 2, 3})):
        prompt = np.ones((200, 1), int)
        drawn = generate(scores, prompt, 2, temperature=1.0, top_k=k, pad=-1)[:, 1].tolist()
        assert set(drawn) == allowed


def test_lora_is_taken_out_bit_by_bit_and_freezes_what_it_does_not_adapt() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    before = [x.numpy() for x in model.parameters()]
    (lora,) = nn.LoRA.insert(model, ["2"], rank=2)
    assert [x.requires_grad for x in model.parameters()].count(True) == 2
    lora.B.data = ta.tensor(np.random.default_rng(0).standard_normal(lora.B.shape) * 300).float()
    x = ta.tensor(np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32))
    apart = model(x).numpy()
    for _ in range(3):
        lora.merge()
        lora.merge()
        np.testing.assert_allclose(model(x).numpy(), apart, rtol=1e-3, atol=0.1)
        lora.unmerge()
        lora.unmerge()
    after = [x.numpy() for name, x in model.named_parameters() if name[-1] not in "AB"]
    assert all(map(np.array_equal, before, after))
