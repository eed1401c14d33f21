"""ConvInteger: bytes less their zero points, a thread for each pixel, in 32 bits that wrap."""

from __future__ import annotations

from collections.abc import Sequence

from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.windows_fitting import unfit_convolution
from seamline_cuda.convolution_sizes import convolved, unfit
from seamline_cuda.direct_convolution import direct_integers
from seamline_cuda.works import Work

__all__ = ["add_to", "convolve_integers", "unfit_zeros"]

_BYTES = ("int8", "uint8")


def unfit_zeros(node: NodeView) -> str | None:
    """Refuse zero points that are neither one for all nor one for each channel."""
    for index, what in ((2, "input"), (3, "weights")):
        if not node.has_input(index):
            continue
        zero, w = node.tensor(index), node.tensor(1)
        if zero is None or not zero.is_sized:
            return f"the size of the zero point of its {what} is not known"
        if zero.sizes in ((), (1,)):
            continue
        many = w.sizes[:1] if w is not None and w.is_sized else None
        if index == 2 or many != zero.sizes:
            each = ", or one for each channel," if index == 3 else ""
            return (
                f"the zero point of its {what} is {zero}; one for all{each} is accepted"
            )
    return None


def convolve_integers(call: Call) -> Sequence[Work]:
    """Convolve bytes."""
    found = convolved(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    if not y.nbytes:
        return []
    zeros = [call.input(index) for index in (2, 3)]
    points = [zero.address if zero is not None else 0 for zero in zeros]
    return [
        direct_integers(
            (x.address, w.address, *points, y.address), (x.kind.dtype, w.kind.dtype),
            found.window, images=found.images, outputs=found.outputs, groups=found.groups,
            takes=found.takes, w_step=int(zeros[1] is not None and zeros[1].nbytes > 1),
        )
    ]  # fmt: skip


def add_to(table: KernelTable) -> None:
    """Add ConvInteger."""
    table.kernel(
        "ConvInteger",
        dtypes={0: _BYTES, 1: _BYTES},
        when=all_of(unfit_convolution(bias=None), unfit, unfit_zeros),
        variant="direct",
        because="bytes are convolved exactly, a thread for each pixel",
        not_capturable=None,
    )(convolve_integers)
