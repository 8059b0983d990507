"""Attention where sizes of different meaning are equal by chance, against the formula in NumPy.

With two samples, two heads, two queries and a width of two, a size that is taken from the wrong
dimension is still the right number; with the sizes beside these it is not.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from common import assert_close, leaf, pull, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError, MaskError, ShapeError
from tinyattn.kernels.visibility import Visibility, of_padded, samples_of
from tinyattn.ops.attention import attention, attention_with_weights, weighted_sum
from tinyattn.ops.softmax import softmax_of_visible

LEADS = [(), (2,), (2, 2), (2, 2, 2)]


def summed_to(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of what was broadcast from this shape."""
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1)
    return array.sum(axis=repeated, keepdims=True)


def by_formula(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, visible: Any = True
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Output, weights and the gradients, with a cotangent of its own for each output."""
    scores = np.where(visible, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = weights @ v
    grad = signed(rng_of(9), *out.shape)
    dweights = grad @ v.swapaxes(-1, -2)
    dscores = weights * (dweights - (weights * dweights).sum(-1, keepdims=True))
    dscores /= np.sqrt(q.shape[-1])
    grads = [dscores @ k, dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ grad]
    return out, weights, [summed_to(dx, x.shape) for dx, x in zip(grads, (q, k, v), strict=True)]


def both_ways(arrays: list[np.ndarray], expected: Any, **options: Any) -> None:
    """With and without the weights: these are two routes through the library."""
    out, weights, grads = expected
    for return_weights in (False, True):
        leaves = [leaf(x) for x in arrays]
        found = F.scaled_dot_product_attention(*leaves, return_weights=return_weights, **options)
        if return_weights:
            found, found_weights = found
            assert_close(found_weights.numpy(), np.broadcast_to(weights, found_weights.shape))
        assert_close(found.numpy(), out)
        pull(found, signed(rng_of(9), *out.shape))
        for x, grad in zip(leaves, grads, strict=True):
            assert_close(x.grad.numpy(), grad, 1e-11)


@pytest.mark.parametrize("leads", list(itertools.product(LEADS, repeat=3)))
def test_dimensions_in_front_broadcast_as_in_numpy(leads: tuple[tuple[int, ...], ...]) -> None:
    for queries, keys, width in ((2, 2, 2), (2, 3, 2), (3, 2, 4)):
        rng = rng_of(queries)
        rows = queries, keys, keys
        q, k, v = (signed(rng, *lead, n, width) for lead, n in zip(leads, rows, strict=True))
        both_ways([q, k, v], by_formula(q, k, v))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("queries", [1, 2, 3, 4])
def test_heads_of_a_group_share_their_keys(groups: int, width: int, queries: int) -> None:
    rng, keys = rng_of(groups + width), 5
    q = signed(rng, 2, 4, queries, width)
    k, v = (signed(rng, 2, groups, keys, width) for _ in range(2))
    mask = rng.uniform(size=(2, 4, queries, keys)) < 0.5
    mask[..., 0] = True
    repeated = [x.repeat(4 // groups, axis=1) for x in (k, v)]
    for visible in (np.True_, mask):
        out, weights, grads = by_formula(q, *repeated, visible)
        grads[1:] = [x.reshape(2, groups, -1, *x.shape[2:]).sum(2) for x in grads[1:]]
        options = {} if visible is np.True_ else {"mask": mask}
        both_ways([q, k, v], (out, weights, grads), enable_gqa=True, **options)


@pytest.mark.parametrize("queries", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_key_that_no_head_of_its_group_sees_has_no_influence(queries: int, value: float) -> None:
    rng = rng_of(queries)
    q, k, v = signed(rng, 2, 4, queries, 3), *(signed(rng, 2, 2, 5, 3) for _ in range(2))
    mask = np.ones((2, 4, queries, 5), bool)
    mask[0, :2, :, 3] = mask[1, 2:, :, 4] = False
    right = F.scaled_dot_product_attention(*map(ta.tensor, (q, k, v)), mask=mask, enable_gqa=True)
    for x in (k, v):
        x[0, 0, 3] = x[1, 1, 4] = value
    leaves = [leaf(x) for x in (q, k, v)]
    found = F.scaled_dot_product_attention(*leaves, mask=mask, enable_gqa=True)
    assert_close(found.numpy(), right.numpy())
    pull(found, signed(rng, *found.shape))
    for x in leaves[1:]:
        assert np.isfinite(x.grad.numpy()).all()
        assert not x.grad.numpy()[0, 0, 3].any()
        assert not x.grad.numpy()[1, 1, 4].any()
    assert (leaves[1].grad.numpy()[0, 1, 3] != 0).all()


def test_rows_of_width_0_have_equal_weights() -> None:
    q, k, v = ta.zeros(1, 2, 0), ta.zeros(1, 4, 0), ta.tensor([[[1.0], [2.0], [3.0], [6.0]]])
    assert F.scaled_dot_product_attention(q, k, v).tolist() == [[[3.0], [3.0]]]


def test_without_dropout_no_random_number_is_drawn() -> None:
    x = ta.ones(1, 2, 4)
    results = []
    for p in (None, 0.0, 0, 0.5):
        ta.manual_seed(4)
        if p is not None:
            F.scaled_dot_product_attention(x, x, x, dropout_p=p)
        results.append(ta.rand(3).tolist())
    assert results[0] == results[1] == results[2] != results[3]


# Masks that may be read in two ways


def test_two_samples_of_two_positions_may_have_any_padding() -> None:
    """For a mean there are no queries, for which the mask could be meant."""
    x = ta.tensor([[[1.0], [3.0]], [[5.0], [9.0]]])
    for mask, right in (
        ([[True, False], [True, True]], [[1.0], [7.0]]),
        ([[True, True], [True, False]], [[2.0], [5.0]]),
        ([[False, True], [False, False]], [[3.0], [0.0]]),
    ):
        assert F.masked_mean(x, mask=mask).tolist() == right


@pytest.mark.parametrize("shape", [(2, 2, 1, 3), (2, 1, 2, 3), (2, 2, 3), (1, 2, 2, 3)])
def test_a_mean_takes_no_mask_of_heads_or_queries(shape: tuple[int, ...]) -> None:
    with pytest.raises(MaskError, match=r"with B=2, H=1, Q=1, K=3; got shape \(.*\)$"):
        F.masked_mean(ta.ones(2, 3, 4), mask=np.ones(shape, bool))


def test_two_queries_of_two_samples_may_have_any_padding_of_three_keys() -> None:
    """With two samples a mask of padding looks like a causal one too often to be refused."""
    scores = signed(rng_of(0), 2, 2, 3)
    for mask in ([[1, 0, 0], [1, 1, 0]], [[1, 1, 0], [1, 1, 1]], [[1, 1, 0], [1, 0, 0]]):
        visible = np.array(mask, bool)
        weights = F.masked_softmax(ta.tensor(scores), mask=visible).numpy()
        powers = np.where(visible[:, None], np.exp(scores), 0)
        assert_close(weights, powers / powers.sum(-1, keepdims=True))
    with pytest.raises(MaskError, match=r"looks like queries by keys"):
        F.masked_softmax(ta.zeros(2, 2, 2), mask=[[True, False], [True, True]])
    with pytest.raises(MaskError, match=r"looks like queries by keys"):
        F.masked_softmax(ta.zeros(3, 3, 4), mask=np.tri(3, 4, dtype=bool))


def test_a_mask_is_a_list_of_rows_of_any_kind() -> None:
    rows = [[True, False, True], [True, True, False]]
    right = F.masked_softmax(ta.zeros(2, 1, 3), mask=rows).tolist()
    for make in (np.array, tuple, ta.tensor):
        assert (
            F.masked_softmax(ta.zeros(2, 1, 3), mask=[make(row) for row in rows]).tolist() == right
        )
    with pytest.raises(MaskError, match=r"got a list of arrays: join masks with a & b"):
        F.masked_softmax(ta.zeros(2, 1, 3), mask=[np.array(rows), np.array(rows)])


@pytest.mark.parametrize("past", [0, 1, 2, 3, 4])
def test_a_causal_query_sees_all_keys_up_to_its_own(past: int) -> None:
    scores = signed(rng_of(past), 2, 2, 4)
    visible = np.arange(4) <= past + np.arange(2)[:, None]
    powers = np.where(visible, np.exp(scores), 0)
    found = F.masked_softmax(ta.tensor(scores), is_causal=True, past=past)
    assert_close(found.numpy(), powers / powers.sum(-1, keepdims=True))


# The ops beneath, which other modules and derivatives call


@pytest.mark.parametrize("create_graph", [False, True])
def test_without_a_visibility_all_pairs_count(create_graph: bool) -> None:
    rng = rng_of(3)
    x, v = signed(rng, 2, 1, 3, 4), signed(rng, 2, 1, 4, 5)
    scores, values = leaf(x), leaf(v)
    weights = softmax_of_visible(scores, None)
    expected = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    assert_close(weights.numpy(), expected)
    out = weighted_sum(weights, values, None)
    assert_close(out.numpy(), expected @ v)
    grad = signed(rng, 2, 1, 3, 5)
    found = ta.grad(out, [scores, values], ta.tensor(grad), create_graph=create_graph)
    dweights = grad @ v.swapaxes(-1, -2)
    dscores = expected * (dweights - (expected * dweights).sum(-1, keepdims=True))
    assert_close(found[0].detach().numpy(), dscores, 1e-11)
    assert_close(found[1].detach().numpy(), expected.swapaxes(-1, -2) @ grad, 1e-11)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("groups", [2, 1])
def test_gradients_of_float16_are_computed_in_float32(groups: int, create_graph: bool) -> None:
    """And rounded once, also where they are part of a graph."""
    rng = rng_of(6)
    arrays = [4 * signed(rng, 2, heads, 5, 8).astype(np.float16) for heads in (2, groups, groups)]
    grad = signed(rng, 2, 2, 5, 8).astype(np.float16)
    results = []
    for dtype in (np.float16, np.float64):
        leaves = [leaf(x.astype(dtype)) for x in arrays]
        out = F.scaled_dot_product_attention(*leaves, enable_gqa=True)
        grads = ta.grad(out, leaves, ta.tensor(grad.astype(dtype)), create_graph=create_graph)
        assert {x.dtype for x in grads} == {np.dtype(dtype)}
        results.append([x.detach().numpy().astype(np.float64) for x in (out, *grads)])
    for found, right in zip(*results, strict=True):
        assert_close(found, right, 2**-11)


@pytest.mark.parametrize("value", [3.0, np.nan, np.inf])
def test_a_weight_of_an_invisible_value_has_no_gradient(value: float) -> None:
    rng = rng_of(4)
    visible = np.array([True, False, True])
    visibility = of_padded((1, 1, 2, 3), mask=visible[None, None, None])
    weights = np.where(visible, signed(rng, 1, 1, 2, 3), 0)
    values = signed(rng, 1, 1, 3, 4)
    values[:, :, 1] = value
    of_weights, grad = leaf(weights), signed(rng, 1, 1, 2, 4)
    pull(weighted_sum(of_weights, ta.tensor(values), visibility), grad)
    expected = np.where(
        visible, grad @ np.where(np.isfinite(values), values, 0).swapaxes(-1, -2), 0
    )
    assert_close(of_weights.grad.numpy(), expected)
    assert not of_weights.grad.numpy()[..., 1].any()


@pytest.mark.parametrize("value", [3.0, np.nan])
def test_a_module_that_scales_the_weights_learns_nothing_from_invisible_values(
    value: float,
) -> None:
    rng = rng_of(5)
    q, k, v = (signed(rng, 1, 1, n, 4) for n in (2, 3, 3))
    visibility = of_padded((1, 1, 2, 3), limits=np.array([[2]]))
    factor = leaf(np.array(1.5))
    v[:, :, 2] = value
    options: dict[str, Any] = {"heads": (1, 1), "visibility": visibility, "scale": 0.5}
    tensors = [ta.tensor(x) for x in (q, k, v)]
    out, weights = attention_with_weights(*tensors, None, through=lambda w: w * factor, **options)
    right = by_formula(q, k[:, :, :2], v[:, :, :2])
    assert_close(weights.numpy()[..., :2], right[1])
    assert_close(out.numpy(), 1.5 * right[0])
    grad = signed(rng, *out.shape)
    pull(out, grad)
    assert_close(factor.grad.numpy(), (grad * right[0]).sum(), 1e-11)


def op(
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    bias: tuple[int, ...] | None = None,
    heads: tuple[int, int] = (1, 1),
    of: Visibility | None = None,
) -> Any:
    of = of_padded((2, 1, 3, 4)) if of is None else of
    arrays = [ta.ones(*shape) for shape in (q, k, v)]
    more = None if bias is None else ta.ones(*bias)
    return attention(*arrays, more, heads=heads, visibility=of, scale=1.0)


Q, K = (2, 3, 4), (2, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bias": (2, 1, 3, 5)}, r"^bias must be \(2, 1, 3, 4\), or 1 .*, got \(2, 1, 3, 5\)"),
        ({"bias": (2, 2, 3, 4)}, r"^bias must be \(2, 1, 3, 4\)"),
        ({"bias": (2, 3, 4)}, r"^bias must be \(2, 1, 3, 4\)"),
        ({"heads": (3, 1)}, "the width 4 cannot be split into 3 heads"),
        ({"heads": (2, 3)}, "the width 4 cannot be split into 3 heads"),
        ({"heads": (0, 1)}, "the width 4 cannot be split into 0 heads"),
        ({"k": (2, 4, 5)}, r"attention: q .*, got \(6, 1, 4\), \(8, 1, 5\) and \(8, 1, 4\)"),
        ({"v": (2, 5, 4)}, r"attention: q .*, got \(6, 1, 4\), \(8, 1, 4\) and \(10, 1, 4\)"),
        ({"q": (2, 4, 4)}, r"add up to the 8 rows of queries, got \[3, 3\]"),
        ({"k": (3, 4, 4), "v": (3, 4, 4)}, r"add up to the 12 rows of keys, got \[4, 4\]"),
        (
            {"of": Visibility(samples_of((3, 3)), samples_of((4, 4, 4)))},
            "attention: queries of 2 samples, keys of 3",
        ),
        (
            {"of": of_padded((2, 1, 3, 4), mask=np.ones((2, 1, 3, 5), bool))},
            r"^mask must be \(2, 1, 3, 4\)",
        ),
        ({"of": of_padded((2, 1, 3, 4), limits=np.ones((2, 4), int))}, r"^limits must be \(2, 3\)"),
        ({"of": of_padded((2, 1, 3, 4), starts=np.ones((3, 3), int))}, r"^starts must be \(2, 3\)"),
    ],
)
def test_the_op_takes_only_what_fits(arguments: dict[str, Any], words: str) -> None:
    """A compiled kernel checks nothing, and would read other memory."""
    assert op(Q, K, K).shape == Q
    with pytest.raises(ShapeError, match=words):
        op(**({"q": Q, "k": K, "v": K} | arguments))


@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (1, 1, 3, 4), (2, 1, 3, 5), (2, 3, 4)])
def test_a_visibility_is_of_scores_of_one_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"^visibility is of scores \(2, 1, 3, 4\), got"):
        softmax_of_visible(ta.zeros(*shape), of_padded((2, 1, 3, 4), limits=np.array([[2]])))


@pytest.mark.parametrize("causal", [False, True])
def test_a_boolean_of_numpy_says_whether_it_is_causal(causal: bool) -> None:
    """As a comparison of NumPy gives it; other numbers might be a mask or lengths."""
    rng = rng_of(5)
    q, k, v = (ta.tensor(signed(rng, 2, 1, 3, 4)) for _ in range(3))
    scores = q @ k.transpose(2, 3)
    calls = [
        lambda is_causal: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal),
        lambda is_causal: F.masked_softmax(scores, is_causal=is_causal),
    ]
    for call in calls:
        assert_close(call(np.bool_(causal)).numpy(), call(causal).numpy(), 0)
        assert call(causal).tolist() != call(not causal).tolist()
        for wrong in (1, 0, np.int64(1), 1.0, "yes", None, np.ones((3, 3), bool), [True]):
            with pytest.raises(DtypeError, match="is_causal is True or False, got"):
                call(wrong)
