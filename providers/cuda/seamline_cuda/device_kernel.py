"""
A kernel as text: what is compiled for a device, and what names it in the cache.

Text, not a function: generated kernels have no file, and everything that the machine code
depends on is then in the text, the signature and the sources of the intrinsics that the
text may call.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import attrs

__all__ = ["DeviceKernel"]


@attrs.frozen
class DeviceKernel:
    """
    A kernel's source.

    Attributes
    ----------
    name
        The function that the text defines; for messages and profilers.
    text
        Python that Numba-CUDA compiles; its globals are those of
        :mod:`seamline_cuda.intrinsics`.
    signature
        Type of each argument: ``float32*`` for an address of such elements, or a scalar's
        own name.
    """

    name: str
    text: str
    signature: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Hash all that its machine code depends on, but versions and the device."""
        told = hashlib.blake2b(digest_size=16)
        for part in (self.name, self.text, *self.signature, _intrinsics_digest()):
            told.update(part.encode() + b"\0")
        return told.hexdigest()


@functools.cache
def _intrinsics_digest() -> str:
    told = hashlib.blake2b(digest_size=16)
    for name in ("intrinsics.py", "matrix_intrinsics.py", "device_functions.py"):
        told.update(Path(__file__).with_name(name).read_bytes())
    return told.hexdigest()
