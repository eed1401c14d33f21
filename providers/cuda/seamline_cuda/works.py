"""
What a kernel of the table gives for a node: work, as values, made without a device.

The segment turns work into launches. A kernel that reads indices cannot raise; it is handed
the address of a word, which it sets where it meets data that it refuses, and whoever waits
next raises what the :class:`Complaint` says.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from seamline_cuda.device_kernel import DeviceKernel

__all__ = [
    "LIBRARY",
    "Complaint",
    "CopyWork",
    "KernelWork",
    "Matrix",
    "ProductWork",
    "Work",
]

#: The variant of every claim whose kernel gives a :class:`ProductWork`; a provider that
#: finds no such library refuses it.
LIBRARY = "cublaslt"


@attrs.frozen
class Complaint:
    """
    Stands for the address of a ``uint32`` that a kernel sets to 1.

    Attributes
    ----------
    why
        What is wrong with the data then.
    """

    why: str


@attrs.frozen
class KernelWork:
    """
    A kernel over arguments.

    Attributes
    ----------
    arguments
        One for each parameter: a number, an address, or a :class:`Complaint`.
    count
        Threads that have something to do; the kernel takes as many as there are.
    threads
        Of a block.
    blocks
        Of the grid, where the kernel counts in blocks, such as one for each row; None for
        as many as ``count`` asks for and the device keeps busy.
    """

    kernel: DeviceKernel
    arguments: tuple[float | Complaint, ...]
    count: int
    threads: int = 256
    blocks: int | None = None


@attrs.frozen
class CopyWork:
    """Bytes of the device, copied to another place on it."""

    target: int
    source: int
    nbytes: int


@attrs.frozen
class Matrix:
    """
    Where the matrices of a product lie, row by row; a batch has one at every ``stride``.

    Attributes
    ----------
    address
        Of the first element.
    leading
        Elements from one stored row to the next, at least as many as a row has.
    swapped
        What is stored is the transpose of the matrix that is meant.
    stride
        Elements from one matrix of the batch to the next; 0 to take the same one again.
    """

    address: int
    leading: int
    swapped: bool = False
    stride: int = 0


@attrs.frozen
class ProductWork:
    """
    ``target = activation(alpha * a @ b + beta * addend + bias)``, for each of a batch.

    Attributes
    ----------
    rows, columns, depth
        Of ``a``: rows and depth; of ``b``: depth and columns; none of them 0.
    dtype
        Element type of ``a`` and ``b``: float32, float16, bfloat16 or float64. Sums are
        made in float32, or in float64 for float64.
    target
        Never swapped.
    result
        Element type of ``target``, ``addend`` and ``bias``: ``dtype``, or float32 for
        16-bit floats; empty for ``dtype``.
    addend
        Read where ``beta`` is not 0; never swapped. It may lie where ``target`` does.
    bias
        Address of ``columns`` elements that are added to every row, a multiple of 16
        bytes, which the library trusts; 0 for none.
    activation
        ``relu``, ``gelu`` (the approximation by tanh), or empty.
    tf32
        Factors of type float32 may be rounded to 10 bits of mantissa.
    """

    a: Matrix
    b: Matrix
    target: Matrix
    rows: int
    columns: int
    depth: int
    dtype: str = "float32"
    result: str = ""
    batch: int = 1
    alpha: float = 1.0
    beta: float = 0.0
    addend: Matrix | None = None
    bias: int = 0
    activation: str = ""
    tf32: bool = False


Work: TypeAlias = KernelWork | CopyWork | ProductWork
