"""
Streams, events and recorded graphs of the driver, as resources.

All of them belong to the context that is current when they are made; the methods are
called inside :meth:`seamline_cuda.device.Gpu.here`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from seamline.errors import DeadlineError
from seamline_cuda.driver import SUCCESS, call, check, enumeration, prepared
from seamline_cuda.errors import CudaError

__all__ = ["CudaGraph", "Event", "Stream"]

_NON_BLOCKING = 1  #: no implicit order with the default stream that torch may use
_NO_TIMING = 2
_PATIENCE = 0.0002  #: seconds between two looks at a stream, where a wait has an end


@attrs.define(eq=False)
class Event:
    """A point in a stream that others can wait for; with ``timed``, also when it was."""

    handle: Any
    timed: bool = False

    @classmethod
    def open(cls, *, timed: bool = False) -> Event:
        """Make an event, which counts as reached until it is recorded."""
        return cls(call("cuEventCreate", 0 if timed else _NO_TIMING), timed)

    def is_reached(self) -> bool:
        """Tell whether what was recorded before it is done."""
        result = prepared("cuEventQuery")(self.handle)
        if int(result[0]) == _NOT_READY:
            return False
        check("cuEventQuery", result)
        return True

    def synchronize(self, deadline: float | None = None) -> None:
        """
        Wait until it is reached.

        Parameters
        ----------
        deadline
            Seconds to wait at most; None for as long as it takes.

        Raises
        ------
        CudaError
            Work before it failed.
        DeadlineError
            It was not reached in time, and what it waits for still runs.
        """
        if deadline is None:
            call("cuEventSynchronize", self.handle)
        else:
            _wait(self.is_reached, deadline, "what an event waits for")

    def since(self, other: Event) -> float:
        """Give the seconds between two timed events, both reached."""
        return float(call("cuEventElapsedTime", other.handle, self.handle)) / 1000

    def close(self) -> None:
        """Give it back; a second call does nothing."""
        handle, self.handle = self.handle, None
        if handle is not None:
            call("cuEventDestroy", handle)


_NOT_READY = 600


def _wait(is_over: Callable[[], bool], deadline: float, what: str) -> None:
    """Look again and again; the driver's own waits have no end."""
    start = time.monotonic()
    while not is_over():
        spent = time.monotonic() - start
        if spent > deadline:
            said = f"{what} did not end within {deadline} s"
            raise DeadlineError(said, provider="cuda")
        if spent > _PATIENCE:  # what is short is not slept through
            time.sleep(_PATIENCE)


@attrs.define(eq=False)
class Stream:
    """
    Work in order, on the device's own time.

    Attributes
    ----------
    handle
        The driver's; what a prepared launch is given.
    """

    name: str
    handle: Any

    @classmethod
    def open(cls, name: str) -> Stream:
        """Make a stream that does not wait for the default one, nor it for this."""
        return cls(name, call("cuStreamCreate", _NON_BLOCKING))

    def record(self, event: Event) -> None:
        """Let an event be reached when everything submitted so far is done."""
        check("cuEventRecord", prepared("cuEventRecord")(event.handle, self.handle))

    def wait_for(self, event: Event) -> None:
        """Let what is submitted from now on wait for an event."""
        call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def is_idle(self) -> bool:
        """Tell whether everything that was submitted is done."""
        result = prepared("cuStreamQuery")(self.handle)
        if int(result[0]) == _NOT_READY:
            return False
        check("cuStreamQuery", result)
        return True

    def synchronize(self, deadline: float | None = None) -> None:
        """
        Wait until everything that was submitted is done.

        Parameters
        ----------
        deadline
            Seconds to wait at most; None for as long as it takes.

        Raises
        ------
        CudaError
            Some of it failed.
        DeadlineError
            It did not end in time, and still runs.
        """
        if deadline is None:
            given = prepared("cuStreamSynchronize")(self.handle)
            check("cuStreamSynchronize", given)
            return
        _wait(self.is_idle, deadline, f"the stream {self.name!r}")

    @contextlib.contextmanager
    def captured(self) -> Iterator[list[CudaGraph]]:
        """
        Record what is submitted inside the block, instead of doing it.

        The list that is given holds the graph once the block has ended. A block that
        raises leaves no graph and no open capture.

        Raises
        ------
        CudaError
            The capture was made invalid, by something inside it that cannot be recorded.
        """
        # Thread-local: calls of other threads that the driver would forbid in a global
        # capture are the gate's business, and torch's own are none of ours.
        mode = enumeration("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL")
        call("cuStreamBeginCapture", self.handle, mode)
        made: list[CudaGraph] = []
        try:
            yield made
        except BaseException:
            result, graph = prepared("cuStreamEndCapture")(self.handle)
            if result == SUCCESS and graph is not None and int(graph):
                call("cuGraphDestroy", graph)
            raise
        made.append(CudaGraph.of(call("cuStreamEndCapture", self.handle)))

    def close(self) -> None:
        """End it once its work is done; a second call does nothing."""
        handle, self.handle = self.handle, None
        if handle is not None:
            with contextlib.suppress(CudaError):  # told to whoever synchronised
                call("cuStreamSynchronize", handle)
            call("cuStreamDestroy", handle)


@attrs.define(eq=False)
class CudaGraph:
    """
    Recorded work, made ready to be launched again and again.

    Attributes
    ----------
    nodes
        Kernels, copies and fills in it.
    """

    handle: Any
    nodes: int
    _driver: Callable[..., Any] = attrs.field(
        factory=lambda: prepared("cuGraphLaunch"), init=False
    )

    @classmethod
    def of(cls, graph: Any) -> CudaGraph:
        """Instantiate a recorded graph, which is destroyed."""
        try:
            nodes = int(call("cuGraphGetNodes", graph, 0)[1])
            return cls(call("cuGraphInstantiate", graph, 0), nodes)
        finally:
            call("cuGraphDestroy", graph)

    def upload(self, stream: Stream) -> None:
        """Bring it to the device, so that the first launch costs what every one does."""
        call("cuGraphUpload", self.handle, stream.handle)

    def launch(self, stream: Stream) -> None:
        """Submit what was recorded, again."""
        given = self._driver(self.handle, stream.handle)
        if given[0] != SUCCESS:
            check("cuGraphLaunch", given)

    def close(self) -> None:
        """Give it back; a second call does nothing."""
        handle, self.handle = self.handle, None
        if handle is not None:
            call("cuGraphExecDestroy", handle)
