"""A plugin of pytest: einops' own tests, with Tensors in place of other libraries' arrays.

    EINOPS_TEST_BACKENDS=numpy,tinyattn python -m pytest -p einops_suite --pyargs einops.tests

Which libraries einops tests is a list in its function `collect_test_backends`, which this one
replaces.
"""

from __future__ import annotations

from typing import Any

import einops.tests

import tinyattn as ta
from tinyattn.torch_names import einops_backend


def collect_test_backends(symbolic: bool = False, layers: bool = False) -> list[Any]:
    backend: Any = einops_backend.Backend()
    backend.layers = lambda: einops_backend
    backend.from_numpy = lambda x: ta.Tensor(x, requires_grad=x.dtype.kind == "f")
    if not layers:
        backend.framework_name = "jax"  # the tests of einsum take libraries with known names only
    return [] if symbolic else [backend]


def pytest_configure() -> None:
    # On the class, because einops' functions take an object of their own from it.
    Backend: Any = einops_backend.Backend
    Backend.arange = staticmethod(ta.arange)
    einops.tests.collect_test_backends = collect_test_backends
