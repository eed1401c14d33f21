"""Where a quantised tensor's scales apply: to all of it, along an axis, or in blocks."""

from __future__ import annotations

import math

import numpy as np

from seamline.provider import Array
from seamline_cpu.kernels.pointwise import BLOCK

__all__ = ["granules", "in_rows"]

Piece = tuple[Array, Array, Array | None, Array]


def granules(
    x: Array, scale: Array, zero: Array | None, out: Array, axis: int, block: int
) -> list[Piece]:
    """
    Show a tensor as pieces over which its scale and zero point broadcast.

    Parameters
    ----------
    x, out
        Tensors of one shape, C-contiguous.
    scale, zero
        A single element, a vector along ``axis``, or blocks of ``block`` along it: the
        entry for element i is i // block, and the last block may be short.

    Returns
    -------
    list
        ``(x, scale, zero, out)``: views, so later values are seen.

    Raises
    ------
    ValueError
        The scale's shape fits none of the three; or the zero point's is not the scale's.
    """
    if zero is not None and zero.shape != scale.shape and zero.size != scale.size:
        raise ValueError(
            f"the zero point's shape {list(zero.shape)} is not the scale's {list(scale.shape)}"
        )
    if scale.size == 1 and not block:
        return [(x, scale.reshape(()), None if zero is None else zero.reshape(()), out)]
    axis = _checked_axis(x, scale, axis)
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    size = x.shape[axis]
    if scale.ndim == 1 and not block:
        if scale.shape != (size,):
            raise ValueError(
                f"{scale.size} scales for {size} elements along axis {axis}"
            )
        rows, one = (outer, size, inner), (1, size, 1)
        column = None if zero is None else zero.reshape(one)
        return [(x.reshape(rows), scale.reshape(one), column, out.reshape(rows))]
    _check_blocks(x, scale, axis, block)
    return _blocks(x, scale, zero, out, (outer, size, inner, block))


def _checked_axis(x: Array, scale: Array, axis: int) -> int:
    # The default of 1 lies outside a vector, whose only axis is meant.
    if x.ndim == 1 and axis == 1:
        return 0
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis {axis} is outside of a tensor of rank {x.ndim}")
    return axis % x.ndim


def _check_blocks(x: Array, scale: Array, axis: int, block: int) -> None:
    if block <= 0:
        raise ValueError(
            f"a scale of shape {list(scale.shape)} needs a block_size, which is {block}"
        )
    expected = [-(-n // block) if i == axis else n for i, n in enumerate(x.shape)]
    if list(scale.shape) != expected:
        raise ValueError(
            f"the scale's shape is {list(scale.shape)}; blocks of {block} along axis {axis} "
            f"of {list(x.shape)} need {expected}"
        )


def _blocks(
    x: Array,
    scale: Array,
    zero: Array | None,
    out: Array,
    sizes: tuple[int, int, int, int],
) -> list[Piece]:
    """Give the whole blocks as one piece, and the short last one as another."""
    outer, size, inner, block = sizes
    whole, count = size // block, -(-size // block)
    x, out = x.reshape(outer, size, inner), out.reshape(outer, size, inner)
    factors = [
        None if v is None else v.reshape(outer, count, 1, inner) for v in (scale, zero)
    ]
    spans = [(slice(0, whole * block), slice(0, whole), block)]
    if whole < count:
        spans.append(
            (slice(whole * block, size), slice(whole, count), size - whole * block)
        )
    pieces: list[Piece] = []
    for span, entries, length in spans:
        shape = (outer, entries.stop - entries.start, length, inner)
        mine, result = x[:, span], out[:, span]
        s, z = (None if v is None else v[:, entries] for v in factors)
        # Splitting an axis of a view never copies; NumPy says so if it would.
        pieces.append(
            (
                mine.reshape(shape, copy=False),
                np.asarray(s),
                z,
                result.reshape(shape, copy=False),
            )
        )
    return pieces


def in_rows(pieces: list[Piece]) -> list[Piece]:
    """Cut pieces along their first long axis, so that each stays in the cache."""
    return [row for piece in pieces for row in _rows(piece)]


def _rows(piece: Piece) -> list[Piece]:
    x, scale, zero, out = piece
    if out.size <= BLOCK:
        return [piece]
    if scale.ndim == 0:
        x, out = x.reshape(-1), out.reshape(-1)
    axis = next(i for i, n in enumerate(out.shape) if n > 1)
    step = max(1, BLOCK * out.shape[axis] // out.size)
    before = (slice(None),) * axis

    def cut(v: Array | None, at: int) -> Array | None:
        if v is None or v.ndim == 0 or v.shape[axis] == 1:
            return v
        return np.asarray(v[(*before, slice(at, at + step))])

    return [
        (x[(*before, slice(at, at + step))], np.asarray(cut(scale, at)), cut(zero, at),
         out[(*before, slice(at, at + step))])
        for at in range(0, out.shape[axis], step)
    ]  # fmt: skip
