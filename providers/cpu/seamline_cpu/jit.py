"""
Numba's compiler with this provider's settings: IEEE division, no GIL, a safe cache.

Nothing about the cache can make an import or a run fail: see
:mod:`seamline_cpu.jit_cache`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from seamline_cpu.jit_cache import attach

__all__ = ["jit"]

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """
    Compile on first call: ``nogil``, IEEE division, and cached on disk where possible.

    ``function.py_func`` is the Python original, for tests. Compiled functions and
    intrinsics that it calls must be defined above it: the cache is keyed by their
    sources too.
    """
    compiled: Any = numba.njit(nogil=True, error_model="numpy")(function)
    attach(compiled, function)
    return compiled  # type: ignore[no-any-return]
