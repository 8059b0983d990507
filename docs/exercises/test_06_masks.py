"""Grades exercise 6."""

import numpy as np
from grading import close, exercise, expect, needs, of_copies, run

yours = exercise("ex_06_masks")
rng = np.random.default_rng(6)


def short_by_one(two: np.ndarray, four: np.ndarray) -> bool:
    """Whether query 3 sees one key too few of length 2. Only the length decides there."""
    return bool(two[3, 0] and not two[3, 1] and four[3, 1])


def test_padding() -> None:
    found = np.asarray(run(yours.visible_keys, np.array([2, 4, 0]), 4))
    expect(found.shape == (3, 4, 4), f"3 samples of length 4: (3, 4, 4), not {found.shape}")
    expect(found.dtype == bool, f"a mask holds booleans, yours {found.dtype}")
    right = np.tri(4, dtype=bool) & (np.arange(4) < np.array([2, 4, 0])[:, None])[:, None]
    expect((found == right).any(), "the mask is inverted: True means visible")
    either = np.tri(4, dtype=bool) | (np.arange(4) < np.array([2, 4, 0])[:, None])[:, None]
    expect(
        not np.array_equal(found, either),
        "a key is visible where one of the two is true: both must be, so write & and not |",
    )
    expect(
        not found[0, 2, 2] or found[0, 3, 3],
        "key 2 of a sample of length 2 is visible: keys count from 0, so k < length, not <=",
    )
    expect(
        not short_by_one(found[0], found[1]),
        "key 1 of a sample of length 2 is hidden: keys count from 0, so k < length, and nothing is "
        "subtracted from the length",
    )
    expect(not found[2].any(), "a sample of length 0 has a visible key")
    expect(not found[0, :, 2:].any(), "key 2 of a sample of length 2 is padding, but visible")
    if not found[0, 3, :2].all():
        needs(test_future)
    expect(
        found[0, 3, :2].all(),
        "lengths hide keys, not queries: query 3 sees keys 0 and 1",
    )


def test_future() -> None:
    found = np.asarray(run(yours.visible_keys, np.array([2, 4]), 4))
    if found.shape != (2, 4, 4) or short_by_one(*found):  # test_padding tells of it
        return
    found = found[1]
    later = np.triu(np.ones((4, 4), bool), 1)
    expect(not found[later].any(), "a query sees a later key: query i may see keys k <= i")
    expect(found.diagonal().all(), "a query must see its own position: k <= i, not k < i")
    expect(found[~later].all(), "a query does not see all keys before it")


def test_weights() -> None:
    scores = rng.standard_normal((2, 3, 4))
    visible = rng.random((2, 3, 4)) < 0.7
    visible[..., 0] = True
    found = of_copies(yours.masked_softmax, scores, visible)
    e = np.where(visible, np.exp(scores), 0)
    expect(
        np.isfinite(found).all(),
        "a weight is nan: divide each row by its own sum, over the last axis",
    )
    everywhere = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expect(
        not close(found, everywhere * visible),
        "invisible keys get 0 after softmax: hide them before it, so that the others sum to 1",
    )
    at_zero = np.exp(scores * visible)
    expect(
        not close(found, at_zero / at_zero.sum(-1, keepdims=True)),
        "a score of 0 hides nothing, because exp(0) = 1: an invisible key needs the score -np.inf",
    )
    expect(close(found[~visible], np.zeros((~visible).sum())), "an invisible key has weight")
    total = np.sum(found, -1)
    expect(
        close(total, np.ones((2, 3))) or not close(total, np.ones((2, 3)), 1e-3),
        "the weights of a row sum to nearly 1: add no small number to their sum",
    )
    expect(
        close(total, np.ones((2, 3))),
        "the visible weights of a row do not sum to 1: sum over the last axis",
    )
    expect(close(found, e / e.sum(-1, keepdims=True)), "visible weights are not their softmax")


def test_rows_without_visible_keys() -> None:
    visible = np.array([[False, False], [True, True]])
    found = run(yours.masked_softmax, np.array([[1.0, 2.0], [0.5, 3.0]]), visible)
    expect(np.isfinite(found).all(), "a row without visible keys gives nan: its weights are 0")
    expect(not found[0].any(), f"a row without visible keys has weights 0, not {found[0]}")


def test_invisible_scores_have_no_influence() -> None:
    visible = np.array([True, True, False])
    for score, name in ((np.nan, "NaN"), (np.inf, "inf"), (1e5, "100,000")):
        found = run(yours.masked_softmax, np.array([0.0, 0.0, score]), visible)
        if not close(found, [0.5, 0.5, 0.0]):
            needs(test_weights)
        expect(close(found, [0.5, 0.5, 0.0]), f"an invisible score of {name} has influence")
    below = run(yours.masked_softmax, np.array([-800.0, -800.0, 0.0]), visible)
    expect(
        close(below, [0.5, 0.5, 0.0]),
        "visible scores far below an invisible one get wrong weights: subtract the maximum of the "
        "visible scores before exp",
    )
    for score in (-1e9, -1e30, -1e300):
        far = run(yours.masked_softmax, np.array([score, score, 0.0]), visible)
        expect(
            close(far, [0.5, 0.5, 0.0]),
            f"visible scores of {score:g} get wrong weights: a number that means invisible is "
            "larger than they are, so use -np.inf",
        )
    large = run(yours.masked_softmax, np.array([1000.0, 0.0, 0.0]), visible)
    expect(close(large, [1.0, 0.0, 0.0]), "a visible score of 1000 gives nan: subtract the maximum")


def test_rows_far_apart() -> None:
    rows = np.array([[0.0, -1000.0], [1000.0, -2000.0]])
    scores = np.array([1.0, 2.0, 3.0]) + rows[..., None]
    found = run(yours.masked_softmax, scores, np.broadcast_to([True, True, False], scores.shape))
    right = np.broadcast_to([0.26894142, 0.73105858, 0], scores.shape)
    if not close(found, right):
        needs(test_weights)
    expect(
        np.isfinite(found[1, 0]).all(), "a visible score of 1000 gives nan: subtract the maximum"
    )
    if not close(found, right):
        needs(test_invisible_scores_have_no_influence)
    expect(
        close(found, right),
        "a row with scores far below those of another row gets wrong weights: subtract the maximum "
        "of each row, not that of the array",
    )


def test_input_is_not_changed() -> None:
    scores = rng.standard_normal((2, 3))
    before = scores.copy()
    run(yours.masked_softmax, scores, np.array([[True, False, True], [False, False, True]]))
    expect(np.array_equal(scores, before), "masked_softmax changed its scores: use np.where")
