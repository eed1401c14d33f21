"""The op table that every kernel module of the CPU provider adds to."""

from __future__ import annotations

from seamline.kernels import KernelTable

__all__ = ["TABLE"]

TABLE = KernelTable("cpu", variant="numpy")
