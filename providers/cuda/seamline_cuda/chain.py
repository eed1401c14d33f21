"""
Segments and the host's work between them as one graph of the driver.

An excursion is one kernel where all its values are small, see
:mod:`seamline_cuda.mailbox`; larger values are copied by nodes of the graph before and
after it. Where the driver is to call the host instead, all values are.

The thread that replays launches the graph and then serves it: it works on the host's side
and answers, until the last excursion is answered. What comes after that is in flight when
a replay returns, as with any other recording.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import attrs

from seamline.device_segments import DeviceSegment, Held
from seamline.errors import KernelError, RecordingError
from seamline.forms import ChainSpec, HostWork
from seamline.provider import Array
from seamline.serving import Spent, following, serve
from seamline_cuda.edges import CudaEdges
from seamline_cuda.errors import CudaError
from seamline_cuda.excursions import Excursions, given_back
from seamline_cuda.gate import Capturing
from seamline_cuda.loading import Loader
from seamline_cuda.mail import CudaMail
from seamline_cuda.memory import CudaBuffer, CudaMemory, CudaView
from seamline_cuda.recording import captured
from seamline_cuda.segment import CudaSegment
from seamline_cuda.streams import CudaGraph

__all__ = ["CudaChain", "record_chain"]


@attrs.define(eq=False)
class CudaChain:
    """
    Implements :class:`~seamline.provider.Recording` for a chain.

    Attributes
    ----------
    mail, edges
        How its excursions reach the host, and the copies at its edges; None without any.
    held
        What the segments rest on.
    buffers
        Where its segments, excursions and edges read and write, each once.
    works
        Name and work of each excursion.
    """

    name: str
    memory: CudaMemory
    mail: CudaMail | None
    edges: CudaEdges | None
    graph: CudaGraph | None
    held: tuple[Held[CudaView], ...]
    buffers: tuple[CudaBuffer, ...]
    works: tuple[tuple[str, Callable[[], object]], ...]
    times: Spent
    words: tuple[int, ...]
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def replay(self) -> None:
        """
        Launch what was recorded, and do the host's work as it is asked for.

        Raises
        ------
        RecordingError
            Something that it rests on no longer holds; nothing was run.
        DeadlineError
            The host's work took longer than the device waits; names its node.
        RunError
            A kernel or the host's work failed; the device is usable, unless it is lost.
        """
        if not self._turn.acquire(blocking=False):
            raise KernelError(
                "another thread replays it now; give each thread a program of its own",
                provider="cuda",
                segment=self.name,
            )
        taken: list[DeviceSegment[CudaView]] = []
        try:
            for held in self.held:
                held.segment.take()
                taken.append(held.segment)
            self._replay()
        finally:
            for segment in taken:
                segment.give()
            self._turn.release()

    def _replay(self) -> None:
        memory, mail, edges = self.memory, self.mail, self.edges
        memory.gate.legal("replays a recording")
        graph = self._checked()
        if mail is not None and mail.is_late:
            mail.abort()
        if edges is not None:
            edges.restart()
        try:
            gpu = memory.gpu
            gpu.enter()
            try:
                with gpu.turn:
                    graph.launch(gpu.compute)
            finally:
                gpu.leave()
        except CudaError as error:
            memory.gpu.noticed(error)
            raise KernelError(
                f"a replay: {error}", provider="cuda", segment=self.name
            ) from error
        if edges is not None:
            edges.launched += 1
        if mail is not None:
            self._serve(mail)

    def _serve(self, mail: CudaMail) -> None:
        first = mail.first
        serve(mail, first, self.works, self.times)
        mail.first = following(first, len(self.works))
        if mail.first < first:
            self.memory.synchronize()
            mail.reset()

    @property
    def inward(self) -> Sequence[Array]:
        """Give what stands on the host for the places that a replay fills first."""
        return [one.array for one in self.edges.inward] if self.edges else ()

    @property
    def outward(self) -> Sequence[Array]:
        """Give what stands on the host for the places that it reads last."""
        return [one.array for one in self.edges.outward] if self.edges else ()

    @property
    def taken(self) -> Callable[[], None]:
        """Give what waits until the last replay has read ``inward``."""
        assert self.edges is not None
        return self.edges.taken

    @property
    def given(self) -> Callable[[], None]:
        """Give what waits until the last replay has filled ``outward``."""
        assert self.edges is not None
        return self.edges.given

    def spent(self) -> Mapping[str, tuple[float, float]]:
        """
        Give medians of each excursion; see :class:`~seamline.serving.Spent`.

        Waits for the replay in flight, whose end is stamped after it returned.
        """
        if self.graph is not None and self.mail and not self.memory.gpu.lost:
            took = self.mail.took(len(self.works))
            for (name, _), lately in zip(self.works, took, strict=True):
                self.times.take_whole(name, lately)
        return self.times.medians()

    def close(self) -> None:
        """
        Give everything back once it is not in flight; a second call does nothing.

        A replay of another thread is given up, and raises.
        """
        if self.mail is not None:
            self.mail.is_open = False
        with self._turn:
            graph, self.graph = self.graph, None
            gpu = self.memory.gpu
            if graph is not None and gpu.is_open and not gpu.lost:
                gpu.drain()
                with gpu.here():
                    graph.close()
                given_back(self.memory, self.words)
                for shared in (self.mail, self.edges):
                    if shared is not None:
                        shared.close()

    def _checked(self) -> CudaGraph:
        if self.graph is None:
            why = "it is closed"
            raise RecordingError(why, provider="cuda", segment=self.name)
        for held in self.held:
            if held.segment.binding != held.binding or held.changed():
                held.check()  # raises
        for buffer in self.buffers:
            if not buffer.is_open:
                why = "a buffer that it reads or writes was closed since"
                raise RecordingError(why, provider="cuda", segment=self.name)
        return self.graph


def record_chain(
    memory: CudaMemory, loader: Loader, chain: ChainSpec, patience: float
) -> CudaChain:
    """
    Record a chain; nothing runs.

    Parameters
    ----------
    patience
        Seconds that the device waits for the host.

    Raises
    ------
    RecordingError
        Names the node whose launch cannot be recorded.
    CudaError, VirtualMemoryError
        What an excursion needs cannot be had. Nothing is kept of it.
    """
    segments = [part for part in chain.parts if isinstance(part, CudaSegment)]
    if len(segments) + len(chain.works) != len(chain.parts):
        why = "a part of it was not built by this provider"
        raise RecordingError(why, provider="cuda", segment=chain.name)
    with ExitStack() as stack:
        for segment in segments:
            stack.enter_context(segment.taken())
            segment.ready()
        with ExitStack() as undo:
            edges = _edges(memory, chain, undo)
            made = (
                Excursions(memory, loader, chain, patience, undo)
                if chain.works
                else None
            )
            graph = captured(
                memory, chain.name, _submitting(loader, chain, edges, made)
            )
            undo.pop_all()
    held = tuple([Held.of(segment) for segment in segments])
    views = [] if made is None else list(made.views)
    views += map(memory.checked, (*chain.inward, *chain.outward))
    return CudaChain(
        chain.name, memory, made.mail if made else None, edges, graph,
        held, _buffers(held, views),
        tuple(made.hosts) if made else (), Spent(tuple([w.name for w in chain.works])),
        tuple(made.words) if made else (),
    )  # fmt: skip


def _buffers(
    held: Sequence[Held[CudaView]], views: Sequence[CudaView]
) -> tuple[CudaBuffer, ...]:
    """Give the buffers of segments and of other places, each once."""
    found = {id(view.buffer): view.buffer for view in views}
    for one in held:
        found.update({id(buffer): buffer for buffer in one.buffers.values()})
    return tuple(found.values())


def _edges(memory: CudaMemory, chain: ChainSpec, undo: ExitStack) -> CudaEdges | None:
    if not chain.inward and not chain.outward:
        return None
    inward = [memory.checked(view) for view in chain.inward]
    outward = [memory.checked(view) for view in chain.outward]
    made = CudaEdges.open(memory, chain.name, inward, outward)
    undo.callback(made.close)
    return made


def _submitting(
    loader: Loader,
    chain: ChainSpec,
    edges: CudaEdges | None,
    excursions: Excursions | None,
) -> Callable[[Capturing], None]:
    """Give what submits a chain's work, laid out beforehand."""
    first = edges.first(loader) if edges else []
    last = edges.last(loader) if edges else []
    works = {id(w): excursions.submits(w) for w in chain.works} if excursions else {}

    def submit(capture: Capturing) -> None:
        for one in first:
            one()
        for part in chain.parts:
            if isinstance(part, CudaSegment):
                part.submit(capture)
            elif isinstance(part, HostWork):
                capture.node = part.node
                for one in works[id(part)]:
                    one()
        capture.node = ""
        for one in last:
            one()

    return submit
