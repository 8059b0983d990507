"""What layers are made of."""

from __future__ import annotations

import math

import numpy as np
import references as ref
import samples as on
import samples_of_losses as more

import tinyattn as ta
from tinyattn import functional as F

from .extremes import ENDS, MANY, at
from .kinds import NO_WEIGHT, shape_row, unary_row
from .refusals import INTS, error, only_floats, only_tensors, t
from .row import OpRow, ops

ROWS: list[OpRow] = [
    OpRow(
        "linear",
        F.linear,
        lambda x, weight, bias=0.0: x @ weight.T + bias,
        lambda *inputs: ref.torch_nn().linear(*inputs),
        on.linear_samples,
        [
            error(lambda: F.linear([1.0], t(2, 1)), TypeError, "x must be a Tensor, got list"),
            error(lambda: F.linear(t(3), t(3)), ValueError, r"weight is \(out, in\), .*\(3,\)"),
            error(lambda: F.linear(t(2, 3), t(3, 2)), ValueError, r"\(3, 2\) .* 2, got .*\(2, 3\)"),
            error(lambda: F.linear(t(3), t(2, 3), t(3)), ValueError, r"bias .*\(2,\), got \(3,\)"),
            error(
                lambda: F.linear(t(3), t(2, 3, dtype=np.float64)),
                TypeError,
                "x is float32, weight is float64",
            ),
            error(lambda: F.linear(t(3), t(2, 3), [1.0, 2.0]), TypeError, "bias .*list"),
        ],
        ("F.linear", "ops.linear"),
        differentiable=(0, 1, 2),
        extremes=at("root of large,ones", "small,ones", "ones,many rows of 4", of_largest=True),
        keeps="input 0, input 1",
    ),
    OpRow(
        "embedding",
        F.embedding,
        lambda ids, weight, padding_idx=None: np.where(
            # Ids that may be learned take part; those of the padding row are only numbers.
            (ids == padding_idx)[..., None],
            weight.real[ids],
            weight[ids],
        ),
        lambda ids, weight, **options: ref.torch_nn().embedding(ids, weight, **options),
        on.embedding_samples,
        [
            error(lambda: F.embedding([0, 5], t(3, 2)), IndexError, "id 5 .*3 rows"),
            error(lambda: F.embedding([-1, 0], t(3, 2)), IndexError, "id -1 .*3 rows"),
            error(lambda: F.embedding(t(2), t(3, 2)), TypeError, "integer ids, got float32"),
            error(lambda: F.embedding([0], t(3)), ValueError, r"\(V, D\), got .*\(3,\)"),
            error(lambda: F.embedding([0], t(3, 2), 3), IndexError, "padding_idx 3 .*3"),
            error(lambda: F.embedding([0], [[1.0]]), TypeError, NO_WEIGHT),
        ],
        ("F.embedding",),
        reaches=("take_rows",),
        differentiable=(1,),
        elementwise=True,
        extremes=at(
            "ones", function=lambda x: F.embedding(np.zeros(MANY, int), x), of_largest=True
        ),
        keeps="input 0",
    ),
    OpRow(
        "scatter_rows",
        ops.scatter_rows,
        ref.scatter_rows,
        ref.torch_scatter_rows,
        on.scatter_samples,
        [
            error(
                lambda: ops.scatter_rows(t(2, 3), ids=INTS, num_rows=5, skip=None, colour=1),
                TypeError,
                "scatter_rows.* 'colour'",
            ),
            error(
                lambda: ops.scatter_rows(t(2, 3), num_rows=5, skip=None),
                TypeError,
                "misses .*'ids'",
            ),
            error(
                lambda: ops.scatter_rows(t(2, 3), INTS),
                TypeError,
                "misses .*'num_rows'",
            ),
        ],
        ("ops.scatter_rows",),
        extremes=at(
            "many rows",
            function=lambda x: ops.scatter_rows(
                x, ta.tensor(np.zeros(MANY, int)), num_rows=2, skip=None
            ),
            of_largest=True,
        ),
        keeps="input 1",
    ),
    OpRow(
        "layer_norm",
        lambda *inputs, **options: F.layer_norm(
            inputs[0], options["normalized_shape"], *inputs[1:], eps=options.get("eps", 1e-5)
        ),
        ref.layer_norm,
        lambda *inputs, **options: ref.torch_nn().layer_norm(
            inputs[0], options["normalized_shape"], *inputs[1:], eps=options.get("eps", 1e-5)
        ),
        on.layer_norm_samples,
        [
            error(lambda: F.layer_norm([1.0], 1), TypeError, "x must be a Tensor, got list"),
            error(lambda: F.layer_norm(INTS, 3), TypeError, "floating dtype, got int64"),
            error(lambda: F.layer_norm(t(2, 3), 2), ValueError, r"\(2,\).*got shape \(2, 3\)"),
            error(lambda: F.layer_norm(t(2, 3), (3, 2)), ValueError, r"\(3, 2\).*shape \(2, 3\)"),
            error(lambda: F.layer_norm(t(2, 3), ()), ValueError, r"\(\).*got shape \(2, 3\)"),
            error(
                lambda: F.layer_norm(t(2, 3), 3, t(2)), ValueError, r"weight .*\(3,\), got \(2,\)"
            ),
            error(
                lambda: F.layer_norm(t(2, 3), 3, t(3), t(3, dtype=np.float64)),
                TypeError,
                "x is float32, bias is float64",
            ),
            error(lambda: F.layer_norm(t(2, 3), 3, [1.0, 1.0, 1.0]), TypeError, NO_WEIGHT),
        ],
        spellings={
            "F.layer_norm": lambda *inputs, normalized_shape, **options: F.layer_norm(
                inputs[0], list(normalized_shape), *inputs[1:], **options
            )
        },
        reaches=("layer_norm",),
        cancels=1000.0,
        differentiable=(0, 1, 2),
        extremes=[
            *at(
                "large",
                "ones",
                "many in 3 rows",
                function=lambda x: F.layer_norm(x, x.shape[-1]),
                rtol=8,
                of_largest=True,
            ),
            *at(
                "large,ones",
                "ones,ones",
                function=lambda x, w: F.layer_norm(x, 4, w[0], w[1]),
                rtol=8,
                of_largest=True,
            ),
        ],
        keeps="input 0, input 1, 2 more",
    ),
    OpRow(
        "dropout",
        on.seeded_dropout,
        ref.seeded_dropout,
        ref.torch_dropout(ref.seeded_dropout),
        on.dropout_samples,
        [
            *only_floats(F.dropout),
            error(lambda: F.dropout(t(3), 1.5), ValueError, "between 0 and 1, got 1.5"),
            error(lambda: F.dropout(t(3), -0.1), ValueError, "between 0 and 1, got -0.1"),
            error(lambda: F.dropout(t(3), "half"), ValueError, "between 0 and 1, got 'half'"),
            error(lambda: F.dropout(t(3), math.nan), ValueError, "between 0 and 1, got nan"),
        ],
        reaches=("drop",),
        spellings={"F.dropout": on.seeded_dropout},
        elementwise=True,
    ),
    OpRow(
        "drop",
        ops.drop,
        ref.dropout,
        ref.torch_dropout(ref.dropout),
        on.ops_dropout_samples,
        [
            error(lambda: ops.drop(t(3)), TypeError, "drop.* misses .*'p'"),
            error(lambda: ops.drop(t(3), p=0.5), TypeError, "drop.* misses .*'seed'"),
            error(
                lambda: ops.drop(t(3), t(3), p=0.5, seed=1),
                TypeError,
                r"drop\(\) got multiple values .*'p'",
            ),
        ],
        ("ops.drop",),
        elementwise=True,
        extremes=[*at(*ENDS, p=0.4, seed=7), *at("many small", "many", p=0.99999, seed=7)],
    ),
    OpRow(
        "rms_norm",
        lambda *inputs, **options: F.rms_norm(
            inputs[0], options["normalized_shape"], *inputs[1:], eps=options["eps"]
        ),
        ref.rms_norm,
        lambda *inputs, **options: ref.torch_nn().rms_norm(
            inputs[0], options["normalized_shape"], *inputs[1:], eps=options["eps"]
        ),
        more.rms_samples,
        [
            *only_floats(lambda x: F.rms_norm(x, 3)),
            error(lambda: F.rms_norm(t(2, 3), 2), ValueError, r"rms_norm .*\(2,\).*\(2, 3\)"),
            error(lambda: F.rms_norm(t(2, 3), 3, t(2)), ValueError, r"weight .*\(3,\), got \(2,"),
            error(lambda: F.rms_norm(t(2, 3), 3, eps=-1), ValueError, "eps .*got -1"),
        ],
        spellings={
            "F.rms_norm": lambda *inputs, normalized_shape, eps: F.rms_norm(
                inputs[0], list(normalized_shape), *inputs[1:], eps=eps
            )
        },
        reaches=("rms_norm",),
        differentiable=(0, 1),
        extremes=at(
            "large",
            "ones",
            "many in 3 rows",
            function=lambda x: F.rms_norm(x, x.shape[-1], eps=1e-6),
            rtol=8,
            of_largest=True,
        ),
        keeps="input 0, input 1, 1 more",
    ),
    OpRow(
        "normalize",
        F.normalize,
        ref.normalize,
        lambda x, **options: ref.torch_nn().normalize(x, **options),
        more.normalize_samples,
        [
            *only_floats(F.normalize),
            error(lambda: F.normalize(t(2, 3), p=3), ValueError, "p = 1 or 2, got 3"),
            error(lambda: F.normalize(t(3)), IndexError, "dim 1"),
        ],
        ("F.normalize",),
        extremes=[
            e
            for p in (2, 1)
            for e in at("large", "ones", "many in 3 rows", p=p, rtol=8, of_largest=True)
        ],
        keeps="input 0, output, 2 more",
    ),
    unary_row(
        "softplus",
        ref.softplus,
        on.unary(large=10.0),
        ["F.softplus"],
        lambda x: ref.torch_nn().softplus(x, threshold=60),
        errors=only_tensors(F.softplus),
        extremes=at(*ENDS, rtol=8),
        keeps="input 0",
    ),
    unary_row(
        "silu",
        lambda z: z * ref.sigmoid(z),
        on.unary(large=10.0),
        ["F.silu"],
        lambda x: ref.torch_nn().silu(x),
        errors=only_tensors(F.silu),
        extremes=at(*ENDS, of_largest=True),
        keeps="input 0",
    ),
    shape_row(
        "pad",
        F.pad,
        ref.pad,
        lambda x, **options: ref.torch_nn().pad(x, **options),
        more.PADS,
        [
            error(lambda: F.pad([1.0], (1, 1)), TypeError, "x must be a Tensor, got list"),
            error(lambda: F.pad(t(3), (1,)), ValueError, r"two integers .*got \(1,\)"),
            error(lambda: F.pad(t(3), (1, 0.5)), ValueError, r"two integers .*got \(1, 0.5\)"),
            error(lambda: F.pad(t(3), (1, 1, 1, 1)), ValueError, "up to 1 dimensions"),
            error(lambda: F.pad(t(3), (-1, -3)), ValueError, "pad takes 1 and 3 of 3 elements"),
            error(lambda: F.pad(INTS, (1, 1), value=0.5), TypeError, "0.5 does not fit .*int64"),
            error(lambda: F.pad(t(3), (1, 1), "reflect"), ValueError, "'reflect'"),
        ],
        covers=("F.pad",),
    ),
    OpRow(
        "one_hot",
        F.one_hot,
        ref.one_hot,
        lambda ids, num_classes=-1: ref.torch_nn().one_hot(ids, num_classes),
        more.one_hot_samples,
        [
            error(lambda: F.one_hot([0, 3], 3), IndexError, "id 3 .*3 classes"),
            error(lambda: F.one_hot([-1, 0]), IndexError, "id -1"),
            error(lambda: F.one_hot(t(2)), TypeError, "integer ids, got float32"),
            error(lambda: F.one_hot([0], 0), ValueError, "num_classes .*>= 1, got 0"),
            error(lambda: F.one_hot(INTS[:0]), ValueError, "one_hot of no ids needs num_classes"),
        ],
        ("F.one_hot",),
        differentiable=(),
        dtype="int64",
    ),
]
