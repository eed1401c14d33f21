"""
Expand, Tile, DepthToSpace and SpaceToDepth: copies of a tensor seen under other steps.

A step of 0 repeats an axis, and blocks of pixels are axes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from seamline.axes import integers
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline_cuda.elements import MOVED
from seamline_cuda.limits import rank_of, unfit
from seamline_cuda.regions import Region, moved
from seamline_cuda.works import Work

__all__ = ["add_to", "depth_to_space", "expand", "space_to_depth", "tile"]


def expand(call: Call) -> Sequence[Work]:
    """Broadcast to the planned sizes, which the shape asked for led to."""
    out = Region.of(call.outputs[0])
    return moved(Region.of(call.inputs[0]).repeated(out.sizes), out)


def tile(call: Call) -> Sequence[Work]:
    """Repeat the whole along each axis: each is a pair of axes, the first repeated."""
    x, out = call.inputs[0], call.outputs[0]
    repeats = integers(call.inputs[1]) or ()
    if len(repeats) != len(x.shape):
        raise ValueError(f"{len(repeats)} repeats for {len(x.shape)} dimensions")
    found = [r * n for r, n in zip(repeats, x.shape, strict=True)]
    if found != list(out.shape):
        raise ValueError(f"gives {found}, the plan says {list(out.shape)}")
    whole = [part for n in x.shape for part in (1, n)]
    wanted = [part for r, n in zip(repeats, x.shape, strict=True) for part in (r, n)]
    return moved(Region.of(x, whole).repeated(wanted), Region.of(out, wanted))


def depth_to_space(call: Call) -> Sequence[Work]:
    """Spread channels over blocks of pixels (DCR: the block comes before the depth)."""
    x, out, b = call.inputs[0], call.outputs[0], int(call.attr("blocksize"))
    n, c, h, w = x.shape
    deep = c // (b * b)
    if call.attr("mode", "DCR") == "DCR":
        seen = Region.of(x, (n, b, b, deep, h, w)).permuted((0, 3, 4, 1, 5, 2))
    else:
        seen = Region.of(x, (n, deep, b, b, h, w)).permuted((0, 1, 4, 2, 5, 3))
    return moved(seen, Region.of(out, seen.sizes))


def space_to_depth(call: Call) -> Sequence[Work]:
    """Gather blocks of pixels into channels; undoes DepthToSpace of the same mode."""
    x, out, b = call.inputs[0], call.outputs[0], int(call.attr("blocksize"))
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4)
    if call.attr("mode", "DCR") == "CRD":
        order = (0, 1, 3, 5, 2, 4)
    seen = Region.of(x, (n, c, h // b, b, w // b, b)).permuted(order)
    return moved(seen, Region.of(out, seen.sizes))


def _image(node: NodeView) -> str | None:
    rank, mode = rank_of(node), node.attributes.get("mode", "DCR")
    if rank not in (None, 4):
        return f"rank {rank} is not that of images, 4"
    if mode not in ("DCR", "CRD"):
        return f"mode {mode!r} is neither DCR nor CRD"
    return unfit(node)


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type, since, on_host, when, function in (
        ("Expand", 8, (1,), unfit, expand),
        ("Tile", 6, (1,), unfit, tile),
        ("DepthToSpace", 1, (), _image, depth_to_space),
        ("SpaceToDepth", 1, (), _image, space_to_depth),
    ):
        table.kernel(
            op_type,
            since=since,
            dtypes=MOVED,
            when=when,
            host_inputs=on_host,
            variant="copies",
            because="one kernel reads the input under other steps",
            not_capturable=None,
        )(function)
