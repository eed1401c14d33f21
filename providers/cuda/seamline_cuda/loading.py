"""
Kernels on one GPU: loaded once, launched from argument blocks that were laid out before.

A launch through Numba's dispatcher looks at every argument each time. Here a launch is
bound once: its arguments lie in memory of its own, with a table of their addresses beside
them, so that launching is one call of the driver with numbers that do not change.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from seamline_cuda.compiler import Compiled, compiled
from seamline_cuda.device import Gpu
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.driver import SUCCESS, call, check, prepared

__all__ = ["Copy", "Launch", "Loader"]

_FORMATS = {
    "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip


@attrs.define(eq=False)
class Launch:
    """
    A kernel over fixed arguments.

    Attributes
    ----------
    kernel
        Its name, for messages.
    blocks, threads
        Its grid.
    """

    kernel: str
    blocks: int
    threads: int
    _function: Any
    _stream: Any
    _block: Any
    _table: Any
    _driver: Callable[..., Any] = attrs.field(
        factory=lambda: prepared("cuLaunchKernel"), init=False
    )
    _given: tuple[Any, ...] = attrs.field(default=(), init=False)

    def __attrs_post_init__(self) -> None:
        self._given = (
            self._function, self.blocks, 1, 1, self.threads, 1, 1, 0, self._stream,
            ctypes.addressof(self._table), 0,
        )  # fmt: skip

    def __call__(self) -> None:
        """
        Submit it to its stream.

        Raises
        ------
        CudaError
            The driver refused it, or earlier work failed.
        """
        given = self._driver(*self._given)
        if given[0] != SUCCESS:
            check("cuLaunchKernel", given)


@attrs.define(eq=False)
class Copy:
    """A copy on the device, over fixed addresses, submitted like a launch."""

    kernel: str
    target: int
    source: int
    nbytes: int
    stream: Any
    _driver: Callable[..., Any] = attrs.field(
        factory=lambda: prepared("cuMemcpyDtoDAsync"), init=False
    )

    def __call__(self) -> None:
        """
        Submit it.

        Raises
        ------
        CudaError
            The driver refused it, or earlier work failed.
        """
        given = self._driver(self.target, self.source, self.nbytes, self.stream)
        if given[0] != SUCCESS:
            check("cuMemcpyDtoDAsync", given)


@attrs.define(eq=False)
class Loader:
    """
    Loads kernels on a GPU, each once, and binds launches of them.

    Attributes
    ----------
    loaded
        What was loaded, by kernel.
    """

    gpu: Gpu
    loaded: dict[DeviceKernel, Compiled] = attrs.field(factory=dict, init=False)
    _functions: dict[DeviceKernel, Any] = attrs.field(factory=dict, init=False)
    _modules: list[Any] = attrs.field(factory=list, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def launch(
        self,
        kernel: DeviceKernel,
        arguments: Sequence[float],
        *,
        blocks: int,
        threads: int,
    ) -> Launch:
        """
        Bind a launch on the device's stream of kernels.

        Parameters
        ----------
        arguments
            One number for each of the kernel's: an address for a pointer.

        Raises
        ------
        CudaError
            The kernel could not be compiled or loaded.
        """
        function = self._function(kernel)
        block, table = _laid_out(kernel.signature, arguments)
        return Launch(
            kernel.name,
            blocks,
            threads,
            function,
            self.gpu.compute.handle,
            block,
            table,
        )

    def close(self) -> None:
        """Unload everything; launches that were bound must not be called any more."""
        with self._lock, self.gpu.here():
            self._functions.clear()
            while self._modules:
                call("cuModuleUnload", self._modules.pop())

    def _function(self, kernel: DeviceKernel) -> Any:
        with self._lock:
            found = self._functions.get(kernel)
            if found is None:
                found = self._functions[kernel] = self._load(kernel)
            return found

    def _load(self, kernel: DeviceKernel) -> Any:
        made = self.loaded[kernel] = compiled(kernel, self.gpu.capability)
        with self.gpu.here():
            module = call("cuModuleLoadData", made.cubin)
            self._modules.append(module)
            function = call("cuModuleGetFunction", module, made.entry.encode())
            # Else the driver may bring it to the device at its first launch, which must
            # not be inside a capture.
            call("cuFuncLoad", function)
        return function


def _laid_out(signature: Sequence[str], arguments: Sequence[float]) -> tuple[Any, Any]:
    """Give memory that holds the arguments, and a table of where each of them lies."""
    if len(signature) != len(arguments):
        raise ValueError(f"{len(arguments)} arguments for {len(signature)} parameters")
    block = ctypes.create_string_buffer(8 * max(len(arguments), 1))
    start = ctypes.addressof(block)
    table = (ctypes.c_void_p * max(len(arguments), 1))()
    for index, (name, value) in enumerate(zip(signature, arguments, strict=True)):
        form = "Q" if name.endswith("*") else _FORMATS[name]
        struct.pack_into(f"<{form}", block, 8 * index, value)
        table[index] = start + 8 * index
    return block, table
