"""What the files of models are read and written with: rows of heads, joined corrections, names."""

from __future__ import annotations

import hashlib
import inspect
import itertools

import numpy as np
import pytest
from common import assert_equal, rng_of

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError
from tinyattn.models import (
    BertEncoder,
    CausalLM,
    SentenceEncoder,
    SequenceClassifier,
    adapters,
    causal_files,
    published,
    sentence,
)
from tinyattn.models.causal import CausalScores
from tinyattn.models.chat import Conversation
from tinyattn.models.published import Part
from tinyattn.models.sentence_files import Dense

# Tensors


@pytest.mark.parametrize("pairs", [0, 2, 4, 6])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("rows", [[12], [12, 24], [24, 12, 12]], ids=str)
@pytest.mark.parametrize("more", [(), (5,)], ids=["bias", "weight"])
def test_a_part_holds_its_parameters_one_below_the_other(more, rows, is_transposed, pairs):
    """Halves of a head there are neighbours here, and what is written is read again."""
    part = Part({f"x{i}": (n, *more) for i, n in enumerate(rows)}, is_transposed, pairs)
    shape = (sum(rows), *more)
    assert part.shape == (shape[::-1] if is_transposed else shape)
    theirs = rng_of(0).normal(size=part.shape)
    ours = part.to_ours(theirs)
    assert [*ours] == [*part.ours]
    assert [x.shape for x in ours.values()] == [*part.ours.values()]
    plain = theirs.T if is_transposed else theirs
    joined = np.concatenate([*ours.values()])
    for row in range(sum(rows)):
        head, place = divmod(row, pairs or 1)
        source = row if not pairs else head * pairs + place % 2 * (pairs // 2) + place // 2
        assert_equal(joined[row], plain[source])
    again = part.to_theirs({name: ta.tensor(x, dtype=ta.float64) for name, x in ours.items()})
    assert again.shape == part.shape
    assert_equal(again, theirs)


@pytest.mark.parametrize("name", ["a", "model.b"])
def test_numbers_of_a_file_are_floating_and_finite(name):
    for dtype in (np.float16, np.float32, np.float64):
        published.check_array(np.array([1.0, -np.finfo(dtype).max], dtype), name, "file")
        for wrong in (np.nan, np.inf, -np.inf):
            with pytest.raises(CheckpointError) as caught:
                published.check_array(np.array([1.0, wrong], dtype), name, "file")
            assert str(caught.value) == f"file: {name} has numbers that are not finite"
    for dtype in (np.int8, np.uint64, np.bool_):
        with pytest.raises(CheckpointError) as caught:
            published.check_array(np.ones(2, dtype), name, "file")
        said = f"file: {name} is {np.dtype(dtype)}, expected floating numbers"
        assert str(caught.value) == said
    published.check_array(np.zeros((0, 3), np.float32), name, "file")


def test_a_head_that_is_tied_is_compared_only_where_both_are_there():
    x, y = ta.tensor([[1.0, 2.0]]), ta.tensor([[1.0, 2.5]])
    for state in ({}, {"h": x}, {"w": x}, {"h": x, "w": x}, {"h": x, "w": ta.tensor(x.numpy())}):
        published.check_tied(state, "h", "w", "file")
    with pytest.raises(CheckpointError, match=r"^file: h differs from w, and config\.json says"):
        published.check_tied({"h": x, "w": y}, "h", "w", "file")


def test_a_sha256_is_that_of_the_whole_file(tmp_path):
    path, content = tmp_path / "x", b"a" * 3_000_000 + b"b"
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    for right in (None, digest, digest.upper()):
        published.check_sha256(path, right)
    wrong = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    with pytest.raises(CheckpointError) as caught:
        published.check_sha256(path, wrong)
    assert str(caught.value) == f"{path} has the sha256 {digest}, expected {wrong}"


# Adapters

NAMES = ("layers.0.q_proj", "layers.1.q_proj", "layers.0.k_proj", "q_proj", "xq_proj", "lm_head")


@pytest.mark.parametrize(
    ("said", "right"),
    [
        (None, []),
        ([], []),
        (["q_proj"], [0, 1, 3]),
        (["k_proj", "lm_head"], [2, 5]),
        (["lm_head", "k_proj"], [2, 5]),
        (["nobody", "k_proj", "0.q_proj"], [0, 2]),
        (("lm_head", "1.q_proj", "q_proj"), [0, 1, 3, 5]),
        (["0.q_proj"], [0]),
        (["layers.1.q_proj"], [1]),
        ("q_proj", [3]),
        (r".*\.q_proj", [0, 1]),
        (r"layers\.0\..*", [0, 2]),
        (r".*q_proj|lm_head", [0, 1, 3, 4, 5]),
    ],
)
def test_matrices_are_named_by_their_ends_or_by_an_expression_of_the_whole(said, right):
    assert [i for i, name in enumerate(NAMES) if adapters.is_named(said, name)] == right


@pytest.mark.parametrize(
    ("patterns", "right"),
    [
        (None, [8] * 6),
        ({}, [8] * 6),
        ({"q_proj": 1}, [1, 1, 8, 1, 8, 8]),
        ({"layers.1.q_proj": 1, "q_proj": 2}, [2, 1, 8, 2, 8, 8]),
        ({"q_proj": 2, "layers.1.q_proj": 1}, [2, 2, 8, 2, 8, 8]),
        ({r"layers\.\d.(q|k)_proj": 0}, [0, 0, 0, 8, 8, 8]),
        ({"q": 1, "layers": 2}, [8] * 6),
    ],
)
def test_the_first_pattern_that_a_name_ends_with_gives_its_value(patterns, right):
    config = {"r": 8, "rank_pattern": patterns, "alpha_pattern": {"lm_head": 5}}
    assert [adapters.of_pattern(config, "rank_pattern", name, "r") for name in NAMES] == right
    assert adapters.of_pattern({}, "rank_pattern", "x", "r") is None
    with pytest.raises(ValueError, match=r"^rank_pattern must be an object, got "):
        adapters.of_pattern({"rank_pattern": [1]}, "rank_pattern", "x", "r")


def lora_of(rng, inputs, outputs, rank, scale=0.5, a=None):
    lora = nn.LoRA(nn.Linear(inputs, outputs), rank, scale)
    lora.A = nn.Parameter(rng.normal(size=(rank, inputs)).astype(np.float32)) if a is None else a
    lora.B = nn.Parameter(rng.normal(size=(outputs, rank)).astype(np.float32))
    return lora


@pytest.mark.parametrize(
    "there", [x for x in itertools.product([0, 1], repeat=3) if any(x)], ids=str
)
@pytest.mark.parametrize("is_shared", [False, True])
def test_corrections_of_one_matrix_are_the_product_of_what_is_written(is_shared, there):
    rng, sizes = rng_of(5), (4, 2, 6)
    part = Part({f"{name}.weight": (n, 3) for name, n in zip("qkv", sizes, strict=True)})
    assert adapters.places(part) == ["q", "k", "v"]
    shared = nn.Parameter(rng.normal(size=(2, 3)).astype(np.float32)) if is_shared else None
    loras = [
        lora_of(rng, 3, n, 2 if is_shared else 1 + i, a=shared) if one else None
        for i, (n, one) in enumerate(zip(sizes, there, strict=True))
    ]
    a, b, scale = adapters.joined("qkv", part, loras)
    assert scale == 0.5
    found = [x for x in loras if x is not None]
    ranks = 2 if is_shared else sum(len(x.A) for x in found)
    assert a.shape == (ranks, 3)
    assert b.shape == (12, ranks)
    right = [np.zeros((n, 3)) if x is None else (x.B @ x.A).numpy()
             for n, x in zip(sizes, loras, strict=True)]  # fmt: skip
    np.testing.assert_allclose(b @ a, np.concatenate(right), rtol=1e-5, atol=1e-6)
    if sum(there) > 1:
        found[-1].scale = 0.75
        with pytest.raises(ValueError, match=r"^qkv is one matrix in a file, so its LoRAs have on"):
            adapters.joined("qkv", part, loras)


# Ends, and tokens of several settings


def test_tokens_are_those_that_are_added_by_their_ids_and_then_the_special_ones():
    words = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
             "mask_token")  # fmt: skip
    settings = {name: f"<{name}>" for name in reversed(words)}
    settings["added_tokens_decoder"] = {"10": {"content": "c"}, "9": {"content": "b", "special": 0}}
    settings["additional_special_tokens"] = ["x", {"content": "y", "lstrip": True}]
    settings["extra_special_tokens"] = {"image": "z"}
    found = causal_files.tokens_of(settings)
    assert found[:2] == [{"content": "b", "special": 0}, {"content": "c"}]
    right = [{"content": f"<{name}>", "special": True} for name in words]
    right += [{"content": "x", "special": True}, {"content": "y", "lstrip": True, "special": True}]
    assert found[2:] == [*right, {"content": "z", "special": True}]
    assert causal_files.tokens_of({"eos_token": None, "extra_special_tokens": None}) == []
    assert causal_files.tokens_of({"extra_special_tokens": ["e"]}) == [
        {"content": "e", "special": True}
    ]


