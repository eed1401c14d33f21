"""Windows that slide over spatial axes: what convolutions and pools share."""

from __future__ import annotations

import attrs

from seamline.provider import NodeView
from seamline.tensors import TensorType

__all__ = ["Window", "sized", "transposed_window_of", "window_of"]


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


def transposed_window_of(
    view: NodeView, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...]
) -> Window:
    """
    Read the window of a transposed convolution; what the output leaves over is padding.

    Parameters
    ----------
    x, w, y
        Sizes of the input, the weights and the output, all their axes.
    """
    rank = len(x) - 2
    given = view.attributes
    strides = tuple(given.get("strides") or (1,) * rank)
    dilations = tuple(given.get("dilations") or (1,) * rank)
    mode = given.get("auto_pad", "NOTSET")
    pads = tuple(given.get("pads") or (0,) * 2 * rank)
    begins, ends = pads[:rank], pads[rank:]
    if mode == "VALID":
        begins = ends = (0,) * rank
    if given.get("output_shape") or mode in ("SAME_UPPER", "SAME_LOWER"):
        extra = tuple(given.get("output_padding") or (0,) * rank)
        totals = [
            max(0, s * (n - 1) + e + (k - 1) * d + 1 - o)
            for s, n, e, k, d, o in zip(
                strides, x[2:], extra, w[2:], dilations, y[2:], strict=True
            )
        ]
        small = tuple(total // 2 for total in totals)
        large = tuple(total - total // 2 for total in totals)
        begins, ends = (small, large) if mode == "SAME_UPPER" else (large, small)
    return Window(x[2:], y[2:], w[2:], strides, dilations, begins, ends)
