"""
A provider whose every call has a deadline, and what it makes: memory, segments, recordings.

Each class stands for one part of the contract and passes its calls on through the
provider's :class:`~seamline.watch.Watch`. What a provider gives is wrapped only if it has
the part's methods; what has not is passed on as it is, to be refused like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs

from seamline.device_tensor import DeviceTensor, taking
from seamline.forms import ChainSpec, RecordsChains
from seamline.provider import (
    Array,
    Buffer,
    BuildContext,
    Claim,
    Device,
    Executable,
    Gauges,
    Growing,
    GrowingMemory,
    Memory,
    NodeView,
    Provider,
    Recording,
    Refusal,
    SegmentSpec,
    View,
    VirtualMemory,
)
from seamline.tensors import TensorType, ValueType
from seamline.watch import Watch

__all__ = ["WatchedProvider"]


@attrs.define(eq=False)
class WatchedProvider:
    """Implements :class:`~seamline.provider.Provider` over another."""

    inner: Provider
    watch: Watch
    name: str = attrs.field(init=False)
    device: Device = attrs.field(init=False)
    captures: bool = attrs.field(init=False)
    owns_intermediates: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.name, self.device = self.inner.name, self.inner.device
        self.captures = self.inner.captures
        self.owns_intermediates = self.inner.owns_intermediates

    def __getattr__(self, name: str) -> Any:
        """Give what else the provider says of itself."""
        return getattr(self.inner, name)

    def claim(self, node: NodeView) -> Claim | Refusal:
        """Ask within the deadline."""
        return self.watch.call("claim()", self.inner.claim, node)

    def infer(self, node: NodeView) -> Sequence[ValueType | None] | None:
        """Ask within the deadline."""
        return self.watch.call("infer()", self.inner.infer, node)

    def memory(self) -> Memory | None:
        """Ask within the deadline; its memory's calls have it too."""
        made = self.watch.call("memory()", self.inner.memory)
        parts = ("allocate", "view", "write", "read", "synchronize", "gauges")
        if not _has(made, *parts):
            return made
        assert made is not None
        return _WatchedMemory(made, self.watch)

    def build(self, segment: SegmentSpec, context: BuildContext) -> Executable:
        """Build within the deadline; the segment's calls have it too."""
        watch = self.watch
        made = watch.call(
            "build()",
            self.inner.build,
            segment,
            context,
            segment=segment.name,
            close=_close,
        )
        if not _has(made, "bind", "run", "record", "close"):
            return made
        return _WatchedSegment(made, watch, segment.name)

    def record_chain(self, chain: ChainSpec) -> Recording:
        """
        Record a chain within the deadline.

        A replay has the deadline once for itself and once for each work of the host in it,
        which its own provider's watch holds to one.
        """
        parts = [p.inner if isinstance(p, _WatchedSegment) else p for p in chain.parts]
        bare = attrs.evolve(chain, parts=tuple(parts))
        inner = cast("RecordsChains", self.inner)
        made = self.watch.call(
            "record_chain()", inner.record_chain, bare, segment=chain.name, close=_close
        )
        if not _has(made, "replay", "close"):
            return made
        return _WatchedRecording(made, self.watch, chain.name, 1 + len(chain.works))

    def close(self) -> None:
        """Close the provider and end its thread; a lost one is closed if it comes back."""
        try:
            self.watch.give_back("close()", self.inner.close)
        finally:
            self.watch.end()


def _close(made: Buffer | Executable | Recording) -> None:
    made.close()


def _has(made: object, *methods: str) -> bool:
    return all(callable(getattr(made, name, None)) for name in methods)


@attrs.define(eq=False)
class _WatchedBuffer:
    inner: Buffer
    watch: Watch

    @property
    def device(self) -> Device:
        return self.inner.device

    @property
    def address(self) -> int:
        return self.inner.address

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes

    def close(self) -> None:
        self.watch.give_back("closing a buffer", self.inner.close)


@attrs.define(eq=False)
class _WatchedMemory:
    inner: Memory
    watch: Watch

    @property
    def device(self) -> Device:
        return self.inner.device

    @property
    def virtual(self) -> VirtualMemory | None:
        return self.inner.virtual

    def allocate(self, nbytes: int) -> Buffer:
        made = self.watch.call("allocate()", self.inner.allocate, nbytes, close=_close)
        return _WatchedBuffer(made, self.watch) if _has(made, "close") else made

    @property
    def grows(self) -> bool:
        return isinstance(self.inner, GrowingMemory)

    def reserve(self, nbytes: int) -> Growing:
        # Its growth is memory calls only, none of which waits for a kernel but unmap.
        inner: Any = self.inner
        made: Growing = self.watch.call(
            "reserve()", inner.reserve, nbytes, close=_close
        )
        return made

    def view(self, buffer: Buffer, offset: int, kind: TensorType) -> View:
        inner = buffer.inner if isinstance(buffer, _WatchedBuffer) else buffer
        return self.watch.call("view()", self.inner.view, inner, offset, kind)

    def write(self, target: View, source: Array) -> None:
        self.watch.call("write()", self.inner.write, target, source)

    def read(self, source: View, target: Array) -> None:
        self.watch.call("read()", self.inner.read, source, target)

    @property
    def takes_tensors(self) -> bool:
        return taking(self.inner) is not None

    def take(self, target: View, source: DeviceTensor) -> None:
        self.watch.call("take()", cast("Any", self.inner).take, target, source)

    def fetch(self, source: DeviceTensor, target: Array) -> None:
        self.watch.call("fetch()", cast("Any", self.inner).fetch, source, target)

    def synchronize(self) -> None:
        self.watch.call("synchronize()", self.inner.synchronize)

    def gauges(self) -> Gauges:
        return self.watch.call("gauges()", self.inner.gauges)


@attrs.define(eq=False)
class _WatchedSegment:
    inner: Executable
    watch: Watch
    name: str

    def bind(
        self,
        views: Mapping[str, View],
        workspaces: Mapping[str, View],
        host: Mapping[str, Array] | None = None,
    ) -> None:
        bind = self.inner.bind
        self.watch.call("bind()", bind, views, workspaces, host, segment=self.name)

    def run(self) -> Mapping[str, Array] | None:
        return self.watch.call("run()", self.inner.run, segment=self.name)

    def record(self) -> Recording:
        made = self.watch.call(
            "record()", self.inner.record, segment=self.name, close=_close
        )
        if not _has(made, "replay", "close"):
            return made
        return _WatchedRecording(made, self.watch, self.name)

    def close(self) -> None:
        self.watch.give_back("closing a segment", self.inner.close)


@attrs.define(eq=False)
class _WatchedRecording:
    inner: Recording
    watch: Watch
    name: str
    calls: int = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # a recording may say what it left

    def replay(self) -> None:
        replay = self.inner.replay
        self.watch.call("replay()", replay, segment=self.name, calls=self.calls)

    def taken(self) -> None:
        self.watch.call("taken()", cast("Any", self.inner).taken, segment=self.name)

    def given(self) -> None:
        self.watch.call("given()", cast("Any", self.inner).given, segment=self.name)

    def close(self) -> None:
        self.watch.give_back("closing a recording", self.inner.close)
