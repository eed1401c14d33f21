"""
Numba's compiler with this provider's settings: IEEE division, no GIL, a safe cache.

Nothing about the cache can make an import or a run fail: see
:mod:`seamline_cpu.jit_cache`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import numba
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from seamline_cpu.inlined import Inlining
from seamline_cpu.ir import compiler
from seamline_cpu.jit_cache import attach, named

__all__ = ["compiled", "fused", "inlined", "jit", "native"]

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """
    Compile on first call: ``nogil``, IEEE division, and cached on disk where possible.

    ``function.py_func`` is the Python original, for tests. Compiled functions and
    intrinsics that it calls must be defined above it: the cache is keyed by their
    sources too.
    """
    return compiled(function)


def fused(function: F) -> F:
    """
    Compile as :func:`jit` does, with ``a * b + c`` as one instruction where there is one.

    Only the rounding between the two goes; NaN, infinity and signed zero are kept.
    """
    return compiled(function, fastmath={"contract"})


def inlined(function: F) -> F:
    """
    Compile as part of each function that calls it, not by itself before that.

    For what has one caller: LLVM otherwise optimises the code twice.
    """
    return numba.njit(inline="always")(function)  # type: ignore[no-any-return]


def native(function: Callable[..., Any]) -> Any:
    """Make an intrinsic: a function whose code the decorated one emits as LLVM IR."""
    return intrinsic(function)


def compiled(
    function: F, *, fastmath: Collection[str] = (), pipeline: Any = compiler.Compiler
) -> F:
    """
    Compile as :func:`jit` does, with some of LLVM's leave to change sums and products.

    Parameters
    ----------
    fastmath
        Flags of LLVM, none of which may assume that there is no NaN or infinity.
    pipeline
        Numba's compiler, or one of its kind.
    """
    targeted: dict[str, Any] = {"nopython": True, "nogil": True, "error_model": "numpy"}
    if fastmath:
        targeted["fastmath"] = set(fastmath)
    function = named(function)
    made: Any = Inlining(function, targetoptions=targeted, pipeline_class=pipeline)
    attach(made, function)
    return made  # type: ignore[no-any-return]


# A child forked while another thread compiles would wait for that thread for ever.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)
