"""
Quantities in plain text: numbers with a unit, however they are written.

The patterns are tried in turn, the more particular ones first; a stretch of text that one
has read is not read again. Words stand for numbers (``five times faster``), a range or a
list shares the unit at its end (``5 to 7 ms``), and a sign belongs to its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import attrs

from .units import FACTOR, PERCENT, PERCENTS, RATE, RATES, TIME, TIMES, Unit, unit

__all__ = ["NUMBER", "Quantity", "decimal", "quantities_in"]

_GROUP = "[ \u00a0\u2009\u202f]"
_DIGITS = rf"""(?:
    \d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?(?!\d)
    |\d{{1,3}}(?:{_GROUP}\d{{3}})+(?:\.\d+)?(?![\d.]*\d)
    |\d+(?:\.\d+)?(?:[eE][-+]?\d+)?
    |\.\d+
)"""
NUMBER = rf"""(?<![\w.\#])(?:(?<![\w.)\]])[-+\u2212])?{_DIGITS}"""
_NUMBERS = rf"""(?:
    {NUMBER}(?:,\s{NUMBER}){{0,6}},?\s(?:and|or)\s{NUMBER}
    |{NUMBER}(?:\s?(?:-|\u2010|\u2011|\u2013|\u2014|\.\.\.?|\u2026)\s?|\sto\s){NUMBER}
    |{NUMBER}
)"""
_WORDS: dict[str, int | str] = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20,
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90, "hundred": 100, "thousand": 1000, "dozen": 12,
    "twice": 2, "thrice": 3, "half": "0.5", "quarter": "0.25", "third": "0.333",
}  # fmt: skip
_WORD = rf"(?<![\w-])(?i:{'|'.join(_WORDS)})"
_MEASURE = (
    r"(?:\w+\s)?(?:speed|pace|throughput|bandwidth|rate|time|runtime|latency|duration"
    r"|performance|cost|overhead)"
)
_WHOSE = r"(?:the|its|their|our|that|[\w.]+['\u2019]s?)"
_THAN = rf"""(?i:
    as\s\w+|{_WHOSE}\s{_MEASURE}|that\sof|what\s[\w.]+\s(?:takes|needs)
    |speed[-\s]?ups?|improvements?|gains?
    |faster|slower|quicker|less|more|fewer|smaller|larger|bigger|longer|shorter|cheaper
    |higher|lower|better|worse
)(?!\w)"""
_FACTORS = rf"""(?:
    \u00d7(?!\s?(?:\d|[A-Z](?!\w)))
    |fold(?!\w)
    |times\s{_THAN}
)"""
_TIGHT = r"(?:\s{0,3}|[-\u2010\u2011])"
_SPEED = r"(?i:faster|slower|quicker|cheaper|speed(?:s|ed)?[-\s]?ups?|ratios?)(?!\w)"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.VERBOSE)


_COMPOUND = _pattern(r"""(?<![\w.:\#-])(?:
    (?:(?P<h>\d+)\s?(?:h|hrs?|hours?)\s?)?(?P<m>\d+)\s?m(?:ins?|inutes?)?\s?
        (?P<s>\d+(?:\.\d+)?)\s?s(?:ecs?|econds?)?
    |(?P<h2>\d+)\s?(?:h|hrs?|hours?)\s?(?P<m2>\d+)\s?m(?:ins?|inutes?)?
    |(?<!\d[T\s])(?P<h3>\d+):(?P<m3>\d\d):(?P<s3>\d\d(?:\.\d+)?)(?!\s?(?:UTC|Z|\+))
)(?!\w)""")
_PLAIN = _pattern(rf"""(?P<numbers>{_NUMBERS})(?:
    {_TIGHT}(?:
        (?P<time>{TIMES}(?!\s?/\s?s\b))|(?P<rate>{RATES})|(?P<percentage>{PERCENTS})
        |(?P<factor>{_FACTORS})
    )
    |(?P<factor2>[xX](?!\w)|\s[xX]\s(?={_THAN}))
)""")
_SPELLED = _pattern(rf"""(?P<numbers>{_WORD})(?:
    [\s-](?:
        (?P<time>(?i:(?:nano|micro|milli)?seconds|minutes|hours|days|weeks|ns|\u00b5s|ms)(?!\w))
        |(?P<percentage>{PERCENTS})
    )
    |(?P<factor>[\s-]?fold(?!\w)|\stimes\s{_THAN}
        |(?:(?<=wice)|(?<=hrice)|(?<=alf))\s{_THAN}
        |(?:(?<=alf)|(?<=hird)|(?<=uarter))(?:\sof)?\s{_WHOSE}\s{_MEASURE}(?!\w))
)""")
_BEFORE = _pattern(rf"""(?:
    (?:
        {_SPEED}(?:\s(?:by|of|is|was)\s|\s?[:=]\s?|\s?(?=[\u00d7x])|(?<=[pPoO])\s)
        |(?i:faster|slower|quicker|better|worse|speed\w*|throughput|latency|times?|costs?
            |improv\w+|reduc\w+|cuts?)(?!\w)[^.!?]{{0,60}}?\sfactors?\s(?:of\s)?
    )(?:[\u00d7x]\s?)?(?P<numbers>[-+\u2212]?{_DIGITS}|{_WORD}(?!\w))
    |\bfactors?\sof\s(?P<numbers4>{_DIGITS}|{_WORD})(?=\s{_THAN})
    |(?<!\w)(?<!\d\s)[\u00d7xX]\s?(?P<numbers2>{_DIGITS})(?=\s{_THAN})
    |(?<=[a-z][a-z]\s)\u00d7(?P<numbers3>{_DIGITS})(?!\s?[\u00d7x])
)(?![\w,]*\d)""")
_BEHIND = _pattern(rf"""(?<!\w)(?<!\d\s)(?:
    (?P<time>[num\u00b5\u03bc]s|(?i:(?:nano|micro|milli)?seconds|[num]secs?|minutes))
    |(?P<rate>{RATES})|(?P<percentage>{PERCENTS})
)[)\]]?\s?[:=]\s?(?P<numbers>{NUMBER})(?![\w,]*\d)""")
_FRACTION = _pattern(
    rf"(?<![\w./])(?P<over>\d+)/(?P<under>[1-9]\d*)(?P<factor>\s(?:of\s)?{_WHOSE}\s{_MEASURE})"
)
_NUMBER = _pattern(NUMBER)
_ANY = re.compile(rf"\d|{_WORD}")  # most cells and many lines have none
_PLACES = ("numbers", "numbers2", "numbers3", "numbers4")
_DECADE = re.compile(r"(?:19|20)\d\ds")


