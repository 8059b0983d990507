"""Exercise 18: read a published file into a model of yours, and make points of texts.

Write both functions, then `pytest docs/exercises/test_18_published.py` says what is wrong. About 25
minutes. The page is docs/course/18_published_model.md, with three hints at its end.
"""

from collections.abc import Mapping

import numpy as np

# In published files, and of no influence on the hidden states.
IGNORED = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}


def point(hidden: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Hidden states (B, N, D) of texts with lengths (B,) -> points (B, D) of norm 1.

    Each is the mean over the first `lengths[b]` positions, divided by its norm. What stands behind
    them has no influence, even if it is NaN. A text of length 0 has the point 0.
    """
    raise NotImplementedError


def fitted(
    own: Mapping[str, np.ndarray], file: Mapping[str, np.ndarray], names: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """The arrays of a published file under the names of our parameters.

    own: our parameters by our names, such as "norm.weight". file: the published tensors by theirs.
    names: from each published part to ours, such as {"embeddings.LayerNorm": "norm"}. A part has a
    weight and mostly a bias.

    Returns one array for each name in `own`. Raises ValueError, which names the tensors, if the
    file lacks one, has one that is not wanted and not in IGNORED, or has one of another shape.
    """
    raise NotImplementedError
