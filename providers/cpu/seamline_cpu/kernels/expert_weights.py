"""
Weights of many experts, packed once.

All experts of a layer are one packed matrix, in which each begins at a group of its own,
so that they share a form, and the bytes from one to the next are a constant.
"""

from __future__ import annotations

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cpu.kernels.nbits_layout import GROUP, Packed, Source, fewest_groups, pack

__all__ = ["Experts", "pack_experts", "padded_rows"]


@attrs.frozen(eq=False)
class Experts:
    """
    Weights of one layer of all experts.

    Attributes
    ----------
    packed
        Rows of expert ``e`` begin at row ``e * rows``.
    rows
        Rows kept for each expert, whole groups.
    """

    packed: Packed
    experts: int
    n: int

    @property
    def rows(self) -> int:
        """Give the rows that each expert takes."""
        return padded_rows(self.n)


def padded_rows(n: int) -> int:
    """Give the rows that N of one expert are filled up to."""
    return fewest_groups(n) * GROUP


def pack_experts(
    codes: Array, scales: Array, zeros: Array | None, bits: int, k: int, block: int,
    table: str = "",
) -> Experts:  # fmt: skip
    """
    Pack the weights of one layer.

    Parameters
    ----------
    codes
        uint8, (experts, N, bytes of K), low bits first.
    scales
        (experts, N, blocks).
    zeros
        uint8 codes, (experts, N, blocks), or None for the middle code.
    block
        Codes of K with one scale, a multiple of 16; K itself is filled up to it.
    table
        The table whose values codes stand for; empty for numbers.
    """
    experts, n = codes.shape[:2]
    rows, blocks = padded_rows(n), scales.shape[2]
    width = blocks * block * bits // 8
    filled = _filled(codes, rows, width).reshape(experts * rows, blocks, -1)
    parts = [
        None if x is None else _filled(x, rows, blocks).reshape(experts * rows, blocks)
        for x in (scales, zeros)
    ]
    assert parts[0] is not None
    source = Source(filled, parts[0], parts[1], k, bits, table=table)
    return Experts(pack(source), experts, n)


def _filled(x: Array, rows: int, width: int) -> Array:
    """Give (experts, n, w) as (experts, rows, width), with zeros where there is no more."""
    if x.shape[1:] == (rows, width):
        return x
    out = np.zeros((len(x), rows, width), x.dtype)
    out[:, : x.shape[1], : x.shape[2]] = x
    return out
