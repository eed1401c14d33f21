"""What ``pytest --pyargs seamline_testing --provider NAME`` collects."""

from __future__ import annotations

from seamline_testing.pytest_plugin import Kit, settle
from seamline_testing.results import Result

__all__: list[str] = []


def test_known_gaps_hold(conformance_kit: Kit) -> None:
    """Every entry of the provider's file names checks, and its date is not over."""
    said = conformance_kit.complaints()
    assert not said, "\n".join(said)


def test_conformance(conformance_result: Result, conformance_kit: Kit) -> None:
    """Hold the provider to one check."""
    settle(conformance_result, conformance_kit)
