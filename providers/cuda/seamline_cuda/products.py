"""
Products of matrices by cuBLASLt, bound once and submitted like any launch.

The library's matrices lie column by column. What lies row by row is to it the transpose,
so ``c = a @ b`` is asked for as ``c' = b' @ a'``: the operands change places, nothing is
moved, and a bias along the rows of ``c`` is the one along columns that the library adds.

Descriptors are made, and the library's best algorithms are asked for, when a segment is
bound, which is when the quickest of them is found: a run, and so a capture, only submits.
All products of a provider follow one another on its stream of kernels, so they share one
workspace, which is taken before the first. They follow one another whole: one call may give
the stream two kernels, of which the second joins what the first left in the workspace, so a
call has the device's turn.
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
from seamline_cuda.product_search import Places, searched
from seamline_cuda.streams import Stream
from seamline_cuda.works import Matrix, ProductWork

__all__ = ["Product", "Products"]

_MIB = 1 << 20
_ALGORITHMS = 8  #: that are measured at most
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
    _turn: threading.RLock
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


def _layouts(
    work: ProductWork, addend: Matrix, stack: contextlib.ExitStack
) -> list[Described]:
    """Describe the matrices: the library's first is the second here, its rows the columns."""
    result = work.result or work.dtype
    return [
        layout_of(work, work.b, work.dtype, work.depth, work.columns, stack),
        layout_of(work, work.a, work.dtype, work.rows, work.depth, stack),
        layout_of(work, addend, result, work.rows, work.columns, stack),
        layout_of(work, work.target, result, work.rows, work.columns, stack),
    ]


@attrs.frozen(eq=False)
class _Given:
    """What a call of the library needs, but the algorithm and the addresses."""

    products: Products
    product: Described
    layouts: list[Described]
    scales: Any
    records: Any
    workspace_nbytes: int

    def arguments(self, which: int, places: Places, stream: Stream) -> tuple[Any, ...]:
        """Give a call's arguments."""
        first, second, third, fourth, room = places
        b, a, c, d = (layout.handle for layout in self.layouts)
        alpha = self.scales.ctypes.data
        return (
            self.products._handle, self.product.handle, alpha, second, b, first, a,
            alpha + self.scales.itemsize, third, c, fourth, d,
            self.records[which:].ctypes.data, room, self.workspace_nbytes,
            int(stream.handle),
        )  # fmt: skip

    def submit(self, which: int, places: Places, stream: Stream) -> None:
        """Submit the product by one of the algorithms over other places."""
        call("matmul", *self.arguments(which, places, stream))


@attrs.define(eq=False)
class Products:
    """
    The library on one device: a handle, and the workspace of all products.

    Attributes
    ----------
    memory
        Where the workspace lies; it outlives this.
    measures
        Whether the quickest of the library's algorithms is taken, not what it thinks best.
    """

    memory: CudaMemory
    measures: bool = False
    _handle: int = attrs.field(default=0, init=False)
    _workspace: Buffer | None = attrs.field(default=None, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

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
        layouts = _layouts(work, addend, stack)
        records = self._algorithms(work, product, layouts, workspace.nbytes)
        scale = np.float64 if work.dtype == "float64" else np.float32
        scales = np.array([work.alpha, work.beta], scale)
        room = workspace.nbytes
        given = _Given(self, product, layouts, scales, records, room)
        which = 0
        if len(records) > 1:
            which = searched(self.memory, work, len(records), room, given.submit)
        sizes = f"{work.rows}x{work.columns}x{work.depth}"
        times = f"{work.batch} times " if work.batch > 1 else ""
        name = f"product of {times}{sizes} in {work.dtype}"
        own = (
            work.a.address, work.b.address, addend.address, work.target.address,
            workspace.address,
        )  # fmt: skip
        return Product(
            name, int(records["workspace_size"][which]), self.memory.gpu.turn,
            given.arguments(which, own, self.memory.gpu.compute), (scales, records),
            contextlib.ExitStack(),
        )  # fmt: skip

    def _algorithms(
        self, work: ProductWork, product: Described, layouts: list[Described], room: int
    ) -> Any:
        """Ask for the best algorithms; gives the library's own records of them."""
        preference = described("matmul_preference")
        try:
            preference.set("MAX_WORKSPACE_BYTES", room)
            for letter, address in addresses_of(work):
                preference.set(f"MIN_ALIGNMENT_{letter}_BYTES", alignment_of(address))
            most = _ALGORITHMS if self.measures else 1
            found, count = np.zeros(most, record_of_heuristic()), np.zeros(1, np.int32)
            call(
                "matmul_algo_get_heuristic", self._handle, product.handle,
                *(layout.handle for layout in layouts), preference.handle, most,
                found.ctypes.data, count.ctypes.data,
            )  # fmt: skip
        finally:
            preference.close()
        if not count[0]:
            why = f"there is no algorithm for {work}"
            raise BlasError(
                "cublasLt matmul_algo_get_heuristic", "NO_ALGORITHM", -1, why
            )
        return found[: count[0]]

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
