"""What `next_scores` computes once, what it computes anew, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import assert_close, rng_of
from test_generation import PROMPT, SRC, SRC_MASK, D, V, full_pass, model_of

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import ShapeError


def seen_by(module: Any) -> list[tuple[int, ...]]:
    """The shapes that the module gives from now on."""
    shapes: list[tuple[int, ...]] = []
    module.register_forward_hook(lambda module, args, out: shapes.append(out.shape))
    return shapes


def test_the_source_is_encoded_once_and_an_id_is_decoded_once() -> None:
    model = model_of()
    encoded, decoded = seen_by(model.encoder), seen_by(model.decoder)
    scores, tgt = model.next_scores(SRC, SRC_MASK), rng_of(0).randint(0, V, (3, 6))
    for t in (2, 3, 6):
        scores(tgt[:, :t])
    assert encoded == [(3, 5, 8)]
    assert decoded == [(3, 2, 8), (3, 1, 8), (3, 3, 8)]


@pytest.mark.parametrize("change", ["number", "hook", "weight"])
def test_a_model_that_changed_computes_anew(change: str) -> None:
    model = model_of()
    scores, tgt = model.next_scores(SRC, SRC_MASK), rng_of(0).randint(0, V, (3, 4))
    scores(tgt[:, :3])
    if change == "weight":
        with ta.no_grad():
            for parameter in model.encoder.parameters():
                parameter *= 0.5
            model.src_embed[0].weight += 1
    elif change == "hook":
        model.encoder.register_forward_hook(lambda module, args, out: out * 2)
    else:
        model.encoder.norm.eps = 0.5
    assert_close(scores(tgt).numpy(), full_pass(model)(tgt).numpy(), 1e-13)


def test_the_mode_of_the_model_stays() -> None:
    """Ids are scored without dropout, and a training goes on with it."""
    model = model_of()
    for part in model.modules():
        if hasattr(part, "p"):
            part.p = 0.5
    expected = model.next_scores(SRC, SRC_MASK)(PROMPT).numpy()
    model.train()
    model.encoder.eval()
    np.testing.assert_array_equal(model.next_scores(SRC, SRC_MASK)(PROMPT).numpy(), expected)
    modes = {name: part.training for name, part in model.named_children()}
    assert modes == {name: name != "encoder" for name in modes}


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("rows", [[2, 0], [1, 1, 2, 0]])
def test_selected_samples_keep_their_source_and_their_mask(samples: int, rows: list[int]) -> None:
    """A mask may be one for all samples, of which none is selected."""
    model, mask = model_of(), SRC_MASK[:samples]
    scores, tgt = model.next_scores(SRC, mask), rng_of(1).randint(0, V, (3, 3))
    scores(tgt[:, :2])
    scores.select(rows)
    masks = mask if samples == 1 else mask[rows]
    expected = full_pass(model, SRC[rows], masks)(tgt[rows])
    assert_close(scores(tgt[rows]).numpy(), expected.numpy(), 1e-13)


@pytest.mark.parametrize("ids", [np.zeros((3, 0), int), np.zeros(3, int), np.zeros((1, 3, 2), int)])
def test_ids_of_another_shape_are_refused(ids: np.ndarray) -> None:
    scores = model_of().next_scores(SRC, SRC_MASK)
    with pytest.raises(ShapeError, match=r"takes ids \(B, T\) with T >= 1, got shape"):
        scores(ids)


def with_numbers() -> Any:
    """A model whose parts have numbers of all kinds."""
    model = model_of()
    for layer in model.decoder.layers:
        layer.self_attn.window = 3
        layer.self_attn.rotary = nn.RotaryEmbedding(D // 2, base=10.0)
    nn.LoRA.insert(model, ("generator", "W_v"), rank=2)
    with ta.no_grad():
        for part in model.modules():
            if isinstance(part, nn.LoRA):
                part.B += 0.3
    return model.double().eval()


def numbers_of(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """One of each number that a kind of module has, in the last module of this kind."""
    found = {
        (type(part), key): (part, key)
        for part in model.modules()
        for key, value in vars(part).items()
        if type(value) in (int, float)
    }
    return list(found.values())


def outcome(call: Any, *args: Any) -> Any:
    try:
        return call(*args).numpy()
    except ShapeError as error:
        return str(error)


def test_each_number_of_each_part_counts() -> None:
    """What comes after its change is what a new function gives, or its error."""
    ta.manual_seed(0)
    model, tgt, different = with_numbers(), rng_of(0).randint(0, V, (3, 5)), set()
    scores = model.next_scores(SRC, SRC_MASK)
    for part, key in numbers_of(model):
        before, old = scores(tgt[:, :4]).numpy(), getattr(part, key)
        setattr(part, key, 2 * old + (0.5 if isinstance(old, float) else -1))
        found, right = (outcome(of, tgt) for of in (scores, model.next_scores(SRC, SRC_MASK)))
        np.testing.assert_array_equal(found, right, err_msg=f"{type(part).__name__}.{key}")
        found = outcome(scores, tgt[:, :4])
        if isinstance(found, str) or (found != before).any():
            different.add(key)
        setattr(part, key, old)
    assert different >= {"window", "eps", "scale", "num_heads"}


@pytest.mark.parametrize("place", range(1, 4))  # another first id is another search
@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0], [1, 1, 2, 0], [False, True, True], [2]])
def test_other_ids_of_selected_samples_are_computed_anew(rows: list[Any], place: int) -> None:
    """As of a search that selects samples and then takes back an id of one of them."""
    model = model_of()
    scores, tgt = model.next_scores(SRC, SRC_MASK), rng_of(2).randint(0, V, (3, 5))
    scores(tgt[:, :4])
    scores.select(rows)
    for changed in (True, False, True):  # at once, and in later calls
        ids = tgt[rows].copy()
        ids[-1, place] = (ids[-1, place] + changed) % V
        right = full_pass(model, SRC[rows], SRC_MASK[rows])(ids)
        assert_close(scores(ids).numpy(), right.numpy(), 1e-13)


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("sample", range(3))
def test_an_id_that_differs_is_noticed_in_each_sample_and_place(sample: int, place: int) -> None:
    """Only it and the ids after it are computed."""
    model = model_of()
    decoded = seen_by(model.decoder)
    scores, tgt = model.next_scores(SRC, SRC_MASK), rng_of(3).randint(0, V, (3, 5))
    scores(tgt)
    ids = tgt.copy()
    ids[sample, place] = (ids[sample, place] + 1) % V
    found = scores(ids)
    assert decoded.pop() == (3, 5 - place, D)
    assert_close(found.numpy(), full_pass(model)(ids).numpy(), 1e-13)


def test_samples_that_were_selected_twice_stay_so_where_the_model_changes() -> None:
    """The source is encoded anew then, for the samples of both selections."""
    model = model_of()
    scores, tgt = model.next_scores(SRC, SRC_MASK), rng_of(4).randint(0, V, (3, 4))
    scores(tgt[:, :2])
    scores.select([2, 0])
    scores.select([1, 1, 0])
    rows = [0, 0, 2]
    model.encoder.norm.eps = 0.5
    right = full_pass(model, SRC[rows], SRC_MASK[rows])(tgt[rows])
    assert_close(scores(tgt[rows]).numpy(), right.numpy(), 1e-13)
