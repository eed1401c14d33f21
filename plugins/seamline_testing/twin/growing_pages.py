"""Pages for the twin's growing buffers: the machine's, poisoned when they come."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from seamline_testing.twin.machine import Machine
from seamline_testing.twin.streams import Range

__all__ = ["GrowingPages"]


@attrs.frozen(eq=False)
class GrowingPages:
    """
    Implements :class:`seamline.growing.Pages` on a machine.

    Attributes
    ----------
    counted
        Told of bytes that became live, or no longer are.
    """

    machine: Machine
    counted: Callable[..., None]

    @property
    def granularity(self) -> int:
        """Give the bytes of one granule."""
        return self.machine.granule

    def take(self, nbytes: int) -> int:
        """Create pages."""
        return self.machine.pages.create(nbytes)

    def give(self, handle: int, nbytes: int) -> None:
        """Release pages."""
        self.machine.pages.release(handle)

    def map(self, address: int, handle: int) -> None:
        """Put pages at an address; what lies there is poison, as on a device anything."""
        self.machine.pages.map(address, handle)
        with self.machine.shown():
            self.machine.poison(Range(address, self.granularity))

    def unmap(self, address: int, nbytes: int) -> None:
        """Take pages away once nothing in flight reads them."""
        self.machine.pages.unmap(address, nbytes)
