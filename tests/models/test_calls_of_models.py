"""What a call of a model takes and refuses: types of tokens, masks, and texts that go on."""

from __future__ import annotations

import re

import numpy as np
import pytest
from common import assert_close, assert_equal
from test_causal import ids_of, kinds, random_model
from test_families import encoder_config
from test_parts_of_encoders import IDS
from test_parts_of_encoders import random_model as random_encoder

from tinyattn.errors import MaskError, ShapeError
from tinyattn.models import BertEncoder, MaskedLM, SequenceClassifier
from tinyattn.models.published import ENCODERS

MAKERS = {make.__name__: make for make in (BertEncoder, MaskedLM, SequenceClassifier)}
makers = pytest.mark.parametrize("name", MAKERS)
encoders = pytest.mark.parametrize("kind", ENCODERS)


# Encoders


@makers
@pytest.mark.parametrize("kind", [kind for kind in ENCODERS if kind != "distilbert"])
@pytest.mark.parametrize("shape", [(), (4,), (1, 4), (2, 1), (2, 3), (2, 5), (3, 4), (2, 4, 1)])
def test_each_token_has_a_type_of_its_own(shape, kind, name):
    """A row of types for all texts is refused, where `+` would repeat it."""
    model = MAKERS[name](encoder_config(kind))
    said = f"token_types have the shape of ids, (2, 4), got {shape}"
    with pytest.raises(ShapeError, match=f"^{re.escape(said)}$"):
        model(IDS, token_types=np.zeros(shape, int))


@makers
@encoders
def test_padding_is_said_once(kind, name):
    model = MAKERS[name](encoder_config(kind))
    said = "^an encoder with skip_padding takes valid_lens or a mask, not both$"
    for mask in (np.ones((2, 4), bool), np.arange(4) < np.array([[4], [2]])):
        with pytest.raises(MaskError, match=said):
            model(IDS, [4, 2], mask)


@makers
@encoders
def test_a_row_may_begin_with_pad_token_id_where_padding_is_said(kind, name):
    model = random_encoder(MAKERS[name], encoder_config(kind))
    pad = model.config["pad_token_id"]
    ids = np.array([[pad, 7, 19, 3], [2, 29, pad, pad]])
    with pytest.raises(ValueError, match=rf"^row 0 of ids begins with pad_token_id {pad}: "):
        model(ids)
    by_mask = model(ids, mask=np.arange(4) < np.array([[4], [3]])).numpy()
    assert_equal(model(ids, valid_lens=[4, 3]).numpy(), by_mask)
    assert_close(model(ids[1:, :3], valid_lens=[3]).numpy()[0], by_mask[1][..., :3, :]
                 if by_mask.ndim == 3 else by_mask[1], 1e-12)  # fmt: skip


# Language models


@kinds
def test_errors_of_a_call_with_a_cache_count_what_was_read_before(kind):
    model = random_model(kind)
    cache = model.new_cache()
    model(ids_of(2, 5), cache=cache)
    with pytest.raises(ShapeError, match=r"^this model has 32 positions, and the ids have 33$"):
        model(ids_of(2, 28), cache=cache)
    for shape in ((2, 3), (2, 7), (2, 9), (1, 8), (3, 8)):
        said = f"the mask is (2, 8) here, got shape {shape}"
        with pytest.raises(MaskError, match=f"^{re.escape(said)}$"):
            model(ids_of(2, 3), np.ones(shape, bool), cache)
    # After each of them the cache is as before, and up to the last position there is room.
    found = model(ids_of(2, 27, seed=2), cache=cache).numpy()
    whole = np.concatenate([ids_of(2, 5), ids_of(2, 27, seed=2)], 1)
    assert_close(found, model(whole).numpy()[:, 5:], 1e-10)


@kinds
@pytest.mark.parametrize("steps", [(8,), (1, 7), (3, 1, 4), (6, 2), (1,) * 8])
def test_padding_at_both_ends_is_nothing_for_a_text_that_is_read_in_parts(steps, kind):
    """Each text begins and ends elsewhere, one is whole, and one has a single id."""
    model, ids = random_model(kind), ids_of(8, 8)  # a mask as wide as high is of padding too
    spans = [(0, 8), (3, 7), (5, 8), (4, 5), (1, 8), (0, 2), (7, 8), (2, 6)]
    mask = np.array([[start <= i < end for i in range(8)] for start, end in spans])
    cache, found, past = model.new_cache(), [], 0
    for n in steps:
        end = past + n
        found.append(model(ids[:, past:end], mask[:, :end], cache).numpy())
        past = end
    scores = np.concatenate(found, 1)
    for row, text, (start, end) in zip(scores, ids, spans, strict=True):
        assert_close(row[start:end], model(text[None, start:end]).numpy()[0], 1e-10)


@kinds
def test_texts_of_1_to_5_ids_have_a_mask_that_is_no_causal_one(kind):
    """It is the same triangle, which a layer alone refuses."""
    model, ids = random_model(kind), ids_of(5, 5)
    for mask in (np.tri(5, dtype=bool), np.tri(5, dtype=bool)[:, ::-1], np.tri(5, dtype=bool).T):
        for row, text, is_real in zip(model(ids, mask).numpy(), ids, mask, strict=True):
            assert_close(row[is_real], model(text[None, is_real]).numpy()[0], 1e-10)


@kinds
def test_prompts_that_are_chosen_keep_their_own_masks(kind):
    model, ids, mask = random_model(kind), ids_of(3, 5), np.ones((3, 5), bool)
    mask[0, :2] = mask[2, :3] = False
    scores = model.next_scores(mask)
    mask[:] = True  # the caller's own; what was given counts
    starts = np.array([2, 0, 3])
    scores(ids)
    for rows in ([2, 0, 0, 1], [3, 1], [1, 1, 0], [2]):  # each of those before
        scores.select(rows)
        ids, starts = ids[rows], starts[rows]
        ids = np.concatenate([ids, ids_of(len(rows), 1, seed=len(rows))], 1)
        for row, text, start in zip(scores(ids).numpy(), ids, starts, strict=True):
            assert_close(row, model(text[None, start:]).numpy()[0, -1], 1e-10)
    scores.start()  # again those of the beginning
    first = ids_of(3, 5)
    for row, text, start in zip(scores(first).numpy(), first, (2, 0, 3), strict=True):
        assert_close(row, model(text[None, start:]).numpy()[0, -1], 1e-10)
    scores.start()
    scores.select([2, 0])  # before anything is read
    said = "the mask is of prompts (2, 5), and the ids are (3, 5)"
    with pytest.raises(MaskError, match=f"^{re.escape(said)}$"):
        scores(first)
    for row, text, start in zip(scores(first[[2, 0]]).numpy(), first[[2, 0]], (3, 2), strict=True):
        assert_close(row, model(text[None, start:]).numpy()[0, -1], 1e-10)
