"""
DynamicQuantizeLinear: one pass for the range, 0 included, and one that quantises.

The scale is the range over 255, the zero point what the least becomes. Where all is 0 the
standard's scale of 0 leaves no quotient; the scale is 1 then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline_cuda.claiming import elements_fit, sizes_of
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.folds import Folds
from seamline_cuda.quantizing_formulas import code_text
from seamline_cuda.row_programs import Fold, RowProgram, State
from seamline_cuda.row_works import row_work, workspace_of
from seamline_cuda.works import KernelWork, Work

__all__ = ["add_to", "quantize_dynamically"]

_ZERO = "np.float32(0)"
_RANGE = RowProgram(
    "quantized_range",
    (("x", "float32*"), ("scale", "float32*"), ("zero", "uint8*")),
    (("x", "float32"),),
    ("x{u} = x[at{u}]",),
    (
        Fold(
            (State("low", "float32", _ZERO), State("high", "float32", _ZERO)),
            ("low = least(low, x{u})", "high = greatest(high, x{u})"),
            ("low = least(low, o_low)", "high = greatest(high, o_high)"),
            (
                "width = (high - low) / np.float32(255)",
                "width = width if width != np.float32(0) else np.float32(1)",
            ),
        ),
    ),
    result=(
        "scale[row] = width",
        f"zero[row] = np.uint8({code_text('-low / width', '', 'uint8')})",
    ),
)
_CODES = f"""def dynamic_codes(x, scale, zero, out, n):
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    width = scale[0]
    point = np.float32(zero[0])
    while i < n:
        out[i] = np.uint8({code_text("x[i] / width", "point", "uint8")})
        i += step
"""
_KERNEL = DeviceKernel(
    "dynamic_codes", _CODES, ("float32*", "float32*", "uint8*", "uint8*", "int64")
)


def _folds(sizes: Sequence[int]) -> Folds:
    return Folds.of(sizes, tuple(range(len(sizes))))


def quantize_dynamically(call: Call) -> Sequence[Work]:
    """Find the range, then the codes."""
    x, (out, scale, zero) = call.inputs[0], call.outputs
    sizes = x.kind.sizes
    places = (x.address, scale.address, zero.address)
    works: list[Work] = [*row_work(_RANGE, _folds(sizes), places, call)]
    count = math.prod(sizes)
    if count:
        works.append(
            KernelWork(
                _KERNEL,
                (x.address, scale.address, zero.address, out.address, count),
                count,
            )
        )
    return works


def _workspace(node: NodeView) -> int:
    sizes = sizes_of(node, 0)
    return workspace_of(_folds(sizes), 2) if sizes is not None else 0


def _asked(node: NodeView) -> str | None:
    if not all(node.has_output(index) for index in range(3)):
        return "an output is left out; all three are accepted"
    return elements_fit(node)


def add_to(table: KernelTable) -> None:
    """Add the operator."""
    table.kernel(
        "DynamicQuantizeLinear",
        since=11,
        dtypes=("float32",),
        when=_asked,
        workspace=_workspace,
        variant="rows",
        because="threads that share the range exchange registers",
        not_capturable=None,
    )(quantize_dynamically)
