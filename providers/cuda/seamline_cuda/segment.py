"""
A segment on a GPU: nodes joined into kernels when it is built, launched over fixed places.

Every view that it is handed is checked to lie in this device's memory, so a value on the
wrong side fails at binding and names the segment. A run submits launches and returns;
whoever reads a result waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from seamline.device_segments import DeviceSegment, Held
from seamline.errors import BuildError, KernelError
from seamline.kernel import Call
from seamline.provider import Array, NodeView, Recording, View
from seamline_cuda.elementwise import Group, generated
from seamline_cuda.errors import CudaError
from seamline_cuda.fusion import grouped, single, trampled
from seamline_cuda.gate import Capturing
from seamline_cuda.host_values import HostValues
from seamline_cuda.loading import Copy, Launch, Loader
from seamline_cuda.memory import CudaMemory, CudaView
from seamline_cuda.products import Product, Products
from seamline_cuda.recording import CudaRecording, captured
from seamline_cuda.table import is_elementwise
from seamline_cuda.works import Complaint, CopyWork, KernelWork, ProductWork, Work

__all__ = ["CudaSegment"]

Launched: TypeAlias = (
    Launch | Copy | Product
)  #: what a run submits, each a call without arguments

_BLOCKS = 16  #: for each multiprocessor, enough to keep its loads in flight


@attrs.define(eq=False)
class CudaSegment(DeviceSegment[CudaView]):
    """
    Implements :class:`~seamline.provider.Executable` on a GPU.

    Attributes
    ----------
    host
        What its nodes read on the host.
    apart
        Groups of nodes that could not run as one kernel in their places, and why; the
        provider's own, for its facts.
    """

    memory: CudaMemory = attrs.field(kw_only=True)
    loader: Loader = attrs.field(kw_only=True)
    products: Products = attrs.field(kw_only=True)
    apart: dict[str, str] = attrs.field(kw_only=True)
    host: HostValues = attrs.field(factory=HostValues, init=False)
    _steps: list[tuple[NodeView, Launched]] = attrs.field(factory=list, init=False)
    _words: list[int] = attrs.field(factory=list, init=False)
    _described: list[Product] = attrs.field(factory=list, init=False)
    _scratch: Mapping[str, View] = attrs.field(factory=dict, init=False)

    def bind(
        self,
        views: Mapping[str, View],
        workspaces: Mapping[str, View],
        host: Mapping[str, Array] | None = None,
    ) -> None:
        """
        Check where everything lies, and make launches over it.

        Raises
        ------
        ResidencyError
            A value lies in another memory than its kernel reads.
        BuildError
            A kernel could not be compiled or loaded; names the node.
        """
        checked = self.memory.checked
        self.bound = {n: checked(v) for n, v in views.items() if v is not None}
        self.host = HostValues.of(host or {}, self.spec.nodes, self.kernels)
        self.binding += 1
        self._scratch = {n: checked(v) for n, v in workspaces.items() if v is not None}
        # What depends on a value that comes with a run is made at the run.
        if not self.host.baked:
            self._make(BuildError)

    def _refresh(self) -> None:
        """Make the launches anew where a host input has changed."""
        if self.host.changed:
            self.memory.gpu.drain()  # words are given back, which kernels may still set
            self.binding += 1
            self._make(KernelError)
            self.host.bake()

    def _make(self, kind: type[BuildError | KernelError]) -> None:
        self._give_back()
        self._steps = []
        steps: list[tuple[NodeView, Launched]] = []
        for step in grouped(self.spec.nodes, self.spec.outputs, is_elementwise):
            first = step.nodes[0] if isinstance(step, Group) else step
            try:
                if isinstance(step, Group):
                    steps += self._launches(step)
                else:
                    steps += self._worked(step, self._scratch.get(step.name))
            except (CudaError, ValueError, IndexError) as error:
                raise self._failed(kind, first, error) from error
        self._steps = steps

    def _give_back(self) -> None:
        """Give back what the launches of the binding before this one hold."""
        while self._words:
            self.memory.complaints.give_back(self._words.pop())
        while self._described:
            self._described.pop().close()

    def _launches(self, group: Group) -> Iterator[tuple[NodeView, Launched]]:
        first = group.nodes[0]
        places = {
            name: (self.bound[name].address, self.bound[name].nbytes)
            for name in (*group.loads, *group.stores)
        }
        made = generated(group, places=[address for address, _ in places.values()])
        if not made.count:
            return
        why = trampled(group, made, places)
        if why and len(group.nodes) > 1:
            self.apart[", ".join(node.name for node in group.nodes)] = why
            for alone in single(group):
                yield from self._launches(alone)
            return
        arguments = [places[name][0] for name in (*group.loads, *group.stores)]
        work = KernelWork(made.kernel, (*arguments, *made.numbers), made.count)
        yield first, self._launch(work, work.arguments)

    def _worked(
        self, node: NodeView, workspace: View
    ) -> Iterator[tuple[NodeView, Launched]]:
        """Make launches of what a node's kernel gives for its places."""
        kernel = self.kernels[self.spec.nodes.index(node)]
        inputs = tuple(
            (self.host.arrays if i in kernel.host_inputs else self.bound)[name]
            if name
            else None
            for i, name in enumerate(node.node.inputs)
        )
        outputs = tuple(self.bound[n] if n else None for n in node.node.outputs)
        call = Call(node, inputs, outputs, self.context, self.options, workspace)
        for work in kernel.function(call):
            yield node, self._launch_of(node, work)

    def _launch_of(self, node: NodeView, work: Work) -> Launched:
        stream = self.memory.gpu.compute.handle
        if isinstance(work, CopyWork):
            name = f"copy of {node.op_type}"
            return Copy(name, work.target, work.source, work.nbytes, stream)
        if isinstance(work, ProductWork):
            self._described.append(self.products.bind(work))
            return self._described[-1]
        arguments = [
            self._word(node, given) if isinstance(given, Complaint) else given
            for given in work.arguments
        ]
        return self._launch(work, arguments)

    def _word(self, node: NodeView, complaint: Complaint) -> int:
        why = f"{node.node.qualified_op}: {complaint.why}"
        error = KernelError(
            why, provider=self.provider, segment=self.spec.name, node=node.name
        )
        self._words.append(self.memory.complaints.take(error))
        return self._words[-1]

    def _launch(self, work: KernelWork, arguments: Sequence[Any]) -> Launch:
        most = self.memory.gpu.multiprocessors * _BLOCKS
        blocks = work.blocks or min(-(-work.count // work.threads), most)
        return self.loader.launch(
            work.kernel, arguments, blocks=blocks, threads=work.threads
        )

    # -- running -------------------------------------------------------------------------

    def run(self) -> Mapping[str, Array] | None:
        """
        Submit every launch.

        Raises
        ------
        KernelError
            The driver refused one, or reported work that failed earlier.
        """
        gpu = self.memory.gpu
        with self.taken(), gpu.here():
            self._refresh()
            with gpu.turn:
                self.submit()
        return None

    def submit(self, capture: Capturing | None = None) -> None:
        """Submit every launch, or record it; the device is the thread's."""
        node = self.spec.nodes[0]
        try:
            for node, launch in self._steps:
                if capture is not None:
                    capture.node = node.name
                launch()
        except CudaError as error:
            self.memory.gpu.noticed(error)
            raise self._failed(KernelError, node, error) from error

    def timed(self, clock: Callable[[], int], report: Callable[..., None]) -> None:
        """
        Run, waiting after each launch, and report its first node's name, start and end.

        Where several nodes run as one kernel, the fourth that ``report`` gets says which.
        """
        gpu, gate = self.memory.gpu, self.memory.gate
        with self.taken(), gpu.here():
            self._refresh()
            with gate.memory_call("waits for kernels that are timed"):
                gpu.compute.synchronize()
            for node, launch in self._steps:
                start = clock()
                with gpu.turn:
                    launch()
                with gate.memory_call("waits for a kernel that is timed"):
                    gpu.compute.synchronize()
                report(node.name, start, clock(), {"kernel": launch.kernel})

    # -- recording -----------------------------------------------------------------------

    def record(self) -> Recording:
        """
        Record all launches as one graph of the driver; nothing runs.

        Raises
        ------
        RecordingError
            Names the node whose launch did what cannot be recorded.
        """
        with self.taken():
            self.ready()
            graph = captured(self.memory, self.spec.name, self.submit)
            return CudaRecording(Held.of(self), graph, self.memory)

    def ready(self) -> None:
        """Make the launches that a recording is to hold; its addresses are taken."""
        with self.memory.gpu.here():
            self._refresh()

    # -- the rest ------------------------------------------------------------------------

    def changed(self) -> str:
        """Name a host input whose value is not what launches hold."""
        return self.host.changed

    @property
    def launches(self) -> Sequence[Launched]:
        """Give what a run submits, in order."""
        return [launch for _, launch in self._steps]

    def close(self) -> None:
        """Wait for work in flight, then forget the launches; recordings are refused."""
        self.memory.gpu.drain()
        self._give_back()
        DeviceSegment.close(self)
        self.bound, self.host, self._steps = {}, HostValues(), []
        self.binding += 1
