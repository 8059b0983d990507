"""Texts that a language model writes: whole characters, words that stop them, and their ends."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from common import rng_of
from test_causal import LLAMA, ids_of, random_model

import tinyattn as ta
from tinyattn.errors import MaskError
from tinyattn.models import CausalLM
from tinyattn.models.causal import unfinished

END = 255  # which is no byte of UTF-8
TEXT = "One é, 二 and 🙂🙂. Two"
PROMPTS = ("a", "é", "二", "🙂", "ab", "bé", "🙂🙂🙂", "a🙂bc", "aé二🙂", "二二二二二",
           "abcdefghijklm", "🙂abcdefg", "é🙂abcdef", "二abcdefghi", "🙂二🙂", "二🙂🙂", "é二🙂é",
           "🙂🙂二", "🙂éé🙂", "éééééé")  # fmt: skip


class Bytes:
    """A tokenizer without a package: the ids of a text are its bytes."""

    def get_vocab_size(self):
        return 256

    def encode(self, text):
        return SimpleNamespace(ids=[*text.encode()])

    def decode(self, ids):
        return bytes(i for i in ids if i != END).decode("utf-8", "replace")

    def token_to_id(self, word):
        return {"<end>": END, "<first>": 0}.get(word)


class Fallback(Bytes):
    """As those of SentencePiece: a run of bytes of other signs than ASCII is a text, or none is."""

    def decode(self, ids):
        runs = re.findall(rb"[\x80-\xff]+|[\x00-\x7f]", bytes(i for i in ids if i != END))
        return "".join(map(self.text_of, runs))

    @staticmethod
    def text_of(run):
        try:
            return run.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(run)


def writer(tokenizer=Bytes, **more):
    sizes = {"vocab_size": 256, "max_position_embeddings": 200, "eos_token_id": END}
    model = CausalLM(LLAMA | sizes | more)
    model.tokenizer = tokenizer()
    return model


def scripted(text, start):
    """Scores by which the ids after `start` are these, or the bytes of a text and the end."""
    ids = [*text.encode(), END] if isinstance(text, str) else text
    return lambda x: ta.tensor(np.eye(256, dtype=np.float32)[[ids[x.shape[1] - start]]])


def pieces_of(model, prompt, text, *limit, **options):
    return list(model.continued([*prompt], scripted(text, len(prompt)), *limit, **options))


# Whole characters


@pytest.mark.parametrize("tokenizer", [Bytes, Fallback])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_each_character_is_a_piece_whatever_stands_before_it(prompt, tokenizer):
    for text in (TEXT, f"é{TEXT}", f"🙂{TEXT}"):
        assert pieces_of(writer(tokenizer), prompt.encode(), text) == [*text]


@pytest.mark.parametrize("before", ["", "a", "é", "🙂abc", "abcdefghijklmnop"])
@pytest.mark.parametrize(("sign", "number"), [("é", 1), ("二", 1), ("二", 2), ("🙂", 1), ("🙂", 3)])
def test_a_prompt_may_end_within_a_character(sign, number, before):
    prompt, left = before.encode() + sign.encode()[:number], sign.encode()[number:]
    found = pieces_of(writer(), prompt, [*left, *b" x", END])
    assert "".join(found) == f"{sign} x"


@pytest.mark.parametrize("most", range(1, 9))
def test_bytes_of_a_character_that_has_no_end_are_shown_at_last(most):
    """The number of ids ends a text also within a character."""
    text = "é🙂二"
    found = pieces_of(writer(), b"a", text, most)
    assert "".join(found) == text.encode()[:most].decode("utf-8", "replace")
    assert found[: len(found) - 1] == [*text][: len(found) - 1]


@pytest.mark.parametrize("most", [1, 2, 5, 100, 256])
@pytest.mark.parametrize("length", [1, 7, 8, 9, 12, 13, 150, 198, 199])
def test_a_text_has_as_many_ids_as_are_asked_for_and_as_there_are_positions(length, most):
    found = pieces_of(writer(), b"x" * length, "y" * 300, most)
    assert found == ["y"] * min(most, 200 - length)


# Words that stop a text


@pytest.mark.parametrize(
    ("stop", "pieces"),
    [
        (["."], ["O", "n", "e", " ", "1"]),
        (["1."], ["O", "n", "e", " "]),
        (["ne"], ["O"]),
        (["O"], []),
        (["One 1. Two"], []),
        (["Two", "1"], ["O", "n", "e", " "]),
        (["1", "Two"], ["O", "n", "e", " "]),
        (["e 1", "ne 1"], ["O"]),
        (["ne 1", "e 1"], ["O"]),
        (["Two!"], ["O", "n", "e", " ", "1", ".", " ", "Two"]),
        (["nx"], ["O", "ne", " ", "1", ".", " ", "T", "w", "o"]),
        (["e 2"], ["O", "n", "e 1", ".", " ", "T", "w", "o"]),
        (["x"], ["O", "n", "e", " ", "1", ".", " ", "T", "w", "o"]),
    ],
)
def test_a_word_that_stops_a_text_is_left_out_and_what_may_become_one_waits(stop, pieces):
    for kind in (list, tuple, set):
        assert pieces_of(writer(), b"a", "One 1. Two", stop=kind(stop)) == pieces


def test_a_word_of_the_prompt_stops_nothing():
    assert "".join(pieces_of(writer(), b"One. ", "Two", stop=["."])) == "Two"
    assert "".join(pieces_of(writer(), b"One.", ".Two", stop=[".."])) == ".Two"


def test_what_may_be_the_beginning_of_a_word_is_its_longest_beginning():
    words, rng = ("ab", "aab", "abab", "b", "bba"), rng_of(0)
    for _ in range(200):
        text = "".join("ab"[i] for i in rng.randint(0, 2, rng.randint(0, 6)))
        stop = [word for word in words if rng.randint(0, 2)]
        begun = [n for word in stop for n in range(1, len(word)) if text.endswith(word[:n])]
        assert unfinished(text, stop) == max(begun, default=0), (text, stop)


@pytest.mark.parametrize("before", ["", "One "])
def test_a_sign_for_what_is_no_character_holds_nothing_back_behind_it(before):
    """A text may have it, and bytes that make no character become one."""
    broken = [*before.encode(), 0xC3, *b"Two", END]
    expected = [*before, "\ufffdT", "w", "o"]
    assert pieces_of(writer(), b"a", broken) == expected
    assert pieces_of(writer(), b"a", before + "\ufffdTwo") == expected


@pytest.mark.parametrize("end", ["id", "limit", "positions"])
def test_what_waits_is_shown_at_every_end(end):
    """The beginning of a word that stops a text, and bytes that make no character."""
    for text, stop in (
        ("One T", ["Two", "Three"]),
        (b"One \xf0\x9f", []),
        (b"One T\xc3", ["T\xc3"]),
    ):
        raw = text.encode() if isinstance(text, str) else text
        prompt = bytes(200 - len(raw) if end == "positions" else 1)
        limit = len(raw) if end == "limit" else 100
        shown = pieces_of(writer(), prompt, [*raw, END], limit, stop=stop)
        assert "".join(shown) == raw.decode("utf-8", "replace")


# Ends


@pytest.mark.parametrize(
    ("said", "word", "ends"),
    [
        (END, None, [END]),
        ([7, END], None, [7, END]),
        (None, "<end>", [END]),
        (None, "<first>", [0]),
        ([7, 9], "<end>", [7, 9, END]),
        ([7, END], "<end>", [7, END]),
        (0, "<first>", [0]),
        (0, None, [0]),
        (7, "unknown", [7]),
        (None, None, []),
    ],
)
def test_a_text_ends_at_the_ids_of_the_config_and_of_the_word_of_the_tokenizer(said, word, ends):
    model = writer(eos_token_id=said)
    model.special_words = {"eos_token": word}
    assert model.end_ids == ends
    for end in (0, 7, 9, 65, END):
        found = "".join(pieces_of(model, b"A", [66, end, 67], 3))
        assert found == ("B" if end in ends else model.tokenizer.decode([66, end, 67])), end
    without = CausalLM(LLAMA | {"eos_token_id": said})  # of a tokenizer
    without.special_words = {"eos_token": word}
    assert without.end_ids == ([] if said is None else [*np.ravel(said)])


@pytest.mark.parametrize("word", ["", None, "unknown"])
def test_another_special_word_ends_no_text(word):
    model = writer(eos_token_id=7)
    others = dict.fromkeys(
        ("bos_token", "pad_token", "cls_token", "sep_token", "unk_token"), "<end>"
    )
    for words in (others, others | {"eos_token": word}):
        model.special_words = words
        assert model.end_ids == [7]


# Positions


@pytest.mark.parametrize("positions", [1, 2, 3, 4, 7, 8, 32])
def test_the_fewest_halves_of_the_positions_are_forgotten(positions):
    scores = CausalLM(LLAMA | {"max_position_embeddings": positions}).next_scores()
    half = (positions + 1) // 2
    for length in range(1, 4 * positions + 3):
        expected = next(n for n in range(0, 99 * half, half) if length - n <= positions)
        assert scores.first_read(length) == expected


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_prompts_are_those_of_their_mask(kind):
    model, mask = random_model(kind), np.ones((3, 5), bool)
    for shape in ((2, 5), (4, 6), (1, 5), (3, 4), (3, 1), (1, 1)):
        said = rf"^the mask is of prompts \(3, 5\), and the ids are \({shape[0]}, {shape[1]}\)$"
        with pytest.raises(MaskError, match=said):
            model.next_scores(mask)(ids_of(*shape))
    assert model.next_scores(mask)(ids_of(3, 5)).shape == (3, 40)
    for wrong in (mask[None], mask & (np.arange(3) < 2)[:, None], mask[:, :0]):
        said = r"^the mask of prompts is \(B, P\), with an id in each prompt$"
        with pytest.raises(MaskError, match=said):
            model.next_scores(wrong)
