"""One run of the kit: start the workers, gather results, hold the known gaps, report."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

import attrs

from seamline_testing.known_gaps import complaints, gaps_of
from seamline_testing.report import Report, ReportError
from seamline_testing.report_markdown import to_markdown
from seamline_testing.results import Result
from seamline_testing.subject import Subject
from seamline_testing.workers import DEADLINE, KitError, Workers

__all__ = ["Plan", "conform", "known_groups", "require_device", "write_report"]


@attrs.frozen
class Plan:
    """
    What to run.

    Attributes
    ----------
    only
        Part of the ids of the checks that are run; empty for all.
    model
        A user's model, whose nodes are the cases.
    device
        What the provider must work on, ``cuda`` or ``cuda:1``; empty for anything.
    jobs
        Checks that run at a time.
    """

    quick: bool = False
    groups: tuple[str, ...] = ()
    only: str = ""
    model: Path | None = None
    device: str = ""
    jobs: int = 1
    deadline: float = DEADLINE

    @property
    def form(self) -> str:
        """Name what is run, for the report."""
        if self.model is not None:
            return self.model.name
        parts = ["quick" if self.quick else "full", *self.groups, self.only]
        return " ".join(filter(None, parts))


def conform(
    subject: Subject,
    plan: Plan,
    began: Callable[[int], None] = lambda total: None,
    heard: Callable[[Result], None] = lambda result: None,
) -> Report:
    """
    Run the kit over a provider.

    Parameters
    ----------
    began, heard
        Told how many checks there are, and then each result as it comes.

    Raises
    ------
    KitError
        The checks cannot be listed, or the device that is asked for is missing.
    KnownGapsError
        The provider's ``known_gaps.toml`` cannot be read.
    """
    start = time.monotonic()
    gaps = gaps_of(subject)
    workers = Workers.open(
        subject, quick=plan.quick, groups=plan.groups, model=plan.model,
        only=plan.only, jobs=plan.jobs, deadline=plan.deadline,
    )  # fmt: skip
    try:
        device = require_device(workers, plan.device)
        began(len(workers.checks))
        results = []
        for result in workers.run():
            results.append(result)
            heard(result)
        ids = [check.id for check in workers.checks]
    finally:
        workers.close()
    today = dt.datetime.now(dt.UTC).date()
    whole = Plan(jobs=plan.jobs, deadline=plan.deadline, device=plan.device) == plan
    said = complaints(gaps, ids if whole else None, results, today)
    took = time.monotonic() - start
    report = Report.of(subject, plan.form, tuple(results), gaps, said, took)
    where = {"device": device} if device else {}
    return attrs.evolve(report, machine={**report.machine, **where})


def require_device(workers: Workers, wanted: str) -> str:
    """
    Make sure that the provider works on a device; gives what that calls itself.

    Nothing is asked, and nothing given, where ``wanted`` is empty.

    Raises
    ------
    KitError
        It cannot be opened, works on another, or on one that is emulated; names both.
    """
    if not wanted:
        return ""
    try:
        found, said = workers.device()
    except KitError as error:
        raise KitError(f"the device {wanted!r} is required: {error}") from error
    if wanted not in (found, found.partition(":")[0]):
        raise KitError(f"the device {wanted!r} is required; it works on {found!r}")
    if "emulated" in said.lower():
        raise KitError(
            f"the device {wanted!r} is required; it works on {said}, which is none: "
            "leave out the plugin that emulates one"
        )
    return said


def write_report(report: Report, path: Path) -> None:
    """
    Write a report, JSON or, where the name ends in ``.md``, Markdown.

    Raises
    ------
    ReportError
        The file cannot be written.
    """
    text = to_markdown(report) if path.suffix == ".md" else report.to_json()
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)


def known_groups(names: Collection[str]) -> tuple[str, ...]:
    """
    Check names of groups.

    Raises
    ------
    KitError
        There is no such group.
    """
    from seamline_testing.registry import GROUPS

    for name in names:
        if name not in GROUPS:
            raise KitError(f"no group {name!r} (there are: {', '.join(GROUPS)})")
    return tuple(names)
