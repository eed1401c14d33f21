"""Which files the rule reads: all Markdown of the project but its records."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_markdown", "pages_of"]

_MARKDOWN = re.compile(r".*\.(?:md|markdown)(?:\.template)?", re.IGNORECASE)
_NOT_OURS = {"_build", "build", "dist", "node_modules", "site-packages", "__pycache__"}


def is_markdown(path: Path) -> bool:
    """Tell it by the name; a template of Markdown is Markdown."""
    return _MARKDOWN.fullmatch(path.name) is not None


def pages_of(root: Path, records: Path) -> list[Path]:
    """
    Give the pages below a root, in order.

    Hidden folders, what tools built, and the records are left out; the records' index is a
    page like others.
    """
    return [
        page
        for page in sorted(_files(root))
        if is_markdown(page)
        and (root / records not in page.parents or page == root / records / "index.md")
    ]


def _files(root: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(root):
        below[:] = [
            name
            for name in below
            if not name.startswith(".")
            and name not in _NOT_OURS
            and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(folder, name) for name in names)
