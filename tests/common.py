"""What several test files share: random arrays, comparisons, and PyTorch's answers."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import kernels as kernels_of_library
from tinyattn.kernels import reference
from tinyattn.kernels.reference import AdamStep
from tinyattn.kernels.visibility import Visibility, of_padded, samples_of

HERE = Path(__file__).parent
# All functions that have faster twins, wherever their formulas stand.
kernels = SimpleNamespace(**vars(kernels_of_library) | kernels_of_library.twins)
FOLDERS = [str(HERE), *(str(path) for path in sorted(HERE.iterdir()) if path.is_dir())]
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(
    not HAS_TORCH, reason="PyTorch is not installed: its stored values are compared with instead"
)
VALUE_TOLERANCE = 1e-12
GRADIENT_TOLERANCE = 1e-11


def rng_of(seed):
    """NumPy's frozen generator: its numbers are promised never to change between versions."""
    return np.random.RandomState(seed)


def signed(rng, *shape):
    """Random numbers of both signs, none of them close to 0, so that every element counts."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)


def read_only(array):
    array = np.array(array, order="C")
    array.flags.writeable = False
    return array


def misaligned(array):
    """A copy that begins one byte beside where numbers of its size should."""
    buffer = np.empty(array.nbytes + 1, np.uint8)
    shifted = buffer[1:].view(array.dtype).reshape(array.shape)
    shifted[...] = array
    assert not (shifted.size and shifted.flags.aligned and array.dtype.itemsize > 1)
    return shifted


def leaf(array, dtype=None):
    return ta.tensor(array, dtype=dtype, requires_grad=True)


def pull(output, grad):
    """Backward with a cotangent given as an array."""
    output.backward(ta.tensor(grad, dtype=output.dtype))


def relative_error(actual, expected):
    """The largest difference, relative to the largest expected number."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    if not expected.size:
        return 0.0
    assert np.isfinite(actual).all(), "not finite"
    difference = np.abs(actual - expected).max()
    largest = np.abs(expected).max()
    return float(difference / largest) if largest else float(difference)


def assert_close(actual, expected, tolerance=VALUE_TOLERANCE):
    error = relative_error(actual, expected)
    assert error <= tolerance, f"relative error {error:.3g} is larger than {tolerance:.3g}"


def assert_same(actual, expected):
    """Bitwise equal, NaN included, with equal dtypes and shapes."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if actual.tobytes() != expected.tobytes():
        assert_equal(actual, expected)
        raise AssertionError("equal but for the sign of a zero, or the kind of a NaN")


def assert_equal(actual, expected):
    """Equal numbers, NaN included, with equal dtypes and shapes; -0.0 counts as 0.0."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    assert same.all(), f"{(~same).sum()} of {same.size} differ: {actual[~same][:3]}"


def assert_all_zero(array):
    array = np.asarray(array)
    assert array.size
    assert (array == 0).all(), f"not zero: {array[array != 0][:5]}"


@functools.cache
def stored_values():
    """PyTorch's results as `make_torch_values.py` wrote them: case/result -> array."""
    with np.load(HERE / "torch_values.npz") as file:
        return {name: file[name] for name in file.files}


def stored_case(name):
    found = {
        key.partition("/")[2]: value
        for key, value in stored_values().items()
        if key.startswith(f"{name}/")
    }
    assert found, f"no stored values for {name}: run python tests/make_torch_values.py"
    return found


def compare_results(actual, expected):
    """Results "out..." are values, "d..." gradients; names must be the same on both sides."""
    assert set(actual) == set(expected)
    for name, value in expected.items():
        tolerance = GRADIENT_TOLERANCE if name.startswith("d.") else VALUE_TOLERANCE
        try:
            assert_close(actual[name], value, tolerance)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def random_parameters(module, rng, scale=1.0):
    """New signed values for all parameters: zero biases and unit scales would hide mistakes."""
    for parameter in module.parameters():
        fan_in = parameter.shape[-1] if parameter.ndim > 1 else 1
        values = signed(rng, *parameter.shape) * scale / np.sqrt(fan_in)
        parameter.data = values.astype(parameter.dtype)
    return module


def gradients_of(module):
    return {
        name: None if parameter.grad is None else parameter.grad.numpy()
        for name, parameter in module.named_parameters()
    }


