"""Cases that nothing else noticed: each from a planted fault that all other tests passed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from common import assert_all_zero, assert_close, assert_same, leaf, rng_of, signed
from formulas import kernels, reference

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, ops, optim
from tinyattn.errors import GradcheckError, InPlaceError, ShapeError
from tinyattn.kernels.visibility import Visibility, of_padded, samples_of
from tinyattn.ops.attention import check_attention


def test_second_derivatives_of_a_power_at_the_base_0() -> None:
    """0 ** y stays 0 while y moves; log(0) must not come in, not even times 0."""
    x, y = leaf([0.0, 0.0, 2.0]), leaf([2.0, 3.0, 2.0])
    first = ta.grad((x**y).sum(), [x, y], create_graph=True)
    second = ta.grad(sum((g.sum() for g in first[1:]), first[0].sum()), [x, y])
    for gradient in (*first, *second):
        assert np.isfinite(gradient.numpy()).all()
    assert_all_zero(first[1].numpy()[:2])


@pytest.mark.parametrize(("dtype", "x"), [(np.float16, -14.0), (np.float32, -95.0)])
def test_sigmoid_below_the_range_of_exp(dtype: Any, x: float) -> None:
    """1 / (1 + exp(-x)) is 0 there, since exp(-x) is infinite; the value is not."""
    array = np.array([x], dtype)
    for value in (F.sigmoid(ta.tensor(array)).numpy(), reference.sigmoid(array)):
        np.testing.assert_allclose(value.astype(np.float64), np.exp(x), rtol=0.05)


def test_silu_of_float16_has_the_digits_of_its_result() -> None:
    """sigmoid(-14) is one of the smallest float16, with one digit; 14 times of it has three."""
    x = np.linspace(-16, -10, 50).astype(np.float16)
    exact = x / (1 + np.exp(-x.astype(np.float64)))
    found = F.silu(ta.tensor(x)).numpy()
    assert (np.abs(found - exact) <= np.spacing(np.abs(found))).all()


@pytest.mark.parametrize("kind", [ta.tensor, np.array])
def test_an_index_may_be_reused_before_backward(kind: Any) -> None:
    x, index = leaf([1.0, 2.0, 3.0]), kind([0, 2])
    out = x[index]
    index[...] = 1
    out.sum().backward()
    assert x.grad.tolist() == [1, 0, 1]


@pytest.mark.parametrize("function", [ta.Tensor.sin, ta.Tensor.log, lambda y: y.clamp(0, 9)])
def test_a_change_below_a_computed_view_is_noticed(function: Any) -> None:
    """y is computed, but a view: its memory is that of x, which anybody can reach."""
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    for view in (lambda x: x.T, lambda x: x.reshape(4), lambda x: x[1]):
        out = function(view(x)).sum()
        with ta.no_grad():
            x[1] = 5.0
        with pytest.raises(InPlaceError, match="changed in place"):
            out.backward()


def test_a_weighted_sum_hides_in_both_directions() -> None:
    """NaN in a value reaches no weight, NaN in a cotangent no value, from behind the mask."""
    rng = rng_of(30)
    mask = np.ones((1, 1, 2, 3), bool)
    mask[0, 0, 0, 1] = False  # query 0 does not see key 1
    weights, values, grad = (signed(rng, 1, 1, *s) for s in ((2, 3), (3, 4), (2, 4)))
    weights *= mask

    def pulled(values: np.ndarray, grad: np.ndarray) -> list[np.ndarray]:
        w, v = leaf(weights), leaf(values)
        out = ops.weighted_sum(w, v, visibility=of_padded(mask.shape, mask=mask))
        return [g.numpy() for g in ta.grad(out, [w, v], ta.tensor(grad))]

    dw, dv = pulled(values, grad)
    poisoned = values.copy()
    poisoned[0, 0, 1] = np.nan
    other, _ = pulled(poisoned, grad)
    assert_same(other[0, 0, 0] + 0.0, dw[0, 0, 0] + 0.0)
    poisoned = grad.copy()
    poisoned[0, 0, 0] = np.nan
    _, other = pulled(values, poisoned)
    assert_close(other[0, 0, 1], dv[0, 0, 1], 1e-15)


def test_float32_sums_down_a_column_are_wide() -> None:
    """NumPy adds the rows one by one there, and 2^24 + 1 is 2^24 in float32."""
    x = np.ones((500, 3), np.float32)
    x[0] = 2**24
    assert ta.tensor(x).sum(0).tolist() == [2**24 + 499 + 1] * 3  # to the nearest even
    np.testing.assert_array_equal(kernels.sum_rows(x), np.float32(2**24 + 499))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("module", [kernels, reference])
@pytest.mark.parametrize("level", [-1e7, -1e9, -1e30])
def test_scores_below_any_sentinel(module: Any, dtype: Any, level: float) -> None:
    """With -1e6 or -1e9 for hidden scores, all weight would go to them."""
    x = np.full((1, 1, 2, 4), level, dtype)
    mask = np.array([True, False, True, False]).reshape(1, 1, 1, 4)
    expected = np.broadcast_to([0.5, 0, 0.5, 0], x.shape).astype(dtype)
    np.testing.assert_array_equal(module.masked_softmax(x, of_padded(x.shape, mask=mask)), expected)
    limits = np.array([[2, 2]])
    expected = np.broadcast_to([0.5, 0.5, 0, 0], x.shape).astype(dtype)
    np.testing.assert_array_equal(
        module.masked_softmax(x, of_padded(x.shape, limits=limits)), expected
    )


def test_what_was_read_only_stays_so_when_a_graph_lets_go() -> None:
    x = leaf([1.0, 2.0])
    broadcast = ta.ones(2, dtype=ta.float64).expand(3, 2)
    out = x * broadcast
    del out
    assert not broadcast._data.flags.writeable
    with pytest.raises(InPlaceError, match="read-only"):
        broadcast[0] = 1


def test_a_view_and_its_owner_are_changed_together() -> None:
    """Two graphs, one on a view and one on the memory it looks into: a change reaches both."""
    x, w = leaf(np.ones((2, 2))), leaf(np.ones((2, 2)))
    with ta.no_grad():
        view = x.T
    one, other = (view * w).sum(), (x * w).sum()
    with ta.no_grad():
        view[0] = 2.0
    assert x.tolist() == [[2, 1], [2, 1]]
    for out in (one, other):
        with pytest.raises(InPlaceError, match="changed in place"):
            out.backward()


def test_dlpack_hands_out_a_copy() -> None:
    x = leaf([1.0, 2.0])
    out = x.relu()
    for tensor in (x, out):
        assert not np.shares_memory(np.from_dlpack(tensor), tensor._data)


def test_a_leaf_given_other_data_gets_gradients_of_their_dtype() -> None:
    x = leaf([1.0, 2.0], np.float32)
    x.data = np.array([3.0, 4.0])
    (x * x).sum().backward()
    assert x.grad.dtype == x.dtype == np.float64


def test_integers_divide_to_float32() -> None:
    x = ta.tensor([1, 2, 3])
    for quotient in (x / 2, x / x, 1 / x):
        assert quotient.dtype == np.float32


def test_float16_sums_down_a_column_do_not_stall() -> None:
    """A float16 that counts ones stops at 2048."""
    assert ta.ones(4096, 2, dtype=np.float16).sum(dim=0).tolist() == [4096, 4096]


def test_a_mean_of_float16_is_divided_before_it_is_rounded() -> None:
    """The sum, 409,600, is more than a float16 holds."""
    assert ta.full((4096,), 100.0, dtype=np.float16).mean().item() == 100


def test_a_mean_of_nothing_is_nan() -> None:
    for found in (ta.ones(0).mean(), ta.ones(2, 0).mean(dim=1), ta.ones(0, 3).mean()):
        assert np.isnan(found.numpy()).all()


def test_float16_gradients_of_one_element_do_not_stall() -> None:
    """Taken by two arrays of indices, whose gradient is added up at places in one row."""
    x, index = leaf(np.ones((2, 2), np.float16)), np.ones(4096, int)
    x[index, index].sum().backward()
    assert x.grad.tolist() == [[0, 0], [0, 4096]]


def test_float16_products_do_not_stall() -> None:
    """A float16 that counts ones stops at 2,048."""
    ones = ta.ones(1, 4096, dtype=ta.float16)
    assert (ones @ ones.T).item() == 4096


def test_seeds_that_differ_give_numbers_that_differ() -> None:
    drawn = set()
    for seed in range(8):
        ta.manual_seed(seed)
        drawn.add(ta.randn(1).item())
    assert len(drawn) == 8


def test_a_mean_loss_over_nothing_is_nan() -> None:
    """As in PyTorch: a loss of 0 would look like success."""
    logits = leaf(np.ones((2, 3)))
    loss = F.cross_entropy(logits, [-100, -100])
    assert np.isnan(loss.item())
    assert F.cross_entropy(logits, [-100, -100], reduction="sum").item() == 0


def test_a_target_of_another_shape_is_refused_though_it_broadcasts() -> None:
    for shape in ((3,), (1, 3), (2, 1)):
        with pytest.raises(ShapeError, match="one shape"):
            F.mse_loss(ta.ones(2, 3), ta.ones(*shape))


def test_a_key_that_one_head_sees_stays_when_another_key_is_wiped() -> None:
    """NaN in a key hidden from all heads; beside it a key that only head 0 may see."""
    module = nn.MultiHeadAttention(4, 4, 4, 4, 2).to(ta.float64)
    rng = rng_of(31)
    x = signed(rng, 1, 3, 4)
    mask = np.ones((1, 2, 3, 3), bool)
    mask[:, 1, :, 1] = False
    mask[..., 2] = False
    clean, poisoned = x.copy(), x.copy()
    clean[0, 2], poisoned[0, 2] = 0.0, np.nan
    queries = ta.tensor(signed(rng, 1, 3, 4))
    outputs = [module(queries, *[ta.tensor(a)] * 2, mask=mask) for a in (clean, poisoned)]
    assert_same(outputs[1].numpy(), outputs[0].numpy())
    assert (module.attention_weights.numpy()[0, 0, :, 1] > 0).all()


@pytest.mark.parametrize("hidden", [{}, {"valid_lens": [2, 3]}, {"is_causal": True}])
def test_recorded_weights_are_softmax_of_scaled_products(hidden: dict[str, Any]) -> None:
    rng = rng_of(32)
    q, k, v = (signed(rng, 2, 2, 4, 9) for _ in range(3))
    seen = np.ones((2, 1, 4, 4), bool)
    if "valid_lens" in hidden:
        seen = np.arange(4) < np.array([2, 3]).reshape(2, 1, 1, 1)
    if "is_causal" in hidden:
        seen = np.tri(4, dtype=bool)
    for scale in (None, 0.7):
        out, weights = F.scaled_dot_product_attention(
            *map(ta.tensor, (q, k, v)), scale=scale, return_weights=True, **hidden
        )
        powers = np.exp(q @ k.swapaxes(-1, -2) * (1 / 3 if scale is None else scale)) * seen
        expected = powers / powers.sum(axis=-1, keepdims=True)
        assert_close(weights.numpy(), expected, 1e-14)
        assert_close(out.numpy(), expected @ v, 1e-14)


def test_samples_of_attention_do_not_broadcast() -> None:
    """Two queries for three samples of keys; a single one is repeated, as in PyTorch."""
    q, k = ta.ones(2, 2, 4), ta.ones(3, 2, 4)
    for arguments in ((q, k, k), (k, q, k), (k, k, q)):
        with pytest.raises(ShapeError, match="same samples"):
            F.scaled_dot_product_attention(*arguments)


def test_a_width_that_is_no_multiple_of_the_heads_is_named_at_once() -> None:
    for call in (
        lambda: nn.MultiHeadAttention(7, 7, 7, 7, 2),
        lambda: nn.MultiHeadedAttention(2, 7),
        lambda: F.transpose_qkv(ta.ones(1, 2, 7), 2),
    ):
        with pytest.raises(ShapeError, match="7 cannot be split into 2 heads"):
            call()


def test_a_copy_of_attention_has_not_been_called() -> None:
    for module in (nn.DotProductAttention(), nn.MultiHeadedAttention(2, 4)):
        x = ta.ones(1, 2, 4)
        module(x, x, x)
        with pytest.raises(AttributeError, match="has not been called"):
            copy.deepcopy(module).attention_weights  # noqa: B018
        assert module.attention_weights.shape[-2:] == (2, 2)


@pytest.mark.parametrize("kind", [nn.PositionalEncoding, nn.LearnedPositionalEncoding])
def test_dropout_of_positions_drops_the_sum(kind: Any) -> None:
    module = kind(4, 1.0, 8)
    assert_all_zero(module(ta.ones(2, 3, 4)).numpy())
    assert (module.eval()(ta.ones(2, 3, 4)).numpy() != 0).any()


def test_starting_values_are_as_large_as_they_should_be() -> None:
    ta.manual_seed(0)
    weight = nn.Parameter(np.empty((60, 140), np.float32))
    spread = {
        "learned positions": (nn.LearnedPositionalEncoding(50, 0.0, 80).weight, 0.02),
        "xavier": (nn.init.xavier_uniform_(weight, gain=2.0), 2 * (6 / 200 / 3) ** 0.5),
    }
    for tensor, deviation in spread.values():
        assert abs(tensor.numpy().std() / deviation - 1) < 0.05
    nn.init.normal_(weight, mean=3.0, std=0.5)
    assert abs(weight.numpy().std() / 0.5 - 1) < 0.05
    assert abs(weight.numpy().mean() - 3) < 0.05
    table = nn.Embedding(5, 3, padding_idx=2).weight.numpy()
    assert_all_zero(table[2])
    assert (np.delete(table, 2, axis=0) != 0).all()


def test_clipping_leaves_a_gradient_that_somebody_holds() -> None:
    x = leaf([3.0, 4.0])
    (x * 10).sum().backward()
    held = x.grad.detach()
    optim.clip_grad_norm_([x], 1.0)
    assert held.tolist() == [10, 10]
    assert abs(np.linalg.norm(x.grad.numpy()) - 1) < 1e-6


def test_backward_with_create_graph_may_be_followed_by_another() -> None:
    x = leaf(2.0)
    y = x * x * x
    y.backward(create_graph=True)
    assert ta.grad(x.grad, x, retain_graph=True)[0].item() == 12
    y.backward()
    assert x.grad.item() == 24


def test_a_leaf_s_own_gradient_has_its_dtype() -> None:
    x = leaf([1.0, 2.0], np.float64)
    x.backward(ta.ones(2, dtype=ta.float32))
    assert x.grad.dtype == np.float64


def test_the_full_check_names_the_element_that_is_nan() -> None:
    @ta.op
    def double(x):
        return x * 2

    @double.vjp("x")
    def _(grad):
        return np.where(np.arange(len(grad)) == 1, np.nan, grad * 2)

    with pytest.raises(GradcheckError, match=r"output 0\[1\] / d input 0\[0\].*nan|0\[1\].*nan"):
        ta.gradcheck(double, [leaf([1.0, 2.0, 3.0], np.float64)])


def over_rows(*arrays: Any, visibility: Visibility) -> Any:
    """The op beneath all attention, on rows that are split into heads: (R, H, d)."""
    heads = arrays[0].shape[1], arrays[1].shape[1]
    rows = (x.flatten(1) for x in arrays)
    return ops.attention(*rows, heads=heads, visibility=visibility, scale=1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_attention_kernel_is_given_nothing_that_does_not_fit(dtype: Any) -> None:
    """Compiled code would read beside the arrays and answer with garbage."""
    shapes = [(8, 3, 6), (10, 3, 6), (10, 3, 7)]
    samples = samples_of((4, 4)), samples_of((5, 5))
    for place, shape in [
        (1, (10, 3, 8)),
        (0, (8, 3, 9)),
        (2, (8, 3, 7)),
        (1, (5, 3, 6)),
        (2, (10, 1, 7)),
        (0, (8, 5, 6)),
        (0, (7, 3, 6)),
        (0, (2, 4, 6)),
    ]:
        changed = [*shapes[:place], shape, *shapes[place + 1 :]]
        arrays = [ta.ones(*s, dtype=dtype) for s in changed]
        with pytest.raises(
            ShapeError, match=r"attention: (q|queries|the lengths)|7 cannot be split into 3 heads"
        ):
            over_rows(*arrays, visibility=Visibility(*samples))
    arrays = [ta.ones(*s, dtype=dtype) for s in shapes]
    for lengths in [((4, 4), (5, 4)), ((4, 5), (5, 5)), ((8,), (5, 5)), ((9, -1), (5, 5))]:
        with pytest.raises(ShapeError, match=r"attention: queries|the lengths of samples"):
            over_rows(*arrays, visibility=Visibility(*map(samples_of, lengths)))
    padded = np.ones((2, 4, 3, 6)), np.ones((2, 5, 3, 6)), np.ones((2, 5, 3, 7))
    check_attention(*padded, *samples)
    for lengths in [((4, 2, 2), (5, 5, 0)), ((2,) * 4, (5, 5, 0, 0)), ((4, 4), (6, 4))]:
        with pytest.raises(ShapeError, match="attention: the lengths"):
            check_attention(*padded, *map(samples_of, lengths))


BAD_LIMITS = [(4,), (3, 1), (1, 4), (2, 3, 1), ()]
BAD_MASKS = [(2, 3, 5), (1, 1, 1, 4), (2, 3, 3, 5), (2, 2, 4, 5), (5,)]
BAD_HIDING = [
    *({name: np.ones(shape, np.int64)} for name in ("limits", "starts") for shape in BAD_LIMITS),
    *({"mask": np.ones(shape, np.bool_)} for shape in BAD_MASKS),
]


@pytest.mark.parametrize("arrays", BAD_HIDING, ids=lambda arrays: next(iter(arrays)))
def test_the_kernels_are_given_no_visibility_that_does_not_fit(arrays: dict[str, Any]) -> None:
    """Compiled code would read beside its arrays."""
    q, k, v = ta.ones(6, 2, 4), ta.ones(10, 2, 4), ta.ones(10, 2, 3)
    visibility = of_padded((2, 2, 3, 5), **arrays)
    for call in (
        lambda: ops.softmax_of_visible(ta.ones(2, 2, 3, 5), visibility=visibility),
        lambda: over_rows(q, k, v, visibility=visibility),
    ):
        name = next(iter(arrays))
        with pytest.raises(ShapeError, match=rf"{name} must be .* or 1 for any of these, got"):
            call()


@pytest.mark.parametrize("shape", [(1, 8, 4), (1, 2, 8, 4)])
def test_returned_weights_have_no_graph_and_no_dropout(shape: tuple[int, ...]) -> None:
    x = leaf(signed(rng_of(38), *shape))
    out, weights = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5, return_weights=True)
    assert out.requires_grad
    assert not weights.requires_grad
    assert_close(weights.numpy().sum(axis=-1), np.ones(shape[:-1]))


@pytest.mark.parametrize("return_weights", [False, True])
def test_attention_drops_other_weights_in_each_call(return_weights: bool) -> None:
    x = ta.tensor(signed(rng_of(39), 1, 8, 4))

    def call() -> np.ndarray:
        options = {"dropout_p": 0.5, "return_weights": return_weights}
        found = F.scaled_dot_product_attention(x, x, x, **options)
        return (found[0] if return_weights else found).numpy()

    ta.manual_seed(1)
    one, two = call(), call()
    ta.manual_seed(1)
    assert_same(call(), one)
    assert (one != two).any()
