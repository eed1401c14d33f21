"""What came of a check: one of seven outcomes, who judged, and how closely."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from seamline_testing.subject import Subject

__all__ = ["Check", "Finding", "Outcome", "Result"]


class Outcome(enum.StrEnum):
    """
    What came of one check. Only ``PASS`` counts for the provider.

    Attributes
    ----------
    PASS
        The provider ran it and was right.
    PASS_NOT_CLAIMED
        The result was right, but nothing of the provider's took part.
    DECLINED
        The provider refused it, with a reason.
    MISMATCH
        It ran, and gave another value, type or shape.
    CRASH
        The process died or did not answer in time.
    CONTRACT_VIOLATION
        It broke a rule of the contract: an undeclared exception, a written input, bytes
        outside its outputs, a claim that it cannot build.
    NOT_RUN
        It could not be tried here; the reason says what is missing.
    """

    PASS = "PASS"
    PASS_NOT_CLAIMED = "PASS_NOT_CLAIMED"
    DECLINED = "DECLINED"
    MISMATCH = "MISMATCH"
    CRASH = "CRASH"
    CONTRACT_VIOLATION = "CONTRACT_VIOLATION"
    NOT_RUN = "NOT_RUN"

    @property
    def is_failure(self) -> bool:
        """Tell whether the provider is at fault."""
        return self in _FAILURES


_FAILURES = frozenset({Outcome.MISMATCH, Outcome.CRASH, Outcome.CONTRACT_VIOLATION})


@attrs.frozen
class Finding:
    """
    What a check found.

    Attributes
    ----------
    said
        The reason in one line; of a pass, what was counted, or nothing.
    judge
        Whose values it was held to: ``definition``, or the two that agreed, as in
        ``onnxruntime+stored``; empty where no value was judged.
    tolerance
        The tolerance's class, as in ``float32/sum``; empty where no value was judged.
    """

    outcome: Outcome
    said: str = ""
    judge: str = ""
    tolerance: str = ""


@attrs.frozen(eq=False)
class Check:
    """
    One question to a provider.

    Attributes
    ----------
    id
        Unique in the kit and stable over versions: reports are compared by it.
    group
        ``contract``, ``claims``, ``numerics``, ``int4``, ``partition``, ``transfers`` or
        ``capture``.
    run
        Asks it. What it raises is a fault of the kit, not of the provider.
    operator, opset, dtype
        What it is about, where it is about one operator.
    """

    id: str
    group: str
    run: Callable[[Subject], Finding]
    operator: str = ""
    opset: int = 0
    dtype: str = ""


@attrs.frozen
class Result:
    """A check's finding with what it was about; ``seconds`` of wall time."""

    id: str
    group: str
    finding: Finding
    operator: str = ""
    opset: int = 0
    dtype: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, check: Check, finding: Finding, seconds: float = 0.0) -> Result:
        """Join a check and what it found."""
        return cls(
            check.id,
            check.group,
            finding,
            check.operator,
            check.opset,
            check.dtype,
            seconds,
        )
