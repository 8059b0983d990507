"""A whole encoder layer."""

from __future__ import annotations

import numpy as np
import references as ref
import samples as on

from .refusals import error, t
from .row import OpRow, ops

# Of widths that the kernel takes, which looks at nothing itself.
LINEAR = [t(16, 16), t(16)]
WHOLE = [
    t(2, 3, 16), t(16), t(16), *LINEAR * 4, t(16), t(16), t(32, 16), t(32), t(16, 32), t(16)
]  # fmt: skip


def without_key_bias(x: object, *parameters: object, **settings: object) -> object:
    return ops.encoder_layer(x, *parameters[:5], None, *parameters[5:], **settings)


def whole_with(place: int, array: object, **settings: object) -> object:
    arrays = [*WHOLE[:place], array, *WHOLE[place + 1 :]]
    return ops.encoder_layer(*arrays, **{"heads": 2, **settings})


ROWS: list[OpRow] = [
    OpRow(
        "an encoder layer",
        without_key_bias,
        ref.encoder_layer,
        ref.torch_encoder_layer,
        on.encoder_layer_samples,
        [
            error(lambda: ops.encoder_layer(*WHOLE), TypeError, "missing .*heads"),
            error(lambda: ops.encoder_layer(*WHOLE[:-1], heads=2), TypeError, "16 in all, got 15"),
            error(lambda: whole_with(9, t(16), colour=1), TypeError, "'colour'"),
            error(lambda: whole_with(1, t(3)), ValueError, r"norm_1.weight must be \(16,\), got"),
            error(lambda: whole_with(3, None), TypeError, "a weight of W_q, got None"),
            error(
                lambda: whole_with(5, t(3, 16)), ValueError, r"W_k.weight must be \(16, 16\), got"
            ),
            error(lambda: whole_with(8, t(3)), ValueError, r"W_v.bias must be \(16,\), got \(3,\)"),
            error(
                lambda: whole_with(9, t(5, 16)), ValueError, r"W_o.weight must be \(16, 16\), got"
            ),
            error(lambda: whole_with(13, t(5, 3)), ValueError, r"w_1.weight must be \(5, 16\)"),
            error(lambda: whole_with(15, t(5, 16)), ValueError, r"w_2.weight must be \(16, 32\)"),
            error(lambda: whole_with(0, t(6, 16)), ValueError, r"\(B, N, D\), .* got \(6, 16\)"),
            error(lambda: whole_with(0, t(6, 16), lengths=np.array([2, 3])), ValueError, "6 rows"),
            error(
                lambda: whole_with(9, t(16, 16), limits=np.ones((2, 2), int)),
                ValueError,
                r"limits must be \(2, 3\), or 1 for any, got \(2, 2\)",
            ),
            error(
                lambda: whole_with(9, t(16, 16), mask=np.ones((2, 3, 3, 3), bool)),
                ValueError,
                r"mask must be \(2, 2, 3, 3\), or 1",
            ),
            error(
                lambda: whole_with(
                    0, t(3, 16), lengths=np.array([3]), mask=np.ones((1, 1, 3, 3), bool)
                ),
                ValueError,
                "packed samples take no mask",
            ),
            error(lambda: whole_with(9, t(16, 16), eps=(1e-5,)), ValueError, "two eps, four rates"),
            error(lambda: whole_with(9, t(16, 16), rates=(2.0,) * 4), ValueError, "0 and 1, got"),
            error(lambda: whole_with(0, t(2, 3, 16), heads=3), ValueError, "16 cannot .* 3 heads"),
            error(
                lambda: whole_with(1, t(16, dtype=np.float64)),
                TypeError,
                "x is float32, norm_1.weight is float64",
            ),
        ],
        reaches=("encoder_layer",),
        differentiable="all",
        cancels=1000.0,
        steps=16,
    ),
]
