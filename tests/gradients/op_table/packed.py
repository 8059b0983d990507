"""Packed samples."""

from __future__ import annotations

import numpy as np
import references as ref
import samples as on

import tinyattn as ta
from tinyattn import functional as F

from .kinds import shape_row
from .refusals import error, t
from .row import OpRow, ops

ROWS: list[OpRow] = [
    shape_row(
        "pack_padded_sequence",
        F.pack_padded_sequence,
        ref.pack,
        ref.torch_pack,
        on.PACKS,
        [
            error(lambda: F.pack_padded_sequence([[1.0]], [1]), TypeError, "Tensor, got list"),
            error(lambda: F.pack_padded_sequence(t(3), [1]), ValueError, r"\(B, L, .*\(3,\)"),
            error(
                lambda: F.pack_padded_sequence(t(2, 3), [1]),
                ValueError,
                r"2 samples .*\(2,\), got \(1,\)",
            ),
            error(lambda: F.pack_padded_sequence(t(2, 3), [1, 4]), ValueError, "3, got 4 at .*1"),
            error(lambda: F.pack_padded_sequence(t(2, 3), [1, -1]), ValueError, "got -1 at .*1"),
            error(
                lambda: F.pack_padded_sequence(t(2, 3), [[1, 2, 3], [1, 2, 3]]),
                ValueError,
                r"2 samples .*\(2,\), got \(2, 3\)",
            ),
            error(lambda: ops.pack(t(2, 3)), TypeError, "pack.* miss.*'lengths'"),
        ],
        covers=("F.pack_padded_sequence",),
        spellings={
            "ops.pack": lambda x, valid_lens: ops.pack(x, lengths=np.array(valid_lens, np.int64)),
            "lengths as a Tensor": lambda x, valid_lens: F.pack_padded_sequence(
                x, ta.tensor(np.array(valid_lens, np.int32))
            ),
        },
        reaches=("pack",),
    ),
    shape_row(
        "pad_packed_sequence",
        F.pad_packed_sequence,
        ref.unpack,
        ref.torch_unpack,
        on.UNPACKS,
        [
            error(lambda: F.pad_packed_sequence([1.0], [1]), TypeError, "Tensor, got list"),
            error(lambda: F.pad_packed_sequence(t(), [1]), ValueError, "without dimensions"),
            error(
                lambda: F.pad_packed_sequence(t(3, 2), [1, 1]),
                ValueError,
                r"3 rows .*shape \(2,\) with sum 2",
            ),
            error(lambda: F.pad_packed_sequence(t(3), [1, 2], 1), ValueError, "1 is less .* 2"),
            error(lambda: F.pad_packed_sequence(t(3), [1, 2], 2.5), ValueError, "length .*got 2.5"),
            error(
                lambda: ops.unpack(t(3), lengths=[3]),
                TypeError,
                "unpack.* miss.*'length'",
            ),
        ],
        covers=("F.pad_packed_sequence",),
        spellings={
            "ops.unpack": lambda x, valid_lens, length=None: ops.unpack(
                x,
                lengths=np.array(valid_lens, np.int64),
                length=max([0, *valid_lens]) if length is None else length,
            )
        },
        reaches=("unpack",),
    ),
]
