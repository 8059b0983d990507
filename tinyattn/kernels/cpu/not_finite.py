"""What the kernels of attention do about NaN and inf.

Where queries of a sample see different keys, a block has keys that some of its queries do not
see, with weights of zero. But zero times NaN is NaN. So NaN and inf are replaced by zeros, and
the queries and keys that they concern are taken from the formula.
"""

from typing import Any

import numpy as np

from ...base.backend import is_finite
from ..packing import as_packed, padded
from ..visibility import Visibility


def needs_formula(visibility: Visibility, bias: Any, *arrays: np.ndarray) -> bool:
    of_queries = (visibility.limits, visibility.starts)
    see_the_same = visibility.mask is None and all(x is None or x.shape[1] == 1 for x in of_queries)
    arrays = arrays if bias is None else (*arrays, bias)
    return not see_the_same and not all(map(is_finite, arrays))


def cleaned(x: Any) -> Any:
    return None if x is None else np.where(np.isfinite(x), x, x.dtype.type(0))


def affected(q: Any, k: Any, v: Any, grad: Any, visibility: Visibility, bias: Any) -> Any:
    """Which queries (R, H, 1) are NaN or inf or see such, and which keys (S, G, 1) these see."""
    queries, keys = visibility.queries, visibility.keys
    groups, heads = k.shape[1], q.shape[1]
    bad_q, bad_grad = (
        ~np.isfinite(padded(x, queries).swapaxes(1, 2)).all(axis=-1) for x in (q, grad)
    )
    bad_k, bad_v = (~np.isfinite(padded(x, keys).swapaxes(1, 2)).all(axis=-1) for x in (k, v))
    bad_pair = (bad_k | bad_v).repeat(heads // groups, axis=1)[:, :, None]  # (B, H, 1, K)
    bad_pair = bad_pair if bias is None else bad_pair | ~np.isfinite(bias)
    shape = visibility.scores_shape(heads)
    pairs: Any = visibility.visible_pairs(q)  # not None, see needs_formula
    visible = np.broadcast_to(pairs, shape)
    of_queries = (visible & bad_pair).any(axis=-1) | bad_q | bad_grad  # (B, H, Q)
    of_keys = (visible & of_queries[..., None]).any(axis=-2)  # (B, H, K)
    of_keys = of_keys.reshape(shape[0], groups, heads // groups, shape[-1]).any(axis=2)
    rows = of_queries[..., None].swapaxes(1, 2), of_keys[..., None].swapaxes(1, 2)
    return as_packed(rows[0], queries), as_packed(rows[1], keys)
