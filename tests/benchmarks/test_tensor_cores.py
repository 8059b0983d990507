"""What docs/gpu.md says about tensor cores is what `benchmarks.gpu.tensor_cores` computes."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_small_gradients_lose_digits_in_halves(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.gpu import tensor_cores

    _, dq, dk, _ = zip(*tensor_cores.roundings(1e-4).values(), strict=True)
    in_float32, in_half, in_two_halves, in_tf32 = zip(dq, dk, strict=True)
    assert max(*in_float32, *in_tf32) < 1.5
    assert min(*in_half, *in_two_halves) > 15
    assert max(tensor_cores.roundings(1.0)["float16"]) < 1
