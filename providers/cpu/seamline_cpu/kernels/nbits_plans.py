"""
How many rows of float32 activations are multiplied by packed weights: tiles and pieces.

One table, by the registers of a variant. Its numbers were found by measuring products of
several shapes, each beside the others and onnxruntime in turns.
"""

from __future__ import annotations

import attrs

from seamline_cpu.row_tiles import HEIGHTS, height
from seamline_cpu.vectors import REGISTER

__all__ = ["Pieces", "Plan", "pieces_of", "plan", "said"]

_EACH = 0.1  # of a panel's time: what a turn costs beside its panels
_UNPACKED = 4  # rows whose products take as long as to unpack a panel


@attrs.frozen
class Pieces:
    """
    What fits one size of registers.

    Attributes
    ----------
    least
        Rows from which weights are unpacked to memory; fewer take them from registers.
    wide
        Registers of columns in a tile.
    piece
        Floats of K: a panel's piece takes half of a first cache.
    high
        Rows in a turn: their piece takes part of a second cache.
    most
        Panels in a turn.
    """

    least: int
    wide: int
    piece: int
    high: int
    most: int


#: By 32-bit lanes in a register.
_TABLE = {
    16: Pieces(17, 2, 256, 512, 8),
    8: Pieces(6, 2, 256, 192, 8),
    4: Pieces(8, 4, 256, 192, 8),
}


@attrs.frozen
class Plan:
    """
    One product's tiles and turns.

    Attributes
    ----------
    rows, wide
        Rows, and registers of columns, of a register tile.
    piece
        Floats of K that are taken at once.
    per, high
        Panels and rows in a turn.
    """

    rows: int
    wide: int
    piece: int
    per: int
    high: int


def pieces_of(variant: str) -> Pieces:
    """Give the table's entry for a variant."""
    return _TABLE[REGISTER[variant]]


def plan(variant: str, m: int, n: int, block: int, threads: int) -> Plan:
    """Plan the product of ``m`` rows by ``n`` rows of weights, in blocks of ``block``."""
    fits = pieces_of(variant)
    lanes = REGISTER[variant]
    rows, panels = height(m, lanes), -(-n // (fits.wide * lanes))
    heights, least = -(-m // rows), -(-m // fits.high)

    def time(way: tuple[int, int]) -> float:
        """Give what the thread that is last takes, by panels of rows."""
        per, high = way
        turns = -(-m // high) * -(-panels // per)
        return -(-turns // threads) * (per + _EACH) * (high + _UNPACKED)

    # Few panels for many threads: these divide the rows too.
    parts = range(least, min(heights, least + 2 * threads) + 1)
    ways = [
        (per, -(-heights // count) * rows)
        for count in parts
        for per in range(1, fits.most + 1)
    ]
    per, high = min(ways, key=time)
    return Plan(rows, fits.wide, max(fits.piece, block), per, high)


def said(variant: str) -> str:
    """Say in words for a claim how float32 rows are multiplied."""
    fits = pieces_of(variant)
    heights = " or ".join(str(h) for h in sorted(HEIGHTS[REGISTER[variant]]))
    return (
        f"below {fits.least} rows weights become float32 in registers, from there on in "
        f"pieces of {fits.piece} of K by {fits.wide * REGISTER[variant]} columns, for tiles "
        f"of {heights} rows"
    )
