"""Every CUDA kernel goes through NVIDIA's runtime compiler, which needs no GPU and no driver.

For the oldest and the newest devices the wheels are for, and for every element type: the options
are those of a launch. What compiles for the host alone (test_device.py) may still be no CUDA.
"""

from __future__ import annotations

import importlib.util
import re

import pytest

from tinyattn.kernels.gpu.launch import FOLDER, source

KERNELS = sorted(path.stem for path in FOLDER.glob("*.cu") if path.stem != "common")
BY_CUPY = ("-ftz=true", "--device-as-default-execution-space")  # what it adds to our options
WIDTHS = [(64, 64, 4, 64), (100, 7, 2, 100), (300, 20, 2, 64), (512, 512, 1, 64)]  # and a slice


@pytest.fixture(scope="module")
def nvrtc():
    for package in ("cupy", "nvidia.cu13"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            pytest.skip(f'{package} is not installed: pip install -e ".[nvrtc]"')
    from cupy.cuda import nvrtc

    try:
        nvrtc.getVersion()
    except Exception as error:
        pytest.skip(f"NVRTC cannot be loaded: {error}")
    return nvrtc


def compile_source(nvrtc, code, options):
    """The PTX; the compiler's own words fail the test."""
    program = nvrtc.createProgram(code, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        assert not nvrtc.getProgramLog(program).strip("\0\n")  # nor a warning
        return nvrtc.getPTX(program).decode()
    except nvrtc.NVRTCError:
        raise AssertionError(nvrtc.getProgramLog(program)) from None
    finally:
        nvrtc.destroyProgram(program)


@pytest.mark.parametrize("scalar", [16, 32, 64])
@pytest.mark.parametrize("device", ["75", "90"])
@pytest.mark.parametrize("name", KERNELS)
def test_compiles(nvrtc, name, device, scalar):
    """Every kernel of the source is in the result."""
    code = source(name)
    options = ("--std=c++17", f"-DSCALAR={scalar}", *BY_CUPY, f"-arch=compute_{device}")
    shapes = [()]
    if name == "tiled_attention":
        names = ("HEAD", "VALUE", "ROWS", "SLICE")
        shapes = [
            tuple(f"-D{name}={size}" for name, size in zip(names, sizes, strict=True))
            for sizes in WIDTHS
        ]
    for defines in shapes:
        ptx = compile_source(nvrtc, code, (*options, *defines))
        kernels = set(re.findall(r"__global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(", code))
        assert kernels == set(re.findall(r"\.entry (\w+)\(", ptx))
        # Halves are converted by these instructions, which the host does otherwise.
        halves = ("cvt.f32.f16" in ptx, "cvt.rn.f16.f32" in ptx)
        assert halves == (scalar == 16,) * 2 or name == "checks"


@pytest.mark.parametrize("scalar", [16, 32, 64])
@pytest.mark.parametrize("name", sorted({*KERNELS} - {"tiled_attention"}))  # whose blocks have 128
def test_a_block_of_1024_threads_finds_registers(nvrtc, name, scalar):
    """64 for each thread: with more, a device refuses the launch."""
    options = ("--std=c++17", f"-DSCALAR={scalar}", *BY_CUPY, "-arch=sm_90", "--ptxas-options=-v")
    program = nvrtc.createProgram(source(name), "kernel.cu", (), ())
    nvrtc.compileProgram(program, options)
    used = re.findall(r"Used (\d+) registers", nvrtc.getProgramLog(program))
    nvrtc.destroyProgram(program)
    assert len(used) == source(name).count("__global__")
    assert max(map(int, used)) <= 64


def test_a_mistake_is_found(nvrtc):
    code = source("sums").replace("sum = sum + value", "sum = sum + missing")
    with pytest.raises(AssertionError, match=r'identifier "missing" is undefined'):
        compile_source(nvrtc, code, ("--std=c++17", "-DSCALAR=32"))
