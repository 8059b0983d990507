"""How the loops are compiled, and the doors that bring arrays into the layout they expect."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.errors import TypingError
from numba.core.lowering import Lower
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering

COMPILED = not numba.config.DISABLE_JIT  # with which kernels run as Python
CONTRACT = frozenset({"contract"})  # a * b + c in one instruction
# Reordering sums lets them use vector instructions; nothing else is relaxed.
FAST_SUMS = {"reassoc", "contract", "nsz"}
# Of Numba's passes those for what no kernel contains: closures, expressions of whole arrays,
# functions that Numba itself would inline. They take a twentieth of the time.
UNUSED = {"inline_closure_likes", "nopython_rewrites", "inline_overloads"}


def newest_source() -> tuple[float, int]:
    """When the kernels were last changed, and their size: Numba's mark of a source file."""
    found = [path.stat() for path in Path(__file__).parent.glob("*.py")]
    return max(s.st_mtime for s in found), sum(s.st_size for s in found)


SOURCE_STAMP = newest_source()


class Kernel(CPUDispatcher):
    """A compiled function. The garbage collector rests while it is compiled.

    Compiling makes millions of objects that live until its end. Looking through them again and
    again for garbage, of which there is none, would take a tenth of the time.
    """

    rests = False  # whether it was switched off here

    def compile(self, sig: Any) -> Any:
        if not gc.isenabled():  # by the user, or by another thread, which will switch it on again
            return super().compile(sig)
        gc.disable()
        Kernel.rests = True
        try:
            return super().compile(sig)
        finally:
            Kernel.rests = False
            gc.enable()


class KernelFlags(Flags):
    """Numba's settings of a function. It compares them ten thousand times while it compiles, and
    lists all of them each time, which takes a twentieth of the time."""

    def __hash__(self) -> int:
        return FLAGS_HASH

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flags):
            return NotImplemented
        if self._values == other._values:
            return True
        named = self._values.keys() | other._values.keys()  # all others have what is the default
        return all(getattr(self, name) == getattr(other, name) for name in named)


FLAGS_HASH = hash(Flags())  # which is one for all settings


def kernel_flags(flags: Any) -> Any:
    return KernelFlags(copy_from=flags)


def after_fork() -> None:
    """In a child, the thread that was compiling is not there to switch it on again."""
    if Kernel.rests:
        Kernel.rests = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork)


class LowerApart(Lower):
    """How Numba writes a function, here one that LLVM is not to put into its callers."""

    def post_lower(self) -> None:
        super().post_lower()
        self.builder.function.attributes.add("noinline")


class Code(JITCodeLibrary):
    """The code of a kernel, on which LLVM spends the time that pays, a quarter less than for Numba.

    Numba has it go over all functions together twice, once to find counts of references that cancel
    each other out, of which a kernel has few. The second time it asks for the highest level, and
    for loops to be unrolled; kernels are as fast without either. These are methods of Numba's
    insides, the same from 0.62 to 0.68; in 0.61, which has no `_pass_builder`, they stay as they
    are. NUMBA_OPT and the like change nothing here.
    """

    def _optimize_final_module(self) -> None:
        if not hasattr(self._codegen, "_pass_builder"):
            return super()._optimize_final_module()
        tuning = llvm.create_pipeline_tuning_options(speed_level=2)
        tuning.slp_vectorization, tuning.loop_unrolling = False, False
        builder = llvm.create_pass_builder(self._codegen._tm, tuning)
        manager = builder.getModulePassManager()
        manager.add_refprune_pass()
        manager.run(self._final_module, builder)


class Part(Code):
    """The code of an Inner: callers take it into their own, where it is optimized with the rest.

    Numba would optimize it, turn it into machine code and keep that on the disk also by itself,
    where nobody calls it; for forty small functions this takes half a second. Before that it would
    have LLVM go over each of its functions at the highest level; for what comes back later, the
    lowest will do. (A kernel's own loops need the highest: that of softmax takes 1.7 times as long
    without.)
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        if not hasattr(self._codegen, "_pass_builder"):
            return super()._optimize_functions(ll_module)
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                manager, builder = self._codegen._function_pass_manager(opt=1)
                manager.run(function, builder)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """Numba's own, into code of the kinds above."""

    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        kind = Part if state.flags.no_compile else Code
        state.library = kind(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class LoweringApart(Lowering):
    _name = "lowering_apart"

    @property
    def lowering_class(self) -> type[Lower]:
        return LowerApart


class Pipeline(CompilerBase):
    """Numba's own, without what is UNUSED."""

    lowering = Lowering

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (self.lowering if step is NativeLowering else step, text)
            for step, text in pipeline.passes
            if step.name() not in UNUSED
        ]
        pipeline.finalize()
        return [pipeline]


class PipelineApart(Pipeline):
    lowering = LoweringApart


