"""The function of torch.testing that programs use.

In tinyattn: tinyattn.testing has gradcheck; np.testing.assert_allclose compares values
"""

import numpy as np

from ..tensors.create import as_tensor

# (rtol, atol) by dtype; 0 for all others.
TOLERANCES = {"float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(
    actual, expected, *, rtol=None, atol=None, equal_nan=False, check_dtype=True, msg=None, **layout
):
    """AssertionError unless |actual - expected| <= atol + rtol |expected|, and shapes and dtypes
    agree; in lists, tuples and dicts at each place. The tolerances are PyTorch's by default.

        >>> from tinyattn.torch_names.testing import assert_close
        >>> assert_close(ta.tensor([1.0]), ta.tensor([1.000001]))
    """
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), msg or f"{list(actual)} are not {list(expected)}"
        actual, expected = [actual[name] for name in expected], list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), msg or f"{len(actual)} are not {len(expected)}"
        options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "check_dtype": check_dtype}
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other, msg=msg, **options)
        return
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol and atol go together, got {rtol} and {atol}")
    x, y = (as_tensor(np.float64(z) if type(z) is float else z) for z in (actual, expected))
    assert x.shape == y.shape, msg or f"the shape {x.shape} is not {y.shape}"
    assert x.dtype == y.dtype or not check_dtype, msg or f"the dtype {x.dtype} is not {y.dtype}"
    usual = [TOLERANCES.get(str(z.dtype), (0.0, 0.0)) for z in (x, y)]
    relative, absolute = max(usual) if rtol is None else (rtol, atol)
    np.testing.assert_allclose(
        x.detach().numpy(), y.detach().numpy(), relative, absolute, equal_nan, msg or ""
    )
