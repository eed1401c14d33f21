"""
Units of what can be claimed: time, rate, percentage, factor.

A unit has a kind and a scale, so that 1.5 s and 1500 ms are the same claim and 1,000 nodes
are none. A rate says also what it counts; two rates are of one unit if they count the same.
"""

from __future__ import annotations

import re
from decimal import Decimal

import attrs

__all__ = [
    "FACTOR",
    "PERCENT",
    "PERCENTS",
    "RATE",
    "RATES",
    "TIME",
    "TIMES",
    "Unit",
    "unit",
]

TIME, RATE, PERCENT, FACTOR = "time", "rate", "percentage", "factor"

TIMES = r"""(?:
    (?:[num\u00b5\u03bc]|(?i:(?:nano|micro|milli)-?))s(?:ecs?|econds?)?
    |s|mins?|h|(?i:secs?|seconds?|minutes?|hrs?|hours?|days?|weeks?)
)(?!\w)"""

_LENGTHS = r"(?:[num\u00b5\u03bc]?s|(?:milli|micro|nano)?seconds?|secs?|mins?|minutes?|h|hrs?|hours?|days?)"
_THOUSANDS = r"(?:(?:[kKMGT]|thousand|million|billion)\s)?"

RATES = rf"""(?:
    {_THOUSANDS}(?:(?:[^\W\d][\w.-]*\s){{0,2}}[^\W\d][\w.]*\s?)?/\s?{_LENGTHS}
    |{_THOUSANDS}(?:[^\W\d][\w.-]*\s){{0,3}}(?:per|every)\s{_LENGTHS}
    |[^\W\d][\w.-]*-per-{_LENGTHS}
    |[^\W\d]\w*[\s\u00b7\u22c5]?s\u207b\u00b9
    |{_THOUSANDS}[^\W\d][\w.]*\s(?:a|each)\s(?:second|minute|hour|day)(?!\stime)
    |{_THOUSANDS}(?i:[fqrt]ps|iops)|[kMGT]?bps|[kMGT]?Hz|[KMGTPE]?(?:FLOP[Ss]|OPS)
)(?!\w)"""

PERCENTS = r"(?:%|\u2030|(?i:per\s?cent|pct|(?:percentage|basis)[\s-]points?)(?!\w))"

_SECONDS = (
    (r"n", "1e-9"),
    (r"u|µ|μ|micro", "1e-6"),
    (r"mins?$|minute", "60"),
    (r"m", "1e-3"),
    (r"s", "1"),
    (r"h", "3600"),
    (r"d", "86400"),
    (r"w", "604800"),
)
_PREFIXES = {
    "": 1,
    "k": 10**3,
    "thousand": 10**3,
    "M": 10**6,
    "million": 10**6,
    "G": 10**9,
    "billion": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_PARTS = {"\u2030": "0.1", "b": "0.01"}  # per mille and basis points, in percent
_COUNTED = {
    "fps": "frame",
    "qps": "query",
    "queries": "query",
    "rps": "request",
    "req": "request",
    "t": "token",
    "tok": "token",
    "tps": "token",
    "iops": "op",
    "flops": "flop",
    "ops": "op",
}
_PREFIXED = re.compile(r"([KMGT]i|[kKMGTPE])?(B|b|bit|Hz|bps|FLOP[Ss]?|OPS?)")
_RATE = re.compile(
    rf"(?:(?P<many>[kKMGT]|thousand|million|billion)\s)?(?P<counted>.*?)\s*"
    rf"[-\u00b7\u22c5]?(?:(?:/|\b(?:per|a|each|every)\b)[\s-]*(?P<length>{_LENGTHS}))?",
    re.DOTALL,
)


@attrs.frozen
class Unit:
    """
    What a number is of.

    Attributes
    ----------
    kind
        ``TIME``, ``RATE``, ``PERCENT`` or ``FACTOR``.
    scale
        What one of it is in seconds, in a second, in percent, or 1.
    counted
        What a rate counts, in the singular; empty where it does not say.
    """

    kind: str
    scale: Decimal = Decimal(1)
    counted: str = ""

    def compares_with(self, other: Unit) -> bool:
        """Tell whether numbers of both can be the same."""
        counts = {self.counted, other.counted} - {""}
        return self.kind == other.kind and len(counts) < 2


def unit(kind: str, text: str) -> Unit:
    """Give the unit of a kind that is written so."""
    if kind == TIME:
        return Unit(TIME, _seconds(text))
    if kind == RATE:
        return _rate(text)
    if kind == PERCENT:
        return Unit(PERCENT, Decimal(_PARTS.get(text[0], "1")))
    return Unit(FACTOR)


def _seconds(text: str) -> Decimal:
    for begins, seconds in _SECONDS:
        if re.match(begins, text.strip().lower()):
            return Decimal(seconds)
    message = f"{text!r} is no unit of time"
    raise ValueError(message)


def _rate(text: str) -> Unit:
    said = _RATE.fullmatch(text.strip())
    assert said is not None  # every part of it may be missing
    counted = "".join(said["counted"].split()[-1:])
    counted = counted.removesuffix("s\u207b\u00b9").rstrip("\u00b7\u22c5")
    scale = _prefix(said["many"]) / _seconds(said["length"] or "s")
    if prefixed := _PREFIXED.fullmatch(counted):
        scale *= _prefix(prefixed[1])
        counted = prefixed[2]
    counted = counted.lower() if counted not in ("b", "B") else counted
    return Unit(RATE, scale, _COUNTED.get(counted) or counted.removesuffix("s"))


def _prefix(text: str | None) -> Decimal:
    return Decimal(_PREFIXES.get(text or "") or _PREFIXES[(text or "").lower()])
