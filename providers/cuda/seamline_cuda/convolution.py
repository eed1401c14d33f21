"""
Conv and ConvTranspose, over one to three axes of pixels.

With one tap, every step taken and nothing padded, a convolution is a product of its weights
and its input as they lie. Otherwise columns are laid out in the workspace, a slab of images
or of places at a time, so that they never take more than a stated size, and multiplied. Few
channels a group are convolved directly, see :mod:`seamline_cuda.direct_convolution`.

A bias is spread over the result before, and added to by the product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs

from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import FLOATS, TensorType, numpy_dtype
from seamline.windows import Window, transposed_window_of, window_of
from seamline.windows_fitting import unfit_convolution, unfit_transposed
from seamline_cuda.addends import spread
from seamline_cuda.columns import gathered
from seamline_cuda.direct_convolution import direct
from seamline_cuda.works import LIBRARY, Matrix, ProductWork, Work

__all__ = ["SLAB", "Convolved", "add_to", "addresses", "convolved", "unfit"]

_LIMIT = 1 << 31  #: elements: places are found in 32 bits
_AXES = 3  #: of pixels
_DIRECT = (
    64  #: channels that a group takes times those it makes, up to which it is direct
)
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
        return self.groups > 1 and self.takes * self.makes <= _DIRECT

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
    if x is None or x.shape is None:
        return "its input's rank is not known"
    if w is None or w.shape is None:
        return "its weights' rank is not known"
    if not 3 <= len(x.shape) <= 2 + _AXES:
        return f"its input is {x}; one to {_AXES} axes of pixels are accepted"
    if w.dtype != x.dtype:
        return f"its input is {x.dtype} and its weights are {w.dtype}"
    for kind in (*node.inputs, *node.outputs):
        if not (isinstance(kind, TensorType) and kind.is_sized):
            continue
        if math.prod(kind.sizes) >= _LIMIT:
            return f"{kind} has {_LIMIT} elements or more"
    return None


def _not_direct(node: NodeView) -> str | None:
    w = node.tensor(1)
    if w is None or not w.is_sized:
        return "its weights' sizes are not known yet"
    groups = node.attributes.get("group", 1)
    outer, inner = w.sizes[0] // groups, w.sizes[1]
    if groups == 1 or outer * inner > _DIRECT:
        return (
            f"its {groups} groups have {outer} and {inner} channels; two groups or more "
            f"whose channels multiply to {_DIRECT} or less are convolved directly"
        )
    return None


def addresses(call: Call) -> tuple[int, int, int, int]:
    """Give where input, weights, bias (0 for none) and result lie."""
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    bias = call.input(2)
    return x.address, w.address, bias.address if bias is not None else 0, y.address


def convolve_directly(call: Call) -> Sequence[Work]:
    """Convolve a few channels a group."""
    found = convolved(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    if not call.outputs[0].nbytes:
        return []
    return [
        direct(
            addresses(call), call.inputs[0].kind.dtype, found.window, images=found.images,
            outputs=found.outputs, groups=found.groups, takes=found.takes,
            transposed=call.view.op_type == "ConvTranspose",
        )
    ]  # fmt: skip


def convolve(call: Call) -> Sequence[Work]:
    """Convolve by products."""
    found = convolved(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    if not call.outputs[0].nbytes:
        return []
    return list(_convolved(call, found))


def _convolved(call: Call, found: Convolved) -> Iterator[Work]:
    x, w, bias, y = addresses(call)
    dtype = call.inputs[0].kind.dtype
    if bias or not found.channels:
        rows = found.images * found.outputs
        yield spread(
            dtype, bias, y, (rows, found.places), (1 if bias else 0, 0),
            period=found.outputs, factor=1.0 if bias else 0.0,
        )  # fmt: skip
    if not found.channels:
        return
    product = _Products(found, dtype, w, y, bool(bias), bool(call.options.get("tf32")))
    pixels = found.channels * found.pixels * found.width
    if found.is_pointwise:
        yield from product.over(x, found.images, 0, 0, found.places)
        return
    images, places = found.slabs()
    columns = call.workspace.address
    for image in range(0, found.images, images):
        many = min(images, found.images - image)
        for first in range(0, found.places, places):
            count = min(places, found.places - first)
            yield gathered(
                x + image * pixels, columns, found.width, found.window, images=many,
                channels=found.channels, taken=found.channels, first=first, count=count,
            )  # fmt: skip
            yield from product.over(columns, many, image, first, count)


@attrs.frozen
class _Products:
    """Products of a convolution's weights with columns."""

    found: Convolved
    dtype: str
    weights: int
    target: int
    added: bool
    tf32: bool

    def over(
        self, columns: int, images: int, image: int, first: int, count: int
    ) -> Iterator[ProductWork]:
        """Multiply: images are a batch, or groups are, an image at a time."""
        one, groups = self.found, self.found.groups
        depth = one.takes * one.taps
        size = one.outputs * one.places
        start = self.target + (image * size + first) * one.width
        for turn in range(images if groups > 1 else 1):
            place = columns + turn * one.channels * one.taps * count * one.width
            to = start + turn * size * one.width
            alike = groups == 1
            yield ProductWork(
                Matrix(self.weights, depth, stride=0 if alike else one.makes * depth),
                Matrix(place, count, stride=depth * count),
                Matrix(to, one.places, stride=size if alike else one.makes * one.places),
                one.makes, count, depth, self.dtype, batch=images if alike else groups,
                beta=1.0 if self.added else 0.0, tf32=self.tf32,
            )  # fmt: skip


def _columns_nbytes(node: NodeView) -> int:
    found = convolved(node)
    return found.columns_nbytes() if found is not None else 0


def add_to(table: KernelTable) -> None:
    """Add Conv, and the direct form of both."""
    for op_type, fits in (
        ("Conv", unfit_convolution()),
        ("ConvTranspose", unfit_transposed),
    ):
        table.kernel(
            op_type,
            dtypes=FLOATS,
            when=all_of(fits, unfit, _not_direct),
            variant="direct",
            because="its groups have too few channels for a product of matrices",
            not_capturable=None,
        )(convolve_directly)
    table.kernel(
        "Conv",
        dtypes=FLOATS,
        when=all_of(unfit_convolution(), unfit),
        workspace=_columns_nbytes,
        variant=LIBRARY,
        because="columns of the input are multiplied with the weights by cuBLASLt",
        not_capturable=None,
    )(convolve)
