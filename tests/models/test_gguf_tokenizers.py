"""Tokenizers of GGUF files: which pieces are joined, cut out, added, and shown again."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from common import rng_of
from gguf_writer import byte_words, llama_settings
from test_causal import needs_tokenizers

from tinyattn.models import causal_files

USUAL, UNKNOWN, CONTROL, OWN, UNUSED, BYTE = range(1, 7)
BYTES = {f"<0x{i:02X}>": BYTE for i in range(256)}
FIRST = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL} | BYTES


def settings_of(pieces, scores=None, **more):
    """Of a tokenizer as Llama 2 has it. scores: piece -> score, 0 for the others."""
    settings = {
        "model": "llama",
        "tokens": [*pieces],
        "token_type": [*pieces.values()],
        "scores": [float((scores or {}).get(piece, 0)) for piece in pieces],
    }
    return {f"tokenizer.ggml.{name}": x for name, x in (settings | more).items()}


def tokenizer_of(pieces, scores=None, **more):
    return causal_files.gguf_tokenizer(settings_of(pieces, scores, **more))


def joined(text, scores):
    """The pieces of a text by the rule: of all pairs the one with the highest score, then anew."""
    pieces = list(text)
    while True:
        pairs = [(scores.get(a + b), i) for i, (a, b) in enumerate(itertools.pairwise(pieces))]
        pairs = [(-score, i) for score, i in pairs if score is not None]
        if not pairs:
            return pieces
        at = min(pairs)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


# Scores


@needs_tokenizers
@pytest.mark.parametrize("seed", range(6))
def test_the_pair_with_the_highest_score_is_joined_first(seed):
    """The order of the ids is another one, and no two scores are the same."""
    rng = rng_of(seed)
    letters = "▁abc"
    longer = ["".join(x) for n in (2, 3) for x in itertools.product(letters, repeat=n)]
    longer = [longer[i] for i in rng.permutation(len(longer))[:30]]
    order = rng.permutation(30)
    scores = {word: -1.0 - order[i] for i, word in enumerate(longer)}
    pieces = FIRST | dict.fromkeys([*letters, *longer], USUAL)
    tokenizer = tokenizer_of(pieces, scores, add_space_prefix=False)
    for _ in range(40):
        text = "".join(rng.choice(list(" abc"), size=rng.randint(1, 12)))
        assert tokenizer.encode(text).tokens == joined(text.replace(" ", "▁"), scores), text


@needs_tokenizers
@pytest.mark.parametrize(
    ("scores", "right"),
    [
        ({"ab": 2, "bc": 1}, ["ab", "c"]),
        ({"ab": 1, "bc": 2}, ["a", "bc"]),
        ({"ab": -1, "bc": -2}, ["ab", "c"]),
        ({"ab": -2, "bc": -1}, ["a", "bc"]),
        ({"ab": 0, "bc": -0.5}, ["ab", "c"]),
        ({"ab": -1e30, "bc": -1e29}, ["a", "bc"]),
    ],
)
def test_scores_count_in_either_order_of_the_ids(scores, right):
    for words in (["a", "b", "c", "ab", "bc"], ["bc", "ab", "c", "b", "a"]):
        pieces = FIRST | dict.fromkeys(words, USUAL)
        tokenizer = tokenizer_of(pieces, scores, add_space_prefix=False)
        assert tokenizer.encode("abc").tokens == right


# Texts and back

TEXTS = ["", " ", "   ", "a", " a", "a ", "  a  ", "a b", "a  b ", "é", "你 好 ", "\U0001f642 ",
         "\n", " \n ", "\ta\t", "a\u00a0", "\u2581", "a\u2581 ", "\0", "e\u0301 "]  # fmt: skip


@needs_tokenizers
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize("prefix", [True, False, None])
def test_ids_of_a_text_are_that_text_again(text, prefix):
    """With its spaces at both ends. The mark that stands for a space becomes one, as it must."""
    more = {} if prefix is None else {"add_space_prefix": prefix}
    pieces = FIRST | dict.fromkeys(["▁", "a", "b", "▁a", "▁▁"], USUAL)
    tokenizer = tokenizer_of(pieces, {"▁a": -1, "▁▁": -2}, **more)
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text.replace("▁", " ")
    first = tokenizer.encode("b").tokens
    assert first == (["b"] if prefix is False else ["▁", "b"])


@needs_tokenizers
@pytest.mark.parametrize("cut", list(causal_files.CUTS))
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_ids_of_bytes_are_that_text_again(text, cut):
    """Qwen's tokenizers alone make one letter of a letter and its accent."""
    tokenizer = causal_files.gguf_tokenizer(llama_settings(**{"tokenizer.ggml.pre": cut}))
    is_qwen = cut in ("qwen2", "deepseek-r1-qwen")
    right = unicodedata.normalize("NFC", text) if is_qwen else text
    found = tokenizer.encode(text).ids
    assert tokenizer.decode(found) == right
    letters = byte_words()
    pieces = "".join(letters[byte] for byte in right.encode())
    assert "".join(tokenizer.id_to_token(i) for i in found) == pieces


