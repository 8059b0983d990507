"""Softmax and the losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import references as ref
import samples as on
import samples_of_losses as more

import tinyattn as ta
from tinyattn import functional as F

from .extremes import CLASSES, IGNORED, Extreme, at
from .refusals import INTS, bad_dims, error, only_floats, t
from .row import OpRow

ADDED_UP: dict[str, Any] = {"rtol": 8, "of_largest": True}


def reduced(*sets: str, **options: Any) -> list[Extreme]:
    """Losses of many numbers, in each of the three reductions."""
    reductions = ("mean", "sum", "none")
    return [e for name in reductions for e in at(*sets, reduction=name, **options, **ADDED_UP)]


def weighted(x: ta.Tensor, reduction: str) -> ta.Tensor:
    weight = ta.tensor([1.0, 2.0, 0.5]).to(x.dtype)
    return F.cross_entropy(x, ta.tensor(CLASSES), weight, reduction=reduction)


ROWS: list[OpRow] = [
    OpRow(
        "softmax",
        F.softmax,
        ref.softmax,
        lambda x, dim: x.softmax(dim),
        on.softmax_samples,
        [*only_floats(F.softmax), *bad_dims(F.softmax)],
        ("F.softmax", "Tensor.softmax"),
        reaches=("softmax",),
        extremes=at("many", "large", "tens", rtol=8, of_largest=True, dim=0),
        keeps="output",
    ),
    OpRow(
        "log_softmax",
        F.log_softmax,
        ref.log_softmax,
        lambda x, dim: x.log_softmax(dim),
        on.softmax_samples,
        [*only_floats(F.log_softmax), *bad_dims(F.log_softmax)],
        ("F.log_softmax", "Tensor.log_softmax"),
        reaches=("log_softmax",),
        extremes=at("many", "tens", rtol=8, of_largest=True, dim=0),
        keeps="output",
    ),
    *(
        OpRow(
            f"{name} in another dtype",
            lambda x, dim, name=name: getattr(x, name)(dim, dtype=ta.float64),
            lambda x, dim, f=reference: f(x.astype(np.result_type(x, np.float64)), dim),
            lambda x, dim, name=name: getattr(x.double(), name)(dim),
            on.softmax_samples,
            [
                *bad_dims(getattr(F, name)),
                error(
                    lambda name=name: getattr(F, name)(t(3), 0, "text"), TypeError, "dtype: 'text'"
                ),
                error(
                    lambda name=name: getattr(F, name)(t(3), 0, ta.int64),
                    TypeError,
                    "needs a floating dtype, got int64",
                ),
            ],
            spellings={
                f"F.{name}": lambda x, dim, name=name: getattr(F, name)(x, dim, ta.float64),
                f"ta.{name}": lambda x, dim, name=name: getattr(ta, name)(x, dim, ta.float64),
            },
            dtype="float64",
            keeps="output",
        )
        for name, reference in (("softmax", ref.softmax), ("log_softmax", ref.log_softmax))
    ),
    OpRow(
        "masked_softmax",
        F.masked_softmax,
        ref.masked_softmax,
        ref.torch_masked_softmax,
        more.all_masked_softmax_samples,
        [
            *only_floats(F.masked_softmax),
            error(lambda: F.masked_softmax(t()), ValueError, r"\(B, Q, K\).*got shape \(\)"),
            error(lambda: F.masked_softmax(t(2, 3), mask=np.ones(4, bool)), ValueError, "Q=2, K=3"),
            error(lambda: F.masked_softmax(t(3), valid_lens=4), ValueError, "between 0 and .*3"),
            error(lambda: F.masked_softmax(t(3), mask=[True] * 2), ValueError, "K=3"),
            error(lambda: F.masked_softmax(t(2, 3), [1, 2, 3]), ValueError, r"got \(1, 3\)"),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), valid_lens=[4]),
                ValueError,
                "between 0 and .*3, got 4 at index 0",
            ),
            error(
                lambda: F.masked_softmax(t(2, 2, 3), valid_lens=[1, -1]),
                ValueError,
                "between 0 and .*3, got -1 at index 1",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), valid_lens=[1.5]),
                ValueError,
                "whole numbers, got 1.5",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), valid_lens=[1, 2, 3]),
                ValueError,
                r"\(B,\) = \(1,\).*got \(3,\)",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), mask=t(1, 2, 3)),
                TypeError,
                "booleans .*got float32",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), mask=np.ones((2, 3), bool)),
                ValueError,
                r"\(B\|1, K\|1\), with B=1.*\(2, 3\).*mask\[None\]",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), mask=np.array([[0, 1, 2]])),
                ValueError,
                "only 0 .* and 1",
            ),
        ],
        ("F.masked_softmax",),
        reaches=("softmax_of_visible",),
        extremes=at(
            "large",
            function=lambda x: F.masked_softmax(x[None], mask=np.ones((1, 1, 4), bool)),
            of_largest=True,
        ),
        keeps="output, 2 more",
    ),
    OpRow(
        "cross_entropy",
        F.cross_entropy,
        ref.cross_entropy,
        lambda x, target, **options: ref.torch_nn().cross_entropy(
            x, ref.as_torch(target), **options
        ),
        on.cross_entropy_samples,
        [
            error(lambda: F.cross_entropy([[1.0]], [0]), TypeError, "logits .* got list"),
            error(
                lambda: F.cross_entropy(t(2, 3), ta.tensor([0, 3])),
                IndexError,
                r"class 3 .*3 classes \(0 to 2",
            ),
            error(lambda: F.cross_entropy(t(2, 3), ta.tensor([0, -1])), IndexError, "class -1 .*3"),
            error(
                lambda: F.cross_entropy(t(2, 3), ta.tensor([0.0, 1.0])),
                TypeError,
                "integers, got float32",
            ),
            error(
                lambda: F.cross_entropy(t(2, 3), ta.tensor([0])), ValueError, r"\(2, 3\).*\(1,\)"
            ),
            error(
                lambda: F.cross_entropy(t(2, 3), ta.tensor([0, 1]), reduction="average"),
                ValueError,
                '"mean", "sum" or "none", got \'average\'',
            ),
        ],
        ("F.cross_entropy",),
        reaches=("cross_entropy_of_rows",),
        extremes=[
            *reduced("many rows", "many rows of tens", "many large rows", target=CLASSES),
            *reduced("many rows", "many rows of tens", target=IGNORED),
        ],
        keeps="input 0, 3 more",
    ),
    OpRow(
        "mse_loss",
        F.mse_loss,
        ref.mse_loss,
        lambda x, y, reduction: ref.torch_nn().mse_loss(x, y, reduction=reduction),
        on.mse_samples,
        [
            error(lambda: F.mse_loss(t(3), t(2)), ValueError, r"\(3,\).*\(2,\)"),
            error(lambda: F.mse_loss(t(3), 1.0), TypeError, "target must be a Tensor, got float"),
            error(lambda: F.mse_loss(INTS, t(3)), TypeError, "floating dtype, got int64"),
            error(lambda: F.mse_loss(t(3), t(3), "all"), ValueError, "\"none\", got 'all'"),
        ],
        ("F.mse_loss",),
        differentiable=(0, 1),
        extremes=reduced("many,many", "many small,many positive", "one thousand,many small"),
        keeps="1 more",
    ),
    OpRow(
        "cross_entropy with weights",
        lambda logits, weight=None, **options: F.cross_entropy(logits, weight=weight, **options),
        ref.over_classes(ref.log_softmax),
        lambda logits, weight=None, target=None, **options: ref.torch_nn().cross_entropy(
            logits, ref.as_torch(target), weight, **options
        ),
        more.class_samples(smoothing=True),
        [
            error(
                lambda: F.cross_entropy(t(2, 3), [0, 3], label_smoothing=0.1),
                IndexError,
                "class 3 .*3 classes",
            ),
            error(
                lambda: F.cross_entropy(t(2, 3), [0, 1], t(2)),
                ValueError,
                r"weight must have shape \(3,\), got \(2,\)",
            ),
            error(
                lambda: F.cross_entropy(t(2, 3), [0, 1], t(3, dtype=np.float64)),
                TypeError,
                "weight is float64",
            ),
            error(
                lambda: F.cross_entropy(t(2, 3), [0, 1], label_smoothing=1.5),
                ValueError,
                "label_smoothing lies between 0 and 1, got 1.5",
            ),
        ],
        extremes=[
            *reduced("many rows", "many rows of tens", target=IGNORED, label_smoothing=0.1),
            *reduced("many rows", "many rows of tens", function=weighted),
        ],
        keeps="input 1, 4 more",
    ),
    OpRow(
        "cross_entropy of probabilities",
        F.cross_entropy,
        ref.soft_cross_entropy,
        lambda *inputs, **options: ref.torch_nn().cross_entropy(*inputs, **options),
        more.soft_samples,
        [
            error(
                lambda: F.cross_entropy(t(2, 3), t(2, 2)), TypeError, "class numbers .*got float32"
            ),
            error(
                lambda: F.cross_entropy(t(2, 3), t(2, 3, dtype=np.float64)),
                TypeError,
                "logits is float32, target is float64",
            ),
            error(lambda: F.cross_entropy(t(2, 3), t(2, 3), t(2)), ValueError, r"got \(2,\)"),
        ],
        differentiable=(0, 1),
        extremes=reduced("many rows,many rows positive"),
        keeps="input 1, input 2, 3 more",
    ),
    OpRow(
        "nll_loss",
        lambda log_probs, weight=None, **options: F.nll_loss(log_probs, weight=weight, **options),
        ref.class_loss,
        lambda log_probs, weight=None, target=None, **options: ref.torch_nn().nll_loss(
            log_probs, ref.as_torch(target), weight, **options
        ),
        more.class_samples(smoothing=False),
        [
            error(lambda: F.nll_loss([[1.0]], [0]), TypeError, "log_probs .* got list"),
            error(lambda: F.nll_loss(t(2, 3), [0, 3]), IndexError, "class 3 .*3 classes"),
            error(lambda: F.nll_loss(t(2, 3), [0]), ValueError, r"nll_loss: .*\(2, 3\).*\(1,\)"),
            error(lambda: F.nll_loss(t(2, 3), t(2, 3)), TypeError, "class numbers .*float32"),
            error(lambda: F.nll_loss(t(2, 3), [0, 1], reduction="all"), ValueError, "got 'all'"),
        ],
        spellings={
            "F.nll_loss": lambda log_probs, weight=None, *, target, **options: F.nll_loss(
                log_probs, target, weight, **options
            )
        },
        extremes=reduced("many rows of logs", "many rows of large logs", target=IGNORED),
        keeps="input 1, 3 more",
    ),
    OpRow(
        "kl_div",
        F.kl_div,
        ref.kl_div,
        lambda *inputs, **options: ref.torch_nn().kl_div(*inputs, **options),
        more.kl_samples,
        [
            error(lambda: F.kl_div(t(3), t(2)), ValueError, r"kl_div: .*\(3,\).*\(2,\)"),
            error(lambda: F.kl_div(t(3), [0.1]), TypeError, "target must be a Tensor, got list"),
            error(lambda: F.kl_div(t(3), t(3), "all"), ValueError, "\"batchmean\", .*got 'all'"),
        ],
        ("F.kl_div",),
        differentiable=(0, 1),
        special_torch="there target log(target) - target x is inf - inf",
        extremes=[
            *reduced("many rows of logs,many rows positive"),
            *at(
                "many rows of logs,many rows positive",
                "many,many positive",
                reduction="batchmean",
                **ADDED_UP,
            ),
        ],
        keeps="input 1, 4 more",
    ),
    OpRow(
        "binary_cross_entropy_with_logits",
        F.binary_cross_entropy_with_logits,
        ref.binary_cross_entropy,
        lambda *inputs, **options: ref.torch_nn().binary_cross_entropy_with_logits(
            *inputs, **options
        ),
        more.binary_samples,
        [
            error(
                lambda: F.binary_cross_entropy_with_logits(t(3), t(2)),
                ValueError,
                r"\(3,\).*\(2,\)",
            ),
            error(
                lambda: F.binary_cross_entropy_with_logits(t(3), INTS), TypeError, "target .*int64"
            ),
            error(
                lambda: F.binary_cross_entropy_with_logits(t(3), t(3), "batchmean"),
                ValueError,
                "got 'batchmean'",
            ),
        ],
        ("F.binary_cross_entropy_with_logits",),
        differentiable=(0, 1),
        special_torch="there the loss of an infinite logit is inf - inf",
        extremes=[
            *reduced("many,many positive", "ones,positive"),
            # They cancel in the gradient, so only float16 has its digits, from float32.
            *at("many small,many fractions", "many,many fractions", rtol=1e6, reduction="none"),
        ],
        keeps="input 0, input 1, 4 more",
    ),
]