@attrs.frozen
class Quantity:
    """A number with its unit, as written between two places of a text."""

    begin: int
    end: int
    text: str
    number: Decimal
    unit: Unit

    @property
    def size(self) -> Decimal:
        """The number in the kind's own unit: seconds, a second, percent, 1."""
        return self.number * self.unit.scale

    def equals(self, other: Quantity) -> bool:
        """Tell whether both say the same."""
        return self.unit.compares_with(other.unit) and self.size == other.size


def decimal(text: str) -> Decimal:
    """Give the value of a number as it is written, of digits or a word."""
    if (word := text.lower()) in _WORDS:
        return Decimal(_WORDS[word])
    return Decimal(re.sub(rf",|{_GROUP}", "", text).replace("\u2212", "-"))


def quantities_in(text: str) -> list[Quantity]:
    """Give the quantities in plain text, in its order."""
    if not _ANY.search(text) or text.isdecimal():
        return []
    found: list[Quantity] = []
    taken: list[tuple[int, int]] = []
    for read in (_compounds, _units, _fractions):
        for quantities in read(text):
            begin, end = quantities[0].begin, quantities[0].end
            if all(end <= first or last <= begin for first, last in taken):
                found += quantities
                taken.append((begin, end))
    return sorted(found, key=lambda quantity: quantity.begin)


def _compounds(text: str) -> Iterator[list[Quantity]]:
    """Read ``1m20s``, ``1 h 5 min`` and ``0:01:20``."""
    for said in _COMPOUND.finditer(text):
        parts = {name[0]: part for name, part in said.groupdict().items() if part}
        seconds = sum(
            Decimal(parts.get(name, 0)) * size
            for name, size in (("h", 3600), ("m", 60), ("s", 1))
        )
        yield [_quantity(said, Decimal(seconds), Unit(TIME))]


def _units(text: str) -> Iterator[list[Quantity]]:
    """Read numbers, or words for them, beside a unit."""
    for pattern in (_PLAIN, _SPELLED, _BEFORE, _BEHIND):
        for said in pattern.finditer(text):
            if _DECADE.fullmatch(said[0]):
                continue
            groups = said.groupdict()
            written = next(filter(None, map(groups.get, _PLACES)))
            its = _unit(groups)
            numbers = _NUMBER.findall(written) or [written]
            yield [_quantity(said, decimal(number), its) for number in numbers]


def _fractions(text: str) -> Iterator[list[Quantity]]:
    """Read ``2/5 of the time``."""
    for said in _FRACTION.finditer(text):
        number = Decimal(said["over"]) / Decimal(said["under"])
        yield [_quantity(said, number, Unit(FACTOR))]


def _unit(groups: dict[str, str | None]) -> Unit:
    for kind in (TIME, RATE, PERCENT):
        if written := groups.get(kind):
            return unit(kind, written)
    return Unit(FACTOR)


def _quantity(said: re.Match[str], number: Decimal, its: Unit) -> Quantity:
    return Quantity(said.start(), said.end(), " ".join(said[0].split()), number, its)
