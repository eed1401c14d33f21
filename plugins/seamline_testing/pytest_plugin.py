"""
The kit under pytest: ``pytest --pyargs seamline_testing --provider NAME``.

Each check is one test. A pass passes; a failure fails, or is an expected failure where
the provider's ``known_gaps.toml`` says so; what was declined, not claimed or not run is
skipped with its reason, and no skip counts: a run without a single pass fails.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from seamline.errors import SeamlineError
from seamline_testing.results import Finding, Outcome, Result

if TYPE_CHECKING:
    from seamline_testing.report import Report

__all__ = ["Kit", "settle"]

_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--provider", {"metavar": "NAME", "help": "the provider to hold to the kit, NAME or NAME:OPTION=VALUE,..."}),
    ("--provider-plugin", {"action": "append", "metavar": "MODULE", "help": "a module of a plugin that is not installed"}),
    ("--require-device", {"metavar": "DEVICE", "default": "", "help": "fail where the provider does not work on it"}),
    ("--report", {"metavar": "FILE", "help": "write the report; Markdown if it ends in .md"}),
    (
        "--checks",
        {"metavar": "TEXT", "default": "", "help": "checks whose id holds this"},
    ),
    ("--quick", {"action": "store_true", "help": "fewer checks of each kind"}),
    ("--check-deadline", {"type": float, "default": 120.0, "metavar": "SECONDS", "help": "until a check counts as hung"}),
)  # fmt: skip
_SELECTING = ("--quick", "--checks", "keyword", "markexpr")  #: leave checks out
_PROPERTY = "seamline_result"
_KIT = pytest.StashKey["Kit"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the kit's options."""
    group = parser.getgroup("seamline", "conformance of a seamline provider")
    for name, given in _OPTIONS:
        group.addoption(name, **given)


@attrs.define(eq=False)
class Kit:
    """The workers of one pytest process, and the results that it hears of."""

    subject: Any
    workers: Any
    gaps: Any
    partial: bool  #: not every check of the kit is listed

    @classmethod
    def open(cls, config: pytest.Config) -> Kit:
        """Start the workers; a usage error where the provider or its device is missing."""
        from seamline_testing.commands import _subject
        from seamline_testing.conforming import require_device
        from seamline_testing.known_gaps import gaps_of
        from seamline_testing.workers import Workers

        text = str(config.getoption("--provider") or "")
        if not text:
            raise pytest.UsageError("name the provider under test: --provider NAME")
        quick = bool(config.getoption("--quick"))
        try:
            subject = _subject(text, config.getoption("--provider-plugin") or [])
            gaps = gaps_of(subject)
            deadline = float(config.getoption("--check-deadline") or 0)
            only = str(config.getoption("--checks"))
            workers = Workers.open(subject, quick=quick, only=only, deadline=deadline)
            try:
                require_device(workers, str(config.getoption("--require-device")))
            except BaseException:
                workers.close()
                raise
        except SeamlineError as error:
            raise pytest.UsageError(str(error)) from error
        return cls(subject, workers, gaps, quick or bool(only))

    def complaints(self) -> tuple[str, ...]:
        """Say which known gaps do not hold, before anything is run."""
        from seamline_testing.known_gaps import complaints

        today = dt.datetime.now(dt.UTC).date()
        ids = None if self.partial else [check.id for check in self.workers.checks]
        return complaints(self.gaps, ids, (), today)


