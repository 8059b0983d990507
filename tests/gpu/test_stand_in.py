"""The stand-in for CuPy is as strict as CuPy, and offers nothing CuPy lacks."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
import stand_in
from stand_in.functions import FUNCTIONS, TYPES, UFUNC_KEYWORDS, UFUNCS
from stand_in.launch import COMPILER, KernelError, RawModule

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels with")
fake = stand_in.MODULE
OWN = {"array", "view_of"}  # the stand-in's own attributes


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy", reason="CuPy is not installed: nothing to compare with")


def parameters_of(function):
    """The names a function of CuPy's takes, from its signature or, for compiled ones, its text."""
    try:
        return list(inspect.signature(function).parameters)
    except ValueError:
        (inside,) = re.findall(r"^[\w.]*\((.*?)\)", function.__doc__.split("\n")[0])
        return [part.split("=")[0].split()[-1].lstrip("*") for part in inside.split(", ")]


# Against the real package


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_cupy(name, cupy):
    """By position as well; a keyword not listed here is refused."""
    theirs = parameters_of(getattr(cupy, name))
    if name == "matmul":  # takes what a ufunc takes
        assert set(FUNCTIONS[name]) - {"x1", "x2"} <= set(theirs)
    else:
        assert list(FUNCTIONS[name]) == theirs[: len(FUNCTIONS[name])]


@pytest.mark.parametrize("name", UFUNCS)
def test_elementwise_functions_are_those_of_cupy(name, cupy):
    assert isinstance(getattr(cupy, name), cupy.ufunc)
    assert set(UFUNC_KEYWORDS) <= {"out", "dtype", "casting"}
    assert hasattr(getattr(cupy, name), "at")


def test_the_rest_of_the_module_is_in_cupy(cupy):
    for name in {*vars(fake)} - {"__name__", "__doc__", "__package__", "__loader__", "__spec__"}:
        assert hasattr(cupy, name), name
    for name in TYPES:
        assert getattr(cupy, name) is getattr(np, name)


def test_what_launches_kernels_is_that_of_cupy(cupy):
    """Every name and method; and what a launch takes."""
    from stand_in import launch

    for name in vars(fake.cuda):
        assert hasattr(cupy.cuda, name), name
    assert {"get_function"} <= set(dir(cupy.RawModule))
    assert {"max_dynamic_shared_size_bytes"} <= set(dir(cupy.RawKernel))
    assert "shared_mem" in cupy.RawKernel.__call__.__doc__
    assert "shared_mem" in inspect.signature(launch.RawKernel.__call__).parameters


def test_arrays_are_those_of_cupy(cupy):
    own = {name for name in vars(stand_in.ndarray) if not name.startswith("__")} - OWN
    assert own - set(dir(cupy.ndarray)) == set()
    special = {name for name in vars(stand_in.ndarray) if name.startswith("__")}
    ordinary = {"__module__", "__init__", "__dict__", "__weakref__", "__doc__", "__annotations__"}
    # Python 3.13 adds names of its own to every class.
    ordinary |= {"__static_attributes__", "__firstlineno__"}
    ordinary |= {"__del__"}  # which spoils freed memory
    assert special - ordinary - set(dir(cupy.ndarray)) == set()
    for name in own:
        method = vars(stand_in.ndarray)[name]
        theirs = getattr(cupy.ndarray, name)
        if inspect.isfunction(method) and theirs.__doc__ and "args" not in str(method.__code__):
            ours = [p for p in inspect.signature(method).parameters if p != "self"]
            if ours and "args" not in ours:
                assert set(ours) <= set(parameters_of(theirs)), name


def test_flags_are_those_of_cupy(cupy):
    from cupy._core.flags import Flags

    assert set(vars(fake.zeros(1).flags)) <= set(dir(Flags))
    assert not hasattr(Flags, "aligned")
    assert not hasattr(Flags, "writeable")


# What is refused

