"""`python -m benchmarks.gpu.instructions` counts instructions and launches without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.gpu import architectures, machine_code

    return architectures, machine_code


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.instructions", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_short_form(gpu, tmp_path):
    """Every kernel of a file; launches of ops, of optimizers and of a step."""
    _, machine_code = gpu
    if machine_code.nvrtc() is None or machine_code.nvdisasm() is None:
        pytest.skip(machine_code.MISSING)
    files = "tiled_attention", "layer_norm", "softmax"
    done = run("--short", "--json", tmp_path / "counts.json", "--files", *files)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "counts.json").read_text())
    rows = {row["kernel"]: row for row in found["kernels"]}
    assert {"attention 64", "attention_backward_q 64", "attention_backward_kv 128"} <= {*rows}
    assert all(16 <= row["registers"] <= 255 and 0 < row["occupancy"] <= 1 for row in rows.values())
    for name, row in rows.items():
        assert row["spills"] == 0
        if name.startswith("attention"):
            assert 1 < row["per FFMA"] < 1.605
        else:  # sums of two parts, because float64 is slow on many cards
            assert row["in loops"] == 0
    assert {name: (forward, backward) for name, forward, backward in found["ops"]}["gelu"] == (1, 1)
    assert sum(found["steps"]["tiny"].values()) > 50
    assert "training step, tiny" in done.stdout


def test_without_the_tools_it_says_what_to_install(gpu, monkeypatch):
    architectures, machine_code = gpu
    monkeypatch.setattr(machine_code, "nvdisasm", lambda: None)
    with pytest.raises(RuntimeError, match=r'pip install -e "\.\[nvrtc\]"'):
        machine_code.kernels_of("sums", architectures.ARCHITECTURES[0])


CODE = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E R2, desc[UR4][R4.64] ;
        /*0020*/                   F2F.F64.F32 R6, R2 ;
        /*0030*/                   DADD R8, R8, R6 ;
.L_x_2:
{inner}
        /*0060*/              @P0 BRA `(.L_x_2) ;
        /*0070*/              @P1 BRA `(.L_x_1) ;
        /*0080*/                   DMUL R8, R8, R10 ;
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   BRA `(.L_x_3);
"""


@pytest.mark.parametrize("predicate", ["", "@!P2"])
def test_what_is_counted(gpu, predicate):
    """16 products and 4 other instructions and the branch: 21 / 16. exp is no product."""
    _, machine_code = gpu
    lines = [f"{predicate} FFMA.FTZ R20, R21.reuse, -R22, R20"] * 16
    lines += ["LDS R22, [R3+0x10]"] * 3 + ["FFMA.FTZ R8, R16, 1.4426950216293334961, -R21"]
    inner = "\n".join(f"        /*{i:04x}*/  {line} ;" for i, line in enumerate(lines))
    code = machine_code.instructions(CODE.format(inner=inner))
    kernel = machine_code.Kernel("test", 32, 0, 0, code)
    finite, conditional = kernel.per_product()
    found, other = (conditional, finite) if predicate else (finite, conditional)
    assert found == 21 / 16
    assert other != other
    assert kernel.float64() == (3, 2)


def test_what_ptxas_reports(gpu):
    _, machine_code = gpu
    report = """ptxas info    : Function properties for a
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 72 registers, used 1 barriers
ptxas info    : Function properties for b
ptxas         .     16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 384 bytes smem
"""
    assert machine_code.resources(report, "a") == (72, 0, 0)
    assert machine_code.resources(report, "b") == (80, 32, 384)


def test_occupancy(gpu):
    """By threads, blocks, registers and shared memory, as in NVIDIA's occupancy calculator."""
    architectures, _ = gpu
    turing, ampere, hopper = architectures.ARCHITECTURES
    occupancy = architectures.occupancy
    assert occupancy(turing, 1024, 32, 0) == 1
    assert occupancy(ampere, 32, 16, 0) == 0.5  # 32 blocks of one warp
    assert occupancy(ampere, 128, 128, 0) == 0.25  # 16 warps have all registers
    assert occupancy(ampere, 128, 32, 41 * 1024) == 3 * 4 / 64
    assert occupancy(hopper, 128, 32, 41 * 1024) == 5 * 4 / 64
    assert occupancy(turing, 128, 32, 33 * 1024) == 4 / 32
