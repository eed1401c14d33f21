"""
llvmlite's and Numba's modules for emitting LLVM IR, under one name each.

Neither describes its types (llvmlite has no marker, Numba's is for a part of it), so
they are ``Any`` here, once, and not at each use.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "binding",
    "caching",
    "cgutils",
    "codegen",
    "compiler",
    "config",
    "dispatching",
    "ir",
    "registry",
    "types",
]

binding: Any = importlib.import_module("llvmlite.binding")
ir: Any = importlib.import_module("llvmlite.ir")
caching: Any = importlib.import_module("numba.core.caching")
cgutils: Any = importlib.import_module("numba.core.cgutils")
codegen: Any = importlib.import_module("numba.core.codegen")
compiler: Any = importlib.import_module("numba.core.compiler")
config: Any = importlib.import_module("numba.core.config")
dispatching: Any = importlib.import_module("numba.core.dispatcher")
registry: Any = importlib.import_module("numba.core.registry")
types: Any = importlib.import_module("numba.types")