# Types of pieces


def with_words(kind, cut="smollm"):
    """A tokenizer with a piece of each type that is named after it."""
    types = {"<unk>": UNKNOWN, "<control>": CONTROL, "<own>": OWN, "<unused>": UNUSED}
    if kind == "llama":
        return tokenizer_of(FIRST | types | dict.fromkeys("▁ab", USUAL), add_space_prefix=False)
    words = [*byte_words(), *types]
    settings = {"tokens": words, "token_type": [USUAL] * 256 + [*types.values()], "merges": []}
    settings |= {"model": "gpt2", "pre": cut}
    return causal_files.gguf_tokenizer({f"tokenizer.ggml.{n}": x for n, x in settings.items()})


@needs_tokenizers
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize(
    ("word", "is_whole", "is_shown"),
    [("<control>", True, False), ("<own>", True, True), ("<unused>", False, True)],
)
def test_a_type_says_whether_a_piece_is_found_whole_and_shown(kind, word, is_whole, is_shown):
    tokenizer = with_words(kind)
    ids, number = tokenizer.encode(f"a{word}b").ids, tokenizer.token_to_id(word)
    assert (number in ids) == is_whole
    assert (len(ids) == 3) == is_whole
    assert tokenizer.decode(ids) == (f"a{word}b" if is_shown else "ab")
    assert tokenizer.decode(ids, skip_special_tokens=False) == f"a{word}b"


@needs_tokenizers
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_pieces_of_control_and_of_users_keep_their_ids(kind):
    tokenizer = with_words(kind)
    found = {token.content: (i, token) for i, token in tokenizer.get_added_tokens_decoder().items()}
    first = {"<s>": True, "</s>": True} if kind == "llama" else {}
    special = {"<control>": True, "<own>": False} | first
    assert {word: token.special for word, (_, token) in found.items()} == special
    for word, (i, token) in found.items():
        assert i == tokenizer.get_vocab(with_added_tokens=False)[word]
        options = (token.normalized, token.lstrip, token.rstrip, token.single_word)
        assert options == (False,) * 4
    assert tokenizer.get_vocab_size() == tokenizer.get_vocab_size(with_added_tokens=False)


@needs_tokenizers
@pytest.mark.parametrize("kind", [CONTROL, OWN])
def test_a_piece_that_is_added_may_hold_spaces(kind):
    """It is found before spaces become another letter, and before a letter gets its accent."""
    pieces = FIRST | {"<x y>": kind} | dict.fromkeys("▁ab", USUAL)
    tokenizer = tokenizer_of(pieces, add_space_prefix=False)
    assert tokenizer.encode("a<x y>b").tokens == ["a", "<x y>", "b"]
    settings = llama_settings(**{"tokenizer.ggml.pre": "qwen2"})
    settings["tokenizer.ggml.tokens"] = [*settings["tokenizer.ggml.tokens"], "<e\u0301>"]
    settings["tokenizer.ggml.token_type"] = [*settings["tokenizer.ggml.token_type"], kind]
    tokenizer = causal_files.gguf_tokenizer(settings)
    assert tokenizer.encode("a<e\u0301>b").ids == [100, 260, 101]


@needs_tokenizers
def test_letters_without_a_piece_become_bytes_or_the_unknown_piece():
    with_bytes = tokenizer_of(FIRST | {"a": USUAL}, add_space_prefix=False)
    assert with_bytes.encode("aéa").tokens == ["a", "<0xC3>", "<0xA9>", "a"]
    without = {"<s>": CONTROL, "a": USUAL, "<any>": UNKNOWN}
    assert tokenizer_of(without, add_space_prefix=False).encode("aé你a").tokens == [
        "a",
        "<any>",
        "a",
    ]
    del without["<any>"]
    assert tokenizer_of(without, add_space_prefix=False).encode("aéa").tokens == ["a", "a"]


# The first token


