"""What docstrings promise, tried with the inputs that would break it."""

from __future__ import annotations

import math
import threading
import warnings

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, viz
from tinyattn.errors import DtypeError, GraphError, InPlaceError, MaskError, ShapeError
from tinyattn.ops.visibility import lens_of_padding

nan, inf = math.nan, math.inf
FLOATS = (ta.float16, ta.float32, ta.float64)


def r(*shape):
    return ta.randn(*shape)


def attend(**options):
    return F.scaled_dot_product_attention(r(2, 3, 4, 8), r(2, 3, 5, 8), r(2, 3, 5, 6), **options)


# Errors: (the class, the call, the arguments that it refuses)

ERRORS = [
    (IndexError, lambda dim: F.softmax(r(2, 3), dim), [2, -3, 5]),
    (IndexError, lambda dim: F.log_softmax(r(2, 3), dim), [2, -3, 5]),
    (TypeError, lambda dim: F.softmax(r(2, 3), dim), [True, 1.0, "a"]),
    (ValueError, lambda how: F.gelu(r(2), how), ["x", None, "Tanh"]),
    (ShapeError, lambda shape: F.masked_softmax(ta.zeros(*shape)), [(), (1, 2, 3, 4, 5)]),
    (MaskError, lambda n: F.masked_softmax(r(2, 4, 5), n), [[1, 6], [1, -1], [1, nan], [1, inf]]),
    (ShapeError, lambda n: F.masked_softmax(r(2, 4, 5), n), [[1, 2, 3], 1, [[1, 2]] * 2]),
    (MaskError, lambda s: F.masked_softmax(r(2, 4, 5), mask=ta.ones(*s) > 0), [(3, 5), (5,)]),
    (ValueError, lambda scale: attend(scale=scale), [inf, nan, "a", [1], 1j, True]),
    (ValueError, lambda p: attend(dropout_p=p), [-0.1, 1.1, nan, "a", True, None]),
    (ShapeError, lambda window: attend(window=window), [0, -1, 1.5, True, "a"]),
    (DtypeError, lambda mask: attend(mask=mask), [r(2, 5), [[0.5] * 5] * 2]),
    (ShapeError, lambda s: attend(bias=r(*s)), [(7, 5), (2, 3, 4, 6), (1, 2, 3, 4, 5)]),
    (ShapeError, lambda s: attend(attn_mask=r(*s) > 0), [(7, 5), (2, 3, 4, 6)]),
    (DtypeError, lambda dtype: attend(attn_mask=ta.ones(4, 5).to(dtype)), [ta.int64, ta.float64]),
    (ShapeError, lambda h: F.transpose_qkv(r(2, 5, 12), h), [0, -1, 5, True, 2.0, "a", None]),
    (ShapeError, lambda s: F.transpose_qkv(ta.zeros(*s), 1), [(2, 5), (2,), (), (1, 2, 3, 4)]),
    (ShapeError, lambda s: F.transpose_output(ta.zeros(*s), 4), [(2, 5), (), (6, 5, 4)]),
    (ShapeError, lambda s: F.linear(r(2, 3), r(*s)), [(4, 5), (3,), (1, 4, 3)]),
    (ShapeError, lambda s: F.linear(r(2, 3), r(4, 3), r(*s)), [(5,), (1, 4), ()]),
    (DtypeError, lambda dtype: F.linear(r(2, 3), r(4, 3).to(dtype)), [ta.float64, ta.int64]),
    (IndexError, lambda ids: F.embedding(ids, r(4, 3)), [[4], [-1], [2**40], ta.tensor(4)]),
    (DtypeError, lambda ids: F.embedding(ids, r(4, 3)), [[1.0], [True], [nan], "a", None]),
    (ShapeError, lambda s: F.embedding([0], ta.zeros(*s)), [(3,), (2, 3, 4), ()]),
    (IndexError, lambda p: F.embedding([1], r(4, 3), p), [4, -1, True, 1.0, "a", nan]),
    (IndexError, lambda p: nn.Embedding(4, 3, p), [4, -1, True, 1.0, "a", nan]),
    (ShapeError, lambda s: F.layer_norm(r(2, 4), s), [3, (2, 3), (), (4, 2, 4), -4, 0]),
    (ShapeError, lambda s: F.rms_norm(r(2, 4), s), [3, (2, 3), (), (4, 2, 4), -4, 0]),
    (ValueError, lambda eps: F.layer_norm(r(2, 4), 4, eps=eps), [-1, nan, "a", None, inf, True]),
    (ValueError, lambda eps: F.rms_norm(r(2, 4), 4, eps=eps), [-1, nan, "a", inf, True]),
    (ValueError, lambda p: F.dropout(r(3), p), [-0.1, 1.1, nan, "a", True, None, inf]),
    (ValueError, lambda p: F.dropout(r(3), p, False), [-0.1, 1.1, nan, "a"]),
    (ValueError, lambda p: F.normalize(r(2, 3), p), [0, 3, -1, inf, "fro", None, nan]),
    (IndexError, lambda dim: F.normalize(r(2, 3), dim=dim), [2, -3]),
    (DtypeError, lambda ids: F.one_hot(ids), [[1.0], [True], ["a"], [nan]]),
    (IndexError, lambda ids: F.one_hot(ids, 3), [[-1], [3], [0, -5]]),
    (IndexError, lambda ids: F.one_hot(ids), [[-1], [-1, 4]]),
    (ShapeError, lambda n: F.one_hot([0], n), [0, -2, True, 2.0, "a", None]),
    (ShapeError, lambda p: F.pad(r(3), p), [(1,), (-2, -2), (1, 1, 1, 1), (1.0, 1), (True, 1)]),
    (ShapeError, lambda mode: F.pad(r(3), (1, 1), mode), ["reflect", "", None]),
    (IndexError, lambda t: F.cross_entropy(r(3, 4), t), [[0, 1, 4], [0, 1, -1], [0, 1, 2**40]]),
    (IndexError, lambda t: F.cross_entropy(r(3, 4), t, ta.ones(4)), [[0, 1, 4], [0, 1, -1]]),
    (IndexError, lambda t: F.nll_loss(r(3, 4), t), [[0, 1, 4], [0, 1, -1], [0, 1, 2**40]]),
    (ShapeError, lambda t: F.cross_entropy(r(3, 4), t), [[0, 1], [[0, 1, 2]], 0]),
    (ShapeError, lambda t: F.nll_loss(r(3, 4), t), [[0, 1], [[0, 1, 2]], 0]),
    (ShapeError, lambda s: F.mse_loss(r(2, 3), r(*s)), [(3,), (1, 3), ()]),
    (ShapeError, lambda s: F.kl_div(r(2, 3), r(*s)), [(3,), (1, 3), ()]),
    (ShapeError, lambda s: F.binary_cross_entropy_with_logits(r(2, 3), r(*s)), [(3,), (1, 3)]),
    (ShapeError, lambda n: F.sequence_mask(r(2, 3, 4), n), [[1], [[1, 2], [1, 2]], 1]),
    (ShapeError, lambda n: F.pack_padded_sequence(r(2, 3, 4), n), [[1], [[1, 2], [1, 2]], 1]),
    (MaskError, lambda n: F.sequence_mask(r(2, 3, 4), n), [[4, 1], [-1, 1], [1.5, 1]]),
    (MaskError, lambda n: F.pack_padded_sequence(r(2, 3, 4), n), [[4, 1], [-1, 1], [1.5, 1]]),
    (MaskError, lambda n: F.masked_mean(r(2, 3, 4), n), [[4, 1], [-1, 1], [1.5, 1]]),
    (ShapeError, lambda n: F.pad_packed_sequence(r(3, 4), n), [[2, 2], [1, 1], [[2, 1]]]),
    (ShapeError, lambda n: F.pad_packed_sequence(r(3, 4), [2, 1], n), [1, True, 2.0, -1, "a"]),
    (ShapeError, lambda p: F.rotary_embedding(r(2, 4), p), [[-1, 0], [2**31, 0], [0, 1, 2]]),
    (DtypeError, lambda p: F.rotary_embedding(r(2, 4), p), [[0.0, 1.0], [True, False], ["a", "b"]]),
    (ShapeError, lambda s: F.rotary_embedding(r(*s)), [(2, 3), (4,)]),
    (ValueError, lambda b: F.rotary_embedding(r(2, 4), base=b), [0, -1, nan, inf, "a", None]),
    (ValueError, lambda b: nn.RotaryEmbedding(4, b), [0, -1, nan, inf, "a", None]),
    (ShapeError, lambda n: F.alibi_bias(n, 2), [0, -1, True, 2.0]),
    (ShapeError, lambda n: F.alibi_bias(2, n), [-1, True, 2.0]),
    (DtypeError, lambda dtype: F.alibi_bias(2, 3, dtype=dtype), [ta.int64, ta.bool, "x"]),
    (MaskError, lambda m: masks.combine(*m), [(), (None,), ([True],), (r(2, 2) > 0, r(2, 3) > 0)]),
    (ShapeError, lambda n: masks.causal(n), [-1, 2.0, True, "a"]),
    (ValueError, lambda a: ta.arange(*a), [(5, 0), (0, 5, -1), (0, 5, 0)]),
    (ShapeError, lambda s: r(*s).T.view(-1), [(2, 3), (1, 3, 2)]),
    (ShapeError, lambda s: r(*s).t(), [(1, 2, 3)]),
    (ShapeError, lambda s: r(*s).item(), [(2,), (0,)]),
    (ValueError, lambda p: r(2).norm(p), [0, 3, -1, -inf, "nuc", None, nan]),
    (ShapeError, lambda e: ta.einsum(e, r(2, 3)), ["ij,jk", "i", "ij->k", "ij->ii", "", "1->1"]),
    (ValueError, lambda w: ta.tensor(w).multinomial(1), [[nan, 1], [inf, 1], [-1.0, 2.0], [0.0]]),
    (ValueError, lambda w: ta.tensor(w).multinomial(2), [[1.0, 0.0], [3.0]]),
    (ValueError, lambda w: ta.zeros(*w).multinomial(1, True), [(0,), (2, 0)]),
    (ShapeError, lambda k: r(2).topk(k), [3, -1, True, 1.0]),
    (DtypeError, lambda data: ta.tensor(data), [1j, "a", None, [None], b"x", np.array(["a"])]),
    (DtypeError, lambda data: ta.tensor(data, requires_grad=True), [1, [True], np.arange(2)]),
    (TypeError, lambda data: ta.from_numpy(data), [[1.0], r(2), 1.0]),
    (DtypeError, lambda a: ta.from_numpy(a, False), [np.ma.array([1.0]), np.zeros(2, ">f8")]),
    (TypeError, lambda x: ta.from_dlpack(x), [[1.0], 1.0, None]),
    (ValueError, lambda seed: ta.manual_seed(seed), [-1, 1.5, True, "a", None]),
    (ValueError, lambda n: ta.set_num_threads(n), [0, 1025, True, 1.5, "a"]),
    (ShapeError, lambda s: nn.init.xavier_uniform_(ta.zeros(*s)), [(3,), ()]),
    (TypeError, lambda x: nn.init.normal_(x), [np.ones(2), ta.ones(2).long(), [1.0]]),
    (TypeError, lambda value: nn.init.constant_(r(2), value), [None, [1.0, 2.0], {}]),
    (TypeError, lambda curves: viz.plot_curves(curves), [[1.0], ta.ones(2), None, {"a": 1.0}]),
    (ShapeError, lambda c: viz.plot_curves({"a": c}), [[[1.0]], [], ([1, 2], [1])]),
    (ValueError, lambda n: viz.plot_curves({"a": [1.0]}, smooth=n), [0, -1]),
    (TypeError, lambda layers: viz.plot_gradient_norms(layers), [[nn.Linear(2, 2)], None]),
    (ValueError, lambda m: viz.plot_gradient_norms({"a": [m]}), [nn.Linear(2, 2), nn.ReLU()]),
    (ValueError, lambda m: viz.show_heatmaps(m), [ta.ones(2, 2) * 2, ta.tensor([[-1.0, 0.5]])]),
    (ShapeError, lambda m: viz.show_heatmaps(m), [ta.ones(3), ta.zeros(0, 2, 2)]),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(ERRORS)))