@attrs.define(eq=False)
class _Heard:
    """What the process that reports has heard; under xdist that is the controller."""

    results: list[Result] = attrs.field(factory=list)
    start: float = attrs.field(factory=time.monotonic)
    said: list[str] = attrs.field(factory=list)
    deselected: bool = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        given = dict(report.user_properties).get(_PROPERTY)
        if report.when == "call" and isinstance(given, dict):
            finding = given["finding"]
            kept = Finding(**{**finding, "outcome": Outcome(finding["outcome"])})
            self.results.append(Result(**{**given, "finding": kept}))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.results:
            return
        passed = sum(r.finding.outcome is Outcome.PASS for r in self.results)
        self.said.append(
            f"{passed} of {len(self.results)} checks pass; only a pass counts"
        )
        if not passed:
            self.said.append(
                "no check passes: a provider that runs nothing does not conform"
            )
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        report = self._report(session)
        if report.complaints:
            self.said += report.complaints
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        path = session.config.getoption("--report")
        if path:
            from seamline_testing.conforming import write_report

            write_report(report, Path(path))
            self.said.append(f"report written to {path}")

    def _report(self, session: pytest.Session) -> Report:
        from seamline_testing.commands import _subject
        from seamline_testing.known_gaps import complaints, gaps_of
        from seamline_testing.report import Report

        config, results = session.config, tuple(self.results)
        subject = _subject(
            str(config.getoption("--provider")),
            config.getoption("--provider-plugin") or [],
        )
        gaps, today = gaps_of(subject), dt.datetime.now(dt.UTC).date()
        ids = [one.id for one in results] if self._whole(session) else None
        said = complaints(gaps, ids, results, today)
        form = "quick" if config.getoption("--quick") else "full"
        return Report.of(
            subject, form, results, gaps, said, time.monotonic() - self.start
        )

    def _whole(self, session: pytest.Session) -> bool:
        """Tell whether every check of the kit was run."""
        config = session.config
        chosen = any(config.getoption(name) for name in _SELECTING)
        chosen = chosen or any("::" in arg for arg in config.args) or self.deselected
        return not (chosen or session.shouldfail or session.shouldstop)

    def pytest_deselected(self) -> None:
        """Remember that something was left out."""
        self.deselected = True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.said:
            terminalreporter.section("conformance")
            for line in self.said:
                terminalreporter.line(line)


def pytest_configure(config: pytest.Config) -> None:
    """Listen for results where reports arrive."""
    if config.getoption("--provider") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Heard(), "seamline_testing_results")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the workers."""
    kit = config.stash.get(_KIT, None)
    if kit is not None:
        kit.workers.close()


def kit_of(config: pytest.Config) -> Kit:
    """Give the kit of this process; starts it when first asked for."""
    kit = config.stash.get(_KIT, None)
    if kit is None:
        kit = config.stash[_KIT] = Kit.open(config)
    return kit


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each check."""
    if "conformance_check" in metafunc.fixturenames:
        checks: Sequence[Any] = kit_of(metafunc.config).workers.checks
        ids = [check.id for check in checks]
        metafunc.parametrize("conformance_check", checks, ids=ids)


@pytest.fixture
def conformance_kit(request: pytest.FixtureRequest) -> Kit:
    """Give the kit of this process."""
    return kit_of(request.config)


@pytest.fixture
def conformance_result(
    request: pytest.FixtureRequest, conformance_check: Any
) -> Result:
    """Run the check in a worker, and keep the result for the report."""
    result: Result = kit_of(request.config).workers.run_one(conformance_check)
    kept = attrs.asdict(result)
    kept["finding"]["outcome"] = str(result.finding.outcome)
    request.node.user_properties.append((_PROPERTY, kept))
    return result


def settle(result: Result, kit: Kit) -> None:
    """End a test as its result asks for; returns for a pass that nobody excused."""
    from seamline_testing.workers import FAULT

    finding, gap = result.finding, kit.gaps.gap_for(result.id)
    judged = f" (judge: {finding.judge})" if finding.judge else ""
    said = f"{finding.outcome}: {finding.said}{judged}"
    if finding.outcome is Outcome.PASS:
        if gap is not None:
            pytest.fail(
                f"it passes, and {kit.gaps.file} says: {gap.reason}; take the entry out",
                pytrace=False,
            )
        return
    if finding.outcome.is_failure or finding.said.startswith(FAULT):
        if gap is not None and not finding.said.startswith(FAULT):
            pytest.xfail(f"{gap.reason} ({gap.link}, until {gap.expires})")
        pytest.fail(said, pytrace=False)
    pytest.skip(said)
