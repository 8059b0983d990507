"""Convolutions, pooling and batch norm beside PyTorch's: values, and gradients for random signed
cotangents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_modules import compare, numbers, twins

import tinyattn as ta
import tinyattn.torch_names as ours
from tinyattn.errors import ShapeError
from tinyattn.torch_names import nn

F = nn.functional


def same(torch: Any, call: Callable[..., Any], arrays: list[np.ndarray], dtype: str) -> None:
    """The output, and the gradient of each array."""
    exact = 1e-10 if dtype == "float64" else 2e-5
    mine = [ours.tensor(array.astype(dtype), requires_grad=True) for array in arrays]
    right = [torch.tensor(array.astype(dtype), requires_grad=True) for array in arrays]
    found, expected = call(F, *mine), call(torch.nn.functional, *right)
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), exact, exact)
    cotangent = numbers(9, *found.shape).astype(dtype)
    (found * ours.tensor(cotangent)).sum().backward()
    (expected * torch.tensor(cotangent)).sum().backward()
    for x, y in zip(mine, right, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), exact, exact)


def draw(seed: int) -> tuple[int, dict[str, Any], list[np.ndarray]]:
    """Dimensions, the options of a convolution that fits, and x, weight and perhaps a bias."""
    rng = np.random.default_rng(seed)
    dims, groups = int(rng.integers(1, 3)), int(rng.choice([1, 1, 2, 3]))
    inputs, out = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    size, stride, dilation = ([int(n) for n in rng.integers(1, 4, dims)] for _ in range(3))
    padding: Any = [int(n) for n in rng.integers(0, 4, dims)]
    stride = size if rng.random() < 0.3 else stride
    if rng.random() < 0.2:
        padding, stride = "same", [1] * dims
    spatial = [int(n) + d * (k - 1) for n, k, d in zip(rng.integers(1, 9, dims), size, dilation)]  # noqa: B905
    samples = [] if rng.random() < 0.2 else [int(rng.integers(1, 4))]
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    arrays = [rng.normal(size=(*samples, inputs, *spatial))]
    arrays.append(rng.normal(size=(out, inputs // groups, *size)))
    arrays += [rng.normal(size=out)] if rng.random() < 0.7 else []
    return dims, options, arrays


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_random_convolutions(torch: Any, seed: int, dtype: str) -> None:
    dims, options, arrays = draw(seed)
    same(torch, lambda f, *xs: getattr(f, f"conv{dims}d")(*xs, **options), arrays, dtype)


@pytest.mark.parametrize("groups", [1, 3])
def test_a_batch_of_no_samples(torch: Any, groups: int) -> None:
    arrays = [numbers(1, 0, 3, 5, 4), numbers(2, 6, 3 // groups, 2, 3), numbers(3, 6)]
    same(torch, lambda f, *xs: f.conv2d(*xs, groups=groups), arrays, "float64")
    same(torch, lambda f, x: f.max_pool2d(x, 2), arrays[:1], "float64")


@pytest.mark.parametrize("seed", range(30))
def test_random_pools(torch: Any, seed: int) -> None:
    dims, options, (x, weight, *_) = draw(seed)
    size = weight.shape[-dims:]
    border = [k // 2 for k in size] if seed % 2 else 0
    stride = None if seed % 3 == 0 else options["stride"]
    x = np.round(x, 1)  # so that some are equal: the first of them gets the gradient
    pools = ("max_pool", (size, stride, border, options["dilation"])), ("avg_pool", (size, stride))
    for name, given in (*pools, ("avg_pool", (size, stride, border))):
        same(torch, lambda f, x, n=name, g=given: getattr(f, f"{n}{dims}d")(x, *g), [x], "float64")


@pytest.mark.parametrize(("shape", "size"), [
    ((2, 3, 6), 1), ((2, 3, 6), 3), ((3, 6), 2), ((2, 3, 6), 6),
    ((2, 3, 6, 4), 1), ((2, 3, 6, 4), (3, 2)), ((2, 3, 6, 4), (None, 1)), ((3, 6, 4), 2),
])  # fmt: skip
def test_means_of_as_many_windows(torch: Any, shape: tuple[int, ...], size: Any) -> None:
    name = "adaptive_avg_pool2d" if shape[-1] == 4 else "adaptive_avg_pool1d"
    same(torch, lambda f, x: getattr(f, name)(x, size), [numbers(0, *shape)], "float64")


SEQUENCES, IMAGES = numbers(1, 4, 6, 10), numbers(2, 4, 6, 8, 7)
MODULES: list[tuple[str, list[Any], dict[str, Any], np.ndarray]] = [
    ("Conv1d", [6, 4, 3], {"padding": 1}, SEQUENCES),
    ("Conv1d", [6, 4], {"kernel_size": 1, "bias": False}, SEQUENCES),
    ("Conv1d", [6, 6, 3], {"groups": 6, "padding": "same"}, SEQUENCES),
    ("Conv2d", [6, 4, (2, 3), 2], {"dilation": (1, 2)}, IMAGES),
    ("Conv2d", [6, 4], {"kernel_size": 4, "stride": 4}, IMAGES),
    ("MaxPool1d", [2], {}, SEQUENCES),
    ("MaxPool2d", [3], {"stride": 2, "padding": 1}, IMAGES),
    ("AvgPool1d", [3, 1], {}, SEQUENCES),
    ("AvgPool2d", [2], {}, IMAGES),
    ("AdaptiveAvgPool1d", [1], {}, SEQUENCES),
    ("AdaptiveAvgPool2d", [(4, 1)], {}, IMAGES),
    ("BatchNorm1d", [6], {}, SEQUENCES),
    ("BatchNorm1d", [6], {"affine": False}, SEQUENCES[:, :, 0]),
    ("BatchNorm1d", [6], {"momentum": None, "eps": 0.1}, SEQUENCES),
    ("BatchNorm2d", [6], {"momentum": 0.3}, IMAGES),
    ("BatchNorm2d", [6], {"track_running_stats": False}, IMAGES),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "args", "options", "x"), MODULES)
def test_modules(
    torch: Any, name: str, args: list[Any], options: dict[str, Any], x: np.ndarray, dtype: str
) -> None:
    """In training, three times, and then in evaluation; the states are the same after it."""
    mine, right = twins(torch, name, *args, dtype=dtype, **options)
    for module in (mine, right):
        for buffer in module.buffers():  # the starting values have noise
            buffer[...] = abs(buffer)
    for scale in (1.0, 3.0, -0.5):
        for module in (mine, right):
            module.zero_grad()
        compare(mine, right, torch, [scale * x + scale], dtype)
    for module in (mine, right):
        module.zero_grad()
        module.eval()
    compare(mine, right, torch, [x], dtype)
    for found, expected in zip(mine.buffers(), right.buffers(), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-5)
        assert str(expected.dtype) == f"torch.{found.dtype}"


def test_starting_values_are_pytorchs(torch: Any) -> None:
    """The range of the weights, and running numbers."""
    for t in (ours, torch):
        layer = t.nn.Conv2d(8, 32, 5)
        bound = (8 * 25) ** -0.5
        assert 0.95 * bound < layer.weight.abs().max().item() <= bound
        assert 0.8 * bound < layer.bias.abs().max().item() <= bound
        norm = t.nn.BatchNorm1d(3)
        assert norm.running_mean.tolist() == [0, 0, 0]
        assert norm.running_var.tolist() == norm.weight.tolist() == [1, 1, 1]
        assert norm.num_batches_tracked.item() == 0


def test_side_by_side_windows_are_a_view() -> None:
    x = ours.randn(2, 3, 8, 8)
    patches = F.windows.windows(x, (4, 4), (4, 4), (1, 1))
    assert patches.shape == (2, 3, 2, 2, 4, 4)
    assert np.shares_memory(patches._data, x._data)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: F.conv1d(x, x), ShapeError, r"takes an input \(B, C, L\) or \(C, L\), got"),
        (lambda x: F.conv2d(x, ours.ones(2, 4, 1, 1)), ShapeError, r"1 groups of a weight .*do n"),
        (lambda x: F.conv2d(x, ours.ones(2, 3, 1)), ShapeError, r"do not fit an input .*\(2, 3, 4"),
        (lambda x: F.conv2d(x, ours.ones(2, 3, 5, 1)), ShapeError, r"window of \(5, 1\) is larger"),
        (lambda x: F.conv2d(x, ours.ones(2, 3, 1, 1), stride=0), ShapeError, "stride must be"),
        (lambda x: F.conv2d(x, ours.ones(2, 3, 1, 1), None, (1, 1, 1)), ShapeError, "one number"),
        (lambda x: F.conv2d(x, ours.ones(2, 3, 1, 1), None, 2, "same"), ValueError, "stride 1"),
        (lambda x: F.max_pool2d(x, 2, padding=2), ShapeError, "at most half of the window"),
        (lambda x: F.max_pool2d(x, 2, ceil_mode=True), ValueError, "max pooling takes ceil_mode"),
        (lambda x: nn.MaxPool1d(2, return_indices=True)(x[0]), ValueError, "return_indices=False"),
        (lambda x: F.avg_pool2d(x, 2, ceil_mode=True), ValueError, "average pooling takes ceil"),
        (lambda x: F.avg_pool2d(x, 2, 2, 1, False, False), ValueError, "count_include_pad=True"),
        (lambda x: F.max_pool2d(x.long(), 2), ta.errors.DtypeError, "a floating dtype"),
        (lambda x: F.adaptive_avg_pool2d(x, 3), ShapeError, r"a multiple of \(3, 3\), got \(4"),
        (lambda x: nn.Conv2d(3, 2, 1, padding_mode="reflect"), ValueError, 'mode is "zeros"'),
        (lambda x: nn.Conv2d(3, 2, 1, groups=2), ValueError, "groups divide in_channels"),
        (lambda x: nn.BatchNorm2d(4)(x), ShapeError, "4 dimensions, 4 channels in the second"),
        (lambda x: nn.BatchNorm1d(3)(x), ShapeError, "takes 2 or 3 dimensions"),
        (lambda x: nn.BatchNorm1d(3)(x[:1, :, 0, 0]), ValueError, "two numbers per channel"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call: Callable[[Any], Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call(ours.ones(2, 3, 4, 4))


def test_the_usual_value_of_an_option_of_pooling_is_taken(torch: Any) -> None:
    x = numbers(3, 2, 3, 6, 6)
    for t in (ours, torch):
        y = t.tensor(x)
        same = t.nn.MaxPool2d(2)(y)
        assert t.nn.MaxPool2d(2, ceil_mode=False, return_indices=False)(y).equal(same)
        assert t.nn.functional.max_pool2d(y, 2, 2, 0, 1, False, False).equal(same)
        same = t.nn.AvgPool2d(2)(y)
        assert t.nn.AvgPool2d(2, ceil_mode=False, count_include_pad=True)(y).equal(same)
        assert t.nn.functional.avg_pool2d(y, 2, 2, 0, False, True).equal(same)


def test_the_settings_of_a_convolution_are_pytorchs(torch: Any) -> None:
    """Programs read conv.stride[0], and show the layer."""
    for name, settings in (
        ("Conv2d", {}),
        ("Conv2d", {"stride": 2, "padding": (1, 0), "dilation": 2, "groups": 2}),
        ("Conv2d", {"padding": "same", "bias": False}),
        ("Conv1d", {"padding": 3}),
    ):
        mine, right = (getattr(t.nn, name)(4, 8, 3, **settings) for t in (ours, torch))
        for key in ("stride", "padding", "dilation", "kernel_size", "groups", "in_channels"):
            assert getattr(mine, key) == getattr(right, key), (settings, key)


@pytest.mark.parametrize("kinds", [("Conv1d", "Conv2d"), ("BatchNorm1d", "BatchNorm2d")])
def test_a_layer_is_of_one_kind_alone(torch: Any, kinds: tuple[str, str]) -> None:
    """Programs ask for the kind one after another when they fill the weights."""

    def fill(t: Any, module: Any) -> None:
        for i, kind in enumerate(kinds):
            if isinstance(module, getattr(t.nn, kind)):
                t.nn.init.constant_(module.weight.data, i + 1)
                return

    for kind in kinds:
        mine, right = (
            getattr(t.nn, kind)(*[3] * (3 if "Conv" in kind else 1)) for t in (ours, torch)
        )
        for t, module in ((ours, mine), (torch, right)):
            module.apply(lambda m, t=t: fill(t, m))
        np.testing.assert_array_equal(mine.weight.detach().numpy(), right.weight.detach().numpy())


def in_each_window(
    x: np.ndarray, size: Any, stride: Any, padding: Any, dilation: Any, value: float
) -> np.ndarray:
    """(B, C, H, W) -> (B, C, O, P, K, L): what each window sees, by the definition."""
    pads = [(0, 0), (0, 0), *((n, n) for n in padding)]
    x = np.pad(x, pads, constant_values=value)
    rows, columns = (
        [[start + d * i for i in range(k)] for start in range(0, n - d * (k - 1), step)]
        for n, k, d, step in zip(x.shape[2:], size, dilation, stride, strict=True)
    )
    return np.stack([np.stack([x[:, :, r][..., c] for c in columns], 2) for r in rows], 2)


# Height and width differ in one option, or in all of them.
UNLIKE: list[dict[str, Any]] = [
    {"padding": (1, 0)}, {"padding": (0, 1)}, {"stride": (2, 1)}, {"stride": (1, 2)},
    {"dilation": (2, 1)}, {"dilation": (1, 2)}, {"size": (3, 2)}, {"size": (2, 3)},
    {"size": (3, 4), "stride": (2, 3), "padding": (1, 2), "dilation": (2, 1)},
    {"size": (4, 2), "stride": (3, 1), "padding": (2, 0), "dilation": (1, 3)},
]  # fmt: skip


def named(options: Any) -> str:
    return "-".join(f"{name}{a}{b}" for name, (a, b) in options.items())


@pytest.mark.parametrize("options", UNLIKE, ids=named)
def test_each_dimension_has_its_own_option(options: dict[str, Any]) -> None:
    """Beside the definition, for each function of windows and its module."""
    usual = {"size": (2, 2), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    size, stride, padding, dilation = (usual | options).values()
    x, weight, bias = numbers(1, 2, 4, 9, 8), numbers(2, 6, 2, *size), numbers(3, 6)
    seen = in_each_window(x, size, stride, padding, dilation, 0.0)
    halves = [np.einsum("bcopkl,dckl->bdop", seen[:, 2 * g : 2 * g + 2], weight[3 * g : 3 * g + 3])
              for g in (0, 1)]  # fmt: skip
    expected = np.concatenate(halves, 1) + bias[:, None, None]
    tensors = [ours.tensor(array) for array in (x, weight, bias)]
    found = F.conv2d(*tensors, stride, padding, dilation, 2)
    np.testing.assert_allclose(found.numpy(), expected, 1e-12, 1e-12)
    layer = nn.Conv2d(4, 6, size, stride, padding, dilation, 2, dtype=ours.float64)
    layer.load_state_dict({"weight": tensors[1], "bias": tensors[2]})
    assert layer(tensors[0]).tolist() == found.tolist()

    border = tuple(min(p, k // 2) for p, k in zip(padding, size, strict=True))
    highest = in_each_window(x, size, stride, border, dilation, -np.inf).max((-1, -2))
    for pool in (F.max_pool2d(tensors[0], size, stride, border, dilation),
                 nn.MaxPool2d(size, stride, border, dilation)(tensors[0])):  # fmt: skip
        assert pool.tolist() == highest.tolist()
    mean = in_each_window(x, size, stride, border, (1, 1), 0.0).mean((-1, -2))
    for pool in (F.avg_pool2d(tensors[0], size, stride, border),
                 nn.AvgPool2d(size, stride, border)(tensors[0])):  # fmt: skip
        np.testing.assert_allclose(pool.numpy(), mean, 1e-12, 1e-12)


@pytest.mark.parametrize(
    "shape", [(2, 3), (1, 3, 2), (2, 3, 1), (4, 3, 5), (1, 3, 1, 2), (1, 3, 2, 1), (2, 3, 1, 1),
              (1, 3, 4, 5), (4, 3, 2, 2)],
)  # fmt: skip
def test_a_channel_with_two_numbers_is_normalized(shape: tuple[int, ...]) -> None:
    """Whether they are of two samples or of one image: by the formula in float64."""
    x, weight, bias = numbers(1, *shape), numbers(2, 3), numbers(3, 3)
    dims = tuple(i for i in range(len(shape)) if i != 1)
    channel = (3, *[1] * (len(shape) - 2))
    mean, var, unbiased = x.mean(dims), x.var(dims), x.var(dims, ddof=1)
    expected = (x - mean.reshape(channel)) / np.sqrt(var.reshape(channel) + 0.01)
    expected = expected * weight.reshape(channel) + bias.reshape(channel)
    running = [ours.tensor(numbers(4, 3)), ours.tensor(numbers(5, 3) ** 2)]
    before = [each.numpy().copy() for each in running]
    tensors = [ours.tensor(array) for array in (x, *before, weight, bias)]
    out = F.batch_norm(tensors[0], *running, *tensors[3:], training=True, momentum=0.3, eps=0.01)
    np.testing.assert_allclose(out.numpy(), expected, 1e-10, 1e-10)
    for found, old, new in zip(running, before, (mean, unbiased), strict=True):
        np.testing.assert_allclose(found.numpy(), 0.7 * old + 0.3 * new, 1e-12)
    layer = (nn.BatchNorm1d if len(shape) < 4 else nn.BatchNorm2d)(3, 0.01, 0.3, dtype=ours.float64)
    state = dict(zip(("running_mean", "running_var", "weight", "bias"), tensors[1:], strict=True))
    layer.load_state_dict(state, strict=False)
    np.testing.assert_allclose(layer(tensors[0]).numpy(), expected, 1e-10, 1e-10)
    np.testing.assert_allclose(layer.running_var.numpy(), running[1].numpy(), 1e-12)
    assert int(layer.num_batches_tracked) == 1


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1), (1, 3, 1, 1), (0, 3), (0, 3, 2, 2)])
def test_a_channel_with_one_number_is_not(shape: tuple[int, ...]) -> None:
    mean, var = ours.zeros(3), ours.ones(3)
    with pytest.raises(ValueError) as raised:  # noqa: PT011  the sentence is compared as a whole
        F.batch_norm(ours.ones(shape), mean, var, training=True)
    assert str(raised.value) == f"batch_norm needs two numbers per channel to train, x {shape}"
    assert (mean.tolist(), var.tolist()) == ([0.0] * 3, [1.0] * 3)
    assert F.batch_norm(ours.ones(shape), mean, var).shape == shape


@pytest.mark.parametrize("dims", [1, 2])
def test_an_option_is_a_number_or_one_for_each_dimension(dims: int) -> None:
    """In a list or a tuple, also a list of one; a list of another length is refused by name."""
    x, weight = ours.randn(2, 3, *[8] * dims), ours.randn(4, 3, *[3] * dims)
    calls: dict[str, Callable[..., Any]] = {
        "kernel_size": lambda n: getattr(F, f"avg_pool{dims}d")(x, n),
        "stride": lambda n: getattr(F, f"conv{dims}d")(x, weight, stride=n),
        "padding": lambda n: getattr(F, f"conv{dims}d")(x, weight, padding=n),
        "dilation": lambda n: getattr(F, f"conv{dims}d")(x, weight, dilation=n),
        "output_size": lambda n: getattr(F, f"adaptive_avg_pool{dims}d")(x, n),
    }
    pools = {
        "stride": lambda n: getattr(F, f"max_pool{dims}d")(x, 3, n),
        "padding": lambda n: getattr(F, f"max_pool{dims}d")(x, 4, 1, n),
        "dilation": lambda n: getattr(F, f"max_pool{dims}d")(x, 3, 1, 0, n),
    }
    for name, call in (*calls.items(), *pools.items()):
        for wrap in (list, tuple):
            assert call(wrap([2] * dims)).equal(call(2))
            assert call(wrap([2])).equal(call(2))
            for wrong in ([], [2] * (dims + 1)):
                with pytest.raises(ShapeError) as raised:
                    call(wrap(wrong))
                got = wrong if name == "output_size" else wrap(wrong)
                assert str(raised.value) == f"{name} is one number or {dims}, got {got}"
        for wrong in (-1, 1.5, "a", *([0] if name != "padding" else [])):
            with pytest.raises(ShapeError, match=f"^{name} must be an integer >= "):
                call(wrong)
