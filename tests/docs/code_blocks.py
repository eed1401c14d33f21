"""Code blocks of the documentation, and what the comment before each says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if "_build" not in page.parts
)

# <!-- runnable -->  the block runs, after those above it on the page;
# <!-- prints -->    what the block above it printed;
# <!-- file: PATH --> the block is that file.
_BLOCK = re.compile(
    r"^<!-- (?P<mark>runnable|prints|file: (?P<file>\S+)) -->\n+"
    r"^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block, its language, its mark, and the line that it begins on."""

    language: str
    mark: str
    file: str
    text: str
    line: int


def blocks_of(page):
    """Give the marked blocks of a page in order."""
    content = page.read_text("utf-8")
    return [
        Block(
            found["language"],
            "file" if found["file"] else found["mark"],
            found["file"] or "",
            found["text"],
            content.count("\n", 0, found.start("text")) + 1,
        )
        for found in _BLOCK.finditer(content)
    ]


def name_of(page):
    """Give a page's path in the repository, for a test's name."""
    return page.relative_to(ROOT).as_posix()
