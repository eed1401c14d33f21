"""
Markdown as it is read: without code, comments and emphasis, with entities resolved.

A claim is what a reader sees, so the rule looks at plain text. Every line break is kept, and
with it the number of each line. A mark (CONTRIBUTING.md lists them) becomes one character,
``MARK``, since some marks are comments; a link leaves its text.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping

__all__ = ["MARK", "blank", "definitions", "links", "plain"]

MARK = "\ue001"
_CODE_LEFT = "\ufffc"

_HIDDEN = re.compile(
    r"(?P<ticks>`+)(?!`)(?P<code>.*?)(?<!`)(?P=ticks)(?!`)"
    r"|(?P<setting><!-- setting -->)"
    r"|<!--.*?-->",
    re.DOTALL,
)
_IN_CODE = re.compile(
    r"\s*[-+]?[\d.,]+\s?(?:[nu\u00b5\u03bcm]?s|%|[x\u00d7])?\s*|[num\u00b5]s"
)
_MARK = re.compile(
    r"\((?:estimate|intent)(?:[:;,][^)]*)?\)|\(quoted\s+from\s+\[[^\]]+\]\([^)]+\)\)",
    re.IGNORECASE,
)
_LINK = re.compile(
    r"(?<![!\\])\[(?P<text>[^\[\]]*)\]"
    r"(?:\(\s*<?(?P<target>[^)\s>]+)>?[^)]*\)|\[(?P<label>[^\[\]]*)\])?"
)
_SEEN = re.compile(r"!?\[([^\[\]]*)\](?:\([^)]*\)|\[[^\[\]]*\])")
_DEFINITION = re.compile(
    r"^[ ]{0,3}\[(?P<label>[^\]^]+)\]:\s*<?(?P<target>[^\s>]+)>?.*$", re.MULTILINE
)
_TAG = re.compile(
    r"</?(?P<name>[a-zA-Z][\w-]*)"
    r"(?:\s+[a-zA-Z_:][\w.:-]*(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?)*\s*/?>"
    r"|<[a-z]+:[^<>\s]*>"
)
_INLINE = {"a", "abbr", "b", "code", "em", "i", "kbd", "small", "span", "strong", "sub", "sup", "u"}  # fmt: skip
_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~ \n])")
_EMPHASIS = re.compile(r"\*+|~~|==|\$|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)")
_WIDE = re.compile("[\uff01-\uff5e\u3300-\u33ff]")
_MARKUP = re.compile(
    r"[`<\[(&\\*~_=$\uff01-\uff5e\u3300-\u33ff\u00ad\u200b-\u200d\u2060\ufeff]"
)
_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")


def plain(text: str) -> str:
    """Give Markdown as it is read, marks as ``MARK``, with the same line breaks."""
    if not _MARKUP.search(text):
        return text
    text = _MARK.sub(lambda mark: _kept(MARK, mark[0]), blank(text))
    text = _DEFINITION.sub("", text)
    text = _SEEN.sub(lambda link: _kept(link[1], link[0]), text)
    text = _TAG.sub(_without_tag, text)
    text = _WIDE.sub(lambda wide: unicodedata.normalize("NFKC", wide[0]), text)
    text = _UNSEEN.sub("", html.unescape(_ESCAPE.sub("", text)))
    return _EMPHASIS.sub("", text)


def blank(text: str) -> str:
    """Remove code and comments; what is code for its looks only, a number, stays."""
    return _HIDDEN.sub(_without_code, text)


def links(text: str, targets: Mapping[str, str]) -> list[str]:
    """Give the targets of the links that a reader sees; ``targets`` gives those by label."""
    found = []
    for link in _LINK.finditer(_DEFINITION.sub("", blank(text))):
        label = link["label"] or link["text"]
        target = link["target"] or targets.get(label.lower())
        if target and link["text"].strip():
            found.append(target)
    return found


def definitions(text: str) -> dict[str, str]:
    """Give the targets that a page defines below its text, by label."""
    return {
        found["label"].lower(): found["target"]
        for found in _DEFINITION.finditer(blank(text))
    }


def _without_code(found: re.Match[str]) -> str:
    if found["setting"]:
        return MARK
    code = found["code"]
    shown = code or "" if found["ticks"] and _IN_CODE.fullmatch(code) else ""
    return _kept(shown or (_CODE_LEFT if found["ticks"] else ""), found[0])


def _without_tag(tag: re.Match[str]) -> str:
    return _kept("" if (tag["name"] or "").lower() in _INLINE else " ", tag[0])


def _kept(shown: str, instead_of: str) -> str:
    """Put one text for another, with as many line breaks."""
    return shown + "\n" * (instead_of.count("\n") - shown.count("\n"))
