"""
LRN: each element over a power of the mean square of its neighbours in other channels.

``size`` channels count, the element's own in the middle, or one more after it than before;
those that are not there count as 0. Squares are added in float32, of doubles in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline_cuda.claiming import elements_fit
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS, FLOATS
from seamline_cuda.limits import rank_of
from seamline_cuda.works import KernelWork, Work

__all__ = ["add_to", "normalize_locally", "response_kernel"]


def response_kernel(dtype: str) -> DeviceKernel:
    """Give LRN over input, output, count, channels, pixels, and the window's numbers."""
    element = ELEMENTS[dtype]
    kind, last = element.computed, "" if dtype == "float64" else "f"
    square = "product64" if dtype == "float64" else "product"
    found = f"x / libdevice.pow{last}(bias + each * total, beta)"
    text = f"""def local_response(source, target, n, channels, pixels, before, after, each, beta, bias):
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < n:
        line = quotient32(np.uint32(i), pixels)
        channel = np.int64(line - quotient32(line, channels) * channels)
        first = -min(before, channel)
        last = min(after, np.int64(channels) - 1 - channel)
        total = np.{kind}(0)
        for apart in range(first, last + 1):
            x = {element.load.format("source[i + apart * np.int64(pixels)]")}
            total += {square}(x, x)
        x = {element.load.format("source[i]")}
        target[i] = {element.store.format(found)}
        i += step
"""
    stored = f"{element.stored}*"
    signature = (
        stored, stored, "int64", "uint32", "uint32", "int64", "int64", *[kind] * 3,
    )  # fmt: skip
    return DeviceKernel("local_response", text, signature)


def normalize_locally(call: Call) -> Sequence[Work]:
    """Divide every element."""
    x, out, size = call.inputs[0], call.outputs[0], int(call.attr("size"))
    sizes = x.kind.sizes
    count = math.prod(sizes)
    if not count:
        return []
    arguments = (
        x.address, out.address, count, sizes[1], math.prod(sizes[2:]), (size - 1) // 2,
        size // 2, float(call.attr("alpha", 1e-4)) / size, float(call.attr("beta", 0.75)),
        float(call.attr("bias", 1.0)),
    )  # fmt: skip
    return [KernelWork(response_kernel(x.kind.dtype), arguments, count)]


def _unfit(node: NodeView) -> str | None:
    rank, size = rank_of(node), node.attributes.get("size", 0)
    if size < 1:
        return f"its size is {size}; 1 or more is accepted"
    if rank is not None and rank < 2:
        return f"its input has {rank} axes, and channels are the second"
    return elements_fit(node)


def add_to(table: KernelTable) -> None:
    """Add the operator."""
    table.kernel(
        "LRN",
        dtypes=(*FLOATS, "float64"),
        when=_unfit,
        variant="elements",
        because="a thread for each element reads its neighbours, mostly from cache",
        not_capturable=None,
    )(normalize_locally)
