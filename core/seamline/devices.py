"""
Devices and what holds values on them: the same words for the host and for every device.

Whoever owns memory says what it holds. Address space and pages are apart, so that what
grows need not move.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs
import numpy as np

from seamline.errors import RunError
from seamline.tensors import TensorType

__all__ = [
    "HOST",
    "Array",
    "Buffer",
    "Device",
    "Gauges",
    "Growing",
    "GrowingMemory",
    "Memory",
    "View",
    "VirtualMemory",
    "VirtualMemoryError",
]

Array: TypeAlias = np.ndarray[Any, Any]
#: What a kernel sees of a value: an ndarray on the host, a device's own array elsewhere.
View: TypeAlias = Any


@attrs.frozen(cache_hash=True)
class Device:
    """
    Where values live.

    >>> str(Device("cuda", 1))
    'cuda:1'
    """

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


HOST = Device("cpu")  #: where feeds come from and fetches go to


@attrs.frozen
class Gauges:
    """Bytes: live, mapped into address space, held physically."""

    content: int = 0
    mapped: int = 0
    owned: int = 0


class VirtualMemoryError(RunError):
    """
    A memory call was refused, or broke a rule; nothing of it was kept.

    Attributes
    ----------
    device, call, nbytes
        What was asked, and where.
    gauges
        What was held at that moment.
    free
        Bytes that the device had left; None where it does not say.
    """

    def __init__(
        self,
        device: Device,
        call: str,
        nbytes: int,
        why: str,
        gauges: Gauges,
        free: int | None = None,
    ) -> None:
        self.device: Device = device
        self.call: str = call
        self.nbytes: int = nbytes
        self.gauges: Gauges = gauges
        self.free: int | None = free
        left = "" if free is None else f", free {free}"
        super().__init__(
            f"{device}: {call} of {nbytes} bytes: {why} "
            f"(mapped {gauges.mapped}, owned {gauges.owned}{left} bytes)",
            provider="" if device == HOST else device.kind,
        )


class Buffer(Protocol):
    """A run of bytes at an address that does not move while it is open."""

    @property
    def device(self) -> Device:
        """Say where it lies."""
        ...

    @property
    def address(self) -> int:
        """Give the first byte's address on its device."""
        ...

    @property
    def nbytes(self) -> int:
        """Give its length in bytes."""
        ...

    def close(self) -> None:
        """Give the bytes back; a second call does nothing."""
        ...


class Growing(Buffer, Protocol):
    """
    A buffer whose addresses are taken at once, and whose pages come by need.

    :class:`seamline.growing.GrowingBuffer` is one over any virtual memory.
    """

    @property
    def granule(self) -> int:
        """Give the bytes that get pages together."""
        ...

    @property
    def granules(self) -> int:
        """Give the granules that its room takes."""
        ...

    @property
    def committed(self) -> int:
        """Give the bytes that have pages."""
        ...

    def commit(self, mask: Array) -> tuple[tuple[int, int], ...]:
        """Have pages for these granules too, or as before; give the parts that got them."""
        ...

    def keep(self, mask: Array) -> None:
        """Give back the pages of all other granules, once nothing reads them."""
        ...

    def held(self) -> Array:
        """Say for each granule whether it has pages."""
        ...

    def committed_parts(self) -> tuple[tuple[int, int], ...]:
        """Give the first byte of each part that has pages and the one after it."""
        ...

    def count(self, nbytes: int) -> None:
        """Say how many of its bytes are live, for the gauges."""
        ...


class VirtualMemory(Protocol):
    """
    Address space and pages apart: the driver's verbs, on the host and on devices.

    ``unmap`` returns only when no work that may still read the range is in flight. A verb
    that fails raises :class:`~seamline.provider.VirtualMemoryError` and leaves everything as it was.
    """

    @property
    def device(self) -> Device:
        """Say which device."""
        ...

    @property
    def granularity(self) -> int:
        """Give the bytes of one granule, as the driver reports it."""
        ...

    def reserve(self, nbytes: int) -> int:
        """Reserve addresses without pages; give the first one."""
        ...

    def create(self, nbytes: int) -> int:
        """Create physical pages; give their handle."""
        ...

    def map(self, address: int, handle: int) -> None:
        """Put pages at reserved addresses."""
        ...

    def unmap(self, address: int, nbytes: int) -> None:
        """Take pages away once nothing in flight reads them."""
        ...

    def release(self, handle: int) -> None:
        """Give pages back."""
        ...

    def free(self, address: int, nbytes: int) -> None:
        """Give reserved addresses back."""
        ...

    def gauges(self) -> Gauges:
        """Give the bytes held now."""
        ...


class Memory(Protocol):
    """What holds values on one device."""

    @property
    def device(self) -> Device:
        """Say which device."""
        ...

    @property
    def virtual(self) -> VirtualMemory | None:
        """Give the device's virtual memory, if it has any."""
        ...

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate bytes, aligned for any kernel of the device."""
        ...

    def view(self, buffer: Buffer, offset: int, kind: TensorType) -> View:
        """Show bytes of a buffer as a C-contiguous tensor; copies nothing."""
        ...

    def write(self, target: View, source: Array) -> None:
        """Copy from the host; returns when ``source`` may be changed."""
        ...

    def read(self, source: View, target: Array) -> None:
        """Copy to the host; returns when ``target`` holds the value."""
        ...

    def synchronize(self) -> None:
        """
        Return when everything that was submitted is done, by any thread.

        On a device what runs is only submitted: ``run`` and ``replay`` of its segments may
        return before the work has ended, and what goes wrong in it is raised by whoever
        waits next: this, ``read``, or ``unmap``. On the host there is nothing to wait for.

        Raises
        ------
        RunError
            Work that was submitted failed; names what is known of it.
        RecordingError
            The calling thread records, and a wait cannot be recorded.
        """
        ...

    def gauges(self) -> Gauges:
        """Give the bytes held now."""
        ...


@runtime_checkable
class GrowingMemory(Protocol):
    """
    A memory that also offers buffers that grow; a provider need not have it.

    Where it does not, a session's states have their whole room allocated.
    """

    def reserve(self, nbytes: int) -> Growing:
        """
        Reserve addresses for so many bytes, without pages.

        Views of it are made as of any buffer. What reads or writes keeps within the
        parts that have pages.

        Raises
        ------
        VirtualMemoryError
            There are no more addresses.
        """
        ...
