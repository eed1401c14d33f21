"""
Hold performance claims in the documentation to measured records.

A claim is a number with a unit of time, a rate, a percentage or a factor, in the prose or
a table of README, CHANGELOG, CONTRIBUTING or ``docs``. It cites a record, that is, links to
a file under ``docs/performance`` which exists and has that number in it; or it is marked as
no measurement of ours. CONTRIBUTING.md has the rule in full.

    python scripts/documentation_claims.py [ROOT]

prints each claim that stands alone, and fails if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

__all__ = ["Block", "Claim", "blocks_of", "problems"]

RECORDS = Path("docs", "performance")
_NUMBER = r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_UNITS = r"""
    (?:ns|µs|μs|us|ms|s|sec|secs|seconds?|min|minutes?|h|hours?
      |(?:milli|micro|nano)seconds?)\b(?!-)
    |(?:[\w.]+\ ?)?(?:/\ ?s|/\ ?min|/\ ?h|/\ ?second)\b
    |[\w.]+\ (?:per|a|each)\ (?:second|minute|hour)\b
    |(?:[kMG]?Hz|[KMGTP]?FLOPS)\b
    |%|per\ ?cent\b
    |\u00d7(?!\ ?\d)
    |times\ (?:as\ \w+|faster|slower|quicker|less|more|fewer|smaller|larger)\b
"""
_CLAIM = re.compile(
    rf"(?<![\w.#])(?P<number>{_NUMBER})(?:[ \u00a0\u202f-]?(?:{_UNITS})|x(?![\w]))",
    re.VERBOSE,
)
_ANY_NUMBER = re.compile(rf"(?<![\w.])(?:{_NUMBER})(?![\d])")
_HEADING = re.compile(
    r"(?<!\w)(?:ns|µs|μs|us|ms|s|seconds|minutes|[\w.]+ ?/ ?s|\w+ per second|[kMG]?Hz"
    r"|[KMGTP]?FLOPS)(?!\w)|%|per ?cent|\u00d7"
)
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_FENCE = re.compile(r"\s*(?:[-*+]|\d+\.)?\s*(`{3,}|~{3,})")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
_MARK = re.compile(
    r"\((?:estimate|intent)(?:[:;,][^)]*)?\)"
    r"|\(quoted from \[[^\]]+\]\([^)]+\)\)"
    r"|<!-- setting -->",
    re.IGNORECASE,
)
_SUPERSEDED = re.compile(r"superseded by\b(?P<rest>[^\n]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """
    A paragraph, a list item, a heading or a whole table.

    Attributes
    ----------
    line
        Number of its first line, from 1.
    caption
        The paragraph that leads a table, or ends in a colon before a list; its links and
        marks count for the block.
    """

    line: int
    text: str
    caption: str = ""


@dataclass(frozen=True)
class Claim:
    """A number with a unit, as it is written, and its line."""

    line: int
    text: str
    number: Decimal


def problems(root: Path) -> list[str]:
    """Give what is wrong with the claims and the records below a project's root."""
    found: list[str] = []
    for path in _pages(root):
        for block in blocks_of(path.read_text("utf-8")):
            found += _block_problems(root, path, block)
    return found + list(_record_problems(root))


def _pages(root: Path) -> list[Path]:
    pages = [root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    pages += sorted((root / "docs").rglob("*.md"))
    records = root / RECORDS
    return [
        page
        for page in pages
        if page.is_file()
        and "_build" not in page.parts
        and (records not in page.parents or page == records / "index.md")
    ]


def blocks_of(text: str) -> list[Block]:
    """Split Markdown into blocks, without its fenced code."""
    splitter = _Splitter()
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1].startswith(fence):
                fence = ""
        elif opened:
            splitter.end()
            fence = opened[1]
        else:
            splitter.take(number, line)
    splitter.end()
    return splitter.blocks


