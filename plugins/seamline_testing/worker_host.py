"""
The process that checks run in, and the one that watches it.

A *host* makes the list of checks once, which takes the import of ONNX's suites, and forks
one *watcher* for each job. A watcher forks a *runner*, hands it one check at a time, and
waits: an answer is passed on; a runner that dies or does not answer before the deadline
is one CRASH, and the next check gets a new runner, forked in milliseconds. So does the one
after a failure that lost the device (:mod:`seamline_testing.held_device`). Host and
watcher touch no provider, so a fork never copies a device that is in use.

Each speaks JSON, a line at a time, over sockets that it was given; whatever a provider
prints goes to a file, whose end is part of a crash's report.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import attrs

from seamline.errors import RunError
from seamline_testing.held_device import HeldDevice
from seamline_testing.results import Check, Finding, Outcome
from seamline_testing.subject import Subject

__all__ = ["host"]

_TAIL = 400  #: characters of a dead runner's output that are reported


def host(spec: Mapping[str, Any], control: socket.socket, jobs: list[int]) -> None:
    """List the checks over ``control``, then watch one runner for each job's socket."""
    subject = Subject(spec["provider"], spec["options"], tuple(spec["plugins"]))
    with control, control.makefile("w", encoding="utf-8") as out:
        try:
            checks = _checks(subject, spec)
        except BaseException:
            _say(out, {"error": traceback.format_exc()})
            return
        keys = ("id", "group", "operator", "opset", "dtype")
        listed = [{key: getattr(check, key) for key in keys} for check in checks]
        _say(out, {"checks": listed})
    by_id = {check.id: check for check in checks}
    watchers = []
    for number in jobs:
        pid = os.fork()
        if not pid:
            for other in set(jobs) - {number}:
                os.close(other)
            _in_child(lambda number=number: _watch(number, by_id, subject))
        watchers.append(pid)
    for number in jobs:
        os.close(number)
    for pid in watchers:
        os.waitpid(pid, 0)


def _checks(subject: Subject, spec: Mapping[str, Any]) -> tuple[Check, ...]:
    from seamline_testing.registry import GROUPS, all_checks

    model = Path(spec["model"]) if spec["model"] else None
    groups, pattern = spec["groups"], spec["only"]
    first = pattern.partition("/")[0]
    if not groups and "/" in pattern and first in GROUPS:
        groups = [first]  # no other group has such an id
    found = all_checks(subject, spec["quick"], groups, model)
    return tuple(check for check in found if not pattern or pattern in check.id)


