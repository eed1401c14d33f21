"""Integer sums to what a quantised product gives: floats, or bytes again; as commands."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, floats, ints
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import matrix

__all__ = ["bind_floats", "bind_requantized"]

f4 = np.float32
_SHARED_FROM = 131_072  # elements from which more threads pay
(_SUMS, _OUT, _ROWS, _N, _ROW, _ROW_STEP, _COLUMN, _COLUMN_STEP, _LAST, _SCRATCH, _ZERO,
 _SIGN, _EVERY) = range(13)  # fmt: skip


@jit
def _add_scaled(sums: Any, factors: Any, bias: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = f4(sums[j]) * factors[j] + bias[j]


@jit
def _scale(sums: Any, factors: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = f4(sums[j]) * factors[j]


@jit
def _round(sums: Any, factors: Any, zero: Any, low: Any, high: Any, out: Any) -> None:
    """Scale in float64, where every sum is exact; a half goes to the even neighbour."""
    for j in range(out.size):
        value = np.rint(np.float64(sums[j]) * np.float64(factors[j])) + zero
        value = low if not value > low else value  # so that NaN gives the least
        out[j] = np.int32(min(value, high))


@command
def _floats(a: Any, share: int, shares: int) -> None:
    """Give ``sums * (row scale * column scale) + bias`` of rows; ``LAST`` is the bias."""
    rows, n = a[_ROWS], a[_N]
    factors = matrix(floats(a[_SCRATCH] + 4 * share * n), 1, n)[0]
    scale, column = floats(a[_ROW])[0], floats(a[_COLUMN])
    for j in range(n):
        factors[j] = f4(scale * column[j * a[_COLUMN_STEP]])
    for r in range(rows * share // shares, rows * (share + 1) // shares):
        sums = carray(ints(a[_SUMS] + 4 * r * n), (n,))
        out = matrix(floats(a[_OUT] + 4 * r * n), 1, n)[0]
        if a[_LAST] == 0:
            _scale(sums, factors, out)
        else:
            _add_scaled(sums, factors, matrix(floats(a[_LAST]), 1, n)[0], out)


@command
def _bytes(a: Any, share: int, shares: int) -> None:
    """Round ``sums * (row scale * column scale / last scale)`` of rows to bytes."""
    rows, n, every = a[_ROWS], a[_N], a[_EVERY]
    factors = matrix(floats(a[_SCRATCH] + 4 * share * n), 1, n)[0]
    row, column, last = floats(a[_ROW]), floats(a[_COLUMN]), floats(a[_LAST])[0]
    # A zero point with its top bit flipped is itself + 128.
    zero = np.float64((bytes_at(a[_ZERO])[0] ^ a[_SIGN]) - a[_SIGN])
    low, high = np.float64(-a[_SIGN]), np.float64(255 - a[_SIGN])
    for r in range(rows * share // shares, rows * (share + 1) // shares):
        mine = row[r % every * a[_ROW_STEP]]
        for j in range(n):
            factors[j] = f4(f4(mine * column[j * a[_COLUMN_STEP]]) / last)
        sums = carray(ints(a[_SUMS] + 4 * r * n), (n,))
        _round(sums, factors, zero, low, high, carray(bytes_at(a[_OUT] + r * n), (n,)))


def bind_floats(
    sums: Array,
    scale: Array,
    columns: Array,
    bias: Array | None,
    out: Array,
    threads: int,
) -> Native:
    """
    Bind ``out = sums * (scale * columns) + bias``.

    Parameters
    ----------
    sums, out
        int32 and float32, ``(M, N)``, C-contiguous.
    scale, columns, bias
        float32: of one element; of one or N; of N or None. Read in each run.
    """
    return _bound(_floats, sums, (scale, columns), bias, out, threads, None)


def bind_requantized(
    sums: Array, scales: tuple[Array, Array], last: Array, zero: Array, out: Array,
    threads: int,
) -> Native:  # fmt: skip
    """
    Bind ``out = round(sums * (rows * columns / last)) + zero``, saturated.

    Parameters
    ----------
    sums, out
        int32 and uint8 or int8, ``(M, N)``, C-contiguous.
    scales
        ``rows`` and ``columns``, float32: of one element, or one for each row (where there
        are fewer, they repeat) or column. Read in each run, as the others.
    last, zero
        Of one element.
    """
    return _bound(_bytes, sums, scales, last, out, threads, zero)


def _bound(
    what: Any, sums: Array, scales: tuple[Array, Array], last: Array | None, out: Array,
    threads: int, zero: Array | None,
) -> Native:  # fmt: skip
    rows, n = sums.shape
    shares = min(threads, rows) if sums.size >= _SHARED_FROM else 1
    scratch = np.empty((shares, n), f4)
    kept = (sums, out, *scales, last, scratch, zero)
    arguments = [
        sums.ctypes.data, out.ctypes.data, rows, n,
        scales[0].ctypes.data, int(scales[0].size > 1),
        scales[1].ctypes.data, int(scales[1].size > 1),
        0 if last is None else last.ctypes.data, scratch.ctypes.data,
        0 if zero is None else zero.ctypes.data, 128 if out.dtype == np.int8 else 0,
        max(1, scales[0].size),
    ]  # fmt: skip
    return bind(what, arguments, shares, keep=kept)
