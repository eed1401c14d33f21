"""
Tiles of AMX: products of 16 by 16 blocks of bfloat16, summed in float32.

A tile is 16 rows of 64 bytes. The second operand's rows are pairs of K: row ``p`` holds, for
each of 16 columns, the values at ``2 p`` and ``2 p + 1`` side by side. Tiles are numbered in
the instruction, and their state is a thread's own: configure at the start of a command,
release at its end, so that no state is saved when the thread is switched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.ir import ir
from seamline_cpu.vectors import I8, I64, Vectors

__all__ = ["CONFIGURATION", "TILE", "Tiles"]

TILE = 1024  #: bytes
_ROW = 64

#: For ``ldtilecfg``: palette 1, eight tiles of 16 rows of 64 bytes.
CONFIGURATION = np.zeros(64, np.uint8)
CONFIGURATION[0] = 1
CONFIGURATION[16:32:2] = _ROW
CONFIGURATION[48:56] = 16


class Tiles:
    """Emits tile instructions."""

    def __init__(self, v: Vectors) -> None:
        self.v = v

    def _call(self, name: str, *arguments: Any) -> None:
        made = [ir.Constant(I8, a) if isinstance(a, int) else a for a in arguments]
        self.v.call(f"llvm.x86.{name}", ir.VoidType(), *made)

    def configure(self, address: Any) -> None:
        """Begin; ``address`` is of :data:`CONFIGURATION`."""
        self._call("ldtilecfg", self.v.pointer(address, I8))

    def release(self) -> None:
        """End."""
        self._call("tilerelease")

    def zero(self, tile: int) -> None:
        """Clear a tile."""
        self._call("tilezero", tile)

    def load(self, tile: int, address: Any, pitch: int = _ROW) -> None:
        """Load a tile whose rows lie ``pitch`` bytes apart."""
        where = self.v.pointer(address, I8)
        self._call("tileloadd64", tile, where, ir.Constant(I64, pitch))

    def store(self, tile: int, address: Any, pitch: int = _ROW) -> None:
        """Store a tile."""
        where = self.v.pointer(address, I8)
        self._call("tilestored64", tile, where, ir.Constant(I64, pitch))

    def multiply(self, sums: int, a: int, b: int) -> None:
        """Add the product of two bfloat16 tiles to a float32 tile."""
        self._call("tdpbf16ps", sums, a, b)