def test_errors_are_of_the_class_that_the_docstring_says(row):
    kind, call, refused = ERRORS[row]
    for argument in refused:
        with pytest.raises(kind) as caught:
            call(argument)
        assert len(str(caught.value)) > 10


# Numbers at the edge


@pytest.mark.parametrize("dtype", FLOATS)
def test_activations_warn_of_nothing_and_overflow_nowhere(dtype):
    most = np.finfo(dtype).max
    x = ta.tensor([most, -most, 0, inf, -inf], dtype=dtype, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in (F.sigmoid, F.softplus, F.tanh, F.relu, F.gelu, F.silu):
            function(x).backward(ta.tensor([1, -2, 3, -1, 2], dtype=dtype))
            assert np.isfinite(function(x).numpy()[:3]).all()
        target = ta.tensor([0.0, 1.0, 0.5], dtype=dtype)
        losses = F.binary_cross_entropy_with_logits(x[:3], target, "none")
        assert np.isfinite(losses.numpy()).all()


def test_what_no_query_sees_reaches_no_result():
    scores = ta.tensor([[[nan, inf, 1.0, 2.0]]], requires_grad=True)
    out = F.masked_softmax(scores, mask=[[0, 0, 1, 1]])
    out.backward(ta.tensor([[[nan, inf, 3.0, -1.0]]]))
    assert np.isfinite(out.numpy()).all()
    assert scores.grad.numpy()[0, 0, :2].tolist() == [0, 0]
    scores.grad = None
    out = F.masked_softmax(scores, valid_lens=[0])
    out.backward(ta.tensor([[[nan, inf, 3.0, -1.0]]]))
    assert not out.numpy().any()
    assert not scores.grad.numpy().any()


def test_one_sample_has_its_lengths_and_masks():
    zeros = ta.zeros(2, 2)
    for options, expected in (
        ({"valid_lens": 1}, [[1, 0], [1, 0]]),
        ({"valid_lens": [0, 2]}, [[0, 0], [0.5, 0.5]]),
        ({"mask": [True, False]}, [[1, 0], [1, 0]]),
        ({"mask": [[True], [False]]}, [[0.5, 0.5], [0, 0]]),
        ({"mask": True}, [[0.5, 0.5], [0.5, 0.5]]),
        ({"is_causal": True}, [[1, 0], [0.5, 0.5]]),
    ):
        assert F.masked_softmax(zeros, **options).tolist() == expected


def test_a_divergence_is_0_where_the_target_is_0():
    for x, target, log_target in (
        ([-inf, -1.0], [0.0, 1.0], False),
        ([-inf, -1.0], [-inf, 0.0], True),
    ):
        x = ta.tensor(x, requires_grad=True)
        target = ta.tensor(target, requires_grad=True)
        losses = F.kl_div(x, target, "none", log_target)
        assert losses.tolist() == [0, 1]
        losses.backward(ta.tensor([3.0, -2.0]))
        assert x.grad.tolist() == [0, 2]
        assert np.isfinite(target.grad.numpy()).all()


def test_the_mean_of_no_position_is_0():
    for x in (ta.zeros(2, 0, 3), ta.zeros(2, 0, dtype=ta.float16)):
        for options in ({}, {"valid_lens": [0, 0]}, {"mask": ta.zeros(2, 0).bool()}):
            mean = F.masked_mean(x, **options)
            assert mean.shape == (2, *x.shape[2:])
            assert not mean.numpy().any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_mean_does_not_overflow_where_its_sum_does(dtype):
    top = float(np.finfo(dtype).max) if dtype == np.float16 else 6e4
    x = ta.full((2, 40, 3), top, dtype=dtype, requires_grad=True)
    mean = F.masked_mean(x, valid_lens=[30, 7])
    assert (mean.numpy() == x.numpy()[:, 0]).all()
    mean.backward(ta.ones(2, 3, dtype=dtype) * 30)
    np.testing.assert_allclose(x.grad.numpy()[0, :, 0], [1.0] * 30 + [0.0] * 10, rtol=1e-3)


def test_dropped_elements_are_0_whatever_they_were():
    out = F.dropout(ta.full((200,), nan), 0.5).numpy()
    assert 50 < np.isnan(out).sum() < 150
    assert (out[~np.isnan(out)] == 0).all()
    x = ta.full((3,), inf, requires_grad=True)
    F.dropout(x, 1.0).backward(ta.tensor([1.0, -2.0, 3.0]))
    assert not x.grad.numpy().any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", [1, 2])
def test_a_row_of_zeros_stays_zeros(dtype, p):
    assert not F.normalize(ta.zeros(2, 3, dtype=dtype), p, eps=0).numpy().any()


def test_a_constant_row_is_0_after_layer_norm():
    for value in (1.1, 1e-30, 3e4, -7.7):
        assert not F.layer_norm(ta.full((2, 7), value), 7).numpy().any()


def test_rotary_products_depend_on_the_distance_only():
    q, k = r(1, 8), r(1, 8)
    near = F.rotary_embedding(q, [3]) @ F.rotary_embedding(k, [7]).T
    far = F.rotary_embedding(q, [1003]) @ F.rotary_embedding(k, [1007]).T
    np.testing.assert_allclose(near.numpy(), far.numpy(), atol=1e-3)


def test_a_window_of_one_sees_itself():
    values = r(2, 3, 5, 6)
    q = r(2, 3, 5, 8)
    out = F.scaled_dot_product_attention(q, q, values, is_causal=True, window=1)
    np.testing.assert_allclose(out.numpy(), values.numpy(), atol=1e-6)
    _, weights = F.scaled_dot_product_attention(q, q, values, window=2, return_weights=True)
    near = abs(np.arange(5)[:, None] - np.arange(5)) < 2
    assert ((weights.numpy() > 0) == near).all()


# Random numbers


def test_multinomial_draws_what_has_a_weight():
    for weights, drawn in (
        ([1, 0, 1e-310], {0, 2}),
        ([0, 0, 1e-320, 1e-310, 0], {2, 3}),
        ([1e308, 1e308, 0], {0, 1}),
    ):
        w = ta.tensor(weights, dtype=ta.float64)
        for _ in range(20):
            assert set(w.multinomial(2).tolist()) == drawn
            assert set(w.multinomial(30, True).tolist()) <= drawn
    heavy = ta.tensor([1e308, 1e308, 0], dtype=ta.float64).multinomial(99, True).tolist()
    assert set(heavy) == {0, 1}
    rows = ta.tensor([[1.0, 0.0, 1e-3], [0.0, 5.0, 5.0]]).multinomial(50, True).numpy()
    assert set(rows[0]) <= {0, 2}
    assert set(rows[1]) == {1, 2}


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_numbers_are_less_than_1(dtype):
    drawn = ta.rand(300_000, dtype=dtype).numpy()
    assert 0 <= drawn.min() < 0.01
    assert 0.99 < drawn.max() < 1


def test_seeds_that_differ_give_other_numbers():
    """Also where only what is beyond 32 or 64 bits differs."""
    seeds = [*range(20), *(7 + 2**bits for bits in (16, 31, 32, 33, 63, 64, 65, 100))]
    drawn = set()
    for seed in seeds:
        ta.manual_seed(seed)
        numbers = ta.rand(3, dtype=np.float64).numpy()
        ta.manual_seed(np.int64(seed) if seed < 2**63 else seed)
        np.testing.assert_array_equal(ta.rand(3, dtype=np.float64).numpy(), numbers)
        drawn.add(tuple(numbers))
    assert len(drawn) == len(seeds)


def test_a_state_that_is_refused_changes_nothing():
    before = ta.get_rng_state()
    for state in ({}, None, {"state": {"state": "a"}}, np.random.RandomState(0).get_state(False)):
        with pytest.raises(ValueError, match="get_rng_state"):
            ta.set_rng_state(state)
        assert ta.get_rng_state() == before


@pytest.mark.parametrize(
    "fill",
    [nn.init.normal_, nn.init.uniform_, nn.init.xavier_uniform_, nn.init.kaiming_normal_],
)
def test_starting_values_are_written_in_place(fill):
    drawn = []
    for dtype in FLOATS:
        ta.manual_seed(5)
        weight = nn.Parameter(np.full((4, 6), 9, dtype))
        version, part = weight.detach(), weight.detach()[1:3]
        assert fill(part) is part
        assert (weight.numpy()[[0, 3]] == 9).all()
        assert not (weight.numpy()[1:3] == 9).any()
        np.testing.assert_array_equal(version.numpy(), weight.numpy())
        drawn.append(weight.numpy().astype(float))
    np.testing.assert_allclose(drawn[1], drawn[2], atol=1e-6)
    np.testing.assert_allclose(drawn[0], drawn[2], atol=4e-3)


def test_a_graph_notices_new_starting_values():
    weight = nn.Parameter(np.ones(2))
    loss = (weight * weight).sum()
    nn.init.zeros_(weight)
    assert weight.tolist() == [0, 0]
    with pytest.raises(InPlaceError, match="changed in place"):
        loss.backward()


def test_starting_values_are_not_written_into_results_and_read_only_views():
    weight = nn.Parameter(np.ones(2))
    for tensor in (weight * 2, weight.exp(), ta.ones(2).expand(3, 2)):
        before = tensor.tolist()
        with pytest.raises(InPlaceError, match=r"clone\(\)"):
            nn.init.zeros_(tensor)
        assert tensor.tolist() == before


# Memory and recording


def test_data_is_replaced_by_a_copy():
    weight, source = ta.ones(2, requires_grad=True), np.zeros(2, np.float32)
    (weight * 2).sum().backward()
    weight.data = source
    source[0] = 5
    assert weight.tolist() == [0, 0]
    assert weight.grad.tolist() == [2, 2]
    weight.data = np.zeros(2)
    assert weight.grad is None
    with pytest.raises(GraphError, match="detach"):
        (weight * 2).data = source


def test_shared_memory_is_what_the_docstring_says():
    array = np.zeros(2)
    x = ta.from_numpy(array, copy=False)
    x[0] = 3
    assert array.tolist() == [3, 0]
    x += 1
    assert array.tolist() == [3, 0]
    assert x.tolist() == [4, 1]
    array = np.zeros(2)
    array.setflags(write=False)
    with pytest.raises(InPlaceError, match="read-only"):
        ta.from_numpy(array, copy=False)[0] = 1


def test_a_gradient_that_is_kept_keeps_its_values():
    x = ta.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    assert first.tolist() == [2, 2]
    assert x.grad.tolist() == [5, 5]


def test_grad_changes_no_gradient_and_gives_each_its_own_array():
    x = ta.ones(2, requires_grad=True)
    one, other = ta.grad((x * x).sum(), [x, x])
    assert x.grad is None
    assert not np.shares_memory(one.data, other.data)


def test_recording_is_a_switch_of_each_thread_and_of_each_step_of_a_generator():
    seen = []
    with ta.no_grad():
        thread = threading.Thread(target=lambda: seen.append(ta.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]

    @ta.no_grad()
    def steps():
        yield ta.is_grad_enabled()
        yield ta.is_grad_enabled()

    for inside in steps():
        assert not inside
        assert ta.is_grad_enabled()


def test_weights_are_those_of_the_call_whatever_changes_later():
    x, mask, lens, bias = r(1, 3, 4), np.ones((1, 3, 3), bool), np.array([2]), r(2, 3, 3)
    multi = nn.MultiHeadedAttention(2, 4).eval()
    for module, options in (
        (multi, {"mask": mask}),
        (multi, {"valid_lens": lens}),
        (multi, {"bias": bias}),
        (nn.DotProductAttention(), {}),
        (nn.AdditiveAttention(4, 4, 3), {}),
    ):
        y = x.clone()
        module(y, y, y, **options)
        expected = module.attention_weights.numpy()
        module(y, y, y, **options)
        y[...] = r(1, 3, 4)
        mask[0, 0, 0], lens[0], bias[...] = False, 1, r(2, 3, 3)
        multi.W_q.reset_parameters()
        np.testing.assert_array_equal(module.attention_weights.numpy(), expected)
        mask[...], lens[0] = True, 2


# Lines that no other test reached


def test_a_bias_and_numbers_of_attn_mask_are_both_added():
    q, k, v, bias = r(2, 3, 4), r(2, 5, 4), r(2, 5, 6), r(2, 3, 5)
    numbers = ta.where(r(3, 5) > 1, -inf, r(3, 5))
    numbers[:, 0] = 0.5
    both = F.scaled_dot_product_attention(q, k, v, bias=bias, attn_mask=numbers)
    joined = F.scaled_dot_product_attention(q, k, v, attn_mask=bias + numbers)
    np.testing.assert_allclose(both.numpy(), joined.numpy(), atol=1e-6)


def test_positions_of_every_width_of_integers():
    x = r(3, 4)
    expected = F.rotary_embedding(x, [1, 0, 2]).numpy()
    for dtype in (np.int8, np.uint8, np.int32, np.uint64):
        found = F.rotary_embedding(x, np.array([1, 0, 2], dtype)).numpy()
        np.testing.assert_array_equal(found, expected)


def test_masks_of_one_are_new_memory():
    mask = ta.ones(2, 3).bool()
    masks.combine(mask)[0, 0] = False
    assert mask.numpy().all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_causal_attention_of_few_positions(n):
    values = r(1, n, 4)
    out = F.scaled_dot_product_attention(r(1, n, 4), r(1, n, 4), values, is_causal=True)
    np.testing.assert_allclose(out.numpy()[0, 0], values.numpy()[0, 0], atol=1e-6)


def test_no_samples_keep_their_length():
    out = F.masked_softmax(ta.zeros(0, 2, 3), mask=ta.ones(0, 3).bool())
    assert out.shape == (0, 2, 3)
    assert attend_to_none().shape == (0, 4, 6)


def attend_to_none():
    return F.scaled_dot_product_attention(r(0, 4, 8), r(0, 5, 8), r(0, 5, 6), is_causal=True)


def test_smoothing_of_probabilities_is_their_mixture():
    logits, p = r(3, 4), F.softmax(r(3, 4))
    mixed = F.cross_entropy(logits, p * 0.7 + 0.3 / 4)
    smoothed = F.cross_entropy(logits, p, label_smoothing=0.3)
    np.testing.assert_allclose(smoothed.item(), mixed.item(), rtol=1e-5)


def test_ignored_targets_have_no_weight():
    logits, weight = r(3, 4), ta.tensor([1.0, 2.0, 3.0, 4.0])
    some = F.cross_entropy(logits, [2, -100, 1], weight)
    without = F.cross_entropy(logits[[0, 2]], [2, 1], weight)
    np.testing.assert_allclose(some.item(), without.item(), rtol=1e-5)


def test_batchmean_divides_by_the_samples():
    x, target = r(2, 3), F.softmax(r(2, 3))
    total = F.kl_div(x, target, "sum").item()
    np.testing.assert_allclose(F.kl_div(x, target, "batchmean").item(), total / 2, rtol=1e-6)


def test_a_divergence_of_logarithms_adds_up_what_cancels():
    """Its terms have both signs. exp, rounded to float32, would move each of them."""
    target = F.log_softmax(r(2, 50))
    x = F.log_softmax(target + 0.01 * r(2, 50))
    right = F.kl_div(x.double(), target.double(), "sum", log_target=True).item()
    found = F.kl_div(x, target, "sum", log_target=True).item()
    assert abs(found - right) <= np.spacing(np.float32(right))


def test_a_recorded_backward_keeps_its_graph():
    x = ta.tensor([3.0, -2.0], requires_grad=True)
    y = (x * x * x).sum()
    y.backward(create_graph=True)
    y.backward()
    assert x.grad.tolist() == [54, 24]
    z = (x * x).sum()
    (slope,) = ta.grad(z, x, create_graph=True)
    (again,) = ta.grad(z, x)
    assert slope.tolist() == again.tolist() == [6, -4]


def test_a_cotangent_takes_the_dtype_of_the_output():
    x = ta.ones(2, requires_grad=True)
    y = x * 3
    y.retain_grad()
    y.backward(ta.tensor([1.0, -2.0], dtype=ta.float64))
    assert x.grad.dtype == y.grad.dtype == np.float32
    (slope,) = ta.grad(x * x, x, ta.tensor([1.0, -2.0], dtype=ta.float64), create_graph=True)
    assert slope.dtype == np.float32


@pytest.mark.parametrize(
    ("kind", "grad"),
    [
        (TypeError, np.ones(2, np.float32)),
        (ShapeError, ta.ones(3)),
        (DtypeError, ta.ones(2, dtype=ta.float64)),
    ],
)
def test_a_gradient_that_does_not_fit_is_refused(kind, grad):
    x = ta.ones(2, requires_grad=True)
    with pytest.raises(kind, match="grad must"):
        x.grad = grad
    assert x.grad is None


def test_inputs_of_grad_are_tensors():
    x = ta.ones(2, requires_grad=True)
    for inputs in ([x, np.ones(2)], np.ones(2), None, [None]):
        with pytest.raises(TypeError, match="sequence of Tensors"):
            ta.grad((x * x).sum(), inputs)


def test_one_row_of_keys_and_values():
    for shapes in (((2, 4, 8), (2, 5, 8), (2, 6, 6)), ((2, 4, 8), (2, 5, 7), (2, 5, 6))):
        with pytest.raises(ShapeError, match=r"agree in the number of keys|one width"):
            F.scaled_dot_product_attention(*(r(*shape) for shape in shapes))


def test_norms_take_weights_of_their_shape():
    for function in (F.layer_norm, F.rms_norm):
        for shape in ((1,), (), (1, 4)):
            with pytest.raises(ShapeError, match="weight must have shape"):
                function(r(2, 4), 4, r(*shape))


def test_masks_that_are_refused():
    with pytest.raises(DtypeError, match="integer token ids"):
        masks.padding([[True, False]])
    with pytest.raises(MaskError, match=r"\(2, 3\)"):
        lens_of_padding(ta.ones(2, 4).bool(), (2, 3))
    with pytest.raises(ShapeError, match="rows of one length"):
        masks.from_valid_lens([[1], [1, 2]], 3)
    attention = nn.MultiHeadAttention(4, 4, 4, 4, 2)
    with pytest.raises(ShapeError, match="one N"):
        attention(r(3, 4), r(2, 4), r(2, 4), valid_lens=[3])


def test_rotary_modules_have_their_base_and_width():
    x = r(2, 4)
    turned = nn.RotaryEmbedding(4, base=100.0)(x).numpy()
    np.testing.assert_array_equal(turned, F.rotary_embedding(x, base=100.0).numpy())
    assert not np.array_equal(turned, F.rotary_embedding(x).numpy())
    with pytest.raises(ShapeError, match="this module takes"):
        nn.RotaryEmbedding(4)(r(2, 6))
    with pytest.raises(ShapeError, match="does not divide"):
        nn.MultiHeadAttention(8, 8, 8, 8, 4, num_kv_heads=3)


def test_starting_values_have_the_deviation_of_their_formula():
    for fill, expected in (
        (lambda w: nn.init.kaiming_normal_(w, mode="fan_in"), math.sqrt(2 / 100)),
        (lambda w: nn.init.kaiming_normal_(w, mode="fan_out"), math.sqrt(2 / 400)),
        (lambda w: nn.init.kaiming_normal_(w, a=3.0), math.sqrt(2 / 10 / 100)),
        (nn.init.xavier_normal_, math.sqrt(2 / 500)),
        (nn.init.xavier_uniform_, math.sqrt(2 / 500)),
    ):
        assert abs(fill(ta.zeros(400, 100)).std().item() / expected - 1) < 0.03


def test_a_sequence_of_matrices_is_masked_by_its_positions():
    x = r(2, 3, 3, 2)
    found = F.sequence_mask(x, [1, 2], value=-1.0).numpy()
    for b, length in enumerate([1, 2]):
        assert (found[b, :length] == x.numpy()[b, :length]).all()
        assert (found[b, length:] == -1).all()
