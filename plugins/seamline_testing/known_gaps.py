"""
What a provider says of itself in ``known_gaps.toml``, beside its plugin's module.

The kit has no skip lists. A provider may name checks that it fails, and say why, where
the fault is tracked, and until when::

    [[gap]]
    checks = "numerics/node/gridsample_*"
    reason = "border padding takes the wrong neighbour"
    link = "https://example.org/issues/7"
    expires = 2027-06-30

    [[looser]]
    checks = "numerics/generated/Exp/float16/*"
    tolerance = "sum"
    reason = "the device's exponential has 6 bits fewer"
    link = "https://example.org/issues/8"
    expires = 2027-06-30

Entries are held strictly: one whose checks pass, or are not claimed any more, whose date
is over, or that names no check fails the run. A gap excuses nothing in the score either;
it says that the failure is known.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import functools
import importlib.util
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from seamline.discovery import discover
from seamline.errors import SeamlineError
from seamline_testing.results import Outcome, Result
from seamline_testing.subject import Subject
from seamline_testing.tolerances import CLASSES

__all__ = [
    "FILE_NAME",
    "Entry",
    "Gaps",
    "KnownGapsError",
    "complaints",
    "gaps_of",
    "looser_class",
    "read_gaps",
]

FILE_NAME = "known_gaps.toml"
#: A URL, or a file by its path and perhaps a heading in it.
_LINK = re.compile(
    r"[A-Za-z][\w+.-]*://[^\s/]\S*|(?:[\w.@~-]*/)*[\w.@-]+\.\w+(?:#\S+)?"
)
_TABLES = ("gap", "looser")
_WILD = frozenset("*?[")
_UNTOUCHED = frozenset({Outcome.DECLINED, Outcome.PASS_NOT_CLAIMED})


class KnownGapsError(SeamlineError):
    """The file cannot be read, or an entry of it says too little."""


@attrs.frozen
class Entry:
    """
    One entry.

    Attributes
    ----------
    checks
        A pattern of check ids, as for file names: ``*``, ``?`` and ``[...]``.
    kind
        The looser tolerance's class; empty for a gap.
    """

    checks: str
    reason: str
    link: str
    expires: dt.date
    kind: str = ""

    def matches(self, check: str) -> bool:
        """Tell whether the entry speaks of a check."""
        return fnmatch.fnmatchcase(check, self.checks)

    @property
    def is_exact(self) -> bool:
        """Tell whether it names one check, and no pattern."""
        return not _WILD.intersection(self.checks)

    def overdue(self, today: dt.date) -> bool:
        """Tell whether its date is over."""
        return today > self.expires


@attrs.frozen
class Gaps:
    """The entries of one file, in its order."""

    file: str = ""
    gaps: tuple[Entry, ...] = ()
    looser: tuple[Entry, ...] = ()

    def gap_for(self, check: str) -> Entry | None:
        """Give the first gap that speaks of a check."""
        return next((entry for entry in self.gaps if entry.matches(check)), None)


def read_gaps(path: Path) -> Gaps:
    """
    Read a file of known gaps.

    Raises
    ------
    KnownGapsError
        It is no such file; names the entry and what it lacks.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KnownGapsError(f"{path}: {error}") from error
    unknown = data.keys() - set(_TABLES)
    if unknown:
        raise KnownGapsError(f"{path}: no such table: {', '.join(sorted(unknown))}")
    gaps, looser = (_entries(path, name, data.get(name, [])) for name in _TABLES)
    return Gaps(str(path), gaps, looser)


def _entries(path: Path, table: str, given: Any) -> tuple[Entry, ...]:
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise KnownGapsError(
            f"{path}: {table!r} is no list of tables; head each entry with [[{table}]]"
        )
    return tuple(_entry(path, table, one) for one in given)


