"""
A recorded segment: a graph of the driver, and what must still hold when it is launched.

What the graph holds is addresses. Pages exchanged under them are fine, and are how a cache
grows under it. What is refused, with the reason, is a segment that was bound elsewhere or
closed since, a host input that has another value, and a buffer that was closed: its
address may be another's by now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import attrs

from seamline.errors import KernelError, RecordingError
from seamline_cuda.errors import CudaError
from seamline_cuda.streams import CudaGraph

if TYPE_CHECKING:
    from seamline_cuda.memory import CudaBuffer
    from seamline_cuda.segment import CudaSegment

__all__ = ["CudaRecording"]


@attrs.define(eq=False)
class CudaRecording:
    """
    Implements :class:`~seamline.provider.Recording`.

    Attributes
    ----------
    graph
        What is launched.
    binding
        The binding that it was recorded over.
    """

    segment: CudaSegment
    graph: CudaGraph | None
    binding: int
    _buffers: dict[str, CudaBuffer] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._buffers = {n: v.buffer for n, v in self.segment.bound.items()}

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
        segment = self.segment
        memory = segment.memory
        with segment.taken():
            memory.gate.legal("replays a recording")
            graph = self._checked()
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
        gpu = self.segment.memory.gpu
        if graph is not None and gpu.is_open:
            gpu.drain()
            with gpu.here():
                graph.close()

    def _checked(self) -> CudaGraph:
        if self.graph is None:
            self._refuse("it is closed")
        if self.segment.binding != self.binding:
            self._refuse("its segment was bound to other places, launched otherwise or closed since; record it again")  # fmt: skip
        if name := self.segment.host.changed:
            self._refuse(f"host input {name!r} is baked into it and has another value now; record it again")  # fmt: skip
        for name, buffer in self._buffers.items():
            if not buffer.is_open:
                self._refuse(f"the buffer of {name!r} was closed since")
        return self.graph

    def _refuse(self, why: str) -> NoReturn:
        raise RecordingError(
            why, provider=self.segment.provider, segment=self.segment.spec.name
        )
