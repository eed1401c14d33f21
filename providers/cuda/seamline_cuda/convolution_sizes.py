"""A convolution by its sizes: its parts, how many columns it needs at a time, and whether it fits."""

from __future__ import annotations

import math

import attrs

from seamline.provider import NodeView
from seamline.tensors import FLOATS, TensorType, numpy_dtype
from seamline.windows import Window, transposed_window_of, window_of

__all__ = ["DIRECT", "SLAB", "Convolved", "convolved", "unfit"]

_LIMIT = 1 << 31  #: elements: places are found in 32 bits
_AXES = 3  #: of pixels
#: Channels that a group takes times those that it makes, up to which it is direct.
DIRECT = 64
SLAB = 64 << 20  #: bytes of columns at a time; more places than fit are taken in turn
_EVEN = 8  #: places that a slab is a multiple of, so that its rows begin evenly


@attrs.frozen
class Convolved:
    """
    A convolution by its sizes.

    Attributes
    ----------
    window
        Over three axes, the outer ones of size one where there are fewer.
    images, channels, outputs
        Of the input, and of the result.
    groups
        Parts that channels are cut into.
    """

    window: Window
    images: int
    channels: int
    outputs: int
    groups: int
    width: int

    @property
    def takes(self) -> int:
        """Give the channels that a group reads."""
        return self.channels // self.groups

    @property
    def makes(self) -> int:
        """Give the channels that a group writes."""
        return self.outputs // self.groups

    @property
    def taps(self) -> int:
        """Give the places of the window's kernel."""
        return math.prod(self.window.kernel)

    @property
    def pixels(self) -> int:
        """Give the pixels of one channel of the input."""
        return math.prod(self.window.sizes)

    @property
    def places(self) -> int:
        """Give the pixels of one channel of the result."""
        return math.prod(self.window.outs)

    @property
    def is_direct(self) -> bool:
        """Tell whether its groups have too few channels for a product."""
        return self.groups > 1 and self.takes * self.makes <= DIRECT

    @property
    def is_pointwise(self) -> bool:
        """Tell whether its input's pixels are its columns."""
        window = self.window
        stepped = any(s > 1 for s in window.strides) or any(window.begins)
        return self.taps == 1 and not stepped and window.sizes == window.outs

    def slabs(self) -> tuple[int, int]:
        """Give the images and the places of each that have columns at a time."""
        each = self.channels * self.taps * self.width
        if each * self.places <= SLAB:
            return max(
                1, min(self.images, SLAB // max(each * self.places, 1))
            ), self.places
        places = SLAB // each
        return 1, max(places - places % _EVEN, 1)

    def columns_nbytes(self) -> int:
        """Give the bytes of the columns that there are at a time."""
        if self.is_direct or self.is_pointwise:
            return 0
        images, places = self.slabs()
        return images * places * self.channels * self.taps * self.width


def convolved(node: NodeView) -> Convolved | None:
    """Read a node's sizes; None while one of them is not known."""
    x, w, y = node.tensor(0), node.tensor(1), node.outputs[0]
    if x is None or w is None or not isinstance(y, TensorType):
        return None
    if not (x.is_sized and w.is_sized and y.is_sized):
        return None
    if node.op_type == "ConvTranspose":
        window = transposed_window_of(node, x.sizes, w.sizes, y.sizes)
    else:
        window = window_of(node, x.sizes[2:], y.sizes[2:], w.sizes[2:])
    return Convolved(
        window.in_three(), x.sizes[0], x.sizes[1], y.sizes[1],
        node.attributes.get("group", 1), numpy_dtype(x.dtype).itemsize,
    )  # fmt: skip


def unfit(node: NodeView) -> str | None:
    """Refuse other axes than one to three, two element types, and sizes out of range."""
    x, w = node.tensor(0), node.tensor(1)
    if x is None or w is None or w.shape is None:
        return "its weights' rank is not known; a declared one would be accepted"
    # An input whose rank is found by running has the weights'.
    if not 3 <= len(w.shape if x.shape is None else x.shape) <= 2 + _AXES:
        return f"its input is {x}; one to {_AXES} axes of pixels are accepted"
    if w.dtype != x.dtype and x.dtype in FLOATS:
        return f"its input is {x.dtype} and its weights are {w.dtype}"
    for kind in (*node.inputs, *node.outputs):
        if not (isinstance(kind, TensorType) and kind.is_sized):
            continue
        if math.prod(kind.sizes) >= _LIMIT:
            return f"{kind} has {_LIMIT} elements or more"
    return None
