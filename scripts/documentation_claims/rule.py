"""The rule itself: a claim cites a record that holds its number, in its unit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from .blocks import Block, blocks_of
from .claims import Claim, claims_of
from .pages import pages_of
from .plain import definitions
from .records import RECORDS, Records

__all__ = ["problems"]

_UNREAD = re.compile(r"\{(?:list|csv)-table\}")


def problems(root: Path) -> list[str]:
    """
    Give what is wrong with the claims and the records below a project's root.

    Parameters
    ----------
    root
        Folder of the project; its records are in ``docs/performance``.

    Returns
    -------
    list of str
        ``PAGE:LINE: what``, in the order of the pages; empty if all is well.
    """
    records = Records(root)
    found: list[str] = []
    for page in pages_of(root, RECORDS):
        text = page.read_text("utf-8")
        targets = definitions(text)
        for block in blocks_of(text):
            where = f"{page.relative_to(root)}:"
            found += [
                f"{where}{problem}"
                for problem in _of_block(records, page, block, targets)
            ]
    return found + list(records.problems())


def _of_block(
    records: Records, page: Path, block: Block, targets: Mapping[str, str]
) -> Iterator[str]:
    if unread := _UNREAD.match(block.text):
        yield f"{block.line}: {unread[0]} is not read for claims; write a table with pipes"
    claims = claims_of(block)
    if not claims:
        return
    cited = records.cited(page, f"{block.text}\n\n{block.caption}", targets)
    if missing := [record for record in cited if not record.is_file()]:
        for record in missing:
            yield f"{block.line}: cites {record.name}, which is not there"
        return
    for claim in claims:
        if problem := _of_claim(records, claim, cited):
            yield f"{claim.line}: {claim.quantity.text!r} {problem}"


def _of_claim(records: Records, claim: Claim, cited: list[Path]) -> str:
    quantity = claim.quantity
    if not cited:
        return (
            f"cites no record under {RECORDS.as_posix()}, and is not marked "
            "(estimate), (intent), (quoted from [...](...)) or <!-- setting -->"
        )
    if any(records.hold(record, quantity) for record in cited):
        return ""
    names = ", ".join(record.name for record in cited)
    if any(records.has_number(record, quantity.number) for record in cited):
        return f"is not in {names}, which it cites: the number there is no {quantity.unit.kind}"
    return f"is not in {names}, which it cites"
