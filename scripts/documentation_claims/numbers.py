"""
Numbers as they are written in text: digits in groups, powers of ten, fractions, words.

``NUMBER`` and ``WORD`` are sources of verbose patterns; ``decimal`` gives the value of what
they match. Thousands may be parted by a comma, an underscore or a space, never by a full
stop, which would make a number of every version.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

__all__ = ["DIGITS", "NUMBER", "NUMBERS", "WORD", "decimal"]

_GROUP = "[ _'\u2019\u00a0\u2009\u202f]"
_PARTS = "\u00bc\u00bd\u00be\u2150-\u215e"
_RAISED = "\u207b?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+"
_POWER = rf"10(?:\^[-\u2212]?\d+|{_RAISED})"
DIGITS = rf"""(?:(?:
    {_POWER}
    |\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?(?!\d)
    |\d{{1,3}}(?:{_GROUP}\d{{3}})+(?:\.\d+)?(?![\d.]*\d)
    |\d*\s?[{_PARTS}]
    |\d+(?:\.\d+)?(?:[eE][-+]?\d+)?
    |\.\d+
)(?:\s?[\u00d7x\u00b7]\s?{_POWER})?)"""
NUMBER = rf"""(?<![\w.\#])(?:(?<![\w.)\]])[-+\u2212])?{DIGITS}"""
NUMBERS = rf"""(?:
    {NUMBER}(?:,\s{NUMBER}){{0,6}},?\s(?:and|or)\s{NUMBER}
    |{NUMBER}(?:\s?(?:[-\u2010-\u2014\u2026]|\.\.\.?)\s?|\sto\s){NUMBER}
    |{NUMBER}
)"""

_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
    "eighty": 80, "ninety": 90,
}  # fmt: skip
_WORDS: dict[str, int | str] = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, **_TENS,
    "hundred": 100, "thousand": 1000, "dozen": 12, "twice": 2, "thrice": 3,
    "half": "0.5", "quarter": "0.25", "third": "0.333",
    "halv": "0.5", "doubl": 2, "tripl": 3, "magnitude": 10,
}  # fmt: skip
WORD = rf"(?<!\w)(?i:(?:(?:{'|'.join(_TENS)})-)?(?:{'|'.join(_WORDS)}))"

_TIMES = re.compile(r"\s?[\u00d7x\u00b7]\s?")
_TEN = re.compile(rf"10(?:\^(?P<plain>-?\d+)|(?P<raised>{_RAISED}))")
_PART = re.compile(rf"(?P<whole>\d*)\s?(?P<part>[{_PARTS}])")


def decimal(text: str) -> Decimal:
    """Give the value of a number as it is written, of digits or a word."""
    words = text.lower().split("-")
    if all(word in _WORDS for word in words):
        return sum((Decimal(_WORDS[word]) for word in words), Decimal(0))
    text = text.replace("\u2212", "-")
    value = Decimal(-1 if text.startswith("-") else 1)
    for factor in _TIMES.split(text.lstrip("+-")):
        value *= _factor(factor)
    return value


def _factor(text: str) -> Decimal:
    if ten := _TEN.fullmatch(text):
        exponent = unicodedata.normalize("NFKC", ten["plain"] or ten["raised"])
        return Decimal(1).scaleb(int(exponent.replace("\u2212", "-")))
    if part := _PART.fullmatch(text):
        fraction = Decimal(str(unicodedata.numeric(part["part"])))
        return Decimal(part["whole"] or 0) + fraction
    return Decimal(re.sub(rf",|{_GROUP}", "", text))
