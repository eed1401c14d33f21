"""What convolutions and pools share: windows that slide over the spatial axes."""

from __future__ import annotations

import os
from typing import Any

import attrs
import numpy as np

from seamline.kernels import Call
from seamline.provider import NodeView
from seamline.tensors import TensorType

__all__ = ["Window", "scratch_of", "sized", "slide", "threads_here", "window_of"]


@attrs.frozen
class Window:
    """
    A window over spatial axes; every field has one entry an axis.

    Attributes
    ----------
    begins
        Padding before each axis, as it is used: ``auto_pad`` is resolved.
    """

    sizes: tuple[int, ...]
    outs: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    def in_three(self) -> Window:
        """Give the same window over three axes: leading axes of size one are added."""
        more = 3 - len(self.sizes)
        ones, zeros = (1,) * more, (0,) * more
        return Window(
            ones + self.sizes, ones + self.outs, ones + self.kernel, ones + self.strides,
            ones + self.dilations, zeros + self.begins, zeros + self.ends,
        )  # fmt: skip


def window_of(
    view: NodeView,
    sizes: tuple[int, ...],
    outs: tuple[int, ...],
    kernel: tuple[int, ...],
) -> Window:
    """Read a node's window; ``auto_pad`` follows from the sizes, as ONNX defines it."""
    rank = len(sizes)
    given = view.attributes
    strides = tuple(given.get("strides") or (1,) * rank)
    dilations = tuple(given.get("dilations") or (1,) * rank)
    pads = tuple(given.get("pads") or (0,) * (2 * rank))
    begins, ends = pads[:rank], pads[rank:]
    mode = given.get("auto_pad", "NOTSET")
    if mode == "VALID":
        begins = ends = (0,) * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        spans = [
            max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
            for size, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)
        ]
        small = tuple(span // 2 for span in spans)
        large = tuple(span - span // 2 for span in spans)
        begins, ends = (small, large) if mode == "SAME_UPPER" else (large, small)
    return Window(sizes, outs, tuple(kernel), strides, dilations, begins, ends)


def sized(view: NodeView, *indices: int) -> bool:
    """Tell whether the inputs at ``indices`` and output 0 have known sizes."""
    kinds = [view.inputs[i] for i in indices] + [view.outputs[0]]
    return all(isinstance(kind, TensorType) and kind.is_sized for kind in kinds)


def threads_here() -> int:
    """Give the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def scratch_of(call: Call, nbytes: int) -> np.ndarray[Any, Any]:
    """Give the node's workspace, or memory of its own where the plan knew no sizes."""
    given = call.workspace
    if given is not None and given.nbytes >= nbytes:
        return given  # type: ignore[no-any-return]
    return np.empty(nbytes, np.uint8)


def slide(x: np.ndarray[Any, Any], window: Window, fill: Any) -> np.ndarray[Any, Any]:
    """
    Show each place of the window: axes ``(N, C, *outs, *kernel)``, over a padded copy.

    What lies outside the input is ``fill``; ends are padded as far as ``outs`` reach.
    """
    spans = [
        (o - 1) * s + (k - 1) * d + 1
        for o, s, k, d in zip(
            window.outs, window.strides, window.kernel, window.dilations, strict=True
        )
    ]
    shape = tuple(
        max(span, b + size)
        for span, b, size in zip(spans, window.begins, window.sizes, strict=True)
    )
    padded = np.full(x.shape[:2] + shape, fill, x.dtype)
    inside = tuple(
        slice(b, b + size) for b, size in zip(window.begins, window.sizes, strict=True)
    )
    padded[(slice(None), slice(None), *inside)] = x
    steps = padded.strides
    return np.lib.stride_tricks.as_strided(
        padded,
        x.shape[:2] + window.outs + window.kernel,
        steps[:2]
        + tuple(p * s for p, s in zip(steps[2:], window.strides, strict=True))
        + tuple(p * d for p, d in zip(steps[2:], window.dilations, strict=True)),
        writeable=False,
    )
