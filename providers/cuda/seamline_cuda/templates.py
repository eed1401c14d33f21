"""Kernels' texts from templates: words and lines in capitals stand for what is put there."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["filled", "indented"]

_WORD = re.compile(r"\b[A-Z][A-Z_]*\b")


def filled(template: str, **parts: str | int | Sequence[str]) -> list[str]:
    """
    Give a template's lines with its capitals replaced.

    Parameters
    ----------
    parts
        By name: text or a number in place of a word, lines in place of a whole line, which
        keep its indentation. Capitals without a part stay, as names of constants.
    """
    found: list[str] = []
    for line in template.splitlines():
        lines = parts.get(line.strip())
        if lines is not None and not isinstance(lines, (str, int)):
            indent = line[: len(line) - len(line.lstrip())]
            found += [indent + one for one in lines]
        else:
            found.append(_WORD.sub(lambda m: str(parts.get(m[0], m[0])), line))
    return found


def indented(lines: Sequence[str]) -> list[str]:
    """Put lines one level further in."""
    return [f"    {line}" for line in lines]
