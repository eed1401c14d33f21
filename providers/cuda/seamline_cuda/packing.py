"""
Four neighbours of 16 bits as one word of 64.

A thread that loads two bytes at a time has few bytes under way, and memory waits for it.
Where a result of 16-bit floats has a last size that four divide, and each operand either
lies in order along it or stands still, a thread takes four neighbours by one load and
writes them by one store. They are computed with one by one, so their bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline_cuda.broadcasting import Layout
from seamline_cuda.elements import Element

__all__ = ["PACK", "Packing", "joined_text", "packed", "parts_text"]

PACK = 4  #: elements of a word
_WORD = 8  #: bytes, and what every place must be a multiple of


@attrs.frozen
class Packing:
    """
    A loop over words.

    Attributes
    ----------
    layout
        Counts words along the last size, and for what is wide in every step.
    wide
        For each operand whether it is loaded by words; others stand still within one.
    """

    layout: Layout
    wide: tuple[bool, ...]


def packed(
    layout: Layout,
    loads: Sequence[Element],
    stores: Sequence[Element],
    places: Sequence[int],
) -> Packing | None:
    """
    Give the loop by words, or None where elements have to go one by one.

    Parameters
    ----------
    places
        Addresses of all loads and stores.
    """
    if not layout.sizes or layout.sizes[-1] % PACK or layout.sizes[-1] == PACK:
        return None
    if any(one.stored != "uint16" for one in stores) or any(p % _WORD for p in places):
        return None
    wide = tuple(steps[-1] == 1 for steps in layout.strides)
    for element, steps, lies in zip(loads, layout.strides, wide, strict=True):
        if lies and (element.stored != "uint16" or any(s % PACK for s in steps[:-1])):
            return None
        if not lies and steps[-1]:
            return None
    if not any(wide):
        return None
    strides = tuple(
        (*(s // PACK for s in steps[:-1]), 1) if lies else steps
        for steps, lies in zip(layout.strides, wide, strict=True)
    )
    sizes = (*layout.sizes[:-1], layout.sizes[-1] // PACK)
    return Packing(Layout(sizes, strides), wide)


def parts_text(word: str) -> list[str]:
    """Write the four elements of a word, the first in its lowest bits."""
    return [
        f"np.uint16(({word} >> np.uint64({16 * k})) & np.uint64(65535))"
        for k in range(PACK)
    ]


def joined_text(parts: Sequence[str]) -> str:
    """Write the word of four elements."""
    words = [f"(np.uint64({p}) << np.uint64({16 * k}))" for k, p in enumerate(parts)]
    return " | ".join(words)
