"""What an encoder layer does to each position by itself."""

from __future__ import annotations

import numpy as np
import references as ref
import samples as on

from .refusals import error, t
from .row import OpRow, ops

WHOLE = [t(2, 4), t(2, 3), t(4, 3), t(4), t(4), t(4), t(5, 4), t(5), t(4, 5), t(4)]


def whole_with(place: int, array: object, **settings: object) -> object:
    arrays = [*WHOLE[:place], array, *WHOLE[place + 1 :]]
    return ops.add_norm_feed_forward(*arrays, **{"eps": 1e-5, **settings})


ROWS: list[OpRow] = [
    OpRow(
        "norm, then linear",
        ops.norm_linear,
        ref.norm_linear,
        ref.torch_norm_linear,
        on.norm_linear_samples,
        [
            error(
                lambda: ops.norm_linear(t(2, 3), t(3), t(3), t(4, 3), t(4)), TypeError, "miss.*eps"
            ),
            error(
                lambda: ops.norm_linear(t(2, 3), t(2), t(3), t(4, 3), t(4), eps=1e-5),
                ValueError,
                r"the norm's weight must be \(3,\), got \(2,\)",
            ),
            error(
                lambda: ops.norm_linear(t(2, 3), t(3), t(3), t(3, 4), t(3), eps=1e-5),
                ValueError,
                r"weight must be \(3, 3\), got \(3, 4\)",
            ),
            error(
                lambda: ops.norm_linear(t(2, 3), t(3), t(3), t(4, 3), t(3), eps=1e-5),
                ValueError,
                r"bias must be \(4,\), got \(3,\)",
            ),
            error(
                lambda: ops.norm_linear(
                    t(2, 3), t(3), t(3), t(4, 3, dtype=np.float64), t(4), eps=1e-5
                ),
                TypeError,
                "x is float32, weight is float64",
            ),
        ],
        ("ops.norm_linear",),
        differentiable="all",
        cancels=1000.0,
    ),
    OpRow(
        "an encoder layer after its attention",
        ops.add_norm_feed_forward,
        ref.add_norm_feed_forward,
        ref.torch_add_norm_feed_forward,
        on.add_norm_feed_forward_samples,
        [
            error(lambda: ops.add_norm_feed_forward(*WHOLE), TypeError, "missing .*eps"),
            error(
                lambda: whole_with(1, t(3, 3)), ValueError, r"heads must be \(2, 3\), got .*3, 3"
            ),
            error(lambda: whole_with(2, t(4, 4)), ValueError, r"weight_o must be \(4, 3\), got"),
            error(lambda: whole_with(3, t(3)), ValueError, r"bias_o must be \(4,\), got \(3,\)"),
            error(lambda: whole_with(5, t(5)), ValueError, r"norm's bias must be \(4,\), got"),
            error(lambda: whole_with(6, t(5, 3)), ValueError, r"weight must be \(5, 4\), got"),
            error(lambda: whole_with(8, t(5, 4)), ValueError, r"weight_2 must be \(4, 5\), got"),
            error(
                lambda: whole_with(1, t(2, 3, dtype=np.float64)),
                TypeError,
                "x is float32, heads is float64",
            ),
            error(lambda: whole_with(9, t(4), colour=1), TypeError, "'colour'"),
        ],
        ("ops.add_norm_feed_forward",),
        differentiable="all",
        cancels=1000.0,
    ),
]
