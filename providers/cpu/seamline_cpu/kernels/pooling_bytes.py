"""Pools of bytes: as float32, which holds every byte, and rounded to bytes again."""

from __future__ import annotations

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline.windows import Window
from seamline_cpu.binding import in_order
from seamline_cpu.kernels.linear_commands import bind_dequantized, bind_quantized
from seamline_cpu.kernels.pooling_rows import bind_pool

__all__ = ["bind_byte_pool"]


def bind_byte_pool(
    x: Array, given: tuple[Array, Array | None], out: Array, last: tuple[Array, Array | None],
    window: Window, divisors: Array | None, threads: int,
) -> Run:  # fmt: skip
    """
    Bind a pool of uint8 or int8 ``(N, C, ...)``: the largest, or sums over ``divisors``.

    Parameters
    ----------
    given, last
        Scale and zero point of ``x`` and of ``out``, one element each.
    window
        Over up to three axes.
    """
    wide, made = np.empty(x.shape, np.float32), np.empty(out.shape, np.float32)
    return in_order(
        [
            bind_dequantized(x, *given, wide, 0, threads),
            bind_pool(wide, made, window.in_three(), divisors, threads),
            bind_quantized(made, *last, out, 0, threads),
        ]
    )
