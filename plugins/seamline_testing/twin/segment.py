"""
A segment on the twin: bound once to device memory, launched node by node, recordable.

Every view that it is handed is checked to lie in this twin's memory, and every host input
on the host, so a value on the wrong side fails at binding and names the node's segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import numpy as np

from seamline.device_segments import DeviceSegment
from seamline.errors import (
    BuildError,
    DeadlineError,
    KernelError,
    RecordingError,
    ResidencyError,
    RunError,
)
from seamline.provider import Array, NodeView, Recording, View
from seamline_testing.twin.capture import Capture
from seamline_testing.twin.faults import How, InjectedError, Step
from seamline_testing.twin.kernels import WAITS
from seamline_testing.twin.machine import Machine
from seamline_testing.twin.memory import TwinMemory, TwinView
from seamline_testing.twin.own_operators import Launched
from seamline_testing.twin.recording import TwinRecording
from seamline_testing.twin.streams import Operation, Range

__all__ = ["TwinSegment"]


@attrs.define(eq=False)
class TwinSegment(DeviceSegment[TwinView]):
    """Implements :class:`~seamline.provider.Executable` on a machine."""

    machine: Machine = attrs.field(kw_only=True)
    memory: TwinMemory = attrs.field(kw_only=True)
    host: list[tuple[str, Array, Array]] = attrs.field(factory=list, init=False)
    _parts: list[tuple[NodeView, tuple[Range, ...], tuple[Range, ...]]] = attrs.field(
        factory=list, init=False
    )
    _scratch: dict[str, TwinView] = attrs.field(factory=dict, init=False)
    _warm: bool = attrs.field(default=False, init=False)

    def bind(
        self,
        views: Mapping[str, View],
        workspaces: Mapping[str, View],
        host: Mapping[str, Array] | None = None,
    ) -> None:
        """
        Check where everything lies, and make every node's kernel over it.

        Raises
        ------
        ResidencyError
            A value lies in another memory than its kernel reads.
        BuildError
            A kernel refused its arrays.
        """
        self._fail_at(Step.BIND)
        self.machine.usable()
        self.bound = {
            n: self.memory.checked(v) for n, v in views.items() if v is not None
        }
        self._scratch = {n: self.memory.checked(v) for n, v in workspaces.items()}
        self.host = [(n, _on_host(n, v), np.array(v)) for n, v in (host or {}).items()]
        near = {n: self.machine.array(v.place, v.kind) for n, v in self.bound.items()}
        room = {
            n: self.machine.array(v.place, v.kind) for n, v in self._scratch.items()
        }
        # Shown: a kernel that looks at device values now finds poison, and gives it back.
        with self.machine.shown():
            super().bind(near, room, {name: copy for name, _, copy in self.host})
        self._parts = [(node, *self._ranges(node)) for node in self.spec.nodes]
        self.binding += 1
        self._warm = False

    def _ranges(self, node: NodeView) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        reads = [self.bound[n].place for n in node.node.inputs if n in self.bound]
        writes = [self.bound[n].place for n in node.node.writes if n in self.bound]
        scratch = self._scratch.get(node.name)
        if scratch is not None:
            writes.append(scratch.place)
        return tuple(reads), tuple(writes)

    # -- running -------------------------------------------------------------------------

    def run(self) -> Mapping[str, Array] | None:
        """Launch every node and wait; give outputs where only running finds their sizes."""
        with self.taken():
            how = self.machine.faults.meet(Step.RUN)
            found = self._eagerly(how)
            self._warm = True
        if how is How.GARBAGE:
            return {name: np.zeros((3, 1), np.uint16) for name in self.spec.outputs}
        return found

    def _eagerly(self, how: How | None = None) -> Mapping[str, Array] | None:
        self._read_host()
        found: list[Mapping[str, Array]] = []
        if self._finds_sizes:
            whole = super().run
            self._launch(0, lambda: found.append(whole() or {}), how)
        else:
            for index, run in enumerate(self._runs):
                self._launch(index, run, how if not index else None)
        self.machine.synchronize()
        return found[0] if found else None

    def _launch(self, index: int, run: Callable[[], object], how: How | None) -> None:
        """Do what the node's launch does on the host, and queue its work."""
        node, reads, writes = self._parts[index]
        machine = self.machine
        if machine.capture is not None and machine.capture.is_mine():
            machine.capture.node = node.name
        if not node.domain and node.op_type in WAITS:
            machine.synchronize()
        launched = self._runs[index]
        if isinstance(launched, Launched):
            try:
                launched.launch()
            except RunError:
                raise
            except Exception as error:
                raise self._failed(KernelError, node, error) from error
        work = run if how is not How.FAIL else partial(_fail, machine)
        machine.submit(
            machine.compute,
            Operation(f"kernel {node.name!r}", work, reads, writes,
                      hangs=how is How.HANG, named=partial(self.named, node)),
        )  # fmt: skip

    def named(self, node: NodeView, error: BaseException) -> BaseException:
        """Say where an error of this segment came from."""
        if isinstance(error, DeadlineError):
            return DeadlineError(str(error), provider=self.provider,
                                 segment=self.spec.name, node=node.name)  # fmt: skip
        if isinstance(error, Exception) and not isinstance(error, KernelError):
            return self._failed(KernelError, node, error)
        return error

    def timed(
        self, clock: Callable[[], int], report: Callable[[str, int, int], None]
    ) -> None:
        """Run, waiting after each node, and report its name, start and end."""
        with self.taken():
            self._read_host()
            for index, run in enumerate(self._runs):
                start = clock()
                self._launch(index, run, None)
                self.machine.synchronize()
                report(self.spec.nodes[index].name, start, clock())

    def _read_host(self) -> None:
        """Copy host inputs, as a launch copies its arguments."""
        for _, source, copy in self.host:
            np.copyto(copy, source)

    # -- recording -----------------------------------------------------------------------

    def record(self) -> Recording:
        """Record all launches; a warm-up before it leaves every value as it was."""
        with self.taken():
            garbage = self._fail_at(Step.RECORD)
            if self._finds_sizes:
                self._refuse(
                    self.spec.nodes[0], "its output's size is found by running it"
                )
            if not self._warm:
                self._warm_up()
            self._read_host()
            capture = self._captured()
            if garbage:
                return None  # type: ignore[return-value]
            return TwinRecording.of(self, tuple(capture.operations))

    def _captured(self) -> Capture:
        machine = self.machine
        with machine.gate:
            capture = machine.capture = Capture(self.provider, self.spec.name)
            try:
                for index, node in enumerate(self.spec.nodes):
                    self._record_launch(node, index)
            finally:
                machine.capture = None
        return capture

    def _record_launch(self, node: NodeView, index: int) -> None:
        try:
            self._launch(index, self._runs[index], None)
        except RecordingError:
            raise
        except Exception as error:
            self._refuse(node, f"its launch failed: {error}", error)

    def _refuse(self, node: NodeView, why: str, cause: Exception | None = None) -> None:
        raise RecordingError(
            f"{node.node.qualified_op}: {why}",
            provider=self.provider,
            segment=self.spec.name,
            node=node.name,
        ) from cause

    def _warm_up(self) -> None:
        """Run once for what kernels do on their first run, and take back what it wrote."""
        machine = self.machine
        written = {
            part for _, _, writes in self._parts for part in writes if part.nbytes
        }
        machine.drain()
        with machine.shown():
            saved = [machine.saved(part) for part in written]
        try:
            self._eagerly()
        finally:
            machine.drain()
            with machine.shown():
                for parts in saved:
                    machine.restore(parts)
        self._warm = True

    # -- the rest ------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for work in flight, then forget the arrays."""
        self.machine.drain()
        super().close()
        self.bound, self.host, self._parts, self._scratch = {}, [], [], {}
        self.binding += 1

    def _fail_at(self, step: Step) -> bool:
        try:
            return self.machine.faults.check(step)
        except InjectedError as error:
            kind = RecordingError if step is Step.RECORD else BuildError
            raise kind(
                str(error),
                provider=self.provider,
                segment=self.spec.name,
                node=self.spec.nodes[0].name,
            ) from error


def _on_host(name: str, value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        why = f"host input {name!r} is a {type(value).__name__}, no array of the host"
        raise ResidencyError("twin", why)
    return value


def _fail(machine: Machine) -> None:
    number = machine.faults.counts[Step.RUN]
    raise InjectedError(f"run number {number} was made to fail")
