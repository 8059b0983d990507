"""Packed samples, and attention within them."""

from __future__ import annotations

from typing import Any

import numpy as np
import references as ref
import samples as on

import tinyattn as ta
from tinyattn import functional as F

from .kinds import shape_row
from .refusals import error, t
from .row import OpRow, ops


def side_by_side(qkv: ta.Tensor, **settings: Any) -> ta.Tensor:
    """Self-attention of which only what is said here is unusual."""
    usual = {"heads": 1, "lengths": None, "limits": None, "mask": None, "scale": 1.0}
    return ops.self_attention(qkv, **{**usual, **settings})


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
            error(lambda: ops.pack(t(2, 3)), TypeError, "pack.* missing .*'lengths'"),
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
            error(lambda: ops.unpack(t(3), lengths=[3]), TypeError, "unpack.* missing .*'length'"),
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
    OpRow(
        "self-attention side by side",
        ops.self_attention,
        ref.self_attention,
        lambda qkv, p, seed, **options: ref.torch_self_attention(qkv, **options),
        on.self_attention_samples,
        [
            error(lambda: ops.self_attention(t(1, 2, 3)), TypeError, "missing .*heads"),
            error(lambda: side_by_side(t(1, 2, 3), colour=1), TypeError, "self_att.* 'colour'"),
            error(lambda: side_by_side(t(2, 3)), ValueError, r"\(B, N, 3 D\), .*got \(2, 3\)"),
            error(
                lambda: side_by_side(t(1, 2, 3), lengths=np.array([2])),
                ValueError,
                r"\(N, 3 D\), .*got \(1, 2, 3\)",
            ),
            error(lambda: side_by_side(t(1, 2, 9), heads=2), ValueError, "3 cannot .* 2 heads"),
            error(lambda: side_by_side(t(1, 2, 9), heads=0), ValueError, "3 cannot .* 0 heads"),
            error(
                lambda: side_by_side(t(4, 3), lengths=np.array([2, 3])),
                ValueError,
                r"the 4 rows, got \[2, 3\]",
            ),
            error(
                lambda: side_by_side(t(4, 3), lengths=np.array([-2, 6])),
                ValueError,
                r">= 0 .*, got \[-2, 6\]",
            ),
        ],
        ("ops.self_attention",),
    ),
]
