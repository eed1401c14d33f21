"""What is reserved, created and mapped: the books behind a virtual memory, and no call."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

import attrs

__all__ = ["MappingBook", "Pages"]


@attrs.define(eq=False)
class Pages:
    """
    Physical pages; they go when released and nowhere mapped.

    Attributes
    ----------
    token
        What the system calls them: an open file's descriptor, a driver's handle.
    """

    token: int
    nbytes: int
    released: bool = False
    maps: int = 0


@attrs.frozen(eq=False)
class _Mapping:
    pages: Pages
    nbytes: int
    serial: int


@attrs.define(eq=False)
class MappingBook:
    """
    Reservations, pages and mappings.

    Attributes
    ----------
    gone
        Told the token of pages that were released and are mapped nowhere any more.
    reserved
        First address -> bytes.
    pages
        Handle -> pages that were not released.
    maps
        First address -> what is mapped there; ``serial`` is never used twice.
    mapped, owned
        Bytes mapped; bytes of pages that are held, released or not.
    """

    gone: Callable[[int], object]
    reserved: dict[int, int] = attrs.field(factory=dict, init=False)
    pages: dict[int, Pages] = attrs.field(factory=dict, init=False)
    maps: dict[int, _Mapping] = attrs.field(factory=dict, init=False)
    mapped: int = attrs.field(default=0, init=False)
    owned: int = attrs.field(default=0, init=False)
    _starts: list[int] = attrs.field(factory=list, init=False)
    _made: int = attrs.field(default=0, init=False)

    def add_pages(self, token: int, nbytes: int) -> int:
        """Take pages; give their handle, which is never used twice."""
        self._made += 1
        self.pages[self._made] = Pages(token, nbytes)
        self.owned += nbytes
        return self._made

    def release(self, handle: int) -> None:
        """Let pages go once they are mapped nowhere."""
        pages = self.pages.pop(handle)
        pages.released = True
        self._drop(pages)

    def add_mapping(self, address: int, pages: Pages) -> None:
        """Note that pages are mapped at an address."""
        self._made += 1
        self.maps[address] = _Mapping(pages, pages.nbytes, self._made)
        bisect.insort(self._starts, address)
        pages.maps += 1
        self.mapped += pages.nbytes

    def remove_mapping(self, start: int) -> None:
        """Note that a mapping is gone."""
        mapping = self.maps.pop(start)
        self._starts.remove(start)
        self.mapped -= mapping.nbytes
        mapping.pages.maps -= 1
        self._drop(mapping.pages)

    def inside(self, address: int, end: int) -> bool:
        """Tell whether a range lies in one reservation."""
        return any(s <= address and end <= s + n for s, n in self.reserved.items())

    def overlapping(self, address: int, end: int) -> list[int]:
        """Give the starts of mappings with a byte in the range, in order."""
        first = max(bisect.bisect_right(self._starts, address) - 1, 0)
        near = self._starts[first : bisect.bisect_left(self._starts, end)]
        return [s for s in near if s + self.maps[s].nbytes > address]

    def exactly(self, found: Sequence[int], address: int, nbytes: int) -> bool:
        """Tell whether mappings fill a range, no byte more and none less."""
        inside = bool(found) and found[0] == address
        return inside and sum(self.maps[s].nbytes for s in found) == nbytes

    def gap(self, found: Sequence[int], address: int, nbytes: int) -> int | None:
        """Give the first address of a range that mappings leave out, if there is one."""
        at = address
        for start in found:
            if start > at:
                return at
            at = start + self.maps[start].nbytes
        return at if at < address + nbytes else None

    def _drop(self, pages: Pages) -> None:
        if pages.released and not pages.maps:
            self.owned -= pages.nbytes
            self.gone(pages.token)
