"""
Segments of a device: one thread at a time, and recordings that know when they are void.

A recording holds addresses and the host values that its launches were made with. It is good
for as long as its segment is bound where it was, no buffer that it names was closed, whose
address may be another's by now, and those values are the same. Pages exchanged under an
address are none of its business: that is how a cache grows under it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import attrs

from seamline.errors import KernelError, RecordingError
from seamline.kernels import KernelSegment

__all__ = ["DeviceSegment", "Held", "Placed"]


class _Closable(Protocol):
    @property
    def is_open(self) -> bool:
        """Tell whether its address is still its own."""
        ...


class Placed(Protocol):
    """A view that knows the buffer that it lies in."""

    @property
    def buffer(self) -> _Closable:
        """Give the buffer."""
        ...


V = TypeVar("V", bound=Placed)


@attrs.define(eq=False)
class DeviceSegment(KernelSegment, Generic[V]):
    """
    A segment over views of a device, that is run and replayed by one thread at a time.

    Attributes
    ----------
    bound
        The views of the present binding, by value.
    binding
        Counts bindings: a recording holds one of them.
    """

    bound: dict[str, V] = attrs.field(factory=dict, init=False)
    binding: int = attrs.field(default=0, init=False)
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def changed(self) -> str:
        """Name a host input whose value is not what launches hold; empty where none is."""
        return ""

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the segment's addresses for a ``with`` block; see :meth:`take`."""
        self.take()
        try:
            yield
        finally:
            self.give()

    def take(self) -> None:
        """
        Hold the segment's addresses, until :meth:`give`.

        Raises
        ------
        KernelError
            Another thread holds them; at once, without waiting.
        """
        if not self._turn.acquire(blocking=False):
            raise KernelError(
                "another thread runs it now; give each thread a program of its own",
                provider=self.provider,
                segment=self.spec.name,
            )

    def give(self) -> None:
        """Let another thread have the segment's addresses."""
        self._turn.release()


@attrs.define(eq=False)
class Held(Generic[V]):
    """
    What a recording of a segment rests on.

    Attributes
    ----------
    binding
        The binding that it was recorded over.
    changed
        Names a host input that has another value now, or gives an empty text.
    buffers
        Where its values lie, each by one of them.
    """

    segment: DeviceSegment[V]
    binding: int
    changed: Callable[[], str]
    buffers: Mapping[str, Any]

    @classmethod
    def of(
        cls, segment: DeviceSegment[V], changed: Callable[[], str] | None = None
    ) -> Held[V]:
        """Keep what the segment's present binding has."""
        # Most values lie in one buffer, which need not be looked at for each of them.
        named = {id(v.buffer): (name, v.buffer) for name, v in segment.bound.items()}
        buffers = dict(named.values())
        return cls(segment, segment.binding, changed or segment.changed, buffers)

    def check(self) -> None:
        """
        Hold the segment to it.

        Raises
        ------
        RecordingError
            Something no longer holds.
        """
        if self.segment.binding != self.binding:
            self.refuse("its segment was bound to other places or closed, or its launches made anew since; record it again")  # fmt: skip
        if name := self.changed():
            self.refuse(f"host input {name!r} is baked into it and has another value now; record it again")  # fmt: skip
        for name, buffer in self.buffers.items():
            if not buffer.is_open:
                self.refuse(f"the buffer of {name!r} was closed since")

    def refuse(self, why: str, cause: Exception | None = None) -> NoReturn:
        """Raise a RecordingError that names the segment."""
        raise RecordingError(
            why, provider=self.segment.provider, segment=self.segment.spec.name
        ) from cause
