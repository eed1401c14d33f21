"""
ConvTranspose by products: weights times pixels make columns, which are added up.

The columns of a few images, or of a few channels of one, lie in the workspace at a time, in
float32 (float64 for float64), so that what overlaps is rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import FLOATS, numpy_dtype
from seamline.windows_fitting import unfit_transposed
from seamline_cuda.addends import spread
from seamline_cuda.columns import folded
from seamline_cuda.convolution import addresses
from seamline_cuda.convolution_sizes import SLAB, Convolved, convolved, unfit
from seamline_cuda.works import LIBRARY, Matrix, ProductWork, Work

__all__ = ["add_to", "convolve_transposed"]


@attrs.frozen
class _Slabs:
    """
    What has columns at a time.

    Attributes
    ----------
    images
        As many of them, each with all its channels; else one, with
    channels
        as many of every group.
    nbytes
        Of the columns.
    """

    images: int
    channels: int
    nbytes: int

    @classmethod
    def of(cls, found: Convolved, width: int) -> _Slabs:
        row = (
            found.groups * found.taps * found.pixels * width
        )  # a channel of each group
        images = 1 if found.groups > 1 else max(1, found.images)
        images = max(1, min(images, SLAB // max(row * found.makes, 1)))
        channels = max(1, min(found.makes, SLAB // max(row, 1)))
        return cls(images, channels, images * channels * row)


def _sum_of(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _columns_nbytes(node: NodeView) -> int:
    found, x = convolved(node), node.tensor(0)
    if found is None or x is None or found.is_direct:
        return 0
    return _Slabs.of(found, numpy_dtype(_sum_of(x.dtype)).itemsize).nbytes


def convolve_transposed(call: Call) -> Sequence[Work]:
    """Multiply, and add up what overlaps."""
    found = convolved(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    return list(_works(call, found)) if call.outputs[0].nbytes else []


def _works(call: Call, found: Convolved) -> Iterator[Work]:
    x, w, bias, y = addresses(call)
    dtype = call.inputs[0].kind.dtype
    if not (found.channels and found.pixels):
        rows = found.images * found.outputs
        yield spread(
            dtype, bias, y, (rows, found.places), (1 if bias else 0, 0),
            period=found.outputs, factor=1.0 if bias else 0.0,
        )  # fmt: skip
        return
    slabs = _Slabs.of(found, numpy_dtype(_sum_of(dtype)).itemsize)
    columns, tf32 = call.workspace.address, bool(call.options.get("tf32"))
    for image in range(0, found.images, slabs.images):
        many = min(slabs.images, found.images - image)
        for first in range(0, found.makes, slabs.channels):
            taken = min(slabs.channels, found.makes - first)
            yield _product(
                found, (x, w, columns), dtype, image, many, first, taken, tf32
            )
            yield folded(
                columns, bias, y + image * found.outputs * found.places * found.width,
                dtype, found.window, images=many, groups=found.groups,
                channels=found.makes, first=first, taken=taken,
            )  # fmt: skip


def _product(
    found: Convolved, places: tuple[int, int, int], dtype: str, image: int, images: int,
    first: int, taken: int, tf32: bool,
) -> ProductWork:  # fmt: skip
    """Make columns of ``taken`` channels of each group, for images or for groups."""
    x, w, columns = places
    each = found.makes * found.taps
    rows, width = taken * found.taps, found.width
    source = x + image * found.channels * found.pixels * width
    alike = found.groups == 1
    return ProductWork(
        Matrix(
            w + first * found.taps * width, each, swapped=True,
            stride=0 if alike else found.takes * each,
        ),
        Matrix(source, found.pixels, stride=found.takes * found.pixels),
        Matrix(columns, found.pixels, stride=rows * found.pixels),
        rows, found.pixels, found.takes, dtype, _sum_of(dtype),
        batch=images if alike else found.groups, tf32=tf32,
    )  # fmt: skip


def add_to(table: KernelTable) -> None:
    """Add ConvTranspose."""
    table.kernel(
        "ConvTranspose",
        dtypes=FLOATS,
        when=all_of(unfit_transposed, unfit),
        workspace=_columns_nbytes,
        variant=LIBRARY,
        because="weights times pixels by cuBLASLt make columns, which are added up",
        not_capturable=None,
    )(convolve_transposed)
