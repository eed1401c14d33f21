"""Operators that the device does not run because of what they are, and what is said of it."""

from __future__ import annotations

from seamline.kernel_table import KernelTable

__all__ = ["SIZED_BY_RUNNING", "add_to"]

#: Operators whose results have sizes that follow from data.
SIZED_BY_RUNNING = ("Compress", "NonMaxSuppression", "NonZero", "Unique")


def add_to(table: KernelTable) -> None:
    """Say why these have no kernel."""
    for op_type in SIZED_BY_RUNNING:
        table.refuse(
            op_type,
            "its result's size is known only after running, so what follows could be "
            "neither planned nor captured; the host would have to wait for it in any case",
        )
