"""
The lines of a page that a reader sees as prose.

Fenced code and comments of several lines are left out, and the marks of quotations. What
hides text has to be read as strictly as a browser's Markdown does: a fence that is none, or
that ended with the list or the quotation it stood in, would hide the claims behind it. The
body of a MyST directive such as ``{note}`` is prose in a fence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

__all__ = ["ITEM", "prose"]

ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_FENCE = re.compile(
    r"\s*(?P<item>(?:[-*+]|\d+[.)])\s+)?(?P<fence>`{3,}(?!.*`)|~{3,}|:{3,}(?=\s*\{|\s*$))\s*"
    r"(?P<directive>\{(?P<name>[\w:-]+)\})?(?P<rest>.*)"
)
_CODE = {
    "code", "code-block", "code-cell", "doctest", "graphviz", "include", "literalinclude",
    "math", "mermaid", "parsed-literal", "sourcecode", "testcode", "toctree",
}  # fmt: skip
_QUOTE = re.compile(r"\s{0,3}(?:>\s?)+")
_CODE_INDENT = 4  # what is indented by more than three is no fence, but text or code


@attrs.frozen
class _Fence:
    """An open fence; ``indent`` is where the list item around it has its text."""

    mark: str
    is_code: bool
    quoted: bool
    indent: int

    def closes(self, line: str) -> bool:
        bare = line.strip()
        return len(bare) >= len(self.mark) and not bare.strip(self.mark[0])


def prose(text: str) -> Iterator[tuple[int, str]]:
    """
    Give the lines of prose with their numbers, from 1.

    What parts paragraphs, a fence or a comment, gives an empty line; a directive gives its
    name and title, ``{note} title``, as a paragraph.
    """
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        for shown in reader.read(line.expandtabs(4)):
            yield number, shown


class _Reader:
    """Goes through a page and knows what is open: fences, a list item, a comment."""

    def __init__(self) -> None:
        self._fences: list[_Fence] = []
        self._content = 0
        self._in_comment = False

    def read(self, whole: str) -> list[str]:
        """Give what a line shows: itself, nothing, or lines that part it from others."""
        quote = _QUOTE.match(whole)
        self._leave(whole, quoted=quote is not None)
        top = self._fences[-1] if self._fences else None
        line = whole[quote.end() :] if quote else whole
        if top and top.closes(line if top.quoted or not top.is_code else whole):
            self._fences.pop()
            return [""]
        if top and top.is_code:
            return []
        if self._in_comment or (line.lstrip().startswith("<!--") and "-->" not in line):
            _, closed, rest = line.partition("-->")
            self._in_comment = not closed
            return [rest]
        opened = _FENCE.fullmatch(line)
        if opened and self._is_fence(opened):
            return self._open(opened, quoted=quote is not None)
        self._enter(line)
        return [line]

    def _leave(self, line: str, *, quoted: bool) -> None:
        """Close the fences whose quotation or list item has ended."""
        indent = len(line) - len(line.lstrip())
        while self._fences:
            top = self._fences[-1]
            dedented = bool(line.strip()) and not quoted and indent < top.indent
            if not dedented and (quoted or not top.quoted):
                break
            self._fences.pop()

    def _enter(self, line: str) -> None:
        """Note where the text of the list item begins that a line is in."""
        if item := ITEM.match(line):
            self._content = item.end()
        elif line.strip():
            self._content = min(self._content, len(line) - len(line.lstrip()))

    def _is_fence(self, opened: re.Match[str]) -> bool:
        if opened["fence"][0] == ":" and not opened["directive"]:
            return False
        column = opened.start("fence")
        within = column - self._content if column >= self._content else column
        return bool(opened["item"]) or within < _CODE_INDENT

    def _open(self, opened: re.Match[str], *, quoted: bool) -> list[str]:
        column = opened.start("fence")
        if opened["item"]:
            self._content = column
        indent = self._content if column >= self._content else 0
        is_code = not opened["directive"] or opened["name"] in _CODE
        self._fences.append(_Fence(opened["fence"], is_code, quoted, indent))
        return [""] if is_code else ["", f"{opened['directive']} {opened['rest']}", ""]
