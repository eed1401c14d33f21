"""
A profile as a Chrome trace, which Perfetto (ui.perfetto.dev) and ``chrome://tracing`` open.

The file is a JSON array of complete events, as ONNX Runtime writes it: category "Session"
for what a session does, "Node" for each node, named ``<node>_kernel_time``, with the
provider and the operator among its arguments. Times are microseconds since the profile
began, with nanoseconds after the point.

Source of the format: "Trace Event Format", the JSON array format.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from seamline.errors import RunError

__all__ = ["MAX_EVENTS", "Profile", "SessionProfile"]

MAX_EVENTS = 1_000_000  #: events kept; ONNX Runtime stops at as many
_Event: TypeAlias = tuple[str, str, int, int, int, Mapping[str, object]]


class Profile:
    """
    Events gathered while a session works.

    Parameters
    ----------
    prefix
        How the file's path begins; date and time follow.
    max_events
        Later events are counted, not kept; the file says how many.

    Examples
    --------
    >>> profile = Profile("run")
    >>> profile.event("add_kernel_time", "Node", 0, 10, {"op_name": "Add"})
    >>> len(profile)
    1
    """

    def __init__(self, prefix: str, *, max_events: int = MAX_EVENTS) -> None:
        self.prefix = prefix
        self.max_events = max_events
        self.start_ns: int = time.perf_counter_ns()
        self.dropped: int = 0
        self._events: list[_Event] = []
        self._threads: dict[int, str] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Give the number of events kept."""
        return len(self._events)

    def event(
        self,
        name: str,
        category: str,
        start_ns: int,
        end_ns: int,
        args: Mapping[str, object],
    ) -> None:
        """Keep an event; both times are of ``time.perf_counter_ns``, from any thread."""
        thread = threading.get_native_id()
        with self._lock:
            if len(self._events) >= self.max_events:
                self.dropped += 1
                return
            if thread not in self._threads:
                self._threads[thread] = threading.current_thread().name
            self._events.append((name, category, start_ns, end_ns, thread, args))

    @contextmanager
    def span(
        self, name: str, category: str = "Session", **args: object
    ) -> Iterator[None]:
        """Keep the time that a block takes as an event, also when it raises."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.event(name, category, start, time.perf_counter_ns(), args)

    def write(self, path: str | os.PathLike[str] | None = None) -> str:
        """
        Write the trace and give its path.

        The file appears under its name only once it is whole.

        Parameters
        ----------
        path
            Where to; None for the prefix, the date and the time.

        Raises
        ------
        OSError
            The folder is missing or cannot be written; nothing is left behind.
        """
        target = Path(path) if path is not None else self._free_path()
        partial = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            with partial.open("w", encoding="utf-8") as file:
                self._dump(file)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return str(target)

    def _free_path(self) -> Path:
        stamp = datetime.now().astimezone().strftime("%Y-%m-%d_%H-%M-%S")
        path, number = Path(f"{self.prefix}_{stamp}.json"), 0
        while path.exists():
            number += 1
            path = Path(f"{self.prefix}_{stamp}_{number}.json")
        return path

    def _dump(self, file: Any) -> None:
        with self._lock:
            events, threads = list(self._events), dict(self._threads)
        process = os.getpid()
        file.write("[\n")
        lines = [self._line(event, process) for event in events]
        lines += [
            _label("thread_name", process, tid, name) for tid, name in threads.items()
        ]
        lines.append(_label("process_name", process, 0, "seamline"))
        if self.dropped:
            lines.append(_label("dropped_events", process, 0, str(self.dropped)))
        file.write(",\n".join(lines))
        file.write("\n]\n")

    def _line(self, event: _Event, process: int) -> str:
        name, category, start, end, thread, args = event
        entry = {
            "cat": category,
            "pid": process,
            "tid": thread,
            "dur": (end - start) / 1000,
            "ts": (start - self.start_ns) / 1000,
            "ph": "X",
            "name": name,
            "args": dict(args),
        }
        try:
            return json.dumps(entry, default=_plain, allow_nan=False)
        except (TypeError, ValueError):  # JSON has no NaN, and only text for keys
            entry["args"] = {str(key): str(value) for key, value in args.items()}
            return json.dumps(entry)


def _label(kind: str, process: int, thread: int, name: str) -> str:
    return json.dumps(
        {
            "cat": "__metadata",
            "ph": "M",
            "pid": process,
            "tid": thread,
            "ts": 0,
            "dur": 0,
            "name": kind,
            "args": {"name": name},
        }
    )


def _plain(value: object) -> object:
    """Give JSON something that it knows."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)


class SessionProfile:
    """
    The profile of a session, from its opening until somebody ends it.

    Parameters
    ----------
    prefix
        How the file's path begins; None for a session that is not profiled.

    Attributes
    ----------
    current
        What events go to; None when there is no profile, or no longer.
    start_ns
        When it began, by ``time.perf_counter_ns``; 0 without one.
    """

    def __init__(self, prefix: str | None) -> None:
        self.current: Profile | None = None if prefix is None else Profile(prefix)
        self.start_ns: int = 0 if self.current is None else self.current.start_ns
        self._unwritten: weakref.finalize[Any, Any] | None = None

    def keep_for(self, session: object) -> None:
        """Write the file even if the session is dropped without ending the profile."""
        if self.current is not None:
            self._unwritten = weakref.finalize(session, self.current.write)

    def span(self, name: str) -> AbstractContextManager[None]:
        """Keep the time that a block takes, if there is a profile."""
        return nullcontext() if self.current is None else self.current.span(name)

    def end(self) -> str:
        """Write the file, give its path, and stop; raises RunError if there is none."""
        profile, self.current = self.current, None
        if profile is None:
            raise RunError(
                "profiling is not on; set SessionOptions.enable_profiling before opening"
            )
        if self._unwritten is not None:
            self._unwritten.detach()
        return profile.write()
