"""What a product is added to: an operand repeated along rows or columns, or zeros."""

from __future__ import annotations

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.works import KernelWork

__all__ = ["spread", "spread_kernel"]

_TEXT = """def spread(source, onto, out, n, columns, period, row_step, column_step, added, factor):
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < n:
        row = quotient32(np.uint32(i), columns)
        column = np.uint32(np.uint32(i) - row * columns)
        row = np.uint32(row - quotient32(row, period) * period)
        value = np.{computed}(0)
        if factor != np.{computed}(0):
            value = factor * {loaded}
        if added:
            value += {more}
        out[i] = {stored}
        i += step
"""


def spread_kernel(dtype: str) -> DeviceKernel:
    """Give the kernel for an element type that is a float."""
    element = ELEMENTS[dtype]
    text = _TEXT.format(
        computed=element.computed,
        loaded=element.load.format("source[row * row_step + column * column_step]"),
        more=element.load.format("onto[i]"),
        stored=element.store.format("value"),
    )
    numbers = ("int64", *["uint32"] * 5, element.computed)
    return DeviceKernel("spread", text, (f"{element.stored}*",) * 3 + numbers)


def spread(
    dtype: str, source: int, target: int, shape: tuple[int, int], steps: tuple[int, int],
    *, period: int = 0, factor: float = 1.0,
    onto: int = 0,
) -> KernelWork:  # fmt: skip
    """
    Write ``factor`` times an operand to every place of a matrix; 0 writes zeros.

    Parameters
    ----------
    shape
        Rows and columns that are written, fewer than 2**31 elements and not none.
    steps
        Elements of the operand from one row to the next, and from one column.
    period
        Rows after which the operand begins again; 0 for never.
    onto
        Address of a matrix that it is added to, or 0.
    """
    rows, columns = shape
    count = rows * columns
    arguments = (
        source, onto, target, count, columns, period or rows, *steps, int(onto != 0), factor,
    )  # fmt: skip
    return KernelWork(spread_kernel(dtype), arguments, count)
