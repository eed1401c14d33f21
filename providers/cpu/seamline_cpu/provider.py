"""The CPU provider: the table of kernels, and how many threads they may use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from seamline.kernels import KernelProvider
from seamline_cpu.kernels import TABLE

__all__ = ["CpuProvider"]


class CpuProvider(KernelProvider):
    """
    Runs nodes on the host by NumPy and compiled kernels.

    Parameters
    ----------
    options
        ``num_threads``: 0 for as many as the process may use.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        chosen = dict(options or {})
        chosen["num_threads"] = int(chosen.get("num_threads") or 0) or _cores()
        super().__init__(TABLE, chosen)


def _cores() -> int:
    """Count the cores that this process may run on, which a container may have cut."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
