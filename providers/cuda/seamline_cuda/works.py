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

__all__ = ["Complaint", "CopyWork", "KernelWork", "Work"]


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


Work: TypeAlias = KernelWork | CopyWork
