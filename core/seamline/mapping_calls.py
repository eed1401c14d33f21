"""
The four system calls behind the host's virtual memory, each an ``OSError`` when refused.

Python's own ``mmap`` cannot place a mapping at an address, so libc is called directly.
"""

from __future__ import annotations

import ctypes
import mmap
import os

__all__ = ["change_access", "map_nothing", "map_pages", "supported", "unmap"]

_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_PROT_NONE = 0
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
    ctypes.c_int64,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def supported() -> bool:
    """Tell whether this system has anonymous files to hold pages (Linux)."""
    return hasattr(os, "memfd_create")


def map_nothing(nbytes: int, address: int | None = None) -> int:
    """Take addresses without pages, anywhere or over what is at ``address``."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    if address is not None:
        flags |= _MAP_FIXED
    return _mmap(address, nbytes, _PROT_NONE, flags, -1)


def map_pages(address: int, nbytes: int, descriptor: int, *, visible: bool) -> None:
    """Put a file's pages at an address, in place of what is there."""
    access = _READ_WRITE if visible else _PROT_NONE
    _mmap(address, nbytes, access, mmap.MAP_SHARED | _MAP_FIXED, descriptor)


def change_access(address: int, nbytes: int, *, visible: bool) -> None:
    """Let the process read and write mapped bytes, or neither."""
    access = _READ_WRITE if visible else _PROT_NONE
    if _libc.mprotect(address, nbytes, access) != 0:
        raise _refused("mprotect")


def unmap(address: int, nbytes: int) -> None:
    """Give addresses back."""
    if _libc.munmap(address, nbytes) != 0:
        raise _refused("munmap")


def _mmap(
    address: int | None, nbytes: int, access: int, flags: int, descriptor: int
) -> int:
    found = _libc.mmap(address, nbytes, access, flags, descriptor, 0)
    if found is None or found == _FAILED:
        raise _refused("mmap")
    return int(found)


def _refused(call: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{call}: {os.strerror(code)}")
