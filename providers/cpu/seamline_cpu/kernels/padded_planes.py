"""
Padded planes: the input as convolution and pooling read it without a bounds check.

A stride of s is s planes, each with every s-th pixel, so that neighbours in the output
read neighbours in a plane whatever the stride, and a tap of the window is one fixed
offset. Output rows are as far apart as a plane's rows; what lies between their ends is
computed and thrown away.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from seamline.windows import Window
from seamline_cpu.block_moves import copy_block, fill_floats, thin_block, thin_rows
from seamline_cpu.jit import jit

__all__ = ["Planes", "fill_planes", "planes_of"]

_COMMON = (
    16  # floats of padding, at most, that one row's end and the next's start share
)
_SLACK = 64  # floats that a strip of vectors may read past a plane's last pixel


@attrs.frozen
class Planes:
    """
    The planes of one channel, for a block of output rows.

    Attributes
    ----------
    rows
        Output rows of a block; ``held`` rows of each plane are kept for them.
    pitch
        Floats in a plane's row.
    stride
        Floats between channels: never a multiple of the cache's way size.
    """

    window: Window
    rows: int
    held: int
    pitch: int
    stride: int

    def offsets(self, channels: int) -> np.ndarray[Any, Any]:
        """Give each tap's place in bytes, by channel and window position."""
        (sh, sw), (dh, dw) = self.window.strides[1:], self.window.dilations[1:]
        kh, kw = self.window.kernel[1:]
        down, right = np.arange(kh)[:, None] * dh, np.arange(kw) * dw
        plane = (down % sh) * sw + right % sw
        taps = (plane * self.held + down // sh) * self.pitch + right // sw
        whole = np.arange(channels)[:, None, None] * self.stride + taps
        return np.ascontiguousarray(whole.ravel() * 4, np.int64)


def planes_of(window: Window, channels: int, cache: int, least_blocks: int) -> Planes:
    """
    Choose how many output rows are worked on at once.

    Parameters
    ----------
    window
        Three axes, of which the first is one window of size one.
    channels
        How many channels' planes are held together.
    cache
        Bytes that they may take.
    least_blocks
        Blocks wanted, for as many threads.
    """
    (sh, sw), (dh, dw) = window.strides[1:], window.dilations[1:]
    kh, kw = window.kernel[1:]
    height, width = window.outs[1:]
    halo = (kh - 1) * dh // sh
    pitch = width + (kw - 1) * dw // sw
    if sw == 1:
        # A row's right padding may be the next one's left padding.
        left = window.begins[2]
        pitch -= max(0, min(left, pitch - left - window.sizes[2], _COMMON))
    most = cache // (4 * sh * sw * pitch * max(1, channels)) - halo
    rows = max(1, min(most, height, -(-height // least_blocks)))
    rows = -(-height // -(-height // rows))  # blocks of one size
    held = rows + halo
    stride = sh * sw * held * pitch + _SLACK
    stride += -stride % 16
    if stride // 16 % 2 == 0:
        stride += 16
    return Planes(window, rows, held, pitch, stride)


@jit
def fill_planes(
    source: int, target: int, height: int, width: int, sh: int, sw: int,
    top: int, left: int, first: int, held: int, pitch: int, padding: np.float32,
) -> None:  # fmt: skip
    """
    Spread one channel's rows from output row ``first`` on over its planes.

    ``padding`` is written over rows outside the image only: beside rows it must be there
    already, by ``fill_floats``, where it stays from channel to channel.
    """
    for down in range(sh):
        # Row j of a plane is input row ``(first + j) * sh + down - top``.
        begin_row = min(held, max(0, (top - down + sh - 1) // sh - first))
        end_row = (height + top - down + sh - 1) // sh - first
        end_row = min(held, max(begin_row, end_row))
        h = (first + begin_row) * sh + down - top
        for right in range(sw):
            fill_floats(target, begin_row * pitch, padding)
            after = (held - end_row) * pitch
            fill_floats(target + end_row * pitch * 4, after, padding)
            begin = min(pitch, max(0, (left - right + sw - 1) // sw))
            end = min(pitch, max(begin, (width + left - right + sw - 1) // sw))
            at = source + (h * width + begin * sw + right - left) * 4
            here = target + (begin_row * pitch + begin) * 4
            rows, count = end_row - begin_row, end - begin
            if sw == 1:
                copy_block(at, sh * width * 4, here, pitch * 4, rows, count)
            elif sw == 2:
                thin_block(at, sh * width * 4, here, pitch * 4, rows, count)
            else:
                thin_rows(at, sh * width * 4, here, pitch * 4, rows, count, sw)
            target += held * pitch * 4
