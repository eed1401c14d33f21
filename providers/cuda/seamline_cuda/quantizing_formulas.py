"""
QuantizeLinear and DequantizeLinear as elementwise formulas, with scales of all or of an axis.

A quotient is rounded to the type that it is made in, then to the nearest whole number, ties
to even; the zero point is added in float32, which holds every sum exactly, and what is too
large or too small is the last code on that side. NaN becomes the least. A difference of codes
is exact, and rounded once where float32 does not hold it.
"""

from __future__ import annotations

from typing import cast

import onnx_ir as ir

from seamline.fitting import all_of, dims
from seamline.provider import NodeView
from seamline.scale_fitting import scale_axis, unfit_scales
from seamline.tensors import TensorType, dtype_name
from seamline_cuda.elements import ELEMENTS, FLOATS
from seamline_cuda.formula import Formula, dtype_of

__all__ = ["ENDS", "QUANTIZING", "code_text"]

#: Codes that the device has, and the least and the greatest of each.
ENDS = {
    "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535),
}  # fmt: skip


def _along(node: NodeView) -> int:
    kind = cast(TensorType, node.inputs[0])
    return scale_axis(node, len(kind.sizes))


def code_text(value: str, zero: str, dtype: str) -> str:
    """
    Write the code of a float32 that was divided by its scale.

    Parameters
    ----------
    zero
        The zero point as a float32; empty for none.
    """
    low, high = (f"np.float32({end})" for end in ENDS[dtype])
    moved = f"libdevice.rintf({value})" + (f" + {zero}" if zero else "")
    # Of NaN and a number these two give the number.
    return f"np.int32(libdevice.fminf(libdevice.fmaxf({moved}, {low}), {high}))"


def _divides_in(node: NodeView) -> str:
    chosen = node.attributes.get("precision", 0)
    return dtype_name(ir.DataType(chosen)) if chosen else dtype_of(node, 1)


def _quantized(node: NodeView) -> str:
    made = cast(TensorType, node.outputs[0])
    exact = ELEMENTS[_divides_in(node)].rounded
    given = ["np.float32({0})", "{1}"]
    for index in (0, 1):
        if dtype_of(node, index) != _divides_in(node):
            given[index] = exact.format(given[index])
    quotient = exact.format(f"{given[0]} / {given[1]}")
    zero = "np.float32({2})" if node.has_input(2) else ""
    return code_text(quotient, zero, made.dtype)


def _dequantized(node: NodeView) -> str:
    whole = "np.int64" if dtype_of(node) == "int32" else "np.int32"
    code = f"{whole}({{0}})"
    if node.has_input(2):
        code = f"({code} - {whole}({{2}}))"
    return f"product(np.float32({code}), {{1}})"


def _unfit(node: NodeView) -> str | None:
    """Refuse blocks, and scales of a type or size that the kernels do not have."""
    if node.attributes.get("block_size", 0):
        return "it has a block_size; a scale for all or for each of an axis is accepted"
    scale = node.tensor(1)
    if scale is None or scale.dtype not in FLOATS:
        return f"its scale is {scale}; {', '.join(FLOATS)} are accepted"
    if dims(node, 0) is None or dims(node, 1) is None:
        return "the rank of its input or scale is not known; declared ones are accepted"
    return None


def _unfit_codes(node: NodeView) -> str | None:
    made = node.outputs[0]
    if not isinstance(made, TensorType) or made.dtype not in ENDS:
        return f"it gives {made}; codes of {', '.join(ENDS)} are accepted"
    if _divides_in(node) not in FLOATS:
        return f"its precision is {_divides_in(node)}; {', '.join(FLOATS)} are accepted"
    return None


QUANTIZING: dict[str, Formula] = {
    "DequantizeLinear": Formula.of(
        10, (*ENDS, "int32"), _dequantized, "axis", "block_size", "output_dtype",
        alike=(), when=all_of(_unfit, unfit_scales), along=_along,
    ),
    "QuantizeLinear": Formula.of(
        10, (*FLOATS, "int32"), _quantized, "axis", "block_size", "output_dtype",
        "precision", "saturate",
        alike=(), when=all_of(_unfit, _unfit_codes, unfit_scales), along=_along,
    ),
}  # fmt: skip