def run_python(code, *, env=None, args=(), flags=("-W", "error"), timeout=300):
    """A fresh interpreter that finds tinyattn and the tests; returns what it printed."""
    paths = [str(Path(ta.__file__).parent.parent), *FOLDERS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(env or {})}
    result = subprocess.run(
        [sys.executable, *flags, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def attention_of(module, q, k, v, limits, mask, scale, p, seed):
    """`attention` of a module of kernels, and what it keeps for backward, on heads as in the
    formula: q (B, H, Q, d), k (B, H, K, d), v (B, H, K, e) -> (B, H, Q, e)."""
    options = of_padded((*q.shape[:3], k.shape[2]), limits=limits, mask=mask), scale
    out, saved = module.attention(*map(rows_of_heads, (q, k, v)), *options, reference.Drop(p, seed))
    return out.reshape(len(q), q.shape[2], *out.shape[1:]).swapaxes(1, 2), saved


def attention_backward_of(module, grad, q, k, v, limits, mask, scale, p, seed, saved):
    """The gradients of q, k and v in the same form."""
    options = of_padded((*q.shape[:3], k.shape[2]), limits=limits, mask=mask), scale
    found = module.attention_backward(
        *map(rows_of_heads, (grad, q, k, v)), *options, reference.Drop(p, seed), saved
    )
    return tuple(
        dx.reshape(len(x), x.shape[2], *dx.shape[1:]).swapaxes(1, 2)
        for dx, x in zip(found, (q, k, v), strict=True)
    )


def rows_of_heads(x):
    """(B, H, N, d) -> (B * N, H, d): the rows of all samples, as the kernels take them."""
    return x.swapaxes(1, 2).reshape(len(x) * x.shape[2], x.shape[1], x.shape[3])


def kernel_tour():
    """Every kernel once, on small arrays, by the functions that the ops call."""
    rng = rng_of(7)
    results = {}

    def keep(name, value):
        for i, part in enumerate(value if isinstance(value, tuple) else (value,)):
            if part is not None:
                results[f"{name}.{i}"] = np.asarray(part)

    for dtype in (np.float32, np.float64):
        kind = np.dtype(dtype).name

        def make(*shape, dtype=dtype):
            return signed(rng, *shape).astype(dtype)

        x, grad = make(2, 3, 4, 5), make(2, 3, 4, 5)
        limits = np.array([[5, 0, 2, 3], [1, 5, 4, 0]])
        mask = rng.uniform(size=(2, 1, 4, 5)) < 0.7
        keep(f"softmax.{kind}", kernels.softmax(x))
        visibility = of_padded(x.shape, limits=limits, mask=mask)
        out = kernels.masked_softmax(x, visibility)
        keep(f"masked_softmax.{kind}", out)
        keep(f"softmax_backward.{kind}", kernels.softmax_backward(grad, out))
        back = kernels.masked_softmax_backward(grad, out, visibility)
        keep(f"masked_softmax_backward.{kind}", back)
        keep(f"relu.{kind}", kernels.relu(x))
        keep(f"relu_backward.{kind}", kernels.relu_backward(grad, x))
        for name in ("expm1", "sigmoid", "silu", "softplus"):
            keep(f"{name}.{kind}", getattr(kernels, name)(x))
        keep(f"log1p.{kind}", kernels.log1p(np.abs(x)))
        keep(f"sigmoid_backward.{kind}", kernels.sigmoid_backward(grad, x))
        keep(f"silu_backward.{kind}", kernels.silu_backward(grad, x))
        keep(f"cumsum.{kind}", kernels.cumsum(x, 1, True))
        keep(f"cumsum.{kind}.last", kernels.cumsum(x, 3, False))
        keep(f"inverse_root.{kind}", kernels.inverse_root(np.abs(x)))
        keep(f"sign.{kind}", kernels.sign(x))
        keep(f"where.{kind}", kernels.where(mask, x, 0.5))
        for name in ("remainder", "floor_divide"):
            keep(f"{name}.{kind}", getattr(kernels, name)(x, grad))
        keep(f"sum_squares.{kind}", kernels.sum_squares(x.reshape(6, 20)))
        keep(f"multiply_rows.{kind}", kernels.multiply_rows(x.reshape(6, 20)))
        keep(
            f"scaled_distances.{kind}", kernels.scaled_distances(x, x[:, :1] * 2.0, x[:, :1] * 3.0)
        )
        places = np.argsort(x, 1)
        keep(f"gather.{kind}", kernels.gather(x, places, 1))
        keep(f"scatter_along.{kind}", kernels.scatter_along(x, places, 1, (2, 5, 4, 5)))
        logs = kernels.log_softmax(x)
        keep(f"log_softmax.{kind}", logs)
        keep(f"log_softmax_backward.{kind}", kernels.log_softmax_backward(grad, logs))
        logits, target = make(4, 5), np.array([0, 4, -100, 2])
        losses, log_sums = kernels.cross_entropy(logits, target, -100)
        keep(f"cross_entropy.{kind}", losses)
        back = kernels.cross_entropy_backward(make(4), logits, target, -100, log_sums)
        keep(f"cross_entropy_backward.{kind}", back)
        rows, weight, bias = make(4, 6), make(6), make(6)
        numbers = np.arange(-12, 12, dtype=np.int8).reshape(4, 6)
        keep(f"int8_product.{kind}", kernels.int8_product(rows, numbers, weight[:4]))
        normal, *saved = kernels.layer_norm(rows, weight, bias, 1e-5)
        keep(f"layer_norm.{kind}", normal)
        row_grad = make(4, 6)
        back = kernels.layer_norm_backward(row_grad, rows, weight, 1e-5, tuple(saved))
        # dweight and dbias may come back before or after the sum over rows.
        back = (back[0], *(part.reshape(-1, 6).sum(axis=0) for part in back[1:]))
        keep(f"layer_norm_backward.{kind}", back)
        normal, inverse = kernels.rms_norm(rows, weight, 1e-5)
        keep(f"rms_norm.{kind}", normal)
        dx, dweight = kernels.rms_norm_backward(row_grad, rows, weight, 1e-5, inverse)
        keep(f"rms_norm_backward.{kind}", (dx, dweight.reshape(-1, 6).sum(axis=0)))
        keep(f"dropout.{kind}", kernels.dropout(make(7, 5), 0.3, 1234567890123456789))
        ids = np.array([[0, 2, 2], [1, 2, 0]])
        keep(f"scatter_rows.{kind}", kernels.scatter_rows(make(2, 3, 4), ids, 5, 1))
        q, k, v = make(2, 3, 4, 6), make(2, 3, 5, 6), make(2, 3, 5, 7)
        settings = (limits, mask, 0.4, 0.25, 98765432109876)
        value, saved = attention_of(kernels, q, k, v, *settings)
        keep(f"attention.{kind}", value)
        keep(f"weighted_sum.{kind}", kernels.weighted_sum(out, v, visibility))
        back = attention_backward_of(kernels, make(2, 3, 4, 7), q, k, v, *settings, saved)
        keep(f"attention_backward.{kind}", back)
        packed = samples_of((4, 0, 3))
        q, k, v, upstream = (make(7, 2, 3) for _ in range(4))
        causal = Visibility(packed, packed, np.arange(1, 5)[None])
        options = causal, 0.4, reference.Drop(0.25, 7)
        value, saved = kernels.attention(q, k, v, *options)
        keep(f"attention.{kind}.packed", value)
        back = kernels.attention_backward(upstream, q, k, v, *options, saved)
        keep(f"attention_backward.{kind}.packed", back)
        summed = make(3, 6)
        kernels.add_bias(summed, make(6))
        keep(f"add_bias.{kind}", summed)
        keep(f"erf.{kind}", kernels.erf(make(3, 4)))
        for name in ("gelu", "gelu_tanh"):
            keep(f"{name}.{kind}", getattr(kernels, name)(x))
            keep(f"{name}_backward.{kind}", getattr(kernels, f"{name}_backward")(grad, x))
        keep(f"sum_rows.{kind}", kernels.sum_rows(make(9, 4)))
        parameter, m, v = make(11), make(11), np.abs(make(11))
        numbers = AdamStep(0.01, 0.9, 0.99, 1e-8, 0.1, True, 3)
        kernels.adam([parameter], [make(11)], [m], [v], lambda numbers=numbers: numbers)
        keep(f"adam.{kind}", (parameter, m, v))
    return results


# Every kernel: what is decorated by `fast`, and two that choose in another way.
KERNELS = sorted({*kernels_of_library.twins, "where", "adam"})
