"""What several test files share: random arrays, comparisons, and PyTorch's answers."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from formulas import kernels as kernels
from formulas import reference

import tinyattn as ta
from tinyattn.kernels.visibility import of_padded

HERE = Path(__file__).parent
FOLDERS = [str(HERE), *(str(path) for path in sorted(HERE.iterdir()) if path.is_dir())]
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(
    not HAS_TORCH, reason="PyTorch is not installed: its stored values are compared with instead"
)
VALUE_TOLERANCE = 1e-12
GRADIENT_TOLERANCE = 1e-11
# Arguments for each function that makes a tensor of two elements, or of two rows; x has two.
MAKERS = {
    **dict.fromkeys(("Tensor", "as_tensor", "tensor"), lambda x: ([1.0, 2.0],)),
    **dict.fromkeys(("empty", "ones", "rand", "randn", "zeros"), lambda x: (2,)),
    **dict.fromkeys(("ones_like", "rand_like", "randn_like", "zeros_like"), lambda x: (x,)),
    **dict.fromkeys(("arange", "eye", "randperm"), lambda x: (2,)),
    "full": lambda x: ((2,), 3.0),
    "full_like": lambda x: (x, 3.0),
    "linspace": lambda x: (0, 1, 2),
    "randint": lambda x: (0, 2, (2,)),
}


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
    options = (
        of_padded((*q.shape[:3], k.shape[2]), limits=limits, mask=mask),
        scale,
        reference.Drop(p, seed),
    )
    out, saved = module.attention(*map(rows_of_heads, (q, k, v)), options)
    return out.reshape(len(q), q.shape[2], *out.shape[1:]).swapaxes(1, 2), saved


def attention_backward_of(module, grad, q, k, v, limits, mask, scale, p, seed, saved):
    """The gradients of q, k and v in the same form."""
    options = (
        of_padded((*q.shape[:3], k.shape[2]), limits=limits, mask=mask),
        scale,
        reference.Drop(p, seed),
    )
    found = module.attention_backward(*map(rows_of_heads, (grad, q, k, v)), options, None, saved)
    return tuple(
        dx.reshape(len(x), x.shape[2], *dx.shape[1:]).swapaxes(1, 2)
        for dx, x in zip(found, (q, k, v), strict=True)
    )


def rows_of_heads(x):
    """(B, H, N, d) -> (B * N, H, d): the rows of all samples, as the kernels take them."""
    return x.swapaxes(1, 2).reshape(len(x) * x.shape[2], x.shape[1], x.shape[3])
