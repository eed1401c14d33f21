"""
How several rows of activations are multiplied by packed weights.

For float32 a table, by the registers of a variant; for 8 bits from how many rows on a step's
codes stay in registers. Its numbers were found by measuring products of several shapes, each
beside the others and onnxruntime in turns.
"""

from __future__ import annotations

import attrs

from seamline_cpu.kernels.nbits_layout import GROUP
from seamline_cpu.kernels.tile_turns import divided
from seamline_cpu.row_tiles import HEIGHTS, height
from seamline_cpu.vectors import REGISTER

__all__ = [
    "FROM_ROWS",
    "MOST_HELD",
    "Pieces",
    "Plan",
    "holds_codes",
    "piece_of",
    "pieces_of",
    "plan",
    "said",
    "said_of_bytes",
]

FROM_ROWS = 4  #: that are copied in pieces; fewer are multiplied as they are
MOST_HELD = 16  #: rows of 8 bits whose sums have room beside a step's codes
_HELD_FROM = 7  # rows; for fewer, two groups of weights read activations half as often


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


def holds_codes(variant: str, m: int) -> bool:
    """Tell whether a step's codes stay in registers for ``m`` rows of 8 bits."""
    # Sixteen sums and eight registers of codes leave eight of thirty-two.
    return REGISTER[variant] == 16 and m >= _HELD_FROM


def said_of_bytes(variant: str) -> str:
    """Say in words for a claim how rows of 8 bits are multiplied; empty for one way only."""
    if not holds_codes(variant, _HELD_FROM):
        return ""
    return (
        f"from {_HELD_FROM} rows on codes are unpacked once for up to {MOST_HELD} rows of 8 "
        "bits, and stay in registers"
    )


def said(variant: str) -> str:
    """Say in words for a claim how float32 rows are multiplied."""
    fits, lanes = pieces_of(variant), REGISTER[variant]
    heights = " or ".join(str(h) for h in sorted(HEIGHTS[lanes]))
    return (
        f"below {fits.unpacked} rows weights become float32 in registers, from there on in "
        f"pieces of {fits.piece} of K by {fits.wide * lanes} columns, for tiles of {heights} "
        "rows, as was measured to be quickest for such registers"
    )
