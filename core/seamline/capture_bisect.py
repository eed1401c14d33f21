"""Which node of a segment is replayed otherwise than it runs: each is recorded by itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs
import numpy as np

from seamline.checked_calls import built
from seamline.errors import SeamlineError
from seamline.planned import Segment
from seamline.provider import HOST, Array, NodeView, SegmentSpec, View
from seamline.tensors import FLOATS, TensorType, nbytes_of, numpy_dtype

if TYPE_CHECKING:
    from seamline.program import Program

__all__ = ["first_difference"]


def first_difference(
    program: Program, step: Segment, spec: SegmentSpec, fed: Mapping[str, Array]
) -> str:
    """
    Name the first node whose own recording differs from its run, or nothing.

    Each node is built alone over memory of its own, recorded with other inputs than it is
    then replayed with, and given the inputs that the nodes before it made in a run.
    """
    with ExitStack() as stack:
        apart = _Apart(program, step, stack)
        try:
            for name, array in fed.items():
                apart.put(name, array)
        except SeamlineError:
            return ""  # there is no memory for a second one of each
        for view in spec.nodes:
            try:
                if apart.differs(view, spec.opsets):
                    return view.name
            except (SeamlineError, KeyError):
                return ""  # it cannot be driven alone
    return ""


@attrs.define(eq=False)
class _Apart:
    program: Program
    step: Segment
    stack: ExitStack
    views: dict[str, View] = attrs.field(factory=dict)

    def put(self, name: str, array: Array | None) -> View:
        """Give a value's place, with something in it."""
        kind = self.program.plan.tensor(name)
        memory = self.program.engine.memories[self.step.device]
        if name not in self.views:
            buffer = memory.allocate(nbytes_of(kind))
            self.stack.callback(buffer.close)
            self.views[name] = memory.view(buffer, 0, kind)
        if array is not None:
            memory.write(self.views[name], array)
        return self.views[name]

    def get(self, name: str) -> Array:
        """Read a value."""
        kind = self.program.plan.tensor(name)
        array = np.empty(kind.sizes, numpy_dtype(kind.dtype))
        self.program.engine.memories[self.step.device].read(self.views[name], array)
        return array

    def differs(self, view: NodeView, opsets: Mapping[str, int]) -> bool:
        """Tell whether a node, recorded alone, differs; leave what its run makes."""
        node = view.node
        inputs = tuple(dict.fromkeys(n for n in node.inputs if n and n in self.views))
        spec = SegmentSpec(
            f"{self.step.id}/{view.name}", (view,), inputs, node.writes, opsets
        )
        executable = built(self.program.engine, self.step.provider, spec)
        self.stack.callback(executable.close)
        executable.bind(*self._lent(view))
        true = {name: self.get(name) for name in inputs}
        for name, array in true.items():
            if array.dtype.name in FLOATS:
                self.put(name, np.roll(array, 1))
        executable.run()
        recording = executable.record()
        self.stack.callback(recording.close)
        self._fill(true, node.writes)
        recording.replay()
        got = {name: self.get(name) for name in node.writes}
        self._fill(true, node.writes)
        executable.run()
        return any(self.get(n).tobytes() != got[n].tobytes() for n in node.writes)

    def _fill(self, true: Mapping[str, Array], writes: tuple[str, ...]) -> None:
        from seamline.capture_check import poison_of

        for name in writes:
            self.put(name, poison_of(self.program.plan.tensor(name)))
        for name, array in true.items():
            self.put(name, array)

    def _lent(
        self, view: NodeView
    ) -> tuple[dict[str, View], dict[str, View], dict[str, View]]:
        choice = self.program.plan.choices[view.name]
        views: dict[str, View] = {}
        host: dict[str, View] = {}
        for index, name in enumerate(view.node.inputs):
            if not name:
                continue
            on_host = index in choice.claim.host_inputs
            if on_host:
                host[name] = self.program.view(name, HOST)
            if not on_host or choice.device == HOST:
                known = self.views.get(name)
                views[name] = (
                    self.program.view(name, choice.device) if known is None else known
                )
        for name in view.node.writes:
            views[name] = self.put(name, None)
        return views, self._scratch(view), host

    def _scratch(self, view: NodeView) -> dict[str, View]:
        nbytes = self.program.plan.choices[view.name].claim.workspace_nbytes
        if not nbytes:
            return {}
        memory = self.program.engine.memories[self.step.device]
        buffer = memory.allocate(nbytes)
        self.stack.callback(buffer.close)
        return {view.name: memory.view(buffer, 0, TensorType("uint8", (nbytes,)))}
