"""
Rows of float32, float16 and bfloat16, as float32 and back, inside of other commands.

Attention is computed in float32 whatever its inputs are. What is narrower becomes float32
a row or a block at a time, in scratch, so that a cache of 16 bits is read as such.
"""

from __future__ import annotations

from collections.abc import Mapping

from seamline_cpu.instruction_sets import converts_half
from seamline_cpu.jit import jit
from seamline_cpu.kernels.nbits_activations import narrower, widener
from seamline_cpu.moving import copy_bytes

__all__ = ["KINDS", "padded", "put_row", "row_of", "rows_of"]

#: What the commands call an element type; float16 only where it is an instruction.
KINDS: Mapping[str, int] = {
    "float32": 0,
    "bfloat16": 2,
    **({"float16": 1} if converts_half() else {}),
}
# Without the instruction LLVM would call a library; nothing then asks for kind 1.
_HALF = "float16" if converts_half() else "bfloat16"
_widen_half, _narrow_half = widener("portable", _HALF), narrower("portable", _HALF)
_widen, _narrow = widener("portable", "bfloat16"), narrower("portable", "bfloat16")


@jit
def padded(n: int) -> int:
    """Give the next multiple of 16: what a row takes in scratch."""
    return (n + 15) // 16 * 16


@jit
def row_of(kind: int, address: int, n: int, room: int) -> int:
    """Give where a row stands as float32: where it is, or widened in ``room``."""
    if kind == 0:
        return address
    if kind == 1:
        _widen_half(address, n, room, (n + 15) // 16)
    else:
        _widen(address, n, room, (n + 15) // 16)
    return room


@jit
def rows_of(kind: int, address: int, pitch: int, count: int, n: int, room: int) -> int:
    """Widen ``count`` rows, ``pitch`` bytes apart, to rows of ``padded(n)`` floats."""
    for i in range(count):
        row_of(kind, address + i * pitch, n, room + 4 * i * padded(n))
    return room


@jit
def put_row(kind: int, source: int, n: int, out: int) -> None:
    """Write a row of float32 as what it is to be."""
    if kind == 0:
        copy_bytes(out, source, 4 * n)
    elif kind == 1:
        _narrow_half(source, n, out)
    else:
        _narrow(source, n, out)