def _entry(path: Path, table: str, given: Mapping[str, Any]) -> Entry:
    where = f"{path}: [[{table}]] {given.get('checks', '?')!r}"
    names = {"checks", "reason", "link", "expires"}
    names |= {"tolerance"} if table == "looser" else set()
    if given.keys() != names:
        odd = ", ".join(sorted(given.keys() ^ names))
        raise KnownGapsError(f"{where}: missing or unknown: {odd}")
    expires = given["expires"]
    if type(expires) is not dt.date:  # a moment is a date too, and compares with none
        raise KnownGapsError(f"{where}: expires is a date such as 2027-06-30")
    for name in ("checks", "reason", "link"):
        if not isinstance(given[name], str) or not given[name].strip():
            raise KnownGapsError(f"{where}: {name} is a text that says something")
    if not _LINK.fullmatch(given["link"].strip()):
        raise KnownGapsError(
            f"{where}: link {given['link']!r} is no URL and no path of a file, such as "
            "https://example.org/issues/7 or docs/faults.md#border"
        )
    kind = given.get("tolerance", "")
    if table == "looser" and kind not in CLASSES:
        raise KnownGapsError(f"{where}: tolerance is one of {', '.join(CLASSES)}")
    return Entry(given["checks"], given["reason"], given["link"], expires, kind)


@functools.cache
def _gaps_of(provider: str, plugins: tuple[str, ...]) -> Gaps:
    subject = Subject(provider, {}, plugins)
    modules = list(plugins)
    origin = discover(None, subject.modules()).find(provider).origin
    if origin.value:
        modules = [origin.value.partition(":")[0]]
    for name in modules:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin:
            path = Path(found.origin).with_name(FILE_NAME)
            if path.exists():
                return read_gaps(path)
    return Gaps()


def gaps_of(subject: Subject) -> Gaps:
    """Give what the provider ships; nothing where it ships no file."""
    return _gaps_of(subject.provider, subject.plugins)


def looser_class(subject: Subject, check: str) -> Entry | None:
    """Give the looser tolerance that the provider declares for a check, if any."""
    return next((one for one in gaps_of(subject).looser if one.matches(check)), None)


def complaints(
    gaps: Gaps,
    ids: Iterable[str] | None,
    results: Iterable[Result],
    today: dt.date,
) -> tuple[str, ...]:
    """
    Say which entries do not hold.

    Parameters
    ----------
    ids
        Every check of the kit; None where only some were listed, and then an entry that
        names none of them is not held against it, nor is a pattern whose failing checks
        may be among the others.
    results
        What was run.
    """
    known, ran = None if ids is None else tuple(ids), tuple(results)
    said: list[str] = []
    for entry in (*gaps.gaps, *gaps.looser):
        where = f"{gaps.file}: {entry.checks!r}"
        if entry.overdue(today):
            said.append(f"{where} expired on {entry.expires}: {entry.reason}")
        if known is not None and not any(map(entry.matches, known)):
            said.append(f"{where} names no check")
        met = [result for result in ran if entry.matches(result.id)]
        if entry.kind:
            idle = not any("(declared: " in r.finding.tolerance for r in met)
            if known is not None and met and idle:
                said.append(f"{where}: no check needs the looser tolerance")
            continue
        said += [f"{where}: {one}" for one in _passing(met)]
        if known is not None or entry.is_exact:
            said += [f"{where}: {one}" for one in _untouched(met)]
    return tuple(said)


def _passing(met: Iterable[Result]) -> Iterator[str]:
    for result in met:
        if result.finding.outcome is Outcome.PASS:
            yield f"{result.id} passes; take the entry out"


def _untouched(met: Sequence[Result]) -> Iterator[str]:
    """Say that nothing of an entry can fail any more, since nothing of it is claimed."""
    idle = [one for one in met if one.finding.outcome in _UNTOUCHED]
    if idle and len(idle) == len(met):
        first = idle[0]
        yield f"{first.id} is {first.finding.outcome} and cannot fail; take the entry out"
