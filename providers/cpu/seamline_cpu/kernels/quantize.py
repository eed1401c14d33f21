"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear, all granularities."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.scale_fitting import unfit_scales
from seamline.tensors import dtype_name, numpy_dtype
from seamline_cpu.kernels.conversions import to_float8
from seamline_cpu.kernels.granules import granules, in_rows
from seamline_cpu.kernels.linear_commands import bind_dequantized, bind_quantized
from seamline_cpu.kernels.pointwise import (
    ARITHMETIC_FROM,
    in_parallel,
    in_sequence,
    share_count,
)
from seamline_cpu.kernels.quantize_commands import bind_dynamic
from seamline_cpu.kernels.recorded import OF_BYTES, OF_FLOAT32, in_python
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_FLOATS = ("float32", "float16", "bfloat16")
_ENDS = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "uint4": (0, 15),
    "int4": (-8, 7),
    "uint2": (0, 3),
    "int2": (-2, 1),
}
_INTEGERS = tuple(_ENDS)
_FLOATS_8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_SMALL_FLOATS = ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")
_SCALES = (*_FLOATS, "float8_e8m0fnu")
_COMPILED = (
    "8 bits and a scale of all or along an axis take compiled loops, else NumPy calls"
)

Piece = tuple[Array, Array, Array | None, Array]


def _precision(call: Call) -> Any:
    """Give the type to divide in: the attribute's, else the scale's."""
    chosen = call.attr("precision", 0)
    name = (
        dtype_name(ir.DataType(chosen)) if chosen else dtype_name(call.inputs[1].dtype)
    )
    # Integers and powers of two have no fraction to divide in; float32 holds the latter.
    return {"int32": np.dtype(np.float64), "float8_e8m0fnu": np.dtype(np.float32)}.get(
        name, numpy_dtype(name)
    )


def _quotient(x: Array, scale: Array, precision: Any) -> Array:
    x = x if x.dtype == precision else x.astype(precision)
    scale = scale if scale.dtype == precision else scale.astype(precision)
    return np.asarray(np.divide(x, scale))


def _to_integers(precision: Any, low: int, high: int, piece: Piece) -> None:
    x, scale, zero, out = piece
    q = _quotient(x, scale, precision)
    q = np.asarray(np.rint(q))
    # A half cannot hold 65535; the sum is exact in float32.
    q = q if q.dtype == np.float64 else q.astype(np.float32, copy=False)
    if zero is not None:
        q += zero.astype(np.float32)
    q = np.minimum(np.maximum(q, low), high)
    # NaN has no place among the integers, and its conversion differs by processor.
    np.copyto(out, np.where(q == q, q, low).astype(np.int32), casting="unsafe")


def _to_floats(precision: Any, saturate: bool, piece: Piece) -> None:
    x, scale, zero, out = piece
    q = _quotient(x, scale, precision)
    q = q if q.dtype == np.float64 else q.astype(np.float32, copy=False)
    if zero is not None:
        q = q + zero.astype(np.float32)
    to_float8(q, out, saturate)


def _from_any(piece: Piece) -> None:
    x, scale, zero, out = piece
    y = x.astype(np.float32)
    if zero is not None:
        y -= zero.astype(np.float32)
    y *= scale.astype(np.float32, copy=False)
    np.copyto(out, y, casting="unsafe")


def _in_pieces(call: Call, step: Callable[[Piece], None]) -> Run:
    """Bind a step over pieces in which scale and zero point broadcast."""
    x, scale, zero, out = call.inputs[0], call.inputs[1], call.input(2), call.outputs[0]
    pieces = in_rows(
        granules(x, scale, zero, out, call.attr("axis", 1), call.attr("block_size", 0))
    )
    count = share_count(call, out.size, ARITHMETIC_FROM)
    runs = [functools.partial(step, piece) for piece in pieces]
    count = min(count, len(runs)) or 1
    return in_parallel(
        [in_sequence(runs[i::count] or [lambda: None]) for i in range(count)]
    )


