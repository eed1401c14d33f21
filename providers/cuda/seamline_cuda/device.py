"""
One GPU: its primary context, its streams, and what it says of itself.

The primary context is the one that torch and CuPy use as well, so that their tensors and
ours lie in one address space. It is retained when a device is opened and released when it
is closed; others may keep it alive. A thread has a context only while it is inside
:meth:`Gpu.here`, which leaves whatever the thread had before as it was.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import attrs

from seamline.devices import Device
from seamline.errors import DeadlineError
from seamline_cuda.driver import SUCCESS, call, check, enumeration, prepared
from seamline_cuda.errors import CudaError
from seamline_cuda.streams import Event, Stream

__all__ = ["Gpu"]

_PUSH, _POP = "cuCtxPushCurrent", "cuCtxPopCurrent"


@attrs.define(eq=False)
class Gpu:
    """
    An open device.

    Attributes
    ----------
    device
        What the core calls it.
    name
        What NVIDIA calls it, such as ``NVIDIA H200``.
    capability
        Compute capability, such as ``(9, 0)``.
    multiprocessors
        How many blocks can run side by side, at least.
    compute, copies
        Kernels run on the one, transfers on the other; events order them.
    lost
        Why it cannot be used any more; empty while it can.
    is_lent
        Memory was lent to another library, whose streams are waited for too.
    deadline
        Seconds that the host waits for it at most; None for as long as it takes.
    turn
        Held while a thread gives the stream of kernels what must follow one another: a
        segment's launches, a recording, a replay. A thread that has it waits for nothing.

    Examples
    --------
    ::

        with Gpu.open(0) as gpu, gpu.here():
            gpu.compute.synchronize()
    """

    device: Device
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    total: int
    compute: Stream
    copies: Stream
    lost: str = ""
    is_lent: bool = False
    deadline: float | None = None
    turn: threading.RLock = attrs.field(factory=threading.RLock, init=False)
    _handle: Any = attrs.field(default=None, alias="handle")
    _context: Any = attrs.field(default=None, alias="context")
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _hangs: bool = attrs.field(default=False, init=False)
    _pop: Callable[..., Any] = attrs.field(factory=lambda: prepared(_POP), init=False)

    @classmethod
    def open(cls, index: int = 0) -> Gpu:
        """
        Retain a device's primary context and make two streams on it.

        Raises
        ------
        CudaError
            There is no driver or no such device; says what to do. Whatever was opened
            before the failure is given back.
        """
        call("cuInit", 0)
        handle = call("cuDeviceGet", index)
        raw = call("cuDeviceGetName", 128, handle)
        capability = (_ask(handle, "COMPUTE_CAPABILITY_MAJOR"), _ask(handle, "COMPUTE_CAPABILITY_MINOR"))  # fmt: skip
        multiprocessors = _ask(handle, "MULTIPROCESSOR_COUNT")
        total = int(call("cuDeviceTotalMem", handle))
        context = call("cuDevicePrimaryCtxRetain", handle)
        with contextlib.ExitStack() as undo:
            undo.callback(call, "cuDevicePrimaryCtxRelease", handle)
            compute, copies = _streams(context)
            undo.pop_all()
        return cls(
            Device("cuda", index), raw.split(b"\0")[0].decode(), capability, multiprocessors,
            total, compute, copies, handle=handle, context=context,
        )  # fmt: skip

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def here(self) -> _Here:
        """Make it the calling thread's device for a ``with`` block."""
        return _Here(self)

    def enter(self) -> None:
        """Make it the calling thread's device, until :meth:`leave`."""
        context = self._context
        if context is None:
            self.usable()  # raises
        given = prepared(_PUSH)(context)
        if given[0] != SUCCESS:
            check(_PUSH, given)

    def leave(self) -> None:
        """Give the calling thread the device back that it had before."""
        given = self._pop()
        if given[0] != SUCCESS:
            check(_POP, given)

    @property
    def is_open(self) -> bool:
        """Tell whether it was not closed yet."""
        return self._context is not None

    def usable(self) -> None:
        """
        Refuse calls on a device that is closed or lost.

        Raises
        ------
        CudaError
            Says why.
        """
        if self._context is None:
            raise CudaError("seamline", "CLOSED", -1, f"{self.device} was closed")
        if self.lost:
            raise CudaError(
                "seamline", "LOST", -1, f"{self.device} is lost: {self.lost}"
            )

    def drain(self) -> None:
        """
        Return when nothing that was submitted here is in flight, whatever became of it.

        Unconditional before any unmap. What went wrong is left to whoever synchronises: a
        device that is lost reads nothing more, unless it was given up at a deadline, which
        is why nothing of a lost one is unmapped.

        Raises
        ------
        DeadlineError
            It did not end in time, and the device counts as lost from now on.
        """
        if self._context is None or self._hangs:
            return
        with self.here():
            try:
                self.waited(self.copies.synchronize)
                self.waited(self.compute.synchronize)
                if self.is_lent:
                    self.waited(lambda _: call("cuCtxSynchronize"))
            except CudaError as error:
                if not error.is_lost:
                    raise

    def waited(self, wait: Callable[[float | None], object]) -> None:
        """
        Wait with the deadline, and remember what the device is lost by.

        Raises
        ------
        CudaError
            Work that was waited for failed.
        DeadlineError
            It did not end in time. It still runs, so nothing that it may touch can be
            given back, and the device counts as lost.
        """
        try:
            wait(self.deadline)
        except CudaError as error:
            self.noticed(error)
            raise
        except DeadlineError as error:
            self.lost, self._hangs = str(error), True
            raise

    def synchronize(self) -> None:
        """
        Wait for both streams.

        Raises
        ------
        CudaError
            Work that was submitted failed.
        DeadlineError
            It did not end in time; the device is lost.
        """
        self.usable()
        with self.here():
            self.waited(self.copies.synchronize)
            self.waited(self.compute.synchronize)

    def let_wait(self, stream: int) -> None:
        """Let a stream of somebody else's wait for the kernels submitted so far."""
        with self.here():
            event = Event.open()
            self.compute.record(event)
            call("cuStreamWaitEvent", stream, event.handle, 0)
            event.close()  # the driver keeps it until it was reached

    def wait_for(self, stream: int) -> None:
        """Let kernels that are submitted from now on wait for a stream of somebody else's."""
        with self.here():
            event = Event.open()
            call("cuEventRecord", event.handle, stream)
            self.compute.wait_for(event)
            event.close()

    def noticed(self, error: CudaError) -> None:
        """Remember an error after which the device cannot be used."""
        if error.is_lost and not self.lost:
            self.lost = f"{error.code}: {error.explanation}"

    def free_bytes(self) -> int:
        """Give the bytes that no process holds, as the driver says."""
        with self.here():
            return int(call("cuMemGetInfo")[0])

    def close(self) -> None:
        """
        Wait for work in flight, end the streams, release the context; once.

        Of a device that is lost nothing can be given back before the process ends.
        """
        with self._lock:
            if self._context is None:
                return
            if self._hangs:  # every call that gives something back would wait for it
                self._context = None
                return
            try:
                if not self.lost:
                    self.drain()
                with contextlib.ExitStack() as stack:
                    if self.lost:
                        stack.enter_context(contextlib.suppress(CudaError))
                    stack.enter_context(self.here())
                    self.copies.close()
                    self.compute.close()
            finally:
                self._context = None
                with contextlib.suppress(CudaError):
                    call("cuDevicePrimaryCtxRelease", self._handle)


@attrs.define(eq=False)
class _Here:
    """A ``with`` block during which the thread uses a device; two driver calls."""

    gpu: Gpu

    def __enter__(self) -> None:
        self.gpu.enter()

    def __exit__(self, *_: object) -> None:
        self.gpu.leave()


def _ask(handle: Any, what: str) -> int:
    which = enumeration("CUdevice_attribute", f"CU_DEVICE_ATTRIBUTE_{what}")
    return int(call("cuDeviceGetAttribute", which, handle))


def _streams(context: Any) -> list[Stream]:
    """Make both streams or none; the calling thread has the context it had before."""
    check(_PUSH, prepared(_PUSH)(context))
    with contextlib.ExitStack() as undo:
        undo.callback(prepared(_POP))
        made = []
        for name in ("compute", "copies"):
            made.append(Stream.open(name))
            undo.callback(made[-1].close)
        call(_POP)
        undo.pop_all()
    return made
