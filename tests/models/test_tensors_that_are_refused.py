"""A tensor that is refused is named after its file, with what it should be and what it was."""

from __future__ import annotations

import re

import numpy as np
import pytest
from common import assert_equal
from test_causal import CONFIGS
from test_families import encoder_config

import tinyattn as ta
from tinyattn.errors import CheckpointError
from tinyattn.models import BertEncoder, CausalLM, MaskedLM, SequenceClassifier
from tinyattn.models.bert import PREFIXES, published_names
from tinyattn.models.heads import WORDS
from tinyattn.models.published import ENCODERS

MAKERS = {"CausalLM": CausalLM, "BertEncoder": BertEncoder, "MaskedLM": MaskedLM}
MAKERS |= {"SequenceClassifier": SequenceClassifier}
CASES = [("CausalLM", kind) for kind in CONFIGS]
CASES += [(name, kind) for name in [*MAKERS][1:] for kind in ENCODERS]
cases = pytest.mark.parametrize(("name", "kind"), CASES)
IDS = np.array([[2, 7, 19, 3], [2, 29, 5, 3]])
PLACES = "embeddings.position_ids"


def new_model(name, kind, **more):
    config = CONFIGS[kind] if name == "CausalLM" else encoder_config(kind)
    return MAKERS[name](config | more).eval()


def rewritten(folder, change):
    """The path of a folder's tensors, after `change` of their dict."""
    path = folder / "model.safetensors"
    state = {key: x.numpy() for key, x in ta.load(path).items()}
    change(state)
    ta.save({key: ta.tensor(x) for key, x in state.items()}, path)
    return path


def said_of(path, text):
    return f"^{re.escape(f'{path}: {text}')}"


@cases
@pytest.mark.parametrize("place", [0, -1])
def test_what_a_file_has_less_or_more_is_named(place, name, kind, tmp_path):
    model = new_model(name, kind)
    model.save_pretrained(tmp_path)
    own = list(model.published_parts())[place]
    theirs = own.removeprefix("transformer.") if name == "CausalLM" else own
    if name in ("MaskedLM", "SequenceClassifier") and place == 0:
        theirs = own.split(".", 1)[1]  # an encoder is read without its prefix
    path = rewritten(tmp_path, lambda state: state.pop(own))
    said = f"state does not fit config.json: missing {theirs}, unexpected nothing"
    with pytest.raises(CheckpointError, match=said_of(path, said) + "$"):
        MAKERS[name].from_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    path = rewritten(tmp_path, lambda state: state.update(strange=np.ones(2, np.float32)))
    said = "state does not fit config.json: missing nothing, unexpected strange"
    with pytest.raises(CheckpointError, match=said_of(path, said) + "$"):
        MAKERS[name].from_pretrained(tmp_path)


WRONG = {
    "shape": (lambda x: np.ones((*x.shape, 1), x.dtype), "config.json: {} has shape {}, got {}"),
    "NaN": (lambda x: x * np.float32(np.nan), "{} has numbers that are not finite"),
    "infinite": (lambda x: x + np.float32(np.inf), "{} has numbers that are not finite"),
    "integers": (lambda x: x.astype(np.int64), "{} is int64, expected floating numbers"),
}


@cases
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_tensor_is_named_with_its_file(wrong, place, name, kind, tmp_path):
    model = new_model(name, kind)
    model.save_pretrained(tmp_path)
    own = list(model.published_parts())[place]
    change, said = WRONG[wrong]
    path = rewritten(tmp_path, lambda state: state.update({own: change(state[own])}))
    theirs = own.removeprefix("transformer.") if name == "CausalLM" else own
    if name in ("MaskedLM", "SequenceClassifier") and place == 0:
        theirs = own.split(".", 1)[1]
    shape = ta.load(path)[own].shape
    with pytest.raises(
        CheckpointError, match=said_of(path, said.format(theirs, shape[:-1], shape))
    ):
        MAKERS[name].from_pretrained(tmp_path)


@pytest.mark.parametrize("prefix", ["", *PREFIXES])
@pytest.mark.parametrize("is_old_first", [True, False])
@pytest.mark.parametrize(("new", "old"), [("weight", "gamma"), ("bias", "beta")])
def test_a_tensor_under_an_old_and_a_new_name_is_there_twice(new, old, is_old_first, prefix):
    """Which of them counts nobody can say, whichever comes first."""
    for name in ("embeddings.", "encoder.layer.1.output."):
        both = [f"{name}LayerNorm.{end}" for end in ((old, new) if is_old_first else (new, old))]
        names = [prefix + one for one in (WORDS, *both, "encoder.layer.0.output.LayerNorm.weight")]
        said = f"f: {name}LayerNorm.{new} is there twice, under an old and a new name"
        with pytest.raises(CheckpointError, match=f"^{re.escape(said)}$"):
            published_names({one: np.ones(2) for one in names}, "f")
        for one in names[1:3]:  # either of them alone is read
            state = {key: np.ones(2) for key in names if key != one}
            assert [*published_names(state, "f")][1] == f"{name}LayerNorm.{new}"


