"""The gradient check of every operation, one line for each.

    pytest tests/gradients/test_every_op.py -v              all of them
    pytest tests/gradients/test_every_op.py -v -k softmax   those with this word in their name

A line of the table says how tinyattn writes the operation, how PyTorch writes it, and with which
arguments both are called. Two tests run on each line:

    test_gradient          `check_op` compares the derivative with finite differences, and more
    test_same_as_pytorch   value and gradient are PyTorch's, where PyTorch is installed

A new operation of the library needs a line here; a test fails until it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from common import assert_close, pull, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import ops
from tinyattn.engine.op import registry
from tinyattn.kernels.visibility import of_padded
from tinyattn.ops.embedding import scatter_rows
from tinyattn.ops.products import sum_rows
from tinyattn.testing import check_op
from tinyattn.torch_names.methods import take_methods
from tinyattn.torch_names.nn.recurrent import gru_state, lstm_state

take_methods()  # or the files that are collected next would see what the import gave

try:
    import torch
    import torch.nn.functional as torch_F
except ImportError:
    torch = None

rng = rng_of(1)
Sample = tuple[Any, ...]  # the arguments of one call; arrays of floats are differentiated by


class Line(NamedTuple):
    ours: Callable[..., Any]
    samples: list[Sample]
    theirs: Callable[..., Any] | None = None  # in PyTorch; None: written as ours


# Arguments


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape)


def positive(*shape: int) -> np.ndarray:
    return rng.uniform(0.5, 2.0, shape)


def set_at(x: Any, value: Any, index: Any) -> Any:
    x = x.clone()
    x[index] = value
    return x


def spread(*shape: int) -> np.ndarray:
    """No two within 0.2 of each other, none within 0.1 of zero: away from every kink and pole."""
    n = int(np.prod(shape))
    return (rng.permutation(n) - n // 3 + 0.5).reshape(shape) * 0.2


def whole(below: int, *shape: int) -> np.ndarray:
    """Integers: indices, ids and classes."""
    return rng.randint(below, size=shape)


ONE: list[Sample] = [(normal(3, 4),), (normal(2, 1, 3),), (normal(),)]
ABOVE_0: list[Sample] = [(positive(3, 4),), (positive(2, 1, 3),)]
APART: list[Sample] = [(spread(3, 4),), (spread(2, 1, 3),)]
TWO: list[Sample] = [(normal(3, 4), normal(3, 4)), (normal(2, 3, 4), spread(3, 1))]
TWO_APART: list[Sample] = [(spread(3, 4), spread(3, 4) + 0.1), (spread(1, 2), spread(3, 1) + 0.1)]
OVER: list[Sample] = [(normal(3, 4), positive(3, 4)), (normal(1, 3), positive(2, 1))]
DIMS: list[Sample] = [(spread(3, 4), 1), (spread(2, 3, 4), (0, 2)), (spread(2, 3), (0, 1))]
ROWS: list[Sample] = [(normal(3, 4), 1), (normal(2, 3, 4), 0), (normal(5), -1)]
QKV: Sample = (normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3))
MASK = np.arange(5) < np.array([[2], [5], [4]])
PACKED = (2, 0, 3)  # the lengths of three samples


# The operations. `x.exp()` is written the same in PyTorch, so that one function serves for both.


def turned_by_complex_numbers(x: Any, positions: Any) -> Any:
    """A pair of numbers is a complex number, and a product with one of length 1 turns it."""
    width = x.shape[-1]
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.tensor(positions)[..., None] * rates
    pairs = torch.view_as_complex(x.unflatten(-1, (width // 2, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def state_by_formula(x: Any, h: Any, state: Any) -> Any:
    r, z = (x + h)[..., :2].sigmoid(), (x + h)[..., 2:4].sigmoid()
    return (1 - z) * (x[..., 4:] + r * h[..., 4:]).tanh() + z * state


def both_by_formula(x: Any, c: Any) -> Any:
    i, f, g, o = x.chunk(4, -1)
    new = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return torch.cat([o.sigmoid() * new.tanh(), new], -1)


LINES: dict[str, Line] = {
    # Arithmetic
    "add": Line(lambda x, y: x + y, TWO),
    "sub": Line(lambda x, y: x - y, TWO),
    "mul": Line(lambda x, y: x * y, TWO),
    "div": Line(lambda x, y: x / y, OVER),
    "pow": Line(lambda x, y: x**y, [(positive(3, 4), normal(3, 4)), (positive(2, 3), normal(3))]),
    "remainder": Line(
        lambda x, y: x % y, [(spread(3, 4), positive(3, 4)), (spread(2), -normal(2))]
    ),
    "neg": Line(lambda x: -x, ONE),
    "maximum": Line(ta.maximum, TWO_APART, lambda x, y: torch.maximum(x, y)),
    "minimum": Line(ta.minimum, TWO_APART, lambda x, y: torch.minimum(x, y)),
    "matmul": Line(
        lambda x, y: x @ y,
        [(normal(2, 3), normal(3, 4)), (normal(2, 3, 4), normal(4)), (normal(3), normal(2, 3, 2))],
    ),
    # Functions of each element
    "exp": Line(lambda x: x.exp(), ONE),
    "log": Line(lambda x: x.log(), ABOVE_0),
    "log1p": Line(lambda x: x.log1p(), ABOVE_0),
    "expm1": Line(lambda x: x.expm1(), ONE),
    "sqrt": Line(lambda x: x.sqrt(), ABOVE_0),
    "sin": Line(lambda x: x.sin(), ONE),
    "cos": Line(lambda x: x.cos(), ONE),
    "tanh": Line(lambda x: x.tanh(), ONE),
    "sigmoid": Line(lambda x: x.sigmoid(), ONE),
    "silu": Line(F.silu, ONE, lambda x: torch_F.silu(x)),
    "softplus": Line(F.softplus, ONE, lambda x: torch_F.softplus(x)),
    "erf": Line(lambda x: x.erf(), ONE),
    "abs": Line(lambda x: x.abs(), APART),
    "relu": Line(lambda x: x.relu(), APART),
    "gelu": Line(F.gelu, ONE, lambda x: torch_F.gelu(x)),
    "gelu_tanh": Line(ops.gelu_tanh, ONE, lambda x: torch_F.gelu(x, approximate="tanh")),
    "clamp": Line(lambda x: x.clamp(-0.4, 0.6), APART),
    "clone": Line(lambda x: x.clone(), ONE),
    "cast": Line(lambda x: ops.cast(x.to(ta.float64), dtype=x.dtype), ONE, lambda x: x.double()),
    "where": Line(
        ta.where,
        [(normal(3, 4) > 0, normal(3, 4), normal(3, 4)), (normal(4) > 0, normal(3, 1), normal(4))],
        lambda condition, x, y: torch.where(condition, x, y),
    ),
    # Sums and extremes
    "sum": Line(lambda x, dim: x.sum(dim), DIMS),
    "mean": Line(lambda x, dim: x.mean(dim), DIMS),
    "var": Line(lambda x, dim: x.var(dim), DIMS),
    "std": Line(lambda x, dim: x.std(dim), DIMS),
    "norm": Line(lambda x, dim: x.norm(dim=dim), DIMS),
    "prod": Line(lambda x, dim: x.prod(dim), ROWS),
    "max": Line(lambda x, dim: x.amax(dim), DIMS),
    "min": Line(lambda x, dim: x.amin(dim), DIMS),
    "cumsum": Line(lambda x, dim: x.cumsum(dim), ROWS),
    "sum_to": Line(
        lambda x, shape: x.sum_to(shape),
        [(normal(2, 3, 4), (3, 1)), (normal(3, 4), (3, 4))],
        lambda x, shape: x.sum_to_size(shape),
    ),
    "sum_rows": Line(sum_rows, [(normal(5, 3),), (normal(1, 4),)], lambda x: x.sum(0)),
    # Softmax and the loss made from it
    "softmax": Line(lambda x, dim: x.softmax(dim), ROWS),
    "log_softmax": Line(lambda x, dim: x.log_softmax(dim), ROWS),
    "masked_softmax": Line(
        lambda x, mask: F.masked_softmax(x, mask=mask),
        [(normal(2, 3, 5), MASK[None]), (normal(2, 2, 3, 5), MASK[None, None])],
        lambda x, mask: x.masked_fill(~mask, -torch.inf).softmax(-1),
    ),
    "cross_entropy": Line(
        lambda x, target: F.cross_entropy(x, target, reduction="none"),
        [(normal(4, 5), whole(5, 4)), (normal(3, 2), np.array([1, -100, 0]))],
        lambda x, target: torch_F.cross_entropy(x, target, reduction="none"),
    ),
    # Layers
    "linear": Line(
        F.linear,
        [(normal(5, 3), normal(4, 3), normal(4)), (normal(2, 5, 3), normal(4, 3))],
        lambda *arguments: torch_F.linear(*arguments),
    ),
    "layer_norm": Line(
        lambda x, weight, bias: F.layer_norm(x, 4, weight, bias),
        [(normal(3, 4), normal(4), normal(4)), (normal(2, 3, 4), normal(4), normal(4))],
        lambda x, weight, bias: torch_F.layer_norm(x, (4,), weight, bias),
    ),
    "rms_norm": Line(
        lambda x, weight: F.rms_norm(x, 4, weight, eps=1e-5),
        [(normal(3, 4), normal(4)), (normal(2, 3, 4), normal(4))],
        lambda x, weight: torch_F.rms_norm(x, (4,), weight, eps=1e-5),
    ),
    "embedding": Line(
        F.embedding,
        [(whole(5, 2, 3), normal(5, 4)), (np.array([0, 2, 2]), normal(3, 2))],
        lambda ids, weight: torch_F.embedding(ids, weight),
    ),
    "scatter_rows": Line(
        lambda x, ids: scatter_rows(x, ids, num_rows=5, skip=None),
        [(normal(4, 3), whole(5, 4)), (normal(3, 2), np.array([1, 1, 1]))],
        lambda x, ids: torch.zeros(5, x.shape[1]).to(x).index_add(0, ids, x),
    ),
    "dropout": Line(  # PyTorch draws other numbers: it gets ours
        lambda x: ops.dropout(x, p=0.4, seed=7),
        ONE,
        lambda x: x * torch.tensor(ops.dropout(np.ones(x.shape), p=0.4, seed=7)),
    ),
    # Attention
    "attention": Line(
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask=mask),
        [(*QKV, np.ones((1, 1, 3, 5), bool)), (*QKV, MASK[None, None])],
        lambda q, k, v, mask: torch_F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    ),
    "weighted_sum": Line(
        lambda weights, values, mask: ops.weighted_sum(
            ta.where(mask, weights, 0.0),
            values,
            visibility=of_padded(weights.shape, mask=np.array(mask)),
        ),
        [(normal(2, 2, 3, 5), normal(2, 2, 5, 4), MASK[None, None])],
        lambda weights, values, mask: torch.where(mask, weights, 0.0) @ values,
    ),
    "rotate_pairs": Line(
        lambda x: F.rotary_embedding(x, [[0, 2, 7], [3, 1, 100]]),
        [(normal(2, 3, 4),)],
        lambda x: turned_by_complex_numbers(x, [[0, 2, 7], [3, 1, 100]]),
    ),
    "pack": Line(
        lambda x: F.pack_padded_sequence(x, PACKED),
        [(normal(3, 4, 2),), (normal(3, 3),)],
        lambda x: torch.cat([rows[:n] for rows, n in zip(x, PACKED, strict=True)]),
    ),
    "unpack": Line(
        lambda x: F.pad_packed_sequence(x, PACKED),
        [(normal(5, 2),), (normal(5),)],
        lambda x: torch.nn.utils.rnn.pad_sequence(x.split(PACKED), batch_first=True),
    ),
    # Shapes and indices
    "reshape": Line(lambda x: x.reshape(3, 4), [(normal(2, 6),), (normal(3, 2, 2),)]),
    "permute": Line(lambda x: x.permute(1, 2, 0), [(normal(2, 3, 4),), (normal(2, 1, 3),)]),
    "roll": Line(lambda x: x.roll((1, -2), (0, 1)), [(normal(2, 3),), (normal(1, 4, 2),)]),
    "expand": Line(lambda x: x.expand(2, 3, 4), [(normal(3, 1),), (normal(2, 1, 4),)]),
    "getitem": Line(
        lambda x, i: x[i],
        [(normal(4, 3), whole(4, 5)), (normal(4, 3), (slice(1, None), 0)), (normal(4), -1)],
    ),
    "putitem": Line(
        lambda x, i: ops.putitem(x, index=i, target=(4, 2)),
        [(normal(5, 2), [1, 0, 3, 1, 1]), (normal(2), 3)],
        lambda x, i: torch.zeros(4, 2).to(x).index_put((torch.as_tensor(i),), x, accumulate=True),
    ),
    "setitem": Line(
        set_at,
        [
            (normal(4, 3), normal(2, 3), np.array([3, 0])),
            (normal(4, 3), normal(3, 1), (slice(1, None), [0, 2])),
            (normal(4, 3), normal(), spread(4, 3) > 0),
        ],
    ),
    "gather": Line(
        lambda x, dim, index: x.gather(dim, index),
        [(normal(3, 4), 1, whole(4, 3, 2)), (normal(5), 0, np.array([4, 1, 1]))],
    ),
    "scatter_along": Line(
        lambda x, dim, index: ops.scatter_along(x, index, dim=dim, target=(4, 3)),
        [(normal(4, 2), 1, whole(3, 4, 2)), (normal(2, 3), 0, np.array([[3, 1, 1], [3, 0, 1]]))],
        lambda x, dim, index: torch.zeros(4, 3).to(x).scatter_add(dim, torch.as_tensor(index), x),
    ),
    "cat": Line(
        lambda x, y, dim: ta.cat([x, y], dim),
        [(normal(2, 3), normal(4, 3), 0), (normal(2, 3), normal(2, 1), -1)],
        lambda x, y, dim: torch.cat([x, y], dim),
    ),
    # Layers
    "gru_state": Line(
        gru_state,
        [(normal(3, 6), normal(3, 6), normal(3, 2)), (normal(6), normal(6), normal(2))],
        state_by_formula,
    ),
    "lstm_state": Line(
        lstm_state,
        [(normal(3, 8), normal(3, 2)), (normal(8), normal(2))],
        both_by_formula,
    ),
}
NO_LINE = {"transfer"}  # copies to a GPU and back: tests/gpu/test_device.py
each_line = pytest.mark.parametrize("name", LINES)


# The tests


def ours(sample: Sample) -> Sample:
    """The arguments for tinyattn: arrays become Tensors, those of floats require gradients."""
    return tuple(
        ta.tensor(x, requires_grad=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x
        for x in sample
    )


def theirs(sample: Sample) -> Sample:
    """The arguments for PyTorch."""
    return tuple(
        torch.tensor(x, requires_grad=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x
        for x in sample
    )


@each_line
def test_gradient(name: str) -> None:
    check_op(LINES[name].ours, [ours(sample) for sample in LINES[name].samples])


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
@each_line
def test_same_as_pytorch(name: str) -> None:
    """The value to 1e-12, and the gradient for a random upstream gradient to 1e-11."""
    line = LINES[name]
    for sample in line.samples:
        mine, other = ours(sample), theirs(sample)
        out, right = line.ours(*mine), (line.theirs or line.ours)(*other)
        assert_close(out.numpy(), right.detach().numpy(), 1e-12)
        # Of both signs: the gradient of softmax(x).sum() is zero whatever the derivative says.
        upstream = signed(rng_of(2), *out.shape)
        pull(out, upstream)
        right.backward(torch.tensor(upstream))
        for x, array in enumerate(sample):
            if isinstance(array, np.ndarray) and array.dtype.kind == "f":
                assert_close(mine[x].grad.numpy(), other[x].grad.numpy(), 1e-11)


def test_no_operation_is_missing() -> None:
    with_a_derivative = {name for name, op in registry.items() if op.spec.rules}
    assert with_a_derivative - NO_LINE == set(LINES)


@each_line
def test_a_line_runs_the_operation_it_is_named_for(name: str) -> None:
    for sample in LINES[name].samples:
        nodes, found = [LINES[name].ours(*ours(sample))._node], set()
        while nodes:
            node = nodes.pop()
            if node is not None and node.plan is not None:
                found.add(node.plan.name)
                nodes.extend(node.parents)
        assert name in found
