"""The inputs of losses, norms and padding, for their rows in the table."""

from __future__ import annotations

from typing import Any

import numpy as np
from samples import IGNORED, POISONED, SHAPES, Sample, away, mask_of, masked_softmax_samples, normal

Array = np.ndarray
CLASSES: list[tuple[tuple[int, ...], str]] = [
    ((4, 3), ""),
    ((1, 5), ""),
    ((3,), "a single row without a batch"),
    ((2, 3, 4), "classes in the middle"),
    ((2, 3, 2, 2), "classes in the middle"),
    ((1, 1), "one class"),
    ((0, 3), "empty"),
]
REDUCTIONS = ("mean", "sum", "none")


def targets_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    axis = min(1, len(shape) - 1)
    return rng.integers(0, shape[axis], (*shape[:axis], *shape[axis + 1 :]))


def class_samples(smoothing: bool, weighted: bool = True) -> Any:
    """(scores, weight) and (scores,), with targets of which some are ignored."""

    def samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
        found = []
        for i, (shape, edge) in enumerate(CLASSES):
            for reduction in REDUCTIONS:
                if "empty" in edge and reduction == "mean":
                    continue
                options: dict[str, Any] = {"reduction": reduction}
                target, reason = targets_of(rng, shape), ""
                if shape in ((4, 3), (2, 3, 4)):
                    target.flat[:2], reason = [1, 0], IGNORED
                    options["ignore_index"] = 1
                if smoothing:
                    options["label_smoothing"] = (0.1, 0.5, 1.0)[i % 3]
                options["target"] = target
                arrays = (normal(rng, shape), 0.2 + rng.random(shape[min(1, len(shape) - 1)]))
                count = 1 if not weighted or (reduction == "sum" and smoothing) else 2
                inputs = tuple(a.astype(dtype) for a in arrays[:count])
                found.append(Sample(inputs, options, edge, special_torch=reason))
        return found

    return samples


def soft_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    """(logits, probabilities) and (logits, probabilities, weight)."""
    found = []
    for i, (shape, edge) in enumerate(CLASSES):
        axis = min(1, len(shape) - 1)
        for j, reduction in enumerate(REDUCTIONS):
            if "empty" in edge and reduction == "mean":
                continue
            target = rng.random(shape)
            target = target / target.sum(axis, keepdims=True)
            arrays = (normal(rng, shape), target, 0.2 + rng.random(shape[axis]))
            inputs = tuple(a.astype(dtype) for a in arrays[: 2 + (i + j) % 2])
            options = {"reduction": reduction, "label_smoothing": (0.0, 0.3)[j % 2]}
            found.append(Sample(inputs, options, edge))
    return found


