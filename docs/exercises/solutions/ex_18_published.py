"""A solution of exercise 18."""

from collections.abc import Mapping

import numpy as np

# In published files, and of no influence on the hidden states.
IGNORED = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}


def point(hidden: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    keep = np.arange(hidden.shape[1]) < lengths[:, None]  # (B, N)
    total = np.where(keep[:, :, None], hidden, 0).sum(axis=1)  # (B, D)
    mean = total / np.maximum(lengths, 1)[:, None]
    norm = np.sqrt((mean**2).sum(axis=-1, keepdims=True))
    return mean / np.maximum(norm, 1e-12)


def fitted(
    own: Mapping[str, np.ndarray], file: Mapping[str, np.ndarray], names: Mapping[str, str]
) -> dict[str, np.ndarray]:
    wanted = {}  # from the published name to ours
    for theirs, ours in names.items():
        for kind in ("weight", "bias"):
            if f"{ours}.{kind}" in own:
                wanted[f"{theirs}.{kind}"] = f"{ours}.{kind}"
    missing = [name for name in wanted if name not in file]
    unknown = [name for name in file if name not in wanted and name not in IGNORED]
    if missing or unknown:
        raise ValueError(f"missing {missing}, not wanted {unknown}")
    for name, ours in wanted.items():
        if file[name].shape != own[ours].shape:
            raise ValueError(f"{name} has shape {file[name].shape}, not {own[ours].shape}")
    return {ours: file[name] for name, ours in wanted.items()}
