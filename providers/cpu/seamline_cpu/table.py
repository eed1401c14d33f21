"""The op table that every kernel module of the CPU provider adds to."""

from __future__ import annotations

from seamline.kernels import KernelTable

__all__ = ["IN_PYTHON", "TABLE"]

#: Why a kernel is not recorded that says nothing else; see :mod:`.kernels.recorded`.
IN_PYTHON = "it calls NumPy or BLAS through Python"
TABLE = KernelTable("cpu", variant="numpy", not_capturable=IN_PYTHON)
