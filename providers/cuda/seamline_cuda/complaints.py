"""Words of host memory that kernels set where data is wrong, and the error that each means."""

from __future__ import annotations

import ctypes
import threading

import attrs
import numpy as np

from seamline.errors import KernelError
from seamline.provider import Array
from seamline_cuda.device import Gpu
from seamline_cuda.driver import call

__all__ = ["Complaints"]

_ROOM = 4096  #: bytes, a page of the host
_NONE = bytes(_ROOM)
_MAPPED = 2  #: CU_MEMHOSTALLOC_DEVICEMAP: kernels write it over the link


@attrs.define(eq=False)
class Complaints:
    """
    Words that kernels of one device set; looked at by whoever has waited for them.

    Attributes
    ----------
    gpu
        The open device; it outlives this.
    """

    gpu: Gpu
    _errors: dict[int, KernelError] = attrs.field(factory=dict, init=False)
    _free: list[int] = attrs.field(factory=list, init=False)
    _words: Array | None = attrs.field(default=None, init=False)
    _address: int = attrs.field(default=0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def take(self, error: KernelError) -> int:
        """
        Give the address of a word that means an error.

        Raises
        ------
        KernelError
            There are no more words.
        """
        with self._lock:
            if self._words is None:
                self._open()
            if not self._free:
                raise KernelError("too many kernels that check data", provider="cuda")
            index = self._free.pop()
            self._errors[index] = error
            return self._address + 4 * index

    def give_back(self, address: int) -> None:
        """Take a word back that no kernel writes any more."""
        with self._lock:
            index = (address - self._address) // 4
            del self._errors[index]
            self._free.append(index)

    def check(self) -> None:
        """
        Raise what kernels that are done have complained of, once.

        Raises
        ------
        KernelError
            Names segment and node.
        """
        words = self._words
        # Asked for at the end of every run: a copy compared is a fraction of a look at all.
        if words is None or words.tobytes() == _NONE:
            return
        with self._lock:
            found = [int(index) for index in np.flatnonzero(words)]
            words[...] = 0
            errors = [self._errors[i] for i in found if i in self._errors]
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Give the words back, no kernel under way; a second call does nothing."""
        with self._lock:
            words, self._words = self._words, None
            if words is not None:
                with self.gpu.here():
                    call("cuMemFreeHost", self._address)

    def _open(self) -> None:
        with self.gpu.here():
            self._address = int(call("cuMemHostAlloc", _ROOM, _MAPPED))
        raw = (ctypes.c_uint32 * (_ROOM // 4)).from_address(self._address)
        self._words = np.ctypeslib.as_array(raw)
        self._words[...] = 0
        self._free = list(range(_ROOM // 4))
