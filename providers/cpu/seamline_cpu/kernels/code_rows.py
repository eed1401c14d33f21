"""What packed weights are made from: rows of codes, in memory or made when asked for."""

from __future__ import annotations

from typing import Protocol

from seamline.provider import Array

__all__ = ["CodeRows"]


class CodeRows(Protocol):
    """Rows of packed codes, (N, blocks, bytes of a block), that are sliced."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Give N, blocks, and bytes of a block."""
        ...

    def __getitem__(self, rows: slice, /) -> Array:
        """Give some rows, uint8."""
        ...