class _Splitter:
    """Gathers lines into blocks; remembers the paragraph that leads a list or a table."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._lines: list[str] = []
        self._begin = 0
        self._lead = ""

    def take(self, number: int, line: str) -> None:
        """Add a line, to the block that is open or to a new one."""
        if not line.strip() or (self._lines and _begins(line, self._lines[0])):
            self.end()
        if line.strip():
            self._begin = self._begin if self._lines else number
            self._lines.append(line)

    def end(self) -> None:
        """Close the block that is open."""
        if not self._lines:
            return
        text, kind = "\n".join(self._lines), _kind(self._lines[0])
        led = kind == "table" or (kind == "item" and self._lead.endswith(":"))
        self.blocks.append(Block(self._begin, text, self._lead if led else ""))
        if kind in ("text", "heading"):
            self._lead = text if kind == "text" else ""
        self._lines = []


def _kind(line: str) -> str:
    if line.lstrip().startswith("|"):
        return "table"
    if line.startswith("#"):
        return "heading"
    return "item" if _ITEM.match(line) else "text"


def _begins(line: str, first: str) -> bool:
    """Tell whether a line begins another block than the one that began with ``first``."""
    kind, before = _kind(line), _kind(first)
    return (
        kind in ("item", "heading")
        or before == "heading"
        or ((kind == "table") != (before == "table"))
    )


def claims_of(block: Block) -> list[Claim]:
    """Give the claims in a block; code and the targets of links are none."""
    bare = _CODE.sub(lambda code: " " * len(code[0]), block.text)
    bare = _LINK.sub(lambda link: "]" + " " * (len(link[0]) - 1), bare)
    lines = bare.split("\n")
    claims = [
        Claim(
            block.line + bare.count("\n", 0, found.start()),
            " ".join(found[0].split()),
            _decimal(found["number"]),
        )
        for found in _CLAIM.finditer(bare)
        if not re.fullmatch(r"(?:19|20)\d\ds", found[0])  # "the 1990s"
    ]
    if _kind(lines[0]) == "table":
        claims += _columns(block.line, lines)
    return claims


def _columns(first: int, lines: list[str]) -> Iterator[Claim]:
    """Give the numbers below a heading that names a unit: ``| ms |``, ``| time (s) |``."""
    heads = _cells(lines[0])
    for number, line in enumerate(lines[2:], first + 2):
        for head, cell in zip(heads, _cells(line), strict=False):
            if not _HEADING.search(head) or _CLAIM.search(cell):
                continue
            for found in _ANY_NUMBER.finditer(cell):
                yield Claim(number, f"{found[0]} ({head})", _decimal(found[0]))


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _decimal(text: str) -> Decimal:
    return Decimal(text.replace(",", ""))


def _block_problems(root: Path, page: Path, block: Block) -> Iterator[str]:
    claims = claims_of(block)
    around = f"{block.text}\n{block.caption}"
    if not claims or _MARK.search(around):
        return
    name = page.relative_to(root)
    cited = list(_cited(root, page, around))
    if missing := [record for record in cited if not record.is_file()]:
        for record in missing:
            yield f"{name}:{block.line}: cites {record.name}, which is not there"
        return
    known = {number for record in cited for number in _numbers(record)}
    for claim in claims:
        where = f"{name}:{claim.line}: {claim.text!r}"
        if not cited:
            yield (
                f"{where} cites no record under {RECORDS.as_posix()}, and is not marked "
                "(estimate), (intent), (quoted from [...](...)) or <!-- setting -->"
            )
        elif claim.number not in known:
            names = ", ".join(record.name for record in cited)
            yield f"{where} is not in {names}, which it cites"


def _cited(root: Path, page: Path, text: str) -> Iterator[Path]:
    """Give the records that a text links to."""
    records = (root / RECORDS).resolve()
    for target in _LINK.findall(text):
        path = (page.parent / target.partition("#")[0]).resolve()
        if records in path.parents and path.name != "index.md":
            yield path


def _numbers(record: Path) -> set[Decimal]:
    text = record.read_text("utf-8")
    return {_decimal(found) for found in _ANY_NUMBER.findall(text)}


def _record_problems(root: Path) -> Iterator[str]:
    """Check that a superseded record names its successor, and that this is no circle."""
    successors: dict[Path, Path] = {}
    for record in sorted((root / RECORDS).resolve().rglob("*.md")):
        if record.name == "index.md":
            continue
        name = record.relative_to(root.resolve())
        for said in _SUPERSEDED.finditer(record.read_text("utf-8")):
            target = _LINK.search(said["rest"])
            if target is None:
                yield f"{name}: it says 'Superseded by' without a link to its successor"
                continue
            successor = (record.parent / target[1]).resolve()
            if not successor.is_file():
                yield f"{name}: superseded by {target[1]}, which is not there"
            successors[record] = successor
    for record in successors:
        seen, at = {record}, successors[record]
        while at in successors and at not in seen:
            seen.add(at)
            at = successors[at]
        if at in seen:
            yield f"{record.relative_to(root.resolve())}: superseded by itself"


def main() -> int:
    """Print what is wrong; give 1 if anything is."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    root = root if root.is_dir() else root.parents[1]
    found = problems(root)
    print("\n".join(found) or "every claim cites its record")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