def _is_plain(call: Call, wide: Array, narrow: Array) -> bool:
    """Tell whether the commands apply: 8 bits, and scales of all or along an axis."""
    scale, zero = call.inputs[1], call.input(2)
    return (
        bool(wide.size)
        and wide.dtype == scale.dtype == np.float32
        and narrow.dtype in (np.uint8, np.int8)
        and call.attr("precision", 0) in (0, int(ir.DataType.FLOAT))
        and not call.attr("block_size", 0)
        and scale.ndim < 2
        and (zero is None or zero.shape == scale.shape or zero.size == scale.size == 1)
        and wide.flags.c_contiguous
        and narrow.flags.c_contiguous
    )


def _axis(call: Call) -> int:
    rank = call.inputs[0].ndim
    axis = int(call.attr("axis", 1))
    return 0 if rank == 1 and axis == 1 else axis % max(1, rank)


def _unlike_bytes(node: NodeView) -> str | None:
    """Say why a node's scale, or what it reads or gives, has no commands."""
    kinds = [node.tensor(1), node.outputs[0] if node.outputs else None]
    scale, out = (getattr(kind, "dtype", None) for kind in kinds)
    wide, narrow = (
        (out, "int8") if node.op_type == "DequantizeLinear" else ("float32", out)
    )
    if node.attributes.get("block_size", 0) or scale != "float32" or wide != "float32":
        return in_python(f"its scale is {scale}, in blocks or not, and it gives {out}")
    if narrow not in ("int8", "uint8") or node.attributes.get("precision", 0) not in (
        0,
        1,
    ):
        return in_python("only codes of 8 bits have compiled commands")
    return None


@TABLE.kernel(
    "QuantizeLinear",
    since=10,
    dtypes={
        0: (*_FLOATS, "int32"),
        1: (*_SCALES, "int32"),
        2: _INTEGERS + _FLOATS_8 + _SMALL_FLOATS,
    },
    when=unfit_scales,
    variant="commands",
    because=_COMPILED,
    not_capturable=all_of(OF_FLOAT32, _unlike_bytes),
)
def quantize_linear(call: Call) -> Run:
    """Bind QuantizeLinear: x / scale, rounded to even, plus the zero point, saturated."""
    out = call.outputs[0]
    name = dtype_name(out.dtype)
    precision = _precision(call)
    if name in _FLOATS_8 + _SMALL_FLOATS:
        saturate = bool(call.attr("saturate", 1)) or name in _SMALL_FLOATS
        return _in_pieces(call, functools.partial(_to_floats, precision, saturate))
    low, high = _ENDS[name]
    if _is_plain(call, call.inputs[0], out):
        x, scale, zero = call.inputs[0], call.inputs[1], call.input(2)
        return bind_quantized(
            x, scale, zero, out, _axis(call), threads_of(call.options)
        )
    return _in_pieces(call, functools.partial(_to_integers, precision, low, high))


@TABLE.kernel(
    "DequantizeLinear",
    since=10,
    dtypes={0: (*_INTEGERS, "int32", *_FLOATS_8, *_SMALL_FLOATS), 1: _SCALES},
    when=unfit_scales,
    variant="commands",
    because=_COMPILED,
    not_capturable=all_of(OF_BYTES, _unlike_bytes),
)
def dequantize_linear(call: Call) -> Run:
    """Bind DequantizeLinear: (x - zero point) scale, in float32."""
    if _is_plain(call, call.outputs[0], call.inputs[0]):
        x, scale, zero = call.inputs[0], call.inputs[1], call.input(2)
        out = call.outputs[0]
        return bind_dequantized(
            x, scale, zero, out, _axis(call), threads_of(call.options)
        )
    return _in_pieces(call, _from_any)


@TABLE.kernel(
    "DynamicQuantizeLinear",
    since=11,
    dtypes=("float32",),
    variant="commands",
    because="one compiled pass for the range, one to quantise",
    not_capturable=OF_FLOAT32,
)
def dynamic_quantize_linear(call: Call) -> Run:
    """
    Bind DynamicQuantizeLinear: scale and zero point from the range, 0 included.

    Where all is 0 the standard's scale of 0 leaves no quotient; the scale is 1 then.
    """
    codes, scale, zero = (call.output(i) for i in range(3))
    return bind_dynamic(call.inputs[0], codes, scale, zero, threads_of(call.options))
