"""Caches of keys and values: joined from a past and new rows, or kept where they grow."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from seamline_cuda.attention_places import WIDTHS, Operand
from seamline_cuda.attention_rows import moved
from seamline_cuda.attention_spans import Span
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.templates import filled, indented
from seamline_cuda.works import Complaint, KernelWork, Work

__all__ = ["joined", "kept"]

_TEXT = """\
i = np.int64(cuda.grid(1))
step = np.int64(cuda.gridsize(1))
while i < n:
    whole = i // units
    unit = i - whole * units
    place = whole // capacity
    row = whole - place * capacity
    entry = place // heads
    SPAN
    if row < first:
        y[i] = x[(place * before + row) * units + unit]
    elif row >= end:
        y[i] = ZERO
    i += step
"""


def joined(
    new: Operand, past: Operand | None, where: int, sizes: tuple[int, int, int, int, int],
    works: list[Work],
) -> Operand:  # fmt: skip
    """
    Give where all rows of a cache lie; what brings them there is added to the works.

    Parameters
    ----------
    where
        Address of as many rows as there are; 0 to leave the new ones where they are.
    sizes
        Entries, heads, rows of the past, new rows, values of a head.
    """
    batch, heads, before, rows, size = sizes
    if not where:
        return new
    steps = (heads * (before + rows) * size, (before + rows) * size, size)
    whole = Operand(where, new.kind, steps)
    if past is not None:
        works += moved(past, whole, (batch, heads, before, size))
    works += moved(new, whole, (batch, heads, rows, size), before)
    return whole


@functools.lru_cache(16)
def _kernel(stored: str, span: Span) -> tuple[DeviceKernel, tuple[str, ...]]:
    parameters = {"x": f"{stored}*", "y": f"{stored}*", **span.parameters()}
    parameters |= dict.fromkeys(("n", "units", "capacity", "heads"), "int64")
    lines = filled(_TEXT, SPAN=span.text(), ZERO=f"np.{stored}(0)")
    head = f"def attention_cache({', '.join(parameters)}):"
    text = "\n".join([head, *indented(lines)]) + "\n"
    kernel = DeviceKernel("attention_cache", text, tuple(parameters.values()))
    return kernel, tuple(parameters)


def kept(
    past: int, present: int, kind: str, sizes: tuple[int, int, int, int], span: Span,
    given: Mapping[str, float | Complaint],
) -> list[Work]:  # fmt: skip
    """
    Give the launch that takes over a past that is not the present's own memory.

    Rows behind an entry's tokens become zeros.

    Parameters
    ----------
    past, present
        Addresses; a past of 0 has no rows.
    sizes
        Entries, heads, rows of the present, values of a head.
    """
    batch, heads, capacity, size = sizes
    nbytes = size * WIDTHS[kind]
    if past == present or not batch * heads * capacity * nbytes:
        return []
    unit = next(
        n for n in (8, 4, 2) if not any(at % n for at in (nbytes, past, present))
    )
    count = batch * heads * capacity * nbytes // unit
    values = {
        **given, "x": past, "y": present, "n": count, "units": nbytes // unit,
        "capacity": capacity, "heads": heads,
    }  # fmt: skip
    kernel, names = _kernel(f"uint{8 * unit}", span)
    return [KernelWork(kernel, tuple(values[name] for name in names), count)]
