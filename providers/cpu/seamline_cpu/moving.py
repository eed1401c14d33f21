"""
Copies between strided places, of any element size and number of axes, as one command.

Most operators that move data are such copies: parts of Concat, Split and Slice, the inside
and the sides of Pad, Expand, Tile, permutations of axes. Axes that both sides step through
as one are joined when the copy is bound; what is left is an innermost loop, a loop of such
lines, and a counter over the rest. A line that is contiguous on both sides is one memory
copy, else a loop over elements of 1, 2, 4 or 8 bytes. A source may stand still along an
axis, which repeats it, and may step backwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, ints, longs, shorts
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.ir import cgutils, ir, types
from seamline_cpu.jit import jit, native
from seamline_cpu.strides import folded, portion

__all__ = ["bind_move", "copy_bytes"]

_BYTES = 0  #: the kind of a line that is one run of bytes; else the element's size
_KIND, _FROM, _TO, _N, _FROM_1, _TO_1, _ROWS, _FROM_2, _TO_2, _OUTER, _AXES = range(11)
_FIRST = 11  #: then for each outer axis its size and both steps
#: Bytes from which more threads pay: of whole runs, where memory sets the pace, and of
#: elements one by one.
_SHARED_RUNS, _SHARED_ELEMENTS = 2 << 20, 1 << 18


@native
def copy_bytes(context: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy ``count`` bytes between addresses that do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        to, source = (builder.inttoptr(address, pointer) for address in args[:2])
        cgutils.raw_memcpy(builder, to, source, args[2], 1)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(i64, i64, i64), generate


@jit
def _each(source: Any, target: Any, n: int, down: int, along: int) -> None:
    """Copy elements whose steps are counted in elements; both are C arrays."""
    if along == 1 and down == 0:
        one = source[0]
        for i in range(n):
            target[i] = one
    elif along == 1:
        for i in range(n):
            target[i] = source[i * down]
    else:
        for i in range(n):
            target[i * along] = source[i * down]


@jit
def _line(kind: int, source: int, target: int, n: int, down: int, along: int) -> None:
    if kind == _BYTES:
        copy_bytes(target, source, n)
    elif kind == 4:
        _each(ints(source), ints(target), n, down, along)
    elif kind == 8:
        _each(longs(source), longs(target), n, down, along)
    elif kind == 1:
        _each(bytes_at(source), bytes_at(target), n, down, along)
    else:
        _each(shorts(source), shorts(target), n, down, along)


@command
def _move(a: Any, share: int, shares: int) -> None:
    """Shares are of the lines, or of each line where there are too few."""
    kind, rows, n, down, along = a[_KIND], a[_ROWS], a[_N], a[_FROM_1], a[_TO_1]
    first, end, low, high = portion(a[_OUTER] * rows, n, share, shares)
    width = max(kind, 1)
    at = first
    while at < end:
        rest, row = at // rows, at % rows
        source, target = a[_FROM] + low * down * width, a[_TO] + low * along * width
        for axis in range(_FIRST, _FIRST + 3 * a[_AXES], 3):
            place = rest % a[axis]
            rest = rest // a[axis]
            source += place * a[axis + 1]
            target += place * a[axis + 2]
        stop = min(rows, row + end - at)
        for r in range(row, stop):
            _line(kind, source + r * a[_FROM_2], target + r * a[_TO_2],
                  high - low, down, along)  # fmt: skip
        at += stop - row


def bind_move(
    source: Array, target: Array, threads: int = 1, *, apart: bool = False
) -> Native | None:
    """
    Bind ``target[...] = source``, for arrays of one shape and type.

    Parameters
    ----------
    apart
        They are known not to overlap, though their outer bounds do.

    Returns
    -------
    Native or None
        None where NumPy has to do it: objects, other types, elements that are not
        aligned, arrays that may overlap, or no elements at all.
    """
    if source.dtype != target.dtype or source.dtype.hasobject or not target.size:
        return None
    if not (apart or not np.may_share_memory(source, target)):
        return None
    if not (source.flags.aligned and target.flags.aligned):
        return None
    shape = target.shape
    steps = [list(source.strides), list(target.strides)]
    width = source.dtype.itemsize
    if width == 16:  # a complex number moves as two halves
        shape, width = (*shape, 2), 8
        steps = [[*one, 8] for one in steps]
    if width not in (1, 2, 4, 8):
        return None
    sizes, (back, along) = folded(shape, steps)
    arguments = _laid_out(width, sizes, back, along)
    arguments[_FROM], arguments[_TO] = source.ctypes.data, target.ctypes.data
    enough = _SHARED_RUNS if arguments[_KIND] == _BYTES else _SHARED_ELEMENTS
    shares = threads if target.nbytes >= enough else 1
    return bind(_move, arguments, shares, keep=(source, target))


def _laid_out(
    width: int, sizes: list[int], back: list[int], along: list[int]
) -> list[int]:
    """Give the arguments without the addresses; steps are in bytes."""
    run = width * sizes[-1] if sizes and back[-1] == along[-1] == width else 0
    if len(sizes) > 1 and run in (2, 4, 8) and not (back[-2] % run or along[-2] % run):
        # A few neighbours are one element: a call for each would cost more than it moves.
        width, sizes, back, along = run, sizes[:-1], back[:-1], along[:-1]
    kind, n, down, on = width, 1, width, width
    if sizes:
        n, down, on = sizes[-1], back[-1], along[-1]
    if down == on == width:
        kind, n, down, on = _BYTES, n * width, 1, 1
    else:
        down, on = down // width, on // width
    rows, steps = (sizes[-2], (back[-2], along[-2])) if len(sizes) > 1 else (1, (0, 0))
    outer = list(zip(sizes[:-2], back[:-2], along[:-2], strict=True))[::-1]
    count = int(np.prod([size for size, _, _ in outer], dtype=np.int64))
    return [kind, 0, 0, n, down, on, rows, *steps, count, len(outer),
            *[value for axis in outer for value in axis]]  # fmt: skip
