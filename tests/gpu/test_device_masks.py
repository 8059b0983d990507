"""What attention and means over sequences check on "cuda", and compute there from lengths.

On the stand-in for CuPy, or with `-m gpu` on a GPU.
"""

from __future__ import annotations

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import DeviceError, MaskError, ShapeError
from tinyattn.kernels.visibility import of_padded
from tinyattn.ops.attention import attention


@pytest.mark.parametrize("name", ["keys", "values"])
def test_attention_takes_inputs_of_one_device(name, cuda):
    inputs = {each: ta.ones(1, 2, 4, device="cuda") for each in ("queries", "keys", "values")}
    inputs[name] = inputs[name].to("cpu")
    with pytest.raises(DeviceError, match=f"^attention: queries is on cuda, {name} on cpu"):
        nn.DotProductAttention()(**inputs)
    with pytest.raises(DeviceError, match=f"^attention: query is on cuda, {name[:-1]} on cpu"):
        F.scaled_dot_product_attention(*inputs.values())


@pytest.mark.parametrize("place", ["a list", "on the host", "on the device"])
def test_a_mean_over_the_valid_positions_stays_on_its_device(place, cuda):
    x = ta.tensor([[[1.0], [3.0], [8.0]], [[4.0], [2.0], [6.0]]], device="cuda")
    lens, mask = [2, 3], [[True, True, False], [False, True, True]]
    if place != "a list":
        device = "cpu" if place == "on the host" else "cuda"
        lens, mask = ta.tensor(lens, device=device), ta.tensor(mask, device=device)
    for options, right in (
        ({"valid_lens": lens}, [[2.0], [4.0]]),
        ({"mask": mask}, [[2.0], [4.0]]),
        ({"valid_lens": lens, "mask": mask}, [[2.0], [4.0]]),
    ):
        found = F.masked_mean(x, **options)
        assert found.device == "cuda"
        assert found.tolist() == right
    masked = F.sequence_mask(x.squeeze(2), [2, 0], value=-1)
    assert masked.device == "cuda"
    assert masked.tolist() == [[1.0, 3.0, -1.0], [-1.0] * 3]


@pytest.mark.parametrize("longest", [0, 1, 3])
def test_a_length_on_the_device_is_at_most_the_number_of_keys(longest, cuda):
    scores = ta.zeros(1, 1, longest, device="cuda")
    weights = F.masked_softmax(scores, valid_lens=ta.tensor([longest], device="cuda"))
    np.testing.assert_allclose(weights.numpy().sum(), float(longest > 0), rtol=1e-6)
    for wrong in (longest + 1, -1):
        found = F.masked_softmax(scores, valid_lens=ta.tensor([wrong], device="cuda"))
        with pytest.raises(MaskError, match=f"the number of keys, {longest}, got {wrong}"):
            found.sum().item()


def test_samples_with_heads_in_front_agree_with_the_visibility(cuda):
    """Their rows are not joined there, and the product of both sizes alone would fit."""
    q, k = ta.ones(3, 1, 2, 4, device="cuda"), ta.ones(2, 1, 4, 4, device="cuda")
    options = {"heads": (1, 1), "visibility": of_padded((2, 1, 3, 4)), "scale": 0.5}
    with pytest.raises(ShapeError, match=r"add up to the 6 rows of queries, got \[3, 3\]"):
        attention(q, k, k, **options)
