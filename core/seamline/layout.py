"""
Where every value lies: homes, copies, shared bytes, and offsets in the arenas.

The order of the steps is fixed by now; time is a position in it, one for each node.
Two values may share bytes in two ways. A *view* is its input's bytes under another shape,
and may be shared whoever else reads the input, since neither is written. An output
*written in place* takes over its input's bytes, so the input, every view of it, and
whatever else shares them must die at that very node, and no other input of the node may
be a different look at the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from seamline.constants import Known
from seamline.graph import Node
from seamline.liveness import Interval, pack
from seamline.placement import Choice
from seamline.planned import Slot
from seamline.provider import HOST, Device
from seamline.tensors import TensorType, ValueType, nbytes_of

__all__ = ["Layout", "Reading", "lay_out"]


@attrs.frozen
class Reading:
    """
    One step that reads and writes values, at a position in time.

    Attributes
    ----------
    span
        First and last position of its segment, where values inside it cannot be told
        apart in time (a provider that owns its intermediates); else its own position.
    late
        Its outputs have no place of their own: their size is found by running it, or the
        core makes them.
    """

    node: Node
    choice: Choice
    at: int
    span: tuple[int, int]
    late: bool = False

    def device_of(self, index: int) -> Device:
        """Say where an input is read."""
        return HOST if index in self.choice.claim.host_inputs else self.choice.device


@attrs.frozen
class Layout:
    """Slots, shared bytes and arena sizes; see :class:`seamline.planned.Plan`."""

    slots: Mapping[tuple[str, Device], Slot]
    shared: Mapping[str, str]
    workspaces: Mapping[str, Slot]
    arenas: Mapping[Device, int]
    peak: Mapping[Device, int]
    states: Mapping[tuple[str, Device], str] = attrs.field(factory=dict)


@attrs.define
class _Bytes:
    """Bytes that one or more values share on one device, and when they are alive."""

    first: int
    last: int
    nbytes: int


def lay_out(
    readings: Sequence[Reading],
    types: Mapping[str, ValueType | None],
    known: Known,
    feeds: Mapping[str, Iterable[Device]],
    copies: Mapping[tuple[str, Device], int],
    internal: frozenset[str],
    keep: frozenset[str],
    states: Collection[str] = (),
) -> Layout:
    """
    Give every value that lives in this plan its bytes.

    Parameters
    ----------
    copies
        (value, device) that a transfer writes -> the position before which it does.
    internal
        Values inside segments whose provider finds room for them itself.
    keep
        Values read after the last step: outputs, and what the rest reads.
    states
        Inputs whose bytes are the session's, and not in an arena; nor what shares them.
    """
    laying = _Laying(types, known, internal, keep, readings)
    laying.states = states
    return laying.run(feeds, copies)


class _Laying:
    def __init__(
        self,
        types: Mapping[str, ValueType | None],
        known: Known,
        internal: frozenset[str],
        keep: frozenset[str],
        readings: Sequence[Reading],
    ) -> None:
        self.types, self.known, self.internal, self.keep = types, known, internal, keep
        self.readings = readings
        self.end = (readings[-1].at if readings else 0) + 1
        self.last: dict[tuple[str, Device], int] = {}
        self.captured: dict[str, int] = {}
        self.roots: dict[tuple[str, Device], tuple[str, Device]] = {}
        self.bytes: dict[tuple[str, Device], _Bytes] = {}
        self.shared: dict[str, str] = {}
        self.states: Collection[str] = ()

    def run(
        self,
        feeds: Mapping[str, Iterable[Device]],
        copies: Mapping[tuple[str, Device], int],
    ) -> Layout:
        self._last_reads(copies)
        for name, devices in feeds.items():
            for device in devices:
                self._new(name, device, -1)
        for (name, device), at in copies.items():
            self._new(name, device, at)
        scratch: list[tuple[str, Device, Interval]] = []
        for reading in self.readings:
            self._outputs(reading)
            size = reading.choice.claim.workspace_nbytes
            if size:
                interval = Interval(*reading.span, size)
                scratch.append((reading.node.name, reading.choice.device, interval))
        return self._pack(scratch)

    def _last_reads(self, copies: Mapping[tuple[str, Device], int]) -> None:
        for reading in self.readings:
            for index, name in enumerate(reading.node.inputs):
                if name:
                    self.last[name, reading.device_of(index)] = reading.span[1]
            for name in reading.node.captures:
                self.captured[name] = reading.span[1]
        self.copied: dict[str, int] = {}
        for (name, _), at in copies.items():
            self.copied[name] = max(at, self.copied.get(name, -1))

    def _last_read(self, name: str, device: Device) -> int:
        if name in self.keep:
            return self.end
        # A body reads a capture wherever it lies.
        elsewhere = max(self.captured.get(name, -1), self.copied.get(name, -1))
        return max(self.last.get((name, device), -1), elsewhere)

    def _new(self, name: str, device: Device, first: int) -> None:
        kind = self.types.get(name)
        if isinstance(kind, TensorType) and kind.is_sized:
            key = (name, device)
            self.roots[key] = key
            last = max(first, self._last_read(name, device))
            self.bytes[key] = _Bytes(first, last, nbytes_of(kind))

    def _outputs(self, reading: Reading) -> None:
        if reading.late:
            return
        device = reading.choice.device
        for index, name in enumerate(reading.node.outputs):
            if not name or name in self.internal or name in self.known.values:
                continue
            root = self._view_of(reading, index) or self._in_place_of(reading, index)
            if root is None:
                self._new(name, device, reading.span[0])
                continue
            self.roots[name, device] = root
            self.shared[name] = root[0]
            held = self.bytes[root]
            held.last = max(held.last, self._last_read(name, device), reading.at)

    def _root_at(self, reading: Reading, index: int) -> tuple[str, Device] | None:
        """Give the bytes that an input lies in, if they are the plan's own."""
        if index >= len(reading.node.inputs):
            return None
        device = reading.device_of(index)
        if device != reading.choice.device:
            return None
        return self.roots.get((reading.node.inputs[index], device))

    def _view_of(self, reading: Reading, output: int) -> tuple[str, Device] | None:
        for out, given in reading.choice.claim.views:
            if out == output:
                root = self._root_at(reading, given)
                if root is not None and self._same_size(reading, output, given):
                    return root
        return None

    def _in_place_of(self, reading: Reading, output: int) -> tuple[str, Device] | None:
        if reading.span[0] != reading.span[1]:
            return None  # another node of a fused segment may still read the input
        for out, given in reading.choice.claim.aliases:
            if out != output:
                continue
            root = self._root_at(reading, given)
            if (
                root is not None
                and self.bytes[root].last == reading.span[1]
                and self._same_size(reading, output, given)
                and not self._seen_otherwise(reading, root, given)
            ):
                return root
        return None

    def _same_size(self, reading: Reading, output: int, given: int) -> bool:
        one = self.types.get(reading.node.outputs[output])
        other = self.types.get(reading.node.inputs[given])
        if not isinstance(one, TensorType) or not isinstance(other, TensorType):
            return False
        if one.dtype != other.dtype or not one.is_sized:
            return False
        return one.shape == other.shape or nbytes_of(one) == nbytes_of(other)

    def _seen_otherwise(
        self, reading: Reading, root: tuple[str, Device], given: int
    ) -> bool:
        """Tell whether another input or output is a different look at the same bytes."""
        taken = reading.node.inputs[given]
        for index, name in enumerate(reading.node.inputs):
            if name and name != taken and self._root_at(reading, index) == root:
                return True
        device = reading.choice.device
        return any(
            self.roots.get((name, device)) == root for name in reading.node.writes
        )

    def _pack(self, scratch: list[tuple[str, Device, Interval]]) -> Layout:
        slots: dict[tuple[str, Device], Slot] = {}
        workspaces: dict[str, Slot] = {}
        arenas: dict[Device, int] = {}
        peak: dict[Device, int] = {}
        states = {
            k: root[0] for k, root in self.roots.items() if root[0] in self.states
        }
        devices = {key[1] for key in self.bytes} | {device for _, device, _ in scratch}
        for device in sorted(devices, key=str):
            keys = [k for k in self.bytes if k[1] == device and k not in states]
            held = [self.bytes[key] for key in keys]
            mine = [item for item in scratch if item[1] == device]
            packing = pack(
                [Interval(b.first, b.last, b.nbytes) for b in held]
                + [i for *_, i in mine]
            )
            where = dict(zip(keys, packing.offsets, strict=False))
            for key, root in self.roots.items():
                if root in where:
                    slots[key] = Slot(where[root], self.bytes[root].nbytes)
            for (node, _, interval), offset in zip(
                mine, packing.offsets[len(keys) :], strict=True
            ):
                workspaces[node] = Slot(offset, interval.nbytes)
            arenas[device], peak[device] = packing.nbytes, packing.peak
        return Layout(slots, self.shared, workspaces, arenas, peak, states)
