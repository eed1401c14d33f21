"""Where attention's operands lie: rows of heads by distances, so that nothing is transposed."""

from __future__ import annotations

import math

import attrs

from seamline.provider import View
from seamline_cuda.attention_spans import Bias

__all__ = [
    "WIDEST",
    "WIDTHS",
    "Operand",
    "aligned",
    "broadcast_bias",
    "lies_by",
    "operand",
]

WIDEST = 256  #: values of a head: a tile of eight rows of more does not fit a block
WIDTHS = {"float16": 2, "bfloat16": 2, "float32": 4}  #: bytes of an element
_ALIGNED = 256


@attrs.frozen
class Operand:
    """
    Rows of heads in memory.

    Attributes
    ----------
    address
        Of the first element.
    kind
        Element type.
    steps
        Elements from one entry of the batch, head and row to the next; the values of a
        head lie side by side.
    """

    address: int
    kind: str
    steps: tuple[int, int, int]

    @classmethod
    def first(cls, view: View) -> Operand:
        """View an array of (batch, heads, rows, size)."""
        _, heads, rows, size = view.shape
        steps = (heads * rows * size, rows * size, size)
        return cls(view.address, view.kind.dtype, steps)

    @classmethod
    def behind(cls, view: View, size: int, start: int = 0) -> Operand:
        """View heads of ``size`` values, from ``start`` on, in (batch, rows, values)."""
        _, rows, values = view.shape
        address = view.address + start * WIDTHS[view.kind.dtype]
        return cls(address, view.kind.dtype, (rows * values, size, values))

    def wide(self, size: int) -> int:
        """Give how many elements may be loaded together: 4, 2 or 1."""
        if WIDTHS[self.kind] != 2:
            return 1
        for wide in (4, 2):
            whole = all(step % wide == 0 for step in (*self.steps, size))
            if whole and self.address % (2 * wide) == 0:
                return wide
        return 1


def lies_by(nbytes: int, operand: Operand) -> bool:
    """Tell whether every row of heads begins at a multiple of so many bytes."""
    item = WIDTHS[operand.kind]
    ends = (operand.address, *(item * step for step in operand.steps))
    return all(end % nbytes == 0 for end in ends)


def aligned(nbytes: int) -> int:
    """Give the bytes up to where something else may lie in a workspace."""
    return -(-nbytes // _ALIGNED) * _ALIGNED


def operand(view: View, size: int) -> Operand:
    """View an input or output by head, whichever form it has."""
    if len(view.shape) == 4:
        return Operand.first(view)
    return Operand.behind(view, size)


def broadcast_bias(mask: View, filler: float = -math.inf) -> Bias:
    """View a mask that broadcasts to (batch, heads, rows, keys)."""
    shape = (*[1] * (4 - len(mask.shape)), *mask.shape)
    steps = [
        math.prod(shape[axis + 1 :]) if shape[axis] > 1 else 0 for axis in range(4)
    ]
    b, h, r, k = steps
    return Bias(mask.kind.dtype, mask.address, (b, h, r, k), filler)
