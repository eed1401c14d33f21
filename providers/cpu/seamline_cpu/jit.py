"""
Numba's compiler with this provider's settings: IEEE division, no GIL, a safe cache.

Nothing about the cache can make an import or a run fail: see
:mod:`seamline_cpu.jit_cache`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from seamline_cpu.jit_cache import attach, named

__all__ = ["fused", "jit", "native"]

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """
    Compile on first call: ``nogil``, IEEE division, and cached on disk where possible.

    ``function.py_func`` is the Python original, for tests. Compiled functions and
    intrinsics that it calls must be defined above it: the cache is keyed by their
    sources too.
    """
    return _compiled(function)


def fused(function: F) -> F:
    """
    Compile as :func:`jit` does, with ``a * b + c`` as one instruction where there is one.

    Only the rounding between the two goes; NaN, infinity and signed zero are kept.
    """
    return _compiled(function, fastmath={"contract"})


def native(function: Callable[..., Any]) -> Any:
    """Make an intrinsic: a function whose code the decorated one emits as LLVM IR."""
    return intrinsic(function)


def _compiled(function: F, **options: Any) -> F:
    function = named(function)
    compiled: Any = numba.njit(nogil=True, error_model="numpy", **options)(function)
    attach(compiled, function)
    return compiled  # type: ignore[no-any-return]


# A child forked while another thread compiles would wait for that thread for ever.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)
