"""
How a check ends early, and how it opens the provider that it asks.

A check is a straight line of questions. The first answer that settles it is raised as a
:class:`Settled`, so that no question below has to ask what became of those above.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import NoReturn

from seamline.discovery import discover
from seamline.errors import (
    ContractError,
    ProviderError,
    SeamlineError,
    UnavailableProviderError,
)
from seamline.offers import Offered
from seamline.provider import Provider
from seamline_testing.results import Check, Finding, Outcome
from seamline_testing.subject import Subject

__all__ = [
    "PASS",
    "Settled",
    "asked",
    "declined",
    "found",
    "mismatch",
    "not_run",
    "offered",
    "opened",
    "question",
    "violation",
]

PASS = Finding(Outcome.PASS)


class Settled(Exception):  # noqa: N818 - it ends a check, which is no error of anyone's
    """The answer to a check, raised from wherever it was found."""

    def __init__(self, outcome: Outcome, said: str, judge: str = "") -> None:
        one_line = " ".join(said.split())
        self.finding = Finding(outcome, one_line, judge)
        super().__init__(one_line)


def violation(said: str) -> NoReturn:
    """End the check: a rule of the contract is broken."""
    raise Settled(Outcome.CONTRACT_VIOLATION, said)


def mismatch(said: str, judge: str = "definition") -> NoReturn:
    """End the check: it ran, and gave another value."""
    raise Settled(Outcome.MISMATCH, said, judge)


def not_run(said: str) -> NoReturn:
    """End the check: it cannot be tried here, and why."""
    raise Settled(Outcome.NOT_RUN, said)


def declined(said: str) -> NoReturn:
    """End the check: the provider refused, with its reason."""
    raise Settled(Outcome.DECLINED, said)


def found(ask: Callable[[Subject], None]) -> Callable[[Subject], Finding]:
    """Turn questions that raise :class:`Settled` into a check's ``run``."""

    @functools.wraps(ask)
    def run(subject: Subject) -> Finding:
        try:
            ask(subject)
        except Settled as settled:
            return settled.finding
        return PASS

    return run


def question(name: str, ask: Callable[[Subject], None], dtype: str = "") -> Check:
    """Make a check of questions; its group is the first word of its id."""
    return Check(name, name.partition("/")[0], found(ask), dtype=dtype)


def offered(subject: Subject) -> Offered:
    """Find what the plugin says of the provider; nothing of it is made."""
    try:
        return discover(None, subject.modules()).find(subject.provider)
    except ProviderError as error:
        violation(f"it cannot be found: {error}")


@contextlib.contextmanager
def opened(subject: Subject) -> Iterator[Provider]:
    """Make the provider, and close it."""
    offer = offered(subject)
    try:
        provider = offer.open(subject.options)
    except UnavailableProviderError as error:
        not_run(str(error))
    except ProviderError as error:
        violation(f"it cannot be made: {error}")
    try:
        yield provider
    finally:
        provider.close()


@contextlib.contextmanager
def asked(
    step: str, *declared: type[SeamlineError], node: bool = True
) -> Iterator[None]:
    """
    Call the provider: only declared errors may come out, and they name their node.

    An error of a declared type is a violation too, since the kit asks for nothing that
    cannot be done: what it gives is what the provider claimed.

    Parameters
    ----------
    node
        Whether the error must name a node.
    """
    try:
        yield
    except Settled:
        raise
    except declared as error:
        if node and not getattr(error, "node", ""):
            violation(f"{step} raised {type(error).__name__} without a node: {error}")
        violation(f"{step} failed on a node that it claims: {error}")
    except ContractError as error:
        violation(f"{step} says that the contract is broken: {error}")
    except Exception as error:
        wanted = " or ".join(kind.__name__ for kind in declared) or "no error"
        violation(
            f"{step} raised an undeclared {type(error).__name__}: {error} "
            f"(the contract: {wanted})"
        )