@pytest.mark.parametrize("prefix", ["", *PREFIXES])
@pytest.mark.parametrize(
    ("places", "is_taken"),
    [
        ([[0, 1, 2, 3]], True),
        ([0, 1, 2], True),
        ([[]], True),
        ([[1, 2, 3, 4]], False),
        ([0, 2, 1], False),
        ([[0, 0, 0]], False),
        ([1], False),
    ],
)
def test_places_in_a_file_are_those_that_are_used(places, is_taken, prefix, tmp_path):
    """A file of old versions of transformers lists them, and nothing here would read others."""
    model = new_model("BertEncoder", "bert")
    model.save_pretrained(tmp_path)
    state = {prefix + key: x for key, x in ta.load(tmp_path / "model.safetensors").items()}
    path = tmp_path / "model.safetensors"
    ta.save(state | {prefix + PLACES: ta.tensor(np.array(places, np.int64))}, path)
    if is_taken:
        assert_equal(BertEncoder.from_pretrained(tmp_path)(IDS).numpy(), model(IDS).numpy())
        return
    said = said_of(path, f"{PLACES} must be 0, 1, 2, ..., as they are used here") + "$"
    with pytest.raises(CheckpointError, match=said):
        BertEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("name", ["MaskedLM", "SequenceClassifier"])
def test_places_in_a_file_with_a_head_are_those_that_are_used(name, kind, tmp_path):
    model = new_model(name, kind)
    model.save_pretrained(tmp_path)
    key = f"{kind.removeprefix('xlm-')}.{PLACES}"
    rewritten(tmp_path, lambda state: state.update({key: np.arange(34)[None]}))
    assert_equal(MAKERS[name].from_pretrained(tmp_path)(IDS).numpy(), model(IDS).numpy())
    path = rewritten(tmp_path, lambda state: state.update({key: np.arange(34)[None] + 2}))
    said = said_of(path, f"{PLACES} must be 0, 1, 2, ..., as they are used here") + "$"
    for make in (MAKERS[name], BertEncoder):
        with pytest.raises(CheckpointError, match=said):
            make.from_pretrained(tmp_path)


@pytest.mark.parametrize("prefix", ["", *PREFIXES])
@pytest.mark.parametrize(
    ("more", "is_taken"),
    [
        ("embeddings.position_ids", True),
        ("embeddings.token_type_ids", True),
        ("pooler.dense.weight", True),
        ("pooler.dense.bias", True),
        ("pooler.dense.other", False),
        ("embeddings.other_ids", False),
        ("encoder.layer.2.output.dense.bias", False),
    ],
)
def test_what_has_no_influence_is_left_out_with_and_without_a_prefix(
    more, is_taken, prefix, tmp_path
):
    model = new_model("BertEncoder", "bert")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = {prefix + key: x for key, x in ta.load(path).items()}
    ta.save(state | {prefix + more: ta.tensor([0])}, path)
    if is_taken:
        assert_equal(BertEncoder.from_pretrained(tmp_path)(IDS).numpy(), model(IDS).numpy())
        return
    said = f"state does not fit config.json: missing nothing, unexpected {more}"
    with pytest.raises(CheckpointError, match=said_of(path, said) + "$"):
        BertEncoder.from_pretrained(tmp_path)


HEADS = ("cls.predictions.bias", "lm_head.bias", "classifier.weight", "pre_classifier.bias",
         "vocab_transform.weight", "vocab_projector.bias", "qa_outputs.weight",
         *(f"cls.predictions.transform.LayerNorm.{end}" for end in ("gamma", "beta")))  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_head_is_left_out_by_an_encoder_where_the_names_have_a_prefix(prefix, head, tmp_path):
    model = new_model("BertEncoder", "bert")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = ta.load(path)
    ta.save({prefix + key: x for key, x in state.items()} | {head: ta.tensor([np.nan])}, path)
    assert_equal(BertEncoder.from_pretrained(tmp_path)(IDS).numpy(), model(IDS).numpy())
    for more in ({head: ta.tensor([0.0])}, {prefix + head: ta.tensor([0.0])}):
        ta.save(state | more, path)
        with pytest.raises(CheckpointError, match=r"state does not fit config\.json"):
            BertEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_head_of_words_that_differs_from_the_words_is_named_with_its_file(kind, tmp_path):
    new_model("MaskedLM", kind).save_pretrained(tmp_path)
    own = {"bert": "cls.predictions.decoder", "distilbert": "vocab_projector"}
    own = own.get(kind, "lm_head.decoder") + ".weight"
    words, prefix = "embeddings.word_embeddings.weight", kind.removeprefix("xlm-")
    for more in (0, 1):
        path = rewritten(
            tmp_path, lambda x, more=more: x.update({own: x[f"{prefix}.{words}"] + more})
        )
        if not more:
            MaskedLM.from_pretrained(tmp_path)
    said = f"{own} differs from {words}, and config.json says that they are one: write "
    with pytest.raises(CheckpointError, match=said_of(path, said)):
        MaskedLM.from_pretrained(tmp_path)