REFUSED = {
    "an implicit copy": lambda x, y: np.asarray(x),
    "a function of NumPy": lambda x, y: np.exp(x),
    "another": lambda x, y: np.concatenate([x, x]),
    "NumPy on the right": lambda x, y: x + y,
    "NumPy on the left": lambda x, y: y + x,
    "NumPy in place": lambda x, y: x.__iadd__(y),
    "NumPy in a comparison": lambda x, y: x < y,
    "NumPy in a function": lambda x, y: fake.where(x > 0, x, y),
    "NumPy among several": lambda x, y: fake.concatenate((x, y)),
    "NumPy as an index": lambda x, y: x[y.astype(int)],
    "assigning NumPy": lambda x, y: x.__setitem__(slice(None), y),
    "a sum with where": lambda x, y: x.sum(where=x > 0),
    "a maximum with initial": lambda x, y: x.max(initial=0),
    "a function on nothing of the device": lambda x, y: fake.exp(1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    with pytest.raises(ValueError if name == "assigning NumPy" else TypeError):
        REFUSED[name](fake.asarray([1.0, 2.0]), np.array([1.0, 2.0]))


@pytest.mark.parametrize("name", ["errstate", "seterr", "einsum", "vecdot", "unstack", "insert",
                                  "block", "geomspace", "frompyfunc", "random"])  # fmt: skip
def test_what_is_not_listed_is_not_there(name):
    assert not hasattr(fake, name)


def test_results_stay_on_the_device():
    """Reductions and elements are 0-d arrays; reading them is what makes the host wait."""
    x = fake.asarray([1.0, 2.0])
    count = len(stand_in.synchronisations)
    for result in (x.sum(), x[0], x.max(axis=0), x.argmax(), fake.where(x > 1, x, 0)[1]):
        assert type(result) is fake.ndarray
        assert result.shape == ()
    assert len(stand_in.synchronisations) == count
    for wait in (float, int, bool, lambda x: x.item(), fake.asnumpy, lambda x: x.tolist()):
        wait(x.sum())
        count += 1
        assert len(stand_in.synchronisations) == count
    x[x > 1]  # its size is a result
    assert len(stand_in.synchronisations) == count + 1


def test_indices_past_the_end_begin_anew():
    """No error, as on the device: whoever wants one has to look."""
    x = fake.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert x[fake.asarray([2, 3])].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert x[:, fake.asarray([5])].tolist() == [[2.0], [4.0]]
    fake.add.at(x, fake.asarray([2, 2]), fake.asarray([[1.0, 1.0], [1.0, 1.0]]))
    assert x.tolist() == [[3.0, 4.0], [3.0, 4.0]]


# A block of threads


def launch(body, threads=64, shared=0, size=64, kind="float"):
    """Run a kernel with an array `x` to work on, and return it."""
    code = f'extern "C" __global__ void test({kind}* x, long long n) {{ {body} }}'
    kernel = RawModule(code=code).get_function("test")
    x = fake.asarray(np.arange(size, dtype=np.float32))
    kernel((1,), (threads,), (x, size), shared_mem=shared)
    return x.get()


@needs_compiler
def test_threads_exchange_values():
    """Each lane gets what its partner had, in whatever order the threads ran."""
    for _ in range(5):
        found = launch("x[threadIdx.x] = __shfl_xor_sync(~0u, x[threadIdx.x], 5);")
        np.testing.assert_array_equal(found, np.arange(64) ^ 5)
        shared = """
            __shared__ float all[64];
            all[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = all[63 - threadIdx.x];"""
        np.testing.assert_array_equal(launch(shared), np.arange(64)[::-1])
        found = launch("x[threadIdx.x] = __ballot_sync(~0u, threadIdx.x % 32 < 3);")
        np.testing.assert_array_equal(found, np.full(64, 7))
        found = launch("x[threadIdx.x] = __syncthreads_or(x[threadIdx.x] == 40);")
        np.testing.assert_array_equal(found, np.ones(64))


MISTAKES = {
    "a barrier some never reach": ("if (threadIdx.x < 10) __syncthreads();", "in vain"),
    "a barrier after some have left": (
        "if (threadIdx.x > 40) return; __syncthreads();", "in vain"
    ),
    "two barriers at once": (
        "if (threadIdx.x < 32) __syncthreads();\nelse __syncthreads();", "in vain"
    ),
    "an exchange half a warp takes part in": (
        "if (threadIdx.x % 32 < 16) x[0] = __shfl_xor_sync(~0u, 1.0f, 1);", "in vain"
    ),
    "a write past the end": ("x[n] = 0;", "wrote beside"),
    "a write before the beginning": ("x[-1] = 0;", "wrote beside"),
    "more shared memory than asked for": (
        "((float*)block::dynamic)[threadIdx.x] = 1;", "past 128 bytes"
    ),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name):
    """What is undefined on the device fails here."""
    body, message = MISTAKES[name]
    with pytest.raises(KernelError, match=message):
        launch(body, shared=128)


@needs_compiler
def test_a_missing_barrier_shows():
    """Threads run in another order every time, so that a race changes the result."""
    race = """
        __shared__ float all[64];
        all[threadIdx.x] = -1;
        all[threadIdx.x] = x[threadIdx.x];
        x[threadIdx.x] = all[63 - threadIdx.x];"""
    assert len({launch(race).tobytes() for _ in range(5)}) > 1


@needs_compiler
def test_a_read_past_the_end_shows():
    assert np.isnan(launch("x[threadIdx.x] = x[threadIdx.x + 32];")[32:]).all()


@needs_compiler
def test_arguments_are_checked():
    with pytest.raises(KernelError, match="parameter 0 is float64, the array float32"):
        launch("", kind="double")
    kernel = RawModule(code='extern "C" __global__ void test(float* x, double y) {}').get_function(
        "test"
    )
    x = fake.zeros((2, 2), np.float32)
    with pytest.raises(KernelError, match="takes 2 arguments, got 1"):
        kernel((1,), (32,), (x,))
    with pytest.raises(KernelError, match="parameter 1 is float, got 1"):
        kernel((1,), (32,), (x, 1))
    with pytest.raises(KernelError, match="C order, and its strides do not follow"):
        kernel((1,), (32,), (fake.zeros((2, 3), np.float32).T, 1.0))
    with pytest.raises(KernelError, match="no block"):
        kernel((0,), (32,), (x, 1.0))
    with pytest.raises(KernelError, match="nobody asked"):
        kernel((1,), (32,), (x, 1.0), shared_mem=50000)
