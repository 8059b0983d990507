"""Shapes, indices, joining and cutting."""

from __future__ import annotations

from typing import Any

import numpy as np
import references as ref
import samples as on
from references import torch_fn
from samples import calls

import tinyattn as ta
from tinyattn.base.checks import checked_index

from .extremes import MANY, at
from .kinds import shape_row
from .refusals import BOOLS, INTS, bad_dims, error, t
from .row import OpRow, ops

GRAD = t(3).requires_grad_()


def set_at(x: ta.Tensor, value: ta.Tensor, index: Any) -> ta.Tensor:
    """The clone is a result of a recorded op, and so is what is written into it."""
    x = x.clone()
    x[index] = value
    return x


ROWS: list[OpRow] = [
    shape_row(
        "reshape",
        lambda x, shape: x.reshape(shape),
        lambda x, shape: x.reshape(shape),
        lambda x, shape: x.reshape(shape),
        on.RESHAPES,
        [
            error(lambda: t(2, 3).reshape(4, 2), ValueError, r"\[2, 3\].*\(4,\s?2\)"),
            error(lambda: t(2, 3).reshape(-1, -1), ValueError, r"\[2, 3\].*one unknown"),
            error(lambda: t(2, 3).reshape(-2, 3), ValueError, "-2"),
            error(lambda: t(2, 3).reshape(1.5, 4), TypeError, "1.5"),
            error(lambda: t(2, 3).reshape("text"), TypeError, "'text'"),
        ],
        spellings={
            "Tensor.reshape": lambda x, shape: x.reshape(*shape) if shape else x.reshape(()),
            "Tensor.view": lambda x, shape: x.view(shape),
            "ta.reshape": lambda x, shape: ta.reshape(x, shape),
        },
        reaches=("reshape",),
        extremes=at("large", shape=(-1,)),
    ),
    shape_row(
        "permute",
        lambda x, dims: x.permute(*dims),
        lambda x, dims: x.transpose(dims),
        lambda x, dims: x.permute(dims),
        on.PERMUTES,
        [
            error(lambda: t(2, 3).permute(0, 0), ValueError, r"2 dimensions once, got \(0, 0\)"),
            error(lambda: t(2, 3).permute(0), ValueError, r"2 dimensions once, got \(0,\)"),
            error(lambda: t(2, 3).permute(0, 2), IndexError, r"dim 2 .*\(2, 3\)"),
        ],
        spellings={
            "Tensor.permute": lambda x, dims: x.permute(dims),
            "ta.permute": lambda x, dims: ta.permute(x, dims),
        },
        reaches=("permute",),
        extremes=at("small", dims=(1, 0)),
    ),
    shape_row(
        "transpose",
        ta.Tensor.transpose,
        lambda x, dim0, dim1: np.swapaxes(x, dim0, dim1) if x.ndim else x,
        lambda x, dim0, dim1: x.transpose(dim0, dim1),
        on.TRANSPOSES,
        [
            error(lambda: t(2, 3).transpose(0, 2), IndexError, r"dim 2 .*\(2, 3\).*-2 to 1"),
            error(lambda: t(2, 3).transpose(-3, 0), IndexError, r"dim -3 .*\(2, 3\).*-2 to 1"),
            error(lambda: t(2, 3).transpose(0, "1"), TypeError, "integer, got '1'"),
        ],
        covers=("Tensor.transpose", "Tensor.swapaxes"),
        extremes=at("small", dim0=0, dim1=1),
    ),
    shape_row(
        "T",
        lambda x: x.T,
        lambda x: x.T,
        lambda x: x.permute(tuple(range(x.ndim - 1, -1, -1))),
        [((), {}, "0-d"), ((3,), {}, "1-d stays"), ((0, 2), {}, "empty"), ((1, 1), {}, "size 1")]
        + [(shape, {}) for shape in [(2, 3), (3, 2), (4, 5), (2, 3, 4), (2, 1, 3), (2, 2, 2, 2)]],
        [
            error(lambda: setattr(t(2, 3), "T", t(3, 2)), AttributeError, "'T'"),
            error(lambda: t(2, 3).T @ t(3), ValueError, r"\(3, 2\) must equal .*\(3,\)"),
            error(lambda: t(2, 3).T + t(2, 3), ValueError, r"\[3, 2\].*\[2, 3\]"),
        ],
        spellings={"Tensor.T": lambda x: x.T},
    ),
    shape_row(
        "expand",
        lambda x, shape: x.expand(shape),
        lambda x, shape: np.broadcast_to(
            x, [x.shape[i - len(shape)] if n == -1 else n for i, n in enumerate(shape)]
        ),
        lambda x, shape: x.expand(shape),
        on.EXPANDS,
        [
            error(lambda: t(2, 3).expand(4, 3), ValueError, r"\[2, 3\].*\(4,\s?3\)"),
            error(lambda: t(2, 3).expand(3), ValueError, r"\[2, 3\]"),
            error(lambda: t(2, 3).expand(-1, 2, 3), ValueError, r"\[2, 3\].*(negative|-1)"),
        ],
        spellings={
            "Tensor.expand": lambda x, shape: x.expand(*shape),
            "Tensor.expand_as": lambda x, shape: x.expand_as(
                ta.zeros([x.shape[i - len(shape)] if n == -1 else n for i, n in enumerate(shape)])
            ),
        },
        reaches=("expand",),
        extremes=at("ones", function=lambda x: x[0, 0].expand(MANY), of_largest=True),
    ),
    shape_row(
        "squeeze",
        ta.Tensor.squeeze,
        lambda x, dim=None: x.reshape(
            [
                n
                for i, n in enumerate(x.shape)
                if n != 1 or (dim is not None and i not in ref.axes_of(x, dim))
            ]
        ),
        lambda x, dim=None: x.squeeze() if dim is None else x.squeeze(dim),
        on.SQUEEZES,
        bad_dims(ta.Tensor.squeeze),
        covers=("Tensor.squeeze",),
    ),
    shape_row(
        "unsqueeze",
        ta.Tensor.unsqueeze,
        lambda x, dim: np.expand_dims(x, dim),
        lambda x, dim: x.unsqueeze(dim),
        on.UNSQUEEZES,
        [
            error(lambda: t(2, 3).unsqueeze(3), IndexError, "dim 3 .*expected -3 to 2"),
            error(lambda: t(2, 3).unsqueeze(-4), IndexError, "dim -4 .*expected -3 to 2"),
            error(lambda: t(2, 3).unsqueeze("0"), TypeError, "integer, got '0'"),
        ],
        covers=("Tensor.unsqueeze",),
    ),
    shape_row(
        "flatten",
        ta.Tensor.flatten,
        ref.flatten,
        lambda x, **options: x.flatten(**options),
        on.FLATTENS,
        [
            error(lambda: t(2, 3).flatten(2), IndexError, r"dim 2 .*\(2, 3\).*-2 to 1"),
            error(lambda: t(2, 3).flatten(0, -3), IndexError, r"dim -3 .*\(2, 3\).*-2 to 1"),
            error(lambda: t(2, 3).flatten(1, 0), ValueError, "start.* 1 .*end.* 0|1.*0"),
        ],
        covers=("Tensor.flatten",),
    ),
    OpRow(
        "getitem",
        lambda x, index: x[index],
        ref.at,
        lambda x, index: x[ref.torch_index(index)],
        on.getitem_samples,
        [
            error(lambda: t(2, 3)[2], IndexError, "index 2 .*axis 0 with size 2"),
            error(lambda: t(2, 3)[:, [0, 3]], IndexError, "index 3 .*axis 1 with size 3"),
            error(lambda: t(2, 3)[0, 0, 0], IndexError, "2-dimensional, but 3"),
            error(lambda: t(3)[t(2)], TypeError, "integers, slices .*got float32"),
            error(lambda: t(3)[True], TypeError, "integers, slices .*got bool"),
            error(lambda: t(3)[BOOLS[:2]], IndexError, "3 .*2"),
            error(lambda: t(3)["a"], IndexError, "integers, slices"),
        ],
        ("Tensor.__getitem__",),
        reaches=("getitem",),
        elementwise=True,
        extremes=at("ones", of_largest=True, index=np.zeros(MANY, int)),
        keeps="2 more",
    ),
    OpRow(
        "putitem",
        ops.putitem,
        lambda x, index, target: ref.put(x, index, target),
        ref.torch_put,
        on.putitem_samples,
        [
            error(lambda: ops.putitem(t(2), index=[0]), TypeError, "putitem.* misses .*'target'"),
            error(lambda: ops.putitem(t(2), index=5, target=(3,)), IndexError, "index 5 .*size 3"),
            error(
                lambda: ops.putitem(t(2), index=slice(3), target=(3,)),
                ValueError,
                r"putitem .*\(3,\), got \(2,\)",
            ),
        ],
        ("ops.putitem",),
        elementwise=True,
        keeps="2 more",
    ),
    OpRow(
        "setitem",
        set_at,
        ref.set_at,
        ref.torch_set_at,
        on.setitem_samples,
        [
            error(lambda: set_at(t(2, 3), GRAD, 2), IndexError, "index 2 .*axis 0 with size 2"),
            error(lambda: set_at(t(2, 4), GRAD, 0), ValueError, r"float32\[2, 4\], float32\[3\]"),
            error(lambda: set_at(t(3), GRAD, [0, 1]), ValueError, r"float32\[3\], float32\[3\]"),
            error(lambda: set_at(t(3), GRAD, True), TypeError, "integers, slices .*got bool"),
            error(lambda: set_at(INTS, GRAD, 0), TypeError, "written into floats, got int64"),
        ],
        spellings={
            "ops.setitem": lambda x, value, index: ops.setitem(
                x, value, index=checked_index(index)
            ),
        },
        reaches=("setitem",),
        differentiable="all",
        elementwise=True,
        keeps="2 more",
    ),
    OpRow(
        "gather",
        lambda x, index, dim: x.gather(dim, index),
        ref.gather,
        lambda x, index, dim: x.gather(dim, index),
        on.gather_samples,
        [
            error(lambda: t(2, 3).gather(2, INTS), IndexError, r"dim 2 .*\(2, 3\)"),
            error(lambda: t(3).gather(0, ta.tensor([0, 3])), IndexError, "index 3 .*3 elements"),
            error(lambda: t(3).gather(0, ta.tensor([-1])), IndexError, "index -1 .*3 elements"),
            error(lambda: t(3).gather(0, t(2)), TypeError, "integer index, got float32"),
            error(lambda: t(2, 3).gather(0, INTS), ValueError, r"dim 0 .*\(2, 3\).*got \(3,\)"),
        ],
        spellings={
            "Tensor.gather": lambda x, index, dim: ta.Tensor.gather(x, dim, index),
            "ta.gather": lambda x, index, dim: ta.gather(x, dim, index),
        },
        reaches=("gather",),
        elementwise=True,
        extremes=at(
            "many", function=lambda x: x.gather(0, ta.tensor(np.zeros(MANY, int))), of_largest=True
        ),
        keeps="input 1",
    ),
    OpRow(
        "scatter_along",
        lambda x, index, dim, target: ops.scatter_along(x, dim, index, target),
        ref.scatter_along,
        lambda x, index, dim, target: x.new_zeros(target).scatter_add(dim, index, x),
        on.scatter_along_samples,
        [
            error(
                lambda: ops.scatter_along(t(2), 0, INTS, (3,)),
                ValueError,
                r"index of shape \(2,\), got \(3,\)",
            ),
            error(
                lambda: ops.scatter_along(t(3), 0, ta.tensor([0, 3, 0]), (3,)),
                IndexError,
                "scatter_along: index 3 .*3 elements",
            ),
            error(
                lambda: ops.scatter_along(t(3), 0, t(3), (3,)),
                TypeError,
                "integer index, got float32",
            ),
        ],
        reaches=("scatter_along",),
        elementwise=True,
        extremes=at(
            "many",
            function=lambda x: ops.scatter_along(x, 0, np.zeros(MANY, int), (1,)),
            of_largest=True,
        ),
        keeps="input 1",
    ),
    OpRow(
        "iterate",
        lambda x: tuple(x),
        lambda x: tuple(x),
        lambda x: tuple(x),
        calls(*on.ITERABLES, repeat=2),
        [
            error(lambda: list(t()), TypeError, "0-d"),
            error(lambda: len(t()), TypeError, "0-d"),
            error(lambda: t(2, 3)[0][5], IndexError, "index 5"),
        ],
        spellings={"Tensor.__iter__": lambda x: tuple(x.__iter__())},
        elementwise=True,
    ),
    shape_row(
        "split",
        lambda x, sizes, dim=0: x.split(sizes, dim),
        ref.split,
        lambda x, sizes, dim=0: x.split(sizes, dim),
        on.SPLITS,
        [
            error(lambda: t(4, 3).split(0), ValueError, "split: the size .* >= 1, got 0"),
            error(lambda: t(4, 3).split([1, 2]), ValueError, r"\[1, 2\] .*to 4 \(dim 0\)"),
            error(lambda: t(4, 3).split(2, 2), IndexError, r"dim 2 .*\(4, 3\)"),
            error(lambda: t(4, 3).split([5, -1]), ValueError, r"\[5, -1\]"),
            error(lambda: t(4, 3).split("ab"), TypeError, "integer.*'ab'"),
        ],
        covers=("Tensor.split",),
    ),
    shape_row(
        "chunk",
        lambda x, chunks, dim=0: x.chunk(chunks, dim),
        lambda x, chunks, dim=0: ref.split(x, -(-x.shape[dim] // chunks), dim),
        lambda x, chunks, dim=0: x.chunk(chunks, dim),
        on.CHUNKS,
        [
            error(lambda: t(4, 3).chunk(0), ValueError, "0"),
            error(lambda: t(4, 3).chunk(-1), ValueError, "-1"),
            error(lambda: t(4, 3).chunk(2, 2), IndexError, r"dim 2 .*\(4, 3\)"),
        ],
        covers=("Tensor.chunk",),
    ),
    OpRow(
        "cat",
        lambda *xs, dim: ta.cat(xs, dim),
        lambda *xs, dim: np.concatenate(xs, dim),
        lambda *xs, dim: torch_fn("cat")(xs, dim=dim),
        on.cat_samples,
        [
            error(lambda: ta.cat([]), TypeError, "one or more Tensors"),
            error(lambda: ta.cat([t(3), 1.0]), TypeError, "Tensors"),
            error(lambda: ta.cat([t(3), t(2, 3)]), ValueError, r"\[3\], float\d+\[2, 3\]"),
            error(lambda: ta.cat([t(2, 3), t(3, 3)], 1), ValueError, r"\[2, 3\], float\d+\[3, 3\]"),
            error(lambda: ta.cat([t(3)], 1), IndexError, r"dim 1 .*\(3,\)"),
            error(lambda: ta.cat([t(), t()]), ValueError, r"float32\[\]|0-d|zero-dim"),
        ],
        spellings={"ta.cat": lambda *xs, dim: ta.cat(list(xs), dim=dim)},
        reaches=("concatenate",),
        differentiable="all",
        elementwise=True,
        extremes=at("large,small", function=lambda x, y: ta.cat([x, y])),
    ),
    OpRow(
        "stack",
        lambda *xs, dim: ta.stack(xs, dim),
        lambda *xs, dim: np.stack(xs, dim),
        lambda *xs, dim: torch_fn("stack")(xs, dim=dim),
        on.stack_samples,
        [
            error(lambda: ta.stack([]), TypeError, "one or more Tensors"),
            error(lambda: ta.stack([t(3), t(2)]), ValueError, r"\(3,\), \(2,\)"),
            error(lambda: ta.stack([t(3), t(3)], 2), IndexError, "dim 2 .*expected -2 to 1"),
        ],
        spellings={"ta.stack": lambda *xs, dim: ta.stack(list(xs), dim=dim)},
        differentiable="all",
        elementwise=True,
    ),
    shape_row(
        "triu",
        ta.triu,
        lambda x, diagonal=0: np.triu(x, diagonal),
        torch_fn("triu"),
        on.TRIANGLES,
        [
            error(lambda: ta.triu(t(3)), ValueError, r"\(3,\)"),
            error(lambda: ta.triu([[1.0]]), TypeError, "Tensor, got list"),
            error(lambda: ta.triu(t(2, 2), "one"), TypeError, "'one'"),
        ],
        covers=("Tensor.triu",),
        reaches=("triangle",),
    ),
    shape_row(
        "tril",
        ta.tril,
        lambda x, diagonal=0: np.tril(x, diagonal),
        torch_fn("tril"),
        on.TRIANGLES,
        [
            error(lambda: ta.tril(t(3)), ValueError, r"\(3,\)"),
            error(lambda: ta.tril([[1.0]]), TypeError, "Tensor, got list"),
            error(lambda: ta.tril(t(2, 2), "one"), TypeError, "'one'"),
        ],
        covers=("Tensor.tril",),
        reaches=("triangle",),
    ),
]
