"""
Tables: what unit the heading of a column, the label of a row or the caption gives.

A bare number in a cell takes the unit of its column, else that of its row, else, beyond the
first column, that of the caption: a paragraph that begins with a unit or has ``in ms``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

from .blocks import DELIMITER, Block
from .numbers import NUMBER, decimal
from .plain import MARK, plain
from .quantities import Quantity, quantities_in
from .units import FACTOR, PERCENT, PERCENTS, RATE, RATES, TIME, Unit, unit

__all__ = ["Cell", "cells_of"]

_NAMED = rf"""(?:
    (?P<time>(?:
        (?i:(?:nano|micro|milli)?seconds|[num]secs?|secs?|minutes|mins|hours|hrs|days)
        |[num\u00b5\u03bc]s|(?<!['\u2019])s|(?<=[(\[])(?:h|min)(?=[)\]])
    )(?!\w))
    |(?P<rate>{RATES})
    |(?P<percentage>{PERCENTS})
    |(?P<factor>\u00d7(?!\s?(?:\d|[A-Z](?!\w)))|x\s(?=faster|slower|as\s)
        |(?i:speed[-\s]?ups?|ratios?|times\s(?:as\s\w+|faster|slower|quicker))(?!\w))
)"""
_HEADING = re.compile(rf"(?<![\w\d])(?<!\d\s){_NAMED}", re.VERBOSE)
_LABEL = re.compile(
    rf"(?:^|[,:(\[]\s?){_NAMED}(?:[)\]]|\s(?:per|a|an|each)\s.*|\s?/.*)?$",
    re.VERBOSE | re.DOTALL,
)
_CAPTION = re.compile(rf"(?:^|\bin\s|(?<!\w)[(\[]){_NAMED}", re.VERBOSE)
_NUMBER = re.compile(rf"{NUMBER}(?![\d\w])", re.VERBOSE)
_PIPE = re.compile(r"(?<!\\)\|")
_ROW = re.compile(r"<tr\b.*?(?=<tr\b|</tr|</table|\Z)", re.IGNORECASE | re.DOTALL)
_CELL = re.compile(
    r"<t[hd]\b[^>]*>(.*?)(?=<t[hd]\b|</t[hdr]|\Z)", re.IGNORECASE | re.DOTALL
)


@attrs.frozen
class Cell:
    """
    A cell with what it claims.

    Attributes
    ----------
    marked
        Whether the heading of its column or the label of its row has a mark.
    """

    line: int
    text: str
    quantities: tuple[Quantity, ...]
    marked: bool


def cells_of(block: Block) -> Iterator[Cell]:
    """Give the cells of a table, in its order."""
    rows = _html_rows(block) if block.kind == "html table" else _rows(block)
    if block.kind == "html table":  # what stands in no row: a caption, text before it
        outside = plain(_ROW.sub(lambda row: "\n" * row[0].count("\n"), block.text))
        yield Cell(block.line, outside, tuple(quantities_in(outside)), marked=False)
    line, heads = next(rows, (block.line, []))
    for head in heads:
        yield Cell(line, head, tuple(quantities_in(head)), marked=False)
    columns = [(_named(_HEADING, head), MARK in head) for head in heads]
    caption = _named(_CAPTION, plain(block.caption))
    for line, cells in rows:
        label = _named(_LABEL, cells[0]) or _told(heads, cells)
        row_marked = MARK in cells[0] and not quantities_in(cells[0])
        for place, text in enumerate(cells):
            named, marked = columns[place] if place < len(columns) else (None, False)
            if place:
                named, marked = named or label or caption, marked or row_marked
            yield Cell(line, text, _quantities(text, named), marked)


def _told(heads: list[str], cells: list[str]) -> tuple[str, Unit] | None:
    """Give the unit of a row that has a column for it."""
    for head, cell in zip(heads, cells, strict=False):
        if head.lower() in ("unit", "units"):
            return _named(_LABEL, cell)
    return None


def _quantities(text: str, named: tuple[str, Unit] | None) -> tuple[Quantity, ...]:
    """Give those with a unit of their own, and bare numbers if none is of the kind named."""
    found = quantities_in(text)
    if named is None or any(own.unit.kind == named[1].kind for own in found):
        return tuple(found)
    for number in _NUMBER.finditer(text):
        begin, end = number.span()
        if all(end <= own.begin or own.end <= begin for own in found):
            said = f"{number[0]} ({named[0]})"
            found.append(Quantity(begin, end, said, decimal(number[0]), named[1]))
    return tuple(sorted(found, key=lambda quantity: quantity.begin))


def _named(pattern: re.Pattern[str], text: str) -> tuple[str, Unit] | None:
    """Give the text and the unit that it names, if it names one."""
    found = pattern.search(text.replace(MARK, "").strip())
    if found is None:
        return None
    for kind in (TIME, RATE, PERCENT, FACTOR):
        if written := found[kind]:
            return _short(text), unit(kind, written)
    return None


def _short(text: str) -> str:
    words = text.replace(MARK, "").split()
    return " ".join(words[:6])


def _rows(block: Block) -> Iterator[tuple[int, list[str]]]:
    for line, row in enumerate(block.text.split("\n"), block.line):
        if not DELIMITER.fullmatch(row):
            inner = _PIPE.split(row.strip().removeprefix("|").removesuffix("|"))
            yield line, [plain(cell).strip() for cell in inner]


def _html_rows(block: Block) -> Iterator[tuple[int, list[str]]]:
    for row in _ROW.finditer(block.text):
        line = block.line + block.text.count("\n", 0, row.start())
        yield line, [plain(cell).strip() for cell in _CELL.findall(row[0])]
