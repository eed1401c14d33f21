"""
Memory for what a session keeps and reads whole at every step, such as packed weights.

Its pages are large where Linux gives them on request (``madvise``): each load of a page's
address from the page table then serves 2 MiB. NumPy asks for them in its own arrays only,
and the allocator aligns those to 16 bytes.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

from seamline.provider import Array

__all__ = ["huge"]

_HUGE = 2 << 20
_LINE = 64


def huge(nbytes: int) -> Array:
    """
    Give zeroed bytes, aligned to a cache line, and to a huge page from 2 MiB on.

    They are given back when no array refers to them.
    """
    align = _HUGE if nbytes >= _HUGE else _LINE
    pages = _mapped(max(nbytes, 1) + align)
    if nbytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, np.uint8)
    start = -whole.ctypes.data % align
    return whole[start : start + nbytes]


def _mapped(nbytes: int) -> mmap.mmap:
    # Python's own choice is shared memory, which has large pages by another setting.
    if hasattr(mmap, "MAP_PRIVATE") and hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, nbytes)
