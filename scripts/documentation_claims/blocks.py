"""
A page of Markdown in blocks: paragraphs, items of lists, headings, tables.

A block is what a citation or a mark can speak for at most.
"""

from __future__ import annotations

import re

import attrs

from .lines import ITEM, prose
from .plain import MARK, plain

__all__ = ["DELIMITER", "Block", "blocks_of"]

_HTML_TABLE = re.compile(r"(?:[^`]|`[^`]*`)*?<table\b", re.IGNORECASE)
DELIMITER = re.compile(r"(?=.*\|)(?=.*-)[\s:|-]+")


@attrs.frozen
class Block:
    """
    A paragraph, a list item, a heading or a whole table.

    Attributes
    ----------
    line
        Number of its first line, from 1.
    kind
        ``text``, ``item``, ``heading``, ``table`` or ``html table``.
    caption
        The paragraph before a table, or before a list if it ends in a colon.
    """

    line: int
    text: str
    kind: str = "text"
    caption: str = ""


def blocks_of(text: str) -> list[Block]:
    """Split Markdown into blocks, without its fenced code."""
    splitter = _Splitter()
    for number, line in prose(text):
        splitter.take(number, line)
    splitter.end()
    return splitter.blocks


class _Splitter:
    """Gathers lines into blocks; remembers the paragraph that leads a list or a table."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._lines: list[str] = []
        self._begin = 0
        self._kind = "text"
        self._lead = ""
        self._led = ""

    def take(self, number: int, line: str) -> None:
        """Add a line, to the block that is open or to a new one."""
        if self._lines and self._kind == "html table":
            self._lines.append(line)
            if "</table" in line.lower():
                self.end()
            return
        if self._heads_a_table(line):
            head = self._lines.pop()
            self.end()
            self._lines, self._begin, self._kind = [head], number - 1, "table"
        elif not line.strip() or (self._lines and self._begins(line)):
            self.end()
        if line.strip():
            if not self._lines:
                self._begin, self._kind = number, _kind(line)
            self._lines.append(line)
            if self._kind == "html table" and "</table" in line.lower():
                self.end()

    def _heads_a_table(self, line: str) -> bool:
        return (
            bool(self._lines)
            and self._kind != "table"
            and "|" in self._lines[-1]
            and DELIMITER.fullmatch(line) is not None
        )

    def _begins(self, line: str) -> bool:
        """Tell whether a line begins another block than the one that is open."""
        kind = _kind(line)
        if self._kind == "table":
            return "|" not in line
        return kind != "text" or self._kind == "heading"

    def end(self) -> None:
        """Close the block that is open."""
        if not self._lines:
            return
        text, kind = "\n".join(self._lines), self._kind
        self.blocks.append(Block(self._begin, text, kind, self._caption(kind)))
        if kind in ("text", "heading"):
            self._lead, self._led = (text if kind == "text" else ""), ""
        else:
            self._led = kind
        self._lines = []

    def _caption(self, kind: str) -> str:
        """Give the paragraph that leads a block of a kind: not one above another kind."""
        if kind in ("text", "heading") or self._led not in ("", kind):
            return ""
        introduces = plain(self._lead).replace(MARK, "").rstrip().endswith(":")
        return self._lead if introduces or "table" in kind else ""


def _kind(line: str) -> str:
    if line.lstrip().startswith("|"):
        return "table"
    if _HTML_TABLE.match(line):
        return "html table"
    if line.startswith("#"):
        return "heading"
    return "item" if ITEM.match(line) else "text"
