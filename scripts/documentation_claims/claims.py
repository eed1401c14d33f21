"""
Claims: the quantities of a block that no mark speaks for.

A mark stands behind its number, in the same sentence, and speaks for that number, or that
range, alone. In a table it speaks for its cell; in the heading of a column or the label of a
row, for what is below or beside it. Before a table or a list, in a sentence that ends in a
colon and has no number of its own, it speaks for all of what follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

from .blocks import Block
from .plain import MARK, plain
from .quantities import Quantity, quantities_in
from .tables import cells_of

__all__ = ["Claim", "claims_of"]

_SENTENCE = re.compile(
    rf"(?<!e\.g)(?<!i\.e)(?<!vs)(?<!cf)(?<!approx)[.!?]['\")\]{MARK}]*\s+(?=[^\sa-z])"
)
_RANGE = re.compile("\\s*(?:to|[-\u2013\u2014])\\s*")


@attrs.frozen
class Claim:
    """A quantity and the number of its line."""

    line: int
    quantity: Quantity


def claims_of(block: Block) -> list[Claim]:
    """Give the claims in a block that stand without a mark."""
    if _introduced_by_a_mark(block):
        return []
    return list(_in_cells(block) if "table" in block.kind else _in_text(block))


def _in_text(block: Block) -> Iterator[Claim]:
    text = plain(block.text)
    quantities = quantities_in(text)
    marked = _marked(text, quantities)
    for quantity in quantities:
        if quantity.begin not in marked:
            yield Claim(block.line + text.count("\n", 0, quantity.begin), quantity)


def _in_cells(block: Block) -> Iterator[Claim]:
    for cell in cells_of(block):
        marked = _marked(cell.text, cell.quantities)
        for quantity in cell.quantities:
            if not cell.marked and quantity.begin not in marked:
                yield Claim(cell.line, quantity)


def _marked(text: str, quantities: Sequence[Quantity]) -> set[int]:
    """Give where the quantities begin that have a mark: each mark has one, or one range."""
    if MARK not in text:
        return set()
    starts = [0, *(end.end() for end in _SENTENCE.finditer(text))]
    marked = set()
    for mark in re.finditer(MARK, text):
        sentence = max(start for start in starts if start <= mark.start())
        behind = mark.start()
        for quantity in reversed(quantities):
            between = text[quantity.end : behind]
            if sentence <= quantity.begin < behind and (
                behind == mark.start() or _RANGE.fullmatch(between)
            ):
                marked.add(quantity.begin)
                behind = quantity.begin
    return marked


def _introduced_by_a_mark(block: Block) -> bool:
    caption = plain(block.caption)
    starts = [0, *(end.end() for end in _SENTENCE.finditer(caption))]
    last = caption[starts[-1] :]
    ends_in_colon = last.replace(MARK, "").rstrip().endswith(":")
    return MARK in last and ends_in_colon and not quantities_in(last)
