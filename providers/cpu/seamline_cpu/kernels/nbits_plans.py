"""
How four and more rows of float32 activations are multiplied by packed weights.

One table, by the registers of a variant. Its numbers were found by measuring products of
several shapes, each beside the others and onnxruntime in turns.
"""

from __future__ import annotations

import attrs

from seamline_cpu.kernels.nbits_layout import GROUP
from seamline_cpu.kernels.tile_turns import divided
from seamline_cpu.row_tiles import HEIGHTS, height
from seamline_cpu.vectors import REGISTER

__all__ = ["FROM_ROWS", "Pieces", "Plan", "piece_of", "pieces_of", "plan", "said"]

FROM_ROWS = 4  #: that are copied in pieces; fewer are multiplied as they are


@attrs.frozen
class Pieces:
    """
    What fits one size of registers.

    Attributes
    ----------
    unpacked
        Rows from which weights are unpacked to memory; fewer have them from registers.
    pairs
        Rows up to which weights in registers are of two groups, which read a row's values
        once; for more rows sums of one group are enough to keep a core busy.
    wide
        Registers of columns in a tile of unpacked weights.
    piece
        Floats of K: a panel's piece takes half of a first cache, or two thirds.
    high
        Rows in a turn: their piece takes part of a second cache.
    most
        Panels in a turn.
    """

    unpacked: int
    pairs: int
    wide: int
    piece: int
    high: int
    most: int


#: By 32-bit lanes in a register.
_TABLE = {
    16: Pieces(27, 8, 2, 256, 256, 16),
    8: Pieces(6, 0, 2, 256, 192, 16),
    4: Pieces(4, 0, 4, 256, 192, 16),
}


@attrs.frozen
class Plan:
    """
    One product's tiles and turns.

    Attributes
    ----------
    unpacked
        Weights are unpacked to memory.
    rows, columns
        Of a tile.
    piece
        Floats of K that are taken at once.
    per, high
        Panels and rows in a turn.
    """

    unpacked: bool
    rows: int
    columns: int
    piece: int
    per: int
    high: int


def pieces_of(variant: str) -> Pieces:
    """Give the table's entry for a variant."""
    return _TABLE[REGISTER[variant]]


def piece_of(variant: str, block: int) -> int:
    """Give the floats of K in a piece: whole blocks."""
    return max(pieces_of(variant).piece // block, 1) * block


def plan(variant: str, m: int, n: int, block: int, threads: int) -> Plan:
    """Plan the product of ``m`` rows by ``n`` rows of weights, in blocks of ``block``."""
    fits, lanes = pieces_of(variant), REGISTER[variant]
    unpacked = m >= fits.unpacked
    rows = height(m, lanes) if unpacked else m
    columns = GROUP * (2 if m <= fits.pairs else 1)
    if unpacked:
        columns = fits.wide * lanes
    turns = divided(
        m, rows, -(-n // columns), threads, most_rows=fits.high, most_panels=fits.most
    )
    piece = piece_of(variant, block)
    return Plan(unpacked, rows, columns, piece, turns.per, turns.high)


def said(variant: str) -> str:
    """Say in words for a claim how float32 rows are multiplied."""
    fits, lanes = pieces_of(variant), REGISTER[variant]
    heights = " or ".join(str(h) for h in sorted(HEIGHTS[lanes]))
    return (
        f"below {fits.unpacked} rows weights become float32 in registers, from there on in "
        f"pieces of {fits.piece} of K by {fits.wide * lanes} columns, for tiles of {heights} "
        "rows, as was measured to be quickest for such registers"
    )
