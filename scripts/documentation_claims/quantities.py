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

from .numbers import DIGITS, NUMBER, NUMBERS, WORD, decimal
from .units import FACTOR, PERCENT, PERCENTS, RATE, RATES, TIME, TIMES, Unit, unit

__all__ = ["Quantity", "quantities_in"]

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
_TIGHT = r"(?:\s{0,3}|[-\u2010\u2011]|\s?[(\[]|,\sin\s)"
_SPEED = r"(?i:faster|slower|quicker|cheaper|speed(?:s|ed)?[-\s]?ups?|ratios?)(?!\w)"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.VERBOSE)


_COMPOUND = _pattern(r"""(?<![\w.:\#-])(?:
    (?:(?P<h>\d+)\s?(?:h|hrs?|hours?)\s?)?(?P<m>\d+)\s?m(?:ins?|inutes?)?\s?
        (?P<s>\d+(?:\.\d+)?)\s?s(?:ecs?|econds?)?
    |(?P<h2>\d+)\s?(?:h|hrs?|hours?)\s?(?P<m2>\d+)\s?m(?:ins?|inutes?)?
    |(?<!\d[T\s])(?P<h3>\d+):(?P<m3>\d\d):(?P<s3>\d\d(?:\.\d+)?)(?!\s?(?:UTC|Z|\+))
)(?!\w)""")
_PLAIN = _pattern(rf"""(?P<numbers>{NUMBERS})(?:
    {_TIGHT}(?:
        (?P<time>{TIMES}(?!\s?/\s?s\b))|(?P<rate>{RATES})|(?P<percentage>{PERCENTS})
        |(?P<factor>{_FACTORS})
    )
    |(?P<factor2>[xX](?!\w)|\s[xX]\s(?={_THAN}))
)""")
_SPELLED = _pattern(rf"""(?P<numbers>{WORD})(?:
    [\s-](?:
        (?P<time>(?i:(?:nano|micro|milli)?seconds|minutes|hours|days|weeks|ns|\u00b5s|ms)(?!\w))
        |(?P<percentage>{PERCENTS})
    )
    |(?P<factor>[\s-]?fold(?!\w)|\stimes\s{_THAN}
        |(?:(?<=wice)|(?<=hrice)|(?<=alf))\s{_THAN}
        |(?:es?|ed|ing)\s(?:{_WHOSE}\s)?{_MEASURE}(?!\w)
        |(?:(?<=alf)|(?<=hird)|(?<=uarter))s?(?:\sof)?\s{_WHOSE}\s{_MEASURE}(?!\w))
)""")
_BEFORE = _pattern(rf"""(?:
    (?:
        {_SPEED}(?:\s(?:by|of|is|was)\s|\s?[:=\u2192]\s?|\s?(?=[\u00d7x])|(?<=[pPoO])\s)
        |(?i:faster|slower|quicker|better|worse|speed\w*|throughput|latency|times?|costs?
            |improv\w+|reduc\w+|cuts?)(?!\w)[^.!?]{{0,60}}?\sfactors?\s(?:of\s)?
    )(?:[\u00d7x]\s?)?(?P<numbers>[-+\u2212]?{DIGITS}|{WORD}(?!\w))
    |\borders?\sof\s(?P<numbers5>magnitude)(?=\s{_THAN})
    |\bfactors?\s(?:of\s)?(?P<numbers4>{DIGITS}|{WORD})(?=\s{_THAN})
    |(?<!\w)(?<!\d\s)[\u00d7xX]\s?(?P<numbers2>{DIGITS})(?=\s{_THAN})
    |(?<=[a-z][a-z]\s)\u00d7(?P<numbers3>{DIGITS})(?!\s?[\u00d7x])
)(?![\w,]*\d)""")
_BEHIND = _pattern(rf"""(?<!\w)(?<!\d\s)(?:
    (?P<time>[num\u00b5\u03bc]s|(?i:(?:nano|micro|milli)?seconds|[num]secs?|minutes))
    |(?P<rate>{RATES})|(?P<percentage>{PERCENTS})
)[)\]]?\s?[:=]\s?(?P<numbers>{NUMBER})(?![\w,]*\d)""")
_FRACTION = _pattern(
    rf"(?<![\w./])(?P<over>\d+)/(?P<under>[1-9]\d*)(?P<factor>\s(?:of\s)?{_WHOSE}\s{_MEASURE})"
)
_NUMBER = _pattern(NUMBER)
_ANY = re.compile(rf"\d|{WORD}")  # most cells and many lines have none
_PLACES = ("numbers", "numbers2", "numbers3", "numbers4", "numbers5")
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
