"""Values, meanings of arguments and refusals that readers know from PyTorch.

Each was wrong once: a result of another dtype or value, a positional argument with another meaning,
a number that was changed without a sign, or an error that did not say what to do.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.errors import DtypeError, ShapeError


def equal(found, expected):
    found = found.numpy() if isinstance(found, ta.Tensor) else np.asarray(found)
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


ONE_TO_SIX = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)


def x():
    return ta.tensor(ONE_TO_SIX)


# Values and dtypes


def test_triangles_of_booleans_are_booleans():
    full = ta.ones(3, 3).bool()
    equal(ta.tril(full), np.tri(3, dtype=bool))
    equal(~ta.tril(full), ~np.tri(3, dtype=bool))
    equal(ta.triu(full), np.tri(3, dtype=bool).T)
    equal(ta.where(~ta.tril(full), 1.0, 0.0), (~np.tri(3, dtype=bool)).astype(np.float32))
    equal((x() > 2).masked_fill(x() > 4, 0), [[False, False, True], [True, False, False]])
    equal((x() > 2).masked_fill(x() > 4, 1).sum(), np.int64(4))


def test_tensors_of_one_element_are_numbers_in_a_list():
    """A list of predictions has the shape of the labels that it is compared with."""
    one = ta.tensor([5])
    for data in ([one, one], [ta.tensor([[5]]), 5], (ta.tensor(5), one)):
        equal(ta.tensor(data), np.array([5, 5]))
    equal(ta.tensor([[one], [one]]), np.array([[5], [5]]))
    equal(ta.as_tensor([ta.ones(1, dtype=ta.float64, requires_grad=True)]), np.ones(1))
    assert ta.tensor([one]).shape == ta.tensor(one).shape == (1,)
    assert ta.tensor([ta.ones(2), ta.ones(2)]).shape == (2, 2)  # others are rows
    assert ta.tensor([np.ones(1), np.ones(1)]).shape == (2, 1)  # as in PyTorch


@pytest.mark.parametrize("one", [ta.tensor([3]), ta.tensor([[3]])])
def test_a_tensor_of_one_element_stands_behind_numbers_too(one):
    """A number in front of it ended in an error about rows of different lengths."""
    equal(ta.tensor([2, one]), np.array([2, 3]))
    equal(ta.tensor([[0, one], [2, one]]), np.array([[0, 3], [2, 3]]))
    equal(ta.tensor([2.5, one]), np.array([2.5, 3.0], np.float32))


def test_triangles_keep_every_dtype():
    for dtype in (np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8):
        assert ta.tril(ta.ones(2, 2, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(
    "compute",
    [
        lambda: x() * 1j,
        lambda: 1j + x(),
        lambda: x() ** 1j,
        lambda: x() / np.complex64(1j),
        lambda: ta.tensor(1j),
        lambda: ta.full((2,), 1j),
        lambda: x().masked_fill(x() > 2, 1j),
    ],
)
def test_complex_numbers_are_refused(compute):
    with pytest.raises((DtypeError, TypeError), match=r"complex|real|takes tensors and numbers"):
        compute()


def test_sums_of_small_and_unsigned_integers_are_int64():
    for dtype in (np.bool_, np.int8, np.uint8, np.uint32):
        one, two = ta.tensor(np.ones(1, dtype)), ta.tensor(np.ones(2, dtype))
        equal(one.sum() - two.sum(), np.int64(-1))
        equal(ta.tensor(np.ones((300, 2), dtype)).sum(0), np.array([300, 300]))


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (ta.tensor([1, 2]), float("nan")),
        (ta.tensor([1, 2]), float("inf")),
        (ta.tensor([1, 2]), 1.5),
        (ta.tensor([1, 2]), ta.tensor(1.5)),
        (ta.tensor([1, 2], dtype=ta.uint8), 300),
        (ta.tensor([1, 2], dtype=ta.int8), -200),
        (ta.tensor([True, False]), 2),
    ],
)
def test_numbers_that_would_change_are_not_written(target, value):
    before = target.numpy()
    with pytest.raises(DtypeError, match="does not fit into a tensor of"):
        target[0] = value
    equal(target, before)


def test_numbers_that_fit_are_written():
    a, b, c = ta.tensor([1, 2]), ta.tensor([True, False]), ta.tensor([1.0, 2.0])
    a[0], b[0], c[0] = 7.0, 0, float("nan")
    equal(a, [7, 2])
    equal(b, [False, False])
    assert np.isnan(c[0].item())


def test_booleans_do_not_become_numbers_in_place():
    flags = ta.tensor([True, False])
    with pytest.raises(DtypeError, match="int64"):
        flags += 2
    equal(flags, [True, False])


class Foreign:
    """An array of another library: it has a dtype and converts itself."""

    dtype = "float64"

    def __array__(self, dtype=None, copy=None):
        return np.array([0.1, 0.2])


@pytest.mark.parametrize(
    "data",
    [
        [np.float64(0.1), np.float64(0.2)],
        [0.1, np.float64(0.2)],
        [np.array(0.1), np.array(0.2)],
        Foreign(),
        (ta.tensor(0.1, dtype=ta.float64), ta.tensor(0.2, dtype=ta.float64)),
    ],
)
def test_doubles_stay_doubles(data):
    equal(ta.tensor(data), np.array([0.1, 0.2]))


def test_numbers_of_python_are_float32():
    assert ta.tensor([[0.1, 0.2]]).dtype == ta.tensor(0.1).dtype == np.float32


def test_a_float64_model_takes_a_state_of_doubles_exactly(torch):
    weights = {"weight": torch.randn(2, 3, dtype=torch.float64), "bias": torch.randn(2).double()}
    linear = nn.Linear(3, 2).to(ta.float64)
    linear.load_state_dict(weights)
    equal(linear.weight, weights["weight"].numpy())


# Meanings of arguments


def test_max_and_min_along_a_dimension_are_pairs():
    values = ta.tensor([[1.0, 5.0, 5.0], [7.0, -1.0, 2.0]], requires_grad=True)
    best = values.max(dim=1)
    equal(best.values, np.float32([5, 7]))
    equal(best.indices, [1, 0])
    found, places = values.min(1, keepdim=True)
    equal(found, np.float32([[1], [-1]]))
    equal(places, [[0], [1]])
    best.values.backward(ta.tensor([2.0, -3.0]))
    equal(values.grad, np.float32([[0, 2, 0], [-3, 0, 0]]))  # to the first of those that tie
    equal(values.max(), np.float32(7))
    equal(values.amax(1), np.float32([5, 7]))
    equal(values.amax((0, 1)), np.float32(7))
    equal(ta.tensor(3.0).max(0).values, np.float32(3))
    with pytest.raises(TypeError, match="amax"):
        values.max((0, 1))


def test_max_and_min_of_two_tensors_are_elementwise():
    other = ta.tensor([[3.0, 3.0, 3.0]])
    equal(x().max(other), np.maximum(ONE_TO_SIX, 3))
    equal(x().min(other), np.minimum(ONE_TO_SIX, 3))


@pytest.mark.parametrize(
    ("shape", "larger"),
    [((1, 3), (2, 3)), ((3,), (2, 3)), ((2, 1), (3,)), ((1,), (4,)), ((), (2, 2)), ((0,), (2, 1))],
)
def test_a_mask_may_be_larger_than_what_it_fills(torch, shape, larger):
    """The result has the shape of both, and the gradient that of the tensor."""
    numbers = np.arange(1.0, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    mask = (np.arange(np.prod(larger)) % 3 == 1).reshape(larger)
    ours, theirs = ta.tensor(numbers, requires_grad=True), torch.tensor(numbers, requires_grad=True)
    found, expected = ours.masked_fill(mask, -1.0), theirs.masked_fill(torch.tensor(mask), -1.0)
    equal(found, expected.detach())
    (found * found).sum().backward()
    (expected * expected).sum().backward()
    equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "max", "var"])
def test_two_dimensions_are_one_tuple(name):
    with pytest.raises(TypeError, match=r"keepdim|dim=\(0, 1\)|unbiased"):
        getattr(x(), name)(0, 1) if name != "var" else x().var(0, True, 1)


def test_no_dimensions_mean_all_of_them():
    equal(x().sum(dim=()), np.float32(21))
    equal(x().mean(dim=[]), np.float32(3.5))
    assert ta.ones(1, 3, 1).squeeze(()).shape == (1, 3, 1)
    assert ta.ones(1, 3, 1).squeeze((0, 1)).shape == (3, 1)
    assert ta.ones(1, 3, 1).squeeze().shape == (3,)


def test_view_never_copies():
    leaf = ta.tensor(ONE_TO_SIX, requires_grad=True)
    equal(leaf.view(3, 2), ONE_TO_SIX.reshape(3, 2))
    equal(leaf[1:].view(-1), ONE_TO_SIX[1])
    with pytest.raises(ShapeError, match="reshape"):
        leaf.T.view(6)
    equal(leaf.T.reshape(6), ONE_TO_SIX.T.reshape(6))
    assert ta.zeros(0, 3).view(3, 0).shape == (3, 0)


def test_xavier_counts_as_pytorch_does():
    ta.manual_seed(0)
    weight = nn.init.xavier_uniform_(ta.zeros(4, 3, 50))
    bound = np.sqrt(6 / (3 * 50 + 4 * 50))
    assert 0.9 * bound < abs(weight.numpy()).max() <= bound
    for shape in ((5,), ()):
        with pytest.raises(ShapeError, match="two dimensions"):
            nn.init.xavier_uniform_(ta.zeros(*shape))


def test_ranges_refuse_what_has_no_meaning():
    with pytest.raises(ShapeError, match="-1"):
        ta.randperm(-1)
    with pytest.raises(ShapeError, match=r"\[1, 2\]"):
        ta.randperm([1, 2])
    with pytest.raises(TypeError, match="None"):
        ta.arange(None)
    with pytest.raises(ValueError, match="5, 0 and 1"):
        ta.arange(5, 0)
    equal(ta.arange(5, 0, -2), [5, 3, 1])
    assert ta.arange(0).shape == (0,)


def test_pieces_of_nothing_and_numbers_of_numpy():
    assert [piece.shape for piece in ta.zeros(0, 3).chunk(3)] == [(0, 3)] * 3
    assert [len(piece) for piece in x().T.chunk(np.int64(2))] == [2, 1]
    assert [len(piece) for piece in x().T.split(np.int64(2))] == [2, 1]
    with pytest.raises(TypeError, match="integers as sizes"):
        x().split(1.5)


def test_positional_arguments_of_sgd_are_those_of_pytorch(torch):
    start, rng = np.float32([1.0, -2.0, 3.0]), np.random.default_rng(0)
    ours, theirs = nn.Parameter(start), torch.nn.Parameter(torch.tensor(start))
    settings = (0.1, 0.9, 0.25, 1e-2)  # lr, momentum, dampening, weight_decay
    mine, other = optim.SGD([ours], *settings), torch.optim.SGD([theirs], *settings)
    for _ in range(5):
        grad = rng.normal(size=3).astype(np.float32)
        ours.grad, theirs.grad = ta.tensor(grad), torch.tensor(grad)
        mine.step()
        other.step()
        np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-6)
    with pytest.raises(ValueError, match="dampening"):
        optim.SGD([ours], 0.1, 0.9, 0.1, nesterov=True)


def test_layer_norm_without_parameters():
    plain = nn.LayerNorm(3, 1e-5, False)
    assert list(plain.parameters()) == []
    equal(plain(x()), F.layer_norm(x(), 3).numpy())
    assert [n for n, _ in nn.LayerNorm(3, bias=False).named_parameters()] == ["weight"]
    nn.clones(plain, 2)  # draws starting values anew


def test_attention_of_width_0_is_the_mean_of_the_visible_values():
    empty, values = ta.zeros(2, 4, 0), ta.randn(2, 4, 3)
    out = F.scaled_dot_product_attention(empty, empty, values, valid_lens=[1, 3])
    np.testing.assert_allclose(out.numpy()[1, 0], values.numpy()[1, :3].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(out.numpy()[0, 3], values.numpy()[0, 0], rtol=1e-6)


# Messages


def test_numbers_are_formatted():
    assert f"{ta.tensor(1.23456):.3f}" == "1.235"
    for value in (2.5, 3, True):  # a number, as in PyTorch; print and repr say "tensor"
        assert f"{ta.tensor(value)} {ta.tensor([value])}" == f"{value} {ta.tensor([value])!r}"
    assert f"{ta.tensor([7]):>4d}" == "   7"
    assert f"{ta.tensor([1, 2])}" == "tensor([1, 2])"
    with pytest.raises(ShapeError, match="one element"):
        f"{ta.tensor([1.0, 2.0]):.3f}"


def test_nothing_equals_none():
    assert (x() == None) is False  # noqa: E711
    assert (x() != None) is True  # noqa: E711
    assert (x() == "a") is False
    equal(x() == 2, ONE_TO_SIX == 2)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: np.sum(x()), r"write x\.sum\(\)"),
        (lambda: np.mean(x()), r"x\.mean\(\)"),
        (lambda: nn.EncoderLayer(16, 8, 32), r"self_attn .* module.*got int 8"),
        (lambda: nn.EncoderLayer(
            4, nn.PositionwiseFeedForward(4, 8), nn.MultiHeadedAttention(2, 4)), "exchange"),
        (lambda: nn.EncoderLayer(
            4, nn.MultiHeadedAttention(2, 4), nn.PositionwiseFeedForward(4, 8), eps="a"), "eps"),
        (lambda: nn.LayerNorm(4, "a"), "eps must be a number"),
        (lambda: ta.tensor([1], dtype=ta.int8) + 300, r"300 does not fit .* int8"),
        (lambda: ta.set_rng_state({}), "get_rng_state"),
        (lambda: nn.Linear(2, 2).load_state_dict({}), "missing weight, bias"),
        (lambda: F.masked_softmax(x()[None], mask=x()[None]), r"go into bias="),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(wrong, says):
    with pytest.raises((TypeError, ValueError), match=says):
        wrong()


def test_tensors_of_pytorch_are_told_how_to_come_in(torch):
    with pytest.raises(DtypeError, match=r"ta\.tensor"):
        x() + torch.ones(2, 3)


def test_tensors_of_pytorch_that_numpy_cannot_read_are_refused_with_what_to_do(torch):
    layer = nn.Linear(3, 2)
    before = layer.weight.numpy().copy()
    half, recorded = torch.ones(2, 3).bfloat16(), torch.ones(2, 3, requires_grad=True)
    for other in (half, recorded, [recorded, recorded]):
        with pytest.raises(DtypeError, match=r"x\.detach\(\)\.cpu\(\)\.float\(\)"):
            ta.tensor(other)
    for other in (half, recorded):
        with pytest.raises(DtypeError, match=r"weight: .*x\.detach\(\).*interop\.load_torch_state"):
            layer.load_state_dict({"weight": other, "bias": torch.ones(2)})
    equal(layer.weight, before)
    equal(ta.tensor(recorded.detach().cpu()), np.ones((2, 3), np.float32))
    equal(ta.tensor(half.detach().cpu().float()), np.ones((2, 3), np.float32))


def test_settings_changed_later_are_checked_at_the_call():
    attention = nn.MultiHeadAttention(4, 4, 4, 4, 2, dropout=0.5)
    y = ta.randn(1, 3, 4)
    attention.num_heads = 0
    with pytest.raises(ShapeError, match="0 heads"):
        attention(y, y, y)
    attention.num_heads, attention.dropout.p = 2, 2.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        attention(y, y, y)


class OwnForward(nn.MultiHeadedAttention):
    def forward(self, query, key, value, **_):
        return query


def test_weights_of_a_module_with_its_own_forward():
    module = OwnForward(2, 4)
    module(x(), x(), x())
    with pytest.raises(AttributeError, match=r"its own forward\(\)"):
        module.attention_weights  # noqa: B018


def test_copies_and_pickles_of_what_was_changed():
    y = x()
    y += 1
    equal(copy.deepcopy(y), ONE_TO_SIX + 1)
    equal(pickle.loads(pickle.dumps(y)), ONE_TO_SIX + 1)


# Found by calling every public name beside PyTorch's


@pytest.mark.parametrize(
    "compute",
    [
        lambda m, F: m.tensor([5, 6], dtype=m.int8) & m.tensor(3),
        lambda m, F: m.tensor(8) | m.tensor([5, 6], dtype=m.int32),
        lambda m, F: m.tensor([5, 6], dtype=m.uint8) ^ m.tensor([True, False]),
        lambda m, F: F.softmax(m.tensor([1, -1]), -1, dtype=m.float32),
        lambda m, F: F.log_softmax(m.tensor([1, -1]), -1, dtype=m.float32),
        lambda m, F: F.rms_norm(m.tensor([[0.01, 0.02]], dtype=m.float16), (2,)),
        lambda m, F: F.rms_norm(m.tensor([[1e-4, 2e-4]]), (2,)),
        lambda m, F: F.rms_norm(m.tensor([[1e-8, 2e-8]], dtype=m.float64), (2,)),
        lambda m, F: F.pad(m.tensor([1.0, 2.0]), (1, 1), "constant", None),
        lambda m, F: F.pad(m.tensor([1, 2]), (1, 1)),
        lambda m, F: m.tensor([True, False]) ** 2,
        lambda m, F: 2 ** m.tensor([True, False]),
        lambda m, F: m.tensor([np.float32(1.5), 1]),
        lambda m, F: m.tensor([m.tensor(1), m.tensor(2.5)]),
        lambda m, F: m.tensor([6, 3]) & m.tensor([3, 5]),
        lambda m, F: m.tensor([6, 3]) | m.tensor([3, 5]),
        lambda m, F: m.tensor([6, 3]) ^ m.tensor([3, 5]),
        lambda m, F: ~m.tensor([6, 3]),
        lambda m, F: m.zeros(0, 3).prod(0),
        lambda m, F: m.arange(0, 2, np.float32(0.5)),
        lambda m, F: m.arange(np.float64(0), 2),
        lambda m, F: m.arange(m.tensor([2, 4]).max())[None] < m.tensor([[2], [4]]),
        lambda m, F: m.arange(m.tensor(1), m.tensor(2.5), 0.5),
        lambda m, F: m.arange(1, 1.3, 0.1),
        lambda m, F: F.cross_entropy(
            m.tensor([[-m.inf, 0.0, 1.0]]), m.tensor([[0.0, 1.0, 0.0]]), label_smoothing=0.1),
        lambda m, F: F.cross_entropy(
            m.tensor([[-m.inf, 0.0, 1.0]]), m.tensor([1]), label_smoothing=0.1),
    ],
)  # fmt: skip
def test_results_and_dtypes_are_those_of_pytorch(torch, compute):
    found, expected = compute(ta, F).numpy(), compute(torch, torch.nn.functional).numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-3 if found.dtype == np.float16 else 1e-6)


def test_integers_have_no_softmax():
    for function in (F.softmax, F.log_softmax, F.gelu, F.silu, F.softplus):
        with pytest.raises(DtypeError, match="floating"):
            function(ta.tensor([1, 2]))


@pytest.mark.parametrize(
    "copied",
    [
        lambda y: y.repeat(1, 1),
        lambda y: y[:1].repeat(2, 1),
        lambda y: y.repeat_interleave(1, 0),
        lambda y: y[:1].repeat_interleave(2, 0),
        lambda y: y[:1].prod(0),
        lambda y: y[:1].prod(0, keepdim=True),
        lambda y: y[:1, :1].prod(),
        lambda y: F.pad(y, ()),
        lambda y: F.pad(y, (0, 0)),
        lambda y: y.roll(0, 0),
        lambda y: ta.cat([y]),
        lambda y: ta.as_tensor(y.numpy()),
        nn.Parameter,
    ],
)
def test_results_that_are_no_views(copied):
    y = x()
    with ta.no_grad():
        copied(y)[...] = 9
    equal(y, ONE_TO_SIX)


def test_a_result_that_is_a_view():
    y = x()
    y.unbind(1)[0][1] = 9
    equal(y[1], np.float32([9, *x()[1, 1:].tolist()]))
    y.flip(0)[0] = 8  # a copy, as in PyTorch
    equal(y[1], np.float32([9, *x()[1, 1:].tolist()]))
