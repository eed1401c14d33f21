"""
Records of measurements: what they hold, and which one stands for another.

A record says the unit of each of its numbers as any page does: beside it, in the heading of
its column, in the label of its row or in the paragraph above its table. What is no Markdown
says none; its numbers stand for any unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

from .blocks import blocks_of
from .numbers import NUMBER, decimal
from .pages import is_markdown
from .plain import links, plain
from .quantities import Quantity, quantities_in
from .tables import cells_of

__all__ = ["RECORDS", "Records"]

RECORDS = Path("docs", "performance")
_SUPERSEDED = re.compile(r"superseded by\b(?P<rest>[^\n]*)", re.IGNORECASE)
_NUMBER = re.compile(rf"{NUMBER}(?!\d)", re.VERBOSE)


class Records:
    """The records below a project's root; each is read once."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._folder = self._root / RECORDS
        self._quantities: dict[Path, list[Quantity]] = {}

    def cited(self, page: Path, text: str, targets: Mapping[str, str]) -> list[Path]:
        """Give the records that a text links to, whether they are there or not."""
        paths = [
            (page.parent / target.partition("#")[0]).resolve()
            for target in links(text, targets)
        ]
        return [
            path
            for path in paths
            if self._folder in path.parents and path.name != "index.md"
        ]

    def hold(self, record: Path, claimed: Quantity) -> bool:
        """Tell whether a record has a number in a unit."""
        if not is_markdown(record):
            return self.has_number(record, claimed.number)
        if record not in self._quantities:
            self._quantities[record] = list(_quantities(record.read_text("utf-8")))
        return any(claimed.equals(held) for held in self._quantities[record])

    def has_number(self, record: Path, number: Decimal) -> bool:
        """Tell whether a record has a number, of whatever."""
        text = record.read_text("utf-8")
        return any(decimal(found) == number for found in _NUMBER.findall(text))

    def problems(self) -> Iterator[str]:
        """Check that a superseded record names its successor, and that this is no circle."""
        successors: dict[Path, Path] = {}
        for record in sorted(self._folder.rglob("*.md")):
            if record.name == "index.md":
                continue
            name = record.relative_to(self._root)
            for said in _SUPERSEDED.finditer(record.read_text("utf-8")):
                target = next(iter(links(said["rest"], {})), None)
                if target is None:
                    yield f"{name}: it says 'Superseded by' without a link to its successor"
                    continue
                successor = (record.parent / target).resolve()
                if not successor.is_file():
                    yield f"{name}: superseded by {target}, which is not there"
                successors[record] = successor
        for record in successors:
            if _leads_back(record, successors):
                yield f"{record.relative_to(self._root)}: superseded by itself"


def _quantities(text: str) -> Iterator[Quantity]:
    yield from quantities_in(
        text
    )  # what a bench printed, between fences, counts as well
    for block in blocks_of(text):
        if "table" in block.kind:
            for cell in cells_of(block):
                yield from cell.quantities
        else:
            yield from quantities_in(plain(block.text))


def _leads_back(record: Path, successors: Mapping[Path, Path]) -> bool:
    seen, at = {record}, successors[record]
    while at in successors and at not in seen:
        seen.add(at)
        at = successors[at]
    return at in seen
