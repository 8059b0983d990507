"""How many launches an op takes, as `python -m benchmarks.gpu.instructions` counts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from common import run_python

ROOT = Path(__file__).parents[2]
COUNT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from benchmarks.gpu import launches
with launches.counted() as (tasks, _):
    ops = {name: counts for name, *counts in launches.of_ops(tasks)}
    optimizers = dict(launches.of_optimizers(tasks))
    step = launches.of_step(tasks, "medium")
print(json.dumps([ops, optimizers, step]))
"""


@pytest.fixture(scope="module")
def counts():
    """In a process of its own, because the kernels are noted there and not run."""
    return json.loads(run_python(COUNT, args=[ROOT]))


ONE = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "softmax", "log_softmax", "dropout")


@pytest.mark.parametrize("name", ONE)
def test_one_launch_forward_and_one_backward(name, counts):
    assert counts[0][name] == [1, 1]


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_a_norm_has_a_second_launch_for_its_weights(name, counts):
    assert counts[0][name] == [1, 2]


def test_attention_is_one_launch(counts):
    """Heads in front of the rows, (B, H, N, d), are read as they lie."""
    assert counts[0]["attention"][0] == 1


def test_causal_attention_has_no_more_launches(counts):
    """The last query sees all keys, so none of them has to be cleared of NaN."""
    assert counts[0]["attention, causal"] == counts[0]["attention"]


def test_a_step_of_adam_is_one_launch(counts):
    assert counts[1]["Adam"] == 1