def jit(
    function: Any = None, *, fastmath: Any = CONTRACT, cache: bool = True, apart: bool = False,
    **options: Any,
) -> Any:  # fmt: skip
    """`numba.njit` with our settings, also where no folder for Numba's cache can be written."""
    if function is None:
        return lambda function: jit(
            function, fastmath=fastmath, cache=cache, apart=apart, **options
        )
    options |= {
        "error_model": "numpy",
        "nogil": True,
        "fastmath": set(fastmath),
        "pipeline_class": PipelineApart if apart else Pipeline,
        "no_cfunc_wrapper": True,  # saves compiling it; nothing calls a kernel from C
    }
    try:
        compiled = numba.njit(cache=cache, **options)(function)
    except RuntimeError:
        compiled = numba.njit(**options)(function)
    if not isinstance(compiled, CPUDispatcher):  # the function itself, with NUMBA_DISABLE_JIT
        return compiled
    compiled.__class__ = Kernel
    compiled._compiler._customize_flags = kernel_flags
    # Numba looks for changes in the kernel's own file only. A loop calls functions of other files,
    # which are compiled into it, so a change in any of them must count.
    cache_file: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = SOURCE_STAMP
    return compiled


class Inner(Kernel):
    """A compiled function that only compiled ones call; from Python it runs as Python."""

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args)

    def add_overload(self, result: Any) -> None:
        """What was compiled for some types, for compiled callers to find; not for Python.

        Numba finds it by its entry point, which is none of Python's, so that any object will do.
        An array that it returned would be given up once too often, see `inner_flags`.
        """
        if holds_array(result.signature.return_type):
            raise TypingError(f"{self.py_func.__name__} is part of a loop, and returns an array")
        found = result._replace(entry_point=object())
        self.targetctx.insert_user_function(found.entry_point, found.fndesc, [found.library])
        self.overloads[tuple(result.signature.args)] = found


def holds_array(kind: Any) -> bool:
    return isinstance(kind, types.Array) or any(map(holds_array, getattr(kind, "types", ())))


def inner_flags(flags: Any) -> Any:
    """Settings of an Inner for which Numba has no option.

    No two of its arrays overlap: unless LLVM knows, there are no vector instructions. Nothing is to
    be made that Python could call. And it counts no references to arrays, a fifth of what there
    would be to compile: they are its caller's, or views of these. It can neither make arrays nor
    return one.
    """
    flags = kernel_flags(flags)
    flags.noalias = flags.no_compile = True
    flags.nrt = False
    return flags


def inner(
    function: Any = None, *, fastmath: Any = CONTRACT, inline: str = "never",
    forceinline: bool = False, apart: bool = False,
) -> Any:  # fmt: skip
    """`jit` for a part of a loop; its arrays must not overlap, and it can make or return none.

    forceinline=True puts a copy into each caller, where a call would take too long. apart=True
    never does, for what stands in a caller often: LLVM would work on each copy.
    inline="always" does so before types are known, which takes longer to compile. It is for loops
    over rows of one array: that these do not overlap either, only the caller can tell.
    """
    options = {"fastmath": fastmath, "inline": inline, "forceinline": forceinline, "apart": apart}
    if function is None:
        return lambda function: inner(function, **options)
    compiled = jit(function, **options, cache=False, no_cpython_wrapper=True)
    if isinstance(compiled, CPUDispatcher):  # and not the function itself, with NUMBA_DISABLE_JIT
        compiled.__class__ = Inner
        compiled._compiler._customize_flags = inner_flags
    return compiled


def ready(array: np.ndarray) -> np.ndarray:
    """An input as the loops expect it; copied only if it has to be."""
    flags, native = array.flags, array.dtype.isnative
    if flags.carray and native:  # in C order, aligned and writeable, as most are
        array = array.view()
    elif flags.c_contiguous and flags.aligned and native:
        return array
    else:
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    # By position, though NumPy's types want `write=`, which costs as much as the call itself.
    array.setflags(False)  # type: ignore[call-arg]
    return array


def rows(array: np.ndarray) -> np.ndarray:
    """(..., D) -> (N, D), ready."""
    return ready(array).reshape(-1, array.shape[-1])


def rows_of_new(array: np.ndarray) -> np.ndarray:
    """(..., D) -> (N, D) of an array made here, to be written to."""
    return array.reshape(-1, array.shape[-1])


def four(array: np.ndarray) -> np.ndarray:
    """Any shape as (B, H, Q, K)."""
    array = ready(array)
    return array if array.ndim == 4 else array.reshape(1, 1, -1, array.shape[-1])


NO_LIMIT = ready(np.full((1, 1), np.iinfo(np.int64).max))
NO_MASK = ready(np.ones((1, 1, 1, 1), np.uint8))


def hidden(limits: Any, mask: Any) -> tuple[np.ndarray, np.ndarray, bool]:
    """limits and mask as the loops take them."""
    return (
        NO_LIMIT if limits is None else ready(np.asarray(limits, np.int64)),
        NO_MASK if mask is None else ready(np.asarray(mask, np.bool_)).view(np.uint8),
        mask is not None,
    )
