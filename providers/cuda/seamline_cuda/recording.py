"""
A recorded segment: a graph of the driver, and what must still hold when it is launched.

What the graph holds is addresses. Pages exchanged under them are fine, and are how a cache
grows under it. What is refused, with the reason, is a segment that was bound elsewhere or
closed since, a host input that has another value, and a buffer that was closed: its
address may be another's by now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import attrs

from seamline.errors import KernelError, RecordingError
from seamline_cuda.errors import CudaError
from seamline_cuda.streams import CudaGraph

if TYPE_CHECKING:
    from seamline_cuda.gate import Capturing
    from seamline_cuda.memory import CudaBuffer, CudaMemory
    from seamline_cuda.segment import CudaSegment

__all__ = ["CudaRecording", "Held", "captured"]


def captured(
    memory: CudaMemory, name: str, submit: Callable[[Capturing], object]
) -> CudaGraph:
    """
    Record what is submitted as one graph of the driver; nothing runs.

    Parameters
    ----------
    submit
        Submits, and notes the node that it is at.

    Raises
    ------
    RecordingError
        Names the node whose launch did what cannot be recorded.
    """
    with memory.gate.capture(name) as capture, memory.gpu.here():
        try:
            with memory.gpu.compute.captured() as made:
                submit(capture)
        except RecordingError:
            raise
        except Exception as error:
            raise RecordingError(
                f"its launch failed: {error}",
                provider="cuda",
                segment=name,
                node=capture.node,
            ) from error
        try:
            made[0].upload(memory.gpu.compute)
        except CudaError:
            made[0].close()
            raise
        return made[0]


@attrs.define(eq=False)
class Held:
    """
    What a recording of a segment rests on.

    Attributes
    ----------
    binding
        The binding that it was recorded over.
    """

    segment: CudaSegment
    binding: int
    _buffers: dict[str, CudaBuffer]

    @classmethod
    def of(cls, segment: CudaSegment) -> Held:
        """Keep what the segment's present binding has."""
        # Most values lie in one buffer, which need not be looked at for each of them.
        named = {id(v.buffer): (n, v.buffer) for n, v in segment.bound.items()}
        return cls(segment, segment.binding, dict(named.values()))

    def check(self) -> None:
        """
        Hold the segment to it.

        Raises
        ------
        RecordingError
            Something no longer holds.
        """
        if self.segment.binding != self.binding:
            self.refuse("its segment was bound to other places, launched otherwise or closed since; record it again")  # fmt: skip
        if name := self.segment.host.changed:
            self.refuse(f"host input {name!r} is baked into it and has another value now; record it again")  # fmt: skip
        for name, buffer in self._buffers.items():
            if not buffer.is_open:
                self.refuse(f"the buffer of {name!r} was closed since")

    def refuse(self, why: str) -> NoReturn:
        """Raise a RecordingError that names the segment."""
        raise RecordingError(
            why, provider=self.segment.provider, segment=self.segment.spec.name
        )


@attrs.define(eq=False)
class CudaRecording:
    """
    Implements :class:`~seamline.provider.Recording`.

    Attributes
    ----------
    graph
        What is launched.
    """

    held: Held
    graph: CudaGraph | None

    def replay(self) -> None:
        """
        Submit what was recorded, again, over what lies at its addresses now.

        Raises
        ------
        RecordingError
            Something that it rests on no longer holds; nothing was run.
        KernelError
            The driver refused it, or reported work that failed earlier.
        """
        segment = self.held.segment
        memory = segment.memory
        with segment.taken():
            memory.gate.legal("replays a recording")
            graph = self.graph
            if graph is None:
                self.held.refuse("it is closed")
            self.held.check()
            try:
                with memory.gpu.here():
                    graph.launch(memory.gpu.compute)
            except CudaError as error:
                memory.gpu.noticed(error)
                raise KernelError(
                    f"a replay: {error}",
                    provider=segment.provider,
                    segment=segment.spec.name,
                ) from error

    def close(self) -> None:
        """Give the graph back once it is not in flight; a second call does nothing."""
        graph, self.graph = self.graph, None
        gpu = self.held.segment.memory.gpu
        if graph is not None and gpu.is_open:
            gpu.drain()
            with gpu.here():
                graph.close()
