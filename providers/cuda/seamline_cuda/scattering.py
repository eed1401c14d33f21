"""
TensorScatter: a cache that is written in place, at positions that lie on the device.

It is how a decoder's keys and values grow (ONNX, opset 24). The positions are read by the
kernel, so one recording serves every step, and only the part of the cache that is written
needs pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import BOOL, FLOATS, FLOATS_8, INTEGERS, TensorType, numpy_dtype
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import STORED
from seamline_cuda.works import Complaint, CopyWork, KernelWork, Work

__all__ = ["DTYPES", "add_to", "tensor_scatter", "unfit"]

DTYPES = (*FLOATS, *INTEGERS, *BOOL, *FLOATS_8)

_TEXT = """def tensor_scatter(update, starts, cache, wrong, n, inner, count, size, rows, given, circular):
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < n:
        row = i // inner
        prefix = row // count
        first = starts[prefix // rows] if given else np.int64(0)
        at = first + row - prefix * count
        if first < 0 or (not circular and first + count > size):
            wrong[0] = np.uint32(1)
        else:
            if circular:
                at = at % size
            cache[(prefix * size + at) * inner + i - row * inner] = update[i]
        i += step
"""


def unfit(node: NodeView) -> str | None:
    """Give a reason to refuse a node whose element type was accepted."""
    mode = node.attributes.get("mode", "linear")
    if mode not in ("linear", "circular"):
        return f"mode {mode!r} is neither linear nor circular"
    cache = node.inputs[0]
    if not isinstance(cache, TensorType) or cache.shape is None:
        return "the cache's rank is not known"
    rank = len(cache.shape)
    axis = int(node.attributes.get("axis", -2))
    if not -rank <= axis < rank or axis % rank == 0:
        return f"axis {axis} is not the sequence's, of a cache of rank {rank}"
    return None


def tensor_scatter(call: Call) -> Sequence[Work]:
    """Copy the cache, unless it is written in place, and write the update into it."""
    past, update, starts, present = (
        call.inputs[0], call.inputs[1], call.input(2), call.outputs[0],
    )  # fmt: skip
    sizes = past.shape
    axis = call.attr("axis", -2) % len(sizes)
    stored = STORED[numpy_dtype(past.kind.dtype).itemsize]
    kernel = DeviceKernel(
        "tensor_scatter",
        _TEXT,
        (f"{stored}*", "int64*", f"{stored}*", "uint32*", *["int64"] * 7),
    )
    count, total = update.shape[axis], math.prod(update.shape)
    why = f"a write index and {count} updates leave axis {axis} with size {sizes[axis]}"
    work: list[Work] = []
    if past.address != present.address:
        work.append(CopyWork(present.address, past.address, past.nbytes))
    arguments = (
        update.address,
        starts.address if starts is not None else 0,
        present.address,
        Complaint(why),
        total,
        math.prod(sizes[axis + 1 :]),
        count,
        sizes[axis],
        math.prod(sizes[1:axis]),
        int(starts is not None),
        int(call.attr("mode", "linear") == "circular"),
    )
    return [*work, KernelWork(kernel, arguments, total)] if total else work


def add_to(table: KernelTable) -> None:
    """Add TensorScatter."""
    table.kernel(
        "TensorScatter",
        dtypes={0: DTYPES, 2: ("int64",)},
        when=unfit,
        aliases=((0, 0),),
        bounded=(0,),
        variant="positions",
        because="positions are read on the device, so one recording serves every step",
        not_capturable=None,
    )(tensor_scatter)
