"""
How many rows of float32 activations are multiplied by packed weights: tiles and pieces.

One table, by the registers of a variant. Its numbers were found by measuring products of
several shapes, each beside the others and onnxruntime in turns.
"""

from __future__ import annotations

import attrs

from seamline_cpu.kernels.tile_turns import divided
from seamline_cpu.row_tiles import HEIGHTS, height
from seamline_cpu.vectors import REGISTER

__all__ = ["Pieces", "Plan", "pieces_of", "plan", "said"]


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
    turns = divided(
        m, rows, panels, threads, most_rows=fits.high, most_panels=fits.most
    )
    return Plan(rows, fits.wide, max(fits.piece, block), turns.per, turns.high)


def said(variant: str) -> str:
    """Say in words for a claim how float32 rows are multiplied."""
    fits = pieces_of(variant)
    heights = " or ".join(str(h) for h in sorted(HEIGHTS[REGISTER[variant]]))
    return (
        f"below {fits.least} rows weights become float32 in registers, from there on in "
        f"pieces of {fits.piece} of K by {fits.wide * REGISTER[variant]} columns, for tiles "
        f"of {heights} rows"
    )