def test_the_words_of_a_chat_and_its_template_come_from_their_places(tmp_path):
    names = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
             "mask_token")  # fmt: skip
    settings = {name: f"<{name}>" if i % 2 else {"content": f"<{name}>"}
                for i, name in enumerate(names)}  # fmt: skip
    template, words = causal_files.chat_settings(tmp_path, settings)
    assert template is None
    assert words == {name: f"<{name}>" for name in names}
    several = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    for said, right in (("one", "one"), (several, "b"), (several[:1], None), ([], None)):
        assert causal_files.chat_settings(tmp_path, {"chat_template": said}) == (right, {})
    (tmp_path / "chat_template.jinja").write_text("of the file")
    assert causal_files.chat_settings(tmp_path, {"chat_template": "one"})[0] == "of the file"


# Pooling


@pytest.mark.parametrize("skipped", [0, 1, 2])
@pytest.mark.parametrize("lens", [None, [4, 3], [3, 4]], ids=str)
def test_poolings_are_joined_in_the_order_in_which_they_are_said(lens, skipped):
    hidden = ta.tensor(rng_of(1).normal(size=(2, 4, 3)))
    rows = [hidden.numpy()[i, skipped : 4 if lens is None else lens[i]] for i in range(2)]
    by = {"mean": lambda x: x.mean(0), "max": lambda x: x.max(0), "cls": lambda x: x[0]}
    for count in (1, 2, 3):
        for modes in itertools.permutations(by, count):
            right = np.stack([np.concatenate([by[mode](x) for mode in modes]) for x in rows])
            found = sentence.pooled(hidden, lens, modes, skipped).numpy()
            np.testing.assert_allclose(found, right, rtol=1e-6)


