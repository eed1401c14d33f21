"""
Run ONNX graphs across providers, with every seam between them in the open.

The names below are imported when they are first used, so that ``import seamline`` itself
costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seamline import errors as errors
    from seamline.availability import get_all_providers as get_all_providers
    from seamline.availability import get_available_providers as get_available_providers
    from seamline.availability import get_device as get_device
    from seamline.availability import get_version_string as get_version_string
    from seamline.binding import IOBinding as IOBinding
    from seamline.errors import FeedError as FeedError
    from seamline.errors import ModelError as ModelError
    from seamline.errors import PlanError as PlanError
    from seamline.errors import ProviderError as ProviderError
    from seamline.errors import RunError as RunError
    from seamline.errors import SeamlineError as SeamlineError
    from seamline.graph import Graph as Graph
    from seamline.graph import load as load
    from seamline.hookspecs import hookimpl as hookimpl
    from seamline.kernels import KernelProvider as KernelProvider
    from seamline.kernels import KernelTable as KernelTable
    from seamline.kernels import provider_spec as provider_spec
    from seamline.limits import LoadLimits as LoadLimits
    from seamline.metadata import ModelMetadata as ModelMetadata
    from seamline.metadata import NodeArg as NodeArg
    from seamline.ortvalue import OrtValue as OrtValue
    from seamline.session import InferenceSession as InferenceSession
    from seamline.session_options import ExecutionMode as ExecutionMode
    from seamline.session_options import ExecutionOrder as ExecutionOrder
    from seamline.session_options import (
        GraphOptimizationLevel as GraphOptimizationLevel,
    )
    from seamline.session_options import RunOptions as RunOptions
    from seamline.session_options import SessionOptions as SessionOptions
    from seamline.states import State as State
    from seamline.states import StateError as StateError
    from seamline.unsupported import UnsupportedError as UnsupportedError
    from seamline.unsupported import UnusedOptionWarning as UnusedOptionWarning

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "FeedError",
    "Graph",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "KernelProvider",
    "KernelTable",
    "LoadLimits",
    "ModelError",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "PlanError",
    "ProviderError",
    "RunError",
    "RunOptions",
    "SeamlineError",
    "SessionOptions",
    "State",
    "StateError",
    "UnsupportedError",
    "UnusedOptionWarning",
    "errors",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "hookimpl",
    "load",
    "provider_spec",
]

_MODULES = {
    "availability": (
        "get_all_providers", "get_available_providers", "get_device", "get_version_string",
    ),
    "binding": ("IOBinding",),
    "errors": (
        "FeedError", "ModelError", "PlanError", "ProviderError", "RunError", "SeamlineError",
    ),
    "graph": ("Graph", "load"),
    "hookspecs": ("hookimpl",),
    "kernels": ("KernelProvider", "KernelTable", "provider_spec"),
    "limits": ("LoadLimits",),
    "metadata": ("ModelMetadata", "NodeArg"),
    "ortvalue": ("OrtValue",),
    "session": ("InferenceSession",),
    "session_options": (
        "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "RunOptions",
        "SessionOptions",
    ),
    "states": ("State", "StateError"),
    "unsupported": ("UnsupportedError", "UnusedOptionWarning"),
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("seamline.errors")
    if name == "__version__":
        return importlib.import_module("seamline.availability").get_version_string()
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"seamline.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
