"""
Conv and ConvTranspose, over one to three axes of pixels.

With one tap, every step taken and nothing padded, a convolution is a product of its weights
and its input as they lie. Otherwise columns are laid out in the workspace, a slab of images
or of places at a time, so that they never take more than a stated size, and multiplied. Few
channels a group are convolved directly, see :mod:`seamline_cuda.direct_convolution`.

A bias is spread over the result before, and added to by the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import FLOATS
from seamline.windows_fitting import unfit_convolution, unfit_transposed
from seamline_cuda.addends import spread
from seamline_cuda.columns import gathered
from seamline_cuda.convolution_sizes import DIRECT, Convolved, convolved, unfit
from seamline_cuda.direct_convolution import direct
from seamline_cuda.works import LIBRARY, Matrix, ProductWork, Work

__all__ = ["add_to", "addresses"]


def _not_direct(node: NodeView) -> str | None:
    w = node.tensor(1)
    if w is None or not w.is_sized:
        return "its weights' sizes are not known yet"
    groups = node.attributes.get("group", 1)
    outer, inner = w.sizes[0] // groups, w.sizes[1]
    if groups == 1 or outer * inner > DIRECT:
        return (
            f"its {groups} groups have {outer} and {inner} channels; two groups or more "
            f"whose channels multiply to {DIRECT} or less are convolved directly"
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