def _say(out: IO[str], message: Mapping[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def _in_child(work: Any) -> None:
    """Do the work of a forked process, and end it without the parent's clean-up."""
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


@attrs.define(eq=False)
class _Runner:
    """A forked process that runs checks, as its watcher sees it."""

    pid: int
    line: IO[str]
    sock: socket.socket
    log: IO[bytes]

    @classmethod
    def fork(cls, checks: Mapping[str, Check], subject: Subject) -> _Runner:
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - both processes hold it
        pid = os.fork()
        if not pid:
            ours.close()
            os.setsid()  # what a provider starts dies with it
            for number in (1, 2):
                os.dup2(log.fileno(), number)
            faulthandler.enable(sys.__stderr__ or 2)
            _in_child(lambda: _serve(theirs, checks, subject))
        theirs.close()
        return cls(pid, ours.makefile("r", encoding="utf-8"), ours, log)

    def ended(self) -> str:
        """Reap it, and say how it died."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.line.close()
        self.sock.close()
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 4 * _TAIL))
        tail = self.log.read().decode(errors="replace").strip()[-_TAIL:]
        self.log.close()
        how = (
            f"signal {signal.Signals(os.WTERMSIG(status)).name}"
            if os.WIFSIGNALED(status)
            else f"exit status {os.WEXITSTATUS(status)}"
        )
        return f"{how}; it last said: {tail}" if tail else how


def _watch(number: int, checks: Mapping[str, Check], subject: Subject) -> None:
    """Pass requests on to a runner, and answer for it where it cannot."""
    runner: _Runner | None = None
    with socket.socket(fileno=number) as sock:
        lines = sock.makefile("r", encoding="utf-8")
        out = sock.makefile("w", encoding="utf-8")
        try:
            for line in lines:
                request = json.loads(line)
                runner = runner or _Runner.fork(checks, subject)
                start = time.perf_counter()
                reply = _ask(runner, request, sock)
                if reply is None:
                    return  # whoever asked is gone
                if "crash" in reply:
                    finding = Finding(Outcome.CRASH, reply["crash"])
                    reply = {"finding": attrs.asdict(finding)}
                    runner = None
                elif reply.pop("last", False):
                    runner.ended()
                    runner = None
                _say(out, {**reply, "seconds": time.perf_counter() - start})
        finally:
            if runner is not None:
                runner.ended()


def _ask(
    runner: _Runner, request: Mapping[str, Any], asker: socket.socket
) -> dict[str, Any] | None:
    """Give the runner's answer, or how it ended; None where nobody waits any more."""
    deadline = time.monotonic() + request["deadline"]
    try:
        runner.sock.sendall((json.dumps(request) + "\n").encode())
    except OSError:
        return {"crash": f"the process was gone: {runner.ended()}"}
    left = max(0.0, deadline - time.monotonic())
    ready, _, _ = select.select([runner.sock, asker], [], [], left)
    if runner.sock in ready:
        answer = runner.line.readline()
        if answer.endswith("\n"):
            made: dict[str, Any] = json.loads(answer)
            return made
        return {"crash": f"the process died: {runner.ended()}"}
    if asker in ready:
        return None
    said = runner.ended()
    return {"crash": f"no answer within {request['deadline']:g} s ({said})"}


def _serve(sock: socket.socket, checks: Mapping[str, Check], subject: Subject) -> None:
    """Run the checks that are asked for, until nobody asks or the device is lost."""
    out = sock.makefile("w", encoding="utf-8")
    held: HeldDevice | None = None
    for line in sock.makefile("r", encoding="utf-8"):
        request = json.loads(line)
        held = held or HeldDevice.open(subject)
        if "device" in request:
            _say(out, _device(subject))
            continue
        reply = _run(checks, request, subject)
        outcome = reply["finding"]["outcome"] if "finding" in reply else Outcome.CRASH
        last = Outcome(outcome).is_failure and not held.works()
        _say(out, {**reply, "last": last})
        if last:
            return


def _run(
    checks: Mapping[str, Check], request: Mapping[str, Any], subject: Subject
) -> dict[str, Any]:
    try:
        finding = checks[request["check"]].run(subject)
    except RunError as error:  # asked of its memory itself, it refused what it may not
        said = f"{type(error).__name__}: {error}"
        finding = Finding(Outcome.CONTRACT_VIOLATION, said)
    except Exception:
        return {"fault": traceback.format_exc()}
    except BaseException as error:  # the kit raises none: it comes from the provider
        said = f"{type(error).__name__} came out of it: {error}"
        finding = Finding(Outcome.CONTRACT_VIOLATION, said)
    return {"finding": attrs.asdict(finding)}


def _device(subject: Subject) -> dict[str, Any]:
    """Open the provider, and say which device it works on and what it calls it."""
    try:
        opened = subject.opened()
        try:
            provider = next(iter(opened.providers.values()))
            facts: Mapping[str, object] = getattr(provider, "facts", dict)()
            said = str(facts.get("device", provider.device))
            return {"device": str(provider.device), "said": said}
        finally:
            opened.close()
    except Exception as error:
        return {"missing": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    host(
        json.loads(sys.argv[1]),
        socket.socket(fileno=int(sys.argv[2])),
        [int(number) for number in sys.argv[3:]],
    )
