"""
A report: every result of a run, with what it ran on.

Reports are JSON with stable check ids, so that two of them can be compared; see
:mod:`seamline_testing.report_diff`.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from seamline.errors import SeamlineError
from seamline_testing.known_gaps import Gaps
from seamline_testing.results import Finding, Outcome, Result
from seamline_testing.subject import Subject
from seamline_testing.workers import FAULT

__all__ = ["FORMAT", "Report", "ReportError", "load_report", "machine", "versions"]

FORMAT = "seamline conformance report 1"
_PACKAGES = (
    "seamline", "onnx", "onnxruntime", "onnx-ir", "numpy", "ml_dtypes", "numba",
    "numba-cuda", "cuda-bindings", "nvidia-cublas", "hypothesis",
)  # fmt: skip


class ReportError(SeamlineError):
    """A report cannot be read or written."""


def versions() -> dict[str, str]:
    """Give the versions of what results depend on; left out where not installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str]:
    """Say what kind of machine this is; nothing that tells one from its like."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "processors": str(len(os.sched_getaffinity(0))),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if "model name" in line)
    return next(named, platform.processor())


@attrs.frozen
class Report:
    """
    What a run of the kit found.

    Attributes
    ----------
    form
        ``full``, ``quick`` or the name of a user's model.
    results
        In the order of ids.
    gaps
        Check id -> reason, for results that the provider's known gaps speak of.
    complaints
        Entries of ``known_gaps.toml`` that do not hold.
    """

    provider: str
    options: Mapping[str, Any]
    form: str
    results: tuple[Result, ...]
    gaps: Mapping[str, str] = attrs.field(factory=dict)
    complaints: tuple[str, ...] = ()
    versions: Mapping[str, str] = attrs.field(factory=versions)
    machine: Mapping[str, str] = attrs.field(factory=machine)
    seconds: float = 0.0

    @classmethod
    def of(
        cls,
        subject: Subject,
        form: str,
        results: tuple[Result, ...],
        gaps: Gaps,
        complaints: tuple[str, ...] = (),
        seconds: float = 0.0,
    ) -> Report:
        """Join results and what the provider says of itself."""
        named = {result.id: gaps.gap_for(result.id) for result in results}
        return cls(
            subject.provider, dict(subject.options), form,
            tuple(sorted(results, key=lambda result: result.id)),
            {name: gap.reason for name, gap in sorted(named.items()) if gap is not None},
            complaints, seconds=round(seconds, 1),
        )  # fmt: skip

    @property
    def counts(self) -> dict[Outcome, int]:
        """Count the results of each outcome, all seven."""
        found = Counter(result.finding.outcome for result in self.results)
        return {outcome: found.get(outcome, 0) for outcome in Outcome}

    @property
    def score(self) -> float:
        """Give passes over results; nothing else counts."""
        return self.counts[Outcome.PASS] / len(self.results) if self.results else 0.0

    @property
    def failures(self) -> tuple[Result, ...]:
        """Give failures that no known gap speaks of, and faults of the kit."""
        return tuple(
            result
            for result in self.results
            if (result.finding.outcome.is_failure and result.id not in self.gaps)
            or result.finding.said.startswith(FAULT)
        )

    @property
    def holds(self) -> bool:
        """Tell whether the provider may say that it conforms."""
        passed = self.counts[Outcome.PASS] > 0
        return passed and not self.failures and not self.complaints

    def to_json(self) -> str:
        """Give the report as text."""
        results = []
        for result in self.results:
            row = attrs.asdict(
                result, filter=lambda _, value: value not in ("", 0, 0.0)
            )
            results.append(row | row.pop("finding"))
        data = {
            "format": FORMAT,
            "provider": self.provider,
            "options": dict(self.options),
            "form": self.form,
            "versions": dict(self.versions),
            "machine": dict(self.machine),
            "seconds": self.seconds,
            "score": round(self.score, 4),
            "counts": {str(outcome): n for outcome, n in self.counts.items()},
            "gaps": dict(self.gaps),
            "complaints": list(self.complaints),
            "results": results,
        }
        return json.dumps(data, indent=1, default=str) + "\n"


def load_report(path: Path) -> Report:
    """
    Read a report.

    Raises
    ------
    ReportError
        It is none, or of another format.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ReportError(
            f"{path}: it is no {FORMAT!r}; make one with seamline conform --report"
        )
    results = tuple(_result(row) for row in data["results"])
    return Report(
        data["provider"], data["options"], data["form"], results, data["gaps"],
        tuple(data["complaints"]), data["versions"], data["machine"], data["seconds"],
    )  # fmt: skip


def _result(row: dict[str, Any]) -> Result:
    finding = Finding(
        Outcome(row["outcome"]), row.get("said", ""), row.get("judge", ""),
        row.get("tolerance", ""),
    )  # fmt: skip
    return Result(
        row["id"], row["group"], finding, row.get("operator", ""), row.get("opset", 0),
        row.get("dtype", ""), row.get("seconds", 0.0),
    )  # fmt: skip
