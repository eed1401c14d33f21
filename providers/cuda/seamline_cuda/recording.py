"""
A recorded segment: a graph of the driver, and what must still hold when it is launched.

What the graph rests on is what any recording does: see :mod:`seamline.device_segments`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from seamline.device_segments import Held
from seamline.errors import KernelError, RecordingError
from seamline_cuda.errors import CudaError
from seamline_cuda.streams import CudaGraph

if TYPE_CHECKING:
    from seamline_cuda.gate import Capturing
    from seamline_cuda.memory import CudaMemory, CudaView

__all__ = ["CudaRecording", "captured"]


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
    gpu = memory.gpu
    with memory.gate.capture(name) as capture, gpu.turn, gpu.here():
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
class CudaRecording:
    """
    Implements :class:`~seamline.provider.Recording`.

    Attributes
    ----------
    graph
        What is launched.
    """

    held: Held[CudaView]
    graph: CudaGraph | None
    memory: CudaMemory

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
        segment, memory = self.held.segment, self.memory
        segment.take()
        try:
            memory.gate.legal("replays a recording")
            graph = self.graph
            if graph is None:
                self.held.refuse("it is closed")
            self.held.check()
            try:
                with memory.gpu.here(), memory.gpu.turn:
                    graph.launch(memory.gpu.compute)
            except CudaError as error:
                memory.gpu.noticed(error)
                raise KernelError(
                    f"a replay: {error}",
                    provider=segment.provider,
                    segment=segment.spec.name,
                ) from error
        finally:
            segment.give()

    def close(self) -> None:
        """Give the graph back once it is not in flight; a second call does nothing."""
        graph, self.graph = self.graph, None
        gpu = self.memory.gpu
        if graph is not None and gpu.is_open and not gpu.lost:
            gpu.drain()
            with gpu.here():
                graph.close()
