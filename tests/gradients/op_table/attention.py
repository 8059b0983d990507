"""Attention, its masks and its heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import references as ref
import samples as on
from samples import calls

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.kernels.visibility import Visibility, of_padded, samples_of

from .extremes import at
from .kinds import shape_row
from .refusals import BOOLS, INTS, error, only_floats, t
from .row import OpRow, ops


def over_rows(
    q: ta.Tensor, k: ta.Tensor, v: ta.Tensor, lengths: Any = ((2,), (2,)), **settings: Any
) -> ta.Tensor:
    """The op beneath all attention, with the lengths of its samples written out."""
    arrays = {name: settings.pop(name, None) for name in ("limits", "mask")}
    visibility = Visibility(*map(samples_of, lengths), **arrays)
    settings = {"scale": 1.0, "heads": (q.shape[1], k.shape[1]), **settings}
    out = ops.attention(*(x.flatten(1) for x in (q, k, v)), visibility=visibility, **settings)
    return out.reshape(len(q), q.shape[1], v.shape[2])


def biased(q: Any, k: Any, v: Any, bias: Any, **options: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, bias=bias, **options)


def of_one_sample(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q[None], k[None], v[None])


EXACT: dict[str, Any] = {"rtol": 8, "of_largest": True}

ROWS: list[OpRow] = [
    OpRow(
        "scaled_dot_product_attention",
        F.scaled_dot_product_attention,
        ref.attention,
        ref.torch_attention,
        on.attention_samples,
        [
            error(
                lambda: F.scaled_dot_product_attention([1.0], t(1, 2, 2), t(1, 2, 2)),
                TypeError,
                "query must be a Tensor, got list",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(2), t(2), t(2)),
                ValueError,
                r"query \(\.\.\., Q, d\), .*got \(2,\), \(2,\), \(2,\)",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(1, 2, 3), t(1, 2, 2), t(1, 2, 2)),
                ValueError,
                r"query \(1, 2, 3\) and key \(1, 2, 2\) .*width",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(1, 2, 2), t(1, 3, 2), t(1, 2, 2)),
                ValueError,
                r"key \(1, 3, 2\) and value \(1, 2, 2\)",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(3, 2, 2), t(2, 2, 2), t(2, 2, 2)),
                ValueError,
                r"same samples .*\(3, 2, 2\), \(2, 2, 2\)",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, dropout_p=2),
                ValueError,
                "between 0 and 1, got 2",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, mask=t(1, 2)),
                TypeError,
                "booleans .*got float32",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, valid_lens=[3]),
                ValueError,
                "between 0 and .*2, got 3",
            ),
            error(
                lambda: F.scaled_dot_product_attention(
                    t(1, 2, 2), t(1, 2, 2), t(1, 2, 2, dtype=np.float64)
                ),
                TypeError,
                "query is float32, value is float64",
            ),
        ],
        ("F.scaled_dot_product_attention",),
        {
            "beside its weights": lambda *inputs, **options: F.scaled_dot_product_attention(
                *inputs, **options, return_weights=True
            )[0]
        },
        reaches=("attention",),
        differentiable=(0, 1, 2),
        extremes=[
            *at("ones,ones,root of large", "ones,ones,tens of 4", function=of_one_sample, **EXACT),
            # 70,000 terms are added up here.
            *at(
                "ones,many rows of 4,many rows of 4", function=of_one_sample, **EXACT | {"rtol": 16}
            ),
        ],
        keeps="input 0, input 1, input 2, 5 more",
    ),
    OpRow(
        "attention with a bias",
        biased,
        ref.attention,
        ref.torch_attention,
        on.biased_attention_samples,
        [
            error(
                lambda: biased(*[t(1, 2, 2)] * 3, t(3, 2)),
                ValueError,
                r"bias must broadcast to the scores, \(1, 2, 2\), got shape \(3, 2\)",
            ),
            error(
                lambda: biased(*[t(1, 1, 2, 2)] * 3, t(1, 1, 1, 2, 2)),
                ValueError,
                r"\(1, 1, 2, 2\), got shape \(1, 1, 1, 2, 2\)",
            ),
            error(lambda: biased(*[t(1, 2, 2)] * 3, 1.0), TypeError, "bias must be a Tensor"),
            error(
                lambda: biased(*[t(1, 2, 2)] * 3, t(2, 2, dtype=np.float64)),
                TypeError,
                "query is float32, bias is float64",
            ),
            error(lambda: biased(*[t(1, 2, 2)] * 3, BOOLS), TypeError, "floating dtype, got bool"),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, attn_mask=INTS),
                TypeError,
                r"attn_mask holds booleans .*, got int64: write attn_mask != 0",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, attn_mask=BOOLS),
                ValueError,
                r"attn_mask must broadcast .*\(1, 2, 2\), got shape \(3,\)",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, window=0),
                ValueError,
                "window.*0",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, colour=0),
                TypeError,
                "unexpected keyword argument 'colour'",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(1, 4, 1, 2), *[t(1, 2, 1, 2)] * 2),
                ValueError,
                "enable_gqa=True",
            ),
            error(
                lambda: F.scaled_dot_product_attention(
                    t(1, 3, 1, 2), *[t(1, 2, 1, 2)] * 2, enable_gqa=True
                ),
                ValueError,
                r"a divisor of .*",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(2, 1, 1, 2), *[t(3, 1, 1, 2)] * 2),
                ValueError,
                r"same samples.*\(3, 1, 1, 2\)$",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, is_causal=BOOLS),
                TypeError,
                r"is_causal is True or False, got bool\[3\]",
            ),
        ],
        spellings={
            "beside its weights": lambda *inputs, **options: biased(
                *inputs, **options, return_weights=True
            )[0],
            "as PyTorch's attn_mask": lambda q, k, v, bias, **options: (
                biased(q, k, v, bias, **options)
                if "attn_mask" in options
                else F.scaled_dot_product_attention(q, k, v, attn_mask=bias, **options)
            ),
        },
        reaches=("attention",),
        differentiable=(0, 1, 2, 3),
        keeps="input 0, input 1, input 2, input 3, 6 more",
    ),
    OpRow(
        "rotary_embedding",
        F.rotary_embedding,
        ref.rotary_embedding,
        ref.torch_rotary_embedding,
        on.rotary_samples,
        [
            error(lambda: F.rotary_embedding([1.0, 2.0]), TypeError, "must be a Tensor, got list"),
            error(lambda: F.rotary_embedding(t(2)), ValueError, r"\(..., N, d\), got shape \(2,\)"),
            error(lambda: F.rotary_embedding(t(2, 3)), ValueError, "the width is even, got 3"),
            error(lambda: F.rotary_embedding(t(2, 2), [0.5, 1]), TypeError, "integers, got float"),
            error(lambda: F.rotary_embedding(t(2, 2), [0, -1]), ValueError, ">= 0, got -1"),
            error(
                lambda: F.rotary_embedding(t(2, 2), [0, 1, 2]),
                ValueError,
                r"positions must broadcast to .*\(2,\), got shape \(3,\)",
            ),
        ],
        ("F.rotary_embedding",),
        reaches=("rotate_pairs",),
        keeps="1 more",
    ),
    OpRow(
        "attention over rows",
        over_rows,
        ref.attention_over_rows,
        ref.torch_attention_over_rows,
        on.attention_rows_samples,
        [
            error(lambda: ops.attention(t(2, 1, 2)), TypeError, "attention.* misses .*'k'"),
            error(lambda: ops.attention(*[t(2, 1, 2)] * 3), TypeError, "missing .*visibility"),
            error(lambda: over_rows(*[t(2, 1, 2)] * 3, colour=1), TypeError, "attention.*'colour'"),
            error(
                lambda: ops.attention(*[t(2, 3)] * 3, heads=(2, 2), visibility=None, scale=1.0),
                ValueError,
                "3 cannot be split into 2 heads",
            ),
            error(
                lambda: over_rows(t(2, 1, 2), t(2, 2, 2), t(2, 2, 2)),
                ValueError,
                r"G is a divisor of H, .*\(2, 1, 2\), \(2, 2, 2\)",
            ),
            error(
                lambda: over_rows(t(2, 1, 3), t(2, 1, 2), t(2, 1, 2)),
                ValueError,
                r"\(R, H, d\), k \(S, G, d\).*\(2, 1, 3\), \(2, 1, 2\)",
            ),
            error(
                lambda: over_rows(t(2, 1, 2), t(2, 1, 2), t(3, 1, 2)),
                ValueError,
                r"v \(S, G, e\).*\(3, 1, 2\)",
            ),
            error(
                lambda: over_rows(t(2, 1, 2), t(2, 1, 2), t(2, 1, 2).double()),
                TypeError,
                "one dtype, got float32, float32 and float64",
            ),
            error(
                lambda: over_rows(*[t(4, 1, 2)] * 3, lengths=((2, 3), (2, 2))),
                ValueError,
                r"the 4 rows of queries, got \[2, 3\]",
            ),
            error(
                lambda: over_rows(*[t(4, 1, 2)] * 3, lengths=((4,), (2, 2))),
                ValueError,
                "queries of 1 samples, keys of 2",
            ),
            error(
                lambda: over_rows(*[t(4, 1, 2)] * 3, lengths=((2, 2), (-2, 6))),
                ValueError,
                r"lengths of samples are >= 0, got \[-2, 6\]",
            ),
            error(
                lambda: over_rows(*[t(2, 1, 2)] * 3, limits=np.array([[1], [1]])),
                ValueError,
                r"limits must be \(1, 2\), .*got \(2, 1\)",
            ),
            error(
                lambda: over_rows(*[t(2, 1, 2)] * 3, mask=np.ones((2, 2), bool)),
                ValueError,
                r"mask must be \(1, 1, 2, 2\), .*got \(2, 2\)",
            ),
        ],
        differentiable=(0, 1, 2),
        reaches=("attention",),
        keeps="input 0, input 1, input 2, 3 more",
    ),
    OpRow(
        "weighted_sum",
        lambda weights, values, limits, mask: ops.weighted_sum(
            # By contract a hidden pair has no weight.
            ta.where(ref.visible(weights.shape, limits, mask), weights, 0.0),
            values,
            visibility=of_padded(weights.shape, limits=limits, mask=mask),
        ),
        ref.weighted_sum,
        ref.torch_weighted_sum,
        on.weighted_sum_samples,
        [
            error(lambda: ops.weighted_sum(t(1, 1, 2, 2)), TypeError, "weighted_sum.* 'values'"),
            error(
                lambda: ops.weighted_sum(*[t(1, 1, 2, 2)] * 2), TypeError, "misses .*'visibility'"
            ),
            error(
                lambda: ops.weighted_sum(t(1, 1, 2, 3), t(1, 1, 2, 3), visibility=None),
                ValueError,
                r"weighted_sum .*\[1, 1, 2, 3\], float32\[1, 1, 2, 3\]",
            ),
        ],
        reaches=("weighted_sum",),
        differentiable=(0, 1),
        special_torch="there a hidden NaN times 0 is NaN",
        keeps="input 1, 4 more",
    ),
    OpRow(
        "sequence_mask",
        F.sequence_mask,
        ref.sequence_mask,
        lambda x, valid_lens, value=0: x.masked_fill(
            ref.as_torch(
                np.arange(x.shape[1]) >= np.reshape(valid_lens, (-1, *(1,) * (x.ndim - 1)))
                if x.ndim == 2
                else np.broadcast_to(
                    (np.arange(x.shape[1]) >= np.reshape(valid_lens, (-1, 1)))[:, :, None], x.shape
                )
            ),
            value,
        ),
        calls(*on.SEQUENCES, repeat=2),
        [
            error(lambda: F.sequence_mask([1.0], [1]), TypeError, "x must be a Tensor, got list"),
            error(lambda: F.sequence_mask(t(3), [1]), ValueError, r"\(B, L, .*got shape \(3,\)"),
            error(lambda: F.sequence_mask(t(2, 3), [1]), ValueError, r"2 samples.*got \(1,\)"),
            error(lambda: F.sequence_mask(t(2, 3), [1, 4]), ValueError, "3, got 4 at index 1"),
            error(lambda: F.sequence_mask(t(2, 3), [1, 2], "text"), TypeError, "'text'"),
        ],
        ("F.sequence_mask",),
        elementwise=True,
        keeps="1 more",
    ),
    OpRow(
        "masked_mean",
        F.masked_mean,
        ref.masked_mean,
        ref.torch_masked_mean,
        calls(*on.MEANS, repeat=2),
        [
            *only_floats(F.masked_mean),
            error(lambda: F.masked_mean(t(3)), ValueError, r"\(B, N, .*got shape \(3,\)"),
            error(lambda: F.masked_mean(t(2, 3), [1]), ValueError, r"= \(2,\) .*got \(1,\)"),
            error(lambda: F.masked_mean(t(2, 3), [1, 4]), ValueError, "3, got 4 at index 1"),
            error(lambda: F.masked_mean(t(2, 3), mask=t(2, 3)), TypeError, "a mask holds booleans"),
        ],
        ("F.masked_mean",),
        keeps="2 more",
    ),
    shape_row(
        "transpose_qkv",
        F.transpose_qkv,
        ref.transpose_qkv,
        lambda x, num_heads: (
            x.reshape(x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads)
            .transpose(1, 2)
            .reshape(x.shape[0] * num_heads, x.shape[1], x.shape[2] // num_heads)
        ),
        on.TRANSPOSE_QKVS,
        [
            error(lambda: F.transpose_qkv(t(2, 3), 1), ValueError, r"\(B, N, D\), got .*\(2, 3\)"),
            error(lambda: F.transpose_qkv(t(1, 2, 3), 2), ValueError, "width 3 .* 2 heads"),
            error(lambda: F.transpose_qkv(t(1, 2, 3), 0), ValueError, "width 3 .* 0 heads"),
            error(
                lambda: F.transpose_qkv(np.ones((1, 2, 2)), 2),
                TypeError,
                "Tensor, got numpy.ndarray",
            ),
        ],
        covers=("F.transpose_qkv",),
    ),
    shape_row(
        "transpose_output",
        F.transpose_output,
        ref.transpose_output,
        lambda x, num_heads: (
            x.reshape(x.shape[0] // num_heads, num_heads, *x.shape[1:])
            .transpose(1, 2)
            .reshape(x.shape[0] // num_heads, x.shape[1], x.shape[2] * num_heads)
        ),
        on.TRANSPOSE_OUTPUTS,
        [
            error(lambda: F.transpose_output(t(2, 3), 1), ValueError, r"N, d\), got .*\(2, 3\)"),
            error(lambda: F.transpose_output(t(3, 2, 1), 2), ValueError, r"B \* 2.*\(3, 2, 1\)"),
            error(lambda: F.transpose_output(t(2, 2, 1), 0), ValueError, "0"),
        ],
        covers=("F.transpose_output",),
    ),
]
