"""
Run checks in processes of their own, so that one that dies is one result.

``Workers.open`` starts a host process (:mod:`seamline_testing.worker_host`) that knows
the subject by name; nothing of the provider is imported here.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import attrs

from seamline.errors import SeamlineError
from seamline_testing.results import Finding, Outcome, Result
from seamline_testing.subject import Subject

__all__ = ["DEADLINE", "FAULT", "KitError", "Listed", "Workers"]

DEADLINE = 120.0  #: seconds for one check; a first one may compile for long
FAULT = "a fault of the kit: "  #: what such a result's reason starts with


class KitError(SeamlineError):
    """The kit itself failed; no result says anything of the provider."""


@attrs.frozen
class Listed:
    """A check that a worker can run."""

    id: str
    group: str
    operator: str = ""
    opset: int = 0
    dtype: str = ""

    def result(self, finding: Finding, seconds: float = 0.0) -> Result:
        """Join it and what was found."""
        return Result(
            self.id, self.group, finding, self.operator, self.opset, self.dtype, seconds
        )


@attrs.define(eq=False)
class _Job:
    """One runner, as it is asked from here."""

    lines: IO[str]
    sock: socket.socket

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.sock.sendall((json.dumps(request) + "\n").encode())
        answer = self.lines.readline()
        if not answer:
            raise KitError("the process that watches checks is gone")
        made: dict[str, Any] = json.loads(answer)
        return made


@attrs.define(eq=False)
class Workers:
    """
    Processes that run a subject's checks.

    Attributes
    ----------
    checks
        What can be run, in order.
    """

    checks: tuple[Listed, ...]
    deadline: float
    _jobs: list[_Job]
    _stack: ExitStack

    @classmethod
    def open(
        cls,
        subject: Subject,
        *,
        quick: bool = False,
        groups: Collection[str] = (),
        model: Path | None = None,
        only: str = "",
        jobs: int = 1,
        deadline: float = DEADLINE,
    ) -> Workers:
        """
        Start the processes.

        Parameters
        ----------
        only
            Part of the ids of the checks to list; empty for all.
        jobs
            Checks that run at a time.
        deadline
            Seconds until a check counts as hung.

        Raises
        ------
        KitError
            The checks cannot be listed, or none has ``only`` in its id.
        """
        spec = {
            "provider": subject.provider, "options": dict(subject.options),
            "plugins": list(subject.plugins), "quick": quick, "groups": list(groups),
            "model": str(model) if model else "", "only": only,
        }  # fmt: skip
        with ExitStack() as stack:
            control, lines = _started(spec, jobs, stack)
            found = json.loads(control.readline() or '{"error": "it ended at once"}')
            if "error" in found:
                raise KitError(f"the checks cannot be listed: {found['error']}")
            checks = tuple(Listed(**each) for each in found["checks"])
            if only and not checks:
                raise KitError(f"no check has {only!r} in its id, so nothing can pass")
            return cls(checks, deadline, lines, stack.pop_all())

    def run(self, ids: Iterable[str] | None = None) -> Iterator[Result]:
        """Run checks, all where none are named, and give each result as it comes."""
        wanted = None if ids is None else set(ids)
        waiting: queue.SimpleQueue[Listed] = queue.SimpleQueue()
        results: queue.SimpleQueue[Result | Exception] = queue.SimpleQueue()
        chosen = [c for c in self.checks if wanted is None or c.id in wanted]
        for check in chosen:
            waiting.put(check)
        for job in self._jobs:
            threading.Thread(
                target=self._work, args=(job, waiting, results), daemon=True
            ).start()
        for _ in chosen:
            result = results.get()
            if isinstance(result, Exception):
                raise result
            yield result

    def run_one(self, check: Listed) -> Result:
        """Run one check."""
        return self._result(self._jobs[0], check)

    def device(self) -> tuple[str, str]:
        """
        Give the device that the provider works on, such as ``cuda:0``, and what it calls it.

        Raises
        ------
        KitError
            It cannot be opened; says why.
        """
        reply = self._jobs[0].ask({"device": True, "deadline": self.deadline})
        if "device" in reply:
            return str(reply["device"]), str(reply["said"])
        raise KitError(reply.get("missing") or reply["finding"]["said"])

    def _work(
        self,
        job: _Job,
        waiting: queue.SimpleQueue[Listed],
        results: queue.SimpleQueue[Result | Exception],
    ) -> None:
        while True:
            try:
                check = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results.put(self._result(job, check))
            except (OSError, ValueError, KitError) as error:
                results.put(KitError(f"{check.id}: {error}"))
                return

    def _result(self, job: _Job, check: Listed) -> Result:
        reply = job.ask({"check": check.id, "deadline": self.deadline})
        if "fault" in reply:
            finding = Finding(Outcome.NOT_RUN, FAULT + reply["fault"])
        else:
            given = reply["finding"]
            finding = Finding(**{**given, "outcome": Outcome(given["outcome"])})
        return check.result(finding, round(reply["seconds"], 4))

    def close(self) -> None:
        """End the processes; a second call does nothing."""
        self._stack.close()


def _started(
    spec: dict[str, Any], jobs: int, stack: ExitStack
) -> tuple[IO[str], list[_Job]]:
    """Start the host, and give its lines and its jobs."""
    ours, theirs = [], []
    for _ in range(jobs + 1):
        one, other = socket.socketpair()
        ours.append(one)
        theirs.append(other)
    numbers = [str(sock.fileno()) for sock in theirs]
    # the host finds what this process finds, a test's own modules included
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__.rpartition(".")[0] + ".worker_host", json.dumps(spec), *numbers],
            pass_fds=[int(number) for number in numbers], env=env,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except BaseException:
        for sock in ours:
            sock.close()
        raise
    finally:
        for sock in theirs:
            sock.close()
    # the sockets close first, which ends the watchers and then the host
    stack.callback(_ended, process)
    for sock in ours:
        stack.callback(sock.close)
    files = [sock.makefile("r", encoding="utf-8") for sock in ours]
    for file in files:
        stack.callback(file.close)
    return files[0], [
        _Job(file, sock) for file, sock in zip(files[1:], ours[1:], strict=True)
    ]


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for the host, which ends when its sockets close."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
