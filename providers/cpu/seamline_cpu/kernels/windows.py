"""What convolutions and pools on the host share beside their windows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from seamline.kernels import Call
from seamline.windows import Window

__all__ = ["scratch_of", "slide", "threads_here"]


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