# Calls


def test_defaults_of_what_reads_and_makes_models():
    def of(function):
        parameters = inspect.signature(function).parameters.values()
        return {x.name: x.default for x in parameters if x.default is not x.empty}

    call = {"valid_lens": None, "mask": None, "token_types": None}
    assert of(BertEncoder.forward) == of(SequenceClassifier.forward) == call
    assert of(CausalLM.forward) == of(CausalLM.hidden) == {"mask": None, "cache": None}
    assert of(CausalLM.next_scores) == of(CausalScores) == {"mask": None, "length": 0}
    assert of(CausalLM.new_cache) == {"length": 0}
    assert of(CausalLM.quantize) == {"kind": "int8"}
    assert of(CausalLM.generate_text) == {"max_new_tokens": 256}
    assert of(CausalLM.continued) == {"max_new_tokens": 256, "stop": ()}
    assert of(CausalLM.chat) == of(Conversation) == {"messages": ()}
    assert of(CausalLM.load_adapter) == {"name": "default"}
    for make in (BertEncoder, SequenceClassifier, CausalLM, SentenceEncoder):
        assert of(make.from_pretrained) == {"sha256": None}
    assert of(CausalLM.from_gguf) == {"sha256": None}
    assert of(SentenceEncoder) == {
        "max_length": 256, "pooling": "mean", "include_prompt": True, "head": None, "settings": None
    }  # fmt: skip
    assert of(SentenceEncoder.embed) == {"valid_lens": None, "prompt_length": 0}
    assert of(SentenceEncoder.encode) == {"batch_size": 32, "prompt_name": None, "prompt": None}
    assert of(Dense) == {"bias": True, "activation": "Tanh"}
