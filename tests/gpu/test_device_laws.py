"""The laws of attention once more, on "cuda": on the stand-in for CuPy, or with `-m gpu` on a GPU.

The tests are those of test_attention_laws.py and test_sequence_laws.py; here their arrays and
modules lie on the device.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import test_attention_laws
import test_decoder
import test_sequence_laws

import tinyattn as ta

LEFT_OUT = {
    # It writes to an array that a graph needs, and an array of CuPy cannot be made read-only.
    "test_weights_are_detached_and_attn_is_another_name_for_them",
}
for laws in (test_attention_laws, test_sequence_laws):
    for name, law in vars(laws).items():
        if name.startswith("test_") and name not in LEFT_OUT:
            globals()[name] = law
for name, law in vars(test_decoder).items():
    if name.startswith("test_") and "cache" in name:  # the rest is the attention of above
        globals()[name] = law


@pytest.fixture(autouse=True)
def everything_on_the_device(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fill = test_attention_laws.random_parameters

    def fill_there(module: Any, *args: Any) -> Any:
        return fill(module, *args).to("cuda")

    for laws in (test_attention_laws, test_decoder):
        monkeypatch.setattr(laws, "random_parameters", fill_there)
    monkeypatch.setattr(ta, "tensor", partial(ta.tensor, device="cuda"))
