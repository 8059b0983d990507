"""Elements repeated, moved round, or taken from the diagonal."""

from __future__ import annotations

import numpy as np
import samples as on

import tinyattn as ta

from .extremes import at
from .kinds import shape_row
from .refusals import bad_dims, error, t
from .row import OpRow

ROWS: list[OpRow] = [
    shape_row(
        "repeat",
        lambda x, sizes: x.repeat(sizes),
        lambda x, sizes: np.tile(x, sizes),
        lambda x, sizes: x.repeat(sizes),
        on.REPEATS,
        [
            error(lambda: t(2, 3).repeat(2), ValueError, r"per dimension of \(2, 3\), got \(2,\)"),
            error(lambda: t(3).repeat(-1), ValueError, r"got \(-1,\)"),
            error(lambda: t(3).repeat(1.5), TypeError, r"integer, got 1\.5"),
        ],
        spellings={"Tensor.repeat": lambda x, sizes: x.repeat(*sizes)},
    ),
    shape_row(
        "repeat_interleave",
        ta.Tensor.repeat_interleave,
        lambda x, repeats, dim=None: np.repeat(x, repeats, dim if x.ndim else None),
        lambda x, repeats, dim=None: x.repeat_interleave(repeats, dim),
        on.INTERLEAVED,
        [
            error(lambda: t(2, 3).repeat_interleave(2, 2), IndexError, r"dim 2 .*\(2, 3\)"),
            error(lambda: t(3).repeat_interleave(-1), TypeError, "one integer >= 0, .*got -1"),
            error(lambda: t(3).repeat_interleave([1, 2]), TypeError, "or 3 along dim 0, got"),
            error(lambda: t(3).repeat_interleave(1.5), TypeError, "one integer >= 0, .*got 1.5"),
        ],
        covers=("Tensor.repeat_interleave",),
    ),
    shape_row(
        "roll",
        ta.Tensor.roll,
        lambda x, shifts, dims=None: np.roll(x, shifts, dims),
        lambda x, shifts, dims=None: x.roll(shifts, dims),
        on.ROLLS,
        [
            error(lambda: t(2, 3).roll(1, 2), IndexError, r"dim 2 .*\(2, 3\)"),
            error(lambda: t(2, 3).roll((1, 2), 0), ValueError, r"each of \(0,\), got \(1, 2\)"),
            error(lambda: t(2, 3).roll(0.5, 0), ValueError, r"integer .*got \(0\.5,\)"),
        ],
        covers=("Tensor.roll",),
        reaches=("roll_one",),
        extremes=at("large", shifts=1, dims=0),
    ),
    shape_row(
        "flip",
        lambda x, dims: x.flip(dims),
        lambda x, dims: np.flip(x, dims),
        lambda x, dims: x.flip(dims),
        on.FLIPS,
        [
            *bad_dims(ta.Tensor.flip),
            error(lambda: t(2, 3).flip(0, -2), ValueError, r"twice in \(0, -2\)"),
        ],
        spellings={
            "Tensor.flip": lambda x, dims: x.flip(*dims),
            "ta.flip": lambda x, dims: ta.flip(x, dims),
        },
    ),
    shape_row(
        "unbind",
        ta.Tensor.unbind,
        lambda x, dim=0: tuple(np.moveaxis(x, dim, 0)),
        lambda x, dim=0: x.unbind(dim),
        on.UNBINDS,
        [
            *bad_dims(ta.Tensor.unbind),
            error(lambda: t().unbind(), ValueError, "unbind takes a tensor of one dimension"),
        ],
        covers=("Tensor.unbind",),
    ),
    shape_row(
        "mT",
        lambda x: x.mT,
        lambda x: x.swapaxes(-1, -2),
        lambda x: x.mT,
        on.MATRIX_STACKS,
        [
            error(lambda: t(3).mT, IndexError, r"dim -2 .*\(3,\)"),
            error(lambda: t().mT, IndexError, r"dim -2 .*\(\)"),
            error(lambda: setattr(t(2, 3), "mT", t(3, 2)), AttributeError, "mT"),
        ],
        spellings={"Tensor.mT": lambda x: x.transpose(-2, -1)},
    ),
    shape_row(
        "t",
        ta.Tensor.t,
        lambda x: x.T,
        lambda x: x.t(),
        on.UP_TO_MATRICES,
        [
            error(lambda: t(2, 3, 4).t(), ValueError, r"two dimensions, got \(2, 3, 4\): use mT"),
            error(lambda: t(2, 3).t(0), TypeError, "takes 1 .*2 were given"),
            error(lambda: ta.t([[1.0]]), TypeError, "t: x must be a Tensor, got list"),
        ],
        covers=("Tensor.t",),
    ),
    shape_row(
        "diagonal",
        ta.Tensor.diagonal,
        lambda x, offset=0, dim1=0, dim2=1: np.diagonal(x, offset, dim1, dim2),
        lambda x, **options: x.diagonal(**options),
        on.DIAGONALS,
        [
            error(lambda: t(3).diagonal(), IndexError, r"dim 1 .*\(3,\)"),
            error(lambda: t(2, 3).diagonal(0, 0, -2), ValueError, "cannot be the same"),
            error(lambda: t(2, 3).diagonal(0, 0, 2), IndexError, r"dim 2 .*\(2, 3\)"),
            error(lambda: t(2, 3).diagonal(0.5), TypeError, "offset must be an integer, got 0"),
        ],
        covers=("Tensor.diagonal",),
    ),
    shape_row(
        "contiguous",
        lambda x: x.swapaxes(0, -1).contiguous(),
        lambda x: np.swapaxes(x, 0, -1) if x.ndim else x,
        lambda x: x.swapaxes(0, -1).contiguous(),
        on.TRANSPOSED,
        [
            error(lambda: t(3).contiguous(0), TypeError, "takes 1 .*2 were given"),
            error(lambda: ta.Tensor.contiguous(), TypeError, "missing 1"),
            error(lambda: t(3).contiguous(colour=1), TypeError, "unexpected .*'colour'"),
        ],
        spellings={"Tensor.contiguous": lambda x: x.swapaxes(-1, 0).contiguous().contiguous()},
    ),
]
