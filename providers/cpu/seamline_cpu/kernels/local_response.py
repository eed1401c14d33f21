"""LRN: a command for float32, in which a window of channels slides over blocks of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.atomics import floats
from seamline_cpu.binding import nothing
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.kernels.float32_math import exp, log
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.rows import elementwise, matrix, threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

f4 = np.float32
_BLOCK = 256  # pixels, whose sums stay in the nearest cache
_SHARED_FROM = 16_384  # elements from which more threads pay
_X, _OUT, _BATCH, _CHANNELS, _PIXELS, _BEFORE, _AFTER, _NUMBERS, _SCRATCH = range(9)
_exp, _log = exp, log


@elementwise
def _clear(out: Any) -> None:
    for i in range(out.size):
        out[i] = f4(0.0)


@elementwise
def _add_squares(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] += x[i] * x[i]


@elementwise
def _divide(x: Any, total: Any, scale: Any, bias: Any, beta: Any, out: Any) -> None:
    """Write ``x (bias + scale total)**-beta``."""
    for i in range(x.size):
        out[i] = x[i] * _exp(-beta * _log(bias + scale * total[i]))


@command
def _lrn(a: Any, share: int, shares: int) -> None:
    """Shares are of blocks of pixels; each goes through all channels."""
    channels, pixels, numbers = a[_CHANNELS], a[_PIXELS], floats(a[_NUMBERS])
    blocks = (pixels + _BLOCK - 1) // _BLOCK
    total = a[_BATCH] * blocks
    held = floats(a[_SCRATCH] + 4 * share * _BLOCK)
    for at in range(total * share // shares, total * (share + 1) // shares):
        first = at % blocks * _BLOCK
        n = min(_BLOCK, pixels - first)
        plane = 4 * (at // blocks * channels * pixels + first)
        squares = matrix(held, 1, n)[0]
        for c in range(channels):
            _clear(squares)
            for near in range(max(0, c - a[_BEFORE]), min(channels, c + a[_AFTER] + 1)):
                _add_squares(
                    matrix(floats(a[_X] + plane + 4 * near * pixels), 1, n)[0], squares
                )
            shift = plane + 4 * c * pixels
            x = matrix(floats(a[_X] + shift), 1, n)[0]
            out = matrix(floats(a[_OUT] + shift), 1, n)[0]
            _divide(x, squares, numbers[0], numbers[1], numbers[2], out)


def _bind(
    x: Array,
    out: Array,
    size: int,
    alpha: float,
    beta: float,
    bias: float,
    threads: int,
) -> Native:
    """
    Bind ``out = x / (bias + alpha / size * sum of squares)**beta``.

    Parameters
    ----------
    x, out
        C-contiguous float32 ``(N, C, ...)``, apart and not empty.
    size
        Channels in the window: ``(size - 1) // 2`` before and ``size // 2`` after.
    """
    batch, channels = x.shape[:2]
    pixels = x.size // (batch * channels)
    shares = threads if x.size >= _SHARED_FROM else 1
    numbers = np.array([alpha / size, bias, beta], f4)
    scratch = np.empty((shares, _BLOCK), f4)
    arguments = [
        x.ctypes.data, out.ctypes.data, batch, channels, pixels, (size - 1) // 2, size // 2,
        numbers.ctypes.data, scratch.ctypes.data,
    ]  # fmt: skip
    return bind(_lrn, arguments, shares, keep=(x, out, numbers, scratch))


@TABLE.kernel("LRN", dtypes=("float32",), variant="numba", not_capturable=OF_FLOAT32)
def lrn(call: Call) -> Run:
    """Bind LRN of float32: divide by a power of the squares of neighbouring channels."""
    x, out = call.inputs[0], call.outputs[0]
    if not x.size:
        return nothing
    size, alpha = call.attr("size"), call.attr("alpha", 1e-4)
    beta, bias = call.attr("beta", 0.75), call.attr("bias", 1.0)
    return _bind(x, out, size, alpha, beta, bias, threads_of(call.options))


@TABLE.simple("LRN", dtypes=FLOATS)
def lrn_by_numpy(
    x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Array:
    """Divide by a power of the squares of ``size`` neighbouring channels."""
    wide: Any = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    squares = np.square(wide)
    before, after = (size - 1) // 2, size // 2
    total = np.zeros_like(wide)
    for offset in range(-before, after + 1):
        low, high = max(0, -offset), min(x.shape[1], x.shape[1] - offset)
        if low < high:
            total[:, low:high] += squares[:, low + offset : high + offset]
    power = (bias + (alpha / size) * total) ** beta
    return np.asarray((wide / power).astype(x.dtype))
