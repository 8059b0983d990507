"""The function of torch.testing that programs use.

In tinyattn: tinyattn.testing has gradcheck; np.testing.assert_allclose compares values
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..tensors.create import as_tensor
from ..tensors.tensor import Tensor

# (rtol, atol) by dtype; 0 for all others.
TOLERANCES = {"float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    msg: Any = None,
    **layout: Any,
) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol |expected|, shapes, dtypes and
    devices agree; in lists, tuples and dicts at each place. The tolerances are PyTorch's.

        >>> from tinyattn.torch_names.testing import assert_close
        >>> assert_close(ta.tensor([1.0]), ta.tensor([1.000001]))
    """
    options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "check_device": check_device}
    options |= {"check_dtype": check_dtype, "msg": msg}
    if isinstance(expected, Mapping):
        assert actual.keys() == expected.keys(), msg or f"{list(actual)} are not {list(expected)}"
        actual, expected = list(actual.values()), [expected[name] for name in actual]
    if isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), msg or f"{len(actual)} are not {len(expected)}"
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other, **options)
        return
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol and atol go together, got {rtol} and {atol}")
    x, y = (
        value if isinstance(value, Tensor) else as_tensor(value) for value in (actual, expected)
    )
    checked = [("shape", True), ("dtype", check_dtype), ("device", check_device)]
    for name, is_checked in checked:
        mine, right = getattr(x, name), getattr(y, name)
        assert mine == right or not is_checked, msg or f"{name} {mine} is not {right}"
    named = (str(x.dtype), str(y.dtype))
    usual = [max(TOLERANCES.get(name, (0.0, 0.0))[i] for name in named) for i in (0, 1)]
    relative, absolute = usual if rtol is None else (rtol, atol)
    np.testing.assert_allclose(
        np.asarray(x), np.asarray(y), relative, absolute, equal_nan, msg or "", verbose=True
    )
