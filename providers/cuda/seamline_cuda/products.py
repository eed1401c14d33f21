"""
Products of matrices by cuBLASLt, bound once and submitted like any launch.

The library's matrices lie column by column. What lies row by row is to it the transpose,
so ``c = a @ b`` is asked for as ``c' = b' @ a'``: the operands change places, nothing is
moved, and a bias along the rows of ``c`` is the one along columns that the library adds.

Descriptors are made, and the library's best algorithm is asked for, when a segment is
bound: a run, and so a capture, only submits. All products of a provider follow one another
on its stream of kernels, so they share one workspace, which is taken before the first.
They follow one another whole: one call may give the stream two kernels, of which the second
joins what the first left in the workspace, so two threads take turns with their calls.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import attrs
import numpy as np

from seamline.provider import Buffer
from seamline_cuda.blaslt import (
    BlasError,
    Described,
    call,
    described,
    record_of_heuristic,
)
from seamline_cuda.driver import touched
from seamline_cuda.memory import CudaMemory
from seamline_cuda.product_descriptors import (
    addresses_of,
    alignment_of,
    layout_of,
    operation_of,
)
from seamline_cuda.works import ProductWork

__all__ = ["Product", "Products"]

_MIB = 1 << 20
#: What NVIDIA recommends, by the device's major capability; 4 MiB for all others.
_WORKSPACES = {9: 32 * _MIB, 10: 32 * _MIB}


@attrs.define(eq=False)
class Product:
    """
    A product over fixed addresses, submitted like a launch.

    Attributes
    ----------
    kernel
        What it is, for messages and profiles.
    workspace_nbytes
        Of the shared workspace, what its algorithm uses.
    """

    kernel: str
    workspace_nbytes: int
    _turn: threading.Lock
    _given: tuple[Any, ...]
    _kept: tuple[Any, ...]  # what the addresses in _given point to
    _stack: contextlib.ExitStack

    def __call__(self) -> None:
        """
        Submit it.

        Raises
        ------
        BlasError
            The library refused it, or earlier work failed.
        """
        with self._turn:
            call("matmul", *self._given)

    def close(self) -> None:
        """Give its descriptors back; a second call does nothing."""
        self._stack.close()


@attrs.define(eq=False)
class Products:
    """
    The library on one device: a handle, and the workspace of all products.

    Attributes
    ----------
    memory
        Where the workspace lies; it outlives this.
    """

    memory: CudaMemory
    _handle: int = attrs.field(default=0, init=False)
    _workspace: Buffer | None = attrs.field(default=None, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    @property
    def workspace_nbytes(self) -> int:
        """Give the bytes of device memory that it holds."""
        return self._workspace.nbytes if self._workspace is not None else 0

    def bind(self, work: ProductWork) -> Product:
        """
        Describe a product and find its algorithm.

        Raises
        ------
        BlasError
            The library is missing, or has no algorithm for it.
        VirtualMemoryError
            There is no room for the workspace.
        """
        touched("cublasLt")
        with self._lock, self.memory.gpu.here(), contextlib.ExitStack() as stack:
            workspace = self._opened()
            made = self._bound(work, workspace, stack)
            made._stack.push(stack.pop_all())
            return made

    def _opened(self) -> Buffer:
        if self._workspace is None:
            major, _ = self.memory.gpu.capability
            self._workspace = self.memory.allocate(_WORKSPACES.get(major, 4 * _MIB))
        if not self._handle:
            self._handle = int(call("create"))
        return self._workspace

    def _bound(
        self, work: ProductWork, workspace: Buffer, stack: contextlib.ExitStack
    ) -> Product:
        product = operation_of(work, stack)
        addend = work.addend or work.target
        result = work.result or work.dtype
        # The library's first operand is the second here, and its rows are the columns.
        layouts = [
            layout_of(work, work.b, work.dtype, work.depth, work.columns, stack),
            layout_of(work, work.a, work.dtype, work.rows, work.depth, stack),
            layout_of(work, addend, result, work.rows, work.columns, stack),
            layout_of(work, work.target, result, work.rows, work.columns, stack),
        ]
        found = self._algorithm(work, product, layouts, workspace.nbytes)
        scale = np.float64 if work.dtype == "float64" else np.float32
        scales = np.array([work.alpha, work.beta], scale)
        alpha = scales.ctypes.data
        b, a, c, d = (layout.handle for layout in layouts)
        given = (
            self._handle, product.handle, alpha, work.b.address, b, work.a.address, a,
            alpha + scales.itemsize, addend.address, c, work.target.address, d,
            found.ctypes.data, workspace.address, workspace.nbytes,
            int(self.memory.gpu.compute.handle),
        )  # fmt: skip
        sizes = f"{work.rows}x{work.columns}x{work.depth}"
        times = f"{work.batch} times " if work.batch > 1 else ""
        name = f"product of {times}{sizes} in {work.dtype}"
        needed = int(found["workspace_size"][0])
        return Product(
            name, needed, self._turn, given, (scales, found), contextlib.ExitStack()
        )

    def _algorithm(
        self, work: ProductWork, product: Described, layouts: list[Described], room: int
    ) -> Any:
        """Ask for the best algorithm; gives the library's own record of it."""
        preference = described("matmul_preference")
        try:
            preference.set("MAX_WORKSPACE_BYTES", room)
            for letter, address in addresses_of(work):
                preference.set(f"MIN_ALIGNMENT_{letter}_BYTES", alignment_of(address))
            found, count = np.zeros(1, record_of_heuristic()), np.zeros(1, np.int32)
            call(
                "matmul_algo_get_heuristic", self._handle, product.handle,
                *(layout.handle for layout in layouts), preference.handle, 1,
                found.ctypes.data, count.ctypes.data,
            )  # fmt: skip
        finally:
            preference.close()
        if not count[0]:
            why = f"there is no algorithm for {work}"
            raise BlasError(
                "cublasLt matmul_algo_get_heuristic", "NO_ALGORITHM", -1, why
            )
        return found

    def close(self) -> None:
        """Give handle and workspace back, no product under way; a second call does nothing."""
        with self._lock, self.memory.gpu.here():
            handle, self._handle = self._handle, 0
            workspace, self._workspace = self._workspace, None
            try:
                if handle:
                    call("destroy", handle)
            finally:
                if workspace is not None:
                    workspace.close()
