"""Grades exercise 18."""

from collections.abc import Mapping

import numpy as np
from grading import close, exercise, expect, of_copies, run, say

yours = exercise("ex_18_published")
rng = np.random.default_rng(18)

NAMES = {"embeddings.word_embeddings": "word", "embeddings.LayerNorm": "norm",
         "intermediate.dense": "w_1"}  # fmt: skip
SHAPES = {"word.weight": (7, 4), "norm.weight": (4,), "norm.bias": (4,), "w_1.weight": (6, 4),
          "w_1.bias": (6,)}  # fmt: skip


def parameters() -> dict[str, np.ndarray]:
    return {name: np.zeros(shape) for name, shape in SHAPES.items()}


def published() -> dict[str, np.ndarray]:
    theirs = {ours: name for name, ours in NAMES.items()}
    file = {}
    for name, shape in reversed(SHAPES.items()):  # a file has an order of its own
        part, _, kind = name.partition(".")
        file[f"{theirs[part]}.{kind}"] = rng.standard_normal(shape)
    return file


def test_points() -> None:
    hidden, lengths = rng.standard_normal((3, 5, 4)) + 1, np.array([5, 2, 3])
    found = of_copies(yours.point, hidden, lengths)
    expect(np.shape(found) == (3, 4), f"points of (3, 5, 4) are (3, 4), not {np.shape(found)}")
    expect(np.isfinite(found).all(), f"the points have values that are not finite: {found}")

    def unit(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).sum(-1, keepdims=True))

    means = np.stack([hidden[b, :n].mean(0) for b, n in enumerate(lengths)])
    expect(not close(found, means), "these are the means; divide each by its norm")
    expect(not close(found, unit(hidden.mean(1))), "the mean takes in padding: use the lengths")
    expect(not close(found, unit(hidden[:, 0])), "this is the first position, not the mean")
    expect(close((found**2).sum(-1), np.ones(3)), "the points do not have norm 1")
    expect(close(found, unit(means)), "norms are 1, but the points are not the means of the texts")


def test_small_hidden_states() -> None:
    hidden, lengths = rng.standard_normal((3, 5, 4)), np.array([5, 2, 3])
    found, small = (of_copies(yours.point, x, lengths) for x in (hidden, hidden / 10))
    expect(
        close(found, small),
        "hidden states that are 10 times smaller must have the same points: divide by the norm "
        "itself, and by another number only where the norm is 0",
    )


def test_padding_has_no_influence() -> None:
    hidden, lengths = rng.standard_normal((2, 4, 3)), np.array([2, 4])
    before = hidden.copy()
    right = run(yours.point, hidden, lengths)
    expect(np.array_equal(hidden, before), "point changed the hidden states")
    hidden[0, 2:] = np.nan
    found = run(yours.point, hidden, lengths)
    expect(close(found, right), "NaN in padding reaches the point: 0 * NaN is NaN, use np.where")


def test_a_text_without_tokens() -> None:
    found = run(yours.point, rng.standard_normal((2, 3, 4)), np.array([0, 3]))
    expect(close(found[0], np.zeros(4)), f"a text of length 0 has the point 0, not {found[0]}")


def test_each_array_gets_our_name() -> None:
    own, file = parameters(), published()
    given = dict(file)
    found = run(yours.fitted, own, given, NAMES)
    expect(set(given) == set(file), "fitted takes tensors out of `file`: it must not change")
    expect(isinstance(found, Mapping), f"fitted returns a dict, not {type(found).__name__}")
    expect(set(found) == set(SHAPES), f"the names are {sorted(SHAPES)}, yours {sorted(found)}")
    for theirs, ours in NAMES.items():
        for kind in ("weight", "bias"):
            if f"{ours}.{kind}" in own:
                expect(
                    np.array_equal(found[f"{ours}.{kind}"], file[f"{theirs}.{kind}"]),
                    f"{ours}.{kind} is not {theirs}.{kind} of the file",
                )
    expect(not any(array.any() for array in own.values()), "fitted changed the arrays of `own`")


def test_what_has_no_influence_is_ignored() -> None:
    file = published() | {
        "embeddings.position_ids": np.arange(3),
        "pooler.dense.weight": np.ones((4, 4)),
        "pooler.dense.bias": np.ones(4),
    }
    found = run(yours.fitted, parameters(), file, NAMES)
    expect(set(found) == set(SHAPES), f"IGNORED tensors are left out, yours has {sorted(found)}")


def refusal(file: dict[str, np.ndarray]) -> str:
    """The words of the ValueError, or none."""
    try:
        yours.fitted(parameters(), file, NAMES)
    except ValueError as error:
        return str(error)
    except Exception as error:
        return say(f"a {type(error).__name__} instead of a ValueError")
    return ""


def test_what_does_not_fit_is_refused() -> None:
    run(yours.fitted, parameters(), published(), NAMES)
    lacking = published()
    del lacking["embeddings.LayerNorm.bias"]
    said = refusal(lacking)
    expect(said, "a file without embeddings.LayerNorm.bias is taken")
    expect("embeddings.LayerNorm.bias" in said, f"the missing tensor is not named: {said}")
    said = refusal(published() | {"encoder.layer.6.output.dense.weight": np.ones((4, 4))})
    expect(said, "a tensor of a seventh layer is passed over: raise ValueError")
    expect("encoder.layer.6" in said, f"the tensor that is not wanted is not named: {said}")
    for name, shape in (("intermediate.dense.weight", (4, 6)), ("embeddings.LayerNorm.bias", (1,))):
        said = refusal(published() | {name: np.ones(shape)})
        expect(said, f"{name} of shape {shape} is taken: compare the shapes")
        expect(name in said, f"the tensor of another shape is not named: {said}")
