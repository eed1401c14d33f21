"""The parts that keys were cut into, added up: the second kernel of attention by parts."""

from __future__ import annotations

import functools

from seamline_cuda.attention_spans import sink_text
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.templates import filled, indented

__all__ = ["parts_kernel"]

#: A part that had no key has left a sum of zero, and nothing else.
_TEXT = """\
lane = cuda.threadIdx.x % 32
place = np.int64(cuda.grid(1)) // 32
if place < total:
    whole = quotient32(np.uint32(place), np.uint32(columns))
    column = place - np.int64(whole) * columns
    entry = np.int64(quotient32(whole, np.uint32(heads)))
    row = np.int64(quotient32(np.uint32(column), np.uint32(group)))
    head = (np.int64(whole) - entry * heads) * group + column - row * group
    first = place * splits
    top = np.float32(-np.inf)
    for part in range(splits):
        top = greatest(top, levels[2 * (first + part)])
    sum = np.float32(0)
    for part in range(splits):
        at = 2 * (first + part)
        if levels[at + 1] != 0:
            sum += levels[at + 1] * libdevice.expf(levels[at] - top)
    most = top
    SINK
    inverse = np.float32(0) if sum == 0 else shrink / sum
    start = entry * y_batch + row * y_row + head * y_head
    d = np.int64(lane)
    while d < width:
        found = np.float32(0)
        for part in range(splits):
            at = first + part
            if levels[2 * at + 1] != 0:
                weight = libdevice.expf(levels[2 * at] - top)
                found += parts[at * width + d] * weight
        y[start + d] = STORED
        d += 32
"""


@functools.lru_cache(64)
def parts_kernel(kind: str, sink: str) -> tuple[DeviceKernel, tuple[str, ...]]:
    """
    Write the kernel that adds the parts of each query up, a warp for each.

    Its parameters' names come along.

    Parameters
    ----------
    kind
        Element type of the result.
    sink
        As :attr:`~seamline_cuda.attention_tiling.Tiling.sink`.
    """
    numbers = ("y_batch", "y_head", "y_row", "total", "heads", "group", "columns")
    parameters = {"parts": "float32*", "levels": "float32*"}
    parameters["y"] = f"{ELEMENTS[kind].stored}*"
    parameters |= dict.fromkeys((*numbers, "splits", "width"), "int64")
    if sink not in ("", "zero"):
        parameters["sinks"] = f"{ELEMENTS[sink].stored}*"
    stored = ELEMENTS[kind].store.format("found * inverse")
    lines = filled(_TEXT, SINK=sink_text(sink, "head"), STORED=stored)
    head = f"def attention_parts({', '.join(parameters)}):"
    text = "\n".join([head, *indented(lines)]) + "\n"
    kernel = DeviceKernel("attention_parts", text, tuple(parameters.values()))
    return kernel, tuple(parameters)