@needs_tokenizers
@pytest.mark.parametrize("said", [True, False, None])
@pytest.mark.parametrize("first", [0, 1, None])
@pytest.mark.parametrize("cut", ["llama", *causal_files.CUTS])
def test_a_text_begins_with_the_first_token_where_the_file_or_its_kind_says_so(cut, said, first):
    more = {"bos_token_id": first, "add_bos_token": said}
    more = {name: x for name, x in more.items() if x is not None}
    if cut == "llama":
        tokenizer = tokenizer_of(FIRST | {"▁": USUAL, "a": USUAL}, **more)
    else:
        settings = llama_settings(**{"tokenizer.ggml.pre": cut})
        settings |= {f"tokenizer.ggml.{name}": x for name, x in more.items()}
        tokenizer = causal_files.gguf_tokenizer(settings)
    is_there = cut in ("llama", "llama-bpe") if said is None else said
    alone = tokenizer.encode("a", add_special_tokens=False).ids
    begin = [first] if is_there and first is not None else []
    assert tokenizer.encode("a").ids == [*begin, *alone]
    assert 0 < len(alone) <= 2
    assert first not in alone


# Cuts

ENGLISH = "it|'s| I|'ve| we|'ll| you|'re| he|'d| I|'m| don|'t| IT|"
# Large letters after an apostrophe, digits, spaces before and after lines, letters of others.
CUT = {
    "smollm": "'|S| |1|2|3|4|5| x|2|y| ...!?|\n \n\n\t| a|_|b| | é你好| |½|(|a|)|\r\n | c|  ",
    "qwen2": "'S| |1|2|3|4|5| x|2|y| ...!?\n| \n\n|\t| a|_b| | é你好| |½|(a|)\r\n| | c|  ",
    "llama-bpe": "'S| |123|45| x|2|y| ...!?\n| \n\n|\t| a|_b| | é你好| |½|(a|)\r\n| | c|  ",
}
CUT["deepseek-r1-qwen"] = CUT["qwen2"]


@needs_tokenizers
@pytest.mark.parametrize("cut", list(causal_files.CUTS))
def test_words_end_where_the_kind_of_a_tokenizer_says(cut):
    pieces = (ENGLISH + CUT[cut]).split("|")
    text = "".join(pieces)
    tokenizer = causal_files.gguf_tokenizer(llama_settings(**{"tokenizer.ggml.pre": cut}))
    found = tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in found] == pieces


@needs_tokenizers
@pytest.mark.parametrize("cut", list(causal_files.CUTS))
def test_a_word_to_which_no_pairs_lead_is_found_whole_by_llama_3_alone(cut):
    """All find the pairs in the order of the merges, where no word is the whole."""
    words = [*byte_words(), "bc", "ab", "abc", "abcd"]
    settings = {"tokens": words, "token_type": [USUAL] * len(words), "merges": ["b c", "a b"]}
    settings |= {"model": "gpt2", "pre": cut, "add_bos_token": False}
    tokenizer = causal_files.gguf_tokenizer({f"tokenizer.ggml.{n}": x for n, x in settings.items()})
    for text, pieces in (("abc", "a bc"), ("abcd", "a bc d"), ("abd", "ab d"), ("abcc", "a bc c")):
        is_whole = cut == "llama-bpe" and text in words
        assert tokenizer.encode(text).tokens == ([text] if is_whole else pieces.split())


@needs_tokenizers
def test_a_kind_of_tokenizer_that_is_unknown_is_refused():
    known = "['smollm', 'qwen2', 'deepseek-r1-qwen', 'llama-bpe']"
    for kind, cut in (("bert", "qwen2"), ("gpt2", None), ("gpt2", "gpt-2"), (None, None)):
        settings = {"tokenizer.ggml.model": kind, "tokenizer.ggml.pre": cut}
        with pytest.raises(ValueError, match=r"^tokenizer\.ggml\.model must be") as caught:
            causal_files.gguf_tokenizer(llama_settings(**settings))
        assert str(caught.value) == (
            f"tokenizer.ggml.model must be llama, or gpt2 with pre one of {known}, got "
            f"{[kind, cut]}: give the model another one by model.tokenizer = ..."
        )


@needs_tokenizers
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("name", ["tokens", "token_type", "scores", "merges"])
@pytest.mark.parametrize("wrong", [..., None, "a", 3])
def test_a_list_of_a_tokenizer_that_is_none_or_not_there_is_named(kind, name, wrong):
    settings = settings_of(FIRST) if kind == "llama" else llama_settings()
    settings = settings | {f"tokenizer.ggml.{name}": wrong}
    if wrong is ...:
        del settings[f"tokenizer.ggml.{name}"]
    if name == {"llama": "merges", "gpt2": "scores"}[kind]:  # it has none
        assert causal_files.gguf_tokenizer(settings).get_vocab_size() in (259, 260)
        return
    with pytest.raises(ValueError, match=rf"^tokenizer\.ggml\.{name} must be a list, got "):
        causal_files.gguf_tokenizer(settings)