def kl_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for i, (shape, edge) in enumerate([*SHAPES, ((2, 2), ""), ((3,), "")]):
        log_target = i % 2 == 0
        target = normal(rng, shape) if log_target else rng.uniform(0.05, 1, shape)
        inputs = tuple(np.asarray(a, dtype) for a in (normal(rng, shape), target))
        reduction = ("batchmean", "sum", "none", "mean")[i // 2 % 4]
        reduction = "sum" if inputs[0].size == 0 else reduction
        options = {"reduction": reduction, "log_target": log_target}
        found.append(Sample(inputs, options, edge))
    x, target = normal(rng, (2, 3)).astype(dtype), np.array([[0, 1, 0], [0.5, 0, 0.5]], dtype)
    reason = "there the slope of a probability of 0 is NaN"
    found.append(Sample((x, target), {}, "probabilities of 0", smooth=False, torch=reason))
    return found


def binary_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for i, (shape, edge) in enumerate([*SHAPES, ((2, 2), ""), ((3,), "")]):
        inputs = (normal(rng, shape), rng.uniform(0.05, 0.95, shape))
        reduction = "sum" if 0 in shape else ("mean", "sum", "none")[i % 3]
        inputs = tuple(np.asarray(a, dtype) for a in inputs)
        found.append(Sample(inputs, {"reduction": reduction}, edge))
    x = np.array([-9000.0, 9000.0, -9000.0, 9000.0], dtype)
    target = np.array([1, 0, 0, 1], dtype)
    options = {"reduction": "none"}
    found.append(Sample((x, target), options, "exp would overflow", smooth=False))
    return found


def normalize_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    plans: list[tuple[tuple[int, ...], dict[str, Any], str]] = [
        ((2, 3), {}, ""),
        ((4, 5), {"dim": -1}, ""),
        ((3,), {"dim": 0}, ""),
        ((2, 3, 4), {}, ""),
        ((2, 3, 4), {"dim": -1}, ""),
        ((2, 3, 4), {"dim": 0}, ""),
        ((3, 1), {}, "size 1"),
        ((0, 3), {}, "no rows"),
        ((1, 7), {}, ""),
        ((2, 2, 2, 2), {"dim": 2}, ""),
        ((3, 2), {"eps": 50.0}, "all norms are below eps"),
    ]
    for shape, options, edge in plans:
        for p in (2.0, 1.0):
            x = away(rng, shape).astype(dtype)
            found.append(Sample((x,), {"p": p, "dim": 1, **options}, edge))
    x = np.array([[0, 0, 0], [3, 4, 0]], dtype)
    reason = "there 0 / 0 is NaN in float16" if dtype == np.float16 else ""
    found.append(Sample((x,), {"dim": -1}, "a row of zeros", smooth=False, torch=reason))
    return found


def rms_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    plans = [
        ((4,), (4,), ""),
        ((2, 3), (3,), ""),
        ((2, 3, 4), (4,), ""),
        ((2, 3, 4), (3, 4), "over two dimensions"),
        ((2, 3, 4), (2, 3, 4), "over all dimensions"),
        ((5, 8), (8,), ""),
        ((3, 1), (1,), "size 1"),
        ((0, 3), (3,), "empty"),
        ((1, 7), (7,), ""),
    ]
    for shape, sizes, edge in plans:
        eps = 0.5 if edge == "size 1" else 1e-3
        for count in (1, 2):
            arrays = (normal(rng, shape), 1 + 0.3 * normal(rng, sizes))[:count]
            arrays = tuple(a.astype(dtype) for a in arrays)
            options = {"normalized_shape": sizes, "eps": 0.5 if count == 2 else eps}
            found.append(Sample(arrays, options, edge))
    for scale, edge in ((300.0, "squares beyond float16"), (1e-2, "small numbers")):
        x = (normal(rng, (3, 4)) * scale).astype(dtype)
        options = {"normalized_shape": (4,), "eps": 1e-3}
        found.append(Sample((x,), options, edge, smooth=False))
    return found


def one_hot_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for shape, edge in SHAPES:
        size = {"num_classes": 6} if edge.startswith("empty") or len(found) % 2 else {}
        found.append(Sample((np.asarray(rng.integers(0, 6, shape)),), size, edge))
    for classes in (1, 7, 9):
        found.append(Sample((np.zeros(3, np.int64),), {"num_classes": classes}, "one id only"))
    return found


PADS: list[tuple[Any, ...]] = [
    ((3,), {"pad": (1, 2)}),
    ((3,), {"pad": ()}, "nothing"),
    ((), {"pad": ()}, "0-d"),
    ((0,), {"pad": (1, 1), "value": 2.0}, "empty"),
    ((2, 0, 3), {"pad": (0, 0, 1, 0)}, "empty in the middle"),
    ((2, 3), {"pad": (0, 1)}),
    ((2, 3), {"pad": (1, 0, 2, 1), "value": -1.5}),
    ((2, 3, 4), {"pad": (0, 0, 1, 2)}),
    ((2, 3, 4), {"pad": (1, 1, 1, 1, 1, 1), "value": 7}),
    ((1, 4, 2), {"pad": (3, 0)}),
]


def all_masked_softmax_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    """Beside those of batches: scores of one sample, masks that broadcast, causality."""
    found = masked_softmax_samples(rng, dtype)
    plans: list[tuple[tuple[int, ...], dict[str, Any], str]] = [
        ((4,), {}, "a single row"),
        ((4,), {"valid_lens": 3}, ""),
        ((4,), {"valid_lens": 0}, "a row that sees nothing"),
        ((4,), {"mask": mask_of(rng, (4,))}, ""),
        ((3, 4), {}, ""),
        ((3, 4), {"valid_lens": 2}, ""),
        ((3, 4), {"valid_lens": [1, 0, 4]}, "a length for each query"),
        ((3, 4), {"mask": mask_of(rng, (3, 4))}, ""),
        ((3, 4), {"mask": mask_of(rng, (4,))}, "one mask for all queries"),
        ((3, 4), {"mask": np.array([[True], [False], [True]])}, "a query that sees nothing"),
        ((3, 3), {"is_causal": True}, ""),
        ((3, 3), {"is_causal": True, "valid_lens": 2}, ""),
        ((0, 4), {}, "no queries"),
        ((2, 0), {}, "no keys"),
        ((2, 3, 4), {"mask": mask_of(rng, (1, 4))}, "one padding mask for all samples"),
        ((2, 3, 4), {"mask": mask_of(rng, (2, 3, 1))}, "whole queries"),
        ((2, 3, 3), {"is_causal": True}, ""),
        ((2, 3, 3), {"is_causal": True, "valid_lens": [2, 3]}, ""),
        ((2, 3, 3), {"is_causal": True, "mask": mask_of(rng, (2, 3))}, ""),
        ((2, 2, 3, 3), {"is_causal": True, "mask": mask_of(rng, (2, 3))}, ""),
    ]
    for shape, options, edge in plans:
        x = normal(rng, shape).astype(dtype)
        found.append(Sample((x,), options, edge, special_torch=POISONED if options else ""))
    return found
